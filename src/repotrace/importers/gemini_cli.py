"""Sessions of Gemini CLI: `session-*.jsonl`, a log of updates, and the one `.json` of old ones.

A message is written anew whenever more of it is known; the newest of its records counts.
"""

from __future__ import annotations

import glob
import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from repotrace.agents.gemini_cli import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers.building import (
    Builder,
    Events,
    Thread,
    below,
    moment_of,
    number,
    parts_text,
    text_of,
    tolerant,
)
from repotrace.importers.effects import normalised
from repotrace.importers.gemini_cli_results import ENDED, response_text, result_of
from repotrace.importers.lines import (
    Damage,
    Progress,
    first_objects,
    ignore,
    json_lines,
    looks_like_object,
    opened,
    whole_json,
)
from repotrace.records.events import Event, derived_run_id
from repotrace.records.run import StepType

NAME = "gemini-cli"

type Record = dict[str, Any]

_LOOKED_AT = 300
"""Records at the beginning that are looked at for the folder of the session."""
_LINE = 1 << 10
"""Bytes of the first line that tell what kind of file it is."""
_FOLDERS = re.compile(
    r"(?:Workspace Directories:\*\*\s*\n\s*- |working in the directory: )(/[^\n]*)"
)
_CONTEXT = ("<session_context>", "This is the Gemini CLI.")
_REFERENCED = "\n--- Content from referenced files ---"
_LEVELS = {"info": "info", "warning": "warning", "error": "error"}
_PATHS = ("file_path", "absolute_path", "dir_path", "path")


def sniff(head: bytes, path: Path) -> bool:
    """Whether it is a session: the name of the project in its head, or messages of its shape."""
    del path
    if not looks_like_object(head) or head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return False
    records = list(first_objects(head))
    if not records:
        marks = (b'"sessionId"', b'"projectHash"', b'"messages"')
        return all(mark in head for mark in marks)
    return any(_is_header(record) for record in records) or any(
        record.get("type") == "gemini" and _is_message(record) for record in records
    )


def _is_header(record: Record) -> bool:
    return isinstance(record.get("projectHash"), str) and "sessionId" in record


def _is_message(record: Record) -> bool:
    return isinstance(record.get("id"), str) and "timestamp" in record and "type" in record


