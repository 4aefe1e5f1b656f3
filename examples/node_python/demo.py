"""Send orders through four programs, in Python and Node by turns, and show the traces they leave.

Without arguments it runs twice: in the legacy layout, where headers carry the trace from span to
span, and in the zset layout, which has none. ``--layout`` picks one. Exits with 1 when the traces
are not what they must be.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from babelqueue_carrier.frame import unframe
from babelqueue_carrier.trace import parent_span_id_of
from kit.checks import message_of, ours, wrong_parents, wrong_paths
from kit.otlp import Receiver, Span, receiver
from kit.programs import instrumented, running, show
from kit.redis_server import NoRedisError, redis_url

HERE = Path(__file__).parent
NODE = HERE / "node"
NEEDED = 20
QUEUES = ("orders", "billing", "shipping")
EXPLAINED = {
    "legacy": "The legacy layout: headers carry the trace, each span is a child of the one before.",
    "zset": "The zset layout: it has no headers. All spans of an order are in one trace, by the "
    "envelope's\ntrace_id, but a delivery's parent is only derived from it: which span sent it, "
    "nobody can say.",
}


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layout", choices=EXPLAINED, action="append")
    layouts = parser.parse_args().layout or list(EXPLAINED)
    missing = without_node()
    if missing:
        print(missing, file=sys.stderr)
        return 1
    install()
    try:
        return max(run(layout) for layout in layouts)
    except NoRedisError as error:
        print(error, file=sys.stderr)
        return 1


def without_node() -> str | None:
    """Return what to do when there is no Node, or too old a one."""
    version = "none"
    node = shutil.which("node")
    if node and shutil.which("npm"):
        said = subprocess.run([node, "--version"], check=True, capture_output=True, text=True)
        version = said.stdout.strip()
        if int(version.removeprefix("v").split(".")[0]) >= NEEDED:
            return None
    return (
        f"This demo needs Node {NEEDED} or newer, with npm; there is {version} on the PATH. Get it "
        "from nodejs.org,\nor by `nvm install 20`, `brew install node` or your distribution's "
        "packages nodejs and npm, and run the demo again."
    )


def install() -> None:
    """Install what the Node side needs, unless it is there."""
    wanted, done = NODE / "package-lock.json", NODE / "node_modules" / ".package-lock.json"
    if not done.exists() or done.stat().st_mtime < wanted.stat().st_mtime:
        npm = shutil.which("npm") or "npm"  # on Windows it is npm.cmd
        subprocess.run([npm, "ci", "--silent"], cwd=NODE, check=True)
        done.touch()


def run(layout: str) -> int:
    """Run all four programs in one layout, and judge what they leave."""
    print(f"\n{EXPLAINED[layout]}\n", flush=True)
    # A Redis that somebody gave us is not ours alone.
    given = os.environ.get("BABELQUEUE_REDIS_URL")
    prefix = f"demo-{uuid.uuid4().hex[:6]}-" if given else ""
    with redis_url() as url, receiver() as received:
        run_programs(layout, prefix, url, received)
        client = redis.Redis.from_url(url)
        dead = dead_letters(client, layout, prefix)
        if prefix:
            client.delete(*client.scan_iter(match=f"*{prefix}*"))
    print(f"\ndead letters: {'; '.join(each.error for each in dead)}\n")
    faults = check(layout, received.spans, dead)
    title = f"Orders across Python and Node, {layout} layout"
    return show(received.spans, faults, f"node_python-{layout}.html", title)


def run_programs(layout: str, prefix: str, url: str, received: Receiver) -> None:
    """Start the four programs, wait for their spans, and end them."""
    variables = {
        "BABELQUEUE_REDIS_URL": url,
        "PYTHONUNBUFFERED": "1",
        "PREFIX": prefix,
        "LAYOUT": layout,
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "redis",
    }
    with contextlib.ExitStack() as stack:
        for service, command in WORKERS.items():
            stack.enter_context(running(service, command, received.endpoint, variables))
        wait_for_workers(redis.Redis.from_url(url))
        stack.enter_context(running("shop", SHOP, received.endpoint, variables))
        received.wait_for(lambda spans: len(ours(spans)) >= len(PATHS[layout]))


def wait_for_workers(client: Any) -> None:
    """Wait until the workers wait for messages: the traces shall not show how programs start."""
    end = time.monotonic() + 20
    while client.info("clients")["blocked_clients"] < len(WORKERS) and time.monotonic() < end:
        time.sleep(0.05)


@dataclass(frozen=True)
class DeadLetter:
    """What stands in a dead-letter queue."""

    queue: str
    message_id: str
    headers: dict[str, str]
    error: str
    attempts: int


def dead_letters(client: redis.Redis, layout: str, prefix: str) -> list[DeadLetter]:
    """Read all dead-letter queues."""
    found = []
    stored: Any  # redis-py's annotation names the replies of all its clients
    for queue in QUEUES:
        key = f"{'queues:' if layout == 'zset' else ''}{prefix}{queue}.dlq"
        for stored in client.lrange(key, 0, -1):
            body, headers = unframe(stored)
            record = json.loads(body)
            why = record["dead_letter"]
            message_id = record["meta"]["id"]
            found.append(DeadLetter(queue, message_id, headers, why["error"], why["attempts"]))
    return found


def check(layout: str, spans: list[Span], dead: list[DeadLetter]) -> list[str]:
    """Return what is wrong; nothing is the expected answer."""
    judge = wrong_parents if layout == "legacy" else wrong_derived_parents
    faults = judge(spans) + wrong_paths(spans, PATHS[layout])
    if sorted((each.queue, each.attempts) for each in dead) != [("billing", 3), ("shipping", 3)]:
        faults.append(f"the dead letters are {dead}, not one of billing and one of shipping")
    sent = senders(spans)
    for each in dead:
        sender = sent.get(each.message_id)
        parent = sender and f"00-{sender.trace_id}-{sender.span_id}-01"
        if each.headers != ({"traceparent": parent} if layout == "legacy" else {}):
            faults.append(f"the dead letter of {each.queue} has the headers {each.headers}")
    return faults


def wrong_derived_parents(spans: list[Span]) -> list[str]:
    """Name the deliveries that are not where the envelope's ``trace_id`` puts them."""
    sent = senders(spans)
    faults = []
    for span in (each for each in ours(spans) if each.kind == "CONSUMER"):
        sender = sent.get(message_of(span))
        derived = f"{parent_span_id_of(str(uuid.UUID(span.trace_id))):016x}"
        if sender is None or sender.trace_id != span.trace_id or span.parent_id != derived:
            faults.append(f"{span.service}: {span.name} is not where its trace_id puts it")
    return faults


