"""What a worker is to run: ``module:attribute``, made into something with a ``run()``."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from babelqueue_redis import (
    AsyncJobWorker,
    AsyncRedisConsumer,
    AsyncRedisWorker,
    JobWorker,
    RedisConsumer,
    RedisWorker,
)
from babelqueue_redis.cli.session import Session
from babelqueue_redis.core.routing import is_kind
from babelqueue_redis.errors import ConfigurationError
from babelqueue_redis.redis_py import cluster_client

_READY_MADE = (
    *(RedisConsumer, RedisWorker, JobWorker),
    *(AsyncRedisConsumer, AsyncRedisWorker, AsyncJobWorker),
)


@dataclasses.dataclass(frozen=True)
class Target:
    """Something that can be run until it is told to stop.

    Attributes:
        run: Runs it, and returns how many messages or jobs it handled.
        healthy: Tells whether it is; ``None`` where it cannot tell.
        label: What it does, for people.
    """

    run: Callable[[], int]
    healthy: Callable[[], bool] | None
    label: str


def target_of(name: str, session: Session, queues: list[str], options: dict[str, Any]) -> Target:
    """Import ``name`` and make a target of it.

    Args:
        name: As in ``module:attribute``.
        session: The Redis and the layout, for handlers.
        queues: Which queues handlers are for, in the order of their priority.
        options: Those of the consumers that were given.

    Raises:
        ConfigurationError: It cannot be imported or run, or not with these options.
    """
    found = _load(name)
    if isinstance(found, _READY_MADE):
        if queues or options:
            given = ", ".join(f"--{each.replace('_', '-')}" for each in ["queue", *options])
            msg = f"{name} is a {type(found).__name__} with options of its own: leave out {given}"
            raise ConfigurationError(msg)
        return _runnable(found, name)
    if not isinstance(found, Mapping):
        kinds = ", ".join(each.__name__ for each in _READY_MADE)
        msg = (
            f"{name} is a {type(found).__name__}: a worker runs a mapping of URNs to handlers, "
            f"or one of {kinds}"
        )
        raise ConfigurationError(msg)
    if not queues:
        msg = f"{name} is a mapping of handlers: say with --queue which queue they are for"
        raise ConfigurationError(msg)
    return _runnable(_consumer(found, session, queues, options), f"{', '.join(queues)} with {name}")


def _load(name: str) -> object:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        msg = f"{name!r} names nothing to run: write it as module:attribute"
        raise ConfigurationError(msg)
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path holds text
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - likewise
    try:
        importlib.import_module(module)
        return pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _failed(module, error) from error
        msg = f"there is no module {error.name!r}, in this folder or on the path"
        raise ConfigurationError(msg) from error
    except AttributeError as error:
        if sys.modules.get(module) is None:  # it was raised in the module
            raise _failed(module, error) from error
        msg = f"module {module!r} has no {attribute!r}"
        raise ConfigurationError(msg) from error
    except (Exception, SystemExit) as error:
        raise _failed(module, error) from error


def _failed(module: str, error: BaseException) -> ConfigurationError:
    """Show where a module of the user's failed."""
    traceback.print_exception(type(error), error, error.__traceback__)
    return ConfigurationError(f"module {module!r} cannot be imported: {type(error).__name__}")


def _consumer(
    handlers: Mapping[str, Callable[..., Any]],
    session: Session,
    queues: list[str],
    options: dict[str, Any],
) -> Any:
    awaits = any(is_kind(inspect.iscoroutinefunction, each) for each in handlers.values())
    made: Any = AsyncRedisConsumer if awaits else RedisConsumer
    several: Any = AsyncRedisWorker if awaits else RedisWorker
    layout: dict[str, Any] = {"layout": session.layout, "key_prefix": session.queue_prefix}
    try:
        client = cluster_client(session.url, awaits=awaits) if session.is_cluster else session.url
        consumers = [made(client, each, handlers, **layout, **options) for each in queues]
    except TypeError as error:  # of a handler
        raise ConfigurationError(str(error)) from error
    if len(consumers) == 1:
        return consumers[0]
    return several(consumers)


def _runnable(worker: Any, label: str) -> Target:
    def run() -> int:
        handled = worker.run()
        return int(asyncio.run(handled) if inspect.iscoroutine(handled) else handled)

    has_health = hasattr(type(worker), "healthy")
    return Target(run, (lambda: bool(worker.healthy)) if has_health else None, label)
