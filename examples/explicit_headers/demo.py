"""Publish with headers of one's own, and show whose child the delivery is.

Exits with 1 when the traces are not what they must be.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from pathlib import Path

from kit.checks import ours
from kit.otlp import Receiver, Span, receiver
from kit.programs import instrumented, running, show
from kit.redis_server import redis_url

HERE = Path(__file__).parent


def main() -> int:
    """Run the demo."""
    with (
        redis_url(allow_fake=True) as url,
        receiver() as received,
        tempfile.TemporaryDirectory() as folder,
    ):
        run(url, received, Path(folder, "outbox.json"))
    spans = received.spans
    return show(spans, check(spans), "explicit_headers.html", "Headers of one's own")


def run(url: str, received: Receiver, outbox: Path) -> None:
    """Run shop and relay one after the other, and the worker until both messages are handled."""
    variables = {
        "BABELQUEUE_REDIS_URL": url,
        "QUEUE": f"orders-{uuid.uuid4().hex[:8]}",
        "OUTBOX": str(outbox),
    }
    for name in ("shop", "relay"):
        with running(name, instrumented(HERE / f"{name}.py"), received.endpoint, variables) as it:
            it.wait(timeout=60)
    with running("worker", instrumented(HERE / "worker.py"), received.endpoint, variables):
        received.wait_for(lambda spans: sum(s.service == "worker" for s in spans) == 2)  # noqa: PLR2004


def check(spans: list[Span]) -> list[str]:
    """Return what is wrong with the traces; nothing is the expected answer."""
    made = {
        f"{span.service} {span.name.split()[0]} {span.kind} {reason_of(span)}".strip(): span
        for span in spans
        if span in ours(spans) or span.kind == "INTERNAL"
    }
    if sorted(made) != sorted(EXPECTED):
        return [f"the spans are {sorted(made)}, not {sorted(EXPECTED)}"]
    faults = []
    for name, (parent, link, tenant) in EXPECTED.items():
        span = made[name]
        if span.parent_id != (made[parent].span_id if parent else ""):
            faults.append(f"{name} is no child of {parent or 'nothing'}")
        if span.links != ((made[link].span_id,) if link else ()):
            faults.append(f"{name} is linked to {span.links}, not to {link or 'nothing'}")
        if span.attributes.get("app.tenant", "") != tenant:
            faults.append(f"{name} has the tenant {span.attributes.get('app.tenant')}")
    return faults


def reason_of(span: Span) -> str:
    """Tell two deliveries apart."""
    return str(span.attributes.get("app.reason", ""))


_PLACE, _EMPTY = "shop place INTERNAL", "relay empty INTERNAL"
_KEPT, _ADDED = "relay publish CLIENT", "relay publish PRODUCER"
# Its parent, the span that it is linked to, and the tenant that the baggage names.
EXPECTED = {
    _PLACE: ("", "", ""),
    _EMPTY: ("", "", ""),
    _KEPT: (_EMPTY, _PLACE, ""),
    _ADDED: (_EMPTY, "", ""),
    "worker process CONSUMER outbox": (_PLACE, _PLACE, "acme"),
    "worker process CONSUMER report": (_ADDED, _ADDED, ""),
}

if __name__ == "__main__":
    sys.exit(main())
