"""On a cluster a queue with a hash tag works, while nodes come and go; one without is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babelqueue_redis import (
    ConfigurationError,
    Outcome,
    PublishError,
    RedisConsumer,
    RedisPublisher,
    RedisQueue,
)
from tests.support.cluster import Cluster, cluster_in
from tests.support.running import running
from tests.support.shells import Shell
from tests.support.waiting import eventually


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_tagged_queue_goes_round(
    cluster: Cluster,
    client_of: Callable[[int], Any],
    shell: Shell,
    queue: str,
    layout: str,
    start: int,
) -> None:
    """Whichever node the client knows: published, handled, retried, dead-lettered, recovered."""
    name = f"{{{queue}}}"
    client = client_of(cluster.nodes[start].port)
    publisher: RedisPublisher = shell.make("publisher", client, name, layout=layout)
    seen: list[int] = []

    def handle(envelope: Any) -> None:
        seen.append(envelope.data["n"])
        if envelope.data["n"] == 2:
            raise ValueError

    options = {"layout": layout, "max_tries": 2, "on_error": lambda *_: None}
    consumer: RedisConsumer = shell.make("consumer", client, name, {"urn:a": handle}, **options)
    publisher.publish("urn:a", {"n": 1})
    publisher.publish_many([("urn:a", {"n": 2}), ("urn:a", {"n": 3})])
    outcomes = [consumer.poll(1) for _ in range(4)]
    assert sorted(map(str, outcomes)) == ["acked", "acked", "dead_lettered", "retried"]
    assert sorted(seen) == [1, 2, 2, 3]
    assert consumer.poll(0.1) is None
    prefix = "queues:" if layout == "zset" else ""
    (letter,) = cluster.owner(f"{prefix}{name}").client.lrange(f"{prefix}{name}.dlq", 0, -1)
    assert json.loads(letter)["data"] == {"n": 2}
    operator: RedisQueue = shell.make("queue", client, name, layout=layout)
    assert (operator.counts().ready, operator.counts().dead) == (0, 1)
    assert len(operator.redrive().moved) == 1
    assert consumer.poll(1) is Outcome.RETRIED


@pytest.mark.parametrize("what", ["publisher", "consumer", "queue"])
def test_a_name_without_a_tag_is_refused_and_one_with_it_is_named(
    cluster: Cluster, client_of: Callable[[int], Any], shell: Shell, layout: str, what: str
) -> None:
    """At construction."""
    client = client_of(cluster.nodes[0].port)
    with pytest.raises(ConfigurationError, match=r"'\{orders\}'"):
        shell.make(what, client, "orders", layout=layout)
    shell.make(what, client, "{orders}", layout=layout)


def test_a_dead_letter_queue_in_another_slot_is_refused(
    cluster: Cluster, client_of: Callable[[int], Any], shell: Shell, layout: str
) -> None:
    """The script that moves a message there has to reach both."""
    client = client_of(cluster.nodes[0].port)
    with pytest.raises(ConfigurationError, match="dead_letter_queue='dead'"):
        shell.make("consumer", client, "{orders}", layout=layout, dead_letter_queue="dead")
    shell.make("consumer", client, "{orders}", layout=layout, dead_letter_queue="dead{orders}")


def test_a_client_of_one_node_is_told_what_to_pass(
    cluster: Cluster, shell: Shell, queue: str, layout: str
) -> None:
    """Where the queue is another node's; on its own it would do, until slots move."""
    key = f"{{{queue}}}" if layout == "legacy" else f"queues:{{{queue}}}"
    other = next(node for node in cluster.nodes if node is not cluster.owner(key))
    url = f"redis://127.0.0.1:{other.port}"
    with pytest.raises(PublishError, match="pass a RedisCluster") as caught:
        shell.make("publisher", url, f"{{{queue}}}", layout=layout).publish("urn:a", {})
    assert not caught.value.may_be_stored


@pytest.mark.parametrize("layout", ["zset"])
def test_a_tag_may_be_in_the_prefix(
    cluster: Cluster, client_of: Callable[[int], Any], shell: Shell, layout: str
) -> None:
    """Then all queues are on one node."""
    client = client_of(cluster.nodes[0].port)
    options: dict[str, Any] = {"layout": layout, "key_prefix": "{queues}:"}
    shell.make("publisher", client, "orders", **options).publish("urn:a", {})
    consumer = shell.make("consumer", client, "orders", {"urn:a": lambda _: None}, **options)
    assert consumer.poll(1) is Outcome.ACKED


@pytest.mark.long
def test_a_queue_survives_the_failover_of_its_node(
    client_of: Callable[[int], Any],
    shell: Shell,
    layout: str,
    queue: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker knew only the node that dies."""
    name = f"{{{queue}}}"
    with cluster_in(tmp_path, replicas=3) as cluster:
        owner = cluster.owner(name if layout == "legacy" else f"queues:{name}")
        client = client_of(owner.port)
        publisher: RedisPublisher = shell.make("publisher", client, name, layout=layout)
        seen: list[int] = []
        handlers = {"urn:a": lambda envelope: seen.append(envelope.data["n"])}
        consumer = shell.make("consumer", client, name, handlers, layout=layout)

        def published(number: int) -> bool:
            try:
                return bool(publisher.publish("urn:a", {"n": number}))
            except PublishError:
                return False

        with running(consumer):
            assert published(1)
            eventually(lambda: seen == [1])
            owner.kill()
            eventually(lambda: published(2))
            eventually(lambda: 2 in seen)
    assert "is served again" in caplog.text
