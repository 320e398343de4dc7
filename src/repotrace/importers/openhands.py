"""Conversations of OpenHands: the folders of its SDK, and the arrays of events before it.

A folder has `base_state.json`, with tokens and costs by answer, and a file for each event. What
came before the SDK is read as its events, see `openhands_v0`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.errors import ImportFailed
from repotrace.importers.lines import (
    Damage,
    Progress,
    first_objects,
    ignore,
    json_lines,
    looks_like_object,
    whole_json,
)
from repotrace.importers.openhands_session import Session
from repotrace.importers.openhands_v0 import modern
from repotrace.records.events import Event

NAME = "openhands"

type Record = dict[str, Any]

_STATE, _EVENTS = "base_state.json", "events"
_LOOKED_AT = 60
"""Events at the beginning that are looked through for the folder and the time zone."""
_MODERN = re.compile(
    rb'"kind": ?"(?:\w+Event|\w*Observation|Condensation\w*)"[^{}]*\Z|"llm_message"|"tool_call_id"'
)


class _Source(NamedTuple):
    """A conversation, before its events are read."""

    name: str
    """Of the conversation; empty if nothing tells."""
    state: Record
    files: list[Path]
    """One for each event; empty if they are in one file."""
    path: Path


def sniff(head: bytes, path: Path) -> bool:
    """Whether it is the folder of a conversation, a file in it, or a list of events."""
    if not head:
        return path.is_dir() and _is_conversation(path)
    start = head.lstrip()
    if start.startswith(b"["):
        old = b'"action"' in head or b'"observation"' in head
        marks = (b'"source"', b'"timestamp"', b'"id"')
        if not all(mark in head for mark in marks) or b'"steps"' in head:
            return False
        return (old and b'"message"' in head) or (
            b'"kind"' in head and _MODERN.search(head) is not None
        )
    if not looks_like_object(head):
        return False
    if main(path) != path:
        return True
    first = next(first_objects(head, 1), None)
    return first is not None and _is_event(first) and b"\n{" in head.rstrip()


def main(path: Path) -> Path:
    """The conversation that `path` stands for: the folder of its state or of its events."""
    if path.name == _STATE and (path.parent / _EVENTS).is_dir():
        return path.parent
    if path.parent.name == _EVENTS and path.suffix == ".json":
        folder = path.parent.parent
        if _is_conversation(folder):
            return folder
    return path


def written(path: Path) -> tuple[float, int] | None:
    """When a conversation was changed last, in seconds since 1970, and its bytes; None if it is
    one file."""
    if not path.is_dir():
        return None
    facts = [file.stat() for file in (path / _STATE, *(path / _EVENTS).iterdir()) if file.exists()]
    return max((f.st_mtime for f in facts), default=0.0), sum(f.st_size for f in facts)


def _is_conversation(folder: Path) -> bool:
    events = folder / _EVENTS
    if not events.is_dir():
        return False
    if (folder / _STATE).is_file():
        return True
    return any(re.fullmatch(r"\d+\.json|event-\d+-.*\.json", p.name) for p in events.iterdir())


def _is_event(record: Record) -> bool:
    told = "kind" in record or "action" in record or "observation" in record
    return told and "source" in record and "timestamp" in record


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a conversation."""
    path = main(path)
    source = _source(path, progress)
    damage = Damage()
    events: Iterator[Record] | None = None
    if not source.files:
        listed = _listed(path, damage, progress)
        source = source._replace(name=source.name or _identity(listed))
        events = iter(listed)
    begin = [record for _, record in zip(range(_LOOKED_AT), _events(source, None), strict=False)]
    if events is not None:
        begin = list(modern(listed[:_LOOKED_AT]))
    if not any(event.get("kind") in ("ActionEvent", "MessageEvent") for event in begin):
        raise ImportFailed(f"{path} holds no events of OpenHands.")
    session = Session(source.name, source.state, begin, damage)
    yield from session.events(modern(events) if events else _events(source, damage, progress))


def _source(path: Path, progress: Progress) -> _Source:
    if not path.is_dir():
        return _Source("", {}, [], path)
    try:
        files = sorted((path / _EVENTS).glob("*.json"), key=_place)
    except OSError as error:
        raise ImportFailed(f"{path} cannot be read: {error.strerror}.") from error
    if not files:
        raise ImportFailed(f"{path} holds no events of OpenHands.")
    state: Record = {}
    if (path / _STATE).is_file():
        try:
            state = _object(whole_json(path / _STATE, progress=progress))
        except ImportFailed:
            state = {}
    name = state.get("id")
    return _Source(
        name if isinstance(name, str) and name else path.resolve().name, state, files, path
    )


def _place(path: Path) -> tuple[int, str]:
    match = re.search(r"\d+", path.name)
    return int(match[0][:18]) if match else 0, path.name


def _events(
    source: _Source, damage: Damage | None, progress: Progress = ignore
) -> Iterator[Record]:
    return modern(_files(source, damage, progress))


def _files(source: _Source, damage: Damage | None, progress: Progress) -> Iterator[Record]:
    for path in source.files:
        try:
            value = whole_json(path, progress=progress)
        except ImportFailed:
            value = None
        if isinstance(value, dict):
            yield value
        elif damage is not None:
            damage.broken += 1


def _listed(path: Path, damage: Damage, progress: Progress) -> list[Record]:
    """The events of one file, which is an array or has one a line."""
    try:
        value = whole_json(path, progress=progress)
    except ImportFailed:
        found = list(json_lines(path, damage))
        if not found:
            raise
        return found
    listed = value if isinstance(value, list) else [value]
    return [record for record in listed if isinstance(record, dict)]


def _identity(records: list[Record]) -> str:
    begin = json.dumps(records[:2], sort_keys=True, default=str)
    return hashlib.sha256(begin.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}
