"""Context for what a traced agent starts: threads, executors, child processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import wraps

from repotrace.sdk.environment import for_child
from repotrace.sdk.spans import current_span


def propagate[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """`function`, for another thread: what it does there belongs to the span that is open here."""
    context = copy_context()

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        # A context can be entered once at a time, and a pool may call in several threads.
        return context.copy().run(function, *args, **kwargs)

    return inside


class TracingExecutor(ThreadPoolExecutor):
    """A `ThreadPoolExecutor` whose jobs belong to the span in which they were submitted."""

    def submit[**P, T](self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As in the class above, with the context of the caller."""
        context = copy_context()
        return super().submit(lambda: context.run(fn, *args, **kwargs))


def child_environment(
    environ: Mapping[str, str] | None = None, *, command_id: str | None = None
) -> dict[str, str]:
    """A copy of `environ` (default: ours) for a child process that shall belong to this span.

    Its own spans and the outcomes of its tests become part of the run. Outside of a traced agent
    it is only a copy.
    """
    env = dict(os.environ if environ is None else environ)
    span = current_span()
    run = None if span is None else span._run
    if span is None or run is None:
        return env
    return for_child(env, run.recorder, span.id, command_id)
