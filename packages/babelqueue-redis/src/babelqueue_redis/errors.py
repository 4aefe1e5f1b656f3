"""Every exception of the transport.

::

    BabelQueueError                    the suite's root (babelqueue_carrier)
    ├── HeaderError                    a header is not text (babelqueue_carrier)
    ├── ConfigurationError             an option, a queue name or a client that cannot work
    ├── EnvelopeError                  a message that must not be written: blank URN, data that is
    │                                  not JSON, a reserved or forbidden key
    ├── PoisonError                    a stored message that is no envelope; reported, not raised
    ├── UnknownUrnError                a message that no handler takes; reported, not raised
    ├── ExhaustedError                 a message that no worker could settle; reported
    ├── PayloadError                   data that is not of its handler's type; reported
    ├── HandlerTimeoutError            a job's handler took too long; reported, not raised
    ├── LeaseLostError                 a job that is somebody else's, or canceled, by now; reported
    ├── ShutdownError                  a job given back because its worker ends; reported
    └── TransportError                 Redis did not do what was asked
        ├── ConnectionLostError        no answer: not connected, or the link broke on the way
        ├── CommandRefusedError        Redis answered with an error
        ├── PublishError               a publish that is not confirmed; carries the message ids
        └── SettlementError            a message whose handling ended could not be settled

Messages name the queue and the message id. They never hold payloads, header values or passwords.
All can be pickled, as process pools do.
"""

from __future__ import annotations

from collections.abc import Sequence

from babelqueue_carrier.errors import BabelQueueError, HeaderError

__all__ = [
    "BabelQueueError",
    "CommandRefusedError",
    "ConfigurationError",
    "ConnectionLostError",
    "EnvelopeError",
    "ExhaustedError",
    "HandlerTimeoutError",
    "HeaderError",
    "LeaseLostError",
    "PayloadError",
    "PoisonError",
    "PublishError",
    "SettlementError",
    "ShutdownError",
    "TransportError",
    "UnknownUrnError",
]


class ConfigurationError(BabelQueueError, ValueError):
    """A publisher or consumer cannot be built as asked."""


class EnvelopeError(BabelQueueError, ValueError):
    """An envelope cannot be written as asked."""


class PoisonError(BabelQueueError, ValueError):
    """A stored value is not a BabelQueue envelope.

    Consumers report it through ``on_error`` and dead-letter the value's bytes.
    """

    reason = "poison"


class UnknownUrnError(BabelQueueError, LookupError):
    """A valid envelope names a URN that no handler is registered for."""

    reason = "unknown_urn"


class ExhaustedError(BabelQueueError):
    """A message came back too often without a settlement: its workers died, say.

    The zset layout counts deliveries, against ``max_tries``; the legacy one recoveries, against
    ``max_recoveries``. Consumers dead-letter the message without a run.
    """

    reason = "failed"


class PayloadError(BabelQueueError, ValueError):
    """The ``data`` of a message, or the payload of a job, is not of the type that was asked for.

    The text names the path and what was expected there, never the value. A job with such a payload
    is refused where it is enqueued; a message or a job that is there already is dead at once: the
    next run would see the same data.
    """

    reason = "failed"


class HandlerTimeoutError(BabelQueueError, TimeoutError):
    """A job's handler took longer than ``handler_timeout``; the attempt has failed."""


class LeaseLostError(BabelQueueError):
    """A job was canceled, or reaped, while its handler ran."""


class ShutdownError(BabelQueueError):
    """A job was given back because its worker ended before its handler did."""


class TransportError(BabelQueueError):
    """A Redis command failed; the redis-py exception is the ``__cause__``."""


class ConnectionLostError(TransportError):
    """There was no reply.

    Attributes:
        sent: Whether the command may have reached the server. When it did, it may have run.
    """

    def __init__(self, message: str, *, sent: bool = False) -> None:
        """Say what happened, and whether the command may have run."""
        super().__init__(message)
        self.sent = sent


class CommandRefusedError(TransportError):
    """Redis answered with an error. The command changed nothing."""


class PublishError(TransportError):
    """A publish was not confirmed.

    Attributes:
        message_ids: The ``meta.id`` of every message in the call, in order.
        may_be_stored: Whether the messages may be in the queue all the same, because the link
            broke before the reply. Publishing again could then store them twice, under new ids.
    """

    def __init__(
        self, message: str, *, message_ids: Sequence[str] = (), may_be_stored: bool = False
    ) -> None:
        """Say what happened, to which messages, and whether they may be stored."""
        super().__init__(message)
        self.message_ids = tuple(message_ids)
        self.may_be_stored = may_be_stored

    @property
    def message_id(self) -> str:
        """The ``meta.id`` of the first, and with ``publish`` only, message."""
        return self.message_ids[0]


class SettlementError(TransportError):
    """A delivery is over, but Redis did not confirm its ack, retry or dead letter.

    The message comes back after ``retry_after``, unless the settlement ran and only its reply was
    lost.

    Attributes:
        message_id: The ``meta.id``; ``""`` when the message has none.
        outcome: What was intended: ``acked``, ``retried``, ``dead_lettered`` and so on.
    """

    def __init__(self, message: str, *, message_id: str = "", outcome: str = "") -> None:
        """Say what happened, to which message, and what was intended."""
        super().__init__(message)
        self.message_id = message_id
        self.outcome = outcome
