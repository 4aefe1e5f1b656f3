"""Takes an order and notes it in an outbox; somebody else will publish it.

The note holds the headers of this moment. ``inject()`` writes what the global propagator writes:
the ``traceparent`` of the current span, and the baggage.
"""

import json
import os
from pathlib import Path

from opentelemetry import baggage, context, trace

from babelqueue_carrier import inject

tracer = trace.get_tracer("shop")
context.attach(baggage.set_baggage("tenant", "acme"))
with tracer.start_as_current_span("place order"):
    note = {"data": {"order_id": 1042}, "headers": inject({"reason": "outbox"})}
    Path(os.environ["OUTBOX"]).write_text(json.dumps(note), encoding="utf-8")
