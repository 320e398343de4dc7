"""The recorded runs of a home: taken in, listed, read and deleted."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import batched
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repotrace.errors import NewerSchema, RepoTraceError, RunNotFound
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    FileRead,
    LLMInteraction,
    LogEntry,
    Run,
    StepCommand,
    TestOutcome,
)
from repotrace.storage import documents, run_records, texts, totals
from repotrace.storage.attribution import OperationsOf
from repotrace.storage.bodies import Bodies, Contents
from repotrace.storage.database import NAME, Database
from repotrace.storage.ingest import (
    Ingested,
    Redact,
    derive_operations,
    ingest,
    journal_folder,
)
from repotrace.storage.intake import Intake
from repotrace.storage.overview import Overview
from repotrace.storage.query import Query
from repotrace.storage.reports import LATEST
from repotrace.storage.rows import Unusable, bound, moment, to_moment
from repotrace.storage.run_names import id_of, matching
from repotrace.storage.run_records import Reader
from repotrace.storage.search import Hit, search
from repotrace.storage.trace_events import Part, events_of, record_events

if TYPE_CHECKING:
    import sqlite3

_TABLES = (
    *("execution_steps", "llm_interactions", "file_operations", "file_reads", "log_entries"),
    *("command_runs", "test_outcomes", "aliases", "run_tags", "run_sources", "losses", "states"),
    *("test_executions", "test_verdicts", "looks", "transcripts", "joins"),
    *("growths", "alert_looks", "alerts"),
)

_BATCH = 2_000


class RunStore:
    """The runs of a home. Constructing opens and makes nothing.

    Reading shows what is in the database; call `ingest` first to see what programs have written
    since. All methods raise RepoTraceError if the database cannot be used. Without one there are
    no runs, and reading makes none.
    """

    def __init__(
        self,
        home: Path,
        *,
        contents: Contents | None = None,
        operations_of: OperationsOf | None = None,
        redact: Callable[[], Redact] | None = None,
    ) -> None:
        """`contents` reads an object of the snapshot store, for the contents of operations;
        `operations_of` says what differs between its states.
        `redact` makes the redactor for writers that have none; it is called when one is met."""
        self.home = home
        self.contents = contents
        self._operations_of = operations_of
        self._database = Database(home / NAME)
        self._bodies = Bodies(self._database)
        self._make_redact = redact

    # --- In ---------------------------------------------------------------------------------

    @property
    def journal(self) -> Path:
        """The folder to which recording processes write."""
        return journal_folder(self.home)

    def ingest(self, *folders: Path, wait: bool = False) -> Ingested:
        """Take in what was written to the journal, and to `folders` besides.

        If another process is at it, it waits for that one only if asked. A database that cannot
        be written is told of in the result, so that reading may go on; NewerSchema is raised.
        """
        done = Ingested()
        try:
            done = ingest(
                self._database,
                (self.journal, *folders),
                self._lazy_redact(),
                operations_of=self._operations_of,
                wait=wait,
            )
        except NewerSchema:
            raise
        except (RepoTraceError, OSError) as error:
            done.problem = str(error)
        return done

    def add_events(self, events: Iterable[Mapping[str, Any]]) -> Ingested:
        """Take in events directly, as an importer makes them; see `records/events.py`.

        They should come about in the order of time: steps are numbered by time within some
        thousand events. What was taken in before an exception of `events` stays.
        """
        return self._add(events, whole=False)

    def save(self, trace: ExecutionTrace) -> Ingested:
        """Keep a trace as it is but for secrets in its texts, its step numbers included.

        A record that is known is replaced. The contents of files are the snapshot store's to
        keep; here operations name them by their object ids.
        """
        return self._add(events_of(trace), whole=True)

    def put(self, record: ExecutionStep | Part, *, workspace: str | None = None) -> None:
        """Keep one record, as `save` does those of a trace.

        Of a run that nothing else told of the status becomes `UNKNOWN`; `workspace` is the folder
        of one that names none. A number that another step has, or one below 1, gives way to the
        next one, and stays in `metadata`.
        """
        if not (record.id and record.run_id):
            raise RepoTraceError("A record needs an id and a run_id to be saved.")
        self._add(record_events(record, workspace), whole=True)

    def _add(self, events: Iterable[Mapping[str, Any]], *, whole: bool) -> Ingested:
        done = Ingested()
        redact = self._lazy_redact()
        try:
            for batch in batched(events, _BATCH):
                ordered = batch if whole else sorted(batch, key=_time_of)
                with self._database.writing() as connection:
                    intake = Intake(connection, redact, whole=whole)
                    for event in ordered:
                        _apply(intake, {**event, "raw": True} if whole else event, done)
                    intake.flush()
                    done.runs |= intake.touched
        finally:
            if done.runs:
                if self._operations_of is not None:
                    derive_operations(self._database, done.runs, self._operations_of)
                with self._database.writing() as connection:
                    for run_id in done.runs:
                        totals.renew(connection, run_id)
        return done

    def _lazy_redact(self) -> Redact | None:
        make = self._make_redact
        if make is None:
            return None
        made: list[Redact] = []

        def redact(text: str) -> str:
            if not made:
                made.append(make())
            return made[0](text)

        return redact

    # --- Runs -------------------------------------------------------------------------------

    def list(
        self,
        *,
        status: str | None = None,
        outcome: str | None = None,
        agent: str | None = None,
        tag: str | None = None,
        source: str | None = None,
        task_id: str | None = None,
        workspace: str | None = None,
        parent: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> builtins.list[Run]:
        """The runs that fit all that is given, the newest first.

        `workspace` is the folder that the run worked in, `parent` the id of the run that it
        branched from.
        """
        wanted = {
            "status = ?": status,
            "outcome = ?": outcome,
            "agent = ?": agent,
            "source = ?": source,
            "task_id = ?": task_id,
            "workspace = ?": workspace,
            "parent_run_id = ?": parent,
            "id IN (SELECT run_id FROM run_tags WHERE tag = ?)": tag,
            "started_at >= ?": None if since is None else to_moment(since),
            "started_at < ?": None if until is None else to_moment(until),
        }
        given = {clause: value for clause, value in wanted.items() if value is not None}
        where = " AND ".join(given) or "1"
        values = [bound(value) if isinstance(value, str) else value for value in given.values()]
        return self._runs(
            f"WHERE {where} ORDER BY started_at DESC, id DESC LIMIT ?",
            (*values, -1 if limit is None else limit),
        )

    def count(self) -> int:
        """How many runs there are."""
        with self._database.reading() as connection:
            query = "SELECT count(*) FROM runs"
            return 0 if connection is None else int(connection.execute(query).fetchone()[0])

    def get(self, ref: str = LATEST, *, workspace: str | None = None) -> Run:
        """The run that `ref` means; see `resolve`."""
        found = self._runs("WHERE id = ?", (self.resolve(ref, workspace=workspace),))
        if not found:
            raise self._not_found(ref)
        return found[0]

    def named(self, name: str) -> Run | None:
        """The run with this id, or this other name; None if there is none."""
        with self._database.reading() as connection:
            run_id = None if connection is None else id_of(connection, name)
        return next(iter(self._runs("WHERE id = ?", (run_id,))), None) if run_id else None

    def resolve(self, ref: str = LATEST, *, workspace: str | None = None) -> str:
        """The id that `ref` means: an id, a prefix that only one has, or `latest`.

        `latest` is the newest run of `workspace`, of all where none is given. Raises RunNotFound
        for nothing, RepoTraceError for too much.
        """
        with self._database.reading() as connection:
            matches = [] if connection is None else matching(connection, ref, workspace)
        if len(matches) == 1:
            return matches[0]
        if not matches:
            raise self._not_found(ref)
        shown = ", ".join(matches[:8]) + (", …" if len(matches) > 8 else "")
        raise RepoTraceError(
            f"{ref!r} is ambiguous: {len(matches)} runs begin with it.",
            hint=f"Write more of one of: {shown}",
        )

    def _not_found(self, ref: str) -> RunNotFound:
        if ref == LATEST:
            return RunNotFound(
                "No runs are recorded here.",
                hint="Record one with: repotrace record -- COMMAND, or: repotrace import",
            )
        return RunNotFound(f"No run matches {ref!r}.", hint="List runs with: repotrace runs list")

    def _runs(self, where: str, parameters: Sequence[Any]) -> builtins.list[Run]:
        reader = self._reader()
        with self._database.reading() as connection:
            if connection is None:
                return []
            query = f"SELECT {', '.join(run_records.RUN)} FROM runs {where}"
            rows = connection.execute(query, parameters).fetchall()
            return [reader.run(row, _tags(connection, row[0])) for row in rows]

    def delete(self, run_id: str) -> bool:
        """Remove a run with all that belongs to it; False if there was none.

        Its states are the snapshot store's to delete. A program that still records it makes a
        run of what follows.
        """
        with self._database.writing() as connection:
            documents.drop(connection, "run_id = ?", (run_id,))
            texts.delete(connection, run_id)
            for table in _TABLES:
                connection.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))
            connection.execute("DELETE FROM aliases WHERE run_id = '' AND id = ?", (run_id,))
            deleted = connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))
            return deleted.rowcount > 0

    def losses(self, run_id: str | None = None) -> int:
        """How many events are known to be lost: of a run, or those whose run is not known."""
        with self._database.reading() as connection:
            if connection is None:
                return 0
            row = connection.execute(
                "SELECT coalesce(sum(count), 0) FROM losses WHERE run_id IS ?", (run_id,)
            ).fetchone()
            return int(row[0])

    # --- Steps ------------------------------------------------------------------------------

    def steps(
        self,
        run_id: str,
        *,
        first: int = 1,
        last: int | None = None,
        limit: int | None = None,
        status: str | None = None,
        step_type: str | None = None,
        parent: str | None = None,
    ) -> builtins.list[ExecutionStep]:
        """Steps by number, from `first` to `last` at most."""
        where = "AND step_number >= ?"
        values: builtins.list[Any] = [first]
        for clause, value in (
            (" AND step_number <= ?", last),
            (" AND status = ?", status),
            (" AND step_type = ?", step_type),
            (" AND parent_id = ?", parent),
        ):
            if value is not None:
                where += clause
                values.append(value)
        where += " ORDER BY step_number LIMIT ?"
        values.append(-1 if limit is None else limit)
        return self._parts(
            run_id, "execution_steps", run_records.STEP, self._reader().step, where, values
        )

    def step(self, run_id: str, which: int | str) -> ExecutionStep:
        """One step, by its number or its id. Raises RunNotFound if there is no such step."""
        column = "step_number" if isinstance(which, int) else "id"
        found = self._parts(
            run_id,
            "execution_steps",
            run_records.STEP,
            self._reader().step,
            f"AND {column} = ?",
            [which],
        )
        if not found:
            raise RunNotFound(
                f"Run {run_id} has no step {which}.",
                hint=f"List its steps with: repotrace runs show {run_id}",
            )
        return found[0]

    def interactions(
        self, run_id: str, step_id: str | None = None
    ) -> builtins.list[LLMInteraction]:
        """The model calls of a run or a step, in order of time."""
        columns, make = run_records.INTERACTION, self._reader().interaction
        return self._timed(run_id, step_id, "llm_interactions", columns, make)

    def operations(
        self, run_id: str, step_id: str | None = None, *, path: str | None = None
    ) -> builtins.list[FileOperation]:
        """The file operations of a run or a step, in order of time."""
        columns, make = run_records.OPERATION, self._reader().operation
        return self._timed(run_id, step_id, "file_operations", columns, make, path)

    def reads(
        self, run_id: str, step_id: str | None = None, *, path: str | None = None
    ) -> builtins.list[FileRead]:
        """The files that a run or a step looked at, in order of time."""
        columns, make = run_records.READ, self._reader().read
        return self._timed(run_id, step_id, "file_reads", columns, make, path)

    def logs(self, run_id: str, step_id: str | None = None) -> builtins.list[LogEntry]:
        """The log entries of a run or a step, in order of time."""
        return self._timed(run_id, step_id, "log_entries", run_records.LOG, self._reader().log)

    def commands(self, run_id: str, step_id: str | None = None) -> builtins.list[StepCommand]:
        """The commands of a run or a step, in order of time."""
        columns, make = run_records.COMMAND, self._reader().command
        return self._timed(run_id, step_id, "command_runs", columns, make)

    def tests(
        self,
        run_id: str,
        step_id: str | None = None,
        *,
        node_id: str | None = None,
        passed: bool | None = None,
        limit: int = -1,
    ) -> builtins.list[TestOutcome]:
        """The test outcomes of a run or a step, in order of time; with `passed` only those, or
        only the others.

        The state of an outcome that names none is the one that its step began with.
        """
        where, values = _of_step(step_id)
        if passed is not None:
            where += f" AND outcome {'=' if passed else '<>'} 'passed'"
        if node_id is not None:
            where += " AND node_id = ?"
            values.append(bound(node_id))
        where += " ORDER BY timestamp, rowid LIMIT ?"
        values.append(limit)
        make = self._reader().test
        found = self._parts(run_id, "test_outcomes", run_records.TEST, make, where, values)
        missing = {outcome.step_id for outcome in found if outcome.state_id is None}
        states = self._states_before(run_id, missing)
        return [
            outcome
            if outcome.state_id is not None or states.get(outcome.step_id) is None
            else outcome.model_copy(update={"state_id": states[outcome.step_id]})
            for outcome in found
        ]

    def _states_before(self, run_id: str, step_ids: set[str]) -> dict[str, str | None]:
        """The state that each of these steps began with."""
        if not step_ids:
            return {}
        states: dict[str, str | None] = {}
        with self._database.reading() as connection:
            if connection is None:
                return {}
            row = connection.execute("SELECT base_state FROM runs WHERE id = ?", (run_id,))
            current = (row.fetchone() or (None,))[0]
            for step_id, before, after in connection.execute(
                "SELECT id, state_before_id, state_id FROM execution_steps WHERE run_id = ?"
                " ORDER BY step_number",
                (run_id,),
            ):
                if step_id in step_ids:
                    states[step_id] = before or current
                current = after or current
        return states

    # --- Whole ------------------------------------------------------------------------------

    def trace(self, run_id: str) -> ExecutionTrace:
        """A run with all that belongs to it; each list is read from the store when it is used."""
        run = self.get(run_id)
        fields = {
            "run_id": run.id,
            "task_id": run.task_id or "unknown",
            "started_at": run.started_at,
            "status": run.status,
            "completed_at": run.completed_at,
            "run": run,
        }
        return ExecutionTrace.pending(
            fields,
            {
                "steps": lambda: self.steps(run.id),
                "llm_interactions": lambda: self.interactions(run.id),
                "file_operations": lambda: self.operations(run.id),
                "file_reads": lambda: self.reads(run.id),
                "logs": lambda: self.logs(run.id),
                "commands": lambda: self.commands(run.id),
                "test_outcomes": lambda: self.tests(run.id),
            },
        )

    def search(
        self,
        query: str,
        *,
        run_id: str | None = None,
        limit: int = 50,
        now: datetime | None = None,
    ) -> builtins.list[Hit]:
        """What `query` finds, as `search.search`; `since:2h` is counted from `now`."""
        asked = Query.of(query)
        if asked.wanted or asked.unwanted:
            self.index()
        with self._database.reading() as connection:
            if connection is None:
                return []
            then = now or datetime.now(UTC)
            return search(connection, asked, now=then, run_id=run_id, limit=limit)

    @contextmanager
    def overview(self) -> Iterator[Overview | None]:
        """Queries for lists and tables over one view of the database; None without one."""
        with self._database.reading() as connection:
            yield None if connection is None else Overview(connection)

    def index(self) -> None:
        """Make all texts findable; otherwise the next search does it.

        A database that may not be written is left as it is.
        """
        documents.index_all(self._database)

    # --- Rows -------------------------------------------------------------------------------

    def _reader(self) -> Reader:
        return Reader(self._bodies, self.contents)

    def _timed[T](
        self,
        run_id: str,
        step_id: str | None,
        table: str,
        columns: Sequence[str],
        make: Callable[[Sequence[Any]], T],
        path: str | None = None,
    ) -> builtins.list[T]:
        where, values = _of_step(step_id)
        if path is not None:
            where += " AND file_path = ?"
            values.append(bound(path))
        where += " ORDER BY timestamp, rowid"
        return self._parts(run_id, table, columns, make, where, values)

    def _parts[T](
        self,
        run_id: str,
        table: str,
        columns: Sequence[str],
        make: Callable[[Sequence[Any]], T],
        where: str,
        values: Iterable[Any],
    ) -> builtins.list[T]:
        with self._database.reading() as connection:
            if connection is None:
                return []
            query = f"SELECT {', '.join(columns)} FROM {table} WHERE run_id = ? {where}"
            return [make(row) for row in connection.execute(query, (run_id, *values))]


def _of_step(step_id: str | None) -> tuple[str, list[Any]]:
    return ("", []) if step_id is None else ("AND step_id = ?", [bound(step_id)])


def _time_of(event: Mapping[str, Any]) -> int:
    return moment(event.get("time")) or 0


def _apply(intake: Intake, event: Mapping[str, Any], done: Ingested) -> None:
    try:
        if intake.apply(event):
            done.events += 1
        else:
            done.unknown += 1
    except Unusable as problem:
        done.unusable += 1
        name, run_id = event.get("id"), event.get("run")
        intake.lose(
            name if isinstance(name, str) else str(problem),
            1,
            f"unusable event: {problem}",
            moment(event.get("time")) or 0,
            run_id if isinstance(run_id, str) else None,
        )


def _tags(connection: sqlite3.Connection, run_id: str) -> Iterator[str]:
    rows = connection.execute("SELECT tag FROM run_tags WHERE run_id = ?", (run_id,))
    return (str(tag) for (tag,) in rows)
