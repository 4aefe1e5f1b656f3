"""How a job's handler is called: a coroutine function in the task, another one in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

from babelqueue_redis.core.routing import check_result
from babelqueue_redis.jobs.registry import JobRegistry
from babelqueue_redis.jobs.running import prepared
from babelqueue_redis.jobs.values import JobRun


async def called(run: JobRun, registry: JobRegistry) -> Any:
    """Run a job's handler, and return what it returns."""
    call = prepared(run, registry)
    if registry.find(run.job.kind).awaits:
        return await call()
    result = await in_thread(call)
    check_result(result)
    return result


async def in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a thread of its own, in the context of this task.

    Unlike ``asyncio.to_thread`` it is not kept waiting by other handlers, and a function that hangs
    keeps no program from its end.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def tell(result: Any, error: BaseException | None) -> None:
        if ended.cancelled():
            return
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)

    def work() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(function)
        except StopIteration as raised:  # no future takes it
            error = RuntimeError(f"the handler raised {raised!r}")
        except BaseException as raised:  # noqa: BLE001 - whatever handlers raise
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody asks any more
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=work, name="babelqueue-job", daemon=True).start()
    return await ended
