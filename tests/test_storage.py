"""Report files: real folders, real processes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storing import NOON, OLD_REPORT, VALID, in_processes, names_in, put, report

from repotrace.errors import (
    InvalidReportId,
    ReportNotFound,
    RepoTraceError,
)
from repotrace.storage import (
    BugReport,
    ReportStore,
    Store,
    validate_id,
)


@pytest.fixture
def store(tmp_path: Path) -> ReportStore:
    return ReportStore(tmp_path / "reports")


# --- Saving and loading -------------------------------------------------------------------


def test_save_then_load(store: ReportStore) -> None:
    original = report(tags=["x", "ü"], metadata={"exit_code": 7, "events": [{"index": 0}]})
    path = store.save(original)
    assert path == store.root / "a1.json"
    loaded = store.load("a1")
    assert loaded.updated_at is not None
    assert loaded.updated_at > NOON
    assert loaded.model_copy(update={"updated_at": None}) == original


def test_the_file_is_readable_json_in_the_published_order(store: ReportStore) -> None:
    text = store.save(report(tags=["grün"])).read_text(encoding="utf-8")
    assert text.startswith('{\n  "id": "a1",\n  "title": "Command failed: x",\n')
    assert text.endswith("}\n")
    assert "grün" in text
    assert list(json.loads(text)) == list(BugReport.model_fields)
    assert json.loads(text)["created_at"] == "2026-03-01T12:00:00Z"


def test_save_replaces_its_id_and_refreshes_updated_at(store: ReportStore) -> None:
    store.save(report(status="open"))
    first = store.load("a1").updated_at
    store.save(report(status="closed"))
    second = store.load("a1")
    assert second.status == "closed"
    assert first is not None
    assert second.updated_at is not None
    assert second.updated_at > first
    assert names_in(store.root) == ["a1.json"]


def test_constructing_and_reading_make_no_folder(tmp_path: Path) -> None:
    store = ReportStore(tmp_path / "x" / "reports")
    assert (store.list_ids(), store.list(), list(store.scan())) == ([], [], [])
    assert not store.exists("a1")
    assert not store.delete("a1")
    with pytest.raises(ReportNotFound):
        store.load("a1")
    assert names_in(tmp_path) == []


def test_the_default_root_is_the_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ReportStore().save(report())
    assert (tmp_path / ".repotrace" / "reports" / "a1.json").is_file()
    text = (tmp_path / ".repotrace" / ".gitignore").read_text()
    assert text == "*\n!/reports/\n!/reports/*.json\n"


def test_git_sees_reports_and_nothing_else(tmp_path: Path) -> None:
    root = tmp_path / ".repotrace" / "reports"
    store = Store(tmp_path / ".repotrace", reports=root)
    store.reports.save(report())
    store.history.record_occurrence(root, "a1", NOON)
    assert len(store.key) == 32
    (root / ".a1.json.0123.tmp").touch()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    shown = subprocess.run(
        ["git", "status", "--porcelain", "-uall"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout == "?? .repotrace/reports/a1.json\n"


def test_a_gitignore_of_the_users_own_stays(tmp_path: Path) -> None:
    (tmp_path / ".repotrace").mkdir()
    (tmp_path / ".repotrace" / ".gitignore").write_text("")
    ReportStore(tmp_path / ".repotrace" / "reports").save(report())
    assert (tmp_path / ".repotrace" / ".gitignore").read_text() == ""


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(tmp_path / ".repotrace")
        store.reports.save(report())
        store.history.record_occurrence(store.reports.root, "a1", NOON)
        assert len(store.key) == 32
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in [tmp_path / ".repotrace", *tmp_path.glob(".repotrace/**/*")]
    }
    assert modes == {
        ".repotrace": 0o700,
        ".gitignore": 0o600,
        "reports": 0o700,
        "a1.json": 0o600,
        "runs.db": 0o600,
        "key": 0o600,
    }


def test_a_report_of_0_1_0_loads_as_it_is(store: ReportStore) -> None:
    store.root.mkdir()
    (store.root / "5303b4f97c12.json").write_text(OLD_REPORT)
    loaded = store.load("5303b4f97c12")
    assert loaded.metadata == json.loads(OLD_REPORT)["metadata"]
    assert loaded.created_at == datetime(2025, 10, 18, 4, 5, 48, 298051, tzinfo=UTC)
    assert (store.root / "5303b4f97c12.json").read_text() == OLD_REPORT


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=8,
)


@given(
    title=st.text(st.characters()),
    tags=st.lists(st.text()),
    metadata=st.dictionaries(
        st.text().filter(lambda name: name != "schema_version"),
        json_values,
    ),
    created=st.datetimes(
        min_value=datetime(2, 1, 1),
        max_value=datetime(9998, 1, 1),
        timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7))]),
    ),
)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_report_is_kept_and_comes_back(
    store: ReportStore, title: str, tags: list[str], metadata: dict[str, Any], created: datetime
) -> None:
    original = BugReport(id="p", title=title, tags=tags, metadata=metadata, created_at=created)
    store.save(original)
    once = store.load("p")
    assert once.created_at == created
    assert once.tags == tags
    if not any("\ud800" <= letter <= "\udfff" for letter in title):
        assert once.title == title
    store.save(once)
    twice = store.load("p")
    assert twice.model_copy(update={"updated_at": once.updated_at}) == once


def test_a_lone_surrogate_is_written_readably(store: ReportStore) -> None:
    store.save(report(description="\udcff and \ud800", metadata={"k\udc80": ["\udcff"]}))
    loaded = store.load("a1")
    assert loaded.description == "\\udcff and \\ud800"
    assert list(loaded.metadata.values()) == [["\\xff"]]
    store.save(report(metadata={"outer": {"\ud800": [{"\udcff": None}]}}))
    assert store.load("a1").metadata["outer"] == {"\\ud800": [{"\\xff": None}]}


# --- Ids ----------------------------------------------------------------------------------


@pytest.mark.parametrize("report_id", ["a", "5303b4f97c12", "0.x_y-z", "a" * 64])
def test_good_ids(store: ReportStore, report_id: str) -> None:
    assert validate_id(report_id) == report_id
    store.save(report(report_id))
    assert store.list_ids() == [report_id]


@pytest.mark.parametrize(
    "report_id",
    [
        *("", ".", "..", "../x", "a/b", "/etc/x", "-x", "--help", ".hidden", "a\\b", "a\nb"),
        *("A", "ä", "a b", "a" * 65, "latest", "a\0", "x\n", "\ud800", "\udcff", "a:b"),
    ],
)
def test_bad_ids(store: ReportStore, report_id: str) -> None:
    for act in (validate_id, lambda i: store.save(report(i)), lambda i: store.add(report(i))):
        with pytest.raises(InvalidReportId) as caught:
            act(report_id)
        assert caught.value.hint
    assert not store.root.exists() or names_in(store.root) == []
    assert not store.exists(report_id)
    assert not store.delete(report_id)
    with pytest.raises((InvalidReportId, ReportNotFound)):
        store.load(report_id)
    with pytest.raises(ReportNotFound):
        store.resolve(report_id)


def test_an_upper_case_id_is_refused_with_its_lower_case() -> None:
    with pytest.raises(InvalidReportId) as caught:
        validate_id("Boom-7")
    assert caught.value.hint is not None
    assert "boom-7" in caught.value.hint


def test_ids_that_0_1_0_allowed_are_read_and_changed_but_not_made(store: ReportStore) -> None:
    store.root.mkdir()
    for report_id in ("My Report", "latest", "x" * 100):
        text = OLD_REPORT.replace("5303b4f97c12", report_id)
        (store.root / f"{report_id}.json").write_text(text)
    assert store.list_ids() == ["My Report", "latest", "x" * 100]
    assert store.load("My Report").id == "My Report"
    assert store.update("My Report", status="closed").status == "closed"
    store.save(store.load("My Report"))
    assert store.delete("My Report")
    with pytest.raises(InvalidReportId):
        store.save(report("My Report"))


# --- Finding ------------------------------------------------------------------------------


def test_near_misses_are_suggested(store: ReportStore) -> None:
    store.save(report("5303b4f97c12"))
    with pytest.raises(ReportNotFound) as caught:
        store.load("5303b4f97c21")
    assert caught.value.hint is not None
    assert "Did you mean 5303b4f97c12?" in caught.value.hint
    assert isinstance(caught.value, FileNotFoundError)


def test_resolve(store: ReportStore) -> None:
    with pytest.raises(ReportNotFound, match="No reports stored"):
        store.resolve("latest")
    for report_id in ("abc", "abd", "abd-2", "x9"):
        store.save(report(report_id))
    assert store.resolve("abd") == "abd"
    assert store.resolve("x") == "x9"
    with pytest.raises(RepoTraceError, match="'ab' is ambiguous") as caught:
        store.resolve("ab")
    assert caught.value.hint is not None
    assert "abc, abd, abd-2" in caught.value.hint
    for text in ("", "zz", "ABC"):
        with pytest.raises(ReportNotFound):
            store.resolve(text)


def test_latest_is_the_newest_or_the_last_seen_again(store: ReportStore) -> None:
    for number, report_id in enumerate(["c", "a", "b"]):
        created = NOON + timedelta(minutes=number)
        store.save(report(report_id).model_copy(update={"created_at": created}))
    put(store, "broken.json", "{")
    assert store.resolve("latest") == "b"
    store.update("c", status="closed")
    assert store.resolve("latest") == "b"
    assert store.resolve("latest", {"c": NOON + timedelta(hours=1)}) == "c"
    assert store.resolve("latest", lambda: {"c": NOON - timedelta(hours=1)}) == "b"


# --- Changing -----------------------------------------------------------------------------


def test_update_keeps_what_it_does_not_name(store: ReportStore) -> None:
    put(store, "bad.json", VALID.replace('"status":', '"from_the_future": [1], "status":'))
    changed = store.update("bad", status="closed", tags=["seen"])
    assert (changed.status, changed.tags) == ("closed", ["seen"])
    document = json.loads((store.root / "bad.json").read_text())
    before = json.loads(VALID)
    assert document.pop("from_the_future") == [1]
    assert document.pop("updated_at") > before.pop("updated_at")
    assert document == before | {"status": "closed", "tags": ["seen"]}


def test_update_refuses_what_is_no_field(store: ReportStore) -> None:
    store.save(report())
    with pytest.raises(TypeError, match="colour"):
        store.update("a1", colour="red")
    with pytest.raises(TypeError, match="id"):
        store.update("a1", id="b")
    with pytest.raises(ReportNotFound):
        store.update("b", status="closed")
    assert names_in(store.root) == ["a1.json"]


def test_delete(store: ReportStore) -> None:
    store.save(report())
    assert store.delete("a1") is True
    assert store.delete("a1") is False
    assert store.list_ids() == []


# --- Adding -------------------------------------------------------------------------------


def same_title(wanted: BugReport) -> Callable[[BugReport], bool]:
    return lambda existing: existing.title == wanted.title


def titled(title: str, report_id: str = "a1") -> BugReport:
    return report(report_id).model_copy(update={"title": title})


def test_add_finds_the_same_and_never_replaces_another(store: ReportStore) -> None:
    one, two, three = (titled(name) for name in ("one", "two", "three"))
    assert [store.add(item, same_title(item))[0].id for item in (one, two, three)] == [
        *("a1", "a1-2", "a1-3")
    ]
    for item, report_id in ((one, "a1"), (two, "a1-2"), (three, "a1-3")):
        before = store.path(report_id).read_bytes()
        found, new = store.add(item, same_title(item))
        assert (found.id, new) == (report_id, False)
        assert store.path(report_id).read_bytes() == before
    assert store.add(one)[1] is True
    assert [item.title for item in store.list()] == ["one", "two", "three", "one"]


def test_add_passes_over_what_it_cannot_read(store: ReportStore) -> None:
    put(store, "a1.json", "{")
    (store.root / "a1-2.json").symlink_to("/nowhere")
    stored, new = store.add(report(), lambda existing: True)
    assert (stored.id, new) == ("a1-3", True)
    assert (store.root / "a1.json").read_text() == "{"


def test_add_keeps_long_ids_valid(store: ReportStore) -> None:
    store.add(report("a" * 64))
    stored, _ = store.add(report("a" * 64))
    assert stored.id == "a" * 62 + "-2"
    assert store.load(stored.id).id == stored.id


def test_fifty_processes_adding_at_once_lose_nothing(tmp_path: Path) -> None:
    root = tmp_path / "new" / ".repotrace" / "reports"

    def capture(number: int) -> tuple[str, bool]:
        mine = titled(f"failure {number % 10}")
        stored, new = ReportStore(root).add(mine, same_title(mine))
        return stored.id, new

    results = in_processes(50, capture)
    store = ReportStore(root)
    assert sorted(item.title for item in store.list()) == [f"failure {n}" for n in range(10)]
    assert sorted(store.list_ids()) == sorted(["a1", *(f"a1-{n}" for n in range(2, 11))])
    assert sum(new for _, new in results) == 10
    for number, (report_id, _) in enumerate(results):
        assert store.load(report_id).title == f"failure {number % 10}"
    assert all(name.endswith(".json") and name[0] != "." for name in names_in(root))


def test_fifty_processes_updating_at_once_lose_nothing(store: ReportStore) -> None:
    for number in range(5):
        store.save(report(f"r{number}"))
    fields = ["status", "severity", "reporter", "assignee", "description"]

    def change(number: int) -> None:
        store.update(f"r{number // 10}", **{fields[number % 5]: f"by {number}"})

    assert in_processes(50, change) == [None] * 50
    for number in range(5):
        stored = store.load(f"r{number}")
        for place, field in enumerate(fields):
            writers = (number * 10 + place, number * 10 + place + 5)
            assert getattr(stored, field) in [f"by {writer}" for writer in writers]


def test_a_writer_that_is_killed_leaves_the_old_report(store: ReportStore) -> None:
    store.save(report(metadata={"text": "x" * 10}))
    script = (
        "import sys; from repotrace.storage import *; store = ReportStore(sys.argv[1])\n"
        "print('up', flush=True)\n"
        "big = store.load('a1').model_copy(update={'metadata': {'text': 'y' * 3_000_000}})\n"
        "while True: store.save(big)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(store.root)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        for _ in range(20):
            assert len(store.load("a1").metadata["text"]) in (10, 3_000_000)
        process.kill()
        process.wait()
    assert len(store.load("a1").metadata["text"]) in (10, 3_000_000)
    assert store.list_ids() == ["a1"]
