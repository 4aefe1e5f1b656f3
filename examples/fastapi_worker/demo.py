"""Send an HTTP request, and show the trace from there through the queue to the worker.

Exits with 1 when it is not one trace.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import redis

from kit.checks import ours, wrong_parents
from kit.otlp import Receiver, Span, receiver
from kit.programs import instrumented, running, show
from kit.redis_server import free_port, redis_url

HERE = Path(__file__).parent


def main() -> int:
    """Run the demo."""
    if importlib.util.find_spec("fastapi") is None:
        print("FastAPI is not installed; run: nox -s demo_fastapi", file=sys.stderr)
        return 1
    queue = f"orders-{uuid.uuid4().hex[:8]}"
    with redis_url(allow_fake=True) as url, receiver() as received:
        run(url, queue, received)
        left = redis.Redis.from_url(url).exists(queue, f"{queue}.dlq")
    faults = check(received.spans) + [f"{queue} is not empty"] * bool(left)
    return show(received.spans, faults, "fastapi_worker.html", "From HTTP through the queue")


def run(url: str, queue: str, received: Receiver) -> None:
    """Start both programs, place an order, and wait for the spans."""
    port = free_port()
    variables = {"BABELQUEUE_REDIS_URL": url, "QUEUE": queue, "PORT": str(port)}
    app, worker = (instrumented(HERE / f"{name}.py") for name in ("app", "worker"))
    with (
        running("worker", worker, received.endpoint, variables),
        running("web", app, received.endpoint, variables),
    ):
        print(f"placed: {place_order(f'http://127.0.0.1:{port}/orders')}", flush=True)
        received.wait_for(lambda spans: len(ours(spans)) == len(_CHAIN) and bool(served(spans)))


def place_order(url: str) -> str:
    """Send the request, once the service is up."""
    body = json.dumps({"order_id": 1042, "total": 99.9}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - ours
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request) as answer:  # noqa: S310 - ours
                return str(answer.read().decode())
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def served(spans: list[Span]) -> list[Span]:
    """Return the spans of HTTP requests."""
    return [span for span in spans if span.kind == "SERVER"]


_CHAIN = ("publish", "process")


def check(spans: list[Span]) -> list[str]:
    """Return what is wrong with the trace; nothing is the expected answer."""
    faults = wrong_parents(spans)
    requests = {span.span_id: span for span in served(spans)}
    names = sorted(span.name.split()[0] for span in ours(spans))
    if len(requests) != 1 or names != sorted(_CHAIN):
        faults.append(f"there are {len(requests)} requests, and {names} of the queue")
    for span in ours(spans):
        if span.kind == "PRODUCER" and span.parent_id not in requests:
            faults.append(f"{span.name} is no child of the request")
    if len({span.trace_id for span in spans}) != 1:
        faults.append("it is not one trace")
    return faults


if __name__ == "__main__":
    sys.exit(main())
