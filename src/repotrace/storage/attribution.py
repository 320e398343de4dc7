"""Who changed what: two states that follow each other differ, and some step was at work.

A state is taken before and after each step that may change files. What differs between two
neighbours in time is the change of the innermost step that was going on between them: a parent
owns what none of its children did. Where several unrelated steps were going on, any of them may
have done it: a path is the change of the one that says so, and what nobody claims of the one whose
end shows it, with all of them marked ambiguous. A difference that no step was there to make is a
step `external`.

Every state is looked at once, when it is read from the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from repotrace.records.events import Kind, derived_id
from repotrace.records.run import OperationType, Origin, StateQuality, StepStatus, StepType
from repotrace.storage import documents
from repotrace.storage.intake import Intake
from repotrace.storage.rows import bound

if TYPE_CHECKING:
    import sqlite3

    from repotrace.system.snapshots import Operation

type OperationsOf = Callable[[Sequence[tuple[str, str]]], Iterable[Sequence[Operation] | None]]
"""The operations between each pair of states; None where a state is not there."""

BATCH = 100
"""States that are looked at in one transaction: each pair costs git about a millisecond."""


_CHANGING = (StepType.EDIT, StepType.COMMAND, StepType.TEST)
"""Types of steps that may change files without saying so."""


class _Point(NamedTuple):
    """One state that was taken."""

    rowid: int
    step_id: str
    """Empty for the state before the first step."""
    when: str
    at: int
    state_id: str
    derived: bool


@dataclass(slots=True)
class _Step:
    id: str
    parent_id: str | None
    started_at: int
    completed_at: int | None
    is_external: bool
    ended: bool


@dataclass(slots=True)
class _Change:
    """What happened between two neighbours."""

    before: str
    after: _Point
    owner: str | None
    others: tuple[str, ...]


def derive(
    connection: sqlite3.Connection, intake: Intake, run_id: str, operations_of: OperationsOf
) -> bool:
    """Derive the file operations of up to `BATCH` new states of a run; whether more are left."""
    if not pending(connection, run_id):
        return False
    points = _points(connection, run_id)
    steps = _steps(connection, run_id)
    working = _working(connection, run_id, points, steps)
    changes, looked_at = _changes(points, steps, working)
    pairs = [(change.before, change.after.state_id) for change in changes]
    for change, found in zip(changes, operations_of(pairs), strict=True):
        if found:
            _write(connection, intake, run_id, change, found)
    intake.flush()
    connection.executemany(
        "UPDATE states SET derived = 1 WHERE rowid = ?", [(rowid,) for rowid in looked_at]
    )
    return pending(connection, run_id)


def pending(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether there are states that were not looked at."""
    row = connection.execute(
        "SELECT 1 FROM states WHERE run_id = ? AND derived = 0 LIMIT 1", (run_id,)
    ).fetchone()
    return row is not None


def _points(connection: sqlite3.Connection, run_id: str) -> list[_Point]:
    rows = connection.execute(
        "SELECT rowid, step_id, moment, at, state_id, derived FROM states WHERE run_id = ?"
        " ORDER BY at, rowid",
        (run_id,),
    )
    return [
        _Point(rowid, step_id, when, at, state_id, bool(derived))
        for rowid, step_id, when, at, state_id, derived in rows
    ]


def _steps(connection: sqlite3.Connection, run_id: str) -> dict[str, _Step]:
    """The steps that states were taken for."""
    rows = connection.execute(
        "SELECT id, parent_id, started_at, completed_at, step_type, status FROM execution_steps"
        " WHERE run_id = ?",
        (run_id,),
    )
    return {
        name: _Step(
            name, parent, start, end, kind == StepType.EXTERNAL, status != StepStatus.STARTED
        )
        for name, parent, start, end, kind, status in rows
    }


