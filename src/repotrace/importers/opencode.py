"""Sessions of OpenCode: in its database, in the files of older versions, and exported.

A database holds many; a path below it, `opencode.db/ses_…`, names one of them. Sub-agents have
sessions of their own, which come with the one that they belong to: as parts of the step that
started them, or as runs that name their parent where no step tells of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.errors import ImportFailed
from repotrace.importers import file_of
from repotrace.importers.lines import Progress, ignore, looks_like_object, whole_json
from repotrace.importers.opencode_session import Session
from repotrace.importers.values import moment_of, text_of
from repotrace.records.events import Event

NAME = "opencode"

type Record = dict[str, Any]

_MAGIC = b"SQLite format 3\0"
_ID = re.compile(r"[\w.-]+")


class _Source(NamedTuple):
    """A session before its messages are read."""

    info: Record
    messages: Iterator[tuple[Record, list[Record]]]


def sniff(head: bytes, path: Path) -> bool:
    """Whether it is a database of OpenCode or a session in one, the folder or the file of a
    session, or what `opencode export` wrote."""
    if not head:
        return _is_storage(path)
    if head.startswith(_MAGIC):
        from repotrace.storage.opencode import is_database

        return is_database(file_of(path))
    if not looks_like_object(head):
        return False
    if looks_like_object(head, b"info", b"messages"):
        return b'"sessionID"' in head or b'"ses_' in head
    return looks_like_object(head, b"id", b"time") and _storage_of(path) is not None


def written(path: Path) -> tuple[float, int] | None:
    """When a session in a database was changed last, in seconds since 1970, and its bytes; None
    if it is no such session."""
    if path.exists() or not path.parent.is_file():
        return None
    from repotrace.storage.opencode import changed

    found = changed(path.parent, path.name)
    return None if found is None else ((moment_of(found[0]) or 0) / 1e9, found[1])


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of the sessions at a path, the newest first."""
    found: dict[str, _Source] = {}
    for source in _sources(path, progress):
        found.setdefault(text_of(source.info.get("id")), source)
    if not found:
        raise ImportFailed(f"{path} holds no session of OpenCode.")
    parents = {name: text_of(source.info.get("parentID")) for name, source in found.items()}

    def started(name: str, by: str) -> _Source | None:
        return found.pop(name, None) if name and parents.get(name) == by else None

    for name in sorted(found, key=lambda name: len(_above(name, parents))):
        alone = found.pop(name, None)
        if alone is not None:
            yield from Session(alone.info, alone.messages, started).events()


def _sources(path: Path, progress: Progress) -> Iterator[_Source]:
    if path.is_dir():
        return _in_folder(path, None, progress)
    database = file_of(path)
    try:
        with database.open("rb") as stream:
            is_database = stream.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise ImportFailed(f"{path} cannot be read: {error.strerror}.") from error
    if is_database:
        return _in_database(database, None if path == database else path.name, progress)
    storage = _storage_of(path)
    value = whole_json(path, progress=progress)
    if not isinstance(value, dict):
        raise ImportFailed(f"{path} holds no session of OpenCode.")
    if storage is not None and "messages" not in value:
        return _in_folder(storage, text_of(value.get("id")), progress)
    return _exported(path, value)


def _exported(path: Path, value: Record) -> Iterator[_Source]:
    info, listed = value.get("info"), value.get("messages")
    if not isinstance(info, dict) or not isinstance(listed, list):
        raise ImportFailed(f"{path} holds no session of OpenCode.")
    messages = []
    for message in listed:
        if isinstance(message, dict) and isinstance(message.get("info"), dict):
            parts = message.get("parts")
            told = parts if isinstance(parts, list) else []
            messages.append((message["info"], [part for part in told if isinstance(part, dict)]))
    if not messages:
        raise ImportFailed(f"{path} holds no messages.")
    yield _Source(info, iter(messages))


def _above(name: str, parents: Mapping[str, str]) -> list[str]:
    """The sessions there are that a session is a part of, the nearest first."""
    found: list[str] = []
    while parents.get(name) in parents and parents[name] not in found and len(found) < 100:
        name = parents[name]
        found.append(name)
    return found