def main(path: Path) -> Path:
    """The session that started the sub-agent of this path, or the path."""
    if path.name.startswith("session-"):
        return path
    name = glob.escape(path.parent.name[:8])
    found = sorted(path.parent.parent.glob(f"session-*-{name}.jsonl")) if name else []
    return found[0] if found else path


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a session, and of the sub-agents beside it: in the steps that started them, or
    as runs that name its run where no step tells of them."""
    path = main(path)
    damage = Damage()
    records = _records(path, damage, progress)
    first = list(islice(records, _LOOKED_AT))
    if not any(_is_message(message) for record in first for message in _messages_in(record)):
        raise ImportFailed(f"{path} holds no messages of a session.")
    session = _Session(path, first, damage)
    yield from session.events(first, records)
    for beside in session.sub_agents.values():
        lost = Damage()
        told = _records(beside, lost, ignore)
        begin = list(islice(told, _LOOKED_AT))
        if begin and _is_header(begin[0]):
            yield from _Session(beside, begin, lost).events(begin, told)


def _records(path: Path, damage: Damage, progress: Progress) -> Iterator[Record]:
    with opened(path) as stream:
        begin = stream.readline(_LINE)
    if begin.strip(b"\xef\xbb\xbf \t\r\n") != b"{":
        yield from json_lines(path, damage, progress=progress)
        return
    # An old session is one value over many lines.
    value = whole_json(path, progress=progress)
    if isinstance(value, dict):
        yield value


def _messages_in(record: Record) -> list[Record]:
    """The messages that a record holds, be it one itself."""
    if _is_message(record):
        return [record]
    change = record.get("$set")
    listed = (change if isinstance(change, dict) else record).get("messages")
    return [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []


class _Session:
    def __init__(self, path: Path, first: list[Record], damage: Damage) -> None:
        header = next((record for record in first if _is_header(record)), {})
        messages = [message for record in first for message in _messages_in(record)]
        name = text_of(header.get("sessionId")) or next(
            (message["id"] for message in messages if _is_message(message)), ""
        )
        self._builder = Builder(NAME, name, AGENT)
        self._builder.damage = damage
        self._header = header
        self._root = _folder(header, messages)
        self._parent = ""
        self._step_id = ""
        """Of a sub-agent that is told within it: the step that started it."""
        self.sub_agents: dict[str, Path] = {}
        """Those not told of, by name. Their files lie in a folder that is named by the session
        which started them."""
        if header.get("kind") == "subagent":
            self._parent = derived_run_id(NAME, path.parent.name)
        elif re.fullmatch(r"[\w-]{8,128}", text_of(header.get("sessionId"))):
            files = sorted((path.parent / header["sessionId"]).glob("*.jsonl"))
            self.sub_agents = {file.stem: file for file in files}
        times = (moment_of(message.get("timestamp")) for message in messages)
        begun = moment_of(header.get("startTime"))
        self._time = begun or next((time for time in times if time), None) or 0
        self._thread = Thread()
        self._pending: Record | None = None
        """The answer whose records are not all read."""
        self._places: dict[str, int] = {}
        """How many messages of the conversation are before each of those in it."""
        self._seen: set[str] = set()
        """Messages that were told."""
        self._calls: dict[tuple[str, str], str] = {}
        """Names of calls, by message and the name that they have there."""
        self._names: set[str] = set()
        self._changed: list[tuple[str, str]] = []
        """Answers of the conversation with the files that they changed."""

    def events(self, first: list[Record], rest: Iterable[Record]) -> Events:
        builder = self._builder
        yield builder.started(
            self._time,
            cwd=self._root,
            parent_run_id=self._parent or None,
        )
        builder.cwd = self._root
        yield from self._told(first, rest)
        yield from builder.finished()

    def _told(self, first: list[Record], rest: Iterable[Record]) -> Events:
        builder = self._builder
        for records in (first, rest):
            for record in records:
                yield from tolerant(builder, self._key(record), "record", record, self._one(record))
        if self._pending is not None:
            pending = self._pending
            yield from tolerant(builder, self._key(pending), "answer", pending, self._flush())

    def _sub_agent(self, name: str, step_id: str) -> Events:
        """What a sub-agent did, in the step that started it, if its file is there."""
        path = self.sub_agents.get(name)
        if path is None:
            return
        header = next(_records(path, Damage(), ignore), {})
        if not _is_header(header) or header.get("sessionId") != name:
            return
        del self.sub_agents[name]
        self._builder.joined.append(name)
        records = _records(path, self._builder.damage, ignore)
        begin = list(islice(records, _LOOKED_AT))
        part = _Session(path, begin, self._builder.damage)
        part._builder, part._step_id, part._root = self._builder, step_id, part._root or self._root
        part._names = self._names
        self._builder.cwd = part._root
        yield from below(step_id, part._told(begin, records))
        self._builder.cwd = self._root

    def _key(self, record: Record) -> str:
        return f"{text_of(record.get('id'))} {self._builder.time}"

    def _one(self, record: Record) -> Events:
        change = record.get("$set")
        if isinstance(change, dict):
            yield from self._set(change)
        elif "$rewindTo" in record:
            yield from self._flush()
            yield from self._rewound(text_of(record["$rewindTo"]))
        elif _is_message(record):
            yield from self._message(record)
        elif _is_header(record):
            yield from self._facts(record)
            for message in _messages_in(record):
                yield from tolerant(
                    self._builder, self._key(message), "message", message, self._message(message)
                )
        else:
            kind = text_of(record.get("type")) or ", ".join(sorted(record)[:5]) or "empty"
            self._builder.damage.count(kind)
            yield from self._builder.unknown(self._key(record), self._time, kind, record)

    def _facts(self, told: Record) -> Events:
        summary = told.get("summary")
        if isinstance(summary, str) and summary and not self._step_id:
            yield self._builder.updated(self._time, attributes={"summary": summary})

    def _set(self, change: Record) -> Events:
        yield from self._facts(change)
        if not isinstance(change.get("messages"), list):
            return
        yield from self._flush()
        messages = [m for m in _messages_in({"$set": change}) if _is_message(m)]
        if self._places.keys() - {message["id"] for message in messages}:
            yield from self._builder.moment(
                f"compacted {self._time} {len(self._places)}",
                self._time,
                StepType.DECISION,
                "The conversation was compacted.",
            )
        self._thread.rewind(0)
        self._places = {}
        for message in messages:
            recorded = bool({"tokens", "model", "toolCalls"} & message.keys())
            if recorded and message["id"] not in self._seen:
                yield from self._message(message)
                yield from self._flush()
                continue
            self._places[message["id"]] = self._thread.count
            role = "assistant" if message.get("type") == "gemini" else "user"
            self._thread.say({"role": role, "content": parts_text(message.get("content"))})
        self._changed = [known for known in self._changed if known[0] in self._places]

    def _rewound(self, name: str) -> Events:
        """The user went back to before a message, perhaps with the files too."""
        count = self._places.get(name, 0)
        self._thread.rewind(count)
        self._places = {key: place for key, place in self._places.items() if place < count}
        undone = {path for message, path in self._changed if message not in self._places}
        self._changed = [known for known in self._changed if known[0] in self._places]
        yield from self._builder.moment(
            f"rewound {name} {self._time}",
            self._time,
            StepType.DECISION,
            "The user rewound the conversation.",
            metadata={"to": name},
        )
        for path in sorted(undone):
            yield from self._builder.moment(
                f"undone {name} {path} {self._time}",
                self._time,
                StepType.EXTERNAL,
                f"{path} may have been taken back",
                metadata={"path": path},
            )

    def _message(self, message: Record) -> Events:
        kind, name = message.get("type"), message["id"]
        pending = self._pending
        if pending is not None and pending["id"] == name:
            self._pending = {**pending, **message}
            return
        yield from self._flush()
        if kind in ("gemini", "model"):
            if name in self._seen:
                yield from self._late(message)
            else:
                self._seen.add(name)
                self._pending = message
            return
        if name in self._seen:
            return
        self._seen.add(name)
        self._time = max(self._time, moment_of(message.get("timestamp")) or 0)
        if kind == "user":
            yield from self._user(message)
        elif kind in _LEVELS:
            text = parts_text(message.get("content"))
            yield self._builder.log(f"{kind} {name}", self._time, _LEVELS[kind], text)
        else:
            self._builder.damage.count(f"message {kind}")
            yield from self._builder.unknown(name, self._time, f"message {kind}", message)

    def _user(self, message: Record) -> Events:
        content, name = message.get("content"), message["id"]
        self._places[name] = self._thread.count
        text = parts_text(content)
        listed = content if isinstance(content, list) else []
        if any(isinstance(part, dict) and "functionResponse" in part for part in listed):
            if text:
                self._thread.say({"role": "user", "content": text})
            return  # results are told with the calls
        self._thread.say({"role": "user", "content": text})
        # A sub-agent is asked by the call that started it.
        if not text.lstrip().startswith(_CONTEXT) and not self._step_id:
            said = parts_text(message.get("displayContent")) or text.partition(_REFERENCED)[0]
            yield from self._builder.prompt(f"prompt {name}", self._time, said.strip())

    # --- Answers ----------------------------------------------------------------------------

    def _flush(self) -> Events:
        """The answer that was pending, as a model call with the calls of tools in it."""
        message, self._pending = self._pending, None
        if message is None:
            return
        builder, name = self._builder, message["id"]
        self._places[name] = self._thread.count
        asked_at = self._time
        self._time = max(asked_at, moment_of(message.get("timestamp")) or 0)
        key = f"answer {name}"
        begun = builder.asking(key, asked_at, self._thread)
        text = parts_text(message.get("content", message.get("parts")))
        thoughts = "\n\n".join(_thoughts(message))
        calls = _calls(message)
        answer = self._answer(message, text, thoughts, calls)
        self._thread.say(answer)
        step_id = ""
        for call in calls:
            yield from self._called(name, call, text or thoughts)
            step_id = step_id or builder.step_of(self._name(name, call)) or ""
        if not step_id:
            step_id = builder.step_named(key, asked_at)
            yield from builder.answered(key, asked_at, self._time, text)
        model = message.get("model")
        yield builder.asked(
            key,
            asked_at,
            begun,
            step_id=step_id,
            external_id=name,
            model=model if isinstance(model, str) else None,
            provider="google",
            response_message=answer,
            response=text or None,
            duration=(self._time - asked_at) / 1e9,
            **_tokens(message.get("tokens")),
        )
        yield from self._results(name, calls)

    def _late(self, message: Record) -> Events:
        """More of an answer that others came behind: calls that are new, results that were not."""
        calls = _calls(message)
        for call in calls:
            if (message["id"], text_of(call.get("id"))) not in self._calls:
                yield from self._called(message["id"], call, parts_text(message.get("content")))
        yield from self._results(message["id"], calls)

    def _answer(self, message: Record, text: str, thoughts: str, calls: list[Record]) -> Record:
        parts: list[Record] = [{"type": "thinking", "text": thoughts}] if thoughts else []
        if text:
            parts.append({"type": "text", "text": text})
        for call in calls:
            shaped = {"type": "tool_call", "id": self._name(message["id"], call)}
            parts.append({**shaped, "name": call.get("name"), "arguments": call.get("args")})
        return {"role": "assistant", "content": parts}

    def _name(self, message: str, call: Record) -> str:
        """The name of a call, which no other has."""
        key = (message, text_of(call.get("id")))
        if key not in self._calls:
            name = key[1] if key[1] and key[1] not in self._names else f"{message} {key[1]}"
            self._names.add(name)
            self._calls[key] = name
        return self._calls[key]

    def _called(self, message: str, call: Record, reason: str) -> Events:
        builder, given = self._builder, call.get("args")
        arguments = given if isinstance(given, dict) else {}
        name = text_of(call.get("name"))
        if name == "run_shell_command":
            folders = (arguments.get(key) for key in ("dir_path", "directory", "cwd"))
            folder = next((f for f in folders if isinstance(f, str) and f), "")
            builder.cwd = normalised(self._root, folder) if folder else self._root
        if name == "read_file" and "file_path" not in arguments:
            path = arguments.get("absolute_path") or arguments.get("path")
            arguments = {**arguments, "file_path": path}
        if name in ("glob", "list_directory") and "path" in arguments:
            arguments = {"dir_path": arguments["path"], **arguments}
        time = self._time
        sub_agent = call.get("agentId")
        yield from builder.call(
            self._name(message, call),
            name,
            arguments,
            time,
            reason=reason,
            metadata={"agent_id": sub_agent} if isinstance(sub_agent, str) else None,
        )
        builder.cwd = self._root

    def _results(self, message: str, calls: list[Record]) -> Events:
        builder = self._builder
        for call in calls:
            name = self._name(message, call)
            opened = builder.opened(name)
            if opened is None or call.get("status") not in ENDED:
                continue
            time = max(self._time, moment_of(call.get("timestamp")) or 0)
            yield from self._sub_agent(text_of(call.get("agentId")), opened.step_id)
            result = result_of(call, opened)
            shown = response_text(call.get("result")) or result.text
            content = [{"type": "tool_result", "id": name, "content": shown}]
            self._thread.say({"role": "tool", "content": content})
            yield from builder.result(name, time, result)
            self._changed += [(message, str(o["file_path"])) for o in result.operations]
            if call.get("status") == "cancelled":
                yield from builder.moment(
                    f"cancelled {name}",
                    time,
                    StepType.DECISION,
                    "The user cancelled the call.",
                    parent_id=opened.step_id,
                    input_context=result.text,
                )
        times = (moment_of(call.get("timestamp")) or 0 for call in calls)
        self._time = max(self._time, *times, 0)


def _calls(message: Record) -> list[Record]:
    calls = message.get("toolCalls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _thoughts(message: Record) -> Iterator[str]:
    thoughts = message.get("thoughts")
    for thought in thoughts if isinstance(thoughts, list) else ():
        if isinstance(thought, dict):
            words = (text_of(thought.get("subject")), text_of(thought.get("description")))
            yield "\n".join(word for word in words if word)


def _tokens(told: Any) -> dict[str, int | None]:
    """The tokens of a call: thoughts are not among `output`, what is cached is among `input`."""
    if not isinstance(told, dict):
        return {}
    names = ("input", "output", "cached", "thoughts", "tool")
    sent, received, cached, thoughts, tool = (number(told.get(name)) for name in names)
    total = number(told.get("total"))
    apart = total is None or total != (sent or 0) + (received or 0) + (tool or 0)
    return {
        "input_tokens": None if sent is None else sent + (tool or 0),
        "output_tokens": None if received is None else received + (thoughts or 0 if apart else 0),
        "cache_read_tokens": cached,
        "reasoning_tokens": thoughts,
    }


def _folder(header: Record, messages: list[Record]) -> str:
    """The folder of the session: as its first message tells it, or one whose hash is that of the
    project."""
    for message in messages[:5]:
        match = _FOLDERS.search(parts_text(message.get("content")))
        if match is not None:
            return match[1].rstrip().rstrip("/") or "/"
    directories = header.get("directories")
    if isinstance(directories, list) and directories and isinstance(directories[0], str):
        return directories[0]
    wanted = header.get("projectHash")
    for message in messages:
        for call in _calls(message):
            given = call.get("args")
            if not isinstance(given, dict):
                continue
            for name in _PATHS:
                found = _hashed(given.get(name), wanted)
                if found:
                    return found
    return ""


def _hashed(path: Any, wanted: Any) -> str:
    """The folder above a path, or the path, that has the hash of a project."""
    if not isinstance(path, str) or not path.startswith("/") or len(path) > 4096:
        return ""
    folder = posixpath.normpath(path)
    while len(folder) > 1:
        data = folder.encode("utf-8", "surrogatepass")
        if hashlib.sha256(data).hexdigest() == wanted:
            return folder
        folder = posixpath.dirname(folder)
    return ""
