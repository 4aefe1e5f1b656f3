"""What telemetry costs, as ratios within one run: ``nox -s overhead [-- PAIRS]``.

A pair is one publish and one poll, sequential and sync, on a private Redis. Every way to run it is
measured in short turns with the others, by the CPU time of this process, and the quickest turn of
each counts: what disturbs a machine only ever makes it slower.

The yardstick is the SDK's own ``start_span`` and ``end``, without attributes, in the same place: a
pair with six of them after it, without the instrumentation. They go where the others go, to the
batching processor, as programs have it, with an exporter that drops what it is given. What a pair
costs more because it has headers at all, whoever gave them, is told apart.

The floor is what nobody can go below who tells the same: the bare calls of the SDK for one pair,
written down by hand in ``floor.py`` and made where the instrumentation makes its own. Where the
floor is above a target, the target cannot be met.

Nothing is asserted here: a noisy machine says what it likes. The targets stand beside the ratios.
"""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

from opentelemetry import trace
from opentelemetry.instrumentation.babelqueue import BabelQueueInstrumentor
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from babelqueue_redis import RedisConsumer, RedisPublisher
from kit.redis_server import any_binary, private_server
from tests.benchmarks.floor import BARE, Floor

ROUNDS = 100
DEFAULT_PAIRS = 40
SPANS = 6
PART = "part of the floor: "
HEADERS = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}

Way = Callable[[], AbstractContextManager[None]]


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """Without the instrumentation."""
    yield


def instrumented(
    tracers: trace.TracerProvider | None = None, meters: MeterProvider | None = None
) -> Way:
    """Return a way to run with the instrumentation."""

    @contextlib.contextmanager
    def run() -> Iterator[None]:
        BabelQueueInstrumentor().instrument(tracer_provider=tracers, meter_provider=meters)
        try:
            yield
        finally:
            BabelQueueInstrumentor().uninstrument()

    return run


class Drops(SpanExporter):
    """Exports to nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Drop them."""
        return SpanExportResult.SUCCESS


def dropping() -> TracerProvider:
    """Return a provider that samples every span and exports it to nowhere."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Drops()))
    return provider


def seconds_of(work: Callable[[], object], times: int) -> float:
    """Return the seconds that one of so many takes."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def ways_of(url: str, opened: contextlib.ExitStack) -> dict[str, tuple[Way, Callable[[], object]]]:
    """Return the ways to run a pair, the yardstick, and the parts of the floor."""
    queue = f"bench-{uuid.uuid4().hex}"
    publisher = opened.enter_context(RedisPublisher(url, queue))
    handlers = {"urn:a": lambda envelope: None}
    consumer = opened.enter_context(RedisConsumer(url, queue, handlers))

    tracers = dropping()
    tracer = tracers.get_tracer("yardstick")
    meters = SdkMeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)

    def pair(headers: dict[str, str] | None = None) -> None:
        publisher.publish("urn:a", {"order_id": 1042}, headers=headers)
        consumer.poll(0)

    def pair_and_spans() -> None:
        pair()
        for _ in range(SPANS):
            tracer.start_span("x").end()

    floor_of_all = Floor(tracer, meters)
    floor_of_all.publish()

    def with_floor(floor: Floor) -> Callable[[], None]:
        handlers = {"urn:a": lambda envelope: floor.process()}
        by_hand = opened.enter_context(RedisConsumer(url, queue, handlers))

        def work() -> None:
            floor.publish()
            publisher.publish("urn:a", {"order_id": 1042})
            by_hand.poll(0)
            floor.settle()

        return work

    return {
        "plain": (plain, pair),
        "plain again": (plain, pair),
        "with headers": (plain, lambda: pair(HEADERS)),
        "with spans": (plain, pair_and_spans),
        "traced, the floor": (plain, with_floor(Floor(tracer))),
        "traced and measured, the floor": (plain, with_floor(floor_of_all)),
        "no SDK": (instrumented(), pair),
        "traced": (instrumented(tracers, NoOpMeterProvider()), pair),
        "traced and measured": (instrumented(tracers, meters), pair),
        **{PART + name: (plain, part) for name, part in floor_of_all.parts().items()},
    }


def measure(url: str, pairs: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the seconds that each takes."""
    with contextlib.ExitStack() as opened:
        ways = ways_of(url, opened)
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(rounds):
            for name, (way, work) in ways.items():
                with way():
                    work()  # what is made once, tracer and instruments, is no cost of a pair
                    best[name] = min(best[name], seconds_of(work, pairs))
    return best


def report(best: dict[str, float]) -> Iterator[str]:
    """Say the ratios."""
    base = best["plain"]
    span = (best["with spans"] - base) / SPANS
    headers = (best["with headers"] - base) / span
    yield f"CPU time of a pair: {base * 1e6:.0f} us, of a bare span: {span * 1e6:.1f} us"
    yield f"the same once more:      {best['plain again'] / base - 1:+7.1%} of a pair (noise)"
    yield f"with it and no SDK:      {best['no SDK'] / base - 1:+7.1%} of a pair (target: 5 %)"
    for name, target in (("traced", 6), ("traced and measured", 12)):
        spans = (best[name] - base) / span
        floor = (best[f"{name}, the floor"] - base) / span
        yield f"{name + ':':25}{spans:6.1f} bare spans (target: at most {target})"
        yield f"  the SDK's own share:   {floor:6.1f} bare spans; ours / floor: {spans / floor:.2f}"
    yield f"of each, for headers:    {headers:6.1f} bare spans"
    alone = best[PART + BARE]
    for name, seconds in best.items():
        if name.startswith(PART):
            yield f"  {name.removeprefix(PART):23}{seconds / alone:6.2f} bare spans, both alone"


def main() -> None:
    """Measure and print."""
    binary = any_binary()
    if binary is None:
        sys.exit("there is no Redis binary to start")
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT_PAIRS
    with private_server(binary) as url:
        print(*report(measure(url, pairs)), sep="\n")  # noqa: T201 - that is what it is for


if __name__ == "__main__":
    main()
