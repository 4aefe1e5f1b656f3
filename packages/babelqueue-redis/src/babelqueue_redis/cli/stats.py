"""``bq-redis stats``."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from babelqueue_redis.cli.output import shown
from babelqueue_redis.cli.session import Session
from babelqueue_redis.errors import ConfigurationError, TransportError
from babelqueue_redis.layouts.discovery import find_queues
from babelqueue_redis.sync.queue import RedisQueue

COLUMNS = ("ready", "delayed", "reserved", "overdue", "dead")


def stats(
    ctx: typer.Context,
    queues: Annotated[
        list[str] | None, typer.Argument(help="By default all that can be found.", metavar="QUEUE…")
    ] = None,
    *,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 2,
) -> None:
    """Count the messages that are ready, delayed, reserved and dead."""
    session: Session = ctx.obj
    if watch:
        _watch(session, queues, interval)
        return
    found = _look(session, _opened(session, queues))
    if session.output.json:
        session.output.document({"queues": found})
    elif found:
        session.output.out.print(_table(found))
    else:
        session.output.note(f"no queue of the {session.layout} layout at {session.where}")


def queue_names(session: Session, given: list[str] | None) -> list[str]:
    """Return the queues that were named, or all that can be found."""
    if given:
        return given
    if session.is_cluster:
        msg = "on a cluster, name the queues: they are looked for on one server only"
        raise ConfigurationError(msg)
    driver = session.driver()
    try:
        return driver.run(find_queues(session.layout, session.queue_prefix))
    finally:
        driver.close()


def _opened(session: Session, given: list[str] | None) -> dict[str, RedisQueue]:
    return {name: session.queue(name) for name in queue_names(session, given)}


def _look(session: Session, queues: dict[str, RedisQueue]) -> list[dict[str, Any]]:
    found = []
    for name, queue in queues.items():
        counts = queue.counts()
        numbers = {column: getattr(counts, column) for column in COLUMNS}
        found.append({"queue": name, "layout": session.layout, **numbers})
    return found


def _table(found: list[dict[str, Any]]) -> Table:
    table = Table("queue", box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for row in found:
        cells = []
        for column in COLUMNS:
            bad = row[column] > 0 and column in ("overdue", "dead")
            cells.append(Text(f"{row[column]:,}", "red" if bad else ""))
        table.add_row(Text(shown(row["queue"]), "cyan"), *cells)
    return table


def _watch(session: Session, given: list[str] | None, interval: float) -> None:
    """Look again and again; an outage is shown, and over when it is over."""
    output = session.output
    queues: dict[str, RedisQueue] = {}
    try:
        with Live(console=output.out, auto_refresh=False, transient=False) as live:
            while True:
                shape: dict[str, Any]
                view: RenderableType
                try:
                    queues = queues or _opened(session, given)
                    found = _look(session, queues)
                    shape, view = {"queues": found}, _table(found)
                except TransportError as error:
                    shape, view = {"error": str(error)}, Text(shown(str(error)), "red")
                if output.json:
                    output.document(shape)
                elif output.out.is_terminal:
                    live.update(view, refresh=True)
                else:
                    output.out.print(view)
                time.sleep(interval)
    except KeyboardInterrupt:
        return
