"""What a peer speaks: a line of JSON in, a line of JSON out. Standard library only.

A peer is a process with one system in an environment of its own. It prepares a piece of work, does
it under a :class:`Meter`, and answers with what the meter shows.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import sys
import time
import traceback
from collections.abc import Callable
from importlib import metadata
from typing import Any
from urllib.parse import urlsplit

Reading = dict[str, Any]
Work = Callable[..., Reading]

URN = "urn:bench:order:placed"
WARM = 100
_COUNTERS = (
    "used_cpu_sys",
    "used_cpu_user",
    "total_reads_processed",
    "total_writes_processed",
    "total_commands_processed",
)
_SCRIPTS = re.compile(r"cmdstat_eval(?:sha)?:calls=(\d+),usec=(\d+)")


def data_of(size: int = 0) -> dict[str, Any]:
    """Return a small payload, or one of about ``size`` bytes."""
    return {"order_id": 1042, "note": "x" * size} if size else {"order_id": 1042}


class Meter:
    """Measures a piece of work: the clock, the processor of both sides, what the server counted."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._link = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379))
        self._stopped: tuple[float, float] | None = None

    def start(self) -> None:
        """Begin."""
        self._before = self._counted()
        self._started = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """End; only the first call counts."""
        if self._stopped is None:
            self._stopped = time.perf_counter(), time.process_time()
            self._after = self._counted()

    def result(self, n: int) -> Reading:
        """Return what one of ``n`` took; the question itself is not counted."""
        self.stop()
        assert self._stopped is not None
        self._link.close()
        counted = {name: value - self._before[name] for name, value in self._after.items()}
        server = counted["used_cpu_sys"] + counted["used_cpu_user"]
        calls = counted["calls"]
        return {
            "seconds": (self._stopped[0] - self._started[0]) / n,
            "cpu": (self._stopped[1] - self._started[1] + server) / n,
            "server": server / n,
            "trips": (counted["total_reads_processed"] - 1) / n,
            "replies": (counted["total_writes_processed"] - 1) / n,
            "commands": (counted["total_commands_processed"] - 1) / n,
            "script": counted["usec"] / calls if calls else None,
        }

    def _counted(self) -> dict[str, float]:
        self._link.sendall(b"INFO all\r\n")
        data = b""
        while b"\r\n" not in data:
            data += self._link.recv(1 << 16)
        head, _, text = data.partition(b"\r\n")
        while len(text) < int(head[1:]) + 2:
            text += self._link.recv(1 << 16)
        lines = text.decode()
        pairs = dict(line.split(":", 1) for line in lines.split("\r\n") if ":" in line)
        counted = {name: float(pairs[name]) for name in _COUNTERS}
        scripts = [tuple(map(int, found)) for found in _SCRIPTS.findall(lines)]
        counted["calls"] = sum(calls for calls, _ in scripts)
        counted["usec"] = sum(usec for _, usec in scripts)
        return counted


class Stretch:
    """The middle of a long queue, where every worker is measured.

    The meter starts behind the first messages, so that no connection that is opened and no script
    that is sent is measured, and stops ``n`` messages later. Behind those there are as many as a
    worker may have fetched ahead: what it had fetched when the meter started is no gift then.
    """

    def __init__(self, url: str, n: int, ahead: int = 0) -> None:
        self._meter, self._n = Meter(url), n
        self._first, self._count = min(WARM, n), itertools.count(1)  # threads count with it, too
        self.last = self._first + n
        self.total = self.last + ahead

    def passed(self) -> bool:
        """Count a message, in its handler; tell whether all that are measured have passed."""
        seen = next(self._count)
        if seen == self._first:
            self._meter.start()
        elif seen == self.last:
            self._meter.stop()
        return seen >= self.last

    def result(self) -> Reading:
        """Return what a message took."""
        return self._meter.result(self._n)


def metered(url: str, n: int, work: Callable[[], object], per: int = 1) -> Reading:
    """Call ``work`` so many times; return what one of its ``per`` parts took."""
    meter = Meter(url)
    meter.start()
    for _ in range(n):
        work()
    return meter.result(n * per)


def versions(*packages: str) -> Reading:
    """Return which versions are installed; hiredis, where it is."""
    found = {}
    for package in (*packages, "redis", "hiredis"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def serve(works: dict[str, Work], *packages: str) -> None:
    """Answer requests from standard input until it ends."""
    url = sys.argv[1]
    for line in sys.stdin:
        request = json.loads(line)
        name, n = request.pop("work"), request.pop("n", 0)
        try:
            answer = versions(*packages) if name == "versions" else works[name](url, n, **request)
        except Exception:  # noqa: BLE001 - it is told
            answer = {"error": traceback.format_exc()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
