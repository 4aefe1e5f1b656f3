"""How signals end a run of the worker of threads."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextlib.contextmanager
def listening(on_signal: Callable[[], None]) -> Iterator[None]:
    """Have a function called at SIGTERM and SIGINT; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pid = os.getpid()

    def handle(number: int, _frame: FrameType | None) -> None:
        if os.getpid() == pid:
            on_signal()
        else:  # a child that a handler forked: not ours to shut down
            handler = previous[number]
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
            signal.raise_signal(number)

    previous: dict[int, Any] = {int(each): signal.signal(each, handle) for each in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
