"""Through a real ``opentelemetry-instrument``, with programs that know nothing of tracing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from babelqueue_redis.verdict import accepts
from kit.otlp import Receiver, Span, environment, receiver
from tests.support.server import Client
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


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(redis_url: str, queue: str, received: Receiver) -> Iterator[Start]:
    """Start programs under the tool, and end them."""
    started: list[subprocess.Popen[str]] = []

    def make(program: str, *flags: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(TOOL), *flags, sys.executable, "-c", program, redis_url, queue],
            env={**os.environ, **environment(received.endpoint, "service"), **env},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate()


def by_name(spans: list[Span]) -> list[str]:
    """Return what was received."""
    return sorted(span.name.split()[0] for span in spans)


def test_a_trace_crosses_the_queue_between_two_processes(start: Start, received: Receiver) -> None:
    """A publish keeps its Redis span; the worker's own traffic makes none."""
    start(PRODUCER).communicate(timeout=60)
    worker = start(WORKER)
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


def test_an_idle_worker_exports_nothing(start: Start, client: Client, received: Receiver) -> None:
    """Polling, sweeping and waiting are nobody's business."""

    def waits() -> int:
        stats = client.info("commandstats").get("cmdstat_blmove", {"calls": 0})
        return int(stats["calls"])

    before = waits()
    worker = start(WORKER)
    eventually(lambda: waits() >= before + 10)  # of a second each
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
    start: Start,
    redis_url: str,
    client: Client,
    queue: str,
    received: Receiver,
    env: dict[str, str],
) -> None:
    """Byte for byte what it would be without the tool, but for ids and the time."""
    start(PRODUCER, **env).communicate(timeout=60)
    subprocess.run([sys.executable, "-c", PRODUCER, redis_url, queue], check=True, timeout=60)
    stored = [re.sub(rb"[0-9a-f-]{36}|\d{13}", b"x", raw) for raw in client.lrange(queue, 0, -1)]
    assert stored == [stored[0]] * 2
    assert accepts(client.lindex(queue, 0))
    assert received.spans == []


def test_flags_set_options_and_the_workers_traffic_can_be_shown(
    start: Start, received: Receiver
) -> None:
    """``--babelqueue_mode link``: a trace of its own, with a link."""
    start(PRODUCER).communicate(timeout=60)
    flags = ("mode", "link"), ("redis_spans", "true"), ("settle_spans", "true")
    worker = start(
        WORKER, *(word for name, value in flags for word in (f"--babelqueue_{name}", value))
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    assert worker.stdout.readline() == "handled\n"
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=60)
    found = {span.name.split()[0]: span for span in received.spans}
    assert {"RPUSH", "publish", "process", "ack", "EVALSHA"} <= set(found)
    assert found["process"].trace_id != found["publish"].trace_id
    assert found["process"].links == (found["publish"].span_id,)
    assert found["ack"].parent_id == found["process"].span_id


FORKING = """
import multiprocessing, sys
from babelqueue_redis import RedisConsumer, RedisPublisher
url, queue = sys.argv[1:]

def work():
    RedisPublisher(url, queue).publish("urn:b", {})
    turns = iter([True, True, False])
    handlers = {"urn:a": lambda envelope: None, "urn:b": lambda envelope: None}
    RedisConsumer(url, queue, handlers).run(lambda: next(turns))

RedisPublisher(url, queue).publish("urn:a", {})
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
"""


def test_the_spans_of_a_forked_worker_arrive(start: Start, received: Receiver) -> None:
    """It ends without the interpreter's own farewell: its run hands them over."""
    program = start(FORKING)
    program.communicate(timeout=60)
    assert program.returncode == 0
    names = [name for name in by_name(received.spans) if name != "RPUSH"]
    assert names == ["process", "process", "publish", "publish"]
    ours = [span for span in received.spans if span.name.split()[0] in ("process", "publish")]
    by_id = {span.span_id: span for span in ours}
    for span in ours:
        is_taken = span.kind == "CONSUMER"
        assert (span.parent_id in by_id) is is_taken
        assert not is_taken or by_id[span.parent_id].kind == "PRODUCER"


SDK_PRODUCER = """
import sys
from babelqueue import BabelQueue
BabelQueue(sys.argv[1], queue=sys.argv[2]).publish("urn:a", {})
"""

SDK_WORKER = """
import sys
from babelqueue import BabelQueue
app = BabelQueue(sys.argv[1], queue=sys.argv[2])
app.register("urn:a", lambda data, meta: print("handled", flush=True))
app.run(max_messages=1, timeout=10)
"""


def test_programs_of_the_sdk_are_traced_without_a_change(start: Start, received: Receiver) -> None:
    """By installing this package."""
    start(SDK_PRODUCER).communicate(timeout=60)
    assert start(SDK_WORKER).communicate(timeout=60)[0] == "handled\n"
    scope = "opentelemetry.instrumentation.babelqueue"
    found = {span.name.split()[0]: span for span in received.spans if span.scope == scope}
    assert set(found) == {"publish", "process"}
    assert found["process"].parent_id == found["publish"].span_id


def test_the_sdk_alone_can_be_switched_off(
    start: Start, client: Client, queue: str, received: Receiver
) -> None:
    """By the name of its entry point."""
    env = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "babelqueue,redis"}
    start(SDK_PRODUCER, **env).communicate(timeout=60)
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
