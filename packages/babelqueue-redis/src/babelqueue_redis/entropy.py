"""The clock and the dice. Shells call these; nothing below a shell does."""

from __future__ import annotations

import os
import platform
import random
import time

_VARIANT = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))


def epoch_ms() -> int:
    """Return the time as epoch milliseconds."""
    return time.time_ns() // 1_000_000


def worker_id() -> str:
    """Return a name for a worker: its host, its process, and four hex digits."""
    return f"{platform.node()}-{os.getpid()}-{os.urandom(2).hex()}"


def new_ids(count: int) -> list[str]:
    """Return fresh UUIDs as text: random ones, of version 4.

    They are cut from one reading of the system's randomness, without an object for each.
    """
    digits = os.urandom(16 * count).hex()
    return [
        f"{digits[i : i + 8]}-{digits[i + 8 : i + 12]}-4{digits[i + 13 : i + 16]}"
        f"-{_VARIANT[digits[i + 16]]}{digits[i + 17 : i + 20]}-{digits[i + 20 : i + 32]}"
        for i in range(0, 32 * count, 32)
    ]


def new_id() -> str:
    """Return a fresh UUID as text."""
    return new_ids(1)[0]


def draw() -> float:
    """Return a random number from 0 up to 1."""
    return random.random()  # noqa: S311 - it spreads retries, it keeps no secret


class Process:
    """What is known of this process without asking the system each time.

    Attributes:
        pid: Its number; a forked child's own.
    """

    def __init__(self) -> None:
        """Ask once, and again in every forked child."""
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        """Ask, and shuffle the dice: a child's must not fall like its parent's."""
        self.pid = os.getpid()
        self._dice = random.Random()  # noqa: S311 - it keeps tokens apart, it keeps no secret

    def bits(self) -> int:
        """Return 32 random bits."""
        return self._dice.getrandbits(32)


process = Process()


class Tokens:
    """Makes reservation tokens: 32 hex digits that sort by time.

    Sixteen digits of time in nanoseconds, which do not go back when the clock does; eight random
    ones, which keep threads and processes apart; eight for the place in a batch.
    """

    def __init__(self) -> None:
        """Start at the present time."""
        self._last = 0

    def __call__(self, index: int = 0) -> str:
        """Return the next token."""
        self._last = moment = max(time.time_ns(), self._last + 1)
        return f"{moment:016x}{process.bits():08x}{index:08x}"


new_token = Tokens()
