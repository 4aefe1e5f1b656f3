from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

import pytest

from babelqueue_redis import ConfigurationError, Envelope, EnvelopeError
from babelqueue_redis.core.routing import Routes, resolve

ENVELOPE = Envelope("urn:a")
HEADERS: Mapping[str, str] = {"k": "v"}


class Callable1:
    """An object that is a handler."""

    def __call__(self, envelope: Envelope) -> tuple[Any, ...]:
        """Take an envelope."""
        return (envelope,)

    def method(self, envelope: Envelope, raw: bytes) -> tuple[Any, ...]:
        """Take an envelope and its bytes."""
        return (envelope, raw)


def two_with_default(envelope: Any, raw: Any = None) -> tuple[Any, ...]:  # noqa: D103
    return (envelope, raw)


def four_with_default(a: Any, b: Any, c: Any, d: Any = "d") -> tuple[Any, ...]:  # noqa: D103
    return (a, b, c)


def keyword_with_default(envelope: Any, *, retries: int = 3) -> tuple[Any, ...]:  # noqa: D103
    return (envelope,)


GOOD: list[tuple[Callable[..., Any], int]] = [
    (lambda envelope: (envelope,), 1),
    (lambda envelope, raw: (envelope, raw), 2),
    (lambda envelope, raw, headers: (envelope, raw, headers), 3),
    (lambda *args: args, 3),
    (lambda envelope, *rest: (envelope, *rest), 3),
    (two_with_default, 1),
    (four_with_default, 3),
    (keyword_with_default, 1),
    (Callable1(), 1),
    (Callable1().method, 2),
    (functools.partial(lambda extra, envelope: (envelope,), "extra"), 1),
]


@pytest.mark.parametrize(("handler", "arity"), GOOD)
def test_a_handler_gets_as_much_as_it_takes(handler: Callable[..., Any], arity: int) -> None:
    """One, two or three arguments, by its signature."""
    given = (ENVELOPE, b"raw", HEADERS)[:arity]
    assert resolve(handler).call(ENVELOPE, b"raw", HEADERS)[:arity] == given


def test_a_parameter_with_a_default_keeps_it() -> None:
    """It is the handler's own, whatever it is called."""
    assert resolve(two_with_default).call(ENVELOPE, b"raw", HEADERS) == (ENVELOPE, None)


async def coroutine(envelope: Any) -> None:  # noqa: D103
    pass


def generator(envelope: Any) -> Iterator[None]:  # noqa: D103
    yield


async def asynchronous_generator(envelope: Any) -> AsyncIterator[None]:  # noqa: D103
    yield


class AsynchronousCall:
    """An object whose call would not run."""

    async def __call__(self, envelope: Any) -> None:
        """Do nothing."""


def without_a_needed_one(envelope: Any = None) -> None:  # noqa: D103
    pass


BAD: list[Any] = [
    lambda: None,
    lambda a, b, c, d: None,
    lambda envelope, *, needed: None,
    lambda **keywords: None,
    coroutine,
    generator,
    asynchronous_generator,
    AsynchronousCall(),
    functools.partial(coroutine, "x"),
    without_a_needed_one,
    "not callable",
    None,
    max,
]


@pytest.mark.parametrize("handler", BAD)
def test_a_handler_that_does_not_fit_is_a_type_error(handler: Any) -> None:
    """At registration, with what would fit."""
    with pytest.raises(TypeError, match=r"\(envelope, raw, headers\)"):
        resolve(handler)


@pytest.mark.parametrize("handler", [coroutine, AsynchronousCall(), AsynchronousCall().__call__])
def test_a_consumer_that_awaits_takes_coroutine_functions(handler: Any) -> None:
    """And tells them from plain ones."""
    assert resolve(handler, awaits=True).awaits
    assert not resolve(two_with_default, awaits=True).awaits
    with pytest.raises(TypeError, match="would not run"):
        resolve(generator, awaits=True)


def test_routes_are_found_by_urn_and_else_by_the_fallback() -> None:
    """The fallback is an ordinary handler."""
    routes = Routes({"urn:a": lambda envelope: "a"}, lambda envelope, raw: raw)
    found, fallback = routes.find("urn:a"), routes.find("urn:b")
    assert found is not None
    assert fallback is not None
    assert found.call(ENVELOPE, b"", {}) == "a"
    assert fallback.call(ENVELOPE, b"raw", {}) == b"raw"
    assert Routes(None, None).find("urn:a") is None


@pytest.mark.parametrize("handlers", [["urn:a"], "urn:a", 5, {"urn:a"}])
def test_handlers_are_a_mapping(handlers: Any) -> None:
    """Anything else is told apart at construction."""
    with pytest.raises(ConfigurationError, match="handlers"):
        Routes(handlers, None)


def test_a_route_without_a_urn_is_refused() -> None:
    """It could never be found."""
    with pytest.raises(EnvelopeError):
        Routes({" ": lambda envelope: None}, None)
