"""Where instrumentation attaches, and a user's own middleware.

A hook is an object with any of the methods of :class:`Hook`. Each returns a context manager that
is entered around the step it is named after, in the thread or task that does the step. Hooks are
registered for the process, so they also see publishers and consumers made earlier::

    class CloseDatabaseSessions(Hook):
        @contextmanager
        def processing(self, delivery):
            with Session() as session:
                yield

    register(CloseDatabaseSessions())

An exception of the step passes through the ``with`` and is seen there; a hook cannot swallow it.
An exception of the hook itself is logged and changes nothing: the step runs exactly once.
"""

from __future__ import annotations

import contextlib
import logging
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

from babelqueue_redis.values import Delivery, Publication

T = TypeVar("T")

logger = logging.getLogger("babelqueue_redis.hooks")

_registered: tuple[Hook, ...] = ()


class Hook:
    """Base class of hooks; every step does nothing."""

    def publishing(self, publication: Publication) -> AbstractContextManager[Publication]:
        """Enclose one publish.

        The value of the ``with`` is what gets published: the publication, or a changed copy.
        """
        return contextlib.nullcontext(publication)

    def publishing_many(
        self, publications: tuple[Publication, ...]
    ) -> AbstractContextManager[tuple[Publication, ...]]:
        """Enclose one ``publish_many``; like :meth:`publishing`, for as many publications."""
        return contextlib.nullcontext(publications)

    def processing(self, delivery: Delivery) -> AbstractContextManager[object]:
        """Enclose the handling of one delivery, in the lane that runs the handler.

        It also encloses the refusal of poison and of unknown URNs, seen as a ``PoisonError`` or an
        ``UnknownUrnError``.
        """
        return contextlib.nullcontext(delivery)


def register(hook: Hook) -> None:
    """Add a hook for this process; a hook that is there already is not added again."""
    global _registered  # noqa: PLW0603 - one tuple, replaced whole
    if hook not in _registered:
        _registered = (*_registered, hook)


def unregister(hook: Hook) -> None:
    """Remove a hook. It is no error when it is not there."""
    global _registered  # noqa: PLW0603
    _registered = tuple(other for other in _registered if other is not hook)


def publishing(publication: Publication) -> AbstractContextManager[Publication]:
    """Enter every hook around a publish."""
    return _Entered("publishing", publication) if _registered else _Plain(publication)


def publishing_many(
    publications: tuple[Publication, ...],
) -> AbstractContextManager[tuple[Publication, ...]]:
    """Enter every hook around a ``publish_many``."""
    return _Entered("publishing_many", publications) if _registered else _Plain(publications)


def processing(delivery: Delivery) -> AbstractContextManager[object]:
    """Enter every hook around the handling of a delivery."""
    return _Entered("processing", delivery) if _registered else _Plain(delivery)


class _Plain(Generic[T]):
    """No hooks, no cost."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __enter__(self) -> T:
        return self._value

    def __exit__(self, *_: object) -> None:
        return None


class _Entered(Generic[T]):
    """All hooks around one step. Class-based: five times cheaper than ``@contextmanager``."""

    __slots__ = ("_open", "_step", "_value")

    def __init__(self, step: str, value: T) -> None:
        self._step = step
        self._value = value
        self._open: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> T:
        for hook in _registered:
            try:
                manager = getattr(hook, self._step)(self._value)
                value = manager.__enter__()
            except Exception:
                logger.exception("hook %s failed before %s", _name(hook), self._step)
            else:
                self._open.append(manager)
                self._value = self._checked(hook, value)
        return self._value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for manager in reversed(self._open):
            try:
                manager.__exit__(kind, error, traceback)
            except Exception as raised:
                if raised is not error:
                    logger.exception("hook %s failed after %s", _name(manager), self._step)

    def _checked(self, hook: Hook, value: Any) -> T:  # noqa: ANN401 - whatever the hook gave
        """Take a hook's changed value, if it is one."""
        if self._step == "processing" or value is None:
            return self._value
        old = self._value if isinstance(self._value, tuple) else (self._value,)
        new = value if isinstance(value, tuple) else (value,)
        if [type(item) for item in new] == [type(item) for item in old]:
            return value  # type: ignore[no-any-return]  # checked on the line above
        logger.error("hook %s gave %s for %s", _name(hook), type(value).__name__, self._step)
        return self._value


def _name(hook: object) -> str:
    return type(hook).__qualname__
