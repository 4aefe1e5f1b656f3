"""Whether a Redis is what queues need."""

from __future__ import annotations

import time
from collections.abc import Iterator

from babelqueue_redis.cli.checks import OK, PROBLEM, UNKNOWN, WARNING, Check, ask, info, refusal
from babelqueue_redis.sync.driver import Driver

_OLDEST = (6, 2)
_SKEW = 1.0
"""Seconds that clocks may differ: delays are the publisher's time, deadlines the server's."""


def check_server(driver: Driver, probe: str) -> Iterator[Check]:
    """Look at the server.

    Args:
        driver: Speaks to it.
        probe: A key that no queue has, and that the user may use if it may use the queues.
    """
    server = info(driver, "server")
    yield _version(server)
    yield from _commands(driver, probe)
    yield _role(info(driver, "replication"))
    yield _eviction(info(driver, "memory"))
    yield _persistence(info(driver, "persistence"))
    yield _clock(driver)


def _version(server: dict[str, str]) -> Check:
    text = server.get("redis_version", "")
    valkey = server.get("valkey_version", "")
    named = f"Valkey {valkey} (as Redis {text})" if valkey else f"Redis {text}"
    try:
        version = tuple(int(part) for part in text.split(".")[:2])
    except ValueError:
        version = ()
    if not version:
        return Check("version", UNKNOWN, "INFO may not be asked", "grant +info")
    if version < _OLDEST:
        return Check("version", PROBLEM, named, "6.2 is the oldest that will do")
    return Check("version", OK, named)


def _commands(driver: Driver, probe: str) -> Iterator[Check]:
    """Try what consumers and publishers use, on keys that are not there: nothing is changed."""
    tried = {
        "LMOVE": refusal(driver, "LMOVE", probe, "LEFT", "RIGHT", key=probe),
        "EVAL": refusal(
            driver,
            "EVAL",
            "return redis.call('LMOVE', KEYS[1], KEYS[1], 'LEFT', 'RIGHT')",
            1,
            probe,
        ),
        "EVALSHA": _unless_unknown(refusal(driver, "EVALSHA", "0" * 40, 1, probe)),
        "ZADD": refusal(driver, "ZADD", "XX", 0, "none", key=probe),
        "TIME": refusal(driver, "TIME"),
    }
    refused = {verb: why for verb, why in tried.items() if why}
    if refused:
        detail = "; ".join(f"{verb}: {why}" for verb, why in refused.items())
        fix = "grant +@read +@write +@blocking +@scripting +@connection +time -@dangerous"
        yield Check("commands", PROBLEM, detail, fix)
    else:
        yield Check("commands", OK, f"{', '.join(tried)} are allowed")
    why = refusal(driver, "BLMOVE", probe, "LEFT", "LEFT", "0.01", key=probe)
    if why:
        detail = f"BLMOVE: {why}; workers look every second in place of waiting"
        yield Check("waiting", WARNING, detail, "grant +@blocking")


def _unless_unknown(why: str) -> str:
    return "" if "NOSCRIPT" in why or "No matching script" in why else why


def _role(replication: dict[str, str]) -> Check:
    role = replication.get("role", "")
    if role == "master":
        return Check("role", OK, f"master, {replication.get('connected_slaves', '0')} replicas")
    if not role:
        return Check("role", UNKNOWN, "INFO may not be asked", "grant +info")
    return Check("role", PROBLEM, "a replica, which takes no writes", "connect to the master")


def _eviction(memory: dict[str, str]) -> Check:
    policy, limit = memory.get("maxmemory_policy", ""), memory.get("maxmemory", "0")
    if not policy:
        return Check("maxmemory", UNKNOWN, "INFO may not be asked", "grant +info")
    if policy != "noeviction":
        detail = f"{policy}: Redis may evict a queue when memory is short"
        return Check("maxmemory", PROBLEM, detail, "CONFIG SET maxmemory-policy noeviction")
    if limit == "0":
        return Check("maxmemory", OK, "noeviction, no limit")
    share = int(memory.get("used_memory", "0")) / int(limit)
    detail = f"noeviction, {share:.0%} of {int(limit) >> 20} MiB in use"
    if share > 0.9:  # noqa: PLR2004 - a tenth is left
        return Check("maxmemory", WARNING, detail, "publishers are refused when it is full")
    return Check("maxmemory", OK, detail)


def _persistence(persistence: dict[str, str]) -> Check:
    aof = persistence.get("aof_enabled")
    if aof is None:
        return Check("persistence", UNKNOWN, "INFO may not be asked", "grant +info")
    written = (persistence.get("aof_last_write_status"), persistence.get("rdb_last_bgsave_status"))
    if "err" in written:
        detail = "the last write to disk failed"
        return Check("persistence", PROBLEM, detail, "look at the server's log and disk")
    if aof != "1":
        detail = "no append-only file: a restart loses what came since the last snapshot, if any"
        return Check("persistence", WARNING, detail, "CONFIG SET appendonly yes")
    return Check("persistence", OK, "append-only file")


def _clock(driver: Driver) -> Check:
    before = time.time()
    reply = ask(driver, "TIME")
    after = time.time()
    if not isinstance(reply, list):
        return Check("clock", UNKNOWN, "TIME may not be asked", "grant +time")
    theirs = int(reply[0]) + int(reply[1]) / 1e6
    ahead = max(theirs - after, 0) or min(theirs - before, 0)  # less than the trip is nothing
    if abs(ahead) < _SKEW:
        return Check("clock", OK, f"within {_SKEW:g} s of this machine's")
    detail = f"the server's is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} ours"
    return Check("clock", WARNING, detail, "delayed messages come as much too late or too early")
