"""Consumers that run in threads of the test's process."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def running(*consumers: Any) -> Iterator[None]:
    """Run consumers, of either shell, for as long as the block lasts."""
    threads = [threading.Thread(target=consumer.run, daemon=True) for consumer in consumers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for consumer in consumers:
            consumer.stop()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
