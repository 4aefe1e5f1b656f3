"""What happened, written down by processes that may be killed at any moment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One line of the ledger."""

    who: str
    what: str


class Ledger:
    """A file that any number of processes append lines to.

    A line is there once :meth:`write` has returned, whatever becomes of the process then: a
    ``kill -9`` takes nothing from the page cache. It is one ``write`` to a file opened for
    appending, so lines are whole and do not mix.
    """

    def __init__(self, path: Path | str) -> None:
        """Open the file, which need not exist, for appending."""
        self._path = Path(path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, who: str, what: str) -> None:
        """Note that ``who`` has done ``what``; neither may hold a blank."""
        line = f"{who} {what}\n".encode()
        if os.write(self._file, line) != len(line):
            msg = f"{self._path} has no room"
            raise OSError(msg)

    def entries(self) -> list[Entry]:
        """Everything that was written, in order."""
        return [Entry(*line.split()) for line in self._path.read_text().splitlines()]

    def close(self) -> None:
        """Close the file; what is in it can still be read."""
        os.close(self._file)
