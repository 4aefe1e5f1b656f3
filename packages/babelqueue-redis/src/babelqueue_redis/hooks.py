"""Where instrumentation attaches, and a user's own middleware.

A hook is a :class:`Hook` with some of its methods overridden. Each returns a context manager that
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

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Generic, TypeVar

from babelqueue_redis.core.publishing import rechecked
from babelqueue_redis.jobs.enqueuing import rechecked_job
from babelqueue_redis.jobs.values import JobRun, NewJob
from babelqueue_redis.steps import Receiving, Serving, Settling
from babelqueue_redis.values import Delivery, Outcome, Publication

T = TypeVar("T")

logger = logging.getLogger("babelqueue_redis.hooks")

_registered: tuple[Hook, ...] = ()
_NOTHING = nullcontext()


class Hook:
    """Base class of hooks; every step does nothing.

    A step may also return ``None``, when there is nothing to enclose this time.

    Attributes:
        shows_traffic: Whether the worker's own commands go through ``redis.Redis.execute_command``
            where somebody wrapped it, as a publish does: then they are seen, one by one.
    """

    shows_traffic = False

    def publishing(self, publication: Publication) -> AbstractContextManager[Publication] | None:  # noqa: ARG002 - for who overrides it
        """Enclose one publish.

        The value of the ``with`` is what gets published: the publication, or a changed copy
        (:meth:`Publication.carrying <babelqueue_redis.values.Publication.carrying>`).
        """
        return None

    def publishing_many(
        self,
        publications: tuple[Publication, ...],  # noqa: ARG002 - for who overrides it
    ) -> AbstractContextManager[tuple[Publication, ...]] | None:
        """Enclose one ``publish_many``; like :meth:`publishing`, for as many publications."""
        return None

    def processing(self, delivery: Delivery) -> AbstractContextManager[object] | None:  # noqa: ARG002 - for who overrides it
        """Enclose the handling of one delivery, in the lane that runs the handler.

        It also encloses the refusal of poison and of unknown URNs, seen as a ``PoisonError`` or an
        ``UnknownUrnError``.
        """
        return None

    def settling(self, settling: Settling) -> AbstractContextManager[object] | None:  # noqa: ARG002 - for who overrides it
        """Enclose the command that ends a reservation, after the handling."""
        return None

    def receiving(self, receiving: Receiving) -> AbstractContextManager[object] | None:  # noqa: ARG002 - for who overrides it
        """Enclose a ``reserve()`` that the program called; ``poll()`` and ``run()`` make none."""
        return None

    def serving(self, serving: Serving) -> AbstractContextManager[object] | None:  # noqa: ARG002 - for who overrides it
        """Enclose a ``run()``, from before its first message until after its last."""
        return None

    def enqueuing(self, job: NewJob) -> AbstractContextManager[NewJob] | None:  # noqa: ARG002 - for who overrides it
        """Enclose one ``enqueue`` of a job store; the value of the ``with`` is what is stored."""
        return None

    def enqueuing_many(
        self,
        jobs: tuple[NewJob, ...],  # noqa: ARG002 - for who overrides it
    ) -> AbstractContextManager[tuple[NewJob, ...]] | None:
        """Enclose one ``enqueue_many``; like :meth:`enqueuing`, for as many jobs."""
        return None

    def processing_job(self, run: JobRun) -> AbstractContextManager[object] | None:  # noqa: ARG002 - for who overrides it
        """Enclose the run of a job, in the thread or task that runs its handler.

        It also encloses the refusal of a payload, seen as a ``PayloadError``.
        """
        return None


def register(hook: Hook) -> None:
    """Add a hook for this process; a hook that is there already is not added again."""
    global _registered  # noqa: PLW0603 - one tuple, replaced whole
    unregister(hook)
    _registered = (*_registered, hook)


def unregister(hook: Hook) -> None:
    """Remove a hook. It is no error when it is not there."""
    global _registered  # noqa: PLW0603
    _registered = tuple(other for other in _registered if other is not hook)


def publishing(publication: Publication) -> AbstractContextManager[Publication]:
    """Enter every hook around a publish."""
    return _Entered("publishing", publication) if _registered else nullcontext(publication)


def publishing_many(
    publications: tuple[Publication, ...],
) -> AbstractContextManager[tuple[Publication, ...]]:
    """Enter every hook around a ``publish_many``."""
    return _Entered("publishing_many", publications) if _registered else nullcontext(publications)


def processing(delivery: Delivery) -> AbstractContextManager[object]:
    """Enter every hook around the handling of a delivery."""
    return _Entered("processing", delivery) if _registered else _NOTHING


def settling_all(steps: Sequence[Settling]) -> AbstractContextManager[list[Exception | None]]:
    """Enter every hook around settlements that travel together; ask :func:`are_registered` first.

    What sends nothing (``LEFT``) is left out. The value of the ``with`` has a place for each one's
    error, which its hooks see.
    """
    return _EnteredAll(steps)


def are_registered() -> bool:
    """Tell whether there is any hook, so that steps have somebody to be told to."""
    return bool(_registered)


def receiving(receiving: Receiving) -> AbstractContextManager[object]:
    """Enter every hook around a program's ``reserve()``."""
    return _Entered("receiving", receiving) if _registered else nullcontext(receiving)


