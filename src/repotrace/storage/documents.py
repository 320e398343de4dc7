"""What can be searched: texts are noted when they are stored, and indexed before a search.

The text index keeps words, not texts. To take a document out again, SQLite must be given the
very text that went in, so `searchable` may not change for texts that are indexed already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from repotrace.errors import NewerSchema, RepoTraceError
from repotrace.storage import words
from repotrace.storage.rows import Row, bound
from repotrace.storage.texts import Cell, TextPool, read

if TYPE_CHECKING:
    import sqlite3

    from repotrace.storage.database import Database

HEAD = 49_152
TAIL = 16_384
"""Bytes at both ends of a long text whose words can be found."""

MESSAGE = "message:"
"""Begins the field of a document that is one message of a conversation."""

_IN_STEP = "step_id"
_AT_ONCE = 2_000
"""Documents that are indexed in one transaction."""


class Documents:
    """Notes the searchable texts of rows within one transaction."""

    def __init__(self, connection: sqlite3.Connection, pool: TextPool) -> None:
        self._connection = connection
        self._pool = pool

    def note(self, run_id: str, row: Row) -> None:
        """Note those texts of `row` that are new or have changed. Call before it is written."""
        for field in row.table.searched:
            if field not in row.changed:
                continue
            body = row.values.get(field)
            if not isinstance(body, int):
                self._put(run_id, row, field, self._pool.put(run_id, body), row.is_new)

    def add_message(self, run_id: str, row: Row, text_id: int) -> None:
        """Note a message that was first shown in the call of `row`."""
        self._put(run_id, row, f"{MESSAGE}{text_id}", text_id, is_new=True)

    def _put(self, run_id: str, row: Row, field: str, body: Cell, is_new: bool) -> None:
        owner = bound(row.values["id"])
        if not is_new:
            drop(self._connection, "run_id = ? AND owner = ? AND field = ?", (run_id, owner, field))
        if not body:
            return
        step = row.values["id"] if row.table.name == "execution_steps" else row.values.get(_IN_STEP)
        self._connection.execute(
            "INSERT OR REPLACE INTO documents (run_id, step_id, owner, field, body)"
            " VALUES (?, ?, ?, ?, ?)",
            (run_id, bound(step) if step else None, owner, field, body),
        )


def drop(connection: sqlite3.Connection, where: str, parameters: tuple[Any, ...]) -> None:
    """Take documents out, from the index as well."""
    rows = connection.execute(
        f"SELECT id, field, body, indexed FROM documents WHERE {where}", parameters
    ).fetchall()
    for number, field, body, indexed in rows:
        if indexed:
            connection.execute(
                "INSERT INTO text_index (text_index, rowid, body) VALUES ('delete', ?, ?)",
                (number, words.indexed(searchable(connection, field, body))),
            )
        connection.execute("DELETE FROM documents WHERE id = ?", (number,))


def index_all(database: Database) -> None:
    """Index all documents that are not yet. A database that may not be written stays as it is."""
    with database.reading() as connection:
        if connection is None or not pending(connection):
            return
    try:
        more = True
        while more:
            with database.writing() as connection:
                more = index(connection, _AT_ONCE) == _AT_ONCE
    except NewerSchema:
        raise
    except RepoTraceError:
        return


def index(connection: sqlite3.Connection, limit: int) -> int:
    """Index up to `limit` of the documents that are not yet; how many there were."""
    rows = connection.execute(
        "SELECT id, field, body FROM documents WHERE indexed = 0 ORDER BY id LIMIT ?", (limit,)
    ).fetchall()
    for number, field, body in rows:
        connection.execute(
            "INSERT INTO text_index (rowid, body) VALUES (?, ?)",
            (number, words.indexed(searchable(connection, field, body))),
        )
    connection.executemany(
        "UPDATE documents SET indexed = 1 WHERE id = ?", [(row[0],) for row in rows]
    )
    return len(rows)


def searchable(connection: sqlite3.Connection, field: str, body: Cell) -> str:
    """The text of a document, as far as its words can be found."""
    return as_indexed(field, read(connection, body) or b"")


def as_indexed(field: str, data: bytes) -> str:
    """The text of a document whose stored text is known, as it is indexed."""
    if field.startswith(MESSAGE):
        data = "\n".join(_words(json.loads(data))).encode("utf-8", "replace")
    if len(data) > HEAD + TAIL:
        data = data[:HEAD] + b"\n" + data[-TAIL:]
    return data.decode("utf-8", "replace")


def _words(value: Any) -> Iterator[str]:
    """All texts in a message but those that name its parts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _words(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in ("type", "role", "id"):
                yield from _words(item)


def pending(connection: sqlite3.Connection) -> bool:
    """Whether there are documents that are not indexed yet."""
    row = connection.execute("SELECT 1 FROM documents WHERE indexed = 0 LIMIT 1").fetchone()
    return row is not None
