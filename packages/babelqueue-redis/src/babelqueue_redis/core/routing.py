"""Which handler takes a message, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from babelqueue_redis.core.settlement import outcome_if_failed
from babelqueue_redis.envelope import Envelope, checked_urn, verdict
from babelqueue_redis.errors import BabelQueueError, PoisonError, UnknownUrnError
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import Delivery, Handler, Place, Reservation

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MOST_ARGUMENTS = 3


class Routes:
    """The handlers of one consumer, by URN."""

    def __init__(
        self,
        handlers: Mapping[str, Callable[..., Any]] | None,
        on_unknown_urn: Callable[..., Any] | None,
    ) -> None:
        """Resolve every handler once."""
        self._handlers: dict[str, Handler] = {}
        self._fallback = None if on_unknown_urn is None else resolve(on_unknown_urn)
        for urn, handler in (handlers or {}).items():
            self.add(urn, handler)

    def add(self, urn: str, handler: Callable[..., Any]) -> None:
        """Route ``urn`` to ``handler``, in place of an earlier one.

        Raises:
            EnvelopeError: The URN is blank.
            TypeError: The handler cannot take a message.
        """
        self._handlers[checked_urn(urn)] = resolve(handler)

    def find(self, urn: str) -> Handler | None:
        """Return the handler for ``urn``, or the one for unknown URNs."""
        return self._handlers.get(urn, self._fallback)


def resolve(handler: Callable[..., Any]) -> Handler:
    """Return ``handler`` as a callable of ``(envelope, raw, headers)``.

    A handler takes the first one, two or three of those as positional arguments.

    Raises:
        TypeError: It takes none of them, needs more than three, needs keywords, is a coroutine
            function, or cannot be inspected.
    """
    wanted = (
        f"a handler takes (envelope), (envelope, raw) or (envelope, raw, headers); {handler!r} "
    )
    if not callable(handler):
        raise TypeError(wanted + "is not callable")
    if inspect.iscoroutinefunction(handler):
        raise TypeError(wanted + "is a coroutine function, and this consumer does not await")
    try:
        parameters = inspect.signature(handler).parameters.values()
    except ValueError as error:
        raise TypeError(wanted + "has no signature to read: wrap it in a function") from error
    arity = _arity(list(parameters))
    if arity is None:
        raise TypeError(wanted + f"takes {inspect.signature(handler)}")
    return _with_three_arguments(handler, arity)


def _arity(parameters: list[inspect.Parameter]) -> int | None:
    """Return how many arguments to pass, or ``None`` when the handler does not fit."""
    empty = inspect.Parameter.empty
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    needed = sum(p.default is empty for p in positional)
    if any(p.kind is p.KEYWORD_ONLY and p.default is empty for p in parameters):
        return None
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    arity = _MOST_ARGUMENTS if takes_all else min(len(positional), _MOST_ARGUMENTS)
    return arity if needed <= arity and arity > 0 else None


def _with_three_arguments(handler: Callable[..., Any], arity: int) -> Handler:
    if arity == 1:
        return lambda envelope, _raw, _headers: handler(envelope)
    if arity == _MOST_ARGUMENTS - 1:
        return lambda envelope, raw, _headers: handler(envelope, raw)
    return handler


def deliver(
    reservation: Reservation, place: Place, routes: Routes, options: ConsumerOptions
) -> Delivery:
    """Judge a reservation and find what will run."""
    judged = PoisonError(reservation.poison) if reservation.poison else verdict(reservation.body)
    envelope: Envelope | None = None
    handler: Handler | None = None
    refusal: BabelQueueError | None = None
    if isinstance(judged, PoisonError):
        refusal = judged
    else:
        envelope = judged
        handler = routes.find(judged.job)
        if handler is None:
            msg = (
                f"no handler for {judged.job!r} on queue {place.queue!r} (message {judged.meta.id})"
            )
            refusal = UnknownUrnError(msg)
    if_failed = outcome_if_failed(envelope, refusal, options)
    return Delivery(place, reservation, envelope, handler, refusal, if_failed)


def invoke(delivery: Delivery) -> Any:  # noqa: ANN401 - whatever the handler returns
    """Run the handler.

    Raises:
        PoisonError, UnknownUrnError: There is nothing to run.
        BaseException: What the handler raised.
    """
    if delivery.handler is None or delivery.envelope is None:
        raise delivery.refusal or UnknownUrnError
    reservation = delivery.reservation
    return delivery.handler(delivery.envelope, reservation.body, reservation.headers)
