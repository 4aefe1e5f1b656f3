"""``bq-redis worker``."""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from babelqueue_redis.cli.children import Child, end_with_parent
from babelqueue_redis.cli.output import Output, shown
from babelqueue_redis.cli.probe import served, touched
from babelqueue_redis.cli.reloading import Watcher
from babelqueue_redis.cli.session import Session
from babelqueue_redis.cli.supervisor import Supervisor
from babelqueue_redis.cli.targets import target_of
from babelqueue_redis.errors import ConfigurationError

_SHUTDOWN = 30.0


def worker(
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(help="A mapping of handlers, or a consumer.", metavar="MODULE:NAME")
    ],
    *,
    queue: Annotated[
        str, typer.Option("--queue", "-q", help="Which one; several by priority: high,default.")
    ] = "",
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", "-c", help="Handlers at once, per process.")
    ] = None,
    processes: Annotated[int, typer.Option("--processes", "-p", min=1)] = 1,
    prefetch: Annotated[str | None, typer.Option(help="Messages per trip, or auto.")] = None,
    retry_after: Annotated[
        str | None, typer.Option(help="Seconds until a crashed worker's message comes, or none.")
    ] = None,
    max_tries: Annotated[int | None, typer.Option(help="Runs before it is a dead letter.")] = None,
    retry_backoff: Annotated[float | None, typer.Option(help="Seconds; zset layout only.")] = None,
    unknown_urn: Annotated[
        str | None, typer.Option(help="fail, delete, release or dead_letter.")
    ] = None,
    handler_timeout: Annotated[
        float | None, typer.Option(help="Seconds that a handler's message is kept for it.")
    ] = None,
    shutdown_timeout: Annotated[
        float | None, typer.Option(help="Seconds that handlers may go on after SIGTERM.")
    ] = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when a .py file changes below here.")
    ] = False,
    health_file: Annotated[
        Path | None, typer.Option(help="Touched every second while healthy.", metavar="PATH")
    ] = None,
    health_port: Annotated[
        int | None, typer.Option(help="Answers 200 while healthy, else 503.", min=0, max=65_535)
    ] = None,
    health_host: Annotated[str, typer.Option(help="Where it listens.")] = "127.0.0.1",
    log_level: Annotated[str, typer.Option(help="What is logged, to stderr.")] = "info",
    child: Annotated[Path | None, typer.Option(hidden=True)] = None,
) -> None:
    """Work off queues with the handlers of module:attribute, until SIGTERM or Ctrl-C.

    A mapping of URNs to handlers needs --queue; coroutine functions run in asyncio. A ready
    RedisConsumer, RedisWorker, JobWorker, or the asyncio one of them, has its options itself.
    """
    session: Session = ctx.obj
    given: dict[str, Any] = {
        "concurrency": concurrency,
        "prefetch": prefetch
        if prefetch in (None, "auto")
        else _number("--prefetch", prefetch, int),
        "retry_after": None
        if retry_after in (None, "none")
        else _number("--retry-after", retry_after, float),
        "max_tries": max_tries,
        "retry_backoff": retry_backoff,
        "unknown_urn": unknown_urn,
        "handler_timeout": handler_timeout,
        "shutdown_timeout": shutdown_timeout,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if retry_after == "none":
        options["retry_after"] = None
    probes = _Probes(session.output, health_file, health_host, health_port)
    if child is None and (processes > 1 or reload):
        patience = _SHUTDOWN if shutdown_timeout is None else shutdown_timeout
        code = _supervise(session.output, probes, processes, patience, reload=reload)
        raise typer.Exit(code)
    queues = [each for each in (part.strip() for part in queue.split(",")) if each]
    if child is not None:
        end_with_parent()
        probes = _Probes(session.output, child, "", None)
        probes.is_asked_for = False
    _run(session, target, queues, options, probes, log_level)


def _run(
    session: Session,
    name: str,
    queues: list[str],
    options: dict[str, Any],
    probes: _Probes,
    log_level: str,
) -> None:
    """Run a target in this process."""
    target = target_of(name, session, queues, options)
    _log(log_level)
    with probes.around(target.healthy):
        session.output.note(f"working off {shown(target.label)}")
        handled = target.run()
    session.output.note(f"handled {handled}")


def _supervise(
    output: Output, probes: _Probes, count: int, shutdown_timeout: float, *, reload: bool
) -> int:
    """Run processes that are started like this one."""
    command = [sys.executable, *sys.orig_argv[1:]]
    with tempfile.TemporaryDirectory(prefix="bq-redis-") as folder:
        children = [Child(command, Path(folder, str(n)), output.note) for n in range(count)]
        changed = Watcher(Path.cwd()).changed if reload else None
        supervisor = Supervisor(children, shutdown_timeout, changed, output.note)
        with probes.around(supervisor.healthy):
            return supervisor.run()


class _Probes:
    """The probes that were asked for."""

    def __init__(self, output: Output, file: Path | None, host: str, port: int | None) -> None:
        self._output = output
        self._file, self._host, self._port = file, host, port
        self.is_asked_for = file is not None or port is not None

    @contextlib.contextmanager
    def around(self, healthy: Callable[[], bool] | None) -> Iterator[None]:
        """Answer for as long as the block lasts."""
        with contextlib.ExitStack() as stack:
            if healthy is None and self.is_asked_for:
                msg = (
                    "a job worker cannot tell its health: leave out --health-file and --health-port"
                )
                raise ConfigurationError(msg)
            if healthy is not None and self._file is not None:
                stack.enter_context(touched(healthy, self._file))
            if healthy is not None and self._port is not None:
                port = stack.enter_context(served(healthy, self._host, self._port))
                self._output.note(f"health is told at http://{self._host}:{port}/")
            yield


def _number(option: str, text: str, kind: Callable[[str], float]) -> float | None:
    if text == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        msg = f"{option}={text!r} is no number"
        raise ConfigurationError(msg) from None


def _log(level: str) -> None:
    """Log to stderr, unless the program set something up that does."""
    number = logging.getLevelName(level.upper())
    if not isinstance(number, int):
        msg = f"--log-level={level!r} is none of debug, info, warning, error, critical"
        raise ConfigurationError(msg)
    root = logging.getLogger()
    if not any(isinstance(each, logging.StreamHandler) for each in root.handlers):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
        root.setLevel(number)
