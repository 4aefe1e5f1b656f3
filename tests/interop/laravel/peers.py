"""Laravel at the other end of a queue: the real one, or what we know of it."""

from __future__ import annotations

import abc
import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import redis

PEER = Path(__file__).with_name("peer.php")
PRESENT = """
require_once 'Illuminate/Queue/autoload.php';
require_once 'Illuminate/Redis/autoload.php';
echo extension_loaded('redis') ? PHP_VERSION : '';
"""
RETRY_AFTER = 60
"""Laravel's default; seconds."""


class Job(NamedTuple):
    """A job that Laravel has reserved: the message, and what stands for it among the reserved."""

    number: int
    body: str
    reserved: str
    attempts: int


class Peer(abc.ABC):
    """What a Laravel program does with a queue."""

    def push_raw(self, queue: str, body: str) -> None:
        """Append a payload as it is."""
        self._ask("pushRaw", body, queue)

    def push(self, queue: str, job: str, data: Any) -> None:
        """Append a payload of Laravel's making."""
        self._ask("push", job, data, queue)

    def later_raw(self, queue: str, delay: int, body: str) -> None:
        """Keep a payload back for seconds."""
        self._ask("laterRaw", delay, body, queue)

    def later(self, queue: str, delay: int, job: str, data: Any) -> None:
        """Keep a payload of Laravel's making back for seconds."""
        self._ask("later", delay, job, data, queue)

    def pop(self, queue: str) -> Job | None:
        """Bring back what is due, and reserve the head."""
        taken = self._ask("take", queue)
        return None if taken is None else Job(*taken)

    def adopt(self, queue: str, body: str, reserved: str) -> Job:
        """Take over what somebody else reserved."""
        return Job(*self._ask("adopt", queue, body, reserved))

    def delete(self, job: Job) -> None:
        """Settle: done."""
        self._ask("settle", job.number, "delete")

    def release(self, job: Job, delay: int) -> None:
        """Settle: once more, after seconds."""
        self._ask("settle", job.number, "release", delay)

    @abc.abstractmethod
    def close(self) -> None:
        """End."""

    @abc.abstractmethod
    def _ask(self, verb: str, *arguments: Any) -> Any:
        """Do what the method of Laravel's queue, or of its script here, does."""


@cache
def laravel_version() -> str:
    """Return what PHP and what Laravel are here; empty when there is none that can serve."""
    php = shutil.which("php")
    if php is None:
        return ""
    asked = subprocess.run([php, "-r", PRESENT], check=False, capture_output=True, text=True)
    if asked.returncode or not asked.stdout:
        return ""
    return f"PHP {asked.stdout}, illuminate/queue {_packaged_version() or 'of unknown version'}"


def _packaged_version() -> str:
    """Return what Debian says; the library does not know its own version."""
    dpkg = shutil.which("dpkg-query")
    if dpkg is None:
        return ""
    query = [dpkg, "-W", "-f", "${Version}", "php-illuminate-queue"]
    return subprocess.run(query, check=False, capture_output=True, text=True).stdout


class Laravel(Peer):
    """The real one, in a PHP process."""

    def __init__(self, url: str, prefix: str = "") -> None:
        """Start it."""
        self._process = subprocess.Popen(
            ["php", str(PEER), url, prefix],  # noqa: S607 - the one that was asked before
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, verb: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([verb, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"PHP could not {verb}; what it said is on stderr"
        return json.loads(answer)


# KEYS: the ready list, the reserved set, the notify list. ARGV: until when.
POP = """
local job = redis.call('LPOP', KEYS[1])
if not job then
  return false
end
redis.call('LPOP', KEYS[3])
local counted = cjson.decode(job)
counted.attempts = counted.attempts + 1
local member = cjson.encode(counted)
redis.call('ZADD', KEYS[2], ARGV[1], member)
return {job, member}
"""


class StandIn(Peer):
    """What Laravel does to the keys, written from its description, for machines without PHP."""

    def __init__(self, url: str, prefix: str = "") -> None:
        """Nothing is sent yet."""
        self._redis: Any = redis.Redis.from_url(url, decode_responses=True)
        self._prefix = f"{prefix}queues:"
        self._taken: list[tuple[str, str]] = []
        self._verbs: dict[str, Callable[..., Any]] = {
            "pushRaw": lambda body, queue: self._append(self._prefix + queue, body),
            "push": lambda job, data, queue: self._append(
                self._prefix + queue, _payload(job, data)
            ),
            "laterRaw": lambda delay, body, queue: self._delay(self._prefix + queue, body, delay),
            "later": lambda delay, job, data, queue: self._delay(
                self._prefix + queue, _payload(job, data), delay
            ),
            "take": self._take,
            "adopt": self._adopt,
            "settle": self._settle,
        }

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()

    def _ask(self, verb: str, *arguments: Any) -> Any:
        return self._verbs[verb](*arguments)

    def _append(self, ready: str, body: str) -> None:
        self._redis.rpush(ready, body)
        self._redis.rpush(f"{ready}:notify", 1)

    def _delay(self, ready: str, body: str, delay: int) -> None:
        self._redis.zadd(f"{ready}:delayed", {body: int(time.time()) + delay})

    def _take(self, queue: str) -> Job | None:
        ready = f"{self._prefix}{queue}"
        now = int(time.time())
        for source in (f"{ready}:delayed", f"{ready}:reserved"):
            for member in self._redis.zrangebyscore(source, "-inf", now):
                self._redis.zrem(source, member)
                self._append(ready, member)
        keys = (ready, f"{ready}:reserved", f"{ready}:notify")
        taken = self._redis.eval(POP, len(keys), *keys, now + RETRY_AFTER)
        return None if taken is None else self._adopt(queue, *taken)

    def _adopt(self, queue: str, body: str, reserved: str) -> Job:
        self._taken.append((f"{self._prefix}{queue}", reserved))
        return Job(len(self._taken) - 1, body, reserved, json.loads(body)["attempts"] + 1)

    def _settle(self, number: int, how: str, delay: int = 0) -> None:
        ready, reserved = self._taken[number]
        self._redis.zrem(f"{ready}:reserved", reserved)
        if how == "release":
            self._delay(ready, reserved, delay)


def _payload(job: str, data: Any) -> str:
    settings = dict.fromkeys(("maxTries", "maxExceptions", "backoff", "timeout"))
    name = {"uuid": str(uuid.uuid4()), "displayName": job, "job": job, **settings}
    return json.dumps({**name, "data": data, "id": uuid.uuid4().hex, "attempts": 0})
