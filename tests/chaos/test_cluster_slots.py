"""While a slot moves from one node of a cluster to another, nothing is lost and nothing doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.crc import key_slot

from babelqueue_redis import PublishError, RedisConsumer, RedisPublisher, TransportError
from tests.support.cluster import Cluster, Node
from tests.support.running import running
from tests.support.shells import Shell
from tests.support.waiting import eventually

ClientOf = Callable[[int], Any]


class Move:
    """A slot on its way, as an operator moves it: key by key."""

    def __init__(self, cluster: Cluster, key: str) -> None:
        self.cluster = cluster
        self.slot = key_slot(key.encode())
        self.source = cluster.owner(key)
        self.target = next(node for node in cluster.nodes if node is not self.source)

    def begin(self) -> None:
        """Keys that are at the source stay there; asked for others, it says ``ASK``."""
        self.target.says("SETSLOT", self.slot, "IMPORTING", self.source.says("MYID"))
        self.source.says("SETSLOT", self.slot, "MIGRATING", self.target.says("MYID"))

    def keys(self, node: Node) -> list[bytes]:
        """Return what a node holds of the slot."""
        found: list[bytes] = node.client.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 99)
        return found

    def steps(self) -> Iterator[bytes]:
        """Move one key after the other."""
        while keys := self.keys(self.source):
            self.source.client.migrate("127.0.0.1", self.target.port, keys[:1], 0, 5000)
            yield keys[0]

    def end(self) -> None:
        """The slot is the target's."""
        for node in (self.target, self.source, *self.cluster.nodes):
            node.says("SETSLOT", self.slot, "NODE", self.target.says("MYID"))


def test_messages_are_handled_once_each_while_their_slot_moves(
    cluster: Cluster, client_of: ClientOf, shell: Shell, queue: str, layout: str
) -> None:
    """A publish is stored, or refused with an error that says that it is not."""
    name = f"{{{queue}}}"
    move = Move(cluster, name if layout == "legacy" else f"queues:{name}")
    client = client_of(move.source.port)
    publisher: RedisPublisher = shell.make("publisher", client, name, layout=layout)
    seen: Counter[int] = Counter()
    stored: set[int] = set()
    doubtful: list[bool] = []

    def handle(envelope: Any) -> None:
        seen[envelope.data["n"]] += 1

    def publish(number: int) -> bool:
        try:
            publisher.publish("urn:a", {"n": number})
        except PublishError as error:
            doubtful.append(error.may_be_stored)
            return False
        stored.add(number)
        return True

    consumer: RedisConsumer = shell.make("consumer", client, name, {"urn:a": handle}, layout=layout)
    for number in range(5):
        assert publish(number)
    reservation = consumer.reserve(0)
    assert reservation is not None
    move.begin()
    for number in range(5, 10):
        publish(number)
    # The ack has keys that do not exist: no node can tell where they are.
    assert not succeeds(lambda: consumer.handle(reservation))
    for number, _ in enumerate(move.steps(), 10):
        publish(number)
    assert not publish(20)
    with running(consumer):
        move.end()
        eventually(lambda: publish(21))
        eventually(lambda: seen.keys() == stored)
    assert move.keys(move.source) == []
    assert set(seen.values()) == {1}
    assert consumer.handle(reservation) == "acked"
    assert not any(doubtful)
    assert move.keys(move.target) == []


def test_jobs_are_stored_and_done_once_each_while_their_slot_moves(
    cluster: Cluster, client_of: ClientOf, shell: Shell, queue: str
) -> None:
    """Calls that the nodes refuse change nothing, and work once the slot has moved."""
    prefix = f"{{{queue}}}:"
    move = Move(cluster, prefix)
    jobs = shell.make("job_store", client_of(move.source.port), key_prefix=prefix)
    ids = [jobs.enqueue("a", n) for n in range(3)]
    held = jobs.claim_due(1, "w", 60)[0]
    move.begin()
    for step in (None, *move.steps()):
        with pytest.raises(PublishError) as caught:
            jobs.enqueue("a", 9)
        assert not caught.value.may_be_stored
        for call in (lambda: jobs.complete(held), jobs.reap_stuck, lambda: jobs.cancel(ids[1])):
            with pytest.raises(TransportError):
                call()
        assert step is None or step.startswith(prefix.encode())
    move.end()
    eventually(lambda: succeeds(jobs.count_by_status))
    assert jobs.complete(held)
    rest = jobs.claim_due(9, "w", 60)
    assert [job.id for job in (held, *rest)] == ids
    assert jobs.complete_many(rest) == [True, True]
    assert jobs.count_by_status()["done"] == 3


def succeeds(call: Callable[[], object]) -> bool:
    """Tell whether a call is answered."""
    try:
        call()
    except TransportError:
        return False
    return True
