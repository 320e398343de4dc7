"""Functions of every kind, made to run in a span of their own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import Context, copy_context
from functools import wraps
from typing import Any, Protocol


class Wrapping(AbstractContextManager[Any], AbstractAsyncContextManager[Any], Protocol):
    """What a call runs in: a span."""

    output: object
    """What came of the call; None as long as nobody said it."""

    def run_function(self, function: Callable[[], Any]) -> Any:
        """The result of `function`, run in this span; an awaitable is awaited in it."""


type Opener = Callable[[tuple[Any, ...], dict[str, Any]], Wrapping]
"""Makes the span of one call from its arguments."""

_COROUTINE, _GENERATOR, _ASYNC_GENERATOR = 0x80, 0x20, 0x200  # inspect.CO_*


def traced(function: Callable[..., Any], opener: Opener) -> Any:
    """`function`, each of whose calls runs in the span that `opener` makes for it."""
    flags = _flags(function)
    if flags & _ASYNC_GENERATOR:
        return _async_generator(function, opener)
    if flags & _GENERATOR:
        return _generator(function, opener)
    if flags & _COROUTINE:
        return _coroutine(function, opener)

    @wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return opener(args, kwargs).run_function(lambda: function(*args, **kwargs))

    return call


def _flags(function: Any) -> int:
    """Which kind of function it is, looked for in what was wrapped or bound, too."""
    for _ in range(10):
        code = getattr(function, "__code__", None)
        if code is not None:
            return int(code.co_flags)
        inner = getattr(function, "func", None) or getattr(function, "__func__", None)
        if inner is None:
            code = getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
            return 0 if code is None else int(code.co_flags)
        function = inner
    return 0


def _coroutine(function: Callable[..., Any], opener: Opener) -> Any:
    @wraps(function, updated=())
    async def call(*args: Any, **kwargs: Any) -> Any:
        span = opener(args, kwargs)
        async with span:
            result = await function(*args, **kwargs)
            if span.output is None:
                span.output = result
            return result

    return call


def _generator(function: Callable[..., Any], opener: Opener) -> Any:
    @wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        # Its own context for the steps of the generator: the caller's stays what it is between.
        context, span = copy_context(), opener(args, kwargs)
        context.run(span.__enter__)
        try:
            inner = function(*args, **kwargs)
            result = yield from _Steps(inner, context)
        except BaseException as error:
            context.run(span.__exit__, type(error), error, None)
            raise
        span.output = result if span.output is None else span.output
        context.run(span.__exit__, None, None, None)
        return result

    return call


class _Steps:
    """A generator whose steps run in one context."""

    def __init__(self, inner: Any, context: Context) -> None:
        self._inner = inner
        self._context = context

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._context.run(next, self._inner)

    def send(self, value: Any) -> Any:
        return self._context.run(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._context.run(self._inner.throw, *error)

    def close(self) -> None:
        self._context.run(self._inner.close)


def _async_generator(function: Callable[..., Any], opener: Opener) -> Any:
    @wraps(function, updated=())
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        context, span = copy_context(), opener(args, kwargs)
        await _InContext(span.__aenter__(), context)
        inner = function(*args, **kwargs)
        try:
            step: Awaitable[Any] = inner.__anext__()
            while True:
                try:
                    item = await _InContext(step, context)
                except StopAsyncIteration:
                    break
                try:
                    sent = yield item
                except GeneratorExit:
                    await _InContext(inner.aclose(), context)
                    raise
                except BaseException as error:
                    step = inner.athrow(error)
                else:
                    step = inner.asend(sent)
        except BaseException as error:
            await _InContext(span.__aexit__(type(error), error, None), context)
            raise
        await _InContext(span.__aexit__(None, None, None), context)

    return call


class _InContext:
    """An awaitable, every step of which runs in one context."""

    def __init__(self, awaitable: Awaitable[Any], context: Context) -> None:
        self._awaitable = awaitable
        self._context = context

    def __await__(self) -> Generator[Any, Any, Any]:
        run = self._context.run
        return (yield from _Steps(run(self._awaitable.__await__), self._context))
