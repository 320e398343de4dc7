"""What happened to reports after they were made: occurrences and replays.

Kept in the home's database, so that a committed report file is not dirtied. The history
may be lost without harm: a caller that gets a RepoTraceError warns and goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from repotrace.records.base import printable
from repotrace.records.bug import BugReport
from repotrace.storage.database import NAME, Database


@dataclass(frozen=True)
class Occurrences:
    """How often a failure was seen. The creation of its report counts as the first time."""

    count: int
    first: datetime
    last: datetime


class RecordedVerdict(NamedTuple):
    """The result of one replay."""

    verdict: str
    """A value of `comparison.Verdict`, or a word of a newer version."""
    detail: str
    """One line for people."""
    at: datetime
    duration: float | None = None
    """Seconds that the replay took."""
    commit: str | None = None
    """Commit that was checked out."""


class History:
    """Occurrences and verdicts of the reports of any number of stores.

    A store is known by its place relative to the home, so a project may be moved. All
    methods raise RepoTraceError if the database cannot be used; without one there is no
    history yet, and reading makes none.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._database = Database(home / NAME)

    def record_occurrence(
        self, store_root: Path, report_id: str, at: datetime, run_digest: str | None = None
    ) -> int:
        """Note that the failure of a report that was there already was captured again.

        Not for the capture that made the report: that one is known from the report. Returns how
        often it was captured, its creation included.
        """
        row = (self._key(store_root), printable(report_id), _text(at), run_digest)
        with self._database.writing() as connection:
            connection.execute("INSERT INTO report_occurrences VALUES (?, ?, ?, ?)", row)
            counted = connection.execute(
                "SELECT count(*) FROM report_occurrences WHERE store = ? AND report_id = ?", row[:2]
            )
            return 1 + int(counted.fetchone()[0])

    def occurrences(self, store_root: Path, report: BugReport) -> Occurrences:
        """How often `report` was captured on this machine, its creation included."""
        return self.all_occurrences(store_root, [report])[report.id]

    def all_occurrences(
        self, store_root: Path, reports: Iterable[BugReport]
    ) -> dict[str, Occurrences]:
        """`occurrences` of many reports by their ids, in one query."""
        seen: dict[str, tuple[int, str, str]] = {}
        with self._database.reading() as connection:
            if connection:
                rows = connection.execute(
                    "SELECT report_id, count(*), min(at), max(at) FROM report_occurrences"
                    " WHERE store = ? GROUP BY report_id",
                    (self._key(store_root),),
                )
                seen = {report_id: (n, first, last) for report_id, n, first, last in rows}
        result = {}
        for report in reports:
            times = [_utc(report.created_at)]
            count, *others = seen.get(report.id, (0,))
            times += [_time(str(text)) for text in others]
            result[report.id] = Occurrences(1 + int(count), min(times), max(times))
        return result

    def last_seen(self, store_root: Path) -> dict[str, datetime]:
        """The last repeated capture by id, for `ReportStore.resolve("latest", …)`."""
        with self._database.reading() as connection:
            if connection is None:
                return {}
            rows = connection.execute(
                "SELECT report_id, max(at) FROM report_occurrences WHERE store = ?"
                " GROUP BY report_id",
                (self._key(store_root),),
            )
            return {report_id: _time(at) for report_id, at in rows}

    def record_verdict(
        self,
        store_root: Path,
        report_id: str,
        verdict: str,
        detail: str,
        at: datetime,
        duration: float | None = None,
        commit: str | None = None,
    ) -> None:
        """Note the result of a replay."""
        recorded = RecordedVerdict(verdict, detail, at, duration, commit)
        self.record_verdicts(store_root, [(report_id, recorded)])

    def record_verdicts(
        self, store_root: Path, verdicts: Iterable[tuple[str, RecordedVerdict]]
    ) -> None:
        """Note the results of a sweep, all or none."""
        store = self._key(store_root)
        rows = [
            (
                store,
                printable(report_id),
                printable(str(item.verdict)),
                printable(item.detail),
                _text(item.at),
                item.duration,
                item.commit,
            )
            for report_id, item in verdicts
        ]
        with self._database.writing() as connection:
            connection.executemany(
                "INSERT INTO report_verdicts"
                " (store, report_id, verdict, detail, at, duration, commit_id)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                rows,
            )

    def verdicts(
        self, store_root: Path, report_id: str, limit: int | None = None
    ) -> list[RecordedVerdict]:
        """The results of a report's replays, the newest first."""
        with self._database.reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(
                "SELECT verdict, detail, at, duration, commit_id FROM report_verdicts"
                " WHERE store = ? AND report_id = ? ORDER BY at DESC, id DESC LIMIT ?",
                (self._key(store_root), printable(report_id), -1 if limit is None else limit),
            )
            return [
                RecordedVerdict(verdict, detail, _time(at), duration, commit)
                for verdict, detail, at, duration, commit in rows
            ]

    def last_verdict(self, store_root: Path, report_id: str) -> RecordedVerdict | None:
        """The result of a report's newest replay."""
        return next(iter(self.verdicts(store_root, report_id, limit=1)), None)

    def last_verdicts(self, store_root: Path) -> dict[str, RecordedVerdict]:
        """`last_verdict` of all reports of a store by their ids, in one query."""
        with self._database.reading() as connection:
            if connection is None:
                return {}
            rows = connection.execute(
                "SELECT report_id, verdict, detail, at, duration, commit_id FROM report_verdicts"
                " WHERE store = ? ORDER BY at, id",
                (self._key(store_root),),
            )
            return {
                report_id: RecordedVerdict(verdict, detail, _time(at), duration, commit)
                for report_id, verdict, detail, at, duration, commit in rows
            }

    def forget(self, store_root: Path, report_id: str) -> None:
        """Drop the history of a deleted report, so that a new one of its id starts afresh."""
        key = (self._key(store_root), printable(report_id))
        with self._database.writing() as connection:
            connection.execute(
                "DELETE FROM report_occurrences WHERE store = ? AND report_id = ?", key
            )
            connection.execute("DELETE FROM report_verdicts WHERE store = ? AND report_id = ?", key)

    def _key(self, store_root: Path) -> str:
        home = os.path.realpath(self._home)
        return printable(os.path.relpath(os.path.realpath(store_root), home))


def _utc(time: datetime) -> datetime:
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)


def _text(time: datetime) -> str:
    return _utc(time).isoformat(timespec="microseconds")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
