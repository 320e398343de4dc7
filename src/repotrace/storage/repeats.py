"""What two views tell of the same call of a tool, told once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from repotrace.records.run import OutcomeOrigin
from repotrace.storage import documents

if TYPE_CHECKING:
    import sqlite3

_OF_CALLS = (
    " run_id = :run AND step_id IN (SELECT id FROM execution_steps"
    "  WHERE run_id = :run AND external_id IS NOT NULL)"
)


def drop(connection: sqlite3.Connection, run_id: str) -> None:
    """Keep one command of each call of a tool, and one read of each part of a file."""
    connection.execute(
        "UPDATE execution_steps SET retry_of = (SELECT a.id FROM aliases a WHERE a.run_id = :run"
        "  AND a.alias = retry_of) WHERE run_id = :run AND retry_of IN"
        " (SELECT alias FROM aliases WHERE run_id = :run)",
        {"run": run_id},
    )
    # The one that tells its exit code knows more than one that does not.
    query = (
        f"SELECT step_id, command_line, id FROM command_runs WHERE {_OF_CALLS}"
        " ORDER BY exit_code IS NULL, rowid"
    )
    for kept, repeated in _repeated(connection.execute(query, {"run": run_id})):
        _drop_command(connection, run_id, kept, repeated)
    query = (
        "SELECT step_id, file_path, kind, first_line, last_line, id"
        f" FROM file_reads WHERE {_OF_CALLS} ORDER BY object_id IS NULL, rowid"
    )
    for _, repeated in _repeated(connection.execute(query, {"run": run_id})):
        _delete(connection, "file_reads", run_id, repeated)


def _repeated(rows: sqlite3.Cursor) -> Iterator[tuple[str, str]]:
    """The ids, in the last column, of the first row of a kind, and of each other one."""
    first: dict[tuple[Any, ...], str] = {}
    for *kind, name in rows.fetchall():
        kept = first.setdefault(tuple(kind), name)
        if kept != name:
            yield kept, name


def _drop_command(connection: sqlite3.Connection, run_id: str, kept: str, repeated: str) -> None:
    parsed = OutcomeOrigin.PARSED.value
    known = connection.execute(
        "SELECT 1 FROM test_outcomes WHERE run_id = ? AND command_id = ? LIMIT 1", (run_id, kept)
    ).fetchone()
    if known is not None:
        rows = connection.execute(
            "SELECT id FROM test_outcomes WHERE run_id = ? AND command_id = ? AND origin = ?",
            (run_id, repeated, parsed),
        ).fetchall()
        for (name,) in rows:
            _delete(connection, "test_outcomes", run_id, name)
    connection.execute(
        "UPDATE test_outcomes SET command_id = ? WHERE run_id = ? AND command_id = ?",
        (kept, run_id, repeated),
    )
    _delete(connection, "command_runs", run_id, repeated)


def _delete(connection: sqlite3.Connection, table: str, run_id: str, name: str) -> None:
    connection.execute(f"DELETE FROM {table} WHERE run_id = ? AND id = ?", (run_id, name))
    documents.drop(connection, "run_id = ? AND owner = ?", (run_id, name))
