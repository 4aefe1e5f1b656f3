"""What a layout says and a shell sends.

A :class:`Command` is one Redis command or script call. Several of them make one trip. Two trips,
where the second depends on the first, are an :data:`Op`: a generator that yields trips and is sent
their results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

Arg = bytes | str | int
Trip = tuple["Command[Any]", ...]
Op = Generator[Trip, list[Any], T]

_ONE_SLOT = ". On a cluster, queues that work together need names with one hash tag: {orders}"


class Script(msgspec.Struct, frozen=True):
    """A Lua script: its name for errors, its source, and the SHA-1 that Redis knows it by."""

    name: str
    source: bytes
    sha: bytes

    @classmethod
    def of(cls, name: str, source: bytes) -> Script:
        """Name ``source`` and compute its SHA-1."""
        sha = hashlib.sha1(source, usedforsecurity=False).hexdigest()
        return cls(name, source, sha.encode())


class ErrorReply(msgspec.Struct, frozen=True):
    """The error that Redis answered a tolerant command with, handed to its ``parse``."""

    message: str


def octets(reply: object) -> bytes:
    """Return a reply, or a part of one, that has to be bytes.

    Raises:
        TypeError: It is none; a driver makes an error of ours of it.
    """
    if not isinstance(reply, bytes):
        raise TypeError
    return reply


class Command(msgspec.Struct, Generic[T], frozen=True):
    """One command.

    Attributes:
        verb: A Redis command, or a script.
        keys: The keys it touches.
        args: Everything after the keys. Bytes cost redis-py half of what text costs it.
        parse: Turns the reply (``bytes``, ``int``, ``None`` or lists of those) into the result.
        tolerant: An error reply reaches ``parse`` as an :class:`ErrorReply` and raises nothing.
        blocks: It may wait for long and takes no message, so that it may be given up at any time.
    """

    verb: str | Script
    keys: tuple[str | bytes, ...]
    args: tuple[Arg, ...]
    parse: Callable[[Any], T]
    tolerant: bool = False
    blocks: bool = False

    @property
    def name(self) -> str:
        """What it is called in errors."""
        return self.verb.name if isinstance(self.verb, Script) else self.verb

    def refused(self, message: str) -> str:
        """Return what to tell when Redis answered with an error."""
        hint = _ONE_SLOT if "same slot" in message else ""
        keys = (k if isinstance(k, str) else k.decode(errors="backslashreplace") for k in self.keys)
        return f"Redis refused {self.name} on {', '.join(keys)}: {message}{hint}"

    def wire(self, *, load: bool = False) -> tuple[Arg, ...]:
        """Return what to send.

        Args:
            load: For a script: send its source (``EVAL``), because the server answered that it
                does not know the SHA-1. That answer also proves that nothing ran.
        """
        if not isinstance(self.verb, Script):
            return (self.verb, *self.keys, *self.args)
        how: tuple[Arg, ...] = ("EVAL", self.verb.source) if load else ("EVALSHA", self.verb.sha)
        return (*how, b"%d" % len(self.keys), *self.keys, *self.args)
