"""Every recorded run is looked over once when it has ended, whoever recorded it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from recording import event, traces
from running import Shell
from untested_agent import agent, with_agent

from repotrace.journal import Journal
from repotrace.read.alerts import alerts_in
from repotrace.records.events import Event
from repotrace.records.run import ExecutionTrace
from repotrace.runs.alerts import look_over, rules_from
from repotrace.storage import Store
from repotrace.storage.alerts import KeptAlert
from repotrace.storage.database import MIGRATIONS, Database

ALL = ("runs", "list", "--all-worktrees")
UNTESTED = "alert untested-edit · {} step 1: 1 file was changed and no test was run"


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return with_agent(tmp_path)


@pytest.fixture
def kept(repotrace: Shell) -> Iterator[Store]:
    store = Store(repotrace.cwd / ".git" / "repotrace")
    yield store
    store.close()


def said(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    return done.stderr.decode().splitlines()


def test_the_first_who_reads_is_told_of_a_run_that_traced_itself(
    repotrace: Shell, kept: Store
) -> None:
    agent(repotrace, "new.py")
    first = repotrace("runs", "list", "--json")
    run_id = json.loads(first.stdout)["runs"][0]["id"]
    hint = f"look at them with: repotrace runs alerts {run_id}"
    assert said(first) == [UNTESTED.format(run_id), hint]
    assert said(repotrace("runs", "list")) == []
    assert said(repotrace("runs", "show")) == []
    (alert,) = kept.alerts.of(run_id)
    assert (alert.rule, alert.step, alert.evidence) == ("untested-edit", 1, ("new.py",))


def test_the_first_who_reads_is_told_of_a_run_whose_recorder_was_killed(
    repotrace: Shell, kept: Store
) -> None:
    child = repotrace.start("record", "--", "sh", "-c", "echo x > new.py; sleep 60")
    try:
        run_id = first_look(kept)
        child.send_signal(signal.SIGKILL)
    finally:
        child.kill()
        child.wait()
    lines = said(repotrace("runs", "list"))
    assert lines[0] == UNTESTED.format(run_id)
    assert said(repotrace("runs", "list")) == []


def first_look(store: Store) -> str:
    """Wait until the recorder has seen the files change; the id of the run."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        store.runs.ingest()
        for run in store.runs.list():
            if store.joins.looks(run.id):
                return run.id
        time.sleep(0.05)
    raise AssertionError("no change was seen")


def test_a_run_that_goes_on_is_no_news_and_is_told_when_it_has_ended(
    repotrace: Shell, kept: Store
) -> None:
    journal = Journal(kept.home / "journal")
    journal.write("run_started", "r1", {"agent": "a"})
    edit(journal, "s1", "a.py")
    assert said(repotrace(*ALL)) == []
    journal.write("run_ended", "r1", {})
    assert said(repotrace(*ALL))[0] == UNTESTED.format("r1")
    # Taken up again, it is told of what is new alone.
    journal.write("run_started", "r1", {"agent": "a"})
    assert kept.runs.ingest().problem is None
    assert kept.runs.get("r1").status == "running"
    edit(journal, "s2", ".env")
    journal.write("run_ended", "r1", {})
    journal.close()
    lines = said(repotrace(*ALL))
    assert lines[:-1] == [
        "alert untested-edit · r1 step 2: 2 files were changed and no test was run",
        "alert touched · r1 step 2: a file of .env was changed",
    ]
    assert said(repotrace(*ALL)) == []


def edit(journal: Journal, step: str, path: str) -> None:
    """Tell of a step that changed a file."""
    journal.write("step_started", "r1", {"id": step, "step_type": "edit"})
    change = {"operation_type": "edit", "file_path": path, "before_id": "1" * 40}
    journal.write("file_operation", "r1", {"step_id": step, **change, "after_id": "2" * 40})
    journal.write("step_ended", "r1", {"id": step})


def test_what_was_imported_is_no_news_until_somebody_asks(repotrace: Shell, kept: Store) -> None:
    kept.runs.add_events(imported())
    assert said(repotrace(*ALL)) == []
    assert kept.alerts.of("r1") == []
    assert repotrace("runs", "alerts", "r1").returncode == 1
    assert [alert.rule for alert in kept.alerts.of("r1")] == ["outside"]
    assert said(repotrace(*ALL)) == []


def imported() -> list[Event]:
    """A run that no journal told of."""
    step: dict[str, Any] = {"step_id": "s1", "operation_type": "edit", "file_path": "/etc/hosts"}
    return [
        event("run_started", 0, run="r1", workspace="/w"),
        event("step_started", 1, run="r1", id="s1", step_type="edit"),
        event("file_operation", 2, run="r1", **step),
        event("step_ended", 3, run="r1", id="s1"),
        event("test", 3, run="r1", step_id="s1", node_id="t", outcome="passed"),
        event("run_ended", 4, run="r1"),
    ]


def test_many_are_told_in_short(repotrace: Shell, kept: Store) -> None:
    journal = Journal(kept.home / "journal")
    for number in range(30):
        run_id = f"r{number:02}"
        journal.write("run_started", run_id, {}, now=10**18 + number)
        failed = {"id": "s1", "state_quality": "missing"}
        journal.write("step_started", run_id, {"id": "s1"})
        journal.write("state", run_id, {"step_id": "s1", **failed})
        journal.write("run_ended", run_id, {})
    journal.close()
    told: list[str] = []
    while line := repotrace(*ALL).stderr.decode():
        told.append(line)
    # As many at once as there is time for.
    match = re.match(r"(\d+) alerts in (\d+) runs: r\d\d \(2\), ", told[0])
    assert match is not None
    assert int(match[1]) == 2 * int(match[2]) > 6
    assert (
        sum(
            int(line.split()[0]) if line[0].isdigit() else line.count("alert missing-state")
            for line in told
        )
        == 60
    )
    assert kept.alerts.counts(f"r{n:02}" for n in range(30)) == {f"r{n:02}": 2 for n in range(30)}


