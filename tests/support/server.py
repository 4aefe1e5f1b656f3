"""The Redis of the tests: found or started once per run."""

from __future__ import annotations

import atexit
import contextlib
import os
from functools import cache
from typing import Any

from kit.redis_server import redis_url

Client = Any
"""redis-py annotates every reply with a union of all clients' replies, of no use to assertions."""

_stack = contextlib.ExitStack()
atexit.register(_stack.close)


@cache
def shared_url() -> str:
    """Return the URL of the Redis that all tests share; it may be somebody's, so flush nothing.

    Raises:
        NoRedisError: There is none.
    """
    return _stack.enter_context(redis_url())


def redis_is_required() -> bool:
    """Tell whether a missing Redis is a failure rather than a reason to skip."""
    return any(os.environ.get(name) for name in ("CI", "BQ_REQUIRE_REDIS"))
