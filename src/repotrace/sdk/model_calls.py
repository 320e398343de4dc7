"""One model call of a provider's SDK: what it was asked, what came back, however it came back.

Nothing here raises, and nothing that the SDK returns is replaced: of a stream the bytes are looked
at as the program reads them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import finalize, ref

from repotrace.importers.wire_answers import PROVIDERS, Answer, answer_of
from repotrace.importers.wire_requests import Ask, api_of, ask_of
from repotrace.importers.wire_streams import Payloads, payloads
from repotrace.journal import message_of, new_id
from repotrace.sdk.spans import Span, is_interrupt
from repotrace.sdk.told import ToldCall

if TYPE_CHECKING:
    from repotrace.sdk.active import ActiveRun

_APIS = ("chat", "responses", "messages")
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
    if api not in _APIS or (api == "messages" and not path.endswith("v1/messages")):
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
        self._is_over = False
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
            "provider": PROVIDERS[asked.api],
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

    def lose(self, error: Exception) -> None:
        """Count something of the call that could not be recorded."""
        self._run.recorder.lose(error)

    # --- What came back ---------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """The request raised."""
        response = getattr(error, "response", None)
        self._note_headers(getattr(response, "headers", None))
        self._finish(None, error)

    def answered(self, result: Any) -> None:
        """The SDK has returned something: a response, a stream, or a response as it came."""
        http = _body_of(result)
        if http is None:
            self._request_id = getattr(result, "_request_id", None)
            self._finish(self._answer(lambda: Payloads([_plain(result)])))
            return
        self._note_headers(http.headers)
        if http.is_closed:
            self._finish(self._answer(lambda: payloads(http.content)))
        else:
            self._write({})  # what was asked is safe, however long the answer takes
            _watch(http, self)

    def begun(self) -> None:
        """The first bytes of a stream have come."""
        if self._first is None:
            self._first = time.time_ns()

    def heard(self, body: bytes, kind: str, error: BaseException | None = None) -> None:
        """A body was read to its end, or as far as it came; `kind` is its content type."""
        answer = self._answer(lambda: payloads(body, kind)) if body else None
        complete = answer is not None and answer.complete and answer.error is None
        if isinstance(error, GeneratorExit):
            error = None  # the SDK reads no further than it has to, or the program had enough
        self._finish(answer, error, problem=None if complete or error else _NOT_READ)

    def _answer(self, found: Callable[[], Payloads]) -> Answer | None:
        try:
            return answer_of(self._asked.api, found())
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
        if answer is not None and answer.error:
            why = answer.error
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


def _plain(result: Any) -> Any:
    """A record of Pydantic as it came."""
    try:
        # Without its warnings of what the SDK has put in since.
        return result.model_dump(exclude_unset=True, warnings=False)
    except TypeError:
        return result.model_dump(exclude_unset=True)


def _body_of(result: Any) -> Any:
    """The response of httpx that a stream or a raw response is made of; None of anything else."""
    if hasattr(type(result), "__stream__"):
        return result.response
    return getattr(result, "http_response", None) if hasattr(result, "parse") else None


def _watch(http: Any, call: ModelCall) -> None:
    """Note the body of a response while somebody reads it, by whatever of its methods.

    They all read `iter_bytes` or `aiter_bytes`. Nothing here keeps the response alive.
    """
    owner, known, seen = type(http), ref(http), bytearray()
    kind = http.headers.get("content-type") or ""
    is_stream = kind.startswith("text/event-stream")

    def note(data: bytes) -> None:
        if is_stream:
            call.begun()
        seen.extend(data)

    def iter_bytes(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        try:
            for data in owner.iter_bytes(known(), *args, **kwargs):
                note(data)
                yield data
        except BaseException as error:
            _tell(call, seen, kind, error)
            raise
        _tell(call, seen, kind)

    async def aiter_bytes(*args: Any, **kwargs: Any) -> AsyncIterator[bytes]:
        try:
            async with aclosing(owner.aiter_bytes(known(), *args, **kwargs)) as body:
                async for data in body:
                    note(data)
                    yield data
        except BaseException as error:
            _tell(call, seen, kind, error)
            raise
        _tell(call, seen, kind)

    http.iter_bytes, http.aiter_bytes = iter_bytes, aiter_bytes
    # What nobody has read to its end, and nobody can any more.
    finalize(http, _tell, call, seen, kind).atexit = False


def _tell(call: ModelCall, seen: bytearray, kind: str, error: BaseException | None = None) -> None:
    try:
        call.heard(bytes(seen), kind, error)
    except Exception as problem:  # the program goes on
        call.lose(problem)
