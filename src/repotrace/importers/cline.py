"""Sessions of Cline: `*.messages.json` of its core, `tasks/<id>/` of the older extension.

The extension writes calls of tools into the text of answers, or as blocks; tokens of a task are
in `ui_messages.json` beside the conversation, those of the core with each message.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repotrace.agents.cline import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers.building import (
    Builder,
    Events,
    Result,
    Thread,
    blob_id,
    moment_of,
    number,
    parts_text,
    text_of,
    tolerant,
)
from repotrace.importers.cline_results import (
    Asked,
    calls_of,
    results_of,
    spoken_calls,
    told_result,
)
from repotrace.importers.lines import Progress, ignore, whole_json
from repotrace.records.events import Event
from repotrace.records.run import StepType

NAME = "cline"

type Record = dict[str, Any]

_HISTORY, _SHOWN = "api_conversation_history.json", "ui_messages.json"
_TASK = re.compile(r"<(task|feedback|answer|user_message)>\n?(.*?)\n?</\1>", re.DOTALL)
_DETAILS = re.compile(r"<environment_details>.*?(?:</environment_details>|\Z)", re.DOTALL)
_FOLDER = re.compile(
    r"Current Working Directory \(([^)\n]+)\)|(?:Current )?Working Directory: ([^\n]+)"
)
_RESULT = re.compile(r"\[(\w+)(?: for .*?)?\] Result:", re.DOTALL)
_TICK = 1_000_000


def sniff(head: bytes, path: Path) -> bool:
    """Whether it is a session of the core, or a task of the extension."""
    if not head:
        return (path / _HISTORY).is_file()
    start = head.lstrip()
    if start.startswith(b"{"):
        marks = (b'"sessionId"', b'"messages"', b'"role"')
        return all(mark in head for mark in marks) and b'"projectHash"' not in head
    if not start.startswith(b"["):
        return False
    if path.name == _SHOWN:
        return path.with_name(_HISTORY).is_file()
    marks = (b"<environment_details>", b"<task>", b"Current Working Directory")
    return b'"role"' in head and (path.name == _HISTORY or any(mark in head for mark in marks))


def main(path: Path) -> Path:
    """The conversation that `path` stands for: that of a task, for its folder or other files."""
    if path.is_dir():
        return path / _HISTORY
    return path.with_name(_HISTORY) if path.name == _SHOWN else path


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a session or task."""
    path = main(path)
    value = whole_json(path, progress=progress)
    told: Record = value if isinstance(value, dict) else {"messages": value}
    listed = told.get("messages")
    messages = [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
    if not any(message.get("role") == "assistant" for message in messages):
        raise ImportFailed(f"{path} holds no answers of a model.")
    yield from _Session(path, told, messages).events()


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _beside(path: Path) -> Any:
    """The JSON of a file that may be beside the conversation."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


class _Session:
    def __init__(self, path: Path, told: Record, messages: list[Record]) -> None:
        self._told, self._messages = told, messages
        self._manifest = _object(_beside(path.with_name(path.name.replace(".messages.", "."))))
        self._requests = _requests(_beside(path.with_name(_SHOWN)))
        times = [moment_of(message.get("ts")) for message in messages]
        first = next((time for time in times if time is not None), None)
        first = first or moment_of(self._manifest.get("started_at"))
        self._time = first or moment_of(told.get("updated_at")) or _task_moment(path)
        timed = any(time is not None for time in times)
        name = told.get("sessionId")
        self._builder = Builder(
            NAME,
            name if isinstance(name, str) and name else _identity(path, messages),
            AGENT,
            timed=timed,
        )
        self._timed = timed
        self._thread = Thread()
        self._waiting: list[str] = []
        """Calls written into the last answer."""
        self._groups: dict[str, list[str]] = {}
        """The calls that one call of Cline stands for."""

    def events(self) -> Events:
        builder = self._builder
        version = self._manifest.get("version")
        yield builder.started(
            self._time,
            cwd=self._folder(),
            agent_version=version if isinstance(version, str) else None,
        )
        system = self._told.get("system_prompt")
        if isinstance(system, str) and system:
            self._thread.say({"role": "system", "content": system})
        for index, message in enumerate(self._messages):
            asked_at = self._time
            self._time = max(self._time, moment_of(message.get("ts")) or self._time + _TICK)
            answers = message.get("role") == "assistant"
            made = (
                self._answered(index, message, asked_at) if answers else self._heard(index, message)
            )
            yield from tolerant(builder, str(index), str(message.get("role")), message, made)
        yield from builder.finished()

    def _folder(self) -> str:
        for name in ("cwd", "workspace_root"):
            if isinstance(self._manifest.get(name), str):
                return str(self._manifest[name])
        texts = [text_of(self._told.get("system_prompt"))]
        texts += [parts_text(message.get("content")) for message in self._messages[:2]]
        found = next((match for text in texts if (match := _FOLDER.search(text))), None)
        return (found[1] or found[2]).strip() if found else ""

    # --- The model --------------------------------------------------------------------------

    def _answered(self, index: int, message: Record, asked_at: int) -> Events:
        builder = self._builder
        key = text_of(message.get("id")) or f"answer {index}"
        begun = builder.asking(key, asked_at, self._thread)
        parts, text, calls = self._parts(index, message)
        answer: Record = {"role": "assistant", "content": parts}
        self._thread.say(answer)
        step_id = ""
        self._waiting = []
        for call in calls:
            yield from builder.call(call.id, call.name, call.arguments, self._time, reason=text)
            step_id = step_id or builder.step_of(call.id) or ""
        if not step_id:
            step_id = builder.step_named(key, asked_at)
            yield from builder.answered(key, asked_at, self._time, text)
        spoken = [call.id for call in calls if call.id.startswith(f"{key} ")]
        self._waiting = spoken
        model = _object(message.get("modelInfo"))
        yield builder.asked(
            key,
            asked_at,
            begun,
            step_id=step_id,
            external_id=message.get("id") if isinstance(message.get("id"), str) else None,
            model=_name(model.get("id") or model.get("modelId")),
            provider=_name(model.get("provider") or model.get("providerId")),
            response_message=answer,
            response=text or None,
            duration=(self._time - asked_at) / 1e9 if self._timed else None,
            **self._usage(message),
        )

    def _parts(self, index: int, message: Record) -> tuple[list[Record], str, list[Asked]]:
        """The parts of an answer, its words, and the calls in it."""
        key = text_of(message.get("id")) or f"answer {index}"
        content = message.get("content")
        listed = content if isinstance(content, list) else [{"type": "text", "text": content}]
        parts: list[Record] = []
        words: list[str] = []
        thoughts: list[str] = []
        calls: list[Asked] = []
        for place, part in enumerate(part for part in listed if isinstance(part, dict)):
            kind = part.get("type")
            if kind == "text":
                said, spoken = spoken_calls(text_of(part.get("text")), f"{key} {place}")
                words.append(said)
                parts.append({"type": "text", "text": text_of(part.get("text"))})
                calls += spoken
            elif kind == "thinking":
                thoughts.append(text_of(part.get("thinking")))
                parts.append({"type": "thinking", "text": text_of(part.get("thinking"))})
            elif kind == "tool_use":
                call_id, name = text_of(part.get("id")) or f"{index}.{place}", str(part.get("name"))
                given = part.get("input")
                parts.append({"type": "tool_call", "id": call_id, "name": name, "arguments": given})
                made = calls_of(call_id, name, given)
                self._groups[call_id] = [call.id for call in made]
                calls += made
            else:
                self._builder.damage.count(f"part {kind}")
                parts.append({"type": "unknown", "raw": part})
        return parts, "\n\n".join(filter(None, words)) or "\n\n".join(thoughts), calls

    def _usage(self, message: Record) -> dict[str, Any]:
        metrics = _object(message.get("metrics"))
        if "inputTokens" in metrics or "tokens" in metrics:
            tokens = _object(metrics.get("tokens"))
            cost = metrics.get("cost")
            cached = number(metrics.get("cacheReadTokens", tokens.get("cached")))
            return {
                "input_tokens": number(metrics.get("inputTokens", tokens.get("prompt"))),
                "output_tokens": number(metrics.get("outputTokens", tokens.get("completion"))),
                "cache_read_tokens": cached,
                "cache_write_tokens": number(metrics.get("cacheWriteTokens")),
                "cost_usd": str(cost) if isinstance(cost, int | float) else None,
            }
        if not self._requests:
            return {}
        told = self._requests.pop(0)
        counts = [number(told.get(name)) or 0 for name in ("tokensIn", "cacheReads", "cacheWrites")]
        cost = told.get("cost")
        return {
            "input_tokens": sum(counts),
            "output_tokens": number(told.get("tokensOut")),
            "cache_read_tokens": counts[1],
            "cache_write_tokens": counts[2],
            "cost_usd": str(cost) if isinstance(cost, int | float) else None,
        }

    # --- What it was told -------------------------------------------------------------------

    def _heard(self, index: int, message: Record) -> Events:
        content = message.get("content")
        listed = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts: list[str] = []
        shaped: list[Record] = []
        for part in listed:
            if not isinstance(part, dict):
                continue
            kind = part.get("type")
            if kind == "tool_result":
                yield from self._result(part)
                said = parts_text(part.get("content")) or text_of(part.get("content"))
                shaped.append(
                    {"type": "tool_result", "id": part.get("tool_use_id"), "content": said}
                )
            elif kind == "text":
                texts.append(text_of(part.get("text")))
                shaped.append({"type": "text", "text": texts[-1]})
            elif kind == "file":
                shaped.append({"type": "text", "text": text_of(part.get("content"))})
                yield from self._given_file(index, part)
            else:
                shaped.append({"type": "image" if kind == "image" else "unknown"})
        role = "tool" if shaped and all(p["type"] == "tool_result" for p in shaped) else "user"
        self._thread.say({"role": role, "content": shaped})
        called = bool(self._waiting)
        yield from self._told_results(texts)
        words = [_words(text, among_results=called) for text in texts]
        said = "\n\n".join(word for word in words if word)
        if said:
            yield from self._builder.prompt(f"prompt {index}", self._time, said)

    def _given_file(self, index: int, part: Record) -> Events:
        """A file that the user put into the prompt."""
        path = part.get("path")
        if isinstance(path, str) and path:
            name = f"given {index} {path}"
            yield from self._builder.call(name, "read_file", {"path": path}, self._time)
            content = text_of(part.get("content"))
            oid = blob_id(content.encode("utf-8", "surrogatepass"))
            read = {"file_path": self._builder.path(path), "kind": "read", "object_id": oid}
            told = Result(content, reads=[read])
            yield from self._builder.result(name, self._time, told)

    def _result(self, part: Record) -> Events:
        call_id = text_of(part.get("tool_use_id"))
        names = self._groups.pop(call_id, [call_id])
        calls = [self._builder.opened(name) for name in names]
        for name, result in zip(names, results_of(part, calls), strict=False):
            yield from self._ended(name, result)

    def _ended(self, name: str, result: Result) -> Events:
        builder = self._builder
        step_id = builder.step_of(name)
        yield from builder.result(name, self._time, result)
        if result.refused and step_id:
            yield from builder.moment(
                f"refused {name}",
                self._time,
                StepType.DECISION,
                "The user refused the call.",
                parent_id=step_id,
                input_context=result.text,
            )

    def _told_results(self, texts: list[str]) -> Events:
        """The results of the calls that were written into the last answer, in its order."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        whole = "\n".join(_DETAILS.sub("", text) for text in texts).strip("\n")
        starts = [*_RESULT.finditer(whole)]
        for place, name in enumerate(waiting):
            call = self._builder.opened(name)
            if call is None:
                continue
            if place >= len(starts):
                if not starts and place == 0 and whole.strip():
                    yield from self._ended(name, told_result(call, whole.strip()))
                continue
            end = starts[place + 1].start() if place + 1 < len(starts) else len(whole)
            text = whole[starts[place].end() : end].strip("\n")
            yield from self._ended(name, told_result(call, text))


def _words(text: str, *, among_results: bool = False) -> str:
    """What the user said in a message, without what Cline put around it."""
    found = [match[2].strip() for match in _TASK.finditer(text)]
    if found:
        return "\n\n".join(found)
    if among_results:
        return ""
    rest = _DETAILS.sub("", text).strip()
    return "" if _RESULT.match(rest) or rest.startswith(("[", "<", "# TODO", "(")) else rest


def _requests(shown: Any) -> list[Record]:
    """The requests of a task that were answered, as its list of messages tells them."""
    found = []
    for entry in shown if isinstance(shown, list) else ():
        if not isinstance(entry, dict) or entry.get("say") != "api_req_started":
            continue
        try:
            told = json.loads(text_of(entry.get("text")))
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict) and isinstance(told.get("tokensOut"), int | float):
            found.append(told)
    return found


def _task_moment(path: Path) -> int:
    """When a task began: its folder is named so."""
    name = path.parent.name
    return moment_of(int(name)) or 0 if name.isascii() and name.isdecimal() else 0


def _identity(path: Path, messages: list[Record]) -> str:
    """A name for a task: that of its folder, or how it began."""
    if path.name == _HISTORY and path.parent.name.isdecimal():
        return path.parent.name
    begin = json.dumps(messages[:2], sort_keys=True, default=str)
    return hashlib.sha256(begin.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
