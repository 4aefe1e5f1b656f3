"""Every attribute key and value that a span of ours carries.

Semantic conventions 1.44 for messaging. Keys that the conventions define come from
``opentelemetry-semantic-conventions``; those under ``messaging.babelqueue`` are ours.
"""

from __future__ import annotations

from opentelemetry.semconv._incubating.attributes.messaging_attributes import (
    MESSAGING_BATCH_MESSAGE_COUNT,
    MESSAGING_DESTINATION_NAME,
    MESSAGING_MESSAGE_CONVERSATION_ID,
    MESSAGING_MESSAGE_ID,
    MESSAGING_OPERATION_NAME,
    MESSAGING_OPERATION_TYPE,
    MESSAGING_SYSTEM,
)
from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
from opentelemetry.semconv.attributes.server_attributes import SERVER_ADDRESS, SERVER_PORT

__all__ = [
    "BABELQUEUE_ATTEMPTS",
    "BABELQUEUE_LAYOUT",
    "BABELQUEUE_OUTCOME",
    "BABELQUEUE_URN",
    "ERROR_TYPE",
    "MESSAGING_BATCH_MESSAGE_COUNT",
    "MESSAGING_DESTINATION_NAME",
    "MESSAGING_MESSAGE_CONVERSATION_ID",
    "MESSAGING_MESSAGE_ID",
    "MESSAGING_OPERATION_NAME",
    "MESSAGING_OPERATION_TYPE",
    "MESSAGING_SYSTEM",
    "SCHEMA_URL",
    "SERVER_ADDRESS",
    "SERVER_PORT",
    "SYSTEM",
]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"

SYSTEM = "babelqueue"
BABELQUEUE_URN = "messaging.babelqueue.message.urn"
BABELQUEUE_ATTEMPTS = "messaging.babelqueue.attempts"
BABELQUEUE_LAYOUT = "messaging.babelqueue.layout"
BABELQUEUE_OUTCOME = "messaging.babelqueue.outcome"
