"""Sequences of deliveries, through a handler made idempotent, in both shells."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from babelqueue_redis import (
    AsyncRedisSeenStore,
    Envelope,
    Meta,
    RedisSeenStore,
    idempotent,
)
from tests.support.server import shared_url
from tests.support.shells import Blocking


class Effects:
    """A handler that counts, and fails when it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    def __call__(self, _: Envelope) -> None:
        """Take effect."""
        self.count += 1
        if self.fails:
            raise ZeroDivisionError


def replay(content: dict[str, Any], shell: str) -> None:
    """Deliver in order, and compare what ran."""
    effects = Effects()
    prefix = f"bq-conformance-{uuid.uuid4().hex}:"
    made: Any = RedisSeenStore if shell == "sync" else AsyncRedisSeenStore
    store = made(shared_url(), key_prefix=prefix)
    handler: Any = idempotent(effects, store)
    blocking = store if shell == "sync" else Blocking(store)
    try:
        for delivery in content["deliveries"]:
            if delivery.get("forget_before"):
                blocking.forget(delivery["meta_id"])
            deliver(delivery, handler, effects, blocking)
        assert effects.count == content["expected_effects"]
    finally:
        for delivery in content["deliveries"]:
            blocking.forget(delivery["meta_id"])
        if shell == "sync":
            store.close()
        else:
            blocking.end()


def deliver(delivery: dict[str, Any], handler: Any, effects: Effects, blocking: Any) -> None:
    """Deliver once, and compare."""
    before = effects.count
    effects.fails = delivery.get("outcome") == "throw"
    envelope = Envelope("urn:a", meta=Meta(id=delivery["meta_id"]))
    try:
        result = handler(envelope, b"", {})
        if asyncio.iscoroutine(result):
            blocking._loop.run_until_complete(result)
    except ZeroDivisionError:
        assert effects.fails
    assert effects.count - before == (delivery["expect_effect"] == "run")
