"""Run a producer and a worker of jobs in two processes, and show the traces they leave.

Neither program has tracing code. Exits with 1 when the traces are not what they must be.
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
    prefix = f"jobs-{uuid.uuid4().hex[:8]}:"
    with redis_url() as url, receiver() as received:
        spans = run(url, prefix, received)
        client = redis.Redis.from_url(url)
        dead = client.zcard(f"{prefix}finished:dead")
        client.delete(*client.scan_iter(match=f"{prefix}*", count=1000))
    for tree in trace_trees(spans):
        console.print(tree, soft_wrap=True)
        console.print()
    console.print(f"dead jobs: {dead}")
    faults = check(spans)
    for fault in faults:
        console.print(f"wrong: {fault}", style="bold red")
    return 1 if faults or dead != 1 else 0


def run(url: str, prefix: str, received: Receiver) -> list[Span]:
    """Start both programs, wait for their spans, and end the worker as an operator would."""
    worker = start("worker", url, prefix, received)
    try:
        if start("producer", url, prefix, received).wait(timeout=60) == 0:
            received.wait_for(lambda spans: len(ours(spans)) >= len(PATHS))
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(timeout=60)
    return received.spans


def start(program: str, url: str, prefix: str, received: Receiver) -> subprocess.Popen[bytes]:
    """Start one of the programs under ``opentelemetry-instrument``."""
    tool = Path(sys.executable).with_name("opentelemetry-instrument")
    return subprocess.Popen(
        [str(tool), sys.executable, str(HERE / f"{program}.py")],
        env={
            **os.environ,
            **environment(received.endpoint, program),
            "BABELQUEUE_REDIS_URL": url,
            "PREFIX": prefix,
        },
    )


def ours(spans: list[Span]) -> list[Span]:
    """Leave out what other instrumentations add, such as redis-py's."""
    return [span for span in spans if span.scope.startswith(SCOPE)]


def check(spans: list[Span]) -> list[str]:
    """Return what is wrong with the traces; nothing is the expected answer."""
    by_id = {span.span_id: span for span in spans}
    faults = [
        f"{span.name} has no link to the span that enqueued its job"
        for span in ours(spans)
        if span.kind == "CONSUMER" and span.parent_id not in span.links
    ]
    found = sorted(path_to(span, by_id) for span in ours(spans))
    if found != sorted(PATHS):
        faults.append(f"the spans are {found}, not {sorted(PATHS)}")
    return faults


def path_to(span: Span, by_id: dict[str, Span]) -> tuple[str, ...]:
    """Return services and operations from the root down to the span, and how it ended."""
    path = []
    at: Span | None = span
    while at is not None:
        path.append(f"{at.service} {at.name}")
        at = by_id.get(at.parent_id)
    return (*reversed(path), str(span.attributes.get("messaging.babelqueue.outcome", "")))


_PHOTO = ("producer enqueue thumbnail.make", "worker process thumbnail.make")
_MAIL = (*_PHOTO, "worker enqueue mail.send")
_HOPELESS = "producer enqueue mail.send"
_SENDING = "worker process mail.send"
PATHS = [
    (_PHOTO[0], ""),
    (*_PHOTO, "acked"),
    (*_MAIL, ""),
    (*_MAIL, _SENDING, "retried"),
    (*_MAIL, _SENDING, "acked"),
    (_HOPELESS, ""),
    (_HOPELESS, _SENDING, "retried"),
    (_HOPELESS, _SENDING, "dead_lettered"),
]

if __name__ == "__main__":
    sys.exit(main())
