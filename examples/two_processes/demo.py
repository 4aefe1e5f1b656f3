"""Run producer and worker in two processes, and show the traces they leave.

Neither program has tracing code: ``opentelemetry-instrument`` loads the instrumentation. Exits
with 1 when the traces are not what they must be.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import redis
from rich.console import Console

from kit.otlp import Receiver, Span, environment, receiver
from kit.redis_server import redis_url
from kit.tree import trace_trees

HERE = Path(__file__).parent
SCOPE = "opentelemetry.instrumentation.babelqueue"


def main() -> int:
    """Run the demo."""
    console = Console()
    queue = f"orders-{uuid.uuid4().hex[:8]}"
    with redis_url(allow_fake=True) as url, receiver() as received:
        console.print(f"Redis: {url}\nqueue: {queue}\n")
        spans = run(url, queue, received)
        client = redis.Redis.from_url(url)
        dead = client.llen(f"{queue}.dlq")
        client.delete(f"{queue}.dlq")
    for tree in trace_trees(spans):
        console.print(tree)
        console.print()
    console.print(f"dead letters: {dead}")
    faults = check(spans, dead)
    for fault in faults:
        console.print(f"wrong: {fault}", style="bold red")
    return 1 if faults else 0


def run(url: str, queue: str, received: Receiver) -> list[Span]:
    """Start both programs, wait for their spans, and end the worker as an operator would."""
    worker = start("worker", url, queue, received)
    try:
        start("producer", url, queue, received).wait(timeout=60)
        received.wait_for(lambda spans: len(ours(spans)) >= len(SHAPES))
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=60)
    return received.spans


def start(program: str, url: str, queue: str, received: Receiver) -> subprocess.Popen[bytes]:
    """Start one of the programs under ``opentelemetry-instrument``."""
    tool = Path(sys.executable).with_name("opentelemetry-instrument")
    return subprocess.Popen(
        [str(tool), sys.executable, str(HERE / f"{program}.py")],
        env={
            **os.environ,
            **environment(received.endpoint, program),
            "BABELQUEUE_REDIS_URL": url,
            "QUEUE": queue,
        },
    )


def ours(spans: list[Span]) -> list[Span]:
    """Leave out what other instrumentations add, such as redis-py's."""
    return [span for span in spans if span.scope.startswith(SCOPE)]


def check(spans: list[Span], dead: int) -> list[str]:
    """Return what is wrong with the traces; nothing is the expected answer."""
    by_id = {span.span_id: span for span in spans}
    faults = []
    for span in ours(spans):
        if span.kind == "CONSUMER" and span.parent_id not in by_id:
            faults.append(f"{span.name} {span.span_id} is no child of a span that was received")
        if span.kind == "CONSUMER" and span.parent_id not in span.links:
            faults.append(f"{span.name} {span.span_id} has no link to its creation context")
    found = sorted(_shape(span, by_id) for span in ours(spans))
    if found != sorted(SHAPES):
        faults.append(f"the spans are {found}, not {sorted(SHAPES)}")
    if dead != 1:
        faults.append(f"{dead} messages are in the dead-letter queue, not 1")
    return faults


def _shape(span: Span, by_id: dict[str, Span]) -> tuple[str, ...]:
    """Return services and operations from the root down to the span, and how it ended."""
    path = []
    at: Span | None = span
    while at is not None:
        path.append(f"{at.service} {at.name.split()[0]}")
        at = by_id.get(at.parent_id)
    return (*reversed(path), str(span.attributes.get("messaging.babelqueue.outcome", "")))


_SENT, _TAKEN = "producer publish", "worker process"
SHAPES = [
    (_SENT, ""),
    (_SENT, ""),
    (_SENT, _TAKEN, "acked"),
    (_SENT, _TAKEN, "worker publish", ""),
    (_SENT, _TAKEN, "worker publish", _TAKEN, "acked"),
    (_SENT, _TAKEN, "retried"),
    (_SENT, _TAKEN, "dead_lettered"),
]

if __name__ == "__main__":
    sys.exit(main())
