"""What a queue holds, whatever its layout."""

from __future__ import annotations

from tests.support.server import Client


class Store:
    """Looks into, and writes into, the keys of one queue."""

    def __init__(self, client: Client, queue: str, layout: str) -> None:
        self.client = client
        self.layout = layout
        self.ready_key = queue if layout == "legacy" else f"queues:{queue}"
        self.dead_key = f"{self.ready_key}.dlq"
        self.reserved_key = f"{self.ready_key}:processing"
        self.deadlines_key = f"{self.ready_key}:processing:deadlines"
        if layout == "zset":
            self.reserved_key = self.deadlines_key = f"{self.ready_key}:reserved"

    def push(self, *elements: bytes) -> None:
        """Append elements, as somebody else might."""
        self.client.rpush(self.ready_key, *elements)
        if self.layout == "zset":
            self.client.rpush(f"{self.ready_key}:notify", *[1] * len(elements))

    def ready(self) -> list[bytes]:
        """Everything that waits to be taken: ready now, or delayed."""
        delayed = self.client.zrange(f"{self.ready_key}:delayed", 0, -1)
        return [*self.client.lrange(self.ready_key, 0, -1), *delayed]

    def reserved(self) -> list[bytes]:
        """The reserved elements, as they are stored."""
        found: list[bytes]
        if self.layout == "zset":
            found = self.client.zrange(self.reserved_key, 0, -1)
        else:
            found = self.client.lrange(self.reserved_key, 0, -1)
            assert self.client.zcard(self.deadlines_key) == len(found)
        return found

    def dead(self) -> list[bytes]:
        """The dead letters."""
        found: list[bytes] = self.client.lrange(self.dead_key, 0, -1)
        return found

    def counts(self) -> dict[str, int]:
        """How many are where; what is nowhere is left out."""
        counted = {name: len(getattr(self, name)()) for name in ("ready", "reserved", "dead")}
        return {name: count for name, count in counted.items() if count}

    def is_empty(self) -> bool:
        """Whether no message is left anywhere; may be asked while consumers work."""
        delayed = f"{self.ready_key}:delayed"
        keys = (self.ready_key, self.reserved_key, self.deadlines_key, delayed, self.dead_key)
        return not self.client.exists(*keys)

    def expire(self) -> None:
        """Let every reservation run out."""
        members = self.client.zrange(self.deadlines_key, 0, -1)
        if members:
            self.client.zadd(self.deadlines_key, dict.fromkeys(members, 1), xx=True)
