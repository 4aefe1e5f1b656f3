"""The behavioural blocks of the suite: states and steps, played on a real Redis."""

from __future__ import annotations

import math
import re
import uuid
from typing import Any

import redis

from babelqueue_redis import entropy
from babelqueue_redis.core.settlement import ACK, Settlement
from babelqueue_redis.dead_letter import poison_record
from babelqueue_redis.errors import PoisonError
from babelqueue_redis.layouts import LegacyLayout
from babelqueue_redis.sync.driver import Driver
from babelqueue_redis.values import Outcome, Reservation
from babelqueue_redis.verdict import verdict
from tests.support.redis_types import Client
from tests.support.server import shared_url

INFINITE = {"+inf": math.inf}


def connect() -> Client:
    """Return a client of the Redis under test."""
    return redis.Redis.from_url(shared_url())


def round_trip(body: bytes) -> tuple[bytes, bytes]:
    """Publish a body and reserve it; return what stood in Redis and what came back."""
    client = connect()
    queue = f"bq-conformance-{uuid.uuid4().hex}"
    layout = LegacyLayout(queue, 90)
    driver = Driver(client)
    driver.send(layout.publish([(body, {})]))
    stored = client.lindex(queue, 0)
    taken = driver.run(layout.reserve(entropy.new_token()))
    assert taken is not None
    acked = layout.settle(taken, ACK)
    assert acked is not None
    assert driver.send(acked)
    assert not client.keys(f"{queue}*")
    return stored, taken.body


def play(content: dict[str, Any]) -> None:
    """Set the state up, do the steps, compare after each, and clean up."""
    player = LegacyPlayer(content)
    try:
        player.set_state(content["state"])
        for step in content["steps"]:
            player.do(step)
    finally:
        player.clean()


class LegacyPlayer:
    """Plays one case of the legacy layout."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.client = connect()
        self.driver = Driver(self.client)
        self.queue = f"bq-conformance-{uuid.uuid4().hex}-{content['queue']}"
        self.layout = LegacyLayout(
            self.queue, content["retry_after"], content.get("migration_batch_size", -1)
        )
        self.ready, self.processing = self.queue, f"{self.queue}:processing"
        self.deadlines = f"{self.queue}:processing:deadlines"
        self.taken: dict[str, Reservation] = {}
        self.outcome = ""
        self.last: Reservation | None = None

    def set_state(self, state: dict[str, Any]) -> None:
        """Write the initial keys."""
        for key, name in ((self.ready, "ready"), (self.processing, "processing")):
            for element in state.get(name, []):
                self.client.rpush(key, element)
        for entry in state.get("deadlines", []):
            member = entry.get("member") or f"{entry['token']}:{entry['raw']}"
            self.client.zadd(self.deadlines, {member: entry["score"]})

    def do(self, step: dict[str, Any]) -> None:
        """Do one step and compare."""
        getattr(self, f"do_{step['op']}")(step)
        expected = step.get("expect", {})
        if "outcome" in expected:
            assert self.outcome == expected["outcome"]
        if "handler_body" in expected:
            assert self.last is not None
            assert self.last.body.decode() == expected["handler_body"]
        self.compare_keys(expected)

    def do_reserve(self, step: dict[str, Any]) -> None:
        """Take the head, at the clock of the step."""
        self.last = self.driver.run(self.layout.reserve(entropy.new_token(), step["now"]))
        self.outcome = "empty"
        if self.last is not None:
            poison = isinstance(verdict(self.last.body), PoisonError)
            self.outcome = "poison" if poison else "delivered"
            self.taken[step.get("as", "")] = self.last

    def do_sweep(self, step: dict[str, Any]) -> None:
        """Bring expired reservations back."""
        self.driver.run(self.layout.sweep(step["now"]))

    def do_ack(self, step: dict[str, Any]) -> None:
        """Settle as handled."""
        self.settle(step, ACK)

    def do_release(self, step: dict[str, Any]) -> None:
        """Settle as failed."""
        assert step["delay"] == 0
        body = self.reservation(step).body
        self.settle(step, Settlement(Outcome.RETRIED, body))

    def do_dead_letter(self, step: dict[str, Any]) -> None:
        """Settle as exhausted."""
        record = poison_record(self.reservation(step).body, {"reason": "failed"})
        self.settle(step, Settlement(Outcome.DEAD_LETTERED, record, f"{self.queue}.dlq"))

    def settle(self, step: dict[str, Any], end: Settlement) -> None:
        """Send a settlement."""
        command = self.layout.settle(self.reservation(step), end)
        assert command is not None
        self.driver.send(command)

    def reservation(self, step: dict[str, Any]) -> Reservation:
        """Return the reservation that a step names or spells out."""
        named = step["reservation"]
        if isinstance(named, str):
            return self.taken[named]
        raw = named["raw"].encode()
        return Reservation(self.queue, raw, {}, named["token"], raw)

    def compare_keys(self, expected: dict[str, Any]) -> None:
        """Compare the keys that the step names."""
        for key, name in ((self.ready, "ready"), (self.processing, "processing")):
            if name in expected:
                assert [e.decode() for e in self.client.lrange(key, 0, -1)] == expected[name]
        if "ready_count" in expected:
            assert self.client.llen(self.ready) == expected["ready_count"]
        if "dlq_count" in expected:
            assert self.client.llen(f"{self.queue}.dlq") == expected["dlq_count"]
        if "deadlines" in expected:
            self.compare_deadlines(expected)

    def compare_deadlines(self, expected: dict[str, Any]) -> None:
        """Compare the deadlines, with any token where the case says so."""
        found = [
            (m.decode(), s) for m, s in self.client.zrange(self.deadlines, 0, -1, withscores=True)
        ]
        assert len(found) == len(expected["deadlines"])
        tokens = set()
        for entry in expected["deadlines"]:
            score = INFINITE.get(entry["score"], entry["score"])
            token = "[0-9a-f]{32}" if entry.get("token") == "<any>" else entry.get("token")
            pattern = re.escape(entry.get("member") or f":{entry['raw']}")
            pattern = pattern if "member" in entry else f"{token}{pattern}"
            match = next(
                (each for each in found if re.fullmatch(pattern, each[0]) and each[1] == score),
                None,
            )
            assert match is not None, f"no member {entry} in {found}"
            found.remove(match)
            tokens.add(match[0][:32])
        if expected.get("tokens_distinct"):
            assert len(tokens) == len(expected["deadlines"])

    def clean(self) -> None:
        """Remove the keys of the case."""
        self.client.delete(self.ready, self.processing, self.deadlines, f"{self.queue}.dlq")
