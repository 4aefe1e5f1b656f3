"""The rounds: every contender in turn, over and over, and the best of each counts.

What disturbs a machine only ever makes it slower; turns that are short and mixed let it disturb
everybody alike.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis

from kit.redis_server import any_binary, private_server
from tests.benchmarks.bench_contenders import Contender, Measure
from tests.benchmarks.bench_environments import Peer, python_of

Reading = dict[str, Any]


@contextlib.contextmanager
def pinned(count: int) -> Iterator[bool]:
    """Let this process, and what it starts, have so many processors; tell whether it worked."""
    if not hasattr(os, "sched_setaffinity"):
        yield False
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-count:])
    try:
        yield len(before) >= count
    finally:
        os.sched_setaffinity(0, before)


class Arena:
    """A private server, and peers that are started when they are asked the first time."""

    def __init__(self, folder: Path) -> None:
        """Start the server.

        Raises:
            RuntimeError: There is no Redis binary.
        """
        binary = any_binary()
        if binary is None:
            msg = "there is no Redis binary to start"
            raise RuntimeError(msg)
        self._stack = contextlib.ExitStack()
        self._url = self._stack.enter_context(private_server(binary))
        self.client: Any = self._stack.enter_context(redis.Redis.from_url(self._url))
        self._folder = folder
        self._peers: dict[tuple[str, bool], Peer] = {}

    def peer(self, system: str, *, fresh: bool = False) -> Peer:
        """Return the peer of a system, or one that has done nothing yet."""
        key = (system, fresh)
        if fresh and key in self._peers:
            self._peers.pop(key).end()
        if key not in self._peers:
            self._peers[key] = Peer(python_of(system, self._folder), system, self._url)
        return self._peers[key]

    def end(self) -> None:
        """End all of them."""
        for peer in self._peers.values():
            peer.end()
        self._stack.close()

    def play(
        self, measure: Measure, rounds: int, scale: float, tell: Callable[[], None]
    ) -> dict[str, Reading]:
        """Let the contenders take turns; return the best reading of each, by name."""
        best: dict[str, Reading] = {}
        for _ in range(min(rounds, measure.rounds)):
            for contender in measure.contenders:
                reading = self._turn(measure, contender, scale)
                best[contender.name] = better(best.get(contender.name), reading)
            tell()
        self.client.flushall()
        return best

    def _turn(self, measure: Measure, contender: Contender, scale: float) -> Reading:
        self.client.flushall()
        n = contender.n or measure.n
        n = n if measure.unit else scaled(n, scale)
        peer = self.peer(contender.system, fresh=contender.work == "memory")
        return peer.ask(contender.work, n, **contender.options)


def scaled(n: int, scale: float) -> int:
    """Return a part of ``n``: whole hundreds, where there is one, because of the batches."""
    part = int(n * scale)
    return max(part // 100 * 100 or part, min(n, 5))


def better(one: Reading | None, other: Reading) -> Reading:
    """Return the least of each figure of two readings."""
    if one is None:
        return other
    return {
        name: value if one.get(name) is None else min(one[name], value)
        for name, value in other.items()
        if value is not None
    }
