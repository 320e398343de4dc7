"""Which steps the labels of checkpoints belong to."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

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


class Reached(NamedTuple):
    """How far a run had come with a step."""

    steps: int
    """Steps up to it, checkpoints that are nothing else left out."""
    files_modified: int
    """Different files that they changed."""


def reached(home: Path, run_id: str, number: int) -> Reached:
    """How far the run had come with the step of this number."""
    values = [run_id, number]
    steps = _first(
        home,
        "SELECT count(*) FROM execution_steps WHERE run_id = ? AND step_number <= ?"
        " AND (label IS NULL OR step_type <> 'note')",
        values,
    )
    files = _first(
        home,
        "SELECT count(DISTINCT file_path) FROM file_operations AS o JOIN execution_steps AS s"
        " ON s.run_id = o.run_id AND s.id = o.step_id WHERE o.run_id = ? AND s.step_number <= ?",
        values,
    )
    return Reached(steps[0] if steps else 0, files[0] if files else 0)


def labels(home: Path, *, run_id: str | None = None) -> list[tuple[str, str, int]]:
    """Each label with the id of its run and the number of its step, the newest first: of one
    run, or of all."""
    where, values = ("", []) if run_id is None else (" AND run_id = ?", [run_id])
    with Database(home / NAME).reading() as connection:
        if connection is None:
            return []
        rows = connection.execute(
            "SELECT label, run_id, step_number FROM execution_steps WHERE label IS NOT NULL"
            f"{where} ORDER BY started_at DESC, step_number DESC",
            values,
        )
        return [(str(label), str(run), int(number)) for label, run, number in rows]


def _first(home: Path, query: str, values: list[Any]) -> Any:
    with Database(home / NAME).reading() as connection:
        return None if connection is None else connection.execute(query, values).fetchone()
