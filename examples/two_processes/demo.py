"""Run producer and worker in two processes, and show the traces they leave.

Neither program has tracing code: ``opentelemetry-instrument`` loads the instrumentation. Exits
with 1 when the traces are not what they must be.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import redis

from kit.otlp import Receiver, Span, receiver
from kit.programs import instrumented, running, show
from kit.redis_server import redis_url

HERE = Path(__file__).parent
SCOPE = "opentelemetry.instrumentation.babelqueue"


def main() -> int:
    """Run the demo."""
    queue = f"orders-{uuid.uuid4().hex[:8]}"
    with redis_url(allow_fake=True) as url, receiver() as received:
        client = redis.Redis.from_url(url)
        try:
            version = client.info("server")["redis_version"]
        except redis.RedisError as error:
            print(f"there is no Redis to talk to: {error}", file=sys.stderr)
            return 1
        print(f"Redis {version}, queue {queue}\n", flush=True)
        spans = run(url, queue, received)
        dead = client.llen(f"{queue}.dlq")
        client.delete(f"{queue}.dlq")
    print(f"\ndead letters: {dead}\n")
    return show(spans, check(spans, dead), HERE.name, attributes=True)


def run(url: str, queue: str, received: Receiver) -> list[Span]:
    """Start both programs, wait for their spans, and end the worker as an operator would."""
    variables = {"BABELQUEUE_REDIS_URL": url, "QUEUE": queue}
    worker, producer = (instrumented(HERE / f"{name}.py") for name in ("worker", "producer"))
    with running("worker", worker, received.endpoint, variables):
        with running("producer", producer, received.endpoint, variables) as sending:
            sent = sending.wait(timeout=60) == 0
        if sent:
            received.wait_for(lambda spans: len(ours(spans)) >= len(PATHS))
    return received.spans


def ours(spans: list[Span]) -> list[Span]:
    """Leave out what other instrumentations add, such as redis-py's."""
    return [span for span in spans if span.scope.startswith(SCOPE)]


def check(spans: list[Span], dead: int) -> list[str]:
    """Return what is wrong with the traces; nothing is the expected answer."""
    by_id = {span.span_id: span for span in spans}
    sent = {message_of(span): span for span in ours(spans) if span.kind == "PRODUCER"}
    faults = []
    for span in ours(spans):
        parent = by_id.get(span.parent_id)
        if parent is not None and parent.trace_id != span.trace_id:
            faults.append(f"{span.name} is in another trace than its parent")
        if span.kind == "CONSUMER" and parent is not sent.get(message_of(span)):
            faults.append(f"{span.name} is no child of the span that sent its message")
        if span.kind == "CONSUMER" and span.parent_id not in span.links:
            faults.append(f"{span.name} has no link to its creation context")
    found = sorted(path_to(span, by_id) for span in ours(spans))
    if found != sorted(PATHS):
        faults.append(f"the spans are {found}, not {sorted(PATHS)}")
    if dead != 1:
        faults.append(f"{dead} messages are in the dead-letter queue, not 1")
    return faults


def message_of(span: Span) -> str:
    """Return the id of the message that a span is about."""
    return str(span.attributes.get("messaging.message.id"))


def path_to(span: Span, by_id: dict[str, Span]) -> tuple[str, ...]:
    """Return services and operations from the root down to the span, and how it ended."""
    path = []
    at: Span | None = span
    while at is not None:
        path.append(f"{at.service} {at.name.split()[0]}")
        at = by_id.get(at.parent_id)
    return (*reversed(path), str(span.attributes.get("messaging.babelqueue.outcome", "")))


_SENT, _TAKEN = "producer publish", "worker process"
PATHS = [
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
