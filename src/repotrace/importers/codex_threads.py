"""Which rollouts of Codex belong together: a session, and the sub-agents that it started."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.errors import ImportFailed
from repotrace.importers.building import moment_of, text_of
from repotrace.importers.codex_results import output_text, spawned_by
from repotrace.importers.lines import Damage, json_lines, opened

type Record = dict[str, Any]

_HEAD = 8 << 10
"""Bytes in which a rollout of a sub-agent says that it is one."""
_LINE = 4 << 20
"""Bytes of the first line, which holds the instructions too."""
_ID = re.compile(r"[\w-]{1,128}")
_FILE_ID = re.compile(r"-([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})\.jsonl")
_DEPTH = 50


class Head(NamedTuple):
    """What the first record of a rollout tells of its thread."""

    path: Path
    id: str
    parent: str
    """The thread that started it; empty if it is no sub-agent."""
    agent_path: str
    """Its name among the agents of the session, such as `/root/tests`."""
    time: int


class Group(NamedTuple):
    """The rollouts of one run."""

    path: Path
    id: str
    parts: list[Head]
    """Its sub-agents, each behind the one that started it."""
    calls: dict[str, dict[str, str]]
    """The threads that the calls of a thread started or went on with, by thread and call."""


def head_of(path: Path) -> Head | None:
    """What a rollout says of itself; None if it is none, or of an age that knew no sub-agents."""
    try:
        with opened(path) as stream:
            line = stream.readline(_HEAD)
            if b'"session_meta"' not in line or b'"id"' not in line:
                return None
            if b"subagent" not in line and b"parent_thread_id" not in line:
                return _brief(path, line)
            line += b"" if line.endswith(b"\n") else stream.readline(_LINE)
        record = json.loads(line)
        meta = record["payload"]
        name = meta["id"]
    except (ImportFailed, OSError, EOFError, ValueError, RecursionError, TypeError, KeyError):
        return None
    if not isinstance(name, str) or not _ID.fullmatch(name):
        return None
    source = meta.get("source")
    told = source.get("subagent") if isinstance(source, dict) else None
    parent = spawned_by(meta)
    spawn = told.get("thread_spawn") if isinstance(told, dict) else None
    agent_path = spawn.get("agent_path") if isinstance(spawn, dict) else None
    time = moment_of(meta.get("timestamp")) or moment_of(record.get("timestamp")) or 0
    return Head(path, name, text_of(parent), text_of(agent_path), time)


_NAME = re.compile(rb'"id":\s*"([\w-]{1,128})"')


def _brief(path: Path, line: bytes) -> Head | None:
    """Of a rollout that is no sub-agent's: reading its instructions can be spared."""
    match = _NAME.search(line)
    return Head(path, match[1].decode(), "", "", 0) if match else None


def main(path: Path) -> Path:
    """The rollout of the session that a sub-agent worked for; else the path."""
    head = head_of(path)
    seen: set[str] = set()
    while head is not None and head.parent and head.id not in seen and len(seen) < _DEPTH:
        seen.add(head.id)
        above = _rollout(head.parent, path)
        if above is None:
            break
        path = above
        head = head_of(path)
    return path


def groups(path: Path) -> Iterator[Group]:
    """The run of a rollout with the sub-agents that its calls tell of; then those of the sub-agents
    that no call tells of."""
    head = head_of(path)
    if head is None:
        yield Group(path, "", [], {})
        return
    children = _descendants(head)
    waiting = [head]
    while waiting:
        first = waiting.pop(0)
        group = Group(first.path, first.id, [], {})
        threads = [first]
        for thread in threads:
            own = children.get(thread.id)
            if not own:
                continue
            calls = group.calls[thread.id] = _calls(thread.path, own)
            started = set(calls.values())
            threads += [part for part in own if part.id in started]
            waiting += [part for part in own if part.id not in started]
        group.parts.extend(threads[1:])
        yield group


# --- Files ----------------------------------------------------------------------------------


def _tree(path: Path) -> tuple[Path, bool]:
    """The folder of all rollouts, and whether they lie in folders by day there."""
    day = path.parent
    parts = day.parts[-3:]
    if len(parts) == 3 and all(part.isdigit() for part in parts) and len(parts[0]) == 4:
        return day.parent.parent.parent, True
    return day, False


def _rollout(name: str, near: Path) -> Path | None:
    """The rollout of a thread, beside another one or in the folder of its day."""
    if not _ID.fullmatch(name):
        return None
    pattern = f"rollout-*-{glob.escape(name)}.jsonl*"
    folders = [near.parent]
    tree, by_day = _tree(near)
    if by_day:
        day = _day(name)
        folders += _days(tree, day, day) if day is not None else sorted(tree.glob("*/*/*"))
        folders.append(tree.parent / "archived_sessions")
    elif tree.name == "archived_sessions":
        day = _day(name)
        if day is not None:
            folders += _days(tree.parent / "sessions", day, day)
    for folder in folders:
        for path in sorted(folder.glob(pattern)):
            if path.suffix in (".jsonl", ".zst"):
                return path
    return None


