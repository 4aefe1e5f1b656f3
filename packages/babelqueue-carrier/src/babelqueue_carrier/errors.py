"""The root of the suite's exceptions, and the one exception of this package.

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
