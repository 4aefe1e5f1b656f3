"""Which files of a program changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

_EVERY = 0.5
"""Seconds between two looks at the files."""
_MARKS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""What a folder holds that is no part of the program."""


class Watcher:
    """Looks at the ``.py`` files below a folder, virtual environments and hidden ones apart."""

    def __init__(self, folder: Path) -> None:
        """Remember what is there."""
        self._folder = folder
        self._known = self._files()
        self._next = 0.0

    def changed(self) -> str:
        """Return a file that was changed, added or removed since the last answer, or ``""``."""
        if time.monotonic() < self._next:
            return ""
        self._next = time.monotonic() + _EVERY
        before, self._known = self._known, self._files()
        return min((path for path, _ in before ^ self._known), default="")

    def _files(self) -> set[tuple[str, tuple[int, int]]]:
        found = set()
        for folder, folders, files in os.walk(self._folder):
            if any(mark in files for mark in _MARKS):
                folders.clear()
                continue
            folders[:] = [
                name
                for name in folders
                if not name.startswith((".", "__pycache__", "node_modules"))
            ]
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)  # noqa: PTH118 - many times a second
                    found.add((path, _stamp(path)))
        return found


def _stamp(path: str) -> tuple[int, int]:
    try:
        stat = os.stat(path)  # noqa: PTH116 - as above
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size
