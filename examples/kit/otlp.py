"""An OTLP receiver (http/protobuf) for demos and tests: it keeps the spans it is sent."""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2


@dataclass(frozen=True)
class Event:
    """Something that happened inside a span, such as an exception."""

    name: str
    time: int
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Span:
    """One received span. Ids are lowercase hex, times epoch nanoseconds."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    links: tuple[str, ...]
    start: int
    end: int
    status: str
    description: str
    attributes: dict[str, Any]
    events: tuple[Event, ...]
    scope: str

    @property
    def milliseconds(self) -> float:
        """How long it lasted."""
        return (self.end - self.start) / 1e6


@dataclass
class Receiver:
    """Where the spans end up."""

    endpoint: str
    _spans: list[Span] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def spans(self) -> list[Span]:
        """What has come so far, by start time."""
        with self._changed:
            return sorted(self._spans, key=lambda span: span.start)

    def add(self, spans: list[Span]) -> None:
        """Keep received spans."""
        with self._changed:
            self._spans.extend(spans)
            self._changed.notify_all()

    def wait_for(self, enough: Callable[[list[Span]], bool], seconds: float = 60) -> list[Span]:
        """Return the spans once ``enough`` is true of them, or when time is up."""
        end = time.monotonic() + seconds
        with self._changed:
            while not enough(self._spans) and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
        return self.spans


@contextlib.contextmanager
def receiver(port: int = 0) -> Iterator[Receiver]:
    """Receive on a loopback port, a free one unless told, for as long as the block lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = _sent(self)
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if self.path == "/v1/traces":
                received.add(list(_spans_of(ExportTraceServiceRequest.FromString(body))))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Stay silent."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    received = Receiver(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()


def _sent(request: BaseHTTPRequestHandler) -> bytes:
    """Return a request's body. Python's exporter says how long it is, Node's sends it in chunks."""
    if request.headers.get("Transfer-Encoding", "").lower() == "chunked":
        return b"".join(_chunks(request.rfile))
    return request.rfile.read(int(request.headers.get("Content-Length", 0)))


def _chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    while size := int(stream.readline().split(b";")[0], 16):
        yield stream.read(size)
        stream.readline()
    stream.readline()


def environment(endpoint: str, service: str) -> dict[str, str]:
    """Return the variables that make ``opentelemetry-instrument`` export traces to ``endpoint``."""
    return {
        "OTEL_SERVICE_NAME": service,
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    }


def _spans_of(request: ExportTraceServiceRequest) -> Iterator[Span]:
    for resource in request.resource_spans:
        about = _mapping(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _span_of(span, str(about.get("service.name", "")), scope.scope.name)


def _span_of(span: trace_pb2.Span, service: str, scope: str) -> Span:
    return Span(
        service=service,
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in span.links),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        status=trace_pb2.Status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_"),
        description=span.status.message,
        attributes=_mapping(span.attributes),
        events=tuple(
            Event(event.name, event.time_unix_nano, _mapping(event.attributes))
            for event in span.events
        ),
        scope=scope,
    )


def _mapping(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _plain(pair.value) for pair in pairs}


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)
