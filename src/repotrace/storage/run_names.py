"""What people call a run, and which runs they may mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repotrace.records.run import CHECKPOINT_SOURCE
from repotrace.storage.reports import LATEST
from repotrace.storage.rows import bound

if TYPE_CHECKING:
    import sqlite3


def matching(connection: sqlite3.Connection, ref: str, workspace: str | None) -> list[str]:
    """The ids of the runs that `ref` may mean: `latest`, an id, another name, or a prefix.

    What is only a checkpoint is the latest where there is nothing else.
    """
    if ref == LATEST:
        where = "" if workspace is None else "WHERE workspace = ?"
        rows = connection.execute(
            f"SELECT id FROM runs {where} ORDER BY source IS ?, started_at DESC, id DESC LIMIT 1",
            (*(() if workspace is None else (bound(workspace),)), CHECKPOINT_SOURCE),
        )
        return [str(name) for (name,) in rows]
    exact = id_of(connection, ref)
    if exact is not None:
        return [exact]
    rows = connection.execute(
        "SELECT id FROM runs WHERE substr(id, 1, ?) = ? ORDER BY id", (len(ref), bound(ref))
    )
    return [str(name) for (name,) in rows] if ref else []


def id_of(connection: sqlite3.Connection, name: str) -> str | None:
    """The id of the run that has this id, or this other name: as that of its session."""
    found = connection.execute(
        "SELECT id FROM runs WHERE id = ? UNION ALL"
        " SELECT id FROM aliases WHERE run_id = '' AND alias = ? UNION ALL"
        " SELECT run_id FROM run_sources WHERE source_id = ? LIMIT 1",
        (bound(name), bound(name), bound(name)),
    ).fetchone()
    return None if found is None else str(found[0])
