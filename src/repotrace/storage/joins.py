"""Several views of one run become one: what is noted of them, and what a new joining undoes.

A transcript tells steps with their moments, looks tell the files at other moments, the plug-in of
pytest tells outcomes that belong to no step. They come in any order, and some come again with
more, so whatever was derived from them is derived anew each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from repotrace.records.events import derived_id
from repotrace.records.run import OutcomeOrigin, RunStatus, StepType
from repotrace.storage import documents, repeats, totals
from repotrace.storage.attribution import OperationsOf
from repotrace.storage.conversations import Conversations
from repotrace.storage.database import NAME, Database
from repotrace.storage.ingest import Redact, derive_operations
from repotrace.storage.intake import Intake
from repotrace.storage.rows import Unusable, bound
from repotrace.storage.texts import TextPool

if TYPE_CHECKING:
    import sqlite3

LOOKS = "looks"
"""The `source` of steps that stand for changes which no other view explains."""

PYTEST = "pytest"
"""The `source` of steps that the plug-in of pytest begins where it finds none."""


NOT_SEEN = "the next step began before the files were looked at"
"""Why the state after a step is not known though others are."""


class Look(NamedTuple):
    """The files at a moment. Times are microseconds since 1970."""

    at: int
    until: int
    state_id: str


class Transcript(NamedTuple):
    """What a program writes down itself of what it does in a run."""

    path: str
    format: str
    since: int | None
    """In nanoseconds."""
    seen: str | None
    """How the file was when it was last joined."""
    final: bool


class StepMoment(NamedTuple):
    """When a step was at work. Times are microseconds since 1970."""

    id: str
    parent_id: str | None
    type: str
    source: str
    started_at: int
    completed_at: int | None
    has_state: int
    """Its own state was taken at its end."""
    reads: int
    """It is known for what it read."""
    rebuilt: str | None = None
    """The state after it as it was put together of what a transcript says; None if it was not, or
    could not be followed."""


class Joins:
    """What is noted of the views of runs in one home. Constructing opens and makes nothing."""

    def __init__(
        self, home: Path, *, redact: Callable[[], Redact], operations_of: OperationsOf
    ) -> None:
        self._database = Database(home / NAME)
        self._redact = redact
        self._operations_of = operations_of

    def unfinished(self) -> list[str]:
        """Runs that are over and have views that may not be joined yet."""
        query = (
            "SELECT id FROM runs WHERE status <> ? AND ("
            " EXISTS (SELECT 1 FROM transcripts t WHERE t.run_id = runs.id AND NOT t.final)"
            " OR (SELECT max(at) FROM looks l WHERE l.run_id = runs.id)"
            "  > coalesce((SELECT last_look FROM joins j WHERE j.run_id = runs.id), -1))"
            " ORDER BY started_at"
        )
        return [str(row[0]) for row in self._rows(query, (RunStatus.RUNNING.value,))]

    def going_on(self) -> list[str]:
        """Runs that are not over and have transcripts."""
        query = (
            "SELECT DISTINCT t.run_id FROM transcripts t JOIN runs r ON r.id = t.run_id"
            " WHERE r.status = ? ORDER BY r.started_at"
        )
        return [str(row[0]) for row in self._rows(query, (RunStatus.RUNNING.value,))]

    def run_of(self, source: str, source_id: str) -> str | None:
        """The run that a source knows by this id."""
        query = "SELECT run_id FROM run_sources WHERE source = ? AND source_id = ?"
        found = self._rows(query, (bound(source), bound(source_id)))
        return str(found[0][0]) if found else None

    def transcripts(self, run_id: str) -> list[Transcript]:
        """The transcripts of a run."""
        query = "SELECT path, format, since, seen, final FROM transcripts WHERE run_id = ?"
        return [
            Transcript(path, form, None if since is None else since * 1000, seen, bool(final))
            for path, form, since, seen, final in self._rows(query, (run_id,))
        ]

    def growths(self, run_id: str, path: str) -> list[tuple[int, int]]:
        """When a transcript had grown to how many bytes, in order; in nanoseconds."""
        query = "SELECT at * 1000, size FROM growths WHERE run_id = ? AND path = ? ORDER BY at"
        return [(at, size) for at, size in self._rows(query, (run_id, bound(path)))]

    def looks(self, run_id: str) -> list[Look]:
        """The looks of a run that gave a state, in order of time."""
        query = (
            "SELECT at, until, state_id FROM looks WHERE run_id = ? AND state_id IS NOT NULL"
            " ORDER BY at, until"
        )
        return [Look(*row) for row in self._rows(query, (run_id,))]

    def has_new_looks(self, run_id: str) -> bool:
        """Whether there were looks since the run was last joined."""
        query = (
            "SELECT 1 FROM looks WHERE run_id = ? AND at > coalesce("
            "(SELECT last_look FROM joins WHERE run_id = ?), -1) LIMIT 1"
        )
        return bool(self._rows(query, (run_id, run_id)))

    def moments(self, run_id: str) -> list[StepMoment]:
        """The steps of a run with the times at which they were at work."""
        query = (
            "SELECT id, parent_id, step_type, source, started_at, completed_at,"
            " EXISTS (SELECT 1 FROM states WHERE run_id = s.run_id AND step_id = s.id"
            "  AND moment = 'end'),"
            " EXISTS (SELECT 1 FROM file_reads WHERE run_id = s.run_id AND step_id = s.id),"
            " iif(state_quality = 'inferred', state_id, NULL)"
            " FROM execution_steps s WHERE run_id = ? ORDER BY started_at, step_number"
        )
        return [StepMoment(*row) for row in self._rows(query, (run_id,))]

    def states(self, run_id: str) -> list[Look]:
        """The states that were taken for steps, and the one before the first step."""
        query = "SELECT at, at, state_id FROM states WHERE run_id = ? ORDER BY at, rowid"
        return [Look(*row) for row in self._rows(query, (run_id,))]

    def _rows(self, query: str, parameters: Sequence[Any]) -> list[Any]:
        with self._database.reading() as connection:
            return [] if connection is None else connection.execute(query, parameters).fetchall()

    # --- Joining ----------------------------------------------------------------------------

    def undo(self, run_id: str) -> None:
        """Take back what was derived from the views of a run; what they told stays."""
        with self._database.writing() as connection:
            _undo(connection, run_id)

    def add(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Take in events as they come, without deriving operations from states."""
        with self._database.writing() as connection:
            intake = Intake(connection, self._redact())
            for event in events:
                try:
                    intake.apply(event)
                except Unusable:
                    continue
            intake.flush()

    def drop_calls(self, run_id: str, names: Iterable[str], steps: Iterable[str] = ()) -> None:
        """Remove model calls with the steps that stand for nothing but them, and other steps."""
        with self._database.writing() as connection:
            for name in names:
                _drop_call(connection, run_id, name)
            for name in steps:
                _remove_step(connection, run_id, name)

    def tidy(self, run_id: str) -> None:
        """Tell once what two views tell of the same calls of tools."""
        with self._database.writing() as connection:
            repeats.drop(connection, run_id)
            totals.renew(connection, run_id)

    def finish(self, run_id: str) -> None:
        """Derive whose change was whose, give outcomes to commands, number steps by time."""
        with self._database.writing() as connection:
            repeats.drop(connection, run_id)
            _assign_outcomes(connection, run_id)
        derive_operations(self._database, [run_id], self._operations_of)
        with self._database.writing() as connection:
            _renumber(connection, run_id)
            connection.execute(
                "INSERT OR REPLACE INTO joins (run_id, last_look)"
                " SELECT ?, coalesce(max(at), -1) FROM looks WHERE run_id = ?",
                (run_id, run_id),
            )
            totals.renew(connection, run_id)

    def joined(self, run_id: str, path: str, seen: str | None, *, final: bool) -> None:
        """Note how a transcript was when it was joined."""
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE transcripts SET seen = ?, final = ? WHERE run_id = ? AND path = ?",
                (seen, final, run_id, bound(path)),
            )


