"""`span`: one step of a traced agent, as a call, a context manager or a decorator."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from functools import partial
from time import time_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast, overload

from repotrace.journal import message_of, new_id
from repotrace.records.events import Kind
from repotrace.sdk.retries import Attempt
from repotrace.sdk.values import as_text, call_text, failure_of, is_awaitable

if TYPE_CHECKING:
    from repotrace.sdk.active import ActiveRun

STATEFUL = frozenset({"edit", "tool", "tool_call", "command", "test"})
"""Types of spans that keep the files before and after them."""

_USAGE = frozenset(
    {
        *("model", "provider", "tokens", "input_tokens", "output_tokens", "cache_read_tokens"),
        *("cache_write_tokens", "reasoning_tokens", "cost_usd", "stop_reason", "request_id"),
        *("purpose", "messages"),
    }
)
"""What `Span.set` takes as facts of a model call."""

_current: ContextVar[Span | None] = ContextVar("repotrace_span", default=None)
_outer: Span | None = None
"""The last that `inherited_span` gave."""
_main_thread = threading.main_thread().ident
_forks = 0
"""How many forks lie between this process and the one that imported us."""


class Span:
    """One step of a run while it is going on. Without a traced agent around it, it does nothing.

    Entering it (`with`, `async with`) begins the step, leaving it ends it. Called with a function
    before that, it is a decorator: each call of the function is a span of its own.
    """

    __slots__ = (
        *("_copies", "_facts", "_forks", "_input", "_open", "_origin", "_outputs", "_parent"),
        *("_reason", "_retry_of", "_run", "_started", "_stateful", "_token", "_usage"),
        *("attempt", "attributes"),
        *("failure", "id", "name", "type"),
    )

    def __init__(
        self,
        name: str,
        type: str | None = None,  # noqa: A002 - the word that callers know
        input: object = None,  # noqa: A002
        reason: str | None = None,
        retry_of: object = None,
        attributes: dict[str, Any] | None = None,
    ) -> None:
        self.name = name if isinstance(name, str) else as_text(name) or "span"
        self.type = type or "span"
        self.attributes = attributes or {}
        self.id: str | None = None
        """Of the step; None outside of a traced agent and before it has begun."""
        self.attempt = 1
        self.failure: str | None = None
        self._input = input
        self._reason = reason
        self._retry_of = retry_of
        self._outputs: object = None
        self._usage: dict[str, Any] | None = None
        self._run: ActiveRun | None = None
        self._parent: Span | None = None
        self._token: Token[Span | None] | None = None
        self._stateful = self.type in STATEFUL
        self._started = 0
        self._open = False
        self._facts: dict[str, Any] | None = None
        self._forks = 0
        self._origin: Span | None = None
        self._copies = 0

    def __repr__(self) -> str:
        return f"Span({self.name!r}, type={self.type!r}, id={self.id!r})"

    # --- What a program says ----------------------------------------------------------------

    @property
    def output(self) -> object:
        """What came out of the step; the result of the function where one is run."""
        return self._outputs

    @output.setter
    def output(self, value: object) -> None:
        self._outputs = value

    @property
    def run_id(self) -> str | None:
        """Id of the run that is recorded; None outside of a traced agent."""
        return None if self._run is None else self._run.id

    def set(self, **facts: Any) -> Self:
        """Say more of the step.

        `tokens`, `model`, `input_tokens`, `cost_usd` and the like are those of a model call;
        `reason` is the model's words that led here; anything else is an attribute.
        """
        for name, value in facts.items():
            if name in _USAGE:
                if self._usage is None:
                    self._usage = {}
                self._usage[name] = value
            elif name == "reason":
                self._reason = as_text(value)
                if self._open and self._run is not None and self.id is not None:
                    self._run.recorder.update_step(self.id, reason=self._reason)
            else:
                self.attributes[name] = value
        return self

    def error(self, message: object) -> Self:
        """Say that the step failed, though nothing is raised."""
        self.failure = as_text(message) or "failed"
        return self

    # --- Begin and end ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._open:
            return cast(Self, self._again().__enter__())
        run = self._find()
        if run is not None:
            self._begin(run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        span = self._entered() if self._copies else self
        if span._open:
            span._leave()
            span._finish(error)
        elif _current.get() is span:  # another thread has ended it
            _current.set(span._parent)

    async def __aenter__(self) -> Self:
        if self._open:
            return cast(Self, await self._again().__aenter__())
        run = self._find()
        if run is None:
            return self
        if self._stateful:
            from repotrace.sdk.waiting import beside

            try:
                await beside(lambda: self._begin_with_state(run))
            except BaseException as error:  # cancelled, and nobody will leave what is begun
                await beside(partial(self._finish, error))
                raise
            self._token = _current.set(self)
        else:
            self._begin(run)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        span = self._entered() if self._copies else self
        if not span._open or not span._stateful:
            span.__exit__(kind, error, trace)
            return
        from repotrace.sdk.waiting import beside

        span._leave()
        await beside(partial(span._finish, error))

    def _again(self) -> Span:
        """A span like this one, which is going on: it was entered again, or by another thread."""
        copy = Span(
            self.name, self.type, self._input, self._reason, self._retry_of, dict(self.attributes)
        )
        copy._origin = self
        self._copies += 1
        return copy

    def _entered(self) -> Span:
        """Which one of this span and its copies is the one that is left here."""
        here = _current.get()
        return here if here is not None and here._origin is self else self

    def _find(self) -> ActiveRun | None:
        """The run that this span belongs to; its parent is noted."""
        parent = _current.get()
        if parent is None:
            parent = inherited_span()
            if parent is None:
                return None
        self._parent = parent
        return parent._run

    def _begin(self, run: ActiveRun, *, state_later: bool = False) -> None:
        if self._stateful and not state_later:
            self._begin_with_state(run)
        else:
            self._prepare(run)
            run.recorder.write(Kind.STEP_STARTED, self._start_facts(), self._started)
        self._token = _current.set(self)

    def _begin_with_state(self, run: ActiveRun) -> None:
        self._prepare(run)
        facts = self._start_facts()
        name = facts.pop("step_type")
        run.recorder.start_step(
            name, facts.pop("description"), step_id=facts.pop("id"), with_state=True, **facts
        )
        run.children.enter_step(self.id)

    def _prepare(self, run: ActiveRun) -> None:
        if self.id is not None:  # it was used before
            self.failure = self._outputs = self._usage = None
        self._run = run
        self._forks = _forks
        self._started = time_ns()
        self.id = new_id(self._started)
        self._open = True
        self.attempt, retried = run.retries.begin(self.name, self.type, self._retry_of)
        self._facts = {"attempt": self.attempt, "retry_of": retried} if retried else None

    def _start_facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"id": self.id, "step_type": self.type, "description": self.name}
        parent = self._parent
        if parent is not None and parent.id is not None:
            facts["parent_id"] = parent.id
        if self._input is not None:
            facts["input_context"] = as_text(self._input)
        if self._reason is not None:
            facts["reason"] = self._reason
        if self._facts is not None:
            facts.update(self._facts)
        metadata: dict[str, Any] = {}
        if self.attributes:
            metadata["attributes"] = dict(self.attributes)
        if threading.get_ident() != _main_thread:
            metadata["thread"] = threading.current_thread().name
        if metadata:
            facts["metadata"] = metadata
        return facts

    def _leave(self) -> None:
        """Make the parent the current span again, whatever happened to the context."""
        token, self._token = self._token, None
        if token is None:
            return
        try:
            _current.reset(token)
        except ValueError:  # left in another context than it was entered in
            if _current.get() is self:
                _current.set(self._parent)

    def _finish(self, error: BaseException | None = None) -> None:
        """Tell the journal that the step is over."""
        run, name = self._run, self.id
        if run is None or name is None or not self._open:
            return
        self._open = False
        if self.is_of_parent_process:
            return
        data: dict[str, Any] = {"id": name}
        if error is not None:
            self._note(error, data)
        elif self.failure is None:
            self.failure = failure_of(self._outputs, self.type)
        if self.failure is not None:
            data["error"] = self.failure
            data.setdefault("status", "failed")
        if self._outputs is not None:
            data["output_result"] = as_text(self._outputs)
        if self.attributes:
            data["metadata"] = {"attributes": dict(self.attributes)}
        if self._stateful:
            run.recorder.take_state(name)
            run.children.leave_step(name)
        if self.type == "llm" or self._usage is not None:
            try:
                self._tell_of_call(run, data)
            except Exception as problem:  # a foreign object that cannot be looked at
                run.recorder.lose(problem)
        run.recorder.write(Kind.STEP_ENDED, data)
        failed = self.failure is not None
        run.retries.end(self.name, Attempt(name, self.attempt, failed, self.type))

    @property
    def is_of_parent_process(self) -> bool:
        """Whether a process began it that has forked since; only that one ends it."""
        return self._forks != _forks

    def _note(self, error: BaseException, data: dict[str, Any]) -> None:
        if isinstance(error, GeneratorExit):
            return
        self.failure = message_of(error)
        if is_interrupt(error):
            data["status"] = "interrupted"

    def _tell_of_call(self, run: ActiveRun, data: dict[str, Any]) -> None:
        """A span of a model is a model call, unless it has told of its calls itself."""
        from repotrace.sdk.responses import facts_of

        facts = facts_of(self._outputs) if self._outputs is not None else {}
        if (self._facts or {}).get("calls_told"):
            if facts.get("response"):
                data["output_result"] = facts["response"]
            return
        usage = dict(self._usage or {})
        if "tokens" in usage:
            usage["tokens_used"] = usage.pop("tokens")
        if facts:
            data["output_result"] = facts.get("response") or data.get("output_result")
        known = {
            "step_id": self.id,
            "prompt": as_text(self._input),
            "response": data.get("output_result"),
            "duration": (time_ns() - self._started) / 1e9,
            "error": self.failure,
        }
        merged = known | facts | {k: v for k, v in usage.items() if v is not None}
        run.recorder.record_llm(
            sent_at=self._started, **{k: v for k, v in merged.items() if v is not None}
        )

    def calls_are_told(self) -> None:
        """The span's model calls are recorded one by one; none is to be made of it."""
        self._facts = (self._facts or {}) | {"calls_told": True}

    # --- Functions --------------------------------------------------------------------------

    def __call__[**P, T](self, function: Callable[P, T]) -> Callable[P, T]:
        """Decorate `function`: each call of it is a span like this one."""
        from repotrace.sdk.wrapping import traced

        def fresh(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Span:
            given = self._input
            return Span(
                self.name,
                self.type,
                given if given is not None else call_text(function, args, kwargs),
                self._reason,
                self._retry_of,
                dict(self.attributes),
            )

        wrapped: Callable[P, T] = traced(function, fresh)
        return wrapped

    def run_function(self, function: Callable[[], Any]) -> Any:
        """The result of `function`, run in this span; an awaitable is awaited in it.

        The span of an awaitable ends when that is done, so the result is a coroutine then. The
        state before it is taken beside the event loop, once it is known to be one. What is not
        awaitable blocks the loop anyway, so its states may do so, too.
        """
        run = self._find()
        if run is None:
            return function()
        later = self._stateful and _in_event_loop() and _may_give_awaitable(function)
        self._begin(run, state_later=later)
        try:
            result = function()
        except BaseException as error:
            self._leave()
            self._finish(error)
            raise
        self._leave()
        if is_awaitable(result):
            return self._await(result, state_later=later)
        self._outputs = result if self._outputs is None else self._outputs
        self._finish()
        return result

    async def _await(self, awaitable: Awaitable[Any], *, state_later: bool = False) -> Any:
        assert self._run is not None
        if state_later and self.id is not None:
            from repotrace.sdk.waiting import beside

            recorder, name = self._run.recorder, self.id
            try:
                await beside(lambda: recorder.begin_state(name))
            except BaseException as error:  # cancelled before it was awaited
                close = getattr(awaitable, "close", None)
                if close is not None:
                    close()
                await beside(partial(self._finish, error))
                raise
            self._run.children.enter_step(name)
        self._token = _current.set(self)
        try:
            result = await awaitable
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        self._outputs = result if self._outputs is None else self._outputs
        await self.__aexit__(None, None, None)
        return result


@overload
def span(
    name: str,
    fn: None = None,
    *,
    type: str | None = None,
    input: object = None,
    reason: str | None = None,
    retry_of: object = None,
    **attributes: Any,
) -> Span: ...


@overload
def span[T](
    name: str,
    fn: Callable[[], T],
    *,
    type: str | None = None,
    input: object = None,
    reason: str | None = None,
    retry_of: object = None,
    **attributes: Any,
) -> T: ...


def span(
    name: str,
    fn: Callable[[], Any] | None = None,
    *,
    type: str | None = None,  # noqa: A002 - the words that callers know
    input: object = None,  # noqa: A002
    reason: str | None = None,
    retry_of: object = None,
    **attributes: Any,
) -> Any:
    """One step of the traced agent that is running; elsewhere it only calls through.

    With `fn` it is run without arguments and its result returned; what is awaitable is to be
    awaited (`await span("test", lambda: test())`). Without `fn` the result is for `with`,
    `async with`, or to decorate a function.

    `type`: llm, tool, edit, command, test, planning, or a word of your own; those in `STATEFUL`
    keep the files before and after. `input` is what goes into the step, `reason` the words that
    led to it, `retry_of` a span, its id or its name. Anything else is an attribute.
    """
    if fn is None:
        return Span(name, type, input, reason, retry_of, attributes)
    if _current.get() is None and not may_inherit():
        return fn()
    return Span(name, type, input, reason, retry_of, attributes).run_function(fn)


def current_span() -> Span | None:
    """The span that is going on here; None outside of a traced agent."""
    return _current.get()


def inherited_span() -> Span | None:
    """The step of another process that started this one; None if it is on its own."""
    global _outer
    from repotrace.sdk.active import inherited

    found = inherited()
    if found is None:
        return None
    run, step_id = found
    if _outer is None or _outer._run is not run:
        outer = Span("outer")
        outer.id, outer._run = step_id, run
        _outer = outer
    return _outer


def forks() -> int:
    """How many forks lie between this process and the one that imported us."""
    return _forks


def may_inherit() -> bool:
    """Whether this process may belong to a run that another one records."""
    active = sys.modules.get("repotrace.sdk.active")
    return active is None or active.may_inherit


def is_interrupt(error: BaseException) -> bool:
    """Whether somebody stopped the program, rather than that it failed."""
    return isinstance(error, KeyboardInterrupt) or type(error).__name__ == "CancelledError"


def _after_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _may_give_awaitable(function: object) -> bool:
    """Whether it is a coroutine function, or may call one as a lambda does."""
    code = getattr(function, "__code__", None)
    return code is None or bool(code.co_flags & 0x80) or code.co_name == "<lambda>"


def _in_event_loop() -> bool:
    running = sys.modules.get("asyncio.events")
    return running is not None and running._get_running_loop() is not None
