from __future__ import annotations

import json
from pathlib import Path

import pytest

from babelqueue_redis import RedisQueue
from tests.cli.conftest import Cli


def datas(redis_url: str, queue: str) -> list[object]:
    """Return the data of what stands in the queue."""
    with RedisQueue(redis_url, queue) as opened:
        return [each.envelope.data if each.envelope else None for each in opened.peek(1000)]


def test_a_message_comes_from_the_argument_stdin_or_a_file(
    cli: Cli, redis_url: str, queue: str, tmp_path: Path
) -> None:
    """What is printed is its id."""
    file = tmp_path / "data.json"
    file.write_text('{"n": 3}')
    first = cli("publish", queue, "urn:a", '{"n": 1}')
    cli("publish", queue, "urn:a", "-", input='{"n": 2}')
    cli("publish", queue, "urn:a", "--file", str(file))
    assert datas(redis_url, queue) == [{"n": 1}, {"n": 2}, {"n": 3}]
    with RedisQueue(redis_url, queue) as opened:
        assert first.out.strip() == opened.peek()[0].message_id


def test_headers_and_a_trace_id_ride_along(cli: Cli, redis_url: str, queue: str) -> None:
    """A value may hold an equals sign."""
    trace_id = "7b1f2a54-51a1-4b0e-8d0b-0a4f7f5d9b11"
    cli(
        "publish",
        queue,
        "urn:a",
        "{}",
        "--header",
        "k=v=w",
        "--header",
        "l=m",
        "--trace-id",
        trace_id,
    )
    with RedisQueue(redis_url, queue) as opened:
        (message,) = opened.peek()
    assert dict(message.headers) == {"k": "v=w", "l": "m"}
    assert message.envelope is not None
    assert message.envelope.trace_id == trace_id


def test_a_delay_needs_the_zset_layout(cli: Cli, client: object, queue: str) -> None:
    """As the library says."""
    assert cli("publish", queue, "urn:a", "{}", "--delay", "60").code == 2
    answer = cli("publish", queue, "urn:a", "{}", "--delay", "60", "--layout", "zset", "--json")
    assert answer.code == 0
    assert cli("stats", queue, "--layout", "zset", "--json").document["queues"][0]["delayed"] == 1


def test_lines_are_published_in_batches(
    cli: Cli, redis_url: str, queue: str, tmp_path: Path
) -> None:
    """In their order; blank ones are passed over."""
    lines = [json.dumps({"n": n}) for n in range(2500)]
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join([*lines[:10], "", *lines[10:]]))
    answer = cli("publish", queue, "urn:a", "--many", "--file", str(file), "--json")
    assert answer.document == {"queue": queue, "published": 2500}
    with RedisQueue(redis_url, queue) as opened:
        assert opened.counts().ready == 2500
        (last,) = opened.peek(1, start=-1)
    assert last.envelope is not None
    assert last.envelope.data == {"n": 2499}


def test_a_line_that_is_no_json_tells_how_many_were_published(
    cli: Cli, redis_url: str, queue: str
) -> None:
    """Whole batches only: none of the one it stands in."""
    text = '{"n": 1}\n' * 1000 + '{"n": 2}\nnot json\n'
    answer = cli("publish", queue, "urn:a", "--many", input=text)
    assert answer.code == 2
    assert "line 1002 is no JSON" in answer.err
    assert "1000 messages were published before that" in answer.err
    with RedisQueue(redis_url, queue) as opened:
        assert opened.counts().ready == 1000


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("[1]",),
        ("{",),
        ("\udcff",),
        ("[" * 100_000,),
        ("{}", "--header", "nothing"),
        ("{}", "--file", "x"),
        ("--file", "/nowhere/x"),
        ("{}", "--trace-id", "\ud800"),
    ],
    ids=lambda words: " ".join(words)[:20].encode("ascii", "replace").decode(),
)
def test_bad_input_is_exit_code_2_and_publishes_nothing(
    cli: Cli, redis_url: str, queue: str, words: tuple[str, ...]
) -> None:
    """One line says why."""
    answer = cli("publish", queue, "urn:a", *words)
    assert answer.code == 2
    assert answer.err.startswith("bq-redis: ")
    assert datas(redis_url, queue) == []


def test_a_number_keeps_its_value(cli: Cli, client: object, queue: str) -> None:
    """Beyond what a float can hold."""
    cli("publish", queue, "urn:a", '{"n": 123456789012345678901234567890}')
    assert b'{"n":123456789012345678901234567890}' in client.lindex(queue, 0)  # type: ignore[attr-defined]  # see Client
