"""What an option may be. Each check raises a ``ConfigurationError`` that names the option."""

from __future__ import annotations

import math
from typing import NoReturn

from babelqueue_carrier.headers import ASCII_WHITESPACE, is_text
from babelqueue_redis.errors import ConfigurationError

RESERVED_SUFFIXES = (
    ":processing",
    ":processing:deadlines",
    ":delayed",
    ":reserved",
    ":notify",
    ":recoveries",
)
MAX_SECONDS = 10 * 365 * 24 * 3600
"""A longer lease or delay is a mistake; ``None`` is the way to say "never"."""


def check_queue(name: object, option: str) -> str:
    """Return a queue name that cannot be taken for a key of another queue, as plain text.

    Raises:
        ConfigurationError: It is not text, is blank, or ends like a key of the layouts.
    """
    if not isinstance(name, str) or not name.strip(ASCII_WHITESPACE):
        refuse(option, name, "a queue name that is not blank")
    if name.endswith(RESERVED_SUFFIXES):
        suffix = next(suffix for suffix in RESERVED_SUFFIXES if name.endswith(suffix))
        refuse(option, name, f"a name that does not end in {suffix!r}, as a key of a queue does")
    if not is_text(name):
        refuse(option, name, "text without lone surrogates")
    return str.__str__(name)  # an enum member would print its own name


def check_prefix(prefix: object) -> str:
    """Return a prefix of keys, as plain text.

    Raises:
        ConfigurationError: It is not text.
    """
    if not isinstance(prefix, str) or not is_text(prefix):
        refuse("key_prefix", prefix, "text")
    return str.__str__(prefix)


def check_timeout(seconds: float, option: str = "timeout", low: float = -math.inf) -> float:
    """Return a timeout that is a number, at least ``low``.

    Raises:
        ConfigurationError: It is none.
    """
    number(option, seconds, low, MAX_SECONDS)
    return seconds


def check_count(option: str, value: object, high: float = math.inf, also: str = "") -> None:
    """Refuse what is no whole number from 1 to ``high``.

    Raises:
        ConfigurationError: It is none.
    """
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= high:
        ceiling = "" if high == math.inf else f" and at most {high}"
        refuse(option, value, f"a whole number of at least 1{ceiling} {also}".rstrip())


def one_of(option: str, value: object, allowed: tuple[object, ...], hint: str = "") -> None:
    """Refuse what is none of ``allowed``, and of its type."""
    if not any(type(value) is type(each) and value == each for each in allowed):
        wanted = " or ".join(map(repr, allowed))
        refuse(option, value, f"{wanted}; {hint}" if hint else wanted)


def number(option: str, value: object, low: float, high: float, also: str = "") -> None:
    """Refuse what is no number of seconds from ``low`` to ``high``."""
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    if not valid or not low <= value <= high:  # type: ignore[operator]  # valid says it is a number
        floor = "" if low == -math.inf else f" of at least {low:g}"
        ceiling = "" if high == math.inf else f" and at most {high:g}"
        refuse(option, value, f"a number of seconds{floor}{ceiling} {also}".rstrip())


def refuse(option: str, value: object, wanted: str) -> NoReturn:
    """Say what was given and what is wanted; never the ``repr`` of an object."""
    plain = value is None or isinstance(value, str | int | float)
    got = repr(value) if plain else f"a {type(value).__qualname__}"  # a repr may hold a password
    msg = f"{option}={got} is refused: it must be {wanted}"
    raise ConfigurationError(msg)
