"""``bq-redis doctor``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from babelqueue_redis import entropy
from babelqueue_redis.cli.checks import OK, PROBLEM, UNKNOWN, WARNING, Check, info
from babelqueue_redis.cli.output import Output, shown
from babelqueue_redis.cli.queue_checks import check_queue
from babelqueue_redis.cli.server_checks import check_server
from babelqueue_redis.cli.session import Session
from babelqueue_redis.cli.stats import queue_names
from babelqueue_redis.cli.telemetry_checks import check_telemetry
from babelqueue_redis.errors import CommandRefusedError
from babelqueue_redis.settings import LAYOUTS
from babelqueue_redis.sync.driver import Driver

_SIGNS = {OK: ("ok      ", "green"), WARNING: ("warning ", "yellow"), PROBLEM: ("problem ", "red")}


def doctor(
    ctx: typer.Context,
    queues: Annotated[
        list[str] | None, typer.Argument(help="By default all that can be found.", metavar="QUEUE…")
    ] = None,
) -> None:
    """Look for what is wrong: with Redis, with queues, with tracing.

    Exit code 1 when there is a problem; warnings are none. Nothing is changed.
    """
    session: Session = ctx.obj
    checks = []
    if not session.output.json:
        session.output.line((f"{session.where}, {session.layout} layout", "bold"))
    for check in _checks(session, queues):
        checks.append(check)
        if not session.output.json:
            _write(session.output, check)
    counted = Counter(check.status for check in checks)
    if session.output.json:
        shape = {"url": session.where, "layout": session.layout, "ok": not counted[PROBLEM]}
        session.output.document({**shape, "checks": [msgspec.to_builtins(each) for each in checks]})
    else:
        told = (f"{counted[each]} {each}" for each in (OK, WARNING, PROBLEM, UNKNOWN))
        session.output.line((", ".join(told), "bold"))
    if counted[PROBLEM]:
        raise typer.Exit(1)


def _checks(session: Session, queues: list[str] | None) -> Iterator[Check]:
    driver = session.driver()
    try:
        yield from _asked(session, driver, queues)
    finally:
        driver.close()


def _asked(session: Session, driver: Driver, queues: list[str] | None) -> Iterator[Check]:
    first = queues[0] if queues else f"{session.queue_prefix}queue"
    prefix = session.queue_prefix if session.layout == "zset" and queues else ""
    probe = f"{prefix}{first}:bq-doctor:{entropy.new_token()}"
    if info(driver, "cluster").get("cluster_enabled") == "1" and not session.is_cluster:
        yield Check("cluster", PROBLEM, "this is one node of a cluster", "add --cluster")
        return
    yield from check_server(driver, probe)
    try:
        names = queue_names(session, queues)
    except CommandRefusedError as error:
        yield Check("queues", UNKNOWN, shown(str(error)), "name the queues to be looked at")
        names = []
    for name in names:
        framed = session.layout == "legacy"
        if session.is_cluster and not re.search(r"\{[^}]+\}", name):
            told = f"{shown(name)}: cluster"
            detail = "its keys lie on several nodes"
            yield Check(told, PROBLEM, detail, f"a hash tag in its name: {{{shown(name)}}}")
            continue
        here, there = map(session.operations, (name, name), LAYOUTS if framed else LAYOUTS[::-1])
        yield from check_queue(driver, name, here, there, framed=framed)
    yield from check_telemetry()


def _write(output: Output, check: Check) -> None:
    sign, style = _SIGNS.get(check.status, ("unknown ", "dim"))
    output.line((sign, style), (f"{check.name}: ", "bold"), check.detail)
    if check.fix and check.status != OK:
        output.line("        ", ("→ ", "dim"), check.fix)
