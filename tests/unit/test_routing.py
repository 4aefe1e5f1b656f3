from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from babelqueue_redis import Envelope, EnvelopeError
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
    (two_with_default, 2),
    (four_with_default, 3),
    (keyword_with_default, 1),
    (Callable1(), 1),
    (Callable1().method, 2),
    (functools.partial(lambda extra, envelope: (envelope,), "extra"), 1),
]


@pytest.mark.parametrize(("handler", "arity"), GOOD)
def test_a_handler_gets_as_much_as_it_takes(handler: Callable[..., Any], arity: int) -> None:
    """One, two or three arguments, by its signature."""
    assert resolve(handler)(ENVELOPE, b"raw", HEADERS) == (ENVELOPE, b"raw", HEADERS)[:arity]


async def coroutine(envelope: Any) -> None:  # noqa: D103
    pass


BAD: list[Any] = [
    lambda: None,
    lambda a, b, c, d: None,
    lambda envelope, *, needed: None,
    lambda **keywords: None,
    coroutine,
    "not callable",
    None,
    max,
]


@pytest.mark.parametrize("handler", BAD)
def test_a_handler_that_does_not_fit_is_a_type_error(handler: Any) -> None:
    """At registration, with what would fit."""
    with pytest.raises(TypeError, match=r"\(envelope, raw, headers\)"):
        resolve(handler)


def test_routes_are_found_by_urn_and_else_by_the_fallback() -> None:
    """The fallback is an ordinary handler."""
    routes = Routes({"urn:a": lambda envelope: "a"}, lambda envelope, raw: raw)
    found, fallback = routes.find("urn:a"), routes.find("urn:b")
    assert found is not None
    assert fallback is not None
    assert found(ENVELOPE, b"", {}) == "a"
    assert fallback(ENVELOPE, b"raw", {}) == b"raw"
    assert Routes(None, None).find("urn:a") is None


def test_a_route_without_a_urn_is_refused() -> None:
    """It could never be found."""
    with pytest.raises(EnvelopeError):
        Routes({" ": lambda envelope: None}, None)
