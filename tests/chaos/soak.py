"""Two queues, five workers of three makes, a kill each second: ``nox -s soak [-- MESSAGES]``.

One worker is never killed: its memory is watched. At the end the ledger must balance: every message
that was published is handled, at least once, and nothing is left in the queues.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import redis

from babelqueue_redis import RedisPublisher
from kit.redis_server import any_binary, private_server
from tests.support.ledger import Ledger
from tests.support.store import Store

ROOT = Path(__file__).parents[2]
WORKERS = (
    ("sync", "legacy"),
    ("sync", "legacy"),
    ("sdk", "legacy"),
    ("aio", "zset"),
    ("sdk", "zset"),
)
"""The first one survives."""
BATCH = 500
READY = 2000
"""Messages that wait in a queue, about."""
GROWTH = 1.1
"""How much more memory the survivor may use at the end than after a quarter of the run."""


class Soak:
    """One run."""

    def __init__(self, url: str, folder: Path, wanted: int) -> None:
        self._url = url
        self._wanted = wanted
        self._path = folder / "ledger"
        self.ledger = Ledger(self._path)
        client = redis.Redis.from_url(url)
        self._stores = {name: Store(client, f"soak-{name}", name) for name in ("legacy", "zset")}
        self._publishers = {
            name: RedisPublisher(url, f"soak-{name}", layout=name) for name in self._stores
        }
        self.published: set[str] = set()
        self.memory: list[int] = []
        self.kills = 0
        self._running = [self._start(*worker) for worker in WORKERS]

    def run(self) -> None:
        """Publish, kill and watch until everything is handled."""
        next_kill = time.monotonic() + 1
        while not self._is_over():
            self._fill()
            if time.monotonic() >= next_kill:
                self._kill()
                self.memory.append(resident(self._running[0].pid))
                next_kill += 1
            time.sleep(0.02)

    def end(self) -> None:
        """Leave no process behind."""
        for process in self._running:
            process.kill()
            process.wait()
        self.ledger.close()

    def _start(self, make: str, layout: str) -> subprocess.Popen[bytes]:
        arguments = [make, layout, self._url, f"soak-{layout}", str(self._path)]
        command = [sys.executable, "-m", "tests.interop.fleet_consumer", *arguments]
        return subprocess.Popen(command, cwd=ROOT)

    def _fill(self) -> None:
        for name, store in self._stores.items():
            waiting = store.client.llen(store.ready_key)
            if len(self.published) < self._wanted and waiting < READY:
                publish_many = self._publishers[name].publish_many
                self.published.update(publish_many([("urn:good", {"n": n}) for n in range(BATCH)]))

    def _kill(self) -> None:
        victim = random.randrange(1, len(WORKERS))  # noqa: S311 - whoever it is
        self._running[victim].kill()
        self._running[victim].wait()
        self._running[victim] = self._start(*WORKERS[victim])
        self.kills += 1

    def _is_over(self) -> bool:
        enough = len(self.published) >= self._wanted
        return enough and all(store.is_empty() for store in self._stores.values())


def resident(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def report(soak: Soak, seconds: float) -> bool:
    """Print what happened; tell whether it may."""
    times = Counter(entry.what for entry in soak.ledger.entries())
    makes = Counter(entry.who.partition(":")[0] for entry in soak.ledger.entries())
    missing = soak.published - times.keys()
    again = sum(count - 1 for count in times.values())
    quarter = len(soak.memory) // 4
    first = statistics.median(soak.memory[quarter : 2 * quarter] or soak.memory)
    last = statistics.median(soak.memory[-quarter:] or soak.memory)
    print(f"published {len(soak.published)}, handled {len(times)}, missing {len(missing)}")  # noqa: T201
    print(f"handled again {again}, kills {soak.kills}, in {seconds:.0f} s, by {dict(makes)}")  # noqa: T201
    print(f"memory of the survivor: {first / 1024:.1f} MiB, {last / 1024:.1f} MiB at the end")  # noqa: T201
    return not missing and times.keys() <= soak.published and last <= first * GROWTH


def main() -> int:
    """Run it."""
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, private_server(str(any_binary())) as url:
        soak = Soak(url, Path(folder), wanted)
        try:
            soak.run()
            return 0 if report(soak, time.monotonic() - start) else 1
        finally:
            soak.end()


if __name__ == "__main__":
    raise SystemExit(main())
