"""``bq-redis publish``."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from babelqueue_redis.cli.output import Output
from babelqueue_redis.cli.session import Session
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.sync.publisher import RedisPublisher

_BATCH = 1000
_BATCH_BYTES = 1 << 22
"""A batch ends at either."""


def publish(
    ctx: typer.Context,
    queue: Annotated[str, typer.Argument(metavar="QUEUE")],
    urn: Annotated[str, typer.Argument(metavar="URN")],
    data: Annotated[
        str | None, typer.Argument(help="A JSON object; - reads it.", metavar="DATA|-")
    ] = None,
    *,
    file: Annotated[Path | None, typer.Option(help="Where the data is.", metavar="PATH")] = None,
    many: Annotated[
        bool, typer.Option("--many", help="A message per line of the file, or of stdin.")
    ] = False,
    header: Annotated[
        list[str] | None, typer.Option(help="Rides beside it; again for more.", metavar="K=V")
    ] = None,
    trace_id: Annotated[str | None, typer.Option(help="The id of its causal chain.")] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds; zset layout only.")] = None,
) -> None:
    """Publish a message, or one per line of JSON."""
    session: Session = ctx.obj
    if data is None and file is None and not many:
        msg = "there is no data: give a JSON object, - to read it from stdin, or --file PATH"
        raise ConfigurationError(msg)
    options: dict[str, Any] = {"headers": _headers(header), "trace_id": trace_id, "delay": delay}
    with session.publisher(queue) as publisher, _source(data, file) as source:
        if many:
            count = _publish_lines(session.output, publisher, urn, source, options)
            shape = {"queue": queue, "published": count}
            session.output.result(shape, f"published {count} messages to {queue}")
        else:
            sent = publisher.publish(urn, _object(source.read(), "the data"), **options)
            session.output.result({"queue": queue, "published": 1, "ids": [sent]}, sent)


@contextlib.contextmanager
def _source(data: str | None, file: Path | None) -> Iterator[BinaryIO]:
    """Open what is to be read."""
    if data not in (None, "-"):
        if file is not None:
            msg = "give either data or --file"
            raise ConfigurationError(msg)
        yield io.BytesIO(str(data).encode("utf-8", "surrogateescape"))
    elif file is None or str(file) == "-":
        yield sys.stdin.buffer
    else:
        try:
            opened = file.open("rb")
        except OSError as error:
            msg = f"--file cannot be read: {error}"
            raise ConfigurationError(msg) from error
        with opened:
            yield opened


def _publish_lines(
    output: Output,
    publisher: RedisPublisher,
    urn: str,
    source: Iterable[bytes],
    options: dict[str, Any],
) -> int:
    done = 0
    try:
        with output.progress("publishing", None) as tell:
            for batch in _batches(source):
                publisher.publish_many([(urn, data) for data in batch], **options)
                done += len(batch)
                tell(done)
    except BaseException:
        output.note(f"{done} messages were published before that")
        raise
    return done


def _batches(source: Iterable[bytes]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    size = 0
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        batch.append(_object(line, f"line {number}"))
        size += len(line)
        if len(batch) == _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{what} is no JSON: {error}"
        raise ConfigurationError(msg) from error
    if not isinstance(value, dict):
        msg = f"{what} is no JSON object, but a {type(value).__name__}"
        raise ConfigurationError(msg)
    return value


def _headers(words: list[str] | None) -> dict[str, str]:
    headers = {}
    for word in words or ():
        name, is_pair, value = word.partition("=")
        if not is_pair or not name:
            msg = "--header wants name=value"
            raise ConfigurationError(msg)
        headers[name] = value
    return headers
