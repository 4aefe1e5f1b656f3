"""What the SDK publishes and receives, read without trusting it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_SDK_SPANS = ("babelqueue.otel", "wrap_handler.<locals>.wrapped")
"""The wrapper of the SDK's own helper."""
_MOST = 20
"""How many functions of a handler are looked at."""


class Call(NamedTuple):
    """The arguments of a publish, with headers or without."""

    urn: str
    data: Any
    headers: Mapping[str, str]
    options: dict[str, Any]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any], *, has_headers: bool) -> Call | None:
        """Return them, or ``None`` for a call that the SDK itself had better refuse."""
        names = ("urn", "data", "headers") if has_headers else ("urn", "data")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        if len(args) > len(names) or not all(name in given for name in names):
            return None
        urn, data = given.pop("urn"), given.pop("data")
        return cls(urn, data, given.pop("headers", None) or {}, given)

    def made(self, send: Callable[..., Any], *headers: Mapping[str, str]) -> Any:
        """Make the call."""
        return send(self.urn, self.data, *headers, **self.options)


class SdkPlace(NamedTuple):
    """A queue of the SDK; of a server it tells only what its Redis transport lets see."""

    queue: str
    layout: str = ""
    address: str = ""
    port: int | None = None

    @classmethod
    def of(cls, app: Any, queue: str) -> SdkPlace:
        """Return where a queue is."""
        transport = app.transport
        pool = getattr(getattr(transport, "_redis", None), "connection_pool", None)
        settings = getattr(pool, "connection_kwargs", None)
        if not isinstance(settings, dict):
            return cls(queue)
        layout = "zset" if getattr(transport, "_laravel_compat", False) else "legacy"
        if path := settings.get("path"):
            return cls(queue, layout, str(path))
        host, port = settings.get("host", "localhost"), settings.get("port", 6379)
        return cls(queue, layout, str(host), port if isinstance(port, int) else None)


class RefusedError(Exception):
    """A message that the SDK gave to no handler."""

    reason = ""

    def __str__(self) -> str:
        """Say why."""
        return f"no handler was called: {self.reason}"


class PoisonRefusedError(RefusedError):
    """It is no envelope."""

    reason = "poison"


class UnknownUrnRefusedError(RefusedError):
    """No handler takes its URN."""

    reason = "unknown_urn"


def refusal_of(received: Any) -> RefusedError:
    """Return why no handler was called for a message."""
    known = urn_of(envelope_of(received.body)) and not received.route_urn.startswith("babelqueue:")
    return UnknownUrnRefusedError() if known else PoisonRefusedError()


def envelope_of(body: Any) -> Mapping[str, Any]:
    """Return the envelope in a body; an empty one when there is none."""
    try:
        return mapping(json.loads(body))
    except (TypeError, ValueError, RecursionError):
        return {}


def urn_of(envelope: Mapping[str, Any]) -> str:
    """Return what an envelope is routed by."""
    return text(envelope.get("job")) or text(envelope.get("urn"))


def traced_by_the_sdk(handler: object) -> bool:
    """Tell whether a handler makes a span of its own, with the SDK's ``otel.wrap_handler``.

    That may stand inside a partial, a decorator, or a function that closes over it. One that is
    kept elsewhere, in a list or an object, is not found.
    """
    ahead = [handler]
    try:
        for _ in range(_MOST):
            seen = ahead.pop(0)
            if (getattr(seen, "__module__", ""), getattr(seen, "__qualname__", "")) == _SDK_SPANS:
                return True
            ahead += _inside(seen)
    except Exception:  # noqa: BLE001 - the end of it, or an attribute of somebody else's
        return False
    return False


def _inside(handler: object) -> list[object]:
    """Return what a handler may call."""
    found = [cell.cell_contents for cell in getattr(handler, "__closure__", None) or ()]
    found.append(getattr(handler, "__wrapped__", None))
    if isinstance(handler, functools.partial):
        found.append(handler.func)
    return [each for each in found if callable(each)]


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def text(value: object) -> str:
    """Return text, or none of it in place of anything else."""
    return value if isinstance(value, str) else ""


def attempts(envelope: Mapping[str, Any]) -> int:
    """Return how often a message was tried."""
    found = envelope.get("attempts")
    return found if isinstance(found, int) else 0
