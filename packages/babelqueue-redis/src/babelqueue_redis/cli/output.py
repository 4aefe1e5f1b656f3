"""What the command writes: text for people, JSON for scripts."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

_WIDE = 1000
"""Columns of what is no terminal: a pipe cuts no table."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to :mod:`babelqueue_redis.cli.app`, as for all else that writes."""
        raise BrokenPipeError


class Output:
    """Where a command writes: results to stdout, all else to stderr.

    Attributes:
        json: Whether results are JSON.
        out: The console of results.
        err: The console of progress, questions and errors.
    """

    def __init__(self, *, json: bool = False) -> None:
        """Write to what stdout and stderr are just now."""
        self.json = json
        self.out, self.err = _console(sys.stdout), _console(sys.stderr)

    def document(self, value: object) -> None:
        """Write one JSON document, on one line, in ASCII: it survives any terminal."""
        rest = memoryview(json.dumps(value).encode() + b"\n")
        while rest:  # with PYTHONUNBUFFERED, a write may end early, and Python would not mind
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.flush()

    def result(self, value: object, text: str) -> None:
        """Write a result: ``value`` as JSON, or ``text``."""
        if self.json:
            self.document(value)
        else:
            self.line(text)

    def line(self, *parts: str | tuple[str, str]) -> None:
        """Write a line of parts, each plain or with a style; nothing in it is interpreted."""
        self.out.print(Text.assemble(*parts), soft_wrap=True)

    def note(self, text: str, style: str = "dim") -> None:
        """Tell people something, beside the result."""
        self.err.print(Text(text, style), soft_wrap=True)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only with a yes: the option's, or one that is typed at a terminal.

        Raises:
            typer.Exit: There was none. The exit code tells which.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            self.note(f"{question} Nobody can answer here: add --yes.", "red")
            raise typer.Exit(2)
        if not typer.confirm(question, err=True):
            raise typer.Exit(1)

    @contextlib.contextmanager
    def progress(self, label: str, total: int | None) -> Iterator[Any]:
        """Show a bar at a terminal; give a function that is told how far it is."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        hidden = not self.err.is_terminal
        with Progress(*columns, TimeElapsedColumn(), console=self.err, disable=hidden) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)


def _console(stream: TextIO) -> Console:
    wide = not stream.isatty() and "COLUMNS" not in os.environ
    return _Console(
        file=stream, width=_WIDE if wide else None, highlight=False, markup=False, emoji=False
    )


def shown(value: str | bytes) -> str:
    """Return text in which nothing speaks to the terminal: what cannot be printed is escaped."""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
