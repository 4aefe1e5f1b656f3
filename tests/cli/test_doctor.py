from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from babelqueue_redis import RedisConsumer, RedisPublisher
from babelqueue_redis.cli.server_checks import _clock, _version
from babelqueue_redis.cli.telemetry_checks import check_telemetry
from babelqueue_redis.sync.driver import Driver
from tests.cli.conftest import Cli, Start
from tests.support.cluster import cluster_in
from tests.support.marks import both_layouts
from tests.support.server import Client

TOOL = str(Path(sys.executable).with_name("opentelemetry-instrument"))


def by_name(document: Any) -> dict[str, Any]:
    """Return the checks of a report."""
    return {check["name"]: check for check in document["checks"]}


@pytest.fixture
def look(cli: Cli, queue: str) -> Callable[..., dict[str, Any]]:
    """Return what the doctor finds, by name, that of the queue without its name."""

    def ask(*words: str, **options: Any) -> dict[str, Any]:
        document = cli("doctor", queue, "--json", *words, **options).document
        return {name.removeprefix(f"{queue}: "): each for name, each in by_name(document).items()}

    return ask


def status(found: dict[str, Any]) -> str:
    """Return what a check came to."""
    return str(found["status"])


def test_a_healthy_redis_has_no_problem(
    cli: Cli, queue: str, own_server: Callable[..., str]
) -> None:
    """Its report has a fixed shape, and changes nothing."""
    url = own_server("--appendonly", "yes")
    answer = cli("doctor", queue, "--json", url=url)
    document = answer.document
    assert answer.code == 0
    assert (document["url"], document["layout"], document["ok"]) == (url, "legacy", True)
    names = ("version", "commands", "role", "maxmemory", "persistence", "clock")
    found = by_name(document)
    assert {name: status(found[name]) for name in names} == dict.fromkeys(names, "ok")
    assert all(set(check) == {"name", "status", "detail", "fix"} for check in found.values())
    with redis.Redis.from_url(url) as client:
        assert client.dbsize() == 0


def test_people_get_a_line_for_each(cli: Cli, queue: str) -> None:
    """And what to do about it below."""
    answer = cli("doctor", queue)
    assert "version: Redis" in answer.out
    assert "→ CONFIG SET appendonly yes" in answer.out
    assert answer.out.splitlines()[-1].endswith("unknown")


