"""The memo of check and blame: every execution of a test command on a state, and every verdict.

Whoever asks for the same files, command and environment again gets the answers of before. So a
search that was stopped goes on, and a verdict can be questioned: what it rests on is here.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from repotrace.records.base import Record
from repotrace.records.command import CommandRun
from repotrace.records.run import TestOutcome
from repotrace.storage.database import NAME, Database
from repotrace.storage.rows import from_moment, to_moment

KEPT = 20_000
"""Executions that are kept; the oldest go first."""

_EXECUTION = "id, run_id, key, state_id, command, purpose, alone, started_at, duration, record"


class Execution(Record):
    """A test command, executed once on the files of a state."""

    id: str
    run_id: str = ""
    """The run that was looked into; empty for none."""
    key: str
    """Digest of the files, the command and the environment: equal ones asked the same."""
    state_id: str
    """The state of the run that it is about."""
    command_line: str
    """For people."""
    purpose: str = ""
    """Why it was executed."""
    alone: bool = True
    """Whether nothing else ran at the same time."""
    started_at: datetime
    duration: float | None = None
    """Seconds."""
    command: CommandRun
    outcomes: tuple[TestOutcome, ...] = ()
    origin: str | None = None
    """Where the outcomes were learnt, an `OutcomeOrigin`; None if nothing was learnt of a test."""
    complete: bool = True
    """Whether the command came to its end after all its tests, as far as can be told."""
    problem: str | None = None
    """Why it could not be executed; None if it was."""


class KeptVerdict(NamedTuple):
    """What blame said of a test."""

    id: str
    run_id: str
    test: str
    verdict: str
    at: datetime
    record: dict[str, Any]
    """The verdict whole, with its evidence."""


class MemoStore:
    """Executions and verdicts of a home. Constructing opens and makes nothing.

    All methods raise RepoTraceError if the database cannot be used.
    """

    def __init__(self, home: Path) -> None:
        self._database = Database(home / NAME)

    # --- Executions -------------------------------------------------------------------------

    def add(self, execution: Execution) -> None:
        """Keep an execution; durable when this returns."""
        texts = execution.model_dump(
            mode="json",
            include={"command", "outcomes", "origin", "complete", "problem"},
            exclude_defaults=True,
        )
        row = (
            execution.id,
            execution.run_id,
            execution.key,
            execution.state_id,
            execution.command_line,
            execution.purpose,
            int(execution.alone),
            to_moment(execution.started_at),
            execution.duration,
            _packed(texts),
        )
        with self._database.writing() as connection:
            connection.execute(
                f"INSERT OR REPLACE INTO test_executions ({_EXECUTION})"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            connection.execute(
                "DELETE FROM test_executions WHERE id IN (SELECT id FROM test_executions"
                " ORDER BY started_at DESC, id DESC LIMIT -1 OFFSET ?)",
                (KEPT,),
            )

    def executions(
        self, *, key: str | None = None, run_id: str | None = None, ids: Iterable[str] = ()
    ) -> list[Execution]:
        """Those that fit all that is given, in order of time; `ids` alone: those, as they come."""
        wanted = list(ids)
        clauses = {"key = ?": key, "run_id = ?": run_id}
        given = {clause: value for clause, value in clauses.items() if value is not None}
        where = " AND ".join(given) or "1"
        values: list[Any] = list(given.values())
        if wanted:
            where += f" AND id IN ({', '.join('?' * len(wanted))})"
            values += wanted
        with self._database.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                f"SELECT {_EXECUTION} FROM test_executions WHERE {where} ORDER BY started_at, id",
                values,
            ).fetchall()
        return [found for row in rows if (found := _execution(row)) is not None]

    def forget(self, keys: Sequence[str]) -> int:
        """Forget the executions with these keys; how many there were."""
        with self._database.writing() as connection:
            done = connection.executemany(
                "DELETE FROM test_executions WHERE key = ?", [(key,) for key in keys]
            )
            return max(0, done.rowcount)

    # --- Verdicts ---------------------------------------------------------------------------

    def keep_verdict(self, verdict: KeptVerdict) -> None:
        """Keep what was said of a test."""
        with self._database.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO test_verdicts (id, run_id, test, verdict, at, record)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (*verdict[:4], to_moment(verdict.at), _packed(verdict.record)),
            )

    def run_of_verdict(self, name: str) -> str | None:
        """The run that the verdict of this id is about; None if there is none."""
        query = "SELECT run_id FROM test_verdicts WHERE id = ?"
        with self._database.reading() as connection:
            row = None if connection is None else connection.execute(query, (name,)).fetchone()
        return None if row is None else str(row[0])

    def verdicts(self, run_id: str, *, test: str | None = None) -> list[KeptVerdict]:
        """The newest verdict on each test of a run, in the order of the tests."""
        clause, values = ("", [run_id]) if test is None else (" AND test = ?", [run_id, test])
        with self._database.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                "SELECT id, run_id, test, verdict, at, record FROM test_verdicts"
                f" WHERE run_id = ?{clause} ORDER BY at, id",
                values,
            ).fetchall()
        newest: dict[str, KeptVerdict] = {}
        for name, run, about, verdict, at, record in rows:
            newest[about] = KeptVerdict(
                name, run, about, verdict, from_moment(at), _unpacked(record)
            )
        return [newest[about] for about in sorted(newest)]


def _execution(row: Sequence[Any]) -> Execution | None:
    """None for a row that a newer version wrote in a form of its own."""
    name, run_id, key, state_id, line, purpose, alone, started_at, duration, record = row
    try:
        return Execution.model_validate(
            {
                **_unpacked(record),
                "id": name,
                "run_id": run_id,
                "key": key,
                "state_id": state_id,
                "command_line": line,
                "purpose": purpose,
                "alone": bool(alone),
                "started_at": from_moment(started_at),
                "duration": duration,
            }
        )
    except ValidationError:
        return None


def _packed(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return zlib.compress(text.encode(), 6)


def _unpacked(data: bytes) -> dict[str, Any]:
    found = json.loads(zlib.decompress(data))
    return found if isinstance(found, dict) else {}