def serving(serving: Serving) -> AbstractContextManager[object]:
    """Enter every hook around a ``run()``."""
    return _Entered("serving", serving) if _registered else nullcontext(serving)


def traffic_is_shown() -> bool:
    """Tell whether a hook wants the worker's own commands to be seen."""
    return bool(_registered) and any(hook.shows_traffic for hook in _registered)


def enqueuing(job: NewJob) -> AbstractContextManager[NewJob]:
    """Enter every hook around an ``enqueue``."""
    return _Entered("enqueuing", job) if _registered else nullcontext(job)


def enqueuing_many(jobs: tuple[NewJob, ...]) -> AbstractContextManager[tuple[NewJob, ...]]:
    """Enter every hook around an ``enqueue_many``."""
    return _Entered("enqueuing_many", jobs) if _registered else nullcontext(jobs)


def processing_job(run: JobRun) -> AbstractContextManager[object]:
    """Enter every hook around the run of a job."""
    return _Entered("processing_job", run) if _registered else nullcontext(run)


class _EnteredAll:
    """One step after the other is entered; they end in the other order, each in its own way."""

    __slots__ = ("_errors", "_open")

    def __init__(self, steps: Sequence[Settling]) -> None:
        self._errors: list[Exception | None] = [None] * len(steps)
        self._open: list[AbstractContextManager[Any]] = [
            nullcontext() if step.intended is Outcome.LEFT else _Entered("settling", step)
            for step in steps
        ]

    def __enter__(self) -> list[Exception | None]:
        for step in self._open:
            step.__enter__()
        return self._errors

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._open:
            step = self._open.pop()
            own = self._errors[len(self._open)]
            if own is None:
                step.__exit__(kind, error, traceback)
            else:
                step.__exit__(type(own), own, own.__traceback__)


_RECHECK: dict[str, Callable[[Any, Any], Any]] = {
    "publishing": rechecked,
    "publishing_many": rechecked,
    "enqueuing": rechecked_job,
    "enqueuing_many": rechecked_job,
}
"""How to check what a hook made of a step's value; the other steps' values cannot be changed."""


class _Entered(Generic[T]):
    """All hooks around one step. Class-based: five times cheaper than ``@contextmanager``."""

    __slots__ = ("_open", "_step", "_value")

    def __init__(self, step: str, value: T) -> None:
        self._step = step
        self._value: Any = value
        self._open: list[tuple[Hook, AbstractContextManager[Any]]] = []

    def __enter__(self) -> T:
        for hook in _registered:
            try:
                manager = getattr(hook, self._step)(self._value)
                if manager is None:
                    continue
                value = manager.__enter__()
            except Exception:
                logger.exception("hook %s failed before %s", type(hook).__qualname__, self._step)
            except BaseException as error:
                self.__exit__(type(error), error, error.__traceback__)
                raise
            else:
                self._open.append((hook, manager))
                if value is not None and value is not self._value:
                    self._take(hook, value)
        return self._value  # type: ignore[no-any-return]  # a T, or a hook's checked copy of it

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._open:
            hook, manager = self._open.pop()
            try:
                manager.__exit__(kind, error, traceback)
            except Exception as raised:
                if raised is not error:
                    name = type(hook).__qualname__
                    logger.exception("hook %s failed after %s", name, self._step)
            except BaseException as raised:
                if raised is not error:
                    self.__exit__(type(raised), raised, raised.__traceback__)
                    raise

    def _take(self, hook: Hook, value: Any) -> None:
        """Go on with a hook's changed publications or jobs, if they can be written."""
        recheck = _RECHECK.get(self._step)
        if recheck is None:
            return
        try:
            if isinstance(self._value, tuple):
                pairs = zip(value, self._value, strict=True)
                checked: Any = tuple(recheck(*pair) for pair in pairs)
            else:
                checked = recheck(value, self._value)
        except Exception:
            logger.exception("hook %s made no publication or job", type(hook).__qualname__)
        else:
            self._value = checked
