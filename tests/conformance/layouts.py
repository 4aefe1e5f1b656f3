"""The behavioural blocks of the suite: states and steps, played on a real Redis."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from babelqueue_redis.core.retry import due_at
from babelqueue_redis.core.settlement import ACK, Settlement
from babelqueue_redis.dead_letter import record
from babelqueue_redis.envelope import with_attempts
from babelqueue_redis.errors import PoisonError
from babelqueue_redis.layouts import LegacyLayout, ZsetLayout
from babelqueue_redis.values import Outcome, Reservation
from babelqueue_redis.verdict import decode, verdict
from tests.support.reserving import reserved, settle
from tests.support.server import Client, shared_url
from tests.support.shells import Shell

INFINITE = {"+inf": math.inf}


def connect() -> Client:
    """Return a client of the Redis under test."""
    return redis.Redis.from_url(shared_url())


def round_trip(body: bytes, kind: str) -> tuple[bytes, bytes]:
    """Publish a body and reserve it; return what stood in Redis and what came back."""
    client = connect()
    queue = f"bq-conformance-{uuid.uuid4().hex}"
    layout = LegacyLayout(queue, 90)
    with driver_of(kind) as driver:
        driver.send(layout.publish([(body, {})]))
        stored = client.lindex(queue, 0)
        taken = reserved(driver, layout)
        assert taken is not None
        assert settle(driver, layout, taken, ACK)
    assert not client.keys(f"{queue}*")
    return stored, taken.body


@contextmanager
def driver_of(kind: str) -> Iterator[Any]:
    """Give a driver of one of the shells."""
    shell = Shell(kind)
    try:
        yield shell.make("driver", shared_url())
    finally:
        shell.end()


def play(content: dict[str, Any], kind: str) -> None:
    """Set the state up, do the steps, compare after each, and clean up."""
    if "steps" not in content:
        check_names(content)
        return
    kinds: dict[str, type[Player]] = {"legacy": LegacyPlayer, "zset": ZsetPlayer}
    with driver_of(kind) as driver:
        player = kinds[content["layout"]](content, driver)
        try:
            player.set_state(content["state"])
            for step in content["steps"]:
                player.do(step)
        finally:
            player.clean()


def check_names(content: dict[str, Any]) -> None:
    """Compare the keys of a queue in the zset layout."""
    layout = ZsetLayout(content["queue"], content["key_prefix"])
    found = {name: getattr(layout, name) for name in content["expect"]}
    assert found == content["expect"]


class Player:
    """Plays one case."""

    layout: LegacyLayout | ZsetLayout

    def __init__(self, content: dict[str, Any], driver: Any) -> None:
        self.client = connect()
        self.driver = driver
        self.queue = f"bq-conformance-{uuid.uuid4().hex}-{content['queue']}"
        self.retry_after = content.get("retry_after")
        self.batch = content.get("migration_batch_size", -1)
        self.taken: dict[str, Reservation] = {}
        self.outcome = ""
        self.last: Reservation | None = None

    def set_state(self, state: dict[str, Any]) -> None:
        """Write the initial keys."""
        raise NotImplementedError

    def compare_keys(self, expected: dict[str, Any]) -> None:
        """Compare the keys that the step names."""
        raise NotImplementedError

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
        self.last = reserved(self.driver, self.layout, step["now"])
        self.outcome = "empty"
        if self.last is not None:
            judged = self.last.poison or isinstance(verdict(self.last.body), PoisonError)
            self.outcome = "poison" if judged else "delivered"
            self.taken[step.get("as", "")] = self.last

    def do_ack(self, step: dict[str, Any]) -> None:
        """Settle as handled."""
        self.settle(step, ACK)

    def do_release(self, step: dict[str, Any]) -> None:
        """Settle as failed."""
        body = self.reservation(step).body
        retry = Settlement(
            Outcome.RETRIED, with_attempts(body, decode(body).attempts + 1), delay=step["delay"]
        )
        self.settle(step, retry)

    def do_dead_letter(self, step: dict[str, Any]) -> None:
        """Settle as exhausted."""
        body = record(self.reservation(step).body, {"reason": "failed", "attempts": 3})
        self.settle(step, Settlement(Outcome.DEAD_LETTERED, body, f"{self.queue}.dlq"))

    def settle(self, step: dict[str, Any], end: Settlement) -> None:
        """Send a settlement, at the clock of the step."""
        settle(self.driver, self.layout, self.reservation(step), end, step["now"])

    def reservation(self, step: dict[str, Any]) -> Reservation:
        """Return the reservation that a step names or spells out."""
        named = step["reservation"]
        if isinstance(named, str):
            return self.taken[named]
        raw = named["raw"].encode()
        return Reservation(self.queue, raw, {}, named["token"], raw)

    def elements(self, key: str) -> list[str]:
        """Return a list."""
        return [element.decode() for element in self.client.lrange(key, 0, -1)]

    def clean(self) -> None:
        """Remove the keys of the case."""
        self.client.delete(*self.client.keys(f"*{self.queue}*") or ["none"])


class LegacyPlayer(Player):
    """Plays one case of the legacy layout."""

    def __init__(self, content: dict[str, Any], driver: Any) -> None:
        super().__init__(content, driver)
        self.layout: LegacyLayout = LegacyLayout(self.queue, self.retry_after, self.batch)
        self.ready, self.processing = self.queue, f"{self.queue}:processing"
        self.deadlines = f"{self.queue}:processing:deadlines"

    def set_state(self, state: dict[str, Any]) -> None:
        """Write the initial keys."""
        for key, name in ((self.ready, "ready"), (self.processing, "processing")):
            for element in state.get(name, []):
                self.client.rpush(key, element)
        for entry in state.get("deadlines", []):
            member = entry.get("member") or f"{entry['token']}:{entry['raw']}"
            self.client.zadd(self.deadlines, {member: entry["score"]})

    def do_sweep(self, step: dict[str, Any]) -> None:
        """Bring expired reservations back."""
        self.driver.run(self.layout.sweep(step["now"]))

    def compare_keys(self, expected: dict[str, Any]) -> None:
        """Compare the keys that the step names."""
        for key, name in ((self.ready, "ready"), (self.processing, "processing")):
            if name in expected:
                assert self.elements(key) == expected[name]
        if "ready_count" in expected:
            assert self.client.llen(self.ready) == expected["ready_count"]
        if "dlq_count" in expected:
            assert self.client.llen(f"{self.queue}.dlq") == expected["dlq_count"]
        if "deadlines" in expected:
            self.compare_deadlines(expected)

    def compare_deadlines(self, expected: dict[str, Any]) -> None:
        """Compare the deadlines, with any token where the case says so."""
        found = [
            (member.decode(), score)
            for member, score in self.client.zrange(self.deadlines, 0, -1, withscores=True)
        ]
        assert len(found) == len(expected["deadlines"])
        tokens = set()
        for entry in expected["deadlines"]:
            score = INFINITE.get(entry["score"], entry["score"])
            token = "[0-9a-f]{32}" if entry.get("token") == "<any>" else entry.get("token")
            pattern = re.escape(entry.get("member") or f":{entry['raw']}")
            pattern = pattern if "member" in entry else f"{token}{pattern}"
            matches = [
                each for each in found if re.fullmatch(pattern, each[0]) and each[1] == score
            ]
            assert matches, f"no member {entry} in {found}"
            found.remove(matches[0])
            tokens.add(matches[0][0][:32])
        if expected.get("tokens_distinct"):
            assert len(tokens) == len(expected["deadlines"])


class ZsetPlayer(Player):
    """Plays one case of the zset layout."""

    def __init__(self, content: dict[str, Any], driver: Any) -> None:
        super().__init__(content, driver)
        self.layout: ZsetLayout = ZsetLayout(self.queue, "queues:", self.retry_after, self.batch)

    def set_state(self, state: dict[str, Any]) -> None:
        """Write the initial keys."""
        for element in state.get("ready", []):
            self.client.rpush(self.layout.ready, element)
        for key, name in ((self.layout.delayed, "delayed"), (self.layout.reserved, "reserved")):
            entries = [*state.get(name, []), *generated(state.get(f"{name}_generate"))]
            for entry in entries:
                self.client.zadd(key, {entry["member"]: entry["score"]})
        for _ in range(state.get("notify", 0)):
            self.client.rpush(self.layout.notify, 1)

    def do_push_delayed(self, step: dict[str, Any]) -> None:
        """Publish with a delay."""
        due = due_at(step["now"], step["delay"])
        self.driver.send(self.layout.publish([(step["body"].encode(), {})], due))

    def do_migrate(self, step: dict[str, Any]) -> None:
        """Bring what is due to the ready list."""
        self.driver.run(self.layout.migrate(step["now"]))

    def do_reserve(self, step: dict[str, Any]) -> None:
        """Take the head, and compare the count it is reported with."""
        super().do_reserve(step)
        reported = step.get("expect", {}).get("reported_attempts")
        if reported is not None:
            assert self.last is not None
            assert json.loads(self.last.stored)["attempts"] == reported

    def compare_keys(self, expected: dict[str, Any]) -> None:
        """Compare the keys that the step names."""
        if "ready" in expected:
            assert self.elements(self.layout.ready) == expected["ready"]
        if "ready_generate" in expected:
            wanted = [entry["member"] for entry in generated(expected["ready_generate"])]
            assert self.elements(self.layout.ready) == wanted
        if "notify" in expected:
            assert self.client.llen(self.layout.notify) == expected["notify"]
        for key, name in ((self.layout.delayed, "delayed"), (self.layout.reserved, "reserved")):
            if name in expected:
                self.compare_set(key, expected[name])

    def compare_set(self, key: str, expected: list[dict[str, Any]]) -> None:
        """Compare a sorted set; some members as JSON."""
        found = self.client.zrange(key, 0, -1, withscores=True)
        assert len(found) == len(expected)
        for (member, score), entry in zip(found, expected, strict=True):
            assert score == INFINITE.get(entry["score"], entry["score"])
            parsed = entry.get("member_json", entry.get("body_json"))
            if parsed is None:
                assert member.decode() == entry["member"]
            else:
                assert json.loads(member) == parsed


def generated(rule: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Spell generated members out."""
    if rule is None:
        return []
    return [
        {"member": rule["member"] % i, "score": rule.get("score")} for i in range(rule["count"])
    ]
