"""``stats``, ``peek`` and ``tail``."""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from babelqueue_redis import RedisConsumer, RedisPublisher
from babelqueue_redis.layouts.discovery import find_queues
from babelqueue_redis.sync.driver import Driver
from tests.cli.conftest import Cli, Start
from tests.support.marks import both_layouts
from tests.support.server import Client

HOSTILE = (
    b'{"job":"urn:\\u001b[31m\\u202e","trace_id":"t","data":{"x":"\\u0007"},'
    b'"meta":{"id":"i"},"attempts":0}'
)


@both_layouts
def test_stats_count_what_stands_where(
    cli: Cli, redis_url: str, publisher: RedisPublisher, queue: str, layout: str
) -> None:
    """As a table and as JSON."""
    for count in (1000, 234):
        publisher.publish_many([("urn:a", {})] * count)
    RedisConsumer(redis_url, queue, layout=layout).reserve(0)
    counted = {"ready": 1233, "delayed": 0, "reserved": 1, "overdue": 0, "dead": 0}
    answer = cli("stats", queue, "--layout", layout, "--json")
    assert answer.document == {"queues": [{"queue": queue, "layout": layout, **counted}]}
    assert "1,233" in cli("stats", queue, "--layout", layout).out


@both_layouts
def test_queues_are_found_by_what_they_hold(
    redis_url: str, publisher: RedisPublisher, client: Client, queue: str, layout: str
) -> None:
    """A list of other things is none; one whose messages are all reserved is."""
    publisher.publish("urn:a", {})
    prefix = "queues:" if layout == "zset" else ""
    driver = Driver(redis_url)
    assert queue in driver.run(find_queues(layout, "queues:"))
    RedisConsumer(redis_url, queue, layout=layout).reserve(0)
    client.delete(f"{prefix}{queue}")
    found = driver.run(find_queues(layout, "queues:"))
    assert queue in found
    other = {"legacy": "zset", "zset": "legacy"}[layout]
    assert not any(queue in name for name in driver.run(find_queues(other, "queues:")))
    client.delete(*client.scan_iter(match=f"*{queue}*"))
    client.rpush(f"{prefix}{queue}", "no envelope")
    assert queue not in driver.run(find_queues(layout, "queues:"))


def test_a_database_without_queues_is_no_error(cli: Cli, private_client: Client) -> None:
    """Nor is one with other things in it."""
    private_client.set("a", "b")
    private_client.rpush(b"\xff", "c")
    kwargs = private_client.connection_pool.connection_kwargs
    url = f"redis://127.0.0.1:{kwargs['port']}/0"
    assert cli("stats", "--json", url=url).document == {"queues": []}
    assert "no queue" in cli("stats", url=url).err


def test_a_message_is_shown_with_all_it_carries(cli: Cli, redis_url: str, queue: str) -> None:
    """Its JSON has a fixed shape."""
    publisher = RedisPublisher(redis_url, queue)
    sent = publisher.publish("urn:a", {"n": 1}, headers={"traceparent": "00-1"})
    answer = cli("peek", queue, "--json").document
    assert (answer["queue"], answer["state"]) == (queue, "ready")
    (message,) = answer["messages"]
    body = json.loads(message["body"])
    assert message == {
        "state": "ready",
        "id": sent,
        "urn": "urn:a",
        "trace_id": body["trace_id"],
        "attempts": 0,
        "created_at": body["meta"]["created_at"],
        "lang": "python",
        "headers": {"traceparent": "00-1"},
        "data": {"n": 1},
        "poison": None,
        "dead_letter": None,
        "body": message["body"],
        "body_encoding": "utf-8",
        "bytes": message["bytes"],
    }
    shown = cli("peek", queue).out
    assert sent in shown
    assert "traceparent: 00-1" in shown
    assert '{"n":1}' in shown


