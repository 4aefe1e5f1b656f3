"""Share a queue with Laravel: what stands in Redis, what PHP does with it, and the trace.

Where there is no PHP with Laravel's queue, a Python worker stands in for it. Exits with 1 when a
receipt is in another trace than its order, or the reminder came early.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import redis

from kit.checks import ours
from kit.otlp import Receiver, Span, receiver
from kit.programs import instrumented, running, show
from kit.redis_server import redis_url

HERE = Path(__file__).parent
SECOND = 1_000_000_000


def main() -> int:
    """Run the demo."""
    php = php_worker()
    print("" if php else "There is no PHP with Laravel's queue here: Python stands in for it.\n")
    prefix = f"demo-{uuid.uuid4().hex[:6]}-" if os.environ.get("BABELQUEUE_REDIS_URL") else ""
    with redis_url() as url, receiver() as received:
        client = redis.Redis.from_url(url, decode_responses=True)
        run(php or instrumented(HERE / "worker.py"), url, prefix, received)
        left = list(client.scan_iter(f"queues:{prefix}*"))
        if left:
            client.delete(*left)
    spans = received.spans
    faults = check(spans) + [f"left in Redis: {key}" for key in left if not key.endswith(":notify")]
    return show(spans, faults, "laravel_shared.html", "A queue shared with Laravel")


def php_worker() -> list[str] | None:
    """Return the command of the PHP worker, where it can run."""
    php = shutil.which("php")
    command = [php or "", str(HERE / "worker.php")]
    if php is None:
        return None
    tried = subprocess.run([*command, "--check"], check=False, capture_output=True)
    return None if tried.returncode else command


def run(worker: list[str], url: str, prefix: str, received: Receiver) -> None:
    """Publish, look, and have everything handled."""
    variables = {"BABELQUEUE_REDIS_URL": url, "PREFIX": prefix}
    with running("shop", instrumented(HERE / "shop.py"), received.endpoint, variables) as shop:
        shop.wait(timeout=60)
    look(redis.Redis.from_url(url, decode_responses=True), f"queues:{prefix}orders")
    with contextlib.ExitStack() as stack:
        receipts = instrumented(HERE / "receipts.py")
        stack.enter_context(running("receipts", receipts, received.endpoint, variables))
        stack.enter_context(running("worker", worker, received.endpoint, variables))
        received.wait_for(lambda spans: len(of(spans, "receipts")) == 2)  # noqa: PLR2004


def look(client: Any, queue: str) -> None:
    """Show what stands in Redis."""
    print(f"{queue}\n  {client.lrange(queue, 0, -1)}")
    for body, due in client.zrange(f"{queue}:delayed", 0, -1, withscores=True):
        seconds = due - json.loads(body)["meta"]["created_at"] // 1000
        print(f"{queue}:delayed, due {seconds:.0f} s after it was published\n  {body}")
    print(f"{queue}:notify\n  {client.lrange(f'{queue}:notify', 0, -1)}\n", flush=True)


def of(spans: list[Span], service: str) -> list[Span]:
    """Return the spans of one service, by the time they began."""
    found = [span for span in ours(spans) if span.service == service]
    return sorted(found, key=lambda span: span.start)


def check(spans: list[Span]) -> list[str]:
    """Return what is wrong; nothing is the expected answer."""
    orders = of(spans, "shop")
    receipts = {span.trace_id: span for span in of(spans, "receipts")}
    if sorted(receipts) != sorted(span.trace_id for span in orders):
        return ["a receipt is not in the trace of its order"]
    reminder = orders[-1]
    faults = []
    if receipts[reminder.trace_id].start - reminder.start < SECOND:
        faults.append("the reminder came early")
    if any(span.status == "ERROR" for span in ours(spans)):
        faults.append("something failed")
    return faults


if __name__ == "__main__":
    sys.exit(main())
