"""Waiting on a predicate, never on a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.server import Client

T = TypeVar("T")


def eventually(predicate: Callable[[], T], seconds: float = 60) -> T:
    """Return the first true value of ``predicate``; fail when none comes in time."""
    end = time.monotonic() + seconds
    while not (value := predicate()):
        assert time.monotonic() < end, f"still {value!r} after {seconds} s"
        time.sleep(0.01)
    return value


def blocked(client: Client, name: str) -> list[int]:
    """Return the ids of the connections called ``name`` that wait in a blocking command."""
    listed = client.client_list()
    return [int(each["id"]) for each in listed if each["name"] == name and "b" in each["flags"]]


def calls(client: Client, command: str) -> int:
    """Return how often a command was called on the whole server, by scripts as well."""
    counted: int = client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]
    return counted
