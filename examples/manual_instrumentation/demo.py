"""Set the SDK and the instrumentation up by hand, and use what there is to choose.

Exits with 1 when the traces are not what they must be.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from rich.console import Console

from babelqueue_redis import Envelope, RedisConsumer, RedisPublisher
from babelqueue_redis.values import Delivery
from kit.otlp import Span, receiver
from kit.redis_server import redis_url
from kit.tree import trace_trees

NIGHTLY = "urn:shop:report:due"


def mode_of(delivery: Delivery) -> str:
    """Give nightly reports traces of their own, linked to what asked for them."""
    is_nightly = delivery.envelope is not None and delivery.envelope.job == NIGHTLY
    return "link" if is_nightly else "parent"


def set_up(endpoint: str) -> TracerProvider:
    """Do by hand what ``opentelemetry-instrument`` does."""
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    trace.set_tracer_provider(provider)
    BabelQueueInstrumentor().instrument(
        mode=mode_of,
        max_parent_age=3600,
        settle_spans=True,
        captured_headers=["tenant"],
    )
    return provider


def work(url: str, queue: str) -> None:
    """Publish one by one and together, take a message oneself, handle the others."""
    handlers: dict[str, Callable[[Envelope], None]] = {
        "urn:shop:order:placed": lambda envelope: print("order", envelope.data["order_id"]),
        NIGHTLY: lambda _: print("the report"),
    }
    with RedisPublisher(url, queue) as publisher, RedisConsumer(url, queue, handlers) as consumer:
        with trace.get_tracer("shop").start_as_current_span("checkout"):
            publisher.publish("urn:shop:order:placed", {"order_id": 1}, headers={"tenant": "acme"})
            publisher.publish(NIGHTLY, {})
        publisher.publish_many([("urn:shop:order:placed", {"order_id": n}) for n in (2, 3)])
        reservation = consumer.reserve(0)
        if reservation is not None:
            consumer.handle(reservation)
        while consumer.poll(0):
            pass


def check(spans: list[Span]) -> list[str]:
    """Return what is wrong with the traces; nothing is the expected answer."""
    names = sorted(span.name.split()[0] for span in spans)
    expected = ["ack"] * 4 + ["checkout"] + ["create"] * 2 + ["process"] * 4
    expected += ["publish"] * 3 + ["receive"]
    if names != expected:
        return [f"the spans are {names}, not {expected}"]
    by_id = {span.span_id: span for span in spans}
    faults = []
    for span in spans:
        if span.name.startswith("process") and not set(span.links) <= set(by_id):
            faults.append(f"{span.name} is linked to nothing")
        nightly = span.attributes.get("messaging.babelqueue.message.urn") == NIGHTLY
        if span.name.startswith("process") and bool(span.parent_id) is nightly:
            faults.append("a report is a child, or an order is none")
    return faults


def main() -> int:
    """Run the demo."""
    console = Console()
    with redis_url(allow_fake=True) as url, receiver() as received:
        provider = set_up(received.endpoint)
        work(url, f"orders-{uuid.uuid4().hex[:8]}")
        provider.shutdown()
        spans = received.spans
    for tree in trace_trees(spans):
        console.print(tree, soft_wrap=True)
    faults = check(spans)
    for fault in faults:
        console.print(f"wrong: {fault}", style="bold red")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
