"""Sessions of Claude Code: `<config>/projects/<folder>/<session>.jsonl`.

Beside a session lie those of its sub-agents and the outputs that were too long for it, in a
folder of its name. All that was done is taken in the order of time, whichever branch of the
conversation it stands on: it was done to the same files.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repotrace.agents import Action
from repotrace.agents.claude_code import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers import claude_code_results as results
from repotrace.importers.building import (
    Builder,
    Thread,
    moment_of,
    number,
    one_line,
    parts_text,
    tolerant,
)
from repotrace.importers.lines import Damage, Progress, first_objects, ignore, json_lines
from repotrace.records.events import Event
from repotrace.records.run import RunStatus, StepType

NAME = "claude-code"

type Record = dict[str, Any]

_SILENT = frozenset(
    [
        *("summary", "file-history-snapshot", "file-history-delta", "progress", "queue-operation"),
        *("attachment", "last-prompt", "mode", "permission-mode", "ai-title", "custom-title"),
        *("agent-name", "agent-color", "agent-setting", "pr-link", "frame-link", "started"),
        *("result", "relocated", "worktree-state", "bridge-session", "atis-latch", "tools-used"),
        *("api-request-shape", "api-request-blob", "tag", "content-replacement", "turn-context"),
        *("task-summary", "speculation-accept", "marble-origami-commit", "fork-context-ref"),
    ]
)
"""Records that say nothing about what was done."""

_KNOWN_PARTS = frozenset(
    [
        *("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document"),
        *("server_tool_use", "web_search_tool_result", "tool_reference", "fallback"),
    ]
)
_ENDED = frozenset(["end_turn", "stop_sequence", None])


def sniff(head: bytes, path: Path) -> bool:
    """Whether the first records have the marks of a session."""
    del path
    for record in first_objects(head):
        kind = record.get("type")
        if "sessionId" in record and (kind in _SILENT or "uuid" in record):
            return True
        if kind in ("summary", "file-history-snapshot") and (
            "leafUuid" in record or "snapshot" in record
        ):
            return True
    return False


def main(path: Path) -> Path:
    """The session that `path` is a part of: itself, but for the file of a sub-agent."""
    if path.parent.name == "subagents":
        session = path.parent.parent.with_suffix(".jsonl")
        if session.is_file():
            return session
    return path


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a session, its sub-agents included."""
    path = main(path)
    damage = Damage()
    streams = [_records(path, "", damage, progress)]
    for part in sorted((path.with_suffix("") / "subagents").glob("agent-*.jsonl")):
        agent_id = part.stem.removeprefix("agent-")
        streams.append(_records(part, agent_id, damage, progress))
    session = _Session(path, damage)
    merged = heapq.merge(*streams, key=lambda item: item[0])
    for number_, (_, record, agent_id) in enumerate(merged):
        taken = session.take(record, agent_id)
        kind = str(record.get("type"))
        yield from tolerant(session.builder, str(number_), kind, record, taken)
    yield from session.end()


def _records(
    path: Path, agent_id: str, damage: Damage, progress: Progress
) -> Iterator[tuple[int, Record, str]]:
    """The records of a file with times that never go back."""
    time = 0
    for record in json_lines(path, damage, progress=progress):
        time = max(time, moment_of(record.get("timestamp")) or 0)
        yield time, record, agent_id


@dataclass(slots=True)
class _Response:
    """One answer of a model, of which each part is a record."""

    id: str
    time: int
    """Of the request, as far as it is known."""
    model: str
    last: int = 0
    parts: list[Record] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    usage: Record = field(default_factory=dict)
    stop_reason: str | None = None
    request_id: str | None = None
    step_id: str = ""
    attempts: int = 1
    begun: Record = field(default_factory=dict)


@dataclass(slots=True)
class _Talk:
    """The conversation with the main agent or with one sub-agent."""

    parent_id: str = ""
    """The step that started the sub-agent."""
    thread: Thread = field(default_factory=Thread)
    response: _Response | None = None
    asked_at: int = 0
    retries: int = 0
    last_call: str = ""


