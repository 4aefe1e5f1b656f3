from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import AskError, MovedError, ResponseError

from babelqueue_redis.cluster import Nodes

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def nodes(*addresses: tuple[str, int]) -> Nodes:
    """Make nodes that a client knows."""
    known = {str(each): SimpleNamespace(host=each[0], port=each[1]) for each in addresses}
    manager = SimpleNamespace(nodes_cache={}, startup_nodes=known)
    return Nodes(SimpleNamespace(nodes_manager=manager))


@pytest.mark.parametrize(
    ("reply", "there"),
    [
        (MovedError("3999 b:2"), B),
        (ResponseError("MOVED 3999 b:2"), B),
        (MovedError("3999 ::1:7000"), ("::1", 7000)),
        (MovedError("3999 :7000"), ("a", 7000)),
    ],
)
def test_an_answer_that_names_another_node_is_followed(
    reply: ResponseError, there: tuple[str, int]
) -> None:
    """Whatever redis-py makes of it; no host is the one that answered."""
    known = nodes(A)
    assert known.follow(reply)
    assert known.first == there
    assert len(known) == 2


@pytest.mark.parametrize(
    "reply", [b"MOVED 3999 b:2", None, 1, AskError("3999 b:2"), ResponseError("ERR MOVED")]
)
def test_no_other_answer_is(reply: Any) -> None:
    """Least of all ``ASK``, which holds for one command only."""
    known = nodes(A)
    assert not known.follow(reply)
    assert known.first == A


def test_a_node_tells_of_the_others() -> None:
    """One that does not know its own name is where it was asked."""
    known = nodes(A)
    known.learn([[0, 99, [b"b", 2, b"id"], [b"c", 3, b"id", []]], [100, 200, [None, 4], [b"?", 5]]])
    seen = []
    for _ in range(len(known)):
        seen.append(known.first)
        known.leave()
    assert seen == [A, B, C, ("a", 4), ("a", 5)]
    assert known.first == A


def test_a_node_may_refuse_to_tell() -> None:
    """An ACL may forbid it."""
    known = nodes(A, B)
    known.learn(ResponseError("NOPERM"))
    assert (known.first, len(known)) == (A, 2)
