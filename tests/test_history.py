"""The home's key and database: real SQLite, real processes."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
import subprocess
import sys
from datetime import timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from storing import NOON, in_processes, names_in, report

from repotrace.errors import (
    NewerSchema,
    RepoTraceError,
)
from repotrace.storage import (
    RecordedVerdict,
    Store,
    key,
)
from repotrace.storage.database import MIGRATIONS, Database

# --- The key ------------------------------------------------------------------------------


def test_fifty_processes_agree_on_a_key(tmp_path: Path) -> None:
    keys = set(in_processes(50, lambda number: key(tmp_path / "home")))
    assert len(keys) == 1
    assert keys == {(tmp_path / "home" / "key").read_bytes()}
    assert len(keys.pop()) == 32


def test_a_damaged_key_is_replaced_and_an_unwritable_home_has_none(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"short")
    first = key(tmp_path)
    assert (len(first), key(tmp_path)) == (32, first)
    (tmp_path / "file").write_text("")
    assert len(key(tmp_path / "file")) == 32
    assert key(tmp_path / "file") != key(tmp_path / "file")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "key").symlink_to("/etc/hostname")
    assert len(key(tmp_path / "linked")) == 32


# --- History ------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Store:
    return Store(tmp_path / "home", reports=tmp_path / "project" / "reports")


def test_a_store_opens_and_makes_nothing_until_asked(home: Store, tmp_path: Path) -> None:
    root = home.reports.root
    assert home.history.verdicts(root, "a1") == []
    assert home.history.last_verdict(root, "a1") is None
    assert home.history.last_verdicts(root) == {}
    assert home.history.last_seen(root) == {}
    assert home.history.occurrences(root, report()).count == 1
    assert names_in(tmp_path) == []


def test_the_creation_counts_as_the_first_occurrence(home: Store, tmp_path: Path) -> None:
    root = home.reports.root
    assert (
        home.history.occurrences(root, report())
        == (home.history.all_occurrences(root, [report()])["a1"])
    )
    for hours in (3, 1, 2):
        home.history.record_occurrence(root, "a1", NOON + timedelta(hours=hours), "digest")
    home.history.record_occurrence(root, "b", NOON + timedelta(hours=9))
    home.history.record_occurrence(tmp_path / "another", "a1", NOON)
    found = home.history.occurrences(root, report())
    assert (found.count, found.first, found.last) == (4, NOON, NOON + timedelta(hours=3))
    many = home.history.all_occurrences(root, [report("b"), report("new")])
    assert {name: item.count for name, item in many.items()} == {"b": 2, "new": 1}
    assert home.history.last_seen(root) == {
        "a1": NOON + timedelta(hours=3),
        "b": NOON + timedelta(hours=9),
    }


def test_latest_counts_repeated_captures(home: Store) -> None:
    home.reports.save(report("a"))
    home.reports.save(
        report("b").model_copy(update={"created_at": NOON + timedelta(minutes=1)}),
    )
    assert home.resolve("latest") == "b"
    home.history.record_occurrence(home.reports.root, "a", NOON + timedelta(minutes=2))
    assert home.resolve("latest") == "a"
    (home.home / "runs.db").write_bytes(b"not a database at all" * 100)
    assert home.resolve("latest") == "b"
    assert home.resolve("a") == "a"


def test_verdicts_come_back_newest_first(home: Store) -> None:
    root = home.reports.root
    zone = timezone(timedelta(hours=5))
    history = home.history
    history.record_verdict(root, "a1", "same", "no differences", NOON, 0.25, "c0ffee")
    history.record_verdict(root, "a1", "fixed", "was \udcff 7", NOON.astimezone(zone))
    history.record_verdict(root, "a1", "flaky", "", NOON - timedelta(days=1))
    history.record_verdict(root, "b", "same", "", NOON)
    assert [item.verdict for item in history.verdicts(root, "a1")] == ["fixed", "same", "flaky"]
    assert history.verdicts(root, "a1", limit=2)[1] == RecordedVerdict(
        "same", "no differences", NOON, 0.25, "c0ffee"
    )
    last = history.last_verdict(root, "a1")
    assert last == RecordedVerdict("fixed", "was \\xff 7", NOON)
    assert {name: item.verdict for name, item in history.last_verdicts(root).items()} == {
        "a1": "fixed",
        "b": "same",
    }


def test_a_sweep_is_recorded_at_once(home: Store) -> None:
    root = home.reports.root
    rows = [(f"r{n}", RecordedVerdict("same", "", NOON, 0.1)) for n in range(300)]
    home.history.record_verdicts(root, rows)
    assert len(home.history.last_verdicts(root)) == 300


def test_forgetting(home: Store) -> None:
    root = home.reports.root
    for report_id in ("a1", "b"):
        home.history.record_occurrence(root, report_id, NOON)
        home.history.record_verdict(root, report_id, "same", "", NOON)
    home.history.forget(root, "a1")
    assert home.history.occurrences(root, report()).count == 1
    assert home.history.verdicts(root, "a1") == []
    assert home.history.occurrences(root, report("b")).count == 2


def test_history_moves_with_the_project(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    Store(before / ".repotrace").history.record_verdict(
        before / ".repotrace" / "reports", "a1", "same", "", NOON
    )
    before.rename(after)
    found = Store(after / ".repotrace").history.last_verdict(after / ".repotrace" / "reports", "a1")
    assert found is not None


def test_fifty_processes_recording_at_once_lose_nothing(home: Store) -> None:
    root = home.reports.root

    def record(number: int) -> None:
        home.history.record_occurrence(root, "a1", NOON + timedelta(seconds=number))
        home.history.record_verdict(root, "a1", "same", str(number), NOON)

    assert in_processes(50, record) == [None] * 50
    assert home.history.occurrences(root, report()).count == 51
    details = {item.detail for item in home.history.verdicts(root, "a1")}
    assert details == {str(number) for number in range(50)}
    assert names_in(home.home) == ["runs.db"]


@pytest.mark.parametrize("damage", [b"not a database" * 100, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_database_is_an_error_with_a_hint(home: Store, damage: bytes) -> None:
    home.home.mkdir()
    (home.home / "runs.db").write_bytes(damage)
    history, root = home.history, home.reports.root
    for act in (
        lambda: history.record_occurrence(root, "a1", NOON),
        lambda: history.occurrences(root, report()),
        lambda: history.verdicts(root, "a1"),
    ):
        with pytest.raises(RepoTraceError, match=r"runs\.db") as caught:
            act()
        assert caught.value.hint
    assert (home.home / "runs.db").read_bytes() == damage


# --- Migrations ---------------------------------------------------------------------------

SECOND = """
CREATE TABLE notes (text TEXT NOT NULL);
INSERT INTO notes VALUES ('one; two');  -- a semicolon; in a comment
CREATE TRIGGER no_empty_notes BEFORE INSERT ON notes BEGIN
    SELECT RAISE(ABORT, 'empty') WHERE new.text = '';
