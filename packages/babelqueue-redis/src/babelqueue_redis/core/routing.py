"""Which handler takes a message, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from babelqueue_redis.core.payloads import Convert
from babelqueue_redis.envelope import Envelope, checked_urn
from babelqueue_redis.errors import (
    BabelQueueError,
    ConfigurationError,
    ExhaustedError,
    PoisonError,
    UnknownUrnError,
)
from babelqueue_redis.settings import ConsumerOptions
from babelqueue_redis.values import Delivery, Destination, Handler, Reservation
from babelqueue_redis.verdict import verdict

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ALL_ARGUMENTS = 3
_GENERATORS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


class Routes:
    """The handlers of one consumer, by URN."""

    def __init__(
        self,
        handlers: Mapping[str, Callable[..., Any]] | None,
        on_unknown_urn: Callable[..., Any] | None,
        *,
        awaits: bool = False,
    ) -> None:
        """Resolve every handler once.

        Args:
            handlers: By URN.
            on_unknown_urn: For all other URNs.
            awaits: Whether the consumer awaits what coroutine functions return.
        """
        self._awaits = awaits
        if handlers is not None and not isinstance(handlers, Mapping):
            msg = f"handlers must map URNs to callables; got {type(handlers).__name__}"
            raise ConfigurationError(msg)
        self._handlers: dict[str, Handler] = {}
        self._fallback = None if on_unknown_urn is None else resolve(on_unknown_urn, awaits=awaits)
        for urn, handler in (handlers or {}).items():
            self.add(urn, handler)

    def add(self, urn: str, handler: Callable[..., Any], convert: Convert | None = None) -> None:
        """Route ``urn`` to ``handler``, in place of an earlier one.

        Raises:
            EnvelopeError: The URN is blank.
            TypeError: The handler cannot take a message.
        """
        resolved = resolve(handler, awaits=self._awaits)
        self._handlers[checked_urn(urn)] = msgspec.structs.replace(resolved, convert=convert)

    def find(self, urn: str) -> Handler | None:
        """Return the handler for ``urn``, or the one for unknown URNs."""
        return self._handlers.get(urn, self._fallback)


def resolve(handler: Callable[..., Any], *, awaits: bool = False) -> Handler:
    """Return ``handler`` as one of ``(envelope, raw, headers)``.

    A handler takes the first one, two or three of those: as many as it has positional parameters
    without a default.

    Raises:
        TypeError: It takes none of them, needs more than three, needs keywords, would not run
            when called (a generator function, or a coroutine function that is not awaited), or
            cannot be inspected.
    """
    wanted = "a handler takes (envelope), (envelope, raw) or (envelope, raw, headers)"
    arity, is_coroutine = called_with(handler, _ALL_ARGUMENTS, wanted, awaits=awaits)
    return Handler(_with_three_arguments(handler, arity), is_coroutine)


def called_with(
    handler: Callable[..., Any], most: int, wanted: str, *, awaits: bool = True
) -> tuple[int, bool]:
    """Return with how many arguments to call a handler, and whether it is a coroutine function.

    Args:
        handler: What was given for one.
        most: How many arguments there are.
        wanted: What handlers take, for the errors.
        awaits: Whether a coroutine function will do.

    Raises:
        TypeError: It cannot be called with any of them, or would not run when called.
    """
    what = f"{wanted}; {getattr(handler, '__qualname__', repr(handler))} "
    if not callable(handler):
        raise TypeError(what + "is not callable")
    is_coroutine = is_kind(inspect.iscoroutinefunction, handler)
    if is_coroutine and not awaits:
        raise TypeError(what + "is a coroutine function: use AsyncRedisConsumer")
    if any(is_kind(kind, handler) for kind in _GENERATORS):
        raise TypeError(what + "is a generator function: it would not run when called")
    try:
        signature = inspect.signature(handler)
    except ValueError as error:
        raise TypeError(what + "has no signature to read: wrap it in a function") from error
    arity = _arity(list(signature.parameters.values()), most)
    if arity is None:
        raise TypeError(what + f"takes {signature}")
    return arity, is_coroutine


def is_kind(kind: Callable[[object], bool], handler: Callable[..., Any]) -> bool:
    """Tell whether a handler, or an object's ``__call__``, is a function of that kind."""
    return kind(handler) or kind(type(handler).__call__)


def _arity(parameters: list[inspect.Parameter], most: int) -> int | None:
    """Return how many arguments to pass, or ``None`` when the handler does not fit."""
    required = [p for p in parameters if p.default is p.empty]
    if any(p.kind is p.KEYWORD_ONLY for p in required):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return most
    arity = sum(p.kind in _POSITIONAL for p in required)
    return arity if 0 < arity <= most else None


def _with_three_arguments(handler: Callable[..., Any], arity: int) -> Callable[..., Any]:
    if arity == 1:
        return lambda envelope, _raw, _headers: handler(envelope)
    if arity == _ALL_ARGUMENTS:
        return handler
    return lambda envelope, raw, _headers: handler(envelope, raw)


def deliver(
    reservation: Reservation, destination: Destination, routes: Routes, options: ConsumerOptions
) -> Delivery:
    """Judge a reservation and find what will run."""
    judged = PoisonError(reservation.poison) if reservation.poison else verdict(reservation.body)
    if isinstance(judged, PoisonError):
        return Delivery(destination, reservation, None, None, judged, options)
    handler, refusal = routes.find(judged.job), None
    if handler is None or reservation.recoveries or options.counts_deliveries:
        refusal = _why_not(judged, handler, reservation, destination, options)
    return Delivery(destination, reservation, judged, handler, refusal, options)


def _why_not(
    envelope: Envelope,
    handler: Handler | None,
    reservation: Reservation,
    destination: Destination,
    options: ConsumerOptions,
) -> BabelQueueError | None:
    """Return why a message that decodes is not to run, or ``None``."""
    recoveries, bound = reservation.recoveries, options.max_recoveries
    if handler is None:
        return UnknownUrnError(
            f"no handler for {envelope.job!r} on {_where(envelope, destination)}"
        )
    if options.counts_deliveries and envelope.attempts >= options.max_tries:
        times = f"was delivered {envelope.attempts} times without a settlement"
    elif bound is not None and recoveries >= bound:
        times = f"was recovered {recoveries} times: no worker that took it could settle it"
    else:
        return None
    return ExhaustedError(f"a message on {_where(envelope, destination)} {times}")


def _where(envelope: Envelope, destination: Destination) -> str:
    return f"queue {destination.queue!r} (message {envelope.meta.id!r})"


def call(delivery: Delivery) -> Any:
    """Call a delivery's handler, its data made the type that it asked for; return what it returns.

    A type's own checks may take as long, and fail in as many ways, as handlers.

    Raises:
        PoisonError, UnknownUrnError, ExhaustedError: Nothing is to run.
    """
    handler, envelope, reservation = delivery.handler, delivery.envelope, delivery.reservation
    if delivery.refusal is not None or handler is None or envelope is None:
        raise delivery.refusal or UnknownUrnError
    if handler.convert is not None:
        envelope = msgspec.structs.replace(envelope, data=handler.convert(envelope.data))
    return handler.call(envelope, reservation.body, dict(reservation.headers))


def check_result(result: object) -> None:
    """Refuse the result of a handler that would still have to run.

    Raises:
        TypeError: It is an awaitable or a generator.
    """
    if result is None:
        return
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        getattr(result, "close", lambda: None)()
        msg = f"the handler did not run, it returned a {type(result).__name__}: is it async?"
        raise TypeError(msg)
