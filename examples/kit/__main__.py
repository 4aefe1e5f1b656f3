"""``python -m kit``: receive traces until Ctrl-C, print them, and write their page."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from rich.console import Console

from kit.otlp import receiver
from kit.page import write_page
from kit.tree import trace_trees


def main(arguments: list[str] | None = None) -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m kit", description=__doc__)
    parser.add_argument("--port", type=int, default=4318, help="OTLP http/protobuf; default 4318")
    parser.add_argument("--page", type=Path, default=Path("traces.html"), help="where to write it")
    options = parser.parse_args(arguments)
    console = Console()
    ended = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, ended)
    with receiver(options.port) as received:
        console.print(f"receiving traces at {received.endpoint}, until Ctrl-C", soft_wrap=True)
        signal.sigwait(ended)
    for tree in trace_trees(received.spans, attributes=False):
        console.print(tree)
    console.print(f"page: {write_page(received.spans, options.page)}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
