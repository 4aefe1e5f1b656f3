"""Which queues there are in a database."""

from __future__ import annotations

import msgspec

from babelqueue_redis.core.command import Command, ErrorReply, Op
from babelqueue_redis.core.stored import stored_message

_STEP = 1000
"""Keys that one trip looks at."""


_OWN = {
    "legacy": (":processing:deadlines", ":processing", ":recoveries"),
    "zset": (":delayed", ":reserved", ":notify"),
}
"""How keys beside the ready list end; the longer ones first."""


class _Page(msgspec.Struct):
    cursor: str
    keys: list[bytes]


def find_queues(layout: str, key_prefix: str) -> Op[list[str]]:
    """Visit all keys, in bounded steps, and return the names of queues, in order.

    A list is a queue when its head is an envelope, framed or not; and so is what a key of the
    layout belongs to, such as ``<queue>:processing``. A dead-letter queue is not listed beside
    its queue, nor what has keys of the other layout.
    """
    prefix = key_prefix if layout == "zset" else ""
    found: set[str] = set()
    foreign: set[str] = set()
    cursor = ""
    while cursor != "0":
        (page,) = yield (_scan(cursor or "0", prefix),)
        cursor, plain = page.cursor, []
        for name in _names(page.keys, prefix):
            owner, whose = _owner(name)
            if not owner:
                plain.append(name)
            else:
                (found if whose == layout else foreign).add(owner)
        if plain:
            heads = yield tuple(_head(prefix + name, layout) for name in plain)
            found.update(name for name, is_queue in zip(plain, heads, strict=True) if is_queue)
    found -= foreign
    return sorted(name for name in found if not _is_dead(name, found))


def _scan(cursor: str, prefix: str) -> Command[_Page]:
    pattern = "".join(f"\\{each}" if each in "*?[]\\^" else each for each in prefix) + "*"
    args = (cursor, "MATCH", pattern, "COUNT", _STEP)
    return Command("SCAN", (), args, lambda reply: _Page(reply[0].decode(), reply[1]))


def _names(keys: list[bytes], prefix: str) -> list[str]:
    """Return the names behind keys; what is not text is nobody's queue."""
    names = []
    for key in keys:
        try:
            names.append(key.decode().removeprefix(prefix))
        except UnicodeDecodeError:
            continue
    return names


def _owner(name: str) -> tuple[str, str]:
    """Return the queue that a key belongs to by its ending, and the layout that has such keys."""
    for layout, endings in _OWN.items():
        for ending in endings:
            if name.endswith(ending):
                return name.removesuffix(ending), layout
    return "", ""


def _head(key: str, layout: str) -> Command[bool]:
    """Tell whether a key is a list that begins with an envelope."""

    def parse(reply: bytes | ErrorReply | None) -> bool:
        if reply is None or isinstance(reply, ErrorReply):
            return False
        return stored_message("ready", reply, framed=layout == "legacy").envelope is not None

    return Command("LINDEX", (key,), (0,), parse, tolerant=True)


def _is_dead(name: str, found: set[str]) -> bool:
    return name.endswith(".dlq") and name.removesuffix(".dlq") in found
