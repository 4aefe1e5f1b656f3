"""The command line's frame: global options, errors, exit codes."""

from __future__ import annotations

import enum
import os
import signal
import sys
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from babelqueue_redis.cli import doctor, jobs, looking, publishing, stats, work
from babelqueue_redis.cli.dead import dead_letters
from babelqueue_redis.cli.output import Output, shown
from babelqueue_redis.cli.session import DEFAULT_URL, Session
from babelqueue_redis.errors import BabelQueueError, ConnectionLostError, TransportError

USAGE, NO_REDIS, REFUSED, INTERRUPTED, BROKEN_PIPE, TERMINATED = 2, 3, 4, 130, 141, 143
_VALUES = ("--url", "--layout", "--key-prefix")
_FLAGS = ("--json", "--cluster")


class Layout(str, enum.Enum):
    """How queues are stored."""

    legacy = "legacy"
    zset = "zset"


class Frame(TyperGroup):
    """Takes the global options wherever they stand, and turns errors into exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the global options to the front."""
        return super().parse_args(ctx, _hoisted(args))

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except BabelQueueError as error:
            _fail(ctx, error)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever read has gone. What Python would still flush at its end goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit(BROKEN_PIPE) from None


app = typer.Typer(
    cls=Frame,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Publish, work off and look after BabelQueue queues on Redis.",
    epilog="The options above may stand anywhere: bq-redis stats orders --json. Exit codes: 0 ok, "
    "1 a problem or a negative answer, 2 wrong usage, 3 no Redis, 4 Redis refused.",
)
app.command("publish")(publishing.publish)
app.command("worker")(work.worker)
app.command("stats")(stats.stats)
app.command("peek")(looking.peek)
app.command("tail")(looking.tail)
app.add_typer(dead_letters, name="dlq")
app.command("doctor")(doctor.doctor)
app.add_typer(jobs.jobs, name="jobs")


@app.callback()
def frame(
    ctx: typer.Context,
    *,
    url: Annotated[
        str, typer.Option(help="Of the Redis.", envvar="BABELQUEUE_REDIS_URL")
    ] = DEFAULT_URL,
    layout: Annotated[Layout, typer.Option(help="How the queue is stored.")] = Layout.legacy,
    key_prefix: Annotated[
        str | None,
        typer.Option(
            help="What keys begin with: of the zset layout (queues:), of jobs (absolutejs:queue:).",
            show_default=False,
        ),
    ] = None,
    cluster: Annotated[
        bool, typer.Option("--cluster", help="The URL is of a node of a Redis Cluster.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Results as JSON, for scripts.")] = False,
) -> None:
    """Keep the global options."""
    ctx.obj = Session(url, layout.value, key_prefix, Output(json=json), is_cluster=cluster)


def run() -> None:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a TextIOWrapper
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(prog_name="bq-redis")
    except _Terminated:
        sys.exit(TERMINATED)


class _Terminated(BaseException):
    """SIGTERM came: an exception of its own, so that no module's end is taken for it."""


def _terminate(_number: int, _frame: object) -> NoReturn:
    """End as an exception does, so that what is open is closed."""
    raise _Terminated


def _hoisted(args: list[str]) -> list[str]:
    """Return arguments with the global options in front."""
    front: list[str] = []
    rest: list[str] = []
    left: Iterator[str] = iter(args)
    for word in left:
        if word == "--":
            rest += [word, *left]
        elif word in _FLAGS or word.startswith(tuple(f"{name}=" for name in _VALUES)):
            front.append(word)
        elif word in _VALUES:
            front += [word, *next(([value] for value in left), [])]
        else:
            rest.append(word)
    return [*front, *rest]


def _fail(ctx: Any, error: BabelQueueError) -> NoReturn:
    code = _code(error)
    output = ctx.obj.output if isinstance(ctx.obj, Session) else Output()
    if output.json:
        output.err.file.write(_document(error, code))
    else:
        output.note(f"bq-redis: {shown(str(error))}", "red")
    raise typer.Exit(code) from None


def _document(error: BabelQueueError, code: int) -> str:
    import json  # noqa: PLC0415 - the name is an option's above

    shape = {"error": str(error), "type": type(error).__qualname__, "exit_code": code}
    return json.dumps(shape) + "\n"


def _code(error: BaseException | None) -> int:
    if isinstance(error, ConnectionLostError):
        return NO_REDIS
    if isinstance(error, TransportError):
        return _code(error.__cause__) if isinstance(error.__cause__, TransportError) else REFUSED
    return USAGE