def _undo(connection: sqlite3.Connection, run_id: str) -> None:
    # A state that was bound to a step has the moment of its look, or that of the end of a step
    # whose rebuilt state was seen later.
    bound_states = (
        "SELECT rowid FROM states WHERE run_id = :run AND step_id <> '' AND EXISTS (SELECT 1"
        " FROM looks WHERE run_id = :run AND state_id = states.state_id AND (at = states.at"
        "  OR states.at = (SELECT completed_at FROM execution_steps"
        "   WHERE run_id = :run AND id = states.step_id)))"
    )
    run = {"run": run_id}
    connection.execute(
        "UPDATE execution_steps SET state_id = NULL, state_quality = NULL, state_reason = NULL"
        " WHERE run_id = :run AND (state_quality IN ('inferred', 'unverified')"
        " OR (state_quality = 'missing' AND state_reason = :not_seen) OR id IN (SELECT step_id"
        f" FROM states WHERE moment = 'end' AND run_id = :run AND rowid IN ({bound_states})))",
        {**run, "not_seen": NOT_SEEN},
    )
    connection.execute(
        "UPDATE execution_steps SET state_before_id = NULL WHERE run_id = :run AND id IN"
        f" (SELECT step_id FROM states WHERE moment = 'start' AND rowid IN ({bound_states}))",
        run,
    )
    connection.execute(f"DELETE FROM states WHERE rowid IN ({bound_states})", run)
    rows = connection.execute(
        "SELECT id, started_at, state_id, source FROM execution_steps"
        " WHERE run_id = ? AND (source = ? OR step_type = ?)",
        (run_id, LOOKS, StepType.EXTERNAL.value),
    ).fetchall()
    for name, at, state_id, source in rows:
        derived = state_id and name == derived_id(at * 1000, run_id, "external", state_id)
        if source == LOOKS or derived:
            _remove_step(connection, run_id, name)
    gone = connection.execute(
        "DELETE FROM file_operations WHERE run_id = ? AND origin = 'observed' RETURNING id",
        (run_id,),
    ).fetchall()
    for (name,) in gone:
        documents.drop(connection, "run_id = ? AND owner = ?", (run_id, name))
    connection.execute("UPDATE execution_steps SET ambiguous = 0 WHERE run_id = :run", run)
    connection.execute("UPDATE states SET derived = 0 WHERE run_id = :run", run)


