"""One conversation of OpenHands as the events of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from repotrace.agents import Action
from repotrace.agents.openhands import AGENT
from repotrace.importers import openhands_results as results
from repotrace.importers.building import (
    Builder,
    Data,
    Events,
    Result,
    Thread,
    moment_of,
    parts_text,
    text_of,
    tolerant,
)
from repotrace.importers.lines import Damage
from repotrace.importers.openhands_usage import Answer, Usage
from repotrace.records.events import Event
from repotrace.records.run import RunStatus, StepType

type Record = dict[str, Any]

_SOURCE = "openhands"
_TICK = 1_000_000
_QUARTER = 900 * 10**9
_FOLDER = re.compile(r"current working directory is: ([^\n]+)", re.IGNORECASE)
_ENDS = {
    "finished": RunStatus.COMPLETED,
    "error": RunStatus.FAILED,
    "stuck": RunStatus.FAILED,
    "rejected": RunStatus.FAILED,
    "paused": RunStatus.INTERRUPTED,
    "stopped": RunStatus.INTERRUPTED,
    "running": RunStatus.INTERRUPTED,
}
_SILENT = frozenset(
    {"TokenEvent", "LLMCompletionLogEvent", "CondensationRequest", "StreamingDeltaEvent"}
)


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _folder(state: Record, begin: list[Record]) -> str:
    """Where the agent worked, as far as the beginning tells."""
    told = _object(state.get("workspace")).get("working_dir")
    if isinstance(told, str) and told:
        return told
    for event in begin:
        match = _FOLDER.search(text_of(_object(event.get("dynamic_context")).get("text")))
        found = match[1].strip() if match else ""
        found = found or results.working_folder(_object(event.get("observation")))
        if found:
            return found
    return ""


class Session:
    """A conversation whose events are made. `begin` are its first events, `state` what its folder
    tells beside them."""

    def __init__(self, name: str, state: Record, begin: list[Record], damage: Damage) -> None:
        self._builder = builder = Builder(_SOURCE, name, AGENT)
        builder.damage = damage
        self._usage = Usage(state)
        self._cwd = _folder(state, begin)
        self._shift = self._shifted(begin)
        self._state = text_of(state.get("execution_status"))
        self._error = ""
        times = (moment_of(event.get("timestamp")) for event in begin)
        first = next((time for time in times if time is not None), 0)
        self._time = max(0, first + self._shift)
        self._asked_at = self._time
        """When the model was last told something."""
        self._thread = Thread()
        self._shown: list[tuple[frozenset[str], Data]] = []
        """The messages of the conversation, with the events that they come from."""
        self._answer: Answer | None = None
        self._heard: list[tuple[str, Data]] = []
        """What was heard while an answer was carried out."""
        self._calls: dict[str, str] = {}
        """The calls of tools, by the events of their actions."""
        self._called_before: set[str] = set()
        self._count = 0

    def _shifted(self, begin: list[Record]) -> int:
        """Nanoseconds to add to the moments of events, which are told without a time zone."""
        for event in begin:
            said = moment_of(event.get("timestamp"))
            name = text_of(event.get("llm_response_id"))
            true = self._usage.moment(name) or moment_of(event.get("created"))
            if name and said is not None and true is not None:
                shift = round((true - said) / _QUARTER) * _QUARTER
                return shift if abs(shift) <= 14 * 4 * _QUARTER else 0
        return 0

    def events(self, records: Iterator[Record]) -> Events:
        """The events of the run, from those of the SDK."""
        builder = self._builder
        yield builder.started(self._time, cwd=self._cwd)
        seen: set[str] = set()
        for place, event in enumerate(records):
            name = text_of(event.get("id")) or f"event {place}"
            if name in seen:
                builder.damage.duplicate += 1
                continue
            seen.add(name)
            told = moment_of(event.get("timestamp"))
            self._time = max(self._time, told + self._shift if told else self._time + _TICK)
            kind = text_of(event.get("kind")) or "event"
            yield from tolerant(builder, name, kind, event, self._take(name, kind, event))
        yield from self._closed()
        for key, moment, facts in self._usage.left():
            yield self._unseen(key, max(self._time, moment or 0), facts)
        status = _ENDS.get(self._state, RunStatus.COMPLETED)
        error = self._error if status is RunStatus.FAILED else ""
        yield from builder.finished(status, error or None)

    def _take(self, name: str, kind: str, event: Record) -> Events:
        act = _KINDS.get(kind)
        if act is not None:
            yield from act(self, name, event)
        elif kind not in _SILENT:
            self._builder.damage.count(kind)
            yield from self._builder.unknown(name, self._time, kind, event)

    # --- The model --------------------------------------------------------------------------

    def _opened(self, name: str, event: Record) -> Events:
        """The answer that an event is part of; what was one before is closed."""
        response = text_of(event.get("llm_response_id"))
        if self._answer is not None and (not response or self._answer.response != response):
            yield from self._closed()
        if self._answer is None:
            key = response or f"answer {name}"
            begun = self._builder.asking(key, self._asked_at, self._thread)
            self._answer = Answer(key, response, self._asked_at, begun)
            self._answer.facts = self._usage.taken(response, _object(event.get("usage")))
        self._answer.ended = self._time
        self._answer.ids.append(name)

    def _closed(self) -> Events:
        """The end of an answer: all that it asked for is known."""
        answer, self._answer = self._answer, None
        if answer is not None:
            message: Data = {"role": "assistant", "content": answer.parts}
            self._say(answer.ids, message)
            facts = {
                "duration": (answer.ended - answer.asked_at) / 1e9,
                "external_id": answer.response or None,
                **answer.facts,
            }
            yield self._builder.asked(
                answer.key,
                answer.asked_at,
                answer.begun,
                step_id=answer.step_id,
                response_message=message,
                response=answer.text or None,
                **facts,
            )
        for name, heard in self._heard:
            self._say([name], heard)
        self._heard.clear()

    def _unseen(self, key: str, time: int, facts: Data) -> Event:
        """A call of which only the tokens are told."""
        begun = self._builder.asking(key, time, Thread())
        return self._builder.asked(key, time, begun, **facts)

    def _say(self, names: Iterable[str], message: Data) -> None:
        self._shown.append((frozenset(names), message))
        self._thread.say(message)

    def _hear(self, name: str, message: Data) -> None:
        if self._answer is None:
            self._say([name], message)
        else:
            self._heard.append((name, message))
        self._asked_at = self._time

    def _acted(self, name: str, event: Record) -> Events:
        builder = self._builder
        yield from self._opened(name, event)
        answer = self._answer
        assert answer is not None
        answer.think(event)
        tool, given = results.asked(event)
        call_id = text_of(event.get("tool_call_id")) or name
        if builder.is_open(call_id) or call_id in self._called_before:
            call_id = f"{call_id} {name}"
        self._calls[name] = call_id
        self._called_before.add(call_id)
        answer.parts.append({"type": "tool_call", "id": call_id, "name": tool, "arguments": given})
        risk = event.get("security_risk")
        facts = {"security_risk": risk} if isinstance(risk, str) and risk != "UNKNOWN" else {}
        yield from builder.call(
            call_id, tool, given, self._time, reason=answer.reason, metadata=facts
        )
        answer.step_id = answer.step_id or builder.step_of(call_id) or ""

    def _message(self, name: str, event: Record) -> Events:
        message = _object(event.get("llm_message"))
        text = parts_text(message.get("content"))
        if event.get("source") == "agent" or message.get("role") == "assistant":
            yield from self._opened(name, event)
            answer = self._answer
            assert answer is not None
            answer.think({**message, "thought": message.get("content")})
            if not answer.step_id:
                answer.step_id = self._builder.step_named(answer.key, answer.asked_at)
                yield from self._builder.answered(answer.key, answer.asked_at, self._time, text)
            return
        yield from self._closed()
        extended = parts_text(event.get("extended_content"))
        shown = f"{text}\n\n{extended}" if extended else text
        self._hear(name, {"role": "user", "content": shown})
        if event.get("source") == "user":
            yield from self._builder.prompt(name, self._time, text)
        else:
            yield self._builder.log(name, self._time, "info", text)

    # --- What it was told -------------------------------------------------------------------

    def _system(self, name: str, event: Record) -> Events:
        parts = [event.get("system_prompt"), event.get("dynamic_context")]
        text = "\n\n".join(filter(None, (parts_text(part) for part in parts)))
        self._hear(name, {"role": "system", "content": text})
        yield from ()

    def _observed(self, name: str, event: Record) -> Events:
        call_id = self._called(event)
        observation = _object(event.get("observation"))
        result = results.told(self._builder.opened(call_id), observation)
        yield from self._ended(name, call_id, result)
        folder = results.working_folder(observation)
        if folder:
            self._builder.cwd = folder

    def _failed(self, name: str, event: Record) -> Events:
        call_id = self._called(event)
        text = text_of(event.get("error"))
        if self._builder.is_open(call_id):
            yield from self._ended(name, call_id, Result(text, failed=True, refused=True))
        else:
            yield self._builder.log(name, self._time, "error", text)

    def _rejected(self, name: str, event: Record) -> Events:
        builder = self._builder
        call_id = self._called(event)
        text = text_of(event.get("rejection_reason")) or "The user refused the call."
        step_id = builder.step_of(call_id)
        yield from self._ended(name, call_id, Result(text, failed=True, refused=True))
        if step_id:
            by_hook = event.get("rejection_source") == "hook"
            who = "A hook refused the call." if by_hook else "The user refused the call."
            facts = {"parent_id": step_id, "input_context": text}
            yield from builder.moment(name, self._time, StepType.DECISION, who, **facts)

    def _called(self, event: Record) -> str:
        known = self._calls.get(text_of(event.get("action_id")))
        return known or text_of(event.get("tool_call_id")) or text_of(event.get("action_id"))

    def _ended(self, name: str, call_id: str, result: Result) -> Events:
        call = self._builder.opened(call_id)
        if call is not None and call.tool.action is Action.SUBMIT:
            self._state = "finished"
        shown = {"type": "tool_result", "id": call_id, "content": result.text}
        self._hear(name, {"role": "tool", "content": [shown]})
        yield from self._builder.result(call_id, self._time, result)

    # --- The conversation -------------------------------------------------------------------

    def _condensed(self, name: str, event: Record) -> Events:
        yield from self._closed()
        response = text_of(event.get("llm_response_id"))
        if response:
            facts = {"external_id": response, **self._usage.taken(response, {})}
            yield self._unseen(response, self._time, {"purpose": "condenser", **facts})
        listed = event.get("forgotten_event_ids", event.get("forgotten"))
        gone = {text_of(one) for one in listed} if isinstance(listed, list) else set()
        kept = [gone.isdisjoint(names) for names, _ in self._shown]
        if False in kept:
            first = kept.index(False)
            rest = [pair for pair, stays in zip(self._shown, kept, strict=True) if stays][first:]
            del self._shown[first:]
            self._thread.rewind(first)
            summary = text_of(event.get("summary"))
            if summary:
                self._say([name], {"role": "user", "content": summary})
            for names, message in rest:
                self._say(names, message)
        facts = {"output_result": text_of(event.get("summary"))}
        told = "The conversation was condensed."
        yield from self._builder.moment(name, self._time, StepType.DECISION, told, **facts)

    def _updated(self, name: str, event: Record) -> Events:
        key, value = event.get("key"), event.get("value")
        if key == "stats":
            for left in self._usage.grown(_object(value), name):
                yield self._unseen(f"stats {left[0]}", self._time, left[1])
        elif key == "execution_status" and isinstance(value, str):
            self._state = value
            self._error = text_of(event.get("reason")) or self._error
        elif key == "full_state":
            self._state = text_of(_object(value).get("execution_status")) or self._state

    def _paused(self, name: str, event: Record) -> Events:
        del event
        told = "The user paused the agent."
        yield from self._builder.moment(name, self._time, StepType.DECISION, told)

    def _broken(self, name: str, event: Record) -> Events:
        words = [text_of(event.get("code")), text_of(event.get("detail"))]
        self._error = ": ".join(word for word in words if word)
        yield self._builder.log(name, self._time, "error", self._error)

    def _hooked(self, name: str, event: Record) -> Events:
        words = (event.get("hook_event_type"), event.get("hook_command"), event.get("error"))
        text = " ".join(text_of(word) for word in words if word)
        level = "warning" if event.get("success") is False else "info"
        yield self._builder.log(name, self._time, level, f"hook {text}")


_KINDS = {
    "ActionEvent": Session._acted,
    "MessageEvent": Session._message,
    "SystemPromptEvent": Session._system,
    "ObservationEvent": Session._observed,
    "AgentErrorEvent": Session._failed,
    "UserRejectObservation": Session._rejected,
    "Condensation": Session._condensed,
    "ConversationStateUpdateEvent": Session._updated,
    "PauseEvent": Session._paused,
    "InterruptEvent": Session._paused,
    "ConversationErrorEvent": Session._broken,
    "HookExecutionEvent": Session._hooked,
}
