"""Handlers that run once for a message, although it may be delivered twice."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from babelqueue_redis.aio.lane import finish
from babelqueue_redis.core.routing import check_result, resolve
from babelqueue_redis.envelope import Envelope
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.values import Handler

logger = logging.getLogger("babelqueue_redis.idempotency")

OneOfThree = Callable[[Envelope, bytes, Mapping[str, str]], Any]


class SeenStore(Protocol):
    """Where handled messages are remembered. ``AsyncSeenStore`` is the same with coroutines."""

    def seen(self, message_id: str) -> bool:
        """Tell whether the message was handled."""

    def remember(self, message_id: str) -> None:
        """Note that the message was handled."""


class AsyncSeenStore(Protocol):
    """Where handled messages are remembered, for handlers of ``AsyncRedisConsumer``."""

    async def seen(self, message_id: str) -> bool:
        """Tell whether the message was handled."""

    async def remember(self, message_id: str) -> None:
        """Note that the message was handled."""


def idempotent(handler: Callable[..., Any], store: SeenStore | AsyncSeenStore) -> OneOfThree:
    """Return ``handler`` made to run once for each ``meta.id``.

    A message that was handled already is acked without a run. One whose handler raises is not
    remembered: its retry runs. One without an id cannot be told from others, and always runs. An id
    is remembered after the handler returned, so a worker that dies in between lets it run again:
    the effect itself must still bear that.

    Args:
        handler: As for a consumer; a coroutine function or a plain one.
        store: Where to remember: a ``RedisSeenStore``, or an ``AsyncRedisSeenStore`` for an
            asyncio consumer. Any object with ``seen`` and ``remember`` will do.

    Raises:
        ConfigurationError: A coroutine function was given with a blocking store.
        TypeError: The handler cannot take a message.
    """
    inner = resolve(handler, awaits=True)
    if inspect.iscoroutinefunction(store.seen):
        return _awaiting(handler, inner, store)  # type: ignore[arg-type]  # told by its method
    if inner.awaits:
        msg = f"{handler!r} is a coroutine function: give it an asyncio store"
        raise ConfigurationError(msg)
    return _blocking(handler, inner, store)  # type: ignore[arg-type]


def _blocking(handler: Callable[..., Any], inner: Handler, store: SeenStore) -> OneOfThree:
    @functools.wraps(handler, updated=())
    def run(envelope: Envelope, raw: bytes, headers: Mapping[str, str]) -> None:
        message_id = envelope.meta.id
        seen = message_id and store.seen(message_id)
        check_result(seen)  # an awaitable would always be true
        if seen:
            return
        check_result(inner.call(envelope, raw, headers))
        if message_id:
            try:
                store.remember(message_id)
            except Exception:
                logger.exception(_FORGOTTEN, message_id)

    return _shown_as_it_is(run)


def _awaiting(handler: Callable[..., Any], inner: Handler, store: AsyncSeenStore) -> OneOfThree:
    @functools.wraps(handler, updated=())
    async def run(envelope: Envelope, raw: bytes, headers: Mapping[str, str]) -> None:
        message_id = envelope.meta.id
        if message_id and await store.seen(message_id):
            return
        call = functools.partial(inner.call, envelope, raw, headers)
        await finish(call, awaits=inner.awaits)
        if message_id:
            try:
                await store.remember(message_id)
            except Exception:
                logger.exception(_FORGOTTEN, message_id)

    return _shown_as_it_is(run)


_FORGOTTEN = "message %r was handled but could not be remembered; a redelivery runs it again"


def _shown_as_it_is(run: OneOfThree) -> OneOfThree:
    """Let a consumer see the three parameters of ``run``, not those of what it wraps."""
    del run.__wrapped__  # type: ignore[attr-defined]  # set by functools.wraps
    return run
