"""What an operation on a queue tells every time, made once."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any, Protocol

from opentelemetry.instrumentation.babelqueue import semconv
from opentelemetry.instrumentation.babelqueue.config import Options


class Place(Hashable, Protocol):
    """A queue and the server it is on: a ``Destination`` of the transport, or the like."""

    @property
    def queue(self) -> str:
        """The logical name; ``""`` for several of them."""

    @property
    def layout(self) -> str:
        """How it is stored; ``""`` when nobody knows."""

    @property
    def address(self) -> str:
        """The server's name, or its socket's path; ``""`` when nobody knows."""

    @property
    def port(self) -> int | None:
        """The server's TCP port, if there is one."""


@dataclasses.dataclass(frozen=True, slots=True)
class Told:
    """The constants of one operation on one queue. They are shared: whoever adds to them copies.

    Attributes:
        name: Of its spans.
        span: Attributes that its spans begin with.
        metric: Attributes of its values.
        timed: Those and the type of the operation, which a duration has besides.
        propagates: Whether messages of the queue carry context.
        carries_baggage: Whether they carry baggage.
    """

    name: str
    span: dict[str, Any]
    metric: dict[str, Any]
    timed: dict[str, Any]
    propagates: bool
    carries_baggage: bool


def told_by(options: Options, place: Place, operation: str, operation_type: str) -> Told:
    """Return what an operation on a queue tells every time."""
    metric = {**told_of(place, options.system), semconv.MESSAGING_OPERATION_NAME: operation}
    timed = {**metric, semconv.MESSAGING_OPERATION_TYPE: operation_type}
    span = {**timed, semconv.BABELQUEUE_LAYOUT: place.layout} if place.layout else timed
    name = f"{operation} {place.queue}" if place.queue else operation
    propagates, baggage = options.propagates(place.queue), options.carries_baggage(place.queue)
    return Told(name, span, metric, timed, propagates, baggage)


def told_of(place: Place, system: str) -> dict[str, Any]:
    """Return what is told of a queue, whatever is done with it."""
    attributes: dict[str, Any] = {semconv.MESSAGING_SYSTEM: system}
    if place.queue:
        attributes[semconv.MESSAGING_DESTINATION_NAME] = place.queue
    if place.address:
        attributes[semconv.SERVER_ADDRESS] = place.address
    if place.port is not None:
        attributes[semconv.SERVER_PORT] = place.port
    return attributes


def failing(attributes: dict[str, Any], failure: str) -> dict[str, Any]:
    """Return a copy of attributes, with the type of an error if there is one.

    A copy, because nobody knows what a meter does with what it is given.
    """
    return {**attributes, semconv.ERROR_TYPE: failure} if failure else dict(attributes)