def _families(infos: Iterable[Record], wanted: str | None) -> list[Record]:
    """The sessions, or those that the one that is wanted belongs with: sub-agents, and what
    started it if it is one."""
    listed = list(infos)
    if wanted is None:
        return listed
    parents = {text_of(info.get("id")): text_of(info.get("parentID")) for info in listed}
    wanted = [wanted, *_above(wanted, parents)][-1]
    found = {wanted}
    for _ in range(20):
        more = {text_of(i.get("id")) for i in listed if text_of(i.get("parentID")) in found}
        if more <= found:
            break
        found |= more
    family = [info for info in listed if info.get("id") in found]
    return sorted(family, key=lambda info: info.get("id") != wanted)


# --- The database ---------------------------------------------------------------------------


def _in_database(path: Path, wanted: str | None, progress: Progress) -> Iterator[_Source]:
    from repotrace.storage.opencode import messages, sessions

    for info in _families((_told(row) for row in sessions(path)), wanted):
        found = messages(path, text_of(info.get("id")))
        yield _Source(info, _counted(found, progress))


def _told(row: Record) -> Record:
    """The facts of a session as an export tells them."""
    facts = {
        "id": row.get("id"),
        "parentID": row.get("parent_id"),
        "directory": row.get("directory"),
        "version": row.get("version"),
        "title": row.get("title"),
        "time": {"created": row.get("time_created"), "updated": row.get("time_updated")},
    }
    try:
        facts["revert"] = json.loads(text_of(row.get("revert")) or "null")
    except (ValueError, RecursionError):
        facts["revert"] = None
    return facts


def _counted(
    found: Iterator[tuple[Record, list[Record]]], progress: Progress
) -> Iterator[tuple[Record, list[Record]]]:
    for message, parts in found:
        progress(sum(len(str(part)) for part in parts))
        yield message, parts


# --- Files ----------------------------------------------------------------------------------


def _is_storage(path: Path) -> bool:
    return (path / "message").is_dir() and (path / "part").is_dir()


def _storage_of(path: Path) -> Path | None:
    """The folder with the messages of a session, from the file that tells of it."""
    folder = path.parent.parent
    if folder.name != "session" or not _is_storage(folder.parent):
        return None
    return folder.parent


def _in_folder(folder: Path, wanted: str | None, progress: Progress) -> Iterator[_Source]:
    infos: dict[str, Record] = {}
    for path in sorted((folder / "session").glob("*/*.json"), reverse=True):
        info = _file(path, ignore)
        if isinstance(info.get("id"), str):
            infos[info["id"]] = info
    for place in sorted((folder / "message").iterdir()) if _is_storage(folder) else ():
        # Of some, only the messages are left.
        if place.is_dir():
            infos.setdefault(place.name, {"id": place.name})
    for info in _families(infos.values(), wanted):
        name = text_of(info.get("id"))
        if _ID.fullmatch(name):
            yield _Source(info, _in_files(folder, name, progress))


def _in_files(
    folder: Path, session: str, progress: Progress
) -> Iterator[tuple[Record, list[Record]]]:
    paths = (folder / "message" / session).glob("*.json")
    found = [(path.stem, _file(path, progress)) for path in paths]
    found = [(stem, {"id": stem, **message}) for stem, message in found if message]

    def place(entry: tuple[str, Record]) -> tuple[int, str]:
        time = entry[1].get("time")
        created = time.get("created") if isinstance(time, dict) else None
        return moment_of(created) or 0, entry[0]

    for _, message in sorted(found, key=place):
        name = text_of(message["id"])
        parts = sorted((folder / "part" / name).glob("*.json")) if _ID.fullmatch(name) else []
        told = (_file(path, progress) for path in parts)
        yield message, [part for part in told if part]


def _file(path: Path, progress: Progress) -> Record:
    try:
        value = whole_json(path, progress=progress)
    except ImportFailed:
        return {"type": "unreadable", "data": path.name}
    return value if isinstance(value, dict) else {}
