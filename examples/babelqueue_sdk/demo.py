"""Run two programs of the ``babelqueue`` SDK, and show the traces that they leave.

Neither has tracing code: the instrumentation is installed, that is all. Exits with 1 when the
traces are not what they must be.
"""

from __future__ import annotations

import os
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


def run(program: str, url: str, queue: str, received: Receiver) -> None:
    """Run one of the programs under ``opentelemetry-instrument``, to its end."""
    tool = Path(sys.executable).with_name("opentelemetry-instrument")
    subprocess.run(
        [str(tool), sys.executable, str(HERE / f"{program}.py")],
        env={
            **os.environ,
            **environment(received.endpoint, program),
            "BABELQUEUE_REDIS_URL": url,
            "QUEUE": queue,
        },
        check=True,
        timeout=60,
    )


def check(spans: list[Span]) -> list[str]:
    """Return what is wrong with the traces; nothing is the expected answer."""
    sent = {span.span_id: span for span in spans if span.kind == "PRODUCER"}
    taken = [span for span in spans if span.kind == "CONSUMER"]
    faults = [f"{span.name} is no child" for span in taken if span.parent_id not in sent]
    outcomes = sorted(str(span.attributes.get("messaging.babelqueue.outcome")) for span in taken)
    if outcomes != ["acked", "dead_lettered"]:
        faults.append(f"the outcomes are {outcomes}")
    errors = [str(span.attributes["error.type"]) for span in taken if span.status == "ERROR"]
    if errors != ["ValueError"]:
        faults.append(f"the errors are {errors}")
    return faults


def main() -> int:
    """Run the demo."""
    console = Console()
    queue = f"orders-{uuid.uuid4().hex[:8]}"
    with redis_url(allow_fake=True) as url, receiver() as received:
        for program in ("producer", "worker"):
            run(program, url, queue, received)
        spans = [span for span in received.spans if span.scope == SCOPE]
        redis.Redis.from_url(url).delete(f"{queue}.dlq")
    for tree in trace_trees(spans):
        console.print(tree, soft_wrap=True)
    faults = check(spans)
    for fault in faults:
        console.print(f"wrong: {fault}", style="bold red")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