def test_rules_that_make_no_sense_are_said_and_keep_the_run_due(
    repotrace: Shell, kept: Store
) -> None:
    file = repotrace.cwd / "repotrace.toml"
    file.write_text("[alerts]\nretries = 'many'\n")
    agent(repotrace, "new.py")
    for _ in range(2):
        done = repotrace("runs", "list")
        assert (done.returncode, said(done)[0]) == (
            0,
            "repotrace: Alert retries in the settings is 'many'.",
        )
    file.unlink()
    assert said(repotrace("runs", "list"))[0] == UNTESTED.format(kept.runs.get().id)


def test_the_rules_are_those_of_the_project_that_the_run_worked_in(
    repotrace: Shell, tmp_path: Path
) -> None:
    agent(repotrace, "new.py")
    (repotrace.cwd / "repotrace.toml").write_text("[alerts]\nuntested-edit = false\n")
    other = tmp_path / "other"
    other.mkdir()
    done = repotrace("--home", str(repotrace.cwd / ".git" / "repotrace"), "runs", "list", cwd=other)
    assert "alert" not in done.stderr.decode()


def test_a_home_from_before_has_nothing_due(repotrace: Shell, kept: Store) -> None:
    with Database(kept.home / "runs.db", MIGRATIONS[:6]).writing() as connection:
        row = ("r1", "completed", 0, 1, str(repotrace.cwd), "old.jsonl")
        connection.execute(
            "INSERT INTO runs (id, status, started_at, completed_at, workspace, writer)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            row,
        )
    done = repotrace("runs", "list")
    assert (done.returncode, said(done), b"r1" in done.stdout) == (0, [], True)
    assert kept.alerts.look("r1").at is None


# --- What is kept ---------------------------------------------------------------------------

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_what_is_recorded_during_a_look_makes_the_run_due_again(store: Store) -> None:
    journal = Journal(store.home / "journal")
    for kind in ("run_started", "run_ended"):
        journal.write(kind, "r1", {})
    store.runs.ingest()
    look = store.alerts.look("r1")
    assert store.alerts.due(9) == ["r1"]
    journal.write("log", "r1", {"message": "late"})
    store.runs.ingest()
    store.alerts.keep("r1", [], look=look, rules="d", at=NOW)
    assert store.alerts.due(9) == ["r1"]
    store.alerts.keep("r1", [], look=store.alerts.look("r1"), rules="d", at=NOW)
    assert store.alerts.due(9) == []
    assert store.alerts.counts(["r1", "r2"]) == {"r1": 0}
    journal.close()


def test_of_two_who_look_at_once_the_first_is_kept(store: Store) -> None:
    store.runs.add_events(imported())
    both = store.alerts.look("r1")
    first, other = KeptAlert("r1", "outside", 1, "one"), KeptAlert("r1", "outside", 1, "other")
    store.alerts.keep("r1", [first], look=both, rules="d", at=NOW)
    store.runs.add_events([event("log", 9, run="r1", message="late")])
    store.alerts.keep("r1", [other], look=both, rules="d", at=NOW)
    assert store.alerts.look("r1").changes == 1
    assert store.alerts.of("r1") == []
    store.alerts.keep("r1", [other], look=store.alerts.look("r1"), rules="d", at=NOW)
    assert store.alerts.of("r1") == [other]


def test_an_alert_is_told_once_and_posted_once_wherever_its_step_moves(store: Store) -> None:
    store.runs.add_events(imported())
    first = KeptAlert("r1", "outside", 1, "a file", ("/etc/hosts", "a\udcff"))
    more = KeptAlert("r1", "secret", None, "a line")

    times = (NOW + timedelta(seconds=n) for n in range(9))

    def keep(*alerts: KeptAlert) -> None:
        look = store.alerts.look("r1")
        store.alerts.keep("r1", alerts, look=look, rules="d", at=next(times))

    keep(first)
    assert store.alerts.untold() == ["r1"]
    assert store.alerts.tell("r1") == [first]
    assert store.alerts.take_unposted("r1") == [first]
    keep(more, first._replace(step=3))
    assert store.alerts.of("r1") == [more, first._replace(step=3)]
    assert (store.alerts.tell("r1"), store.alerts.take_unposted("r1")) == ([more], [more])
    store.alerts.give_back("r1", [more])
    assert store.alerts.take_unposted("r1") == [more]
    assert store.alerts.tell("r1") == []
    keep(first)
    keep(first, more)
    assert store.alerts.tell("r1") == [more]  # it was gone meanwhile
    store.runs.delete("r1")
    assert (store.alerts.of("r1"), store.alerts.look("r1").at) == ([], None)
    keep(first)
    assert store.alerts.untold() == []


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(traces())
def test_whatever_was_recorded_can_be_looked_over(trace: ExecutionTrace) -> None:
    limits = dict.fromkeys(("cost", "tokens", "duration", "retries", "repeated-failure"), 0)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "home")
        store.runs.save(trace)
        run = store.runs.get()
        found = look_over(store, run, rules_from(limits))
        assert alerts_in(store, run.id) == (() if run.status == "running" else found)
        assert look_over(store, run, rules_from(limits)) == found
        store.close()
