"""The database in which OpenCode keeps its sessions, read and never written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repotrace.errors import ImportFailed

if TYPE_CHECKING:
    import sqlite3

type Record = dict[str, Any]

MAGIC = b"SQLite format 3\0"
"""How the file of any SQLite database begins."""

_TABLES = {"session", "message", "part"}


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
        cursor = connection.execute("SELECT * FROM session ORDER BY time_created DESC, id")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def size(path: Path, session_id: str) -> int:
    """Bytes that the parts of a session take. Raises ImportFailed."""
    query = "SELECT sum(length(data)) FROM part WHERE session_id = ?"
    with _opened(path) as connection:
        found = connection.execute(query, (session_id,)).fetchone()[0]
        return found if isinstance(found, int) else 0


def messages(path: Path, session_id: str) -> Iterator[tuple[Record, list[Record]]]:
    """The messages of a session, each with its parts, in order; one at a time is in memory.

    What is no JSON is a record `unreadable`. Raises ImportFailed, at once or later.
    """
    order = "ORDER BY m.time_created, m.id, p.id"
    query = f"""
        SELECT m.id, m.time_created, m.data, p.id, p.data
        FROM message m LEFT JOIN part p ON p.message_id = m.id
        WHERE m.session_id = ? {order}
    """
    with _opened(path) as connection:
        rows = connection.execute(query, (session_id,))
        for _, group in groupby(rows, key=itemgetter(0)):
            listed = list(group)
            name, created, data = listed[0][:3]
            message = {"time": {"created": created}, **_record(data), "id": name}
            parts = [{**_record(row[4]), "id": row[3]} for row in listed if row[3] is not None]
            yield message, parts


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
