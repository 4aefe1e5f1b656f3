"""Handlers that many tests share."""

from __future__ import annotations


def fail(*_: object) -> None:
    """A handler that always fails."""
    raise ValueError("boom")  # noqa: EM101 - short
