"""The database in which OpenCode keeps its sessions, read and never written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repotrace.errors import ImportFailed

if TYPE_CHECKING:
    import sqlite3

type Record = dict[str, Any]

MAGIC = b"SQLite format 3\0"
"""How the file of any SQLite database begins."""

_TABLES = {"session", "message", "part"}
_COLUMNS = (
    *("id", "parent_id", "directory", "version", "title", "revert"),
    *("time_created", "time_updated"),
)


def is_database(path: Path) -> bool:
    """Whether the file is a database with sessions of OpenCode."""
    try:
        with _opened(path) as connection:
            found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
            return {row[0] for row in found} >= _TABLES
    except ImportFailed:
        return False


def sessions(path: Path) -> list[Record]:
    """The rows of all sessions, the newest first. Raises ImportFailed."""
    with _opened(path) as connection:
        told = {row[1] for row in connection.execute("PRAGMA table_info(session)")}
        names = [name for name in _COLUMNS if name in told]
        query = f"SELECT {', '.join(names)} FROM session ORDER BY time_created DESC, id"
        return [dict(zip(names, row, strict=True)) for row in connection.execute(query)]


def changed(path: Path, session_id: str) -> tuple[Any, int] | None:
    """When a session was changed last, as the database tells it, and the bytes of its parts; None
    if there is no such session. Raises ImportFailed."""
    moment = "SELECT time_updated FROM session WHERE id = ?"
    size = "SELECT sum(length(data)) FROM part WHERE session_id = ?"
    with _opened(path) as connection:
        found = connection.execute(moment, (session_id,)).fetchone()
        total = connection.execute(size, (session_id,)).fetchone()[0]
    return None if found is None else (found[0], total if isinstance(total, int) else 0)


def messages(path: Path, session_id: str) -> Iterator[tuple[Record, list[Record]]]:
    """The messages of a session, each with its parts, in order; one at a time is in memory.

    What is no JSON is a record `unreadable`. Raises ImportFailed, at once or later.
    """
    # Names are put in order without what they stand for: a session may be larger than memory.
    order = "SELECT id, time_created FROM message WHERE session_id = ? ORDER BY time_created, id"
    owners = "SELECT message_id, id FROM part WHERE session_id = ? ORDER BY id"
    parts: dict[Any, list[Any]] = {}
    with _opened(path) as connection:
        names = connection.execute(order, (session_id,)).fetchall()
        for owner, part in connection.execute(owners, (session_id,)):
            parts.setdefault(owner, []).append(part)
        for name, created in names:
            message = {"time": {"created": created}, **_data(connection, "message", name)}
            yield (
                {**message, "id": name},
                [{**_data(connection, "part", part), "id": part} for part in parts.get(name, ())],
            )


def _data(connection: sqlite3.Connection, table: str, name: Any) -> Record:
    row = connection.execute(f"SELECT data FROM {table} WHERE id = ?", (name,)).fetchone()
    return _record(row[0] if row is not None else None)


def _record(data: Any) -> Record:
    try:
        value = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"type": "unreadable", "data": str(data)}


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    import sqlite3

    # Where nobody writes, nothing is to be made beside the file: no log, no shared memory.
    log = path.with_name(path.name + "-wal")
    quiet = not log.exists() or log.stat().st_size == 0
    uri = f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if quiet else ''}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
            connection.text_factory = lambda data: data.decode(errors="replace")
            connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection
    except (sqlite3.Error, OverflowError) as error:
        raise ImportFailed(f"{path} cannot be read: {error}.") from error
