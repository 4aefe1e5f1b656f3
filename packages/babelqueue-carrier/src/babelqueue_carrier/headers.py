"""What a clean header mapping is: text to text, nothing empty."""

from __future__ import annotations

from collections.abc import Mapping

from babelqueue_carrier.errors import HeaderError

Headers = Mapping[str, str]

ASCII_WHITESPACE = " \t\n\v\f\r"
"""All that BabelQueue trims, and all that counts as blank."""


def clean(headers: Headers | None) -> dict[str, str]:
    """Return a fresh copy of ``headers`` without empty names and empty values.

    Args:
        headers: Header names and values; ``None`` counts as no headers.

    Returns:
        A new dict. It is empty when nothing is left to send.

    Raises:
        HeaderError: ``headers`` is not a mapping, or a name or value is not a ``str``, or holds
            a lone surrogate, which no UTF-8 text can carry.
    """
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        msg = f"headers must be a mapping of str to str, not {type(headers).__name__}"
        raise HeaderError(msg)
    return {
        _checked(name, f"the header name {name!r}"): _checked(
            value, f"the value of header {name!r}"
        )
        for name, value in headers.items()
        if name != "" and value != ""
    }


def is_text(text: str) -> bool:
    """Tell whether UTF-8 can carry ``text``."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _checked(text: object, what: str) -> str:
    if not isinstance(text, str):
        msg = f"{what} is a {type(text).__name__}; headers carry text only, pass a str"
        raise HeaderError(msg)
    if not is_text(text):
        msg = f"{what} holds a lone surrogate, which UTF-8 cannot carry"
        raise HeaderError(msg)
    return text