def _working(
    connection: sqlite3.Connection,
    run_id: str,
    points: Sequence[_Point],
    steps: Mapping[str, _Step],
) -> list[tuple[int, _Step]]:
    """The steps that may have changed files, with the moment that they began, in order.

    Those that states were taken for; in a run that was watched from outside also those that came
    and went between two looks at the files.
    """
    names = dict.fromkeys(point.step_id for point in points)
    kinds = ", ".join(f"'{kind}'" for kind in _CHANGING)
    rows = connection.execute(
        "SELECT id FROM execution_steps s WHERE run_id = :run"
        " AND EXISTS (SELECT 1 FROM looks WHERE run_id = :run)"
        f" AND (step_type IN ({kinds}) AND NOT EXISTS (SELECT 1 FROM execution_steps p"
        "  WHERE p.run_id = :run AND p.parent_id = s.id)"
        " OR EXISTS (SELECT 1 FROM file_operations WHERE run_id = :run AND step_id = s.id"
        "  AND origin = 'claimed'))",
        {"run": run_id},
    )
    names |= dict.fromkeys(name for (name,) in rows)
    # Several tools may be asked for at once. One whose start was seen did nothing before that.
    starts = {point.step_id: point.at for point in points if point.when == "start"}
    found = [(starts.get(n, steps[n].started_at), steps[n]) for n in names if n in steps]
    return sorted(found, key=lambda begun: begun[0])


def _changes(
    points: Sequence[_Point], steps: Mapping[str, _Step], working: Sequence[tuple[int, _Step]]
) -> tuple[list[_Change], list[int]]:
    """What the first new states show, and the rowids of those states."""
    ends = {point.step_id: point.at for point in points if point.when == "end"}
    changes: list[_Change] = []
    looked_at: list[int] = []
    previous: _Point | None = None
    begun, going = 0, dict[str, _Step]()
    for point in points:
        while begun < len(working) and working[begun][0] <= point.at:
            step = working[begun][1]
            going[step.id] = step
            begun += 1
        if not point.derived:
            if len(looked_at) == BATCH:
                break
            looked_at.append(point.rowid)
            if previous is not None and previous.state_id != point.state_id:
                changes.append(_blame(previous, point, going, steps))
        previous = point
        for name, step in list(going.items()):
            over = ends.get(name, step.completed_at)
            # A step that was broken off is held to have made the next change that is seen.
            if over is None and step.ended and name != point.step_id:
                over = point.at
            if over is not None and over <= point.at:
                del going[name]
    return changes, looked_at


def _blame(
    before: _Point, after: _Point, going: Mapping[str, _Step], steps: Mapping[str, _Step]
) -> _Change:
    """Whose change it was that is first seen in `after`."""
    own = steps.get(after.step_id)
    at_work = {name: step for name, step in going.items() if not step.is_external}
    if after.when == "start":
        at_work.pop(after.step_id, None)
    above = {name for step in at_work.values() for name in _above(step, steps)}
    leaves = [step for name, step in at_work.items() if name not in above]
    if after.when == "end" and own is not None:
        owner: _Step | None = own
    else:
        owner = max(leaves, key=lambda step: step.started_at, default=None)
    family = set(_above(owner, steps)) if owner else set()
    others = [leaf.id for leaf in leaves if leaf is not owner and leaf.id not in family]
    return _Change(before.state_id, after, owner.id if owner else None, tuple(others))


def _above(step: _Step, steps: Mapping[str, _Step]) -> Iterator[str]:
    """The ids of the steps that `step` is a part of."""
    seen = {step.id}
    parent = step.parent_id
    while parent is not None and parent not in seen:
        yield parent
        seen.add(parent)
        parent = steps[parent].parent_id if parent in steps else None


# --- Rows -----------------------------------------------------------------------------------


def _write(
    connection: sqlite3.Connection,
    intake: Intake,
    run_id: str,
    change: _Change,
    found: Sequence[Operation],
) -> None:
    at = change.after.at
    owner = change.owner or _outsider(intake, run_id, change)
    facts = list(_facts(found))
    claims = _Claims(connection, run_id, (owner, *change.others)) if change.others else None
    doubtful: set[str] = set()
    for data in facts:
        path = data["file_path"]
        names = [owner] if claims is None else claims.owners(owner, path)
        if len(names) > 1 and claims is not None and claims.confirmed(names, data):
            continue
        if len(names) > 1:
            doubtful.update(names)
        _drop_claims(connection, run_id, names[0], path)
        observed = data | {"step_id": names[0], "origin": Origin.OBSERVED}
        name = f"{names[0]} {change.after.state_id} {data['operation_type']} {path}"
        _apply(intake, run_id, Kind.FILE_OPERATION, at, name, observed)
    for name in sorted(doubtful):
        _apply(intake, run_id, Kind.STEP_UPDATED, at, name, {"id": name, "ambiguous": True})


