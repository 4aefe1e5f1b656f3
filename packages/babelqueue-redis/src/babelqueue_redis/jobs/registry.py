"""Which handler runs a job, and what its payload must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from babelqueue_carrier.headers import ASCII_WHITESPACE
from babelqueue_redis.core.payloads import Convert, converter
from babelqueue_redis.core.routing import called_with
from babelqueue_redis.errors import ConfigurationError, PayloadError, PoisonError
from babelqueue_redis.jobs.options import check_text
from babelqueue_redis.jobs.values import ClaimedJob
from babelqueue_redis.strict_json import read

HandlerT = TypeVar("HandlerT", bound=Callable[..., Any])

_ARGUMENTS = ("payload", "job")
_WANTED = "a job's handler takes (payload) or (payload, job)"


class JobHandler(msgspec.Struct, frozen=True):
    """A handler once its signature is resolved.

    Attributes:
        function: The user's.
        takes_job: It takes the job beside the payload.
        awaits: It is a coroutine function.
    """

    function: Callable[..., Any]
    takes_job: bool
    awaits: bool


class JobRegistry:
    """The kinds of jobs a program knows: payload types and handlers.

    ::

        registry = JobRegistry()

        @registry.job("email.send", payload=EmailSend)
        def send(payload, job): ...

    A program that only enqueues calls ``registry.job("email.send", payload=EmailSend)`` without
    decorating anything.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._converters: dict[str, Convert | None] = {}
        self._handlers: dict[str, JobHandler] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that have a handler."""
        return tuple(self._handlers)

    @property
    def coroutines(self) -> tuple[str, ...]:
        """The kinds whose handler is a coroutine function."""
        return tuple(kind for kind, handler in self._handlers.items() if handler.awaits)

    def job(self, kind: str, *, payload: Any = Any) -> Callable[[HandlerT], HandlerT]:
        """Name the payload type of a kind, and register the decorated function as its handler.

        The handler takes ``(payload)`` or ``(payload, job)``: the decoded payload, and the
        :class:`~babelqueue_redis.jobs.values.ClaimedJob`. It stays what it was.

        Args:
            kind: What kind of job it is, for example ``email.send``.
            payload: A type that ``msgspec`` knows (a ``Struct``, a dataclass, a ``TypedDict``, …),
                or a pydantic model.

        Raises:
            ConfigurationError: The kind is blank or known already, or ``msgspec`` cannot check the
                type.
            TypeError: The function cannot take a job.
        """
        if not check_text("kind", kind).strip(ASCII_WHITESPACE) or kind in self._converters:
            msg = f"kind {kind!r} is refused: it is blank, or registered already"
            raise ConfigurationError(msg)
        convert = None if payload is Any else converter(payload, object_only=False)
        self._converters[kind] = convert

        def register(function: HandlerT) -> HandlerT:
            try:
                self._handlers[kind] = _resolved(function)
            except TypeError:
                if kind not in self._handlers:
                    self._converters.pop(kind, None)
                raise
            return function

        return register

    def find(self, kind: str) -> JobHandler:
        """Return the handler of a kind.

        Raises:
            ConfigurationError: It has none.
        """
        handler = self._handlers.get(kind)
        if handler is None:
            msg = f"no handler for jobs of kind {kind!r}"
            raise ConfigurationError(msg)
        return handler

    def decode(self, kind: str, raw: bytes) -> Any:
        """Return a payload as the type of its kind; JSON as it comes where the kind is unknown.

        Raises:
            PayloadError: It is not of that type, or no JSON.
        """
        decoded = read(_ANY, raw)
        convert = self._converters.get(kind)
        refused: Exception | None = decoded if isinstance(decoded, PoisonError) else None
        if convert is not None and refused is None:
            try:
                decoded = convert(decoded)
            except PayloadError as error:
                refused = error
        if refused is not None:
            msg = f"the payload of a job of kind {kind!r} is refused: {refused}"
            raise PayloadError(msg)
        return decoded

    def call_of(self, job: ClaimedJob) -> Callable[[], Any]:
        """Return the call of a job's handler, with its arguments.

        Raises:
            PayloadError: The payload is not what the kind takes.
            ConfigurationError: There is no handler.
        """
        handler = self.find(job.kind)
        payload = self.decode(job.kind, job.raw)
        if handler.takes_job:
            return lambda: handler.function(payload, job)
        return lambda: handler.function(payload)


_ANY = msgspec.json.Decoder()


def _resolved(function: Callable[..., Any]) -> JobHandler:
    arity, awaits = called_with(function, len(_ARGUMENTS), _WANTED)
    return JobHandler(function, arity == len(_ARGUMENTS), awaits)
