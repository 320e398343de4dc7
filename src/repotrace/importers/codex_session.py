"""One rollout of Codex as the events of a run, or of a part of one.

What is written beside the items of the conversation depends on version and mode: events of
commands and patches complete the calls that stand in it, and stand for calls that do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repotrace.agents.codex import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers import codex_results as results
from repotrace.importers.building import (
    Builder,
    Thread,
    below,
    moment_of,
    number,
    one_line,
    parts_text,
    text_of,
)
from repotrace.importers.lines import Damage
from repotrace.importers.wire_answers import call_of
from repotrace.records.events import Event, derived_run_id
from repotrace.records.run import RunStatus, StepType

NAME = "codex"

type Record = dict[str, Any]

_BEGINNINGS = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_PREFACES = (
    *("<environment_context>", "<user_instructions>", "# AGENTS.md", "<permissions", "<INST"),
    "<subagent_notification>",
)
_TURNS = ("task_started", "turn_started")
_PAYLOAD = "\nPayload:\n"
"""What comes before the words of one agent to another."""
_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-")
"""Ids that begin with the time of their making."""


@dataclass(slots=True)
class _Response:
    """One answer of the model, item by item."""

    key: str
    time: int
    begun: Record
    last: int = 0
    parts: list[Record] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    step_id: str = ""
    over: bool = False
    """What follows is no part of it any more; only its tokens may still come."""


class Rollout:
    """A thread whose events are made: a run, or the part of one that a sub-agent did."""

    def __init__(
        self, path: Path, damage: Damage, *, within: Rollout | None = None, name: str = ""
    ) -> None:
        """`within` is the thread that started this one, which is called `name`."""
        self.path = path
        self.builder: Builder | None = None
        """Made by the first record that tells of the session."""
        self.step_id = ""
        """Of a sub-agent: the step that started it, or went on with it."""
        self.parts: dict[str, Rollout] = {}
        """The sub-agents that calls start or go on with."""
        self._damage, self._within, self._name = damage, within, name
        self._next_step_id = self._last_step_id = self._cwd = ""
        self._taken: set[int] = within._taken if within is not None else set()
        """The names that calls of all threads go by outside of the session."""
        self._guessed = False
        """No call has told of the step of the present turn yet."""
        self._id = ""
        self._begun = 0
        self._spawned = False
        """It is a sub-agent, be its session known or not."""
        self._copying = False
        """What comes was copied from the thread that started this one."""
        self._thread = Thread()
        self._response: _Response | None = None
        self._time = self._asked_at = 0
        self._model: str | None = None
        self._ends: dict[str, results.End] = {}
        self._done: set[int] = set()
        """Calls that were answered."""
        self._items: set[int] = set()
        self._first_ordinal = 0
        self._records_usage = False
        self._total: Any = None
        self._prompt: str | None = None
        self._number = 0
        self._retries = 0
        self._aborted = False

    def turn(self, record: Record) -> str:
        """The step that a record of a sub-agent is a part of; empty for a session."""
        within = self._within
        if within is None:
            return ""
        payload = record.get("payload")
        begins = isinstance(payload, dict) and payload.get("type") in _TURNS
        if self._next_step_id and (begins or self._guessed or not self.step_id):
            self.step_id, self._next_step_id, self._guessed = self._next_step_id, "", False
        elif not self.step_id:
            self.step_id, self._guessed = within._last_step_id or within.step_id, True
        elif begins:
            # The call may be written after what it starts.
            self._guessed = True
        return self.step_id

    def take(self, record: Record) -> Iterator[Event]:
        """What a record says."""
        self._number += 1
        kind: str | None = str(record["type"]) if "type" in record else None
        payload = record.get("payload")
        time = moment_of(record.get("timestamp")) or self._time
        self._time = time = max(self._time, time)
        if not isinstance(payload, dict):
            # The oldest rollouts have no envelope.
            payload = record
            if kind in results.ITEMS:
                kind = "response_item"
            elif kind is None and "id" in record and "timestamp" in record:
                kind = "session_meta"
        if self.builder is None or kind == "session_meta":
            if kind not in _BEGINNINGS:
                return  # nothing to say yet
            if self.builder is not None:
                # Of the session whose history was copied.
                marked = bool(self._first_ordinal) or payload.get("id") == self._id
                self._copying = self._spawned and not marked
                return
            yield from self._begin(payload if kind == "session_meta" else {}, time)
            if kind == "session_meta":
                return
        builder = self.builder
        assert builder is not None
        builder.cwd = self._cwd
        ordinal = record.get("ordinal")
        if isinstance(ordinal, int) and ordinal < self._first_ordinal:
            return
        if self._copying:
            if not (kind == "event_msg" and self._is_own(payload)):
                return
            self._copying = False
        if kind == "response_item":
            yield from self._item(builder, payload, time)
        elif kind == "event_msg":
            yield from self._event(builder, payload, time)
        elif kind == "turn_context":
            self._turn(builder, payload, time)
        elif kind == "token_usage_record":
            self._records_usage = True
            usage = payload.get("usage")
            response_id = payload.get("response_id")
            yield from self._used(builder, usage, time, response_id)
        elif kind == "compacted":
            yield from self._compacted(builder, payload, time)
        elif (
            kind not in results.SILENT_RECORDS
            and record.get("record_type") not in results.SILENT_RECORDS
        ):
            self._damage.count(str(kind))
            yield from builder.unknown(self._key("record"), time, str(kind), record)

    def _is_own(self, event: Record) -> bool:
        """Whether an event begins a turn of this thread, rather than of the one it was copied
        from."""
        info = event.get("info")
        if event.get("type") == "token_count" and isinstance(info, dict):
            # It is told again when the first turn begins.
            self._total = info.get("total_token_usage")
        if event.get("type") not in _TURNS:
            return False
        name, started = event.get("turn_id"), event.get("started_at")
        if isinstance(name, str) and _V7.match(name) and _V7.match(self._id):
            return name > self._id
        if isinstance(started, int | float) and not isinstance(started, bool):
            return started >= self._begun // 10**9
        return True

    def _begin(self, meta: Record, time: int) -> Iterator[Event]:
        self._id = session_id = str(meta.get("id") or meta.get("session_id") or self.path.name)
        self._time = self._asked_at = self._begun = time = moment_of(meta.get("timestamp")) or time
        self._first_ordinal = number(meta.get("subagent_history_start_ordinal")) or 0
        parent = meta.get("forked_from_id") or results.spawned_by(meta)
        self._spawned = results.spawned_by(meta) is not None
        cwd = meta.get("cwd")
        self._cwd = cwd if isinstance(cwd, str) else ""
        if self._within is not None and self._within.builder is not None:
            self.builder = self._within.builder
            return
        builder = self.builder = Builder(NAME, session_id, AGENT)
        builder.damage = self._damage
        git = meta.get("git")
        git = git if isinstance(git, dict) else {}
        yield builder.started(
            time,
            cwd=self._cwd,
            agent_version=meta.get("cli_version"),
            base_commit=git.get("commit_hash"),
            parent_run_id=derived_run_id(NAME, parent) if isinstance(parent, str) else None,
            attributes={"git_branch": git["branch"]} if git.get("branch") else {},
        )

    def _turn(self, builder: Builder, payload: Record, time: int) -> None:
        self._asked_at = time
        cwd, model = payload.get("cwd"), payload.get("model")
        if isinstance(cwd, str) and cwd:
            builder.cwd = self._cwd = cwd
        if isinstance(model, str):
            self._model = model

    def _key(self, what: str) -> str:
        """The name of what the present record tells, within the run."""
        return f"{self._name} {what} {self._number}" if self._name else f"{what} {self._number}"

    def _named(self, call_id: str) -> str:
        """The name of a call, within the run."""
        return f"{self._name} {call_id}" if self._name else call_id

    # --- The conversation -------------------------------------------------------------------

    def _item(self, builder: Builder, item: Record, time: int) -> Iterator[Event]:
        kind = str(item.get("type"))
        name = item.get("id")
        if isinstance(name, str) and name and kind not in ("local_shell_call",):
            if hash((kind, name)) in self._items:
                self._damage.duplicate += 1
                return
            self._items.add(hash((kind, name)))
        if kind == "agent_message" and "author" in item:
            yield from self._told_by_agent(builder, item, time)
        elif kind.endswith("_output"):
            yield from self._output(builder, item, time)
        elif kind == "message" and item.get("role") != "assistant":
            yield from self._told(builder, item, time)
        elif kind in ("ghost_snapshot", "compaction", "compaction_summary", "context_compaction"):
            pass
        elif kind in results.ITEMS:
            yield from self._answer(builder, item, kind, time)
        else:
            self._damage.count(f"item {kind}")
            yield from builder.unknown(self._key("record"), time, f"item {kind}", item)

    def _told(self, builder: Builder, item: Record, time: int) -> Iterator[Event]:
        self._over()
        text = parts_text(item.get("content"), ("input_text", "text"))
        role = str(item.get("role") or "user")
        self._thread.say({"role": "system" if role == "developer" else role, "content": text})
        self._asked_at = time
        if role == "user" and text and not text.lstrip().startswith(_PREFACES):
            yield from self._prompted(builder, text, time)

    def _told_by_agent(self, builder: Builder, item: Record, time: int) -> Iterator[Event]:
        """What another agent of the session said."""
        self._over()
        text = parts_text(item.get("content"), ("input_text", "text"))
        self._thread.say({"role": "user", "content": text})
        self._asked_at = time
        if self._spawned:
            yield from self._prompted(builder, text.partition(_PAYLOAD)[2].strip(), time)

    def _prompted(self, builder: Builder, text: str, time: int) -> Iterator[Event]:
        """What a person said; it comes twice in most modes. A sub-agent is asked by the call that
        started it, or goes on with it."""
        if text == self._prompt or not text or self._within is not None:
            return
        self._prompt = text
        yield from builder.prompt(self._key("prompt"), time, text)

    def _over(self) -> None:
        if self._response is not None:
            self._response.over = True

    def _current(self, builder: Builder, time: int) -> Iterator[Event]:
        """Make sure that there is an answer to add to."""
        if self._response is not None and self._response.over:
            yield from self._close(builder, {}, None)
        if self._response is None:
            self._prompt = None
            asked = min(self._asked_at or time, time)
            key = self._key("response")
            begun = builder.asking(key, asked, self._thread)
            self._response = _Response(key, asked, begun, time)
            self._thread.say({"role": "assistant", "content": self._response.parts})

    def _answer(self, builder: Builder, item: Record, kind: str, time: int) -> Iterator[Event]:
        yield from self._current(builder, time)
        response = self._response
        assert response is not None
        response.last = time
        if kind in ("message", "agent_message"):
            text = parts_text(item.get("content"), ("output_text", "text"))
            response.words.append(text)
            response.parts.append({"type": "text", "text": text})
        elif kind == "reasoning":
            text = parts_text(item.get("summary"), ("summary_text",))
            text = text or parts_text(item.get("content"), ("reasoning_text", "text"))
            response.thoughts.append(text)
            response.parts.append({"type": "thinking", "text": text})
        else:
            yield from self._called(builder, response, item, kind, time)

    def _called(
        self, builder: Builder, response: _Response, item: Record, kind: str, time: int
    ) -> Iterator[Event]:
        call_id = str(item.get("call_id") or item.get("id") or f"call {self._number}")
        name, arguments = call_of(item, kind)
        if builder.is_open(self._named(call_id)) or hash(call_id) in self._done:
            self._damage.duplicate += 1
            return
        response.parts.append(
            {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        )
        words = "\n\n".join(w for w in response.words if w) or "\n\n".join(response.thoughts)
        yield from self._call(builder, call_id, name, arguments, time, words)
        response.step_id = response.step_id or self._last_step_id
        if kind in ("web_search_call", "image_generation_call"):
            self._done.add(hash(call_id))
            yield from builder.result(self._named(call_id), time, results.Result(""))

    def _call(
        self, builder: Builder, call_id: str, name: str, arguments: Any, time: int, reason: str
    ) -> Iterator[Event]:
        folder = arguments.get("workdir") if isinstance(arguments, dict) else None
        before = builder.cwd
        if isinstance(folder, str) and folder:
            builder.cwd = builder.path(folder)
        key = self._named(call_id)
        outside = call_id if hash(call_id) not in self._taken else f"{self._id} {call_id}"
        self._taken.add(hash(outside))
        for event in builder.call(key, name, arguments, time, reason=reason):
            event["data"]["external_id"] = outside
            yield event
        builder.cwd = before
        self._last_step_id = builder.step_of(key) or ""
        part = self.parts.get(call_id)
        if part is not None:
            part._next_step_id = self._last_step_id

    def _output(self, builder: Builder, item: Record, time: int) -> Iterator[Event]:
        self._over()
        self._asked_at = time
        call_id = str(item.get("call_id"))
        text = results.output_text(item.get("output", item.get("tools")))
        content = {"type": "tool_result", "id": call_id, "content": text}
        self._thread.say({"role": "tool", "content": [content]})
        key = self._named(call_id)
        if not builder.is_open(key) and hash(call_id) in self._done:
            return
        end = self._ends.pop(call_id, None)
        if end is None and results.still_running(text):
            return  # its end is told of later
        self._done.add(hash(call_id))
        yield from builder.result(
            key, time, results.result_of(builder, builder.opened(key), text, end)
        )

    # --- Events -----------------------------------------------------------------------------

    def _event(self, builder: Builder, payload: Record, time: int) -> Iterator[Event]:
        kind = str(payload.get("type"))
        if kind == "token_count":
            yield from self._counted(builder, payload.get("info"), time)
        elif kind == "turn.completed":
            usage = payload.get("usage")
            if isinstance(usage, dict):
                yield from self._used(builder, usage, time, None)
        elif kind == "user_message":
            yield from self._prompted(builder, text_of(payload.get("message")), time)
        elif kind in ("exec_command_end", "patch_apply_end"):
            yield from self._ended(builder, str(payload.get("call_id")), kind, payload, time)
        elif kind == "item_completed" and isinstance(payload.get("item"), dict):
            yield from self._completed(builder, payload["item"], time)
        elif kind in ("turn_aborted", "error", "stream_error", "warning", "guardian_warning"):
            yield from self._trouble(builder, kind, payload, time)
        elif kind not in results.SILENT and not kind.startswith("collab_"):
            self._damage.count(f"event {kind}")
            yield from builder.unknown(self._key("record"), time, f"event {kind}", payload)

    def _completed(self, builder: Builder, item: Record, time: int) -> Iterator[Event]:
        kind = item.get("type")
        if kind == "UserMessage":
            yield from self._prompted(builder, parts_text(item.get("content")), time)
        elif kind in ("CommandExecution", "FileChange"):
            yield from self._ended(builder, str(item.get("id")), str(kind), item, time)

    def _ended(
        self, builder: Builder, call_id: str, kind: str, payload: Record, time: int
    ) -> Iterator[Event]:
        """A command or a patch is over; the output that the model is shown may still come."""
        end = results.end_of(kind, payload)
        key = self._named(call_id)
        if builder.is_open(key):
            earlier = self._ends.get(call_id)
            self._ends[call_id] = end if earlier is None else earlier.joined(end)
            return
        if hash(call_id) in self._done:
            return
        self._done.add(hash(call_id))
        yield from self._call(builder, call_id, *results.implied_call(end), time, "")
        opened = builder.opened(key)
        yield from builder.result(key, time, results.result_of(builder, opened, "", end))

    def _trouble(self, builder: Builder, kind: str, payload: Record, time: int) -> Iterator[Event]:
        error = payload.get("error")
        words = payload.get("message") or payload.get("reason")
        words = words or (error.get("message") if isinstance(error, dict) else error)
        text, key = text_of(words), self._key("event")
        if kind == "turn_aborted":
            self._aborted = True
            what = f"The turn was broken off ({text or 'interrupted'})"
            yield from builder.moment(key, time, StepType.DECISION, what)
            return
        if kind in ("error", "stream_error"):
            self._retries += 1
        level = "warning" if kind.endswith("warning") else "error"
        yield builder.log(key, time, level, one_line(text) or kind, payload)

    def _compacted(self, builder: Builder, payload: Record, time: int) -> Iterator[Event]:
        yield from self._close(builder, {}, None)
        words = "Compacted the conversation"
        yield from builder.moment(
            self._key("compacted"), time, StepType.DECISION, words, metadata={}
        )
        self._thread.rewind(0)
        history = payload.get("replacement_history")
        for item in history if isinstance(history, list) else []:
            if isinstance(item, dict) and item.get("type") == "message":
                text = parts_text(item.get("content"), ("input_text", "output_text", "text"))
                self._thread.say({"role": str(item.get("role") or "user"), "content": text})

    # --- Tokens -----------------------------------------------------------------------------

    def _counted(self, builder: Builder, info: Any, time: int) -> Iterator[Event]:
        """An event that repeats itself: only a new total is a new answer."""
        if self._records_usage or not isinstance(info, dict):
            return
        total = info.get("total_token_usage")
        if total is not None and total == self._total:
            return
        self._total = total
        last = info.get("last_token_usage")
        if not isinstance(last, dict) and "prompt" in info:
            last = {"input_tokens": info["prompt"], "output_tokens": info.get("completion")}
        if isinstance(last, dict):
            yield from self._used(builder, last, time, None)

    def _used(self, builder: Builder, usage: Any, time: int, response_id: Any) -> Iterator[Event]:
        if not isinstance(usage, dict):
            return
        if self._response is None:
            yield from self._current(builder, time)
        yield from self._close(builder, usage, response_id)

    def _close(self, builder: Builder, usage: Record, response_id: Any) -> Iterator[Event]:
        response, self._response = self._response, None
        if response is None:
            return
        text = "\n\n".join(word for word in response.words if word)
        step_id = response.step_id
        if not step_id:
            step_id = builder.step_named(response.key, response.time)
            words = text or "\n\n".join(response.thoughts)
            yield from builder.answered(response.key, response.time, response.last, words)
        yield builder.asked(
            response.key,
            response.time,
            response.begun,
            step_id=step_id,
            external_id=response_id if isinstance(response_id, str) else None,
            provider="openai",
            model=self._model,
            response_message={"role": "assistant", "content": response.parts},
            response=text or None,
            duration=max(response.last - response.time, 0) / 1e9,
            attempts=self._retries + 1,
            **_tokens(usage),
        )
        self._retries = 0

    def end(self, parts: Iterable[Rollout] = ()) -> Iterator[Event]:
        """What follows the last record of all, with those of the sub-agents that joined."""
        builder = self.builder
        if builder is None:
            raise ImportFailed(f"{self.path} holds no session.")
        joined = [part for part in parts if part.builder is builder]
        for part in joined:
            settled = part._settled(builder)
            yield from below(part.step_id, settled) if part.step_id else settled
        interrupted = self._aborted and self._response is None
        yield from self._settled(builder)
        builder.joined += [part._id for part in joined]
        yield from builder.finished(RunStatus.INTERRUPTED if interrupted else RunStatus.COMPLETED)

    def _settled(self, builder: Builder) -> Iterator[Event]:
        """What was not told to its end."""
        builder.cwd = self._cwd
        for call_id, end in self._ends.items():
            key = self._named(call_id)
            if builder.is_open(key):
                found = results.result_of(builder, builder.opened(key), "", end)
                yield from builder.result(key, self._time, found)
        yield from self._close(builder, {}, None)


def _tokens(usage: Record) -> dict[str, int | None]:
    """OpenAI counts cached input and reasoning within the sums already."""
    return {
        "input_tokens": number(usage.get("input_tokens")),
        "output_tokens": number(usage.get("output_tokens")),
        "cache_read_tokens": number(usage.get("cached_input_tokens")),
        "cache_write_tokens": number(usage.get("cache_write_input_tokens")),
        "reasoning_tokens": number(usage.get("reasoning_output_tokens")),
    }