class _Claims:
    """What the steps that were at work together say of themselves."""

    def __init__(self, connection: sqlite3.Connection, run_id: str, names: Sequence[str]) -> None:
        self._connection, self._run_id, self._names = connection, run_id, names
        self._of: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
        for name in names:
            rows = connection.execute(
                "SELECT file_path, before_id, after_id, id FROM file_operations"
                " WHERE run_id = ? AND step_id = ? AND origin = ? ORDER BY timestamp, rowid",
                (run_id, bound(name), Origin.CLAIMED.value),
            )
            self._of[name] += rows.fetchall()

    def owners(self, owner: str, path: str) -> list[str]:
        """Whose change of a path it may have been, the likeliest first."""
        claimants = [
            name for name, rows in self._of.items() if any(row[0] == bound(path) for row in rows)
        ]
        # Who says what it changed, and does not name this, is less likely than who says nothing.
        silent = [name for name, rows in self._of.items() if not rows]
        found = claimants or silent or list(self._names)
        return [owner, *(n for n in found if n != owner)] if owner in found else found

    def confirmed(self, names: Sequence[str], data: Mapping[str, Any]) -> bool:
        """Whether several steps changed the path one after the other, as they say: from what it
        was to what it is. Then what they say is taken for seen."""
        path = bound(data["file_path"])
        rows = [row for name in names for row in self._of[name] if row[0] == path]
        chain = {row[1]: row for row in rows}
        content, passed = data["before_id"], list[Any]()
        while content in chain and len(passed) < len(rows):
            passed.append(chain[content])
            content = passed[-1][2]
        if len(passed) != len(rows) or content != data["after_id"]:
            return False
        self._connection.executemany(
            "UPDATE file_operations SET origin = ? WHERE run_id = ? AND id = ?",
            [(Origin.OBSERVED.value, self._run_id, row[3]) for row in rows],
        )
        return True


def _outsider(intake: Intake, run_id: str, change: _Change) -> str:
    """The id of a new step for a change that none of the steps made."""
    at, state_id = change.after.at, change.after.state_id
    name = derived_id(at * 1000, run_id, "external", state_id)
    facts = {
        "id": name,
        "step_type": StepType.EXTERNAL,
        "description": "Files changed between two steps",
        "state_id": state_id,
    }
    state = {"step_id": name, "state_id": state_id, "state_quality": StateQuality.EXACT}
    _apply(intake, run_id, Kind.STEP_STARTED, at, f"{name} start", facts)
    _apply(intake, run_id, Kind.STATE, at, f"{name} state", state)
    _apply(intake, run_id, Kind.STEP_ENDED, at, f"{name} end", {"id": name})
    return name


def _apply(
    intake: Intake, run_id: str, kind: Kind, at: int, name: str, data: dict[str, Any]
) -> None:
    event_id = derived_id(at * 1000, run_id, kind, name)
    intake.apply({"id": event_id, "run": run_id, "kind": kind, "time": at * 1000, "data": data})


def _facts(found: Sequence[Operation]) -> Iterator[dict[str, Any]]:
    """The operations in the words of events. A rename is a delete and a create."""
    for operation in found:
        facts: dict[str, Any] = {
            "operation_type": operation.op,
            "file_path": operation.path,
            "before_id": operation.old_id,
            "after_id": operation.new_id,
            "mode_before": operation.old_mode,
            "mode_after": operation.new_mode,
            "is_binary": operation.is_binary,
            "lines_added": operation.lines_added,
            "lines_removed": operation.lines_removed,
        }
        if operation.op != "rename":
            yield facts
            continue
        yield facts | {
            "operation_type": OperationType.DELETE,
            "file_path": operation.renamed_from,
            "after_id": None,
            "mode_after": None,
            "lines_added": 0,
        }
        yield facts | {
            "operation_type": OperationType.CREATE,
            "renamed_from": operation.renamed_from,
            "before_id": None,
            "mode_before": None,
            "lines_removed": 0,
        }


def _drop_claims(connection: sqlite3.Connection, run_id: str, step_id: str, path: str) -> None:
    """What was seen replaces what was told."""
    rows = connection.execute(
        "DELETE FROM file_operations WHERE run_id = ? AND step_id = ? AND file_path = ?"
        " AND origin = ? RETURNING id",
        (run_id, bound(step_id), bound(path), Origin.CLAIMED.value),
    ).fetchall()
    for (name,) in rows:
        documents.drop(connection, "run_id = ? AND owner = ?", (run_id, name))