def test_a_redis_that_evicts_is_a_problem(
    cli: Cli, queue: str, own_server: Callable[..., str]
) -> None:
    """Exit code 1."""
    url = own_server("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
    answer = cli("doctor", queue, "--json", url=url)
    assert answer.code == 1
    assert not answer.document["ok"]
    assert status(by_name(answer.document)["maxmemory"]) == "problem"


@pytest.fixture
def limited(own_server: Callable[..., str], queue: str) -> Iterator[tuple[Client, str]]:
    """A server, and the URL of a user of it that is allowed nothing."""
    url = own_server()
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", "bob", "on", ">hunter2", f"~{queue}*", "-@all")
        yield client, url.replace("redis://", "redis://bob:hunter2@")


def test_commands_that_are_denied_are_named(
    limited: tuple[Client, str], look: Callable[..., dict[str, Any]]
) -> None:
    """With what the documentation tells to grant, all is well."""
    client, url = limited
    wide = "+@read +@write +@blocking +@scripting +@connection +time -@dangerous"
    client.execute_command("ACL", "SETUSER", "bob", *wide.split(), "-lmove")
    found = look(url=url)
    assert status(found["commands"]) == "problem"
    assert "LMOVE" in found["commands"]["detail"]
    assert status(found["version"]) == "unknown"
    assert "hunter2" not in json.dumps(found)
    client.execute_command("ACL", "SETUSER", "bob", "+lmove", "+info")
    found = look(url=url)
    assert status(found["commands"]) == status(found["version"]) == "ok"
    client.execute_command("ACL", "SETUSER", "bob", "-blmove")
    assert status(look(url=url)["waiting"]) == "warning"


def test_a_user_that_may_not_look_for_queues_names_them(
    limited: tuple[Client, str], cli: Cli
) -> None:
    """That is no problem of the queues."""
    client, url = limited
    client.execute_command("ACL", "SETUSER", "bob", "+@all", "-scan")
    found = by_name(cli("doctor", "--json", url=url).document)
    assert status(found["queues"]) == "unknown"


def test_a_replica_is_a_problem(
    own_server: Callable[..., str], look: Callable[..., dict[str, Any]]
) -> None:
    """It takes no writes."""
    master, replica = own_server(), own_server()
    with redis.Redis.from_url(replica) as client:
        client.replicaof("127.0.0.1", int(master.rpartition(":")[2].partition("/")[0]))
    assert status(look(url=replica)["role"]) == "problem"


def test_messages_that_no_sweep_brings_back_are_found(
    client: Client, queue: str, look: Callable[..., dict[str, Any]]
) -> None:
    """Reserved without a deadline; equal elements are counted, not told apart."""
    client.rpush(f"{queue}:processing", "a", "a", "b")
    client.zadd(f"{queue}:processing:deadlines", {f"{'0' * 32}:a": 2e9})
    found = look()["reservations"]
    assert (status(found), found["detail"].split()[0]) == ("problem", "2")


def test_deadlines_without_a_message_are_found(
    client: Client, queue: str, look: Callable[..., dict[str, Any]]
) -> None:
    """A warning: sweeps remove them."""
    client.zadd(f"{queue}:processing:deadlines", {f"{'0' * 32}:a": 2e9})
    assert status(look()["reservations"]) == "warning"


@both_layouts
def test_reservations_that_ran_out_are_found(
    redis_url: str, queue: str, layout: str, look: Callable[..., dict[str, Any]]
) -> None:
    """Nobody seems to work."""
    RedisPublisher(redis_url, queue, layout=layout).publish("urn:a", {})
    RedisConsumer(redis_url, queue, layout=layout, retry_after=0).reserve(0)
    found = look("--layout", layout)["reservations"]
    assert status(found) == "problem"
    assert "1 of 1" in found["detail"]


def test_too_many_reservations_are_not_compared(
    client: Client, queue: str, look: Callable[..., dict[str, Any]]
) -> None:
    """It would hold Redis up; it says so."""
    client.rpush(f"{queue}:processing", *range(5001))
    found = look()["reservations"]
    assert status(found) == "ok"
    assert "too many" in found["detail"]


@both_layouts
def test_a_key_of_another_type_is_found(
    client: Client, queue: str, layout: str, look: Callable[..., dict[str, Any]]
) -> None:
    """Named, with what it holds."""
    prefix = "queues:" if layout == "zset" else ""
    client.set(f"{prefix}{queue}", "x")
    found = look("--layout", layout)
    assert "holds a string, not a list" in found["keys"]["detail"]
    assert "reservations" not in found


def test_a_queue_of_the_other_layout_is_found(
    redis_url: str, queue: str, look: Callable[..., dict[str, Any]]
) -> None:
    """Where nothing is, and something would be in the other one."""
    RedisPublisher(redis_url, queue, layout="zset").publish("urn:a", {})
    assert "--layout zset" in look()["layout"]["fix"]
    assert "layout" not in look("--layout", "zset")
    RedisPublisher(redis_url, queue).publish("urn:a", {})
    assert "layout" not in look()


def test_the_side_without_context_is_named(
    client: Client, redis_url: str, queue: str, look: Callable[..., dict[str, Any]]
) -> None:
    """By the language that the producer told; nothing is said of an empty queue."""
    assert status(look()["context"]) == "unknown"
    publisher = RedisPublisher(redis_url, queue)
    publisher.publish("urn:a", {}, headers={"traceparent": "00-1"})
    assert status(look()["context"]) == "ok"
    body = client.lindex(queue, 0)
    publisher.publish("urn:a", {})
    client.rpush(queue, client.lindex(queue, 1).replace(b"python", b"php\\u001b"), b"\xff", body)
    found = look()["context"]
    assert status(found) == "warning"
    assert "php\\x1b 0 of 1, python 2 of 3" in found["detail"]


def test_on_a_cluster_a_queue_needs_a_hash_tag(cli: Cli, tmp_path: Path) -> None:
    """The name says where its keys lie."""
    with cluster_in(tmp_path) as cluster:
        url = f"redis://127.0.0.1:{cluster.nodes[0].port}"
        answer = cli("doctor", "orders", "--json", url=url)
        assert (answer.code, answer.document["checks"][0]["fix"]) == (1, "add --cluster")
        cli("publish", "{orders}", "urn:a", "{}", "--cluster", url=url)
        answer = cli("doctor", "orders", "{orders}", "--json", "--cluster", url=url)
        found = by_name(answer.document)
        assert status(found["orders: cluster"]) == "problem"
        assert status(found["commands"]) == status(found["{orders}: reservations"]) == "ok"
        counted = cli("stats", "{orders}", "--cluster", "--json", url=url).document
        assert counted["queues"][0]["ready"] == 1
        assert cli("stats", "--cluster", url=url).code == 2
        assert cli("stats", "orders", "--cluster", url=url).code == 2
        assert cli("stats", "{q}", "--cluster", url="redis://127.0.0.1:1/0").code == 3


@pytest.mark.parametrize(
    ("text", "found"), [("6.0.20", "problem"), ("6.2.0", "ok"), ("7.4.1", "ok"), ("x", "unknown")]
)
def test_the_oldest_redis_is_6_2(text: str, found: str) -> None:
    """Of others, the version that they say they are like."""
    assert _version({"redis_version": text, "valkey_version": ""}).status == found
    assert "Valkey 8.0" in _version({"redis_version": "7.2", "valkey_version": "8.0"}).detail


@pytest.mark.parametrize(("wrong", "found"), [(0, "ok"), (5, "warning"), (-5, "warning")])
def test_a_clock_that_is_wrong_is_told(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, wrong: float, found: str
) -> None:
    """Ours is set wrong here, for the server's cannot be."""
    import time  # noqa: PLC0415 - to be replaced

    right = time.time
    monkeypatch.setattr("babelqueue_redis.cli.server_checks.time.time", lambda: right() + wrong)
    check = _clock(Driver(redis_url))
    assert check.status == found
    assert wrong == 0 or ("behind" in check.detail) == (wrong > 0)


def test_telemetry_tells_no_secret() -> None:
    """Of variables that may hold one, the name only."""
    environment = {
        "OTEL_SERVICE_NAME": "shop",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=hunter2",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "https://bob:hunter2@collector:4318?key=hunter2",
        "PATH": "hunter2",
    }
    told = {check.name: check for check in check_telemetry(environment)}
    assert "hunter2" not in str(told)
    detail = told["otel variables"].detail
    assert "OTEL_SERVICE_NAME=shop" in detail
    assert "OTEL_EXPORTER_OTLP_HEADERS is set" in detail
    assert "https://bob:***@collector:4318" in detail


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({}, "otel variables"),
        ({"OTEL_SDK_DISABLED": "True"}, "otel switches"),
        ({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "redis, babelqueue_redis"}, "otel switches"),
    ],
)
def test_what_keeps_telemetry_from_working_is_found(environment: dict[str, str], name: str) -> None:
    """A service without a name, and switches."""
    told = {check.name: check.status for check in check_telemetry(environment)}
    assert told[name] == "warning"
    assert told["otel entry point"] == told["otel packages"] == "ok"


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With how to get them."""
    monkeypatch.setattr("babelqueue_redis.cli.telemetry_checks._version", lambda name: "")
    told = {check.name: check for check in check_telemetry({})}
    assert "opentelemetry-sdk" in told["otel packages"].fix
    assert "babelqueue-redis[otel]" in told["otel entry point"].fix


def test_it_knows_whether_the_tool_started_it(start: Start, queue: str) -> None:
    """As a worker would have to be."""
    quiet = {f"OTEL_{each}_EXPORTER": "none" for each in ("TRACES", "METRICS", "LOGS")}
    out, err = start("doctor", queue, "--json", tool=(TOOL,), **quiet).communicate(timeout=60)
    assert "was started by" in by_name(json.loads(out))["otel process"]["detail"], err
    out, err = start("doctor", queue, "--json").communicate(timeout=60)
    assert "was not started by" in by_name(json.loads(out))["otel process"]["detail"], err
