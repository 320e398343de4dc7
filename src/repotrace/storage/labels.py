"""Which steps the labels of checkpoints belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repotrace.storage.database import NAME, Database
from repotrace.storage.rows import bound


def labelled(
    home: Path, label: str, *, run_id: str | None = None, workspace: str | None = None
) -> tuple[str, int] | None:
    """The id of the run and the number of the newest step of this label, in `run_id` or
    `workspace` if given; None if there is none."""
    where, values = "label = ?", [bound(label)]
    for clause, value in (("run_id = ?", run_id), ("runs.workspace = ?", workspace)):
        if value is not None:
            where += f" AND {clause}"
            values.append(bound(value))
    row = _first(
        home,
        "SELECT run_id, step_number FROM execution_steps JOIN runs ON runs.id = run_id"
        f" WHERE {where} ORDER BY execution_steps.started_at DESC, step_number DESC LIMIT 1",
        values,
    )
    return None if row is None else (str(row[0]), int(row[1]))


def _first(home: Path, query: str, values: list[Any]) -> Any:
    with Database(home / NAME).reading() as connection:
        return None if connection is None else connection.execute(query, values).fetchone()