def _drop_call(connection: sqlite3.Connection, run_id: str, name: str) -> None:
    row = connection.execute(
        "SELECT rowid, step_id FROM llm_interactions WHERE run_id = ? AND id = ?",
        (run_id, bound(name)),
    ).fetchone()
    if row is None:
        return
    rowid, step_id = row
    Conversations(TextPool(connection)).release(rowid)
    connection.execute("DELETE FROM llm_interactions WHERE rowid = ?", (rowid,))
    documents.drop(connection, "run_id = ? AND owner = ?", (run_id, name))
    alone = connection.execute(
        "SELECT 1 FROM execution_steps s WHERE run_id = ? AND id = ? AND step_type = ?"
        " AND NOT EXISTS (SELECT 1 FROM llm_interactions WHERE run_id = s.run_id"
        "  AND step_id = s.id)",
        (run_id, step_id, StepType.LLM.value),
    ).fetchone()
    if alone is not None:
        _remove_step(connection, run_id, step_id)


def _remove_step(connection: sqlite3.Connection, run_id: str, name: str) -> None:
    for table, column in (("states", "step_id"), ("execution_steps", "id")):
        connection.execute(f"DELETE FROM {table} WHERE run_id = ? AND {column} = ?", (run_id, name))
    documents.drop(connection, "run_id = ? AND owner = ?", (run_id, name))


