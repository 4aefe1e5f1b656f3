from __future__ import annotations

import re
from pathlib import Path

import pytest

import babelqueue_redis.lua

FILES = sorted(Path(babelqueue_redis.lua.__file__).parent.glob("*.lua"))

WRITES = {
    *("ZREM", "ZADD", "RPUSH", "LREM", "LMOVE", "LPOP", "DEL"),
    *("HSET", "HDEL", "SET", "ZREMRANGEBYRANK"),
}
CALL = r"\b(?:redis\.p?)?call\(\s*'(\w+)'"
"""A call of Redis; a script may have a short name for ``redis.call``."""


def split(path: Path) -> tuple[str, str]:
    """Return the header (the leading comment) and the code."""
    lines = path.read_text().splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("--"))
    return "\n".join(lines[:end]), "\n".join(lines[end:])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_script_header_names_what_the_body_uses(path: Path) -> None:
    """Every KEYS and ARGV slot, no more and no less, and the reply."""
    header, code = split(path)
    slots = re.compile(r"\b(KEYS|ARGV)\[(\d+)\]")
    named = re.findall(r"^-- (KEYS|ARGV)\[(\d+)\]  \S", header, re.MULTILINE)
    assert sorted(named) == sorted(set(slots.findall(code)))
    assert re.search(r"^-- Reply: \S", header, re.MULTILINE)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_script_is_short_and_builds_no_keys(path: Path) -> None:
    """At most 60 lines of code; every key of a command is a KEYS slot."""
    _, code = split(path)
    lines = [
        line for line in code.splitlines() if line.strip() and not line.strip().startswith("--")
    ]
    assert len(lines) <= 60
    for call in re.findall(CALL + r"\s*(?:,\s*([^,)]+))?", code):
        command, key = call
        slot = r"KEYS\[\d+\]"
        if path.name.startswith("jobs_"):
            # The hash of a job, and its idempotency key, whose beginnings are passed as keys; and a
            # local that holds one of the KEYS.
            slot += r"( \.\. (id|holder|key))?|place"
        assert command in {"TIME", "SCAN"} or re.fullmatch(slot, key.strip()), call


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_first_write_of_a_script_is_one_that_maxmemory_allows(path: Path) -> None:
    """So that it may go on there."""
    if path.name in {"zset_publish.lua", "jobs_enqueue.lua"}:
        return  # a publish has to fail then
    allowed = {"ZREM", "LREM", "LPOP", "LTRIM", "UNLINK"}
    _, code = split(path)
    writes = [command for command in re.findall(CALL, code) if command in allowed | WRITES]
    assert not writes or writes[0] in allowed
