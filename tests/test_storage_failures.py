"""Report files that are damaged, and folders that cannot be written."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import stat
import subprocess
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from storing import NOON, OLD_REPORT, VALID, in_processes, mounted, names_in, put, report

from repotrace.errors import (
    NewerSchema,
    RepoTraceError,
    UnreadableReport,
)
from repotrace.records.bug import SCHEMA_VERSION
from repotrace.storage import (
    BugReport,
    ReportStore,
    Store,
    key,
)


@pytest.fixture
def store(tmp_path: Path) -> ReportStore:
    return ReportStore(tmp_path / "reports")


# --- Unreadable files ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "expected an object"),
        ("null", "expected an object"),
        (b"\xff\xfe{}", "not valid JSON"),
        ("[" * 200_000, "not valid JSON: nested too deeply"),
        ('{"id": ' + "9" * 10_000 + "}", "not valid JSON"),
        ('{"id": "bad"}', "title"),
        (VALID.replace('"exit_code": 7,', '"exit_code": NaN,'), "NaN is not a number"),
        (VALID.replace('"exit_code": 7,', '"exit_code": 1e999,'), "out of range"),
        (VALID.replace('"tags": [', '"tags": [3,'), "tags"),
        (VALID.replace("2025-10-18T04:05:48.298051Z", "0001-01-01T00:00:00+10:00"), "range"),
        (VALID.replace('"cwd":', '"schema_version": "two", "cwd":'), "schema_version"),
        (VALID.replace('"cwd":', '"schema_version": true, "cwd":'), "schema_version"),
        (VALID.replace('"id": "bad"', '"id": "other"'), "another id, 'other'"),
    ],
)
def test_an_unreadable_report_names_the_file_and_the_reason(
    store: ReportStore, content: bytes | str, words: str
) -> None:
    put(store, "bad.json", content)
    with pytest.raises(UnreadableReport) as caught:
        store.load("bad")
    assert words in caught.value.message
    assert str(store.root / "bad.json") in caught.value.message
    assert caught.value.hint
    assert store.exists("bad")
    assert store.list_ids() == ["bad"]


def test_a_newer_report_is_refused_by_name(store: ReportStore) -> None:
    newer = f'"schema_version": {SCHEMA_VERSION + 1}, "cwd":'
    put(store, "bad.json", VALID.replace('"cwd":', newer))
    with pytest.raises(NewerSchema, match=r"bad\.json was written by a newer RepoTrace"):
        store.load("bad")
    put(store, "bad.json", VALID.replace('"cwd":', f'"schema_version": {SCHEMA_VERSION}, "cwd":'))
    assert store.load("bad").metadata["schema_version"] == SCHEMA_VERSION


def test_what_is_no_regular_file_is_not_followed(store: ReportStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text(OLD_REPORT.replace("5303b4f97c12", "link"))
    store.root.mkdir()
    (store.root / "link.json").symlink_to(outside)
    (store.root / "dangling.json").symlink_to(tmp_path / "nothing")
    (store.root / "folder.json").mkdir()
    os.mkfifo(store.root / "pipe.json")
    for name in ("link", "dangling", "folder", "pipe"):
        with pytest.raises(UnreadableReport, match=r"symbolic link|regular file"):
            store.load(name)
    store.save(report("link"))  # replaces the link, not what it points to
    assert json.loads(outside.read_text())["title"].startswith("Command failed: python")
    assert store.load("link").title == "Command failed: x"


def test_scan_never_raises_and_names_every_file(store: ReportStore) -> None:
    store.save(report("good"))
    put(store, "broken.json", "{")
    put(store, ".hidden.json", "{")
    put(store, "notes.txt", "x")
    put(store, "-dash.json", "{}")
    put(store, "new\nline.json", "{}")
    put(store, os.fsdecode(b"\xff.json"), "{}")
    rows = dict(store.scan())
    assert sorted(rows) == ["-dash", "\\xff", "broken", "good", "new\\nline"]
    assert isinstance(rows["good"], BugReport)
    assert all(isinstance(rows[name], UnreadableReport) for name in rows if name != "good")
    assert store.list_ids() == ["broken", "good"]
    with pytest.raises(UnreadableReport):
        store.list()


@pytest.mark.parametrize(
    "count", [200, pytest.param(5000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_a_damaged_file_is_a_report_or_an_error_of_ours(store: ReportStore, count: int) -> None:
    rng = random.Random(20260301)
    document = json.loads(VALID)
    document["metadata"]["schema_version"] = SCHEMA_VERSION
    valid = json.dumps(document, indent=2).encode()
    kinds: dict[str, int] = {}
    for _ in range(count):
        put(store, "bad.json", rng.choice([_flip, _cut, _splice, _swap_types])(rng, valid))
        ((_, row),) = store.scan()
        kinds[type(row).__name__] = kinds.get(type(row).__name__, 0) + 1
        if isinstance(row, BugReport):
            store.save(row)  # whatever loads can also be kept
            assert isinstance(store.load("bad"), BugReport)
    assert set(kinds) <= {"BugReport", "UnreadableReport", "NewerSchema"}
    assert len(kinds) >= 2


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _splice(rng: random.Random, data: bytes) -> bytes:
    start, end, at = (rng.randrange(len(data)) for _ in range(3))
    return data[:at] + data[min(start, end) : max(start, end)] + data[at:]


def _swap_types(rng: random.Random, data: bytes) -> bytes:
    document = json.loads(data)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for name, item in list(items):
            places.append((node, name))
            if isinstance(item, dict | list):
                walk(item)

    walk(document)
    node, name = rng.choice(places)
    node[name] = rng.choice(
        [None, True, -1, 10**400, 1.5, "", "\ud800", "x", [], {}, [[]], {"base64": "!"}, 1e300, 99]
    )
    return json.dumps(document).encode()


# --- Folders that cannot be written -------------------------------------------------------


def assert_refused(store: ReportStore, words: str) -> None:
    for act in (store.save, store.add):
        with pytest.raises(RepoTraceError, match=words) as caught:
            act(report("z", metadata={"text": "x" * 200_000}))
        assert str(store.root) in caught.value.message
        assert caught.value.hint


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_refused(ReportStore(tmp_path / "file"), "Not a directory")
    assert_refused(ReportStore(tmp_path / "file" / "reports"), "Not a directory")


def test_a_folder_where_a_report_should_be(store: ReportStore) -> None:
    (store.root / "z.json").mkdir(parents=True)
    with pytest.raises(RepoTraceError, match="Is a directory"):
        store.save(report("z"))
    assert names_in(store.root) == ["z.json"]


def test_without_permission() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "reports"
        ReportStore(root).save(report("old"))
        ReportStore(root).save(report("hidden"))
        Path(folder).chmod(0o755)
        root.chmod(0o555)
        (root / "old.json").chmod(0o444)
        (root / "hidden.json").chmod(0)

        def act(_: int) -> None:
            if os.geteuid() == 0:
                os.setuid(65534)  # root may do everything
            store = ReportStore(root)
            assert_refused(store, "Permission denied")
            assert store.load("old").id == "old"
            with pytest.raises(UnreadableReport, match="Permission denied"):
                store.load("hidden")
            with pytest.raises(RepoTraceError, match="Permission denied"):
                store.delete("old")
            assert len(key(Path(folder) / "home" / "below")) == 32

        assert in_processes(1, act) == [None]
        root.chmod(0o700)


def test_a_full_disk_leaves_what_was_there_and_no_rubbish(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=128k") as disk:
        store = ReportStore(disk / "reports")
        store.save(report("old"))
        assert_refused(store, "No space left")
        with pytest.raises(RepoTraceError, match="No space left"):
            store.update("old", description="x" * 200_000)
        assert store.load("old").description is None
        assert names_in(store.root) == ["old.json"]
        home = Store(disk / "home")
        (disk / "fill").write_bytes(b"x" * 65536)
        with contextlib.suppress(OSError), (disk / "fill2").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(RepoTraceError, match=r"runs\.db"):
            home.history.record_occurrence(store.root, "old", NOON)
        assert len(home.key) == 32
        assert home.key == home.key


def test_a_database_that_did_not_fit_is_made_when_there_is_room(tmp_path: Path) -> None:
    """Not half of it: a file that only seems to be one would be damaged for ever."""
    for kilobytes in (80, 300, 500, 550, 600, 700, 900):
        with mounted(tmp_path / f"disk {kilobytes}", f"size={kilobytes}k") as disk:
            home = Store(disk / "home")
            with contextlib.suppress(RepoTraceError):
                home.history.record_occurrence(disk, "old", NOON)
            subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
            home.history.record_occurrence(disk, "new", NOON)
            with sqlite3.connect(disk / "home" / "runs.db") as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            connection.close()


def test_a_read_only_file_system_is_read_but_not_written(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=4m") as disk:
        home = Store(disk / "home")
        home.reports.save(report("old"))
        home.history.record_occurrence(home.reports.root, "old", NOON + timedelta(1))
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert_refused(home.reports, "Read-only")
        assert home.reports.load("old").id == "old"
        old = home.reports.load("old")
        assert home.history.occurrences(home.reports.root, old).count == 2
        with pytest.raises(RepoTraceError):
            home.history.record_occurrence(home.reports.root, "old", NOON)
        assert len(home.key) == 32


def test_rescue_keeps_a_report_elsewhere(
    store: ReportStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    first, second = store.rescue(report()), store.rescue(report())
    assert first != second
    assert first.parent == tmp_path / "t"
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    store.root.mkdir()
    first.rename(store.root / "a1.json")
    assert store.load("a1").title == "Command failed: x"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(RepoTraceError, match="could not be kept anywhere"):
        store.rescue(report())
