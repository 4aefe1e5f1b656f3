"""Run producer and worker in two processes, and show the traces they leave.

Neither program has tracing code: ``opentelemetry-instrument`` loads the instrumentation. Exits
with 1 when the traces are not what they must be.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import redis

from kit.checks import ours, wrong_parents, wrong_paths
from kit.otlp import Receiver, Span, receiver
from kit.programs import instrumented, running, show
from kit.redis_server import redis_url

HERE = Path(__file__).parent


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
    title = "A trace across two processes"
    return show(spans, check(spans, dead), "two_processes.html", title, attributes=True)


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


def check(spans: list[Span], dead: int) -> list[str]:
    """Return what is wrong with the traces; nothing is the expected answer."""
    faults = wrong_parents(spans) + wrong_paths(spans, PATHS)
    if dead != 1:
        faults.append(f"{dead} messages are in the dead-letter queue, not 1")
    return faults


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
