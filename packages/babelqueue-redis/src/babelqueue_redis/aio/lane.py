"""Where a handler runs: a coroutine in the calling task, a plain function in a thread."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

from babelqueue_redis.aio.job_thread import in_thread
from babelqueue_redis.core.routing import call, check_result
from babelqueue_redis.values import Delivery


class Lane:
    """Where a handler runs: a coroutine in the calling task, a plain function in a thread."""

    awaits = True
    interrupted = False

    async def run(self, delivery: Delivery) -> None:
        """Run a delivery's handler, or raise why there is none to run.

        A plain function sees the context of the task. It cannot be cancelled: its thread goes on.
        A handler that was cancelled, and turns that into an error of its own, did not fail; one
        that awaits something else that was cancelled did.
        """
        try:
            if delivery.refusal or delivery.handler is None or delivery.handler.awaits:
                await _awaited(call(delivery))
            else:
                await finish(functools.partial(call, delivery), awaits=False)
        except asyncio.CancelledError as error:
            if not self._cancelled(default=True):
                msg = "what the handler awaited was cancelled"
                raise RuntimeError(msg) from error
            raise
        except Exception as error:
            if self._cancelled(default=False):
                raise asyncio.CancelledError from error
            raise

    def interrupt(self) -> None:
        """Note that the handler is cancelled by a shutdown."""
        self.interrupted = True

    def _cancelled(self, *, default: bool) -> bool:
        """Tell whether the task that runs the handler was cancelled.

        Python tells that from 3.11 on; before, ``default`` is assumed.
        """
        asked = getattr(asyncio.current_task(), "cancelling", None)
        return self.interrupted or (default if asked is None else asked() > 0)

    async def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a user's function, and await what it returns if that is to be awaited."""
        await _awaited(function(*args))


async def finish(call: Callable[[], Any], *, awaits: bool) -> None:
    """Call a handler and see it to its end: a plain function in a thread, what it returns here."""
    if awaits:
        await _awaited(call())
        return
    result, error = await in_thread(lambda: _contained(call))
    if error is not None:
        raise error
    await _awaited(result)


def _contained(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return what a call returns or raises: a ``GeneratorExit`` would close who awaits it."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again by who awaits
        return None, error


async def _awaited(result: object) -> None:
    if inspect.isawaitable(result):
        await result
    else:
        check_result(result)
