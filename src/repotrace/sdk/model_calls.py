"""One model call of a provider's SDK: what it was asked, what came back, however it came back.

Nothing here raises, and nothing that the SDK returns is replaced: a stream stays the object that
it is, and what passes through it is looked at.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, NamedTuple

from repotrace.importers.wire_answers import Answer, answer_of
from repotrace.importers.wire_requests import Ask, api_of, ask_of
from repotrace.importers.wire_streams import Payloads
from repotrace.journal import message_of, new_id
from repotrace.sdk.spans import Span, is_interrupt
from repotrace.sdk.told import ToldCall

if TYPE_CHECKING:
    from repotrace.sdk.active import ActiveRun

_PROVIDERS = {"chat": "openai", "responses": "openai", "messages": "anthropic"}
_ID_HEADERS = ("x-request-id", "request-id")
_LINE = 100
"""Characters of an answer that describe its step."""

_NOT_READ = "the answer was not read to its end"


class Asked(NamedTuple):
    """A request to a model."""

    api: str
    path: str
    body: Any


def asked_of(options: Any) -> Asked | None:
    """What a request of an SDK asks of a model; None if it asks none."""
    path = str(options.url).partition("?")[0].rstrip("/")
    api = api_of(str(options.method).upper(), path)
    # Others have messages, too, such as the threads of assistants.
    if api not in _PROVIDERS or (api == "messages" and not path.endswith("v1/messages")):
        return None
    body, more = options.json_data, getattr(options, "extra_json", None)
    if isinstance(body, dict) and isinstance(more, dict):
        body = {**body, **more}
    return Asked(api, path, body)


class ModelCall:
    """A call that is going on. Its step, or the span that it belongs to, has begun."""

    def __init__(self, asked: Asked, span: Span, run: ActiveRun) -> None:
        self._asked, self._run = asked, run
        self._sent = time.time_ns()
        self._first: int | None = None
        self.attempts = 0
        self._items: list[Any] = []
        self._is_over = self._is_watched = False
        self._request_id: str | None = None
        self.id = new_id(self._sent)
        ask = self._read()
        self._model = ask.model
        self._own_step = span.id is None or span.type == "agent"
        if self._own_step:
            named = self._model or "model call"
            step_id = run.recorder.start_step("llm", named, parent_id=span.id)
        else:
            step_id = str(span.id)
            span.calls_are_told()
        self._told = ToldCall(self.id, step_id, span)
        self._facts: dict[str, Any] = {
            "id": self.id,
            "step_id": step_id,
            "provider": _PROVIDERS[asked.api],
            "model": ask.model or None,
            "tools": ask.tools or None,
            "parameters": ask.parameters or None,
            **self._shown(ask),
        }

    def _read(self) -> Ask:
        try:
            return ask_of(self._asked.api, self._asked.path, {}, self._asked.body)
        except Exception:  # whatever a foreign object does when it is looked at
            return Ask(self._asked.api)

    def _shown(self, ask: Ask) -> dict[str, Any]:
        before = self._run.told.by_id(ask.previous) if ask.previous else None
        if before is None:
            return self._run.conversations.added(self.id, ask.messages)
        more = [before.message] if before.message else []
        return {"previous_id": before.id, "messages": [*more, *ask.messages]}

    # --- What came back ---------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """The request raised."""
        response = getattr(error, "response", None)
        self._note_headers(getattr(response, "headers", None))
        self._finish(None, error)

    def answered(self, result: Any) -> None:
        """The SDK has returned something: a response, a stream, or what yields one of them."""
        if self._is_over or self._is_watched:
            return
        if hasattr(type(result), "__stream__"):
            self._is_watched = True
            self._note_headers(getattr(getattr(result, "response", None), "headers", None))
            inner = result._iterator
            is_async = hasattr(inner, "__anext__")
            result._iterator = WatchedAsync(inner, self) if is_async else Watched(inner, self)
            self._write({})  # what was asked is safe, however long the answer takes
        elif hasattr(result, "http_response") and hasattr(result, "parse"):
            self._watch_raw(result)
        else:
            self._request_id = getattr(result, "_request_id", None)
            self._finish(self._answer([result], streamed=False))

    def _watch_raw(self, result: Any) -> None:
        """Wait for what the program makes of a response that it wanted as it came."""
        http = result.http_response
        self._note_headers(http.headers)
        if self._finish_with_body(http):
            return
        self._write({})

        def look(parsed: Any = None) -> None:
            if self._finish_with_body(http) or self._is_watched:
                return
            if parsed is None:
                self.abandoned()
            else:
                self.answered(parsed)

        def seen(parsed: Any) -> Any:
            _quietly(self._run, lambda: look(parsed))
            return parsed

        def closed(nothing: Any) -> Any:
            _quietly(self._run, look)
            return nothing

        for name, then in (("parse", seen), ("close", closed)):
            setattr(result, name, _followed_by(getattr(result, name), then))

    def _finish_with_body(self, http: Any) -> bool:
        """Finish by the body, if it was read as a whole; whether it was."""
        if self._is_over:
            return True
        try:
            value = json.loads(http.content)
        except Exception:  # it was not read, or is no JSON
            return False
        self._finish(self._answer([value], streamed=False))
        return True

    def heard(self, item: Any) -> None:
        """A piece of a stream has come."""
        if self._first is None:
            self._first = time.time_ns()
        self._items.append(item)

    def ended(self) -> None:
        """A stream came to its end."""
        self._finish(self._answer(self._items, streamed=True))

    def broke(self, error: BaseException) -> None:
        """A stream raised."""
        self._finish(self._answer(self._items, streamed=True), error)

    def abandoned(self) -> None:
        """Nobody will read on."""
        if not self._is_over:
            answer = self._answer(self._items, streamed=True)
            complete = answer is not None and answer.complete
            self._finish(answer, problem=None if complete else _NOT_READ)

    def _answer(self, items: list[Any], *, streamed: bool) -> Answer | None:
        if not items:
            return None
        try:
            values = [_plain(item) for item in items]
            return answer_of(self._asked.api, Payloads(values, streamed=streamed))
        except Exception:  # a form that nobody has seen
            return None

    def _note_headers(self, headers: Any) -> None:
        if headers is not None:
            found = (headers.get(name) for name in _ID_HEADERS)
            self._request_id = next((value for value in found if value), None)

    # --- What is recorded -------------------------------------------------------------------

    def _finish(
        self,
        answer: Answer | None,
        error: BaseException | None = None,
        problem: str | None = None,
    ) -> None:
        if self._is_over:
            return
        self._is_over = True
        now = time.time_ns()
        why = problem if error is None else message_of(error)
        facts: dict[str, Any] = {"duration": (now - self._sent) / 1e9, "error": why}
        if self._first is not None:
            facts["first_token"] = (self._first - self._sent) / 1e9
        text, calls = None, list[str]()
        if answer is not None:
            text, calls = answer.text or None, [call.name for call in answer.calls]
            message = {"role": "assistant", "content": answer.parts}
            facts |= {name: value for name, value in answer.tokens.items() if value is not None}
            facts |= {"response": text, "response_message": message}
            facts |= {"stop_reason": answer.stop_reason, "model": answer.model or self._model}
            told = self._told
            told.external_id, told.text, told.message = answer.id, text, message
            if self._run.told.add(told) and answer.id:
                facts["external_id"] = answer.id
        self._write(facts)
        self._items = []
        if self._own_step:
            self._end_step(facts, text, calls, error, why)

    def _end_step(
        self,
        facts: dict[str, Any],
        text: str | None,
        calls: list[str],
        error: BaseException | None,
        why: str | None,
    ) -> None:
        first = (text or "").strip().partition("\n")[0][:_LINE]
        what = f"asks for {', '.join(calls)}" if calls else first
        named = ": ".join(filter(None, [str(facts.get("model") or self._model), what]))
        recorder, step_id = self._run.recorder, self._told.step_id
        ended: dict[str, Any] = {"description": named} if named else {}
        if error is not None and is_interrupt(error):
            ended["status"] = "interrupted"
        recorder.end_step(step_id, output_result=text, error=why, **ended)

    def _write(self, facts: dict[str, Any]) -> None:
        known = {**self._facts, **facts, "request_id": self._request_id}
        if self.attempts > 1:
            known["attempts"] = self.attempts
        given = {name: value for name, value in known.items() if value is not None}
        self._run.recorder.record_llm(sent_at=self._sent, **given)
        self._facts = {"id": self.id, "step_id": self._told.step_id}


def _plain(item: Any) -> Any:
    if isinstance(item, dict):
        return item
    try:
        # As it came, and without the warnings of Pydantic about what the SDK put in since.
        return item.model_dump(exclude_unset=True, warnings=False)
    except TypeError:
        return item.model_dump(exclude_unset=True)


def _quietly(run: ActiveRun, act: Callable[[], object]) -> None:
    """Do what is ours to do, such that the program never notices."""
    try:
        act()
    except Exception as error:
        run.recorder.lose(error)


def _let_go(call: ModelCall) -> None:
    """A stream is dropped, maybe together with everything else."""
    with suppress(Exception):
        call.abandoned()


def _followed_by(function: Callable[..., Any], then: Callable[[Any], Any]) -> Callable[..., Any]:
    """`function`, with `then` called on what it returns, or on what that gives when awaited."""

    async def after(awaitable: Any) -> Any:
        return then(await awaitable)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return after(result) if isawaitable(result) else then(result)

    return call


# --- Streams --------------------------------------------------------------------------------


class Watched:
    """The iterator within a stream, and what it yields is noted."""

    def __init__(self, inner: Any, call: ModelCall) -> None:
        self._inner = inner
        self._call = call

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        call = self._call
        try:
            item = self._inner.__next__()
        except StopIteration:
            _quietly(call._run, call.ended)
            raise
        except BaseException as error:
            problem = error
            _quietly(call._run, lambda: call.broke(problem))
            raise
        call.heard(item)
        return item

    def close(self) -> None:
        """As of a generator."""
        self._inner.close()
        _quietly(self._call._run, self._call.abandoned)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __del__(self) -> None:
        _let_go(self._call)


class WatchedAsync:
    """The asynchronous iterator within a stream, and what it yields is noted."""

    def __init__(self, inner: Any, call: ModelCall) -> None:
        self._inner = inner
        self._call = call

    def __aiter__(self) -> WatchedAsync:
        return self

    async def __anext__(self) -> Any:
        call = self._call
        try:
            item = await self._inner.__anext__()
        except StopAsyncIteration:
            _quietly(call._run, call.ended)
            raise
        except BaseException as error:
            problem = error
            _quietly(call._run, lambda: call.broke(problem))
            raise
        call.heard(item)
        return item

    async def aclose(self) -> None:
        """As of an asynchronous generator."""
        await self._inner.aclose()
        _quietly(self._call._run, self._call.abandoned)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __del__(self) -> None:
        _let_go(self._call)
