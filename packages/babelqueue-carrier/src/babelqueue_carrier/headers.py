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
    kept = {name: value for name, value in headers.items() if name != "" and value != ""}
    for name, value in kept.items():
        if not (_is_header_text(name) and _is_header_text(value)):
            raise HeaderError(_wrong_with(name, value))
    return kept


def is_text(text: str) -> bool:
    """Tell whether UTF-8 can carry ``text``."""
    try:
        text.isascii() or text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _is_header_text(text: object) -> bool:
    return isinstance(text, str) and is_text(text)


def _wrong_with(name: object, value: object) -> str:
    """Say what is wrong with a header; never what its value is."""
    is_name = not _is_header_text(name)
    what = f"the header name {name!r}" if is_name else f"the value of header {name!r}"
    text = name if is_name else value
    if not isinstance(text, str):
        return f"{what} is a {type(text).__name__}; headers carry text only, pass a str"
    return f"{what} holds a lone surrogate, which UTF-8 cannot carry"