@pytest.mark.parametrize("stored", [b"\xff\xfe\x1b]0;owned\x07", HOSTILE, b"", b"[1]"], ids=repr)
def test_hostile_bytes_are_shown_escaped(
    cli: Cli, client: Client, queue: str, stored: bytes
) -> None:
    """And are told whole in JSON."""
    client.rpush(queue, stored)
    answer = cli("peek", queue)
    assert answer.code == 0
    assert all(each.isprintable() or each == "\n" for each in answer.out)
    assert cli("peek", queue, "--json").document["messages"][0]["bytes"] == len(stored)


def test_markup_is_no_markup(cli: Cli, queue: str) -> None:
    """What looks like rich's is what was sent."""
    cli("publish", queue, "urn:[red]a[/red]", '{"x": "[bold]:smile:"}')
    shown = cli("peek", queue).out
    assert "urn:[red]a[/red]" in shown
    assert "[bold]:smile:" in shown


def test_a_huge_body_is_cut_unless_wanted(cli: Cli, queue: str) -> None:
    """It says how large it is."""
    cli("publish", queue, "urn:a", "-", input=json.dumps({"text": "x" * 3_000_000}))
    assert "3000011 in all" in cli("peek", queue).out
    assert len(cli("peek", queue, "--full").out) > 3_000_000


def test_peek_says_that_there_is_nothing(cli: Cli, queue: str) -> None:
    """An empty queue is no error."""
    answer = cli("peek", queue, "--state", "dead")
    assert (answer.code, answer.out, answer.err) == (0, "", "no messages\n")


class Lines:
    """What a process writes, line by line, as it comes."""

    def __init__(self, stream: Any) -> None:
        self._lines: Queue[bytes] = Queue()
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self._lines.put(line)

    def next(self) -> bytes:
        """Wait for one."""
        return self._lines.get(timeout=60)


@both_layouts
def test_tail_follows_what_is_new_and_takes_nothing(
    start: Start, publisher: RedisPublisher, cli: Cli, queue: str, layout: str
) -> None:
    """One JSON line for each, each once; Ctrl-C is its end, and no failure."""
    old = publisher.publish("urn:old", {})
    process = start("tail", queue, "-n", "1", "--json", "--layout", layout)
    lines = Lines(process.stdout)
    assert json.loads(lines.next())["id"] == old
    new = [publisher.publish("urn:new", {"n": n}) for n in range(3)]
    assert [json.loads(lines.next())["id"] for _ in new] == new
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert cli("stats", queue, "--json", "--layout", layout).document["queues"][0]["ready"] == 4


def test_tail_shows_more_than_one_look_reads_first(
    start: Start, redis_url: str, queue: str
) -> None:
    """Many messages at once are all shown."""
    publisher = RedisPublisher(redis_url, queue)
    publisher.publish("urn:old", {})
    process = start("tail", queue, "-n", "1", "--json")
    lines = Lines(process.stdout)
    lines.next()
    sent = publisher.publish_many([("urn:new", {})] * 400)
    assert [json.loads(lines.next())["id"] for _ in sent] == sent


def test_stats_can_be_watched(start: Start, redis_url: str, queue: str) -> None:
    """One JSON line for each look; Ctrl-C is its end."""
    publisher = RedisPublisher(redis_url, queue)
    process = start("stats", queue, "--watch", "--interval", "0.1", "--json")
    lines = Lines(process.stdout)
    assert json.loads(lines.next())["queues"][0]["ready"] == 0
    publisher.publish("urn:a", {})
    while json.loads(lines.next())["queues"][0]["ready"] == 0:
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


def test_the_folder_of_the_module_is_not_needed_to_look(
    start: Start, queue: str, tmp_path: Path
) -> None:
    """A module called like one of ours in the working folder changes nothing."""
    (tmp_path / "rich.py").write_text("raise RuntimeError('not me')")
    _, err = start("stats", queue, PYTHONSAFEPATH="1").communicate(timeout=60)
    assert err == b""
