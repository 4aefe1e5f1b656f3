"""A cluster on the loopback interface."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot

from kit.redis_server import any_binary, free_port
from tests.support.server import Client
from tests.support.waiting import eventually

SLOTS = 16_384
_BUS = 10_000
"""A node talks to the others on the port so much above its own."""


class Node:
    """A server of the cluster, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        while self.port + _BUS > 65_535:
            self.port = free_port()
        folder.mkdir()
        options = {
            "--port": self.port,
            "--bind": "127.0.0.1",
            "--dir": folder,
            "--save": "",
            "--cluster-enabled": "yes",
            "--cluster-node-timeout": 1500,
            "--repl-diskless-sync-delay": 0,
        }
        words = [str(word) for option in options.items() for word in option]
        command = [str(any_binary()), *words]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client: Client = redis.Redis(port=self.port)
        eventually(self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self.client.ping())
        return False

    def says(self, *words: Any) -> str:
        """Ask something of ``CLUSTER``."""
        reply = self.client.execute_command("CLUSTER", *words)
        return reply.decode() if isinstance(reply, bytes) else str(reply)

    def kill(self) -> None:
        """End it without a word to the others."""
        self.process.kill()
        self.process.wait()


class Cluster:
    """Three masters that share the slots, and replicas where they are asked for."""

    def __init__(self, folder: Path, *, replicas: int = 0) -> None:
        self.nodes = [Node(folder / f"node-{n}") for n in range(3 + replicas)]
        first, *others = self.nodes
        for node in others:
            node.says("MEET", "127.0.0.1", first.port)
        bounds = [n * SLOTS // 3 for n in range(4)]
        for n in range(3):
            self.nodes[n].says("ADDSLOTS", *range(bounds[n], bounds[n + 1]))
        eventually(lambda: all(self._knows_all(node) for node in self.nodes))
        for n, node in enumerate(self.nodes[3:]):
            node.says("REPLICATE", self.nodes[n % 3].says("MYID"))
            eventually(lambda: node.client.info("replication").get("master_link_status") == "up")  # noqa: B023 - called within the turn
        eventually(lambda: all("cluster_state:ok" in node.says("INFO") for node in self.nodes))

    def _knows_all(self, node: Node) -> bool:
        return f"cluster_known_nodes:{len(self.nodes)}" in node.says("INFO")

    def owner(self, key: str) -> Node:
        """Return the first master of a key."""
        return self.nodes[key_slot(key.encode()) * 3 // SLOTS]

    def end(self) -> None:
        """Leave no process behind."""
        for node in self.nodes:
            node.kill()


@contextlib.contextmanager
def cluster_in(folder: Path, *, replicas: int = 0) -> Iterator[Cluster]:
    """Run a cluster for as long as the block lasts."""
    cluster = Cluster(folder, replicas=replicas)
    try:
        yield cluster
    finally:
        cluster.end()
