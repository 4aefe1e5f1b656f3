"""What every demo does: start programs under OpenTelemetry, and show the traces they leave."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from kit.otlp import Span, environment
from kit.page import write_page
from kit.tree import trace_trees

RESULTS = Path(os.environ.get("RESULTS") or Path(__file__).parents[2] / "results")
"""Where pages are written; git does not look there."""


def instrumented(program: Path, *arguments: str) -> list[str]:
    """Return the command that runs a Python program under ``opentelemetry-instrument``."""
    tool = Path(sys.executable).with_name("opentelemetry-instrument")
    return [str(tool), sys.executable, str(program), *arguments]


@contextlib.contextmanager
def running(
    service: str, command: Sequence[str], endpoint: str, variables: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that exports to ``endpoint``; afterwards end it as an operator would."""
    env = {**os.environ, **environment(endpoint, service), **variables}
    process = subprocess.Popen(command, env=env)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=60)
        finally:
            process.kill()


def show(
    spans: Sequence[Span], faults: Sequence[str], page: str, title: str, *, attributes: bool = False
) -> int:
    """Print the traces, write their page, and say what is wrong; return the exit status."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    for tree in trace_trees(spans, attributes=attributes):
        console.print(tree)
        console.print()
    written = write_page(spans, RESULTS / page, title)
    console.print(f"page: {os.path.relpath(written)}", soft_wrap=True)
    for fault in faults:
        console.print(f"wrong: {fault}", style="bold red", soft_wrap=True)
    return 1 if faults else 0
