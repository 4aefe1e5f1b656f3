"""Whether a queue is as it should be, and which side of it lacks trace context."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from babelqueue_redis.cli.checks import OK, PROBLEM, UNKNOWN, WARNING, Check, ask
from babelqueue_redis.cli.output import shown
from babelqueue_redis.core.command import ErrorReply
from babelqueue_redis.core.stored import StoredMessage
from babelqueue_redis.errors import TransportError
from babelqueue_redis.layouts.operations import Operations
from babelqueue_redis.sync.driver import Driver

_SAMPLE = 500
"""Messages of each state that are asked for context."""


def check_queue(
    driver: Driver, name: str, operations: Operations, other: Operations, *, framed: bool
) -> Iterator[Check]:
    """Look at a queue; what is wrong with its keys ends the look.

    Args:
        driver: Speaks to Redis.
        name: The queue's.
        operations: What can be asked of it.
        other: What could be asked of it, were it of the other layout.
        framed: Whether it is of the legacy layout, where messages have headers.
    """
    label = shown(name)
    wrong = list(_types(driver, operations))
    if wrong:
        fix = "no command works on it: another program uses the key, or the layout is another one"
        yield Check(f"{label}: keys", PROBLEM, "; ".join(wrong), fix)
        return
    if not _present(driver, operations) and (found := _present(driver, other)):
        layout, detail = "zset" if framed else "legacy", f"there is {shown(found[0])} instead"
        yield Check(f"{label}: layout", WARNING, detail, f"is it of the other: --layout {layout}?")
        return
    try:
        yield _reservations(driver, label, operations)
        yield from _context(driver, label, operations, framed=framed)
    except TransportError as error:
        yield Check(f"{label}: messages", UNKNOWN, shown(str(error)))


def _present(driver: Driver, operations: Operations) -> list[str]:
    """Return the keys that are there, as far as that may be asked."""
    return [key for key in operations.types() if ask(driver, "EXISTS", key=key) == 1]


def _types(driver: Driver, operations: Operations) -> Iterator[str]:
    for key, wanted in operations.types().items():
        found = ask(driver, "TYPE", key=key)
        if isinstance(found, ErrorReply):
            yield f"{shown(key)}: {found.message}"
        elif (held := shown(found)) not in ("none", wanted):
            yield f"{shown(key)} holds a {held}, not a {wanted}"


def _reservations(driver: Driver, label: str, operations: Operations) -> Check:
    name = f"{label}: reservations"
    counts = driver.send(operations.counts())
    command = operations.stuck()
    stuck = None if command is None else driver.send(command)
    if stuck is not None and stuck.undated:
        detail = f"{stuck.undated} reserved without a deadline: no sweep brings them back"
        return Check(name, PROBLEM, detail, "a running worker gives them one, bq-redis worker")
    if counts.overdue:
        detail = f"{counts.overdue} of {counts.reserved} reservations have run out"
        return Check(name, PROBLEM, detail, "no worker looks: start one, it brings them back")
    if stuck is not None and stuck.orphaned:
        detail = f"{stuck.orphaned} deadlines without a message"
        return Check(name, WARNING, detail, "a sweep of the next worker removes them in time")
    compared = stuck is None or stuck.compared
    detail = f"{counts.reserved} reserved" + ("" if compared else ", too many to compare")
    return Check(name, OK, f"{detail}, {counts.ready} ready, {counts.dead} dead")


def _context(
    driver: Driver, label: str, operations: Operations, *, framed: bool
) -> Iterator[Check]:
    name = f"{label}: context"
    if not framed:
        detail = "the zset layout has no headers: traces go on by trace_id"
        yield Check(name, OK, detail)
        return
    sides: defaultdict[str, list[bool]] = defaultdict(list)
    for state in ("ready", "reserved", "dead"):
        command = operations.peek(_SAMPLE, state)
        for message in driver.send(command) if command is not None else ():
            if message.envelope is not None:
                sides[message.envelope.meta.lang or "unknown"].append(_has_context(message))
    if not sides:
        yield Check(name, UNKNOWN, "no message is there to be looked at")
        return
    told = (f"{shown(side)} {sum(found)} of {len(found)}" for side, found in sorted(sides.items()))
    detail = f"with a traceparent, by producer: {', '.join(told)}"
    lacking = sorted(shown(side) for side, found in sides.items() if not all(found))
    if lacking:
        fix = (
            f"instrument the producers in {', '.join(lacking)}; retries of other SDKs drop headers"
        )
        yield Check(name, WARNING, detail, fix)
    else:
        yield Check(name, OK, detail)


def _has_context(message: StoredMessage) -> bool:
    return any(name.lower() in ("traceparent", "b3", "x-b3-traceid") for name in message.headers)
