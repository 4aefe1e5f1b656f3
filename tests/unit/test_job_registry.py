from __future__ import annotations

import functools
from typing import Any

import msgspec
import pytest

from babelqueue_redis import ConfigurationError, JobRegistry, PayloadError
from babelqueue_redis.jobs.running import check_handlers, imagined


class Mail(msgspec.Struct):
    """A payload."""

    to: str


def run(registry: JobRegistry, payload: Any) -> Any:
    """Call the handler of kind ``a`` as a worker does."""
    return registry.call_of(imagined("a", payload, registry, "id"))()


def test_a_handler_takes_the_payload_as_its_type_and_the_job() -> None:
    """One argument or two; methods and partials too; the function stays what it was."""
    registry = JobRegistry()

    @registry.job("a", payload=Mail)
    def send(payload: Mail) -> str:
        return payload.to

    assert send(Mail("x")) == "x"
    assert run(registry, {"to": "y"}) == "y"
    assert registry.kinds == ("a",)
    both = JobRegistry()
    both.job("a")(functools.partial(lambda extra, payload, job: (extra, payload, job.id), 1))
    assert run(both, [2]) == (1, [2], "id")


@pytest.mark.parametrize("payload", [{"to": 1}, {}, "x", None, {"to": float("nan")}, object()])
def test_a_payload_of_another_type_is_refused(payload: object) -> None:
    """Before any handler sees it."""
    registry = JobRegistry()
    registry.job("a", payload=Mail)(lambda payload: None)
    with pytest.raises(PayloadError, match="'a'"):
        run(registry, payload)


def generates(payload: object) -> Any:
    """Would not run when called."""
    yield


class Generates:
    """So would an object's ``__call__``."""

    def __call__(self, payload: object) -> Any:
        """Never run."""
        yield


class Awaits:
    """An object that is called like a coroutine function."""

    async def __call__(self, payload: object) -> object:
        """Return the payload."""
        return payload


def test_an_object_with_an_async_call_is_a_coroutine_function() -> None:
    """So only a worker of asyncio runs it, and awaits it."""
    registry = JobRegistry()
    registry.job("a")(Awaits())
    assert registry.coroutines == ("a",)
    with pytest.raises(ConfigurationError, match="AsyncJobWorker"):
        check_handlers(registry, awaits=False)


def test_a_refused_handler_leaves_its_kind_free() -> None:
    """A second try may register one that fits; then the kind is taken."""
    registry = JobRegistry()
    with pytest.raises(TypeError):
        registry.job("a")(lambda: None)
    register = registry.job("a")
    register(lambda payload: None)
    with pytest.raises(TypeError):
        register(lambda: None)
    assert registry.kinds == ("a",)
    with pytest.raises(ConfigurationError, match="registered already"):
        registry.job("a")


@pytest.mark.parametrize(
    "handler",
    [None, dict, Generates(), generates, lambda: None, lambda a, b, c: None, lambda a, *, b: None],
)
def test_what_cannot_take_a_job_is_refused_at_once(handler: Any) -> None:
    """And the message says what a handler takes."""
    with pytest.raises(TypeError, match=r"\(payload, job\)"):
        JobRegistry().job("a")(handler)


def test_a_kind_is_registered_once_and_has_a_name_and_a_type() -> None:
    """Two handlers of one kind would be a mistake."""
    registry = JobRegistry()
    registry.job("a")
    for kind in ("a", " ", "a\0b"):
        with pytest.raises(ConfigurationError):
            registry.job(kind)
    with pytest.raises(ConfigurationError, match="msgspec can make"):
        registry.job("b", payload=list[int] | set[int])
    with pytest.raises(ConfigurationError, match="no handler"):
        registry.find("a")
