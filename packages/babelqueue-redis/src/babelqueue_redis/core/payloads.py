"""Typed payloads: from the ``data`` object of a message to the type that a handler asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import inspect
from msgspec.json import encode

from babelqueue_carrier.errors import message_of, qualified_name
from babelqueue_redis.errors import ConfigurationError, PayloadError

Convert = Callable[[Any], Any]
"""From decoded JSON to the payload's type; raises :class:`PayloadError`."""

_VALUE = re.compile(r"(Invalid (?:enum )?value) .*?(?= - at `\$[^`]*`\Z|\Z)", re.DOTALL)
_KEY = re.compile(r"(unknown field) `.*`(?= - at `\$[^`]*`\Z|\Z)", re.DOTALL)
"""Where msgspec repeats what it was given. A payload never stands in a message of ours."""

_OBJECTS = (
    inspect.AnyType,
    inspect.DataclassType,
    inspect.DictType,
    inspect.StructType,
    inspect.TypedDictType,
)


def converter(payload: Any, *, object_only: bool = True) -> Convert:
    """Return what turns ``data`` into ``payload``.

    Args:
        payload: A type that ``msgspec`` knows and that can be a JSON object (Struct, dataclass,
            TypedDict, attrs class, dict, a union with one of them) or a pydantic model.
        object_only: Whether ``data`` is always a JSON object, so that another type is a mistake.

    Raises:
        ConfigurationError: It is neither.
    """
    from_json = getattr(payload, "model_validate_json", None)
    if isinstance(payload, type) and callable(from_json):
        return lambda data: _converted(_pydantic_says, lambda: from_json(encode(data)))
    try:
        about = inspect.type_info(payload)  # looks the type through, runs nothing of it
        msgspec.json.Decoder(payload)
    except Exception as error:
        msg = f"payload={payload!r} is no type that msgspec can make from JSON: {error}"
        raise ConfigurationError(msg) from error
    if object_only and not any(
        isinstance(kind, _OBJECTS) for kind in getattr(about, "types", (about,))
    ):
        msg = f"payload={payload!r} is no type that a JSON object can become"
        raise ConfigurationError(msg)
    return lambda data: _converted(
        _msgspec_says, lambda: msgspec.convert(data, payload, str_keys=True)
    )


def _converted(says: Callable[[Exception], str], convert: Callable[[], Any]) -> Any:
    try:
        return convert()
    except Exception as error:  # noqa: BLE001 - whatever a type's own checks raise
        msg = f"data does not fit: {says(error)}"
    raise PayloadError(msg)  # without a context, which may hold the payload


def _msgspec_says(error: Exception) -> str:
    """Give what is wrong, and where; of a type's own check only the kind of its error."""
    if not isinstance(error, msgspec.ValidationError):
        return qualified_name(error)
    text = _KEY.sub(r"\1", _VALUE.sub(r"\1", message_of(error)))
    if error.__cause__ is not None:
        text = f"{qualified_name(error.__cause__)}{text[text.rfind(' - at `$') :]}"
    return text.replace("`$", "`data")


def _pydantic_says(error: Exception) -> str:
    """Give the code and the path of the first complaint; its text may repeat the input."""
    try:
        first = error.errors(include_input=False, include_context=False, include_url=False)[0]  # type: ignore[attr-defined]
        path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in first["loc"])
        return f"{first['type']} - at `data{path}`"
    except Exception:  # noqa: BLE001 - some other error, of a validator
        return qualified_name(error)
