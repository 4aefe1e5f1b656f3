"""What hooks see of the steps around a message: its receiving, its settling, a run's serving."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from babelqueue_redis import Outcome, RedisConsumer, RedisPublisher, SettlementError, hooks
from babelqueue_redis.steps import Receiving, Serving, Settling
from tests.support.handlers import fail
from tests.support.marks import both_layouts, both_shells
from tests.support.store import Store

pytestmark = [both_layouts, both_shells]

Make = Callable[..., RedisConsumer]


class Sees(hooks.Hook):
    """Notes each step as it is when it is over, and what passed through."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.errors: list[BaseException] = []

    @contextlib.contextmanager
    def _note(self, step: Any) -> Iterator[None]:
        self.steps.append(step)
        try:
            yield
        except BaseException as error:
            self.errors.append(error)
            raise

    settling = receiving = serving = _note  # type: ignore[assignment]  # one for all

    def of(self, kind: type) -> list[Any]:
        """The steps of one kind."""
        return [step for step in self.steps if isinstance(step, kind)]


@pytest.fixture
def sees(monkeypatch: pytest.MonkeyPatch) -> Sees:
    """A hook, the only one."""
    hook = Sees()
    monkeypatch.setattr(hooks, "_registered", (hook,))
    return hook


def test_a_program_that_reserves_is_seen_with_what_it_took(
    publisher: RedisPublisher, consumer_of: Make, sees: Sees, queue: str, layout: str
) -> None:
    """And with nothing, when nothing came."""
    publisher.publish("urn:a", {})
    consumer = consumer_of()
    taken = consumer.reserve(0)
    assert consumer.reserve(0) is None
    first, second = sees.of(Receiving)
    assert (first.destination.queue, first.destination.layout) == (queue, layout)
    assert first.reservation is taken is not None
    assert second.reservation is None


def test_a_poll_and_a_run_are_no_receiving(
    publisher: RedisPublisher, consumer_of: Make, sees: Sees, queue: str
) -> None:
    """A run is one serving, which can count the queue's messages."""
    publisher.publish_many([("urn:a", {})] * 2)
    consumer = consumer_of({"urn:a": lambda envelope: None})
    assert consumer.poll(0) is Outcome.ACKED
    assert sees.of(Serving) == []
    left = iter([True, False])
    assert consumer.run(lambda: next(left)) == 1
    (serving,) = sees.of(Serving)
    assert serving.destination.queue == queue
    assert sees.of(Receiving) == []
    assert len(sees.of(Settling)) == 2


@pytest.mark.parametrize(
    ("urn", "options", "outcome"),
    [
        ("urn:a", {}, Outcome.ACKED),
        ("urn:bad", {}, Outcome.RETRIED),
        ("urn:bad", {"max_tries": 1}, Outcome.DEAD_LETTERED),
        ("urn:bad", {"max_tries": 1, "dead_letter_queue": None}, Outcome.DROPPED),
        ("urn:new", {"unknown_urn": "release"}, Outcome.RELEASED),
    ],
)
def test_a_settlement_is_seen_with_its_end(
    publisher: RedisPublisher,
    consumer_of: Make,
    sees: Sees,
    queue: str,
    urn: str,
    options: dict[str, Any],
    outcome: Outcome,
) -> None:
    """Of which message, what was meant, and what became of it."""
    message_id = publisher.publish(urn, {})
    handlers = {"urn:a": lambda envelope: None, "urn:bad": fail}
    consumer = consumer_of(handlers, on_error=print, **options)
    taken = consumer.reserve(0)
    assert taken is not None
    assert consumer.handle(taken) is outcome
    (step,) = sees.of(Settling)
    assert step.destination.queue == queue
    assert step.reservation is taken
    assert (step.intended, step.outcome, step.message_id) == (outcome, outcome, message_id)


def test_a_settlement_that_came_too_late_is_seen_as_expired(
    publisher: RedisPublisher, consumer_of: Make, sees: Sees, store: Store
) -> None:
    """It was meant otherwise."""
    publisher.publish("urn:a", {})
    consumer = consumer_of({"urn:a": lambda envelope: None})
    taken = consumer.reserve(0)
    assert taken is not None
    store.client.delete(store.deadlines_key)
    assert consumer.handle(taken) is Outcome.EXPIRED
    (step,) = sees.of(Settling)
    assert (step.intended, step.outcome) == (Outcome.ACKED, Outcome.EXPIRED)


def test_a_message_that_is_left_is_not_settled(
    publisher: RedisPublisher, consumer_of: Make, sees: Sees
) -> None:
    """Nothing is sent."""
    publisher.publish("urn:a", {})
    consumer = consumer_of({"urn:a": fail}, on_failure="leave", on_error=print)
    assert consumer.poll(0) is Outcome.LEFT
    assert sees.steps == []


def test_an_error_passes_through_the_hook(
    publisher: RedisPublisher, consumer_of: Make, sees: Sees, store: Store
) -> None:
    """Of a settlement that Redis refused; what became of it is not known."""
    publisher.publish("urn:a", {})
    store.client.set(store.dead_key, "a string")
    consumer = consumer_of({"urn:a": fail}, max_tries=1, on_error=print)
    with pytest.raises(SettlementError) as caught:
        consumer.poll(0)
    (step,) = sees.of(Settling)
    assert (step.intended, step.outcome) == (Outcome.DEAD_LETTERED, None)
    assert sees.errors == [caught.value]


def test_a_hook_that_raises_changes_nothing(
    publisher: RedisPublisher,
    consumer_of: Make,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged, and the step is taken."""

    class Raises(hooks.Hook):
        def _fail(self, _: object) -> Any:
            fail()

        settling = receiving = serving = _fail  # type: ignore[assignment]  # one for all

    publisher.publish_many([("urn:a", {})] * 2)
    consumer = consumer_of({"urn:a": lambda envelope: None})
    monkeypatch.setattr(hooks, "_registered", (Raises(),))
    taken = consumer.reserve(0)
    assert taken is not None
    assert consumer.handle(taken) is Outcome.ACKED
    left = iter([True, False])
    assert consumer.run(lambda: next(left)) == 1
    assert store.counts() == {}
    for step in ("receiving", "settling", "serving"):
        assert f"failed before {step}" in caplog.text
