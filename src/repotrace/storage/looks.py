"""What is noted of a run until its views are joined: looks at the files, and transcripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from repotrace.records.run import Origin
from repotrace.storage.rows import Unusable, bound, integer, moment, path, text
from repotrace.storage.said import Said

if TYPE_CHECKING:
    import sqlite3


def look(connection: sqlite3.Connection, said: Said) -> None:
    """The files at a moment that belongs to no step yet."""
    until = moment(said.data.get("until")) or said.when
    state_id, reason = text(said.data.get("state_id")), text(said.data.get("reason"))
    connection.execute(
        "INSERT OR IGNORE INTO looks (id, run_id, at, until, state_id, reason)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (bound(said.name), said.run_id, said.when, max(until, said.when), state_id, reason),
    )


def followed(connection: sqlite3.Connection, said: Said) -> None:
    """A transcript tells of the run. Said again, it goes on."""
    place, form = text(said.data.get("path")), text(said.data.get("format"))
    if not place or not form:
        raise Unusable("no path or no format")
    size = integer(said.data.get("size"))
    if size is not None:
        connection.execute(
            "INSERT OR IGNORE INTO growths (run_id, path, at, size) VALUES (?, ?, ?, ?)",
            (said.run_id, bound(place), said.when, size),
        )
    connection.execute(
        "INSERT INTO transcripts (run_id, path, format, since) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (run_id, path) DO UPDATE SET final = 0",
        (said.run_id, bound(place), bound(form), moment(said.data.get("since"))),
    )


def is_observed(
    connection: sqlite3.Connection, said: Said, known_as: Callable[[str, str], str]
) -> bool:
    """Whether the change that an event claims was seen already, so that it says nothing new."""
    data = said.data
    step_id, changed = text(data.get("step_id")), path(data.get("file_path"))
    if not step_id or not changed or data.get("origin") == Origin.OBSERVED:
        return False
    row = connection.execute(
        "SELECT 1 FROM file_operations WHERE run_id = ? AND step_id = ? AND file_path = ?"
        " AND origin = ? LIMIT 1",
        (
            said.run_id,
            bound(known_as(said.run_id, step_id)),
            bound(changed),
            Origin.OBSERVED.value,
        ),
    ).fetchone()
    return row is not None
