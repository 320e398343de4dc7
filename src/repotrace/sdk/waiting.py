"""Work beside the event loop that is done to its end, whatever happens to the task."""

from __future__ import annotations

from asyncio import CancelledError, get_running_loop, shield
from collections.abc import Callable
from contextvars import copy_context


async def beside[T](work: Callable[[], T]) -> T:
    """What `work` returns, done in a thread. A cancellation is raised when it is done."""
    future = get_running_loop().run_in_executor(None, copy_context().run, work)
    cancelled: CancelledError | None = None
    while not future.done():
        try:
            await shield(future)
        except CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return future.result()
