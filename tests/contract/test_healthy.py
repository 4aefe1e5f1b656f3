"""``consumer.healthy``, of consumers that run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from babelqueue_redis import RedisConsumer, RedisPublisher
from babelqueue_redis.core import pulse
from tests.support.marks import both_shells
from tests.support.proxy import proxy_to
from tests.support.running import running
from tests.support.shells import Shell
from tests.support.waiting import eventually

pytestmark = both_shells


def test_a_consumer_is_healthy_while_it_runs(consumer_of: Callable[..., RedisConsumer]) -> None:
    """Neither before its run nor after it."""
    consumer = consumer_of({})
    assert not consumer.healthy
    with running(consumer):
        eventually(lambda: consumer.healthy)
    assert not consumer.healthy


def test_an_outage_that_lasts_is_no_health(
    shell: Shell, redis_url: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back by itself once Redis does."""
    monkeypatch.setattr(pulse, "PATIENCE", 7.0)
    with proxy_to(redis_url) as proxy:
        consumer = shell.make("consumer", proxy.url, queue, {})
        with running(consumer):
            eventually(lambda: consumer.healthy)
            proxy.is_loading = True
            eventually(lambda: not consumer.healthy)
            proxy.is_loading = False
            eventually(lambda: consumer.healthy)


def test_a_handler_may_take_its_time(
    consumer_of: Callable[..., RedisConsumer],
    publisher: RedisPublisher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Until it takes longer than its reservation is extended."""
    monkeypatch.setattr(pulse, "PATIENCE", 0.5)
    entered, leave = threading.Event(), threading.Event()

    def handler(_envelope: object) -> None:
        entered.set()
        leave.wait(60)

    consumer = consumer_of({"urn:a": handler}, handler_timeout=1)
    publisher.publish("urn:a", {})
    with running(consumer):
        assert entered.wait(60)
        began = time.monotonic()
        assert consumer.healthy or time.monotonic() - began > 1
        eventually(lambda: not consumer.healthy)
        leave.set()
