"""Through a real ``opentelemetry-instrument``, with programs that know nothing of tracing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from babelqueue_redis.envelope import accepts
from kit.otlp import Receiver, Span, environment, receiver
from tests.support.redis_types import Client
from tests.support.waiting import eventually

TOOL = Path(sys.executable).with_name("opentelemetry-instrument")

PRODUCER = """
import sys
from babelqueue_redis import RedisPublisher
RedisPublisher(sys.argv[1], sys.argv[2]).publish("urn:a", {})
"""

WORKER = """
import sys
from babelqueue_redis import RedisConsumer
handlers = {"urn:a": lambda envelope: print("handled", flush=True)}
consumer = RedisConsumer(sys.argv[1], sys.argv[2], handlers)
print("ready", flush=True)
consumer.run()
"""


@pytest.fixture
def received() -> Iterator[Receiver]:
    """An OTLP receiver."""
    with receiver() as started:
        yield started


def start(
    program: str, url: str, queue: str, received: Receiver, **env: str
) -> subprocess.Popen[str]:
    """Run a program under the tool."""
    return subprocess.Popen(
        [str(TOOL), sys.executable, "-c", program, url, queue],
        env={**os.environ, **environment(received.endpoint, "service"), **env},
        stdout=subprocess.PIPE,
        text=True,
    )


def by_name(spans: list[Span]) -> list[str]:
    """Return what was received."""
    return sorted(span.name.split()[0] for span in spans)


def test_a_trace_crosses_the_queue_between_two_processes(
    redis_url: str, queue: str, received: Receiver
) -> None:
    """A publish keeps its Redis span; the worker's own traffic makes none."""
    start(PRODUCER, redis_url, queue, received).communicate(timeout=60)
    worker = start(WORKER, redis_url, queue, received)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    assert worker.stdout.readline() == "handled\n"
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    spans = received.spans
    assert by_name(spans) == ["RPUSH", "process", "publish"]
    found = {span.name.split()[0]: span for span in spans}
    assert found["process"].parent_id == found["publish"].span_id
    assert found["process"].links == (found["publish"].span_id,)
    assert found["RPUSH"].parent_id == found["publish"].span_id
    assert len({span.trace_id for span in spans}) == 1


def test_an_idle_worker_exports_nothing(
    redis_url: str, client: Client, queue: str, received: Receiver
) -> None:
    """Polling, sweeping and waiting are nobody's business."""
    blocked = client.info("clients")["blocked_clients"]
    worker = start(WORKER, redis_url, queue, received)
    eventually(lambda: client.info("clients")["blocked_clients"] > blocked)
    calls = client.info("stats")["total_commands_processed"]
    eventually(lambda: client.info("stats")["total_commands_processed"] > calls + 20)
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    assert received.spans == []


@pytest.mark.parametrize(
    "env",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "babelqueue_redis,redis"},
    ],
    ids=str,
)
def test_switched_off_it_stores_a_bare_envelope(
    redis_url: str, client: Client, queue: str, received: Receiver, env: dict[str, str]
) -> None:
    """Byte for byte what it would be without the tool."""
    start(PRODUCER, redis_url, queue, received, **env).communicate(timeout=60)
    assert accepts(client.lindex(queue, 0))
    assert received.spans == []


def test_without_the_tool_nothing_is_traced(redis_url: str, client: Client, queue: str) -> None:
    """The transport alone does not load the instrumentation."""
    code = (
        "import sys\n"
        + PRODUCER
        + ("\nassert 'opentelemetry.instrumentation.babelqueue' not in sys.modules")
    )
    subprocess.run([sys.executable, "-c", code, redis_url, queue], check=True, timeout=60)
    assert accepts(client.lindex(queue, 0))
