"""Lets the reference show what docstrings write with Sphinx' roles."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`~?(?:([^`<]+?) <[^`>]+>|([^`<]+))`")


class Roles(griffe.Extension):  # type: ignore[misc]  # skipped by mypy
    """Makes code of ``:class:`name``` and literal blocks of ``::``."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            text = ROLE.sub(lambda found: f"`{found[1] or found[2]}`", obj.docstring.value)
            obj.docstring.value = re.sub(r"::\n\n(?= )", ":\n\n", text)
