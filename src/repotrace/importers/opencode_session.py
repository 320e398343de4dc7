"""One session of OpenCode as the events of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from repotrace.agents.opencode import AGENT
from repotrace.importers import opencode_results as results
from repotrace.importers.building import (
    Builder,
    Data,
    Events,
    Thread,
    below,
    moment_of,
    number,
    text_of,
    tolerant,
)
from repotrace.records.events import derived_run_id
from repotrace.records.run import RunStatus, StepType

type Record = dict[str, Any]
type Messages = Iterator[tuple[Record, list[Record]]]
type Started = Callable[[str, str], tuple[Record, Messages] | None]
"""Finds the session of a sub-agent by its name and that of the session which started it; once."""

_SOURCE = "opencode"
_TICK = 1_000_000
_SILENT = frozenset({"snapshot", "patch", "file", "agent", "subtask", "step-start"})
"""Parts that tell nothing which others do not tell."""
_PLACE = ("id", "sessionID", "messageID")
_STOPPED = ("MessageAbortedError", "AbortedError")


@dataclass(slots=True)
class _Answer:
    """One answer of the model: what a message holds up to the end of a step."""

    key: str
    asked_at: int
    begun: Data
    ended: int = 0
    step_id: str = ""
    parts: list[Data] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    results: list[Data] = field(default_factory=list)
    attempts: int = 1

    @property
    def text(self) -> str:
        return "\n\n".join(self.words)


class Session:
    """A session whose events are made. `messages` come with their parts, in order.

    What the sub-agents did that `started` finds is told within the steps that started them.
    """

    def __init__(self, info: Record, messages: Messages, started: Started) -> None:
        self._info, self._messages, self._started_by = info, messages, started
        self._builder = Builder(_SOURCE, text_of(info.get("id")) or "session", AGENT)
        self._time = _moment(info, "created") or 0
        self._thread = Thread()
        self._answer: _Answer | None = None
        self._status, self._error = RunStatus.COMPLETED, ""
        self._steps: dict[str, str] = {}
        """The step of each call."""
        self._seen: set[str] = set()
        """Messages that were told."""
        self._next: tuple[Record, list[Record]] | None = None
        """The message that is to be told next."""
        self._parts: dict[str, Session] = {}
        """Sub-agents by the names of their sessions."""
        self._step_id = ""
        """Of a sub-agent: the step that started it, or went on with it."""

    def events(self) -> Events:
        """The events of the session."""
        self._next = first = next(self._messages, None)
        if not self._time and first is not None:
            self._time = _moment(first[0], "created") or 0
        yield self._started(first[0] if first else {})
        yield from self._told()
        yield from self._ended()
        yield from self._builder.finished(self._status, self._error or None)

    def _told(self, until: int | None = None) -> Events:
        """The messages that are left, or those of them up to a moment."""
        builder = self._builder
        while self._next is not None:
            message, parts = self._next
            if until is not None and (_moment(message, "created") or 0) > until:
                return
            name = text_of(message.get("id")) or f"message {len(self._seen)}"
            if name in self._seen:
                builder.damage.duplicate += 1
            else:
                self._seen.add(name)
                role = text_of(message.get("role")) or "message"
                made = self._message(name, message, parts)
                yield from tolerant(builder, name, role, message, made)
            self._next = next(self._messages, None)

    def _ended(self) -> Events:
        """What comes behind all messages."""
        for part in self._parts.values():
            yield from self._within(part, part._step_id)
            yield from below(part._step_id, part._ended())
        yield from self._taken_back()

    def _sub_agent(self, name: str, step_id: str, until: int | None) -> Events:
        """What a sub-agent did up to a moment, in the step that started it or went on with it."""
        part = self._parts.get(name)
        if part is None:
            found = self._started_by(name, text_of(self._info.get("id")))
            if found is None:
                return
            part = self._parts[name] = Session(*found, self._started_by)
            part._builder, part._steps, part._seen = self._builder, self._steps, self._seen
            part._next = next(part._messages, None)
            self._builder.joined.append(name)
        part._step_id = step_id
        yield from self._within(part, step_id, until)

    def _within(self, part: Session, step_id: str, until: int | None = None) -> Events:
        folder = self._builder.cwd
        self._builder.cwd = text_of(part._info.get("directory")) or folder
        yield from below(step_id, part._told(until))
        self._builder.cwd = folder

    def _started(self, message: Record) -> Any:
        cwd = self._info.get("directory")
        if not isinstance(cwd, str) or not cwd:
            cwd = _object(message.get("path")).get("cwd")
        version, parent = self._info.get("version"), self._info.get("parentID")
        facts: Data = {}
        if isinstance(parent, str) and parent:
            facts["parent_run_id"] = derived_run_id(_SOURCE, parent)
        title = self._info.get("title")
        if isinstance(title, str) and title:
            facts["attributes"] = {"title": title}
        return self._builder.started(
            self._time,
            cwd=cwd if isinstance(cwd, str) else "",
            agent_version=version if isinstance(version, str) else None,
            **facts,
        )

    def _message(self, name: str, message: Record, parts: list[Record]) -> Events:
        role = message.get("role")
        self._time = max(self._time, _moment(message, "created") or self._time + _TICK)
        if role == "assistant":
            yield from self._answered(name, message, parts)
        elif role == "user":
            yield from self._asked(name, parts)
        else:
            self._builder.damage.count(f"message {role}")
            yield from self._builder.unknown(name, self._time, f"message {role}", message)

    # --- The user ---------------------------------------------------------------------------

    def _asked(self, name: str, parts: list[Record]) -> Events:
        builder = self._builder
        words: list[str] = []
        shown: list[Data] = []
        for part in parts:
            kind, text = part.get("type"), text_of(part.get("text"))
            if kind == "text":
                shown.append({"type": "text", "text": text})
                if not part.get("synthetic") and not part.get("ignored"):
                    words.append(_unquoted(text))
            elif kind == "subtask":
                words.append(text_of(part.get("prompt")))
            elif kind == "compaction":
                yield from self._compacted(name, part)
            elif kind == "file":
                shown.append({"type": "file", "text": text_of(part.get("filename"))})
            elif kind not in _SILENT:
                yield from self._unknown(name, part)
        self._thread.say({"role": "user", "content": shown})
        said = "\n\n".join(word for word in words if word.strip())
        # A sub-agent is asked by the call that started it, or goes on with it.
        if said and not self._step_id:
            yield from builder.prompt(name, self._time, said)

    def _compacted(self, name: str, part: Record) -> Events:
        by = "" if part.get("auto") is not False else ", by the user"
        told = f"The conversation was compacted{by}."
        yield from self._builder.moment(f"compaction {name}", self._time, StepType.DECISION, told)

    # --- The model --------------------------------------------------------------------------

    def _answered(self, name: str, message: Record, parts: list[Record]) -> Events:
        self._builder.cwd = text_of(_object(message.get("path")).get("cwd")) or self._builder.cwd
        finished = sum(part.get("type") == "step-finish" for part in parts)
        count = 0
        told: list[Record] = []
        for part in parts:
            told.append(part)
            if part.get("type") == "step-finish":
                count += 1
                key = name if finished == 1 else f"{name} {count}"
                yield from self._step(key, message, told, part)
                told = []
        error = message.get("error")
        rest = [part for part in told if part.get("type") not in _SILENT]
        if rest or (not finished and not error):
            key = name if not finished else f"{name} {count + 1}"
            yield from self._step(key, message, told, {} if finished else message)
        elif told and error:
            yield from self._step(name, message, told, {})
        if message.get("summary") is True:
            # What comes next is shown the summary alone.
            kept = self._thread.added[-1:]
            self._thread.rewind(0)
            for one in kept:
                self._thread.say(one)
        self._status, self._error = RunStatus.COMPLETED, ""
        if isinstance(error, dict):
            yield from self._broken(name, error)
        elif not finished and _moment(message, "completed") is None:
            self._status = RunStatus.INTERRUPTED

    def _step(self, key: str, message: Record, parts: list[Record], usage: Record) -> Events:
        """One answer of the model, with the calls that it asked for."""
        builder = self._builder
        begun = builder.asking(key, self._time, self._thread)
        answer = _Answer(key, self._time, begun, self._time)
        for place, part in enumerate(parts):
            made = self._part(answer, f"{key} {place}", part)
            yield from tolerant(builder, f"{key} {place}", "part", part, made)
        if not answer.step_id:
            answer.step_id = builder.step_named(key, answer.asked_at)
            yield from builder.answered(key, answer.asked_at, self._time, answer.text)
        said: Data = {"role": "assistant", "content": answer.parts}
        self._thread.say(said)
        for shown in answer.results:
            self._thread.say({"role": "tool", "content": [shown]})
        model = _object(message.get("model"))
        cost = usage.get("cost")
        yield builder.asked(
            key,
            answer.asked_at,
            begun,
            step_id=answer.step_id,
            external_id=key,
            model=_name(message.get("modelID") or model.get("modelID")),
            provider=_name(message.get("providerID") or model.get("providerID")),
            response_message=said,
            response=answer.text or None,
            duration=(answer.ended - answer.asked_at) / 1e9,
            attempts=answer.attempts if answer.attempts > 1 else None,
            purpose="compaction" if message.get("summary") is True else None,
            stop_reason=_name(usage.get("reason") or message.get("finish")),
            cost_usd=str(cost) if _is_cost(cost) else None,
            **_tokens(_object(usage.get("tokens"))),
        )

    def _part(self, answer: _Answer, name: str, part: Record) -> Events:
        kind = part.get("type")
        if kind == "tool":
            yield from self._tool(answer, name, part)
            return
        if kind == "retry":
            answer.attempts += 1
            problem = _object(_object(part.get("error")).get("data")).get("message")
            text = text_of(problem or part.get("error")) or "The provider failed."
            time = _moment(part, "created") or self._time
            yield self._builder.log(f"retry {name}", time, "warning", text)
            return
        if kind in ("text", "reasoning"):
            text = text_of(part.get("text"))
            ended = _moment(part, "end")
            answer.ended = max(answer.ended, ended or 0)
            if text:
                thinks = kind == "reasoning"
                answer.parts.append({"type": "thinking" if thinks else "text", "text": text})
                (answer.thoughts if thinks else answer.words).append(text)
        elif kind == "compaction":
            yield from self._compacted(name, part)
        elif kind != "step-finish" and kind not in _SILENT:
            yield from self._unknown(name, part)

    def _tool(self, answer: _Answer, name: str, part: Record) -> Events:
        builder = self._builder
        state = _object(part.get("state"))
        call_id = text_of(part.get("callID")) or name
        if builder.is_open(call_id) or call_id in self._steps:
            call_id = f"{call_id} {name}"
        given = state.get("input")
        tool = text_of(part.get("tool")) or "tool"
        begun = _moment(state, "start") or self._time
        answer.ended = max(answer.ended, begun)
        reason = answer.text or "\n\n".join(answer.thoughts)
        folder, workdir = builder.cwd, _object(given).get("workdir")
        if isinstance(workdir, str) and workdir:
            builder.cwd = builder.path(workdir)
        yield from builder.call(call_id, tool, given, begun, reason=reason)
        builder.cwd = folder
        step_id = builder.step_of(call_id) or ""
        self._steps[call_id] = step_id
        answer.step_id = answer.step_id or step_id
        answer.parts.append({"type": "tool_call", "id": call_id, "name": tool, "arguments": given})
        call = builder.opened(call_id)
        if call is None:
            return
        done = state.get("status") in ("completed", "error")
        ended = (_moment(state, "end") if done else None) or begun
        child = results.sub_session(call, state)
        if child:
            yield from self._sub_agent(child, step_id, ended if ended > begun else None)
        if not done:
            return
        self._time = max(self._time, ended)
        result = results.told(call, state)
        answer.results.append({"type": "tool_result", "id": call_id, "content": result.text})
        yield from builder.result(call_id, ended, result)
        if result.refused:
            yield from builder.moment(
                f"refused {call_id}",
                ended,
                StepType.DECISION,
                "The call was refused.",
                parent_id=step_id,
                input_context=result.text,
            )

    # --- What else is told ------------------------------------------------------------------

    def _broken(self, name: str, error: Record) -> Events:
        kind = text_of(error.get("name"))
        text = text_of(_object(error.get("data")).get("message")) or kind
        if kind in _STOPPED:
            self._status = RunStatus.INTERRUPTED
            told = "The user stopped the agent."
            yield from self._builder.moment(f"stopped {name}", self._time, StepType.DECISION, told)
            return
        self._status, self._error = RunStatus.FAILED, f"{kind}: {text}" if kind else text
        yield self._builder.log(f"error {name}", self._time, "error", self._error)

    def _taken_back(self) -> Events:
        """A change of files that nobody's step made: the user went back to an earlier message."""
        revert = self._info.get("revert")
        if not isinstance(revert, dict) or not revert.get("messageID"):
            return
        paths = sorted(
            {
                line[6:].strip()
                for line in text_of(revert.get("diff")).split("\n")
                if line.startswith(("+++ b/", "--- a/"))
            }
        )
        facts: Data = {"metadata": {"path": paths[0] if paths else "files", "paths": paths}}
        told = f"The user went back to before message {text_of(revert['messageID'])}"
        key = f"revert {text_of(self._info.get('id'))}" if self._step_id else "revert"
        yield from self._builder.moment(key, self._time, StepType.EXTERNAL, told, **facts)

    def _unknown(self, name: str, part: Record) -> Events:
        kind = f"part {text_of(part.get('type')) or 'without a type'}"
        self._builder.damage.count(kind)
        key = text_of(part.get("id")) or name
        told = {fact: value for fact, value in part.items() if fact not in _PLACE}
        yield from self._builder.unknown(f"part {key} {name}", self._time, kind, told)


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _moment(record: Record, name: str) -> int | None:
    return moment_of(_object(record.get("time")).get(name))


def _is_cost(value: Any) -> bool:
    # Of a model whose price it doesn't know, OpenCode says 0.
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _unquoted(text: str) -> str:
    """The words of the user without the quotes that `opencode run` puts around them."""
    inner = text[1:-1]
    return inner if len(text) > 2 and text == f'"{inner}"' and '"' not in inner else text


def _tokens(tokens: Record) -> Data:
    cache = _object(tokens.get("cache"))
    sent, answered = number(tokens.get("input")), number(tokens.get("output"))
    read, written = number(cache.get("read")), number(cache.get("write"))
    thought, total = number(tokens.get("reasoning")), number(tokens.get("total"))
    if sent is not None:
        sent += (read or 0) + (written or 0)
    # Whether the answer includes its reasoning differs between versions; the total tells.
    if answered is not None and total != (sent or 0) + answered:
        answered += thought or 0
    return {
        "input_tokens": sent,
        "output_tokens": answered,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": thought,
    }
