"""Every name and value that a span, a metric or an event of ours carries.

Semantic conventions 1.44 for messaging. Names that the conventions define come from
``opentelemetry-semantic-conventions``; those under ``messaging.babelqueue`` are ours.
"""

from __future__ import annotations

from opentelemetry.semconv._incubating.attributes.messaging_attributes import (
    MESSAGING_BATCH_MESSAGE_COUNT,
    MESSAGING_DESTINATION_NAME,
    MESSAGING_MESSAGE_BODY_SIZE,
    MESSAGING_MESSAGE_CONVERSATION_ID,
    MESSAGING_MESSAGE_ID,
    MESSAGING_OPERATION_NAME,
    MESSAGING_OPERATION_TYPE,
    MESSAGING_SYSTEM,
)
from opentelemetry.semconv._incubating.metrics.messaging_metrics import (
    MESSAGING_CLIENT_CONSUMED_MESSAGES,
    MESSAGING_CLIENT_OPERATION_DURATION,
    MESSAGING_CLIENT_SENT_MESSAGES,
    MESSAGING_PROCESS_DURATION,
)
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.exception_attributes import (
    EXCEPTION_MESSAGE,
    EXCEPTION_STACKTRACE,
    EXCEPTION_TYPE,
)
from opentelemetry.semconv.attributes.server_attributes import SERVER_ADDRESS, SERVER_PORT

__all__ = [
    "BABELQUEUE_ATTEMPTS",
    "BABELQUEUE_JOBS",
    "BABELQUEUE_LAYOUT",
    "BABELQUEUE_OUTCOME",
    "BABELQUEUE_QUEUE_MESSAGES",
    "BABELQUEUE_QUEUE_TIME",
    "BABELQUEUE_QUEUE_TIME_NEGATIVE",
    "BABELQUEUE_STATE",
    "BABELQUEUE_URN",
    "ERROR_TYPE",
    "EXCEPTION_MESSAGE",
    "EXCEPTION_STACKTRACE",
    "EXCEPTION_TYPE",
    "MESSAGING_BATCH_MESSAGE_COUNT",
    "MESSAGING_CLIENT_CONSUMED_MESSAGES",
    "MESSAGING_CLIENT_OPERATION_DURATION",
    "MESSAGING_CLIENT_SENT_MESSAGES",
    "MESSAGING_DESTINATION_NAME",
    "MESSAGING_HEADER",
    "MESSAGING_MESSAGE_BODY_SIZE",
    "MESSAGING_MESSAGE_CONVERSATION_ID",
    "MESSAGING_MESSAGE_ID",
    "MESSAGING_OPERATION_NAME",
    "MESSAGING_OPERATION_TYPE",
    "MESSAGING_PROCESS_DURATION",
    "MESSAGING_SYSTEM",
    "SCHEMA_URL",
    "SERVER_ADDRESS",
    "SERVER_PORT",
]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

BABELQUEUE_JOBS = "messaging.babelqueue.jobs"
BABELQUEUE_URN = "messaging.babelqueue.message.urn"
BABELQUEUE_ATTEMPTS = "messaging.babelqueue.attempts"
BABELQUEUE_LAYOUT = "messaging.babelqueue.layout"
BABELQUEUE_OUTCOME = "messaging.babelqueue.outcome"
BABELQUEUE_STATE = "messaging.babelqueue.state"
BABELQUEUE_QUEUE_TIME = "messaging.babelqueue.queue.time"
BABELQUEUE_QUEUE_TIME_NEGATIVE = "messaging.babelqueue.queue.time.negative"
BABELQUEUE_QUEUE_MESSAGES = "messaging.babelqueue.queue.messages"
MESSAGING_HEADER = "messaging.header."
"""Before the name of a captured header, as other messaging instrumentations have it."""
