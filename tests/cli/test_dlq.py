from __future__ import annotations

import json
import signal

import pytest

from babelqueue_redis import RedisConsumer, RedisPublisher
from tests.cli.conftest import Cli, Start
from tests.support.handlers import fail
from tests.support.marks import both_layouts
from tests.support.server import Client
from tests.support.waiting import eventually

ALL = ["urn:a", "urn:b", "urn:a"]


@pytest.fixture
def ids(redis_url: str, queue: str, layout: str) -> list[str]:
    """The ids of three dead letters."""
    publisher = RedisPublisher(redis_url, queue, layout=layout)
    sent = publisher.publish_many([(urn, {}) for urn in ALL])
    consumer = RedisConsumer(
        redis_url, queue, {"urn:a": fail, "urn:b": fail}, layout=layout, max_tries=1
    )
    for _ in sent:
        consumer.poll(0)
    return sent


@both_layouts
def test_dead_letters_are_listed_and_shown(
    cli: Cli, queue: str, ids: list[str], layout: str
) -> None:
    """By the queue's name or their own; one by the beginning of its id."""
    for name in (queue, f"{queue}.dlq"):
        answer = cli("dlq", "list", name, "-n", "2", "--json", "--layout", layout)
        listed = answer.document
        assert (listed["queue"], listed["total"]) == (queue, 3)
        assert [each["id"] for each in listed["messages"]] == ids[:2]
    assert "2 of 3" in answer.err
    shown = cli("dlq", "show", queue, ids[1][:20], "--json", "--layout", layout).document
    assert shown["id"] == ids[1]
    assert shown["dead_letter"]["exception"] == "ValueError"
    assert "ValueError: boom" in cli("dlq", "show", queue, ids[1], "--layout", layout).out


def test_one_that_is_not_there_is_exit_code_1(cli: Cli, queue: str, ids: list[str]) -> None:
    """A negative answer."""
    answer = cli("dlq", "show", queue, "nope\x1b")
    assert answer.code == 1
    assert "nope\\x1b" in answer.err


@both_layouts
def test_a_redrive_moves_what_was_asked_for(
    cli: Cli, queue: str, ids: list[str], layout: str
) -> None:
    """A dry run tells the same and moves nothing."""
    words = ("dlq", "redrive", queue, "--urn", "urn:a", "--json", "--layout", layout)
    moved = [{"id": each, "urn": "urn:a", "queue": queue} for each in (ids[0], ids[2])]
    wanted = {"queue": queue, "moved": moved, "left": {"not selected": 1}}
    assert cli(*words, "--dry-run").document == {**wanted, "dry_run": True}
    assert cli(*words).document == {**wanted, "dry_run": False}
    counts = cli("stats", queue, "--json", "--layout", layout).document["queues"][0]
    assert (counts["ready"], counts["dead"]) == (2, 1)


def test_a_redrive_is_told_to_people(cli: Cli, queue: str, ids: list[str]) -> None:
    """How many, and in a dry run which."""
    assert f"{ids[0]}  urn:a  → {queue}" in cli("dlq", "redrive", queue, "--dry-run").out
    assert cli("dlq", "redrive", queue, "--limit", "1").out == "moved 1\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_a_redrive_that_is_interrupted_loses_nothing(
    start: Start, cli: Cli, client: Client, queue: str, number: int
) -> None:
    """It tells how far it was; each message is in one place, and the next one goes on."""
    template = '{"job":"urn:a","trace_id":"t","data":{},"meta":{"id":"%d","queue":"%s"},'
    block = '"attempts":1,"dead_letter":{"reason":"failed","original_queue":"%s"}}'
    letters = [template % (n, queue) + block % queue for n in range(30_000)]
    client.rpush(f"{queue}.dlq", *letters)
    process = start("dlq", "redrive", queue)
    eventually(lambda: client.llen(queue) > 100)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert b"before that" in err
    assert client.llen(queue) + client.llen(f"{queue}.dlq") == len(letters)
    cli("dlq", "redrive", queue)
    moved = [json.loads(each)["meta"]["id"] for each in client.lrange(queue, 0, -1)]
    assert moved == [str(n) for n in range(30_000)]


def test_a_purge_wants_a_yes(cli: Cli, queue: str, ids: list[str]) -> None:
    """Where nobody can answer, it has to be an option."""
    refused = cli("dlq", "purge", queue)
    assert refused.code == 2
    assert "Remove 3 dead letters" in refused.err
    assert cli("dlq", "list", queue, "--json").document["total"] == 3
    assert cli("dlq", "purge", queue, "--yes", "--json").document == {"queue": queue, "purged": 3}
    assert cli("dlq", "list", queue, "--json").document["total"] == 0


def test_dead_letters_may_have_a_queue_of_any_name(cli: Cli, redis_url: str, queue: str) -> None:
    """It is named with an option, and purged by that name."""
    name = f"{queue}.dlq"
    RedisPublisher(redis_url, name).publish("urn:a", {})
    words = (f"{queue}.other", "--dead-letter-queue", name)
    assert cli("dlq", "list", *words, "--json").document["total"] == 1
    assert cli("dlq", "purge", *words, "--yes", "--json").document["purged"] == 1
