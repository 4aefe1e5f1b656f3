"""What a check finds."""

from __future__ import annotations

from typing import Any

import msgspec

from babelqueue_redis.core.command import Arg, Command, ErrorReply
from babelqueue_redis.errors import TransportError
from babelqueue_redis.sync.driver import Driver

OK, WARNING, PROBLEM, UNKNOWN = "ok", "warning", "problem", "unknown"


class Check(msgspec.Struct, frozen=True):
    """One line of the doctor's report.

    Attributes:
        name: What was looked at; a queue's begins with its name.
        status: ``ok``, ``warning``, ``problem`` or ``unknown`` (it may not be asked).
        detail: What was found.
        fix: What to do about it; ``""`` where there is nothing to do.
    """

    name: str
    status: str
    detail: str
    fix: str = ""


def ask(driver: Driver, verb: str, *args: Arg, key: str | None = None) -> Any:
    """Return a reply; what is refused is an ``ErrorReply``."""
    keys = () if key is None else (key,)
    return driver.send(Command(verb, keys, args, lambda reply: reply, tolerant=True))


def refusal(driver: Driver, verb: str, *args: Arg, key: str | None = None) -> str:
    """Return why a command is refused, or ``""``."""
    try:
        reply = ask(driver, verb, *args, key=key)
    except TransportError as error:
        return str(error)
    return reply.message if isinstance(reply, ErrorReply) else ""


def info(driver: Driver, section: str) -> dict[str, str]:
    """Return a section of ``INFO``; ``{}`` where it may not be read."""
    reply = ask(driver, "INFO", section)
    if not isinstance(reply, bytes):
        return {}
    lines = reply.decode("utf-8", "replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
