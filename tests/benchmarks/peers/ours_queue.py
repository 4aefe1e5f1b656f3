"""This package: long queues, many workers, reservations that run out."""

from __future__ import annotations

import multiprocessing
import time
from typing import Any

import redis

from babelqueue_redis import RedisConsumer, RedisPublisher
from babelqueue_redis.lua import LEGACY_SWEEP
from tests.benchmarks.peers.protocol import URN, Meter, Reading, Stretch, Work, data_of

QUEUE = "ours"
_FILL = """
local some = {}
for i = 1, 1000 do some[i] = ARGV[1] end
for i = 1, ARGV[2] / 1000 do redis.call('RPUSH', KEYS[1], unpack(some)) end
redis.call('RPUSH', KEYS[1], unpack(some, 1, ARGV[2] % 1000 + 1))
"""
_RESERVE = """
for i = ARGV[2], ARGV[3] do
  local element = ARGV[1]:gsub('1042', i)  -- they differ
  redis.call('RPUSH', KEYS[1], element)
  redis.call('ZADD', KEYS[2], ARGV[4], string.format('%032x:', i) .. element)
end
"""
_STEP = 10_000


def filled(client: Any, wanted: int) -> None:
    """Let so many equal messages wait."""
    if not client.llen(QUEUE):
        RedisPublisher(client, QUEUE).publish(URN, data_of())
    (body,) = client.lrange(QUEUE, 0, 0)
    while (missing := wanted - client.llen(QUEUE)) > 0:
        client.eval(_FILL, 1, QUEUE, body, min(missing - 1, _STEP))


def reserved(client: Any, wanted: int, until: float) -> None:
    """Let so many messages be reserved by somebody who does not settle them."""
    RedisPublisher(client, QUEUE).publish(URN, data_of())
    body = client.lpop(QUEUE)
    keys = (f"{QUEUE}:processing", f"{QUEUE}:processing:deadlines")
    start = client.llen(keys[0]) + 1
    for first in range(start, wanted + 1, _STEP):
        last = min(first + _STEP - 1, wanted)
        client.eval(_RESERVE, 2, *keys, body, first, last, int(until))


def works(consume: Work) -> dict[str, Work]:
    """Return what is done with :func:`tests.benchmarks.peers.ours.consume`."""

    def deep(url: str, n: int, waiting: int = 0, stuck: int = 0, **options: Any) -> Reading:
        """Consume from a long queue, or behind reservations that nobody settles."""
        client = redis.Redis.from_url(url)
        reserved(client, stuck, time.time() + 86_400)
        filled(client, waiting + Stretch(url, n).total)
        return consume(url, n, filled=True, **options)

    return {"deep": deep, "shared": shared, "expiring": expiring}


def _work(url: str, ready: Any, end: Any) -> None:
    consumer = RedisConsumer(url, QUEUE, {URN: lambda _envelope: None})
    ready.wait()
    consumer.run(lambda: not end.is_set())


def shared(url: str, n: int, workers: int) -> Reading:
    """Consume from one queue with so many processes."""
    client, spawn = redis.Redis.from_url(url), multiprocessing.get_context("spawn")
    ready, end = spawn.Barrier(workers + 1), spawn.Event()
    processes = [spawn.Process(target=_work, args=(url, ready, end)) for _ in range(workers)]
    for process in processes:
        process.start()
    filled(client, n)
    ready.wait()
    meter = Meter(url)
    meter.start()
    while client.llen(QUEUE):
        time.sleep(0.005)
    reading = meter.result(n)
    end.set()
    for process in processes:
        process.join()
    return {**reading, "cpu": None, "trips": None}  # the workers' own are not known here


def expiring(url: str, n: int) -> Reading:
    """Reserve while ``n`` reservations have run out: how long a call of the sweep takes, in ms."""
    client = redis.Redis.from_url(url)
    client.delete(QUEUE)
    client.script_load(LEGACY_SWEEP.source)
    reserved(client, n, time.time() - 1)
    client.config_set("slowlog-log-slower-than", 0)
    client.config_set("slowlog-max-len", 10_000)
    client.slowlog_reset()
    consumer = RedisConsumer(url, QUEUE, {URN: lambda _envelope: None})
    moved, left = 0, n
    while left:
        consumer.poll(0)
        now = client.zcard(f"{QUEUE}:processing:deadlines")
        moved, left = max(moved, left - now), now
    entries = client.slowlog_get(10_000)
    client.config_set("slowlog-log-slower-than", -1)
    client.delete(QUEUE)
    sweep = b"EVALSHA " + LEGACY_SWEEP.sha
    calls = [entry["duration"] for entry in entries if entry["command"].startswith(sweep)]
    return {"value": sum(calls) / len(calls) / 1000, "moved": moved}