class _Session:
    def __init__(self, path: Path, damage: Damage) -> None:
        self.builder: Builder | None = None
        """Made by the first record that tells of the session."""
        self._path = path
        self._damage = damage
        self._time = 0
        self._seen: set[int] = set()
        self._counts: dict[int, int] = {}
        self._talks: dict[str, _Talk] = {}
        self._waiting: dict[str, tuple[str, str]] = {}
        """Calls of sub-agents that no talk belongs to yet: prompt and step."""
        self._stop_reason: str | None = None
        self._typed_call = ""

    def take(self, record: Record, agent_id: str) -> Iterator[Event]:
        """What a record says."""
        time = moment_of(record.get("timestamp")) or self._time
        self._time = max(self._time, time)
        uuid = record.get("uuid")
        if isinstance(uuid, str):
            if hash(uuid) in self._seen:
                self._damage.duplicate += 1
                return
            self._seen.add(hash(uuid))
        kind = str(record.get("type"))
        if self.builder is None:
            told = isinstance(record.get("sessionId"), str) or isinstance(uuid, str)
            if kind not in ("user", "assistant", "system", "attachment") or not told:
                return
            yield self._begin(record, time)
        builder = self.builder
        assert builder is not None
        cwd = record.get("cwd")
        if isinstance(cwd, str) and cwd:
            builder.cwd = cwd
        talk = self._talk(record, agent_id)
        if kind == "assistant":
            yield from self._assistant(builder, talk, record, time)
        elif kind == "user":
            yield from self._user(builder, talk, record, time)
        elif kind == "system":
            yield from self._system(builder, talk, record, time)
        elif kind == "attachment":
            yield from self._attached(builder, record, time)
        elif kind == "api-request":
            talk.asked_at = time
        elif kind == "cost-state":
            cost = record.get("totalCostUSD")
            if isinstance(cost, int | float):
                yield builder.updated(self._time, attributes={"session_cost_usd": str(cost)})
        elif kind not in _SILENT:
            self._damage.count(kind)
            yield from builder.unknown(f"record {uuid or len(self._seen)}", time, kind, record)
        if isinstance(uuid, str) and kind in ("assistant", "user", "system", "attachment"):
            self._counts[hash(uuid)] = talk.thread.count

    def _begin(self, record: Record, time: int) -> Event:
        session_id = str(record.get("sessionId") or self._path.stem)
        root = record.get("uuid")
        root_id = f"first {root}" if isinstance(root, str) and root else ""
        self.builder = Builder(NAME, session_id, AGENT, root_id=root_id)
        self.builder.damage = self._damage
        branch = record.get("gitBranch")
        cwd = record.get("cwd")
        return self.builder.started(
            time,
            cwd=cwd if isinstance(cwd, str) else "",
            agent_version=record.get("version"),
            attributes={"git_branch": branch} if isinstance(branch, str) and branch else {},
        )

    def _talk(self, record: Record, agent_id: str) -> _Talk:
        name = agent_id
        if not name and record.get("isSidechain") is True:
            name = str(record.get("agentId") or "sidechain")
        talk = self._talks.get(name)
        if talk is None:
            talk = self._talks[name] = _Talk()
        if name and not talk.parent_id and record.get("type") == "user":
            talk.parent_id = self._starter(parts_text(_content(record)))
        return talk

    def _starter(self, prompt: str) -> str:
        """The step that started the sub-agent which was given this prompt."""
        found = next((c for c, (given, _) in self._waiting.items() if given == prompt), None)
        found = found or next(iter(self._waiting), None)
        return self._waiting.pop(found)[1] if found else ""

    def _attached(self, builder: Builder, record: Record, time: int) -> Iterator[Event]:
        """What the program put before the model unasked, where something was done by others."""
        facts = record.get("attachment")
        facts = facts if isinstance(facts, dict) else {}
        key = f"attachment {record.get('uuid') or time}"
        name, words = facts.get("filename"), facts.get("prompt")
        if facts.get("type") == "edited_text_file" and isinstance(name, str):
            path = builder.path(name)
            what = f"{path} was changed by somebody else"
            yield from builder.moment(key, time, StepType.EXTERNAL, what, metadata={"path": path})
        elif facts.get("type") == "queued_command" and isinstance(words, str):
            yield from builder.prompt(key, time, words)

    # --- Answers of the model ---------------------------------------------------------------

    def _assistant(
        self, builder: Builder, talk: _Talk, record: Record, time: int
    ) -> Iterator[Event]:
        message = record.get("message")
        if not isinstance(message, dict):
            self._damage.count("assistant without a message")
            return
        if record.get("isApiErrorMessage") is True or message.get("model") == "<synthetic>":
            text = parts_text(message.get("content"))
            level = "error" if record.get("isApiErrorMessage") else "info"
            yield builder.log(f"api {record.get('uuid')}", time, level, text or "API error")
            return
        name = str(message.get("id") or record.get("requestId") or record.get("uuid"))
        response = talk.response
        if response is None or response.id != name:
            yield from self._close(builder, talk)
            response = talk.response = _Response(
                name, talk.asked_at or time, str(message.get("model") or ""), last=time
            )
            response.attempts += talk.retries
            response.begun = builder.asking(name, response.time, talk.thread)
            talk.thread.say({"role": "assistant", "content": response.parts})
            talk.retries = 0
        response.last = max(response.last, time)
        if isinstance(message.get("usage"), dict):
            response.usage = message["usage"]
        response.stop_reason = message.get("stop_reason") or response.stop_reason
        response.request_id = record.get("requestId") or response.request_id
        for index, part in enumerate(_parts(message.get("content"))):
            yield from self._part(
                builder, talk, response, part, time, f"{record.get('uuid')} {index}"
            )

    def _part(
        self,
        builder: Builder,
        talk: _Talk,
        response: _Response,
        part: Record,
        time: int,
        place: str,
    ) -> Iterator[Event]:
        kind = part.get("type")
        if kind == "text":
            response.words.append(str(part.get("text") or ""))
        elif kind == "thinking":
            response.thoughts.append(str(part.get("thinking") or ""))
        if kind != "tool_use":
            response.parts.append(self._shaped(part))
            return
        call_id = str(part.get("id") or place)
        name, given = str(part.get("name")), part.get("input")
        if any(known.get("id") == call_id for known in response.parts):
            return
        response.parts.append(
            {"type": "tool_call", "id": call_id, "name": name, "arguments": given}
        )
        reason = "\n\n".join(response.words) or "\n\n".join(response.thoughts)
        yield from builder.call(call_id, name, given, time, reason=reason, parent_id=talk.parent_id)
        step_id = builder.step_of(call_id) or ""
        response.step_id = response.step_id or step_id
        talk.last_call = call_id
        call = builder.opened(call_id)
        if call is not None and call.tool.action is Action.AGENT:
            self._waiting[call_id] = (str(call.arguments.get("prompt") or ""), step_id)

    def _shaped(self, part: Record) -> Record:
        """A part of a message in the words of `events.Part`."""
        kind = str(part.get("type"))
        if kind == "text":
            return {"type": "text", "text": str(part.get("text") or "")}
        if kind == "thinking":
            return {"type": "thinking", "text": str(part.get("thinking") or "")}
        if kind == "image":
            source = part.get("source")
            media = source.get("media_type") if isinstance(source, dict) else None
            return {"type": "image", **({"media_type": media} if media else {})}
        if kind == "tool_result":
            content = part.get("content")
            shaped: Any = content if isinstance(content, str) else parts_text(content)
            result = {"type": "tool_result", "id": part.get("tool_use_id"), "content": shaped}
            return result | ({"is_error": True} if part.get("is_error") else {})
        if kind not in _KNOWN_PARTS:
            self._damage.count(f"part {kind}")
        if kind in ("document", "redacted_thinking"):
            return {"type": "unknown", "raw": {"type": kind}}
        return {"type": "unknown", "raw": part}

    def _close(self, builder: Builder, talk: _Talk) -> Iterator[Event]:
        """The answer is complete: one model call."""
        response, talk.response = talk.response, None
        if response is None:
            return
        if not talk.parent_id:
            self._stop_reason = response.stop_reason
        text = "\n\n".join(word for word in response.words if word)
        step_id = response.step_id
        if not step_id:
            step_id = builder.step_named(response.id, response.time)
            words = text or "\n\n".join(response.thoughts)
            yield from builder.answered(
                response.id, response.time, response.last, words, parent_id=talk.parent_id
            )
        yield builder.asked(
            response.id,
            response.time,
            response.begun,
            step_id=step_id,
            external_id=response.id,
            provider="anthropic",
            model=response.model,
            response_message={"role": "assistant", "content": response.parts},
            response=text or None,
            duration=(response.last - response.time) / 1e9,
            stop_reason=response.stop_reason,
            request_id=response.request_id,
            attempts=response.attempts,
            **_tokens(response.usage),
        )

    # --- What the model is told -------------------------------------------------------------

    def _user(self, builder: Builder, talk: _Talk, record: Record, time: int) -> Iterator[Event]:
        parts = _parts(_content(record))
        answers = [part for part in parts if part.get("type") == "tool_result"]
        if not answers:
            yield from self._close(builder, talk)
        if record.get("isCompactSummary") is True:
            talk.thread.rewind(0)
        elif not answers and record.get("isMeta") is not True:
            parent = record.get("parentUuid")
            count = self._counts.get(hash(parent)) if isinstance(parent, str) else None
            if count is not None:
                talk.thread.rewind(count)
        for part in answers:
            yield from self._answer(builder, talk, record, part, time, len(answers))
        words = parts_text([part for part in parts if part.get("type") == "text"])
        if words and not answers and not record.get("isMeta") and not talk.parent_id:
            yield from self._said(builder, record, words, time)
        shaped = [self._shaped(part) for part in parts]
        if shaped:
            only = shaped[0].get("text") if len(shaped) == 1 else None
            role = "tool" if answers and len(answers) == len(parts) else "user"
            talk.thread.say({"role": role, "content": shaped if only is None else only})
        talk.asked_at = time

    def _said(self, builder: Builder, record: Record, words: str, time: int) -> Iterator[Event]:
        key = f"user {record.get('uuid') or time}"
        if record.get("isCompactSummary") is True or record.get("isSidechain") is True:
            return
        if words.startswith("[Request interrupted by user"):
            yield from builder.moment(
                key, time, StepType.DECISION, "The user interrupted the agent"
            )
        elif words.startswith("<bash-"):
            yield from self._typed(builder, key, words, time)
        elif words.startswith(("<local-command-", "<command-")):
            yield builder.log(key, time, "info", words)
        else:
            yield from builder.prompt(key, time, words)

    def _typed(self, builder: Builder, key: str, words: str, time: int) -> Iterator[Event]:
        """A command that the user typed, or its output."""
        parts = dict(re.findall(r"<bash-(input|stdout|stderr)>(.*?)</bash-\1>", words, re.DOTALL))
        if "input" in parts:
            self._typed_call = key
            given = {"command": parts["input"]}
            role = {"role": "user"}
            yield from builder.call(key, "Bash", given, time, metadata=role)
        elif builder.is_open(self._typed_call):
            shown = results.typed(parts.get("stdout", ""), parts.get("stderr", ""))
            yield from builder.result(self._typed_call, time, shown)

    def _answer(
        self, builder: Builder, talk: _Talk, record: Record, part: Record, time: int, count: int
    ) -> Iterator[Event]:
        call_id = str(part.get("tool_use_id") or record.get("sourceToolUseID") or "")
        if not builder.is_open(call_id) and talk.last_call and not part.get("tool_use_id"):
            call_id = talk.last_call
        call = builder.opened(call_id)
        told = record.get("toolUseResult") if count == 1 else None
        folder = self._path.with_suffix("") / "tool-results"
        result = results.result_of(builder, call, part, told, folder)
        step_id = call.step_id if call else ""
        yield from builder.result(call_id, time, result)
        self._waiting.pop(call_id, None)
        refusal = results.refusal(record, result.text) if result.failed else None
        if refusal is not None:
            what = f"Not allowed: {call.name if call else 'a tool'}"
            facts: dict[str, Any] = {"reason": refusal}
            if step_id:
                facts["parent_id"] = step_id
            yield from builder.moment(f"refused {call_id}", time, StepType.DECISION, what, **facts)

    # --- What the program says --------------------------------------------------------------

    def _system(self, builder: Builder, talk: _Talk, record: Record, time: int) -> Iterator[Event]:
        kind = str(record.get("subtype"))
        key = f"system {record.get('uuid') or time}"
        if kind == "compact_boundary":
            yield from self._close(builder, talk)
            facts = record.get("compactMetadata")
            facts = facts if isinstance(facts, dict) else {}
            size = number(facts.get("preTokens"))
            words = f"Compacted the conversation ({facts.get('trigger') or 'auto'})"
            words += f" of {size} tokens" if size else ""
            yield from builder.moment(key, time, StepType.DECISION, words, metadata=facts)
            talk.thread.rewind(0)
        elif kind in ("api_error", "error", "api_refusal", "model_refusal_fallback"):
            if kind == "api_error":
                talk.retries = max(talk.retries, number(record.get("retryAttempt")) or 1)
                talk.asked_at = talk.asked_at or time
            names = ("error", "retryInMs", "retryAttempt", "maxRetries", "source")
            data = {name: record[name] for name in names if record.get(name) is not None}
            message = one_line(_error_text(record.get("error")) or kind)
            yield builder.log(key, time, "error", message, data)

    def end(self) -> Iterator[Event]:
        """What follows the last record."""
        builder = self.builder
        if builder is None:
            raise ImportFailed(f"{self._path} holds no session.")
        for talk in self._talks.values():
            yield from self._close(builder, talk)
        ended = self._stop_reason in _ENDED
        yield from builder.finished(RunStatus.COMPLETED if ended else RunStatus.INTERRUPTED)


def _content(record: Record) -> Any:
    message = record.get("message")
    return message.get("content") if isinstance(message, dict) else None


def _parts(content: Any) -> list[Record]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if not isinstance(content, list):
        return []
    return [part for part in content if isinstance(part, dict)]


def _tokens(usage: Record) -> dict[str, int | None]:
    """Anthropic reports cached input apart from the rest."""
    plain, output = number(usage.get("input_tokens")), number(usage.get("output_tokens"))
    read, written = (
        number(usage.get(f"cache_{name}_input_tokens")) for name in ("read", "creation")
    )
    if plain is None and output is None:
        return {}
    details = usage.get("output_tokens_details")
    details = details if isinstance(details, dict) else {}
    return {
        "input_tokens": (plain or 0) + (read or 0) + (written or 0),
        "output_tokens": output,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "reasoning_tokens": number(details.get("thinking_tokens")),
    }


def _error_text(error: Any) -> str:
    if isinstance(error, dict):
        return str(error.get("formatted") or error.get("message") or "")
    return str(error or "")