def _day(name: str) -> datetime | None:
    """When a thread was made, if its id tells: they begin with milliseconds since 1970."""
    match = _FILE_ID.search(f"-{name}.jsonl")
    if match is None:
        return None
    try:
        return datetime.fromtimestamp(int(name.replace("-", "")[:12], 16) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _days(tree: Path, first: datetime, last: datetime) -> list[Path]:
    """The folders of the days between two, which Codex names in the time zone of its user."""
    day = first - timedelta(days=1)
    found: list[Path] = []
    while day <= last + timedelta(days=1) and len(found) < 400:
        found.append(tree / f"{day:%Y/%m/%d}")
        day += timedelta(days=1)
    return [folder for folder in found if folder.is_dir()]


def _descendants(head: Head) -> dict[str, list[Head]]:
    """The sub-agents of a thread and theirs, by the thread that started them, in order of time."""
    tree, by_day = _tree(head.path)
    begun = _day(head.id)
    folders = [head.path.parent]
    if by_day and begun is not None:
        folders = _days(tree, begun, max(begun, _written(head.path)))
    found: dict[str, list[Head]] = {}
    for folder in folders:
        for path in folder.glob("rollout-*.jsonl*"):
            match = _FILE_ID.search(path.name)
            # Threads are made after the one that starts them.
            if match is not None and begun is not None and match[1] <= head.id:
                continue
            other = head_of(path) if path != head.path else None
            if other is not None and other.parent and other.id != head.id:
                found.setdefault(other.parent, []).append(other)
    kept: dict[str, list[Head]] = {}
    waiting, seen = [head.id], {head.id}
    while waiting:
        name = waiting.pop()
        own = sorted(found.get(name, ()), key=lambda part: (part.time, part.id, part.path))
        for part in own:
            if part.id not in seen:
                seen.add(part.id)
                waiting.append(part.id)
                kept.setdefault(name, []).append(part)
    return kept


def _written(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except (OSError, OverflowError, ValueError):
        return datetime.min.replace(tzinfo=UTC)


# --- Calls ----------------------------------------------------------------------------------


def _calls(path: Path, parts: list[Head]) -> dict[str, str]:
    """The sub-agents that calls of a rollout started or went on with, by call."""
    ids = {part.id: part.id for part in parts}
    by_path = {part.agent_path: part.id for part in parts if part.agent_path}
    # Paths may be used again, and arguments may name one that was refused.
    wished: dict[str, str] = {}
    by_name: dict[str, str] = {}
    by_id: dict[str, str] = {}
    tails = (agent_path.rpartition("/")[2] for agent_path in by_path)
    marks = [mark.encode() for mark in (*ids, *tails) if mark]
    for record in json_lines(path, Damage(), marks=marks):
        payload = record.get("payload")
        if not isinstance(payload, dict):
            continue
        if payload.get("type") == "item_completed" and isinstance(payload.get("item"), dict):
            payload = payload["item"]
        call_id = payload.get("call_id") or payload.get("event_id") or payload.get("id")
        if not isinstance(call_id, str):
            continue
        for name in _names(payload):
            if name in ids:
                by_id.setdefault(call_id, name)
            elif name in by_path:
                by_name.setdefault(call_id, by_path[name])
            elif payload.get("type") == "function_call":
                tail = "/" + name.lstrip("/")
                ends = [part for agent_path, part in by_path.items() if agent_path.endswith(tail)]
                if len(ends) == 1:
                    wished.setdefault(call_id, ends[0])
    return wished | by_name | by_id


def _names(payload: Record) -> Iterator[str]:
    """The threads or paths that a call, its answer or an event of it names."""
    kind = payload.get("type")
    if kind == "function_call":
        yield from _told(payload.get("arguments"), ("target", "id", "task_name"))
    elif kind == "function_call_output":
        yield from _told(output_text(payload.get("output")), ("agent_id", "task_name"))
    else:
        for name in ("new_thread_id", "receiver_thread_id", "agent_thread_id", "agent_path"):
            if isinstance(payload.get(name), str):
                yield payload[name]
        listed = payload.get("receiver_thread_ids")
        if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], str):
            yield listed[0]


def _told(text: Any, names: Iterable[str]) -> Iterator[str]:
    if not isinstance(text, str) or not text.startswith("{"):
        return
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return
    for name in names:
        if isinstance(told.get(name), str):
            yield told[name]