def _assign_outcomes(connection: sqlite3.Connection, run_id: str) -> None:
    """Give what pytest told to the command that was running, which knows its words and output.

    The step that the plug-in began for itself goes where another view tells of the command.
    """
    own = connection.execute(
        "SELECT id, started_at, coalesce(completed_at, started_at) FROM execution_steps"
        " WHERE run_id = :run AND source = :pytest AND (completed_at IS NOT NULL"
        "  OR EXISTS (SELECT 1 FROM runs WHERE id = :run AND status <> 'running'))",
        {"run": run_id, "pytest": PYTEST},
    ).fetchall()
    for name, start, end in own:
        # Transcripts round to milliseconds.
        row = connection.execute(
            "SELECT s.id, c.id FROM command_runs c JOIN execution_steps s"
            " ON s.run_id = c.run_id AND s.id = c.step_id WHERE c.run_id = ? AND s.source <> ?"
            " AND s.started_at <= ? + 2000 AND coalesce(s.completed_at, ?) >= ? - 2000"
            " ORDER BY s.started_at DESC LIMIT 1",
            (run_id, PYTEST, start, end, end),
        ).fetchone()
        row = row or _before(connection, run_id, start)
        if row is None:
            continue
        step_id, command_id = row
        gone = connection.execute(
            "DELETE FROM test_outcomes WHERE run_id = ? AND command_id = ? AND origin = ?"
            " RETURNING id",
            (run_id, command_id, OutcomeOrigin.PARSED.value),
        ).fetchall()
        gone += connection.execute(
            "DELETE FROM command_runs WHERE run_id = ? AND step_id = ? RETURNING id",
            (run_id, name),
        ).fetchall()
        for (owner,) in gone:
            documents.drop(connection, "run_id = ? AND owner = ?", (run_id, owner))
        connection.execute(
            "UPDATE test_outcomes SET step_id = ?, command_id = ? WHERE run_id = ? AND step_id = ?",
            (step_id, command_id, run_id, name),
        )
        connection.execute(
            "UPDATE execution_steps SET step_type = 'test' WHERE run_id = ? AND id = ?"
            " AND step_type = 'command'",
            (run_id, step_id),
        )
        connection.execute(
            "UPDATE command_runs SET is_test = 1 WHERE run_id = ? AND id = ?", (run_id, command_id)
        )
        _remove_step(connection, run_id, name)
        connection.execute(
            "INSERT OR REPLACE INTO aliases (run_id, alias, id) VALUES (?, ?, ?)",
            (run_id, name, step_id),
        )


def _before(connection: sqlite3.Connection, run_id: str, start: int) -> tuple[str, str] | None:
    """The last test command before a moment, in a run whose transcript tells no moments; None if
    what came of it is known already."""
    row = connection.execute(
        "SELECT s.id, c.id, EXISTS (SELECT 1 FROM test_outcomes WHERE run_id = :run"
        "  AND command_id = c.id AND origin = 'plugin')"
        " FROM command_runs c JOIN execution_steps s ON s.run_id = c.run_id AND s.id = c.step_id"
        " WHERE c.run_id = :run AND c.is_test AND s.source <> :pytest AND s.started_at <= :start"
        " AND EXISTS (SELECT 1 FROM growths WHERE run_id = :run)"
        " ORDER BY s.started_at DESC LIMIT 1",
        {"run": run_id, "pytest": PYTEST, "start": start},
    ).fetchone()
    return None if row is None or row[2] else (row[0], row[1])


def _renumber(connection: sqlite3.Connection, run_id: str) -> None:
    """Number the steps of a run by time: some were heard of late."""
    rows = connection.execute(
        "SELECT id, step_number FROM execution_steps WHERE run_id = ?"
        " ORDER BY started_at, step_number",
        (run_id,),
    ).fetchall()
    if [number for _, number in rows] == list(range(1, len(rows) + 1)):
        return
    # No two may have one number at any moment.
    connection.execute(
        "UPDATE execution_steps SET step_number = -step_number WHERE run_id = ?", (run_id,)
    )
    connection.executemany(
        "UPDATE execution_steps SET step_number = ? WHERE run_id = ? AND id = ?",
        [(number, run_id, name) for number, (name, _) in enumerate(rows, 1)],
    )
    connection.execute("UPDATE runs SET next_step = ? WHERE id = ?", (len(rows) + 1, run_id))
