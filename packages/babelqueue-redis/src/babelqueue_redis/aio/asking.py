"""How another thread is told what only an event loop can find out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST = 5.0
"""Seconds that another thread waits for the loop."""


def from_threads(ask: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], T | None]:
    """Return a function for other threads that asks in the loop which runs here and now.

    It returns ``None`` in a thread that runs a loop, for a loop must not wait, least of all for
    itself. It raises what ``ask`` does, and ``TimeoutError`` when the loop is too busy.
    """
    loop = asyncio.get_running_loop()

    def asked() -> T | None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(ask(), loop).result(_LONGEST)
        return None

    return asked
