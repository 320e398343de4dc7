"""`trace_agent`: a function that acts as an agent becomes a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from repotrace.journal import message_of
from repotrace.sdk.spans import Span, _current, forks, is_interrupt
from repotrace.sdk.values import as_text, call_text, is_awaitable

if TYPE_CHECKING:
    from pathlib import Path

    from repotrace.sdk.active import ActiveRun

_OPTIONS = frozenset({"states", "redact", "text_limit", "state_deadline"})
"""What `trace_agent` hands to the recorder."""


class AgentSpan(Span):
    """The whole of a run; inside of another agent a step of it."""

    __slots__ = ("_begun", "_options", "_run_facts", "_workspace")

    def __init__(
        self,
        name: str,
        *,
        workspace: str | None,
        options: dict[str, Any],
        facts: dict[str, Any],
        attributes: dict[str, Any],
        input: object = None,  # noqa: A002 - as in the class above
    ) -> None:
        super().__init__(name, "agent", input, attributes=attributes)
        self._workspace = workspace
        self._options = options
        self._run_facts = facts
        self._begun: ActiveRun | None = None

    def __enter__(self) -> Self:
        if self._find() is not None:
            return super().__enter__()
        self._start_run()
        if self._begun is not None:
            self._token = _current.set(self)
        return self

    async def __aenter__(self) -> Self:
        if self._find() is not None:
            return await super().__aenter__()
        from repotrace.sdk.waiting import beside

        try:
            await beside(self._start_run)
        except BaseException as error:  # cancelled, and nobody will leave what is begun
            await beside(partial(self._end_run, error))
            raise
        if self._begun is not None:
            self._token = _current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._begun is None:
            super().__exit__(kind, error, trace)
            return
        self._leave()
        self._end_run(error)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._begun is None:
            await super().__aexit__(kind, error, trace)
            return
        from repotrace.sdk.waiting import beside

        self._leave()
        await beside(partial(self._end_run, error))

    def run_function(self, function: Callable[[], Any]) -> Any:
        """As `Span.run_function`."""
        if self._find() is not None:
            return super().run_function(function)
        self._start_run()
        if self._begun is None:
            return function()
        self._token = _current.set(self)
        try:
            result = function()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        if is_awaitable(result):
            self._leave()
            return self._await(result)
        self._outputs = result if self._outputs is None else self._outputs
        self.__exit__(None, None, None)
        return result

    def _start_run(self) -> None:
        from repotrace.sdk.active import begin_run, is_off

        if is_off():
            return
        facts = self._run_facts | {"agent": self.name}
        if self.attributes:
            facts["attributes"] = dict(self.attributes)
        if self._input is not None:
            facts.setdefault("task", as_text(self._input))
        self._forks = forks()
        try:
            self._run = self._begun = begin_run(self._workspace, self._options, facts)
            self._begun.children.enter()
        except Exception as error:  # the agent runs on, unrecorded
            _say(error)

    def _end_run(self, error: BaseException | None) -> None:
        run, self._begun = self._begun, None
        if run is None or self.is_of_parent_process:
            return
        try:
            run.children.leave()
            facts: dict[str, Any] = {}
            attributes = dict(self.attributes)
            if self._outputs is not None:
                attributes["result"] = as_text(self._outputs)
            if attributes:
                facts["attributes"] = attributes
            message = self.failure if error is None else message_of(error)
            status = "completed" if message is None or _is_early_end(error) else "failed"
            if error is not None and is_interrupt(error):
                status = "interrupted"
            run.recorder.end(status, error=message if status != "completed" else None, **facts)
        except Exception as problem:
            _say(problem)


def _is_early_end(error: BaseException | None) -> bool:
    """Whether the caller had enough of a generator, or the program ended as it meant to."""
    if isinstance(error, SystemExit):
        return not error.code
    return isinstance(error, GeneratorExit)


def _say(error: Exception) -> None:
    with suppress(Exception):
        sys.stderr.write(
            f"repotrace: the run is not recorded: {type(error).__name__}: {error}."
            " The program goes on.\n"
        )


@overload
def trace_agent[**P, T](
    fn: Callable[P, T],
    /,
    *,
    name: str | None = None,
    environment: str | None = None,
    task: str | None = None,
    task_id: str | None = None,
    version: str | None = None,
    tags: Iterable[str] = (),
    workspace: Path | str | None = None,
    **more: Any,
) -> Callable[P, T]: ...


@overload
def trace_agent[**P, T](
    fn: None = None,
    /,
    *,
    name: str | None = None,
    environment: str | None = None,
    task: str | None = None,
    task_id: str | None = None,
    version: str | None = None,
    tags: Iterable[str] = (),
    workspace: Path | str | None = None,
    **more: Any,
) -> Callable[[Callable[P, T]], Callable[P, T]]: ...


def trace_agent(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    environment: str | None = None,
    task: str | None = None,
    task_id: str | None = None,
    version: str | None = None,
    tags: Iterable[str] = (),
    workspace: Path | str | None = None,
    **more: Any,
) -> Any:
    """Record each call of a function as a run; within another traced agent as a step of it.

    A decorator, with arguments or without, or called with a function. Takes functions, methods,
    coroutine functions, generators and async generators; results and exceptions pass unchanged.

    `task` is what the agent was asked, by default the arguments of the call; `workspace` is the
    folder whose files are kept, by default the project that the program runs in. `more` takes
    `states=False` (keep no files), `redact=False`, `text_limit` (characters), `state_deadline`
    (seconds); anything else is an attribute of the run.
    """
    if fn is None:
        return lambda function: trace_agent(
            function,
            name=name,
            environment=environment,
            task=task,
            task_id=task_id,
            version=version,
            tags=tags,
            workspace=workspace,
            **more,
        )
    from repotrace.sdk.wrapping import traced

    function: Callable[..., Any] = fn
    named = name or getattr(function, "__name__", None) or type(function).__name__
    options = {key: value for key, value in more.items() if key in _OPTIONS}
    attributes = {key: value for key, value in more.items() if key not in _OPTIONS}
    given = {
        "environment": environment,
        "task": task,
        "task_id": task_id,
        "agent_version": version,
        "tags": list(tags) or None,
    }
    facts = {key: value for key, value in given.items() if value is not None}

    def fresh(args: tuple[Any, ...], kwargs: dict[str, Any]) -> AgentSpan:
        return AgentSpan(
            named,
            workspace=None if workspace is None else str(workspace),
            options=options,
            facts=dict(facts),
            attributes=dict(attributes),
            input=call_text(function, args, kwargs),
        )

    return traced(function, fresh)