def senders(spans: list[Span]) -> dict[str, Span]:
    """Return the span that sent each message."""
    return {message_of(span): span for span in ours(spans) if span.kind == "PRODUCER"}


WORKERS = {
    "stock": ["node", "--require", str(NODE / "tracing.js"), str(NODE / "stock.js")],
    "billing": instrumented(HERE / "billing.py"),
    "shipping": ["node", "--require", str(NODE / "tracing.js"), str(NODE / "shipping.js")],
}
SHOP = instrumented(HERE / "shop.py")

_TRIES = ("retried", "retried", "dead_lettered")
_HOPS = ("shop publish", "stock process", "stock publish", "billing process", "billing publish")


def _legacy(*, hops: int, last: str, ends: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the paths of one order: ``hops`` spans in a chain, and the deliveries at its end."""
    chain = [(*_HOPS[: n + 1], "acked" * _HOPS[n].endswith("process")) for n in range(hops)]
    return chain + [(*_HOPS[:hops], last, end) for end in ends]


def _zset(paths: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return what is left of the paths when each delivery is a root of its own."""
    roots = [max(i for i, hop in enumerate(path) if i == 0 or "process" in hop) for path in paths]
    return [path[root:] for root, path in zip(roots, paths, strict=True)]


_LEGACY = [
    *_legacy(hops=5, last="shipping process", ends=("acked",)),
    *_legacy(hops=5, last="shipping process", ends=_TRIES),
    *_legacy(hops=3, last="billing process", ends=_TRIES),
]
PATHS = {"legacy": _LEGACY, "zset": _zset(_LEGACY)}

if __name__ == "__main__":
    sys.exit(main())
