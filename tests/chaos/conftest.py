"""Layouts and shells that a promise may ask for; clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from kit.redis_server import any_binary
from tests.support.cluster import Cluster, cluster_in


@pytest.fixture(params=["legacy", "zset"])
def layout(request: pytest.FixtureRequest) -> str:
    """Both layouts."""
    return str(request.param)


@pytest.fixture(params=["sync", "aio"])
def kind(request: pytest.FixtureRequest) -> str:
    """Both shells."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three masters."""
    if any_binary() is None:
        pytest.skip("no Redis binary")
    with cluster_in(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def client_of(kind: str) -> Callable[[int], Any]:
    """Make a cluster client of the kind that knows one node."""

    def make(port: int) -> Any:
        made: Any = redis.RedisCluster if kind == "sync" else redis.asyncio.RedisCluster
        return made(host="127.0.0.1", port=port)

    return make
