"""Whatever answers in Redis' place: a result of the right type, or an error of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from redis.exceptions import NoPermissionError, ResponseError

from babelqueue_redis import (
    ClaimedJob,
    ConnectionLostError,
    Job,
    Outcome,
    Reservation,
    TransportError,
)
from babelqueue_redis.core.command import Command
from babelqueue_redis.core.redriving import Redrive
from babelqueue_redis.core.settlement import GIVE_BACK, Settlement
from babelqueue_redis.jobs import listing
from babelqueue_redis.jobs.commands import JobCommands, jobs_of
from babelqueue_redis.jobs.options import JobStoreOptions
from babelqueue_redis.jobs.values import JobPage
from babelqueue_redis.layouts.legacy import LegacyLayout
from babelqueue_redis.layouts.operations import Operations
from babelqueue_redis.layouts.zset import ZsetLayout
from babelqueue_redis.redis_py import result_of
from babelqueue_redis.settings import QueueOptions

WORDS = [b"", b"\xff", b"12", b"kind", b"payload", b"job", b"{}", b'{"__bq_frame":1,"body":"{}"}']
LEAVES = st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from(WORDS) | st.binary()
ERRORS = st.sampled_from([ResponseError("ERR no"), NoPermissionError("no"), ResponseError("")])
REPLIES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4), max_leaves=8) | ERRORS
RESERVED = Reservation("q", b"{}", {}, "0" * 32, b"{}", None, 1)
JOBS = JobCommands(JobStoreOptions(keep_done=1))
(CLAIM,) = jobs_of([[b"kind", b"a", b"payload", b"1"]], ClaimedJob)
DEAD = Settlement(Outcome.DEAD_LETTERED, b"{}", "dead", dead_letter_max_length=1)


def of_layout(layout: Any) -> dict[str, Callable[[], Any]]:
    """Everything that a consumer and a publisher say."""
    return {
        "publish": lambda: layout.publish([(b"{}", {})]),
        "reserve": lambda: layout.reserve("0" * 32),
        "reserve many": lambda: layout.reserve("0" * 32, count=9),
        "ack and reserve": lambda: layout.take("0" * 32, None, 2, [RESERVED, RESERVED]),
        "ack": lambda: layout.take("0" * 32, None, 0, [RESERVED]),
        "give back": lambda: layout.replace(RESERVED, GIVE_BACK),
        "retry": lambda: layout.replace(RESERVED, Settlement(Outcome.RETRIED, b"{}")),
        "dead letter": lambda: layout.replace(RESERVED, DEAD),
        "extend": lambda: layout.extend(RESERVED),
        "wait": lambda: layout.wait(1, 0),
    }


def of_operations(operations: Operations) -> dict[str, Callable[[], Any]]:
    """Everything that an operator asks."""
    return {
        "counts": operations.counts,
        "peek": lambda: operations.peek(9, "ready"),
        "peek reserved": lambda: operations.peek(9, "reserved"),
        "purge": operations.purge,
        "redrive": lambda: operations.redrive(Redrive("dead", "q")).step(),
    }


OF_JOBS: dict[str, Callable[[], Any]] = {
    "enqueue": lambda: JOBS.enqueue([], None),
    "claim": lambda: JOBS.claim(9, "w", 1, ["a"], "token", None),
    "extend": lambda: JOBS.extend(CLAIM, 1, None),
    "complete": lambda: JOBS.complete(CLAIM, None),
    "complete many": lambda: JOBS.complete_many([CLAIM, CLAIM], None),
    "fail": lambda: JOBS.fail(CLAIM, "", retry_at=None, delay=0, dead=False, now=None),
    "release": lambda: JOBS.release([CLAIM]),
    "reap": lambda: JOBS.reap(None),
    "get": lambda: JOBS.get("a"),
    "count": JOBS.count,
    "cancel": lambda: JOBS.cancel("a", None),
    "retry": lambda: JOBS.retry("a", None),
    "list": lambda: listing.page(JOBS, "done", None, None),
    "list kind": lambda: listing.page(JOBS, None, "a", None),
    "everything": lambda: listing.everything(JOBS, "a"),
    "reindex": lambda: listing.reindex(JOBS, None),
}
LEGACY, ZSET = LegacyLayout("q", 90), ZsetLayout("q", "queues:", 90)
SAID: dict[str, Callable[[], Any]] = {
    **{f"legacy {name}": said for name, said in of_layout(LEGACY).items()},
    "legacy sweep": LEGACY.sweep,
    "legacy adopt": lambda: LEGACY.adopt(lambda: "0" * 32),
    **{f"zset {name}": said for name, said in of_layout(ZSET).items()},
    "zset migrate": ZSET.migrate,
    **{
        f"{layout} {name}": said
        for layout in ("legacy", "zset")
        for name, said in of_operations(Operations(QueueOptions("q", layout), "q.dlq")).items()
    },
    **{f"job {name}": said for name, said in OF_JOBS.items()},
}


def answered(commands: Any, draw: Callable[[Any], Any]) -> list[Any]:
    """Return what the replies to some commands mean."""
    return [result_of(command, draw(REPLIES)) for command in commands]


def run(said: Any, draw: Callable[[Any], Any]) -> Any:
    """Do as a shell does, for so many trips."""
    if isinstance(said, Command):
        return answered([said], draw)[0]
    try:
        commands = next(said)
        for _ in range(8):
            try:
                replies = answered(commands, draw)
            except TransportError as error:
                commands = said.throw(error)
            else:
                commands = said.send(replies)
    except StopIteration as end:
        return end.value
    said.close()
    return None


def is_sound(value: Any) -> bool:
    """Tell whether a result can be worked with."""
    if isinstance(value, Reservation):
        return isinstance(value.stored, bytes) and isinstance(value.recoveries, int)
    if isinstance(value, list):
        return all(map(is_sound, value))
    if isinstance(value, JobPage):
        return all(isinstance(job, Job) for job in value.jobs)
    if isinstance(value, dict):
        return all(isinstance(count, int) for count in value.values())
    return True


@pytest.mark.parametrize("what", SAID)
@hypothesis.settings(max_examples=20)
@hypothesis.given(st.data())
def test_any_reply_is_understood_or_an_error_of_ours(what: str, data: Any) -> None:
    """To every command of every layout, of the operators' tools and of the job store."""
    with contextlib.suppress(TransportError):
        assert is_sound(run(SAID[what](), data.draw))


def test_an_odd_reply_may_have_been_to_a_command_that_ran() -> None:
    """The error says so, and quotes nothing of it."""
    with pytest.raises(ConnectionLostError, match="jobs_claim") as caught:
        run(JOBS.claim(9, "w", 1, None, "token", None), lambda _: [b"secret"])
    assert caught.value.sent
    assert "secret" not in repr(caught.value)
    assert caught.value.__cause__ is None
