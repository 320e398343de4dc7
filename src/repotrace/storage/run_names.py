"""What people call a run, and which runs they may mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repotrace.storage.reports import LATEST
from repotrace.storage.rows import bound

if TYPE_CHECKING:
    import sqlite3


def matching(connection: sqlite3.Connection, ref: str, workspace: str | None) -> list[str]:
    """The ids of the runs that `ref` may mean: `latest`, an id, another name, or a prefix."""
    if ref == LATEST:
        where = "" if workspace is None else "WHERE workspace = ?"
        rows = connection.execute(
            f"SELECT id FROM runs {where} ORDER BY started_at DESC, id DESC LIMIT 1",
            () if workspace is None else (bound(workspace),),
        )
        return [str(name) for (name,) in rows]
    exact = connection.execute(
        "SELECT id FROM runs WHERE id = ? UNION ALL"
        " SELECT id FROM aliases WHERE run_id = '' AND alias = ? LIMIT 1",
        (bound(ref), bound(ref)),
    ).fetchone()
    if exact is not None:
        return [str(exact[0])]
    rows = connection.execute(
        "SELECT id FROM runs WHERE substr(id, 1, ?) = ? ORDER BY id", (len(ref), bound(ref))
    )
    return [str(name) for (name,) in rows] if ref else []