END;
"""


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def test_a_new_database_is_in_wal_mode_and_knows_its_schema(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Database(path).writing():
        pass
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]
    assert rows(path, "SELECT version FROM schema_version") == [
        (number + 1,) for number in range(len(MIGRATIONS))
    ]
    assert names_in(tmp_path) == ["runs.db"]


def test_an_old_database_is_migrated_after_a_backup(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Database(path, MIGRATIONS[:1]).writing() as connection:
        connection.execute("INSERT INTO report_occurrences VALUES ('s', 'a1', 't', NULL)")
    database = Database(path, [MIGRATIONS[0], SECOND])

    def read(number: int) -> list[tuple[str]]:
        with database.reading() as connection:
            assert connection is not None
            return connection.execute("SELECT text FROM notes").fetchall()

    assert in_processes(10, read) == [[("one; two",)]] * 10
    assert rows(path, "SELECT version FROM schema_version") == [(1,), (2,)]
    assert rows(path, "SELECT report_id FROM report_occurrences") == [("a1",)]
    backup = tmp_path / "runs.db.schema-1.bak"
    assert rows(backup, "SELECT max(version) FROM schema_version") == [(1,)]
    assert rows(backup, "SELECT report_id FROM report_occurrences") == [("a1",)]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Database(path, MIGRATIONS[:1]).writing():
        pass
    broken = Database(path, [MIGRATIONS[0], SECOND + "CREATE TABLE notes (again TEXT);"])
    with pytest.raises(RepoTraceError, match="already exists"), broken.writing():
        pass
    assert rows(path, "SELECT version FROM schema_version") == [(1,)]
    assert rows(path, "SELECT name FROM sqlite_master WHERE name LIKE '%note%'") == []
    with Database(path, MIGRATIONS[:1]).writing():
        pass


def test_a_newer_database_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with Database(path, [MIGRATIONS[0], SECOND]).writing():
        pass
    old = Database(path, MIGRATIONS[:1])
    before = path.read_bytes()
    with pytest.raises(NewerSchema, match=r"runs\.db was written by a newer"), old.writing():
        pass
    with pytest.raises(NewerSchema), old.reading():
        pass
    assert path.read_bytes() == before


def test_an_exception_rolls_back(tmp_path: Path) -> None:
    database = Database(tmp_path / "runs.db")

    def stop_halfway() -> None:
        with database.writing() as connection:
            connection.execute("INSERT INTO report_occurrences VALUES ('s', 'a1', 't', NULL)")
            raise KeyError

    with pytest.raises(KeyError):
        stop_halfway()
    assert rows(database.path, "SELECT * FROM report_occurrences") == []


def test_sqlite_is_imported_only_when_a_database_is_used(tmp_path: Path) -> None:
    script = (
        "import sys; from repotrace.storage import *; s = Store(sys.argv[1]); s.reports.list(); "
        "s.history; print(sorted({'sqlite3', 'difflib', 'rich', 'typer'} & sys.modules.keys()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
