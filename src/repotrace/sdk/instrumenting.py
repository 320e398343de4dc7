"""`instrument`: what a traced agent asks of OpenAI and Anthropic is recorded by itself.

The one method of their SDKs through which all requests go is led through us: plain and streamed
calls, helpers and raw responses alike. Other tracers sit above it, or wrap it as well; both work.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from inspect import iscoroutinefunction
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from repotrace.errors import RepoTraceError
from repotrace.sdk import active
from repotrace.sdk.model_calls import ModelCall, asked_of
from repotrace.sdk.spans import current_span, inherited_span

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec

PROVIDERS = {
    "openai": ("OpenAI", "AsyncOpenAI"),
    "anthropic": ("Anthropic", "AsyncAnthropic"),
}
"""Packages, and those of their clients that all others are like."""

_REQUEST, _ATTEMPT = "request", "_build_request"
"""What sends a request with its retries, and what each attempt calls."""

_MARK = "_repotrace_records"

_lock = Lock()
_undo: dict[str, list[Callable[[], None]]] = {}
"""For each package that is instrumented, what takes it back."""

_going: ContextVar[ModelCall | None] = ContextVar("repotrace_model_call", default=None)


def instrument(*packages: str) -> None:
    """Record the model calls that traced agents make by `openai` and `anthropic`, or by the one of
    them that is named, be it imported already or later.

    Calling it again changes nothing. Raises RepoTraceError for a package that is not known.
    """
    for name in packages or PROVIDERS:
        if name not in PROVIDERS:
            known = ", ".join(PROVIDERS)
            raise RepoTraceError(f"No calls of {name!r} can be recorded.", hint=f"Known: {known}")
        with _lock:
            if name in _undo:
                continue
            _undo[name] = []
        module = sys.modules.get(name)
        if module is not None and hasattr(module, PROVIDERS[name][0]):
            _wrap_clients(name, module)
        else:
            _Awaited.wait_for(name)


def uninstrument(*packages: str) -> None:
    """Take `instrument` back. Calls that are going on are recorded to their end."""
    for name in packages or PROVIDERS:
        with _lock:
            undo = _undo.pop(name, [])
        for each in undo:
            each()


def _wrap_clients(name: str, module: ModuleType) -> None:
    for client in (getattr(module, client, None) for client in PROVIDERS[name]):
        for method, wrapper in ((_REQUEST, _recorded), (_ATTEMPT, _counted)):
            owners = (c for c in getattr(client, "__mro__", ()) if method in vars(c))
            owner = next(owners, None)
            # Clients of both kinds may have it from one class.
            if owner is not None and not hasattr(vars(owner)[method], _MARK):
                _wrap(name, owner, method, wrapper)


def _wrap(
    name: str,
    owner: type,
    method: str,
    wrapper: Callable[[Callable[..., Any], Callable[[], bool]], Any],
) -> None:
    original, on = vars(owner)[method], [True]
    wrapped = wrapper(original, lambda: on[0])
    setattr(wrapped, _MARK, True)

    def undo() -> None:
        on[0] = False
        # Another tracer may have put itself above; then it stays there, and we only pass on.
        if vars(owner).get(method) is wrapped:
            setattr(owner, method, original)

    with _lock:
        if name not in _undo:
            return
        _undo[name].append(undo)
        setattr(owner, method, wrapped)


# --- Calls ------------------------------------------------------------------------------------


def _begun(args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModelCall | None:
    """The call of a model that a request is, within a traced agent; None if it is none."""
    span = current_span()
    if span is None:
        span = inherited_span() if active.may_inherit else None
    run = None if span is None else span._run
    if span is None or run is None or _going.get() is not None:
        return None
    try:
        asked = asked_of(kwargs["options"] if "options" in kwargs else args[1])
        return None if asked is None else ModelCall(asked, span, run)
    except Exception as error:
        run.recorder.lose(error)
        return None


def _recorded(original: Callable[..., Any], is_on: Callable[[], bool]) -> Callable[..., Any]:
    """The method that sends a request, recorded."""
    if iscoroutinefunction(original):

        @wraps(original)
        async def request_async(self: Any, *args: Any, **kwargs: Any) -> Any:
            call = _begun(args, kwargs) if is_on() else None
            if call is None:
                return await original(self, *args, **kwargs)
            token = _going.set(call)
            try:
                result = await original(self, *args, **kwargs)
            except BaseException as error:
                _told(call, call.failed, error)
                raise
            finally:
                _going.reset(token)
            _told(call, call.answered, result)
            return result

        return request_async

    @wraps(original)
    def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = _begun(args, kwargs) if is_on() else None
        if call is None:
            return original(self, *args, **kwargs)
        token = _going.set(call)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            _told(call, call.failed, error)
            raise
        finally:
            _going.reset(token)
        _told(call, call.answered, result)
        return result

    return request


def _counted(original: Callable[..., Any], is_on: Callable[[], bool]) -> Callable[..., Any]:
    """The method that each attempt calls, counted."""

    @wraps(original)
    def attempt(self: Any, *args: Any, **kwargs: Any) -> Any:
        call = _going.get()
        if call is not None and is_on():
            call.attempts += 1
        return original(self, *args, **kwargs)

    return attempt


def _told(call: ModelCall, act: Callable[[Any], None], what: Any) -> None:
    try:
        act(what)
    except Exception as error:  # the program goes on
        call.lose(error)


# --- Packages that are imported later ---------------------------------------------------------


class _Awaited(MetaPathFinder):
    """Wraps the clients of a package when somebody imports it."""

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def wait_for(cls, name: str) -> None:
        finder = cls(name)
        sys.meta_path.insert(0, finder)
        with _lock:
            if name in _undo:
                _undo[name].append(finder._leave)

    def _leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The usual one, whose loader wraps the clients."""
        if fullname != self._name:
            return None
        self._leave()
        spec = find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        load = loader.exec_module

        def load_and_wrap(module: ModuleType) -> None:
            load(module)
            _wrap_clients(fullname, module)

        loader.exec_module = load_and_wrap
        return spec
