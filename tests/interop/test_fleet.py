"""Consumers of different make on one queue, under load, killed at random."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import babelqueue
import pytest
from babelqueue.redis_transport import RedisTransport

from babelqueue_redis import RedisPublisher
from tests.interop.laravel.peers import laravel_version
from tests.support.ledger import Ledger
from tests.support.server import Client
from tests.support.store import Store
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
GOOD, BAD = "urn:good", "urn:bad"
KILLS = 4
FAILING = 3
"""Messages of each make that no handler can handle."""


class Fleet:
    """The consumers, each in a process, by make."""

    def __init__(self, ledger: Path, layout: str, url: str, queue: str) -> None:
        self.ledger = Ledger(ledger)
        self._python = (layout, url, queue, str(ledger))
        self._php = (url, queue, "1", str(ledger))
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, make: str) -> None:
        """Start a consumer."""
        command = [sys.executable, "-m", "tests.interop.fleet_consumer", make, *self._python]
        if make == "laravel":
            command = ["php", "tests/interop/laravel/worker.php", *self._php]
        self._running[make] = subprocess.Popen(command, cwd=ROOT)

    def handled(self, make: str) -> int:
        """Count the deliveries to the running consumer of a make."""
        running = self._running[make]
        assert running.poll() is None, f"{make} ended by itself: {running.returncode}"
        who = f"{make}:{running.pid}"
        return sum(entry.who == who for entry in self.ledger.entries())

    def kill(self, make: str) -> None:
        """End a consumer without a chance to clean up."""
        running = self._running.pop(make)
        running.kill()
        running.wait()

    def stop(self) -> list[int]:
        """Ask all consumers to end; return how they did."""
        for running in self._running.values():
            running.send_signal(signal.SIGTERM)
        return [running.wait(30) for running in self._running.values()]

    def end(self) -> None:
        """Leave no process behind."""
        for make in list(self._running):
            self.kill(make)
        self.ledger.close()


class Publishers:
    """One of each make; they fill the queue and know what they published."""

    def __init__(self, ours: RedisPublisher, theirs: babelqueue.BabelQueue, store: Store) -> None:
        self._publish = {"ours": ours.publish, "sdk": theirs.publish}
        self._store = store
        self.good: dict[str, str] = {}
        self.bad: set[str] = set()

    def fail(self) -> None:
        """Publish what ends as a dead letter."""
        for publish in self._publish.values():
            self.bad |= {publish(BAD, {"n": 1}) for _ in range(FAILING)}

    def fill(self) -> None:
        """See to it that there is something to do."""
        if self._store.client.llen(self._store.ready_key) < 50:
            for make, publish in self._publish.items():
                self.good.update({publish(GOOD, {"n": n}): make for n in range(25)})


@pytest.fixture
def publishers(
    publisher: RedisPublisher, client: Client, queue: str, layout: str, store: Store
) -> Publishers:
    """Ours and the reference SDK's."""
    transport = RedisTransport(client=client, laravel_compat=layout == "zset")
    return Publishers(publisher, babelqueue.BabelQueue(transport=transport, queue=queue), store)


@pytest.fixture
def fleet(tmp_path: Path, layout: str, redis_url: str, queue: str) -> Iterator[Fleet]:
    """No consumer yet."""
    made = Fleet(tmp_path / "ledger", layout, redis_url, queue)
    yield made
    made.end()


def kill_at_random(fleet: Fleet, publishers: Publishers, makes: tuple[str, str]) -> None:
    """Kill and replace consumers that are at work, each make at least once; all work in the end."""

    def works(make: str, least: int) -> bool:
        publishers.fill()
        return fleet.handled(make) >= least

    draw = random.Random(1)  # noqa: S311 - the same choices in every run
    for victim in [*makes, *draw.choices(makes, k=KILLS - len(makes))]:
        least = draw.randrange(3, 30)
        eventually(lambda: works(victim, least))  # noqa: B023 - it is called within the turn
        fleet.kill(victim)
        fleet.start(victim)
    eventually(lambda: all(works(make, 1) for make in makes))


@pytest.mark.parametrize(
    ("layout", "makes"),
    [
        ("legacy", ("sync", "sdk")),
        ("legacy", ("aio", "sdk")),
        ("zset", ("sync", "sdk")),
        ("zset", ("aio", "sdk")),
        ("zset", ("sync", "laravel")),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_mixed_fleet_loses_and_strands_nothing(
    fleet: Fleet,
    publishers: Publishers,
    store: Store,
    client: Client,
    queue: str,
    makes: tuple[str, str],
) -> None:
    """Every message is handled at least once, each make handles both publishers' messages.

    What cannot be handled is dead, and the layout's keys are gone but for the dead letters.
    """
    if "laravel" in makes and not laravel_version():
        pytest.skip("no PHP with illuminate/queue and phpredis here")
    publishers.fail()
    for make in makes:
        fleet.start(make)
    kill_at_random(fleet, publishers, makes)
    dead_keys = {store.dead_key.encode(), f"{store.dead_key}:notify".encode()}
    eventually(lambda: set(client.scan_iter(f"*{queue}*", count=10_000)) <= dead_keys)
    assert fleet.stop() == [0, 0]

    entries = fleet.ledger.entries()
    assert {entry.what for entry in entries} == publishers.good.keys() | publishers.bad
    assert {json.loads(letter)["meta"]["id"] for letter in store.dead()} == publishers.bad
    served = {
        (entry.who.partition(":")[0], publishers.good[entry.what])
        for entry in entries
        if entry.what in publishers.good
    }
    assert served == set(itertools.product(makes, ("ours", "sdk")))
