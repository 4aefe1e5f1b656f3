"""Typed payloads: from the ``data`` object of a message to the type that a handler asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from babelqueue_carrier.errors import qualified_name
from babelqueue_redis.errors import ConfigurationError, PayloadError

Convert = Callable[[dict[str, Any]], Any]
"""From decoded JSON to the payload's type; raises :class:`PayloadError`."""

_VALUE = re.compile(r"(Invalid (?:enum )?value) .*?(?= - at |\Z)", re.DOTALL)
"""Where msgspec repeats what it was given. A payload never stands in a message of ours."""


def converter(payload: Any) -> Convert:  # noqa: ANN401 - any type msgspec knows
    """Return what turns ``data`` into ``payload``.

    Args:
        payload: A type that ``msgspec`` knows (Struct, dataclass, TypedDict, attrs class, …) or a
            pydantic model.

    Raises:
        ConfigurationError: It is neither.
    """
    validate = getattr(payload, "model_validate", None)
    if isinstance(payload, type) and callable(validate):
        return lambda data: _converted(_pydantic_says, validate, data)
    try:
        msgspec.json.Decoder(payload)  # looks the type through, runs nothing of it
    except Exception as error:
        msg = f"payload={payload!r} is no type that msgspec can make from JSON: {error}"
        raise ConfigurationError(msg) from error

    def convert(data: dict[str, Any]) -> Any:  # noqa: ANN401 - the payload's type
        return msgspec.convert(data, payload, str_keys=True)

    return lambda data: _converted(_msgspec_says, convert, data)


def _converted(
    says: Callable[[Exception], str], convert: Callable[[Any], Any], data: dict[str, Any]
) -> Any:  # noqa: ANN401 - the payload's type
    try:
        return convert(data)
    except Exception as error:  # noqa: BLE001 - whatever a type's own checks raise
        msg = f"data does not fit: {says(error)}"
        raise PayloadError(msg) from None  # its context may hold the payload


def _msgspec_says(error: Exception) -> str:
    """Give what is wrong, and where; of a type's own check only the kind of its error."""
    if not isinstance(error, msgspec.ValidationError):
        return qualified_name(error)
    text = _VALUE.sub(r"\1", str(error)).replace("`$", "`data")
    if error.__cause__ is None:
        return text
    _, at, path = text.rpartition(" - at ")
    return f"{qualified_name(error.__cause__)}{at}{path if at else ''}"


def _pydantic_says(error: Exception) -> str:
    """Give the code and the path of the first complaint; its text may repeat the input."""
    complaints = getattr(error, "errors", None)
    if complaints is None:
        return qualified_name(error)
    first = complaints(include_input=False, include_context=False, include_url=False)[0]
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"])
    return f"{first['type']} - at `data{path}`"
