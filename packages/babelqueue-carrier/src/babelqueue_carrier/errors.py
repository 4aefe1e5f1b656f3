"""The root of the suite's exceptions, the one of this package, and how exceptions are described.

::

    BabelQueueError
    └── HeaderError (also a ValueError)    a header name or value that is not text
"""

from __future__ import annotations


class BabelQueueError(Exception):
    """Every exception that the suite raises on purpose derives from this one."""


class HeaderError(BabelQueueError, ValueError):
    """A header cannot travel: its name or value is not a string of Unicode text.

    The message names the header, never its value.
    """


def qualified_name(error: BaseException) -> str:
    """Return the class name of ``error`` with its module, bare for a builtin."""
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def message_of(error: BaseException) -> str:
    """Return what ``error`` says, as text that can be UTF-8; never raises, whatever it does."""
    try:
        return str(error).encode("utf-8", "backslashreplace").decode("utf-8")
    except Exception:  # noqa: BLE001 - it is somebody else's class
        return "(the exception has no printable message)"
