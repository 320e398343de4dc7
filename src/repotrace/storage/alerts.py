"""What was found when runs were looked over for alerts, whom it was told, and what is still due.

A run is due when something was recorded of it since it was looked over. So nothing is looked over
twice, and a run that goes on again is looked over again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from repotrace.records.run import RunStatus
from repotrace.storage.database import NAME, Database
from repotrace.storage.rows import from_moment, to_moment

if TYPE_CHECKING:
    import sqlite3

_DUE = (
    " FROM alert_looks l JOIN runs r ON r.id = l.run_id"
    " WHERE l.changes > 0 AND r.writer IS NOT NULL AND r.status <> ?"
)
_UNTOLD = (
    " FROM alerts a JOIN alert_looks l ON l.run_id = a.run_id WHERE a.told = 0 AND l.changes = 0"
)
_ENDED = RunStatus.RUNNING.value


class KeptAlert(NamedTuple):
    """An alert of a run."""

    run_id: str
    rule: str
    step: int | None
    """The number of the step to look at; None where it is about the whole run."""
    message: str
    evidence: tuple[str, ...] = ()

    @property
    def said(self) -> tuple[str, str, tuple[str, ...]]:
        """What makes it the same alert; steps may get other numbers."""
        return self.rule, self.message, self.evidence


class Look(NamedTuple):
    """How far a run has been looked over."""

    changes: int
    """How often something was recorded of the run since; 0: nothing was."""
    at: datetime | None = None
    """None: it never was."""
    rules: str | None = None
    """The digest of the rules."""


class AlertStore:
    """The alerts of the runs of a home. Constructing opens and makes nothing.

    All methods raise RepoTraceError if the database cannot be used.
    """

    def __init__(self, home: Path) -> None:
        self._database = Database(home / NAME)

    # --- What is to be done -----------------------------------------------------------------

    def has_news(self) -> bool:
        """Whether there are runs to be looked over, or alerts that nobody was told."""
        query = f"SELECT EXISTS (SELECT 1{_DUE}) OR EXISTS (SELECT 1{_UNTOLD})"
        return self._rows(query, (_ENDED,)) == [(1,)]

    def due(self, limit: int) -> list[str]:
        """Recorded runs that are over and not looked over since, the newest first."""
        query = f"SELECT r.id{_DUE} ORDER BY r.started_at DESC, r.id DESC LIMIT ?"
        return [str(row[0]) for row in self._rows(query, (_ENDED, limit))]

    def untold(self) -> list[str]:
        """Runs with alerts that nobody was told, the oldest first."""
        query = (
            "SELECT r.id FROM runs r WHERE r.id IN (SELECT a.run_id" + _UNTOLD + ")"
            " ORDER BY r.started_at, r.id"
        )
        return [str(row[0]) for row in self._rows(query)]

    def look(self, run_id: str) -> Look:
        """How far a run has been looked over."""
        query = "SELECT changes, at, rules FROM alert_looks WHERE run_id = ?"
        for changes, at, rules in self._rows(query, (run_id,)):
            return Look(changes, None if at is None else from_moment(at), rules)
        return Look(0)

    # --- What was found ---------------------------------------------------------------------

    def keep(
        self, run_id: str, found: Sequence[KeptAlert], *, look: Look, rules: str, at: datetime
    ) -> None:
        """Keep what was found in a run, in place of what was found before.

        `look` is how far it had been looked over when this look began: what was recorded since
        makes it due again, and nothing is kept if somebody else was faster. Who was told of the
        same alert before is not told again.
        """
        with self._database.writing() as connection:
            row = connection.execute(
                "SELECT l.at FROM runs r LEFT JOIN alert_looks l ON l.run_id = r.id WHERE r.id = ?",
                (run_id,),
            ).fetchone()
            began = None if look.at is None else to_moment(look.at)
            if row is None or row[0] != began:  # the run was deleted, or looked over meanwhile
                return
            before = _found(connection, "run_id = ?", (run_id,))
            flags = {alert.said: (told, posted) for alert, told, posted in before}
            connection.execute("DELETE FROM alerts WHERE run_id = ?", (run_id,))
            connection.executemany(
                "INSERT INTO alerts (run_id, position, rule, step, message, evidence, told, posted)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        *(run_id, position, alert.rule, alert.step),
                        *(alert.message, json.dumps(alert.evidence)),
                        *flags.get(alert.said, (0, 0)),
                    )
                    for position, alert in enumerate(found)
                ],
            )
            connection.execute(
                "INSERT INTO alert_looks (run_id, changes, at, rules) VALUES (?, 0, ?, ?)"
                " ON CONFLICT (run_id) DO UPDATE SET changes = max(0, changes - ?),"
                " at = excluded.at, rules = excluded.rules",
                (run_id, to_moment(at), rules, look.changes),
            )

    def of(self, run_id: str) -> list[KeptAlert]:
        """What was found in a run, if nothing was recorded of it since."""
        with self._database.reading() as connection:
            if connection is None:
                return []
            where = "run_id = ? AND run_id IN (SELECT run_id FROM alert_looks WHERE changes = 0)"
            return [alert for alert, _, _ in _found(connection, where, (run_id,))]

    def counts(self, run_ids: Iterable[str]) -> dict[str, int]:
        """How many alerts each of these runs has that was looked over and did not change since."""
        query = (
            "SELECT l.run_id, (SELECT count(*) FROM alerts a WHERE a.run_id = l.run_id)"
            " FROM alert_looks l WHERE l.changes = 0 AND l.at IS NOT NULL"
            " AND l.run_id IN (SELECT value FROM json_each(?))"
        )
        return dict(self._rows(query, (json.dumps(list(run_ids)),)))

    # --- Who was told -----------------------------------------------------------------------

    def tell(self, run_id: str) -> list[KeptAlert]:
        """The alerts of a run that nobody was told; from now on somebody was."""
        with self._database.writing() as connection:
            fresh = _found(connection, "run_id = ? AND told = 0", (run_id,))
            connection.execute("UPDATE alerts SET told = 1 WHERE run_id = ?", (run_id,))
        return [alert for alert, _, _ in fresh]

    def has_unposted(self, run_id: str) -> bool:
        """Whether there are alerts of a run that were not posted."""
        query = "SELECT 1 FROM alerts WHERE run_id = ? AND posted = 0 LIMIT 1"
        return bool(self._rows(query, (run_id,)))

    def take_unposted(self, run_id: str) -> list[KeptAlert]:
        """The alerts of a run that were not posted; from now on they were."""
        with self._database.writing() as connection:
            fresh = _found(connection, "run_id = ? AND posted = 0", (run_id,))
            connection.execute("UPDATE alerts SET posted = 1 WHERE run_id = ?", (run_id,))
        return [alert for alert, _, _ in fresh]

    def give_back(self, run_id: str, alerts: Iterable[KeptAlert]) -> None:
        """Note that alerts which were taken could not be posted."""
        failed = {alert.said for alert in alerts}
        with self._database.writing() as connection:
            rows = connection.execute(
                f"SELECT position, {_COLUMNS} FROM alerts WHERE run_id = ?", (run_id,)
            ).fetchall()
            for position, *row in rows:
                if _alert(row).said in failed:
                    connection.execute(
                        "UPDATE alerts SET posted = 0 WHERE run_id = ? AND position = ?",
                        (run_id, position),
                    )

    def _rows(self, query: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._database.reading() as connection:
            return [] if connection is None else connection.execute(query, parameters).fetchall()


_COLUMNS = "run_id, rule, step, message, evidence"


def _found(
    connection: sqlite3.Connection, where: str, parameters: Sequence[Any]
) -> list[tuple[KeptAlert, int, int]]:
    """Alerts in their order, each with whether it was told and posted."""
    query = f"SELECT {_COLUMNS}, told, posted FROM alerts WHERE {where} ORDER BY position"
    rows = connection.execute(query, parameters).fetchall()
    return [(_alert(row), told, posted) for *row, told, posted in rows]


def _alert(row: Sequence[Any]) -> KeptAlert:
    run_id, rule, step, message, evidence = row
    return KeptAlert(run_id, rule, step, message, tuple(json.loads(evidence)))


def changed(connection: sqlite3.Connection, run_id: str) -> None:
    """Note that something was recorded of a run: it is to be looked over again."""
    connection.execute(
        "INSERT INTO alert_looks (run_id, changes) SELECT id, 1 FROM runs WHERE id = ?"
        " AND (writer IS NOT NULL OR id IN (SELECT run_id FROM alert_looks))"
        " ON CONFLICT (run_id) DO UPDATE SET changes = changes + 1",
        (run_id,),
    )
