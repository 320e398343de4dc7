"""`repotrace runs report-tests`, as a user calls it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from plugged import run_pytest, write_files
from recording import NOON, RUN, event, step
from running import Shell
from states import exact

from repotrace.records.run import TestOutcome
from repotrace.storage import Store

REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="tests.test_cart" name="test_adds" time="0.25"/>
<testcase classname="tests.test_cart" name="test_opens" time="0.5">
<failure message="OSError: no server at postgres://u:hunter2hunter2@db/x">E   OSError</failure>
</testcase></testsuite></testsuites>
"""


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.git("init", "-q")
    (shell.cwd / "report.xml").write_text(REPORT)
    return shell


def store_of(shell: Shell) -> Store:
    return Store(shell.cwd / ".git" / "repotrace")


def record(shell: Shell, *names: str) -> Store:
    store = store_of(shell)
    events = [event("run_started", 0.0, workspace=str(shell.cwd), task="t")]
    for place, name in enumerate(names):
        events += step(name, float(place), place + 0.5, step_type="test")
    store.runs.add_events(events)
    return store


def outcomes(shell: Shell) -> list[TestOutcome]:
    return store_of(shell).runs.tests(RUN)


def test_outcomes_go_to_the_last_step_of_the_latest_run(repotrace: Shell) -> None:
    record(repotrace, "s1", "s2")
    done = repotrace("runs", "report-tests", "--junit", "report.xml")
    assert done.stdout == b""
    assert done.stderr.decode() == f"added 2 outcomes to step 2 of {RUN}: 1 passed, 1 failed\n"
    passed, failed = sorted(outcomes(repotrace), key=lambda outcome: outcome.node_id)
    assert passed.node_id == "tests/test_cart.py::test_adds"
    assert (passed.outcome, passed.duration, passed.origin) == ("passed", 0.25, "junit")
    assert (failed.outcome, failed.step_id, failed.runner) == ("failed", "s2", "pytest")
    assert failed.message is not None
    assert failed.message.startswith("OSError: no server at postgres://")
    assert "hunter2" not in failed.message
    assert store_of(repotrace).runs.get(RUN).outcome == "failed"


def test_a_step_may_be_named_and_a_file_counts_once(repotrace: Shell) -> None:
    record(repotrace, "s1", "s2")
    for _ in range(2):
        arguments = ("--step", "1", "--junit", "report.xml", "--json")
        done = repotrace("runs", "report-tests", RUN, *arguments)
        assert json.loads(done.stdout) == {
            "schema_version": 1,
            "run_id": RUN,
            "step_number": 1,
            "outcomes": {"passed": 1, "failed": 1},
        }
    assert [outcome.step_id for outcome in outcomes(repotrace)] == ["s1", "s1"]


def test_several_reports_and_a_run_without_steps(repotrace: Shell) -> None:
    record(repotrace)
    (repotrace.cwd / "more.xml").write_text(REPORT.replace("test_cart", "test_shop"))
    done = repotrace("runs", "report-tests", "--junit", "report.xml", "--junit", "more.xml")
    assert done.stderr.decode() == f"added 4 outcomes to {RUN}: 2 passed, 2 failed\n"
    (repotrace.cwd / "none.xml").write_text("<testsuites/>")
    done = repotrace("runs", "report-tests", "--junit", "none.xml")
    assert done.stderr.decode() == f"added 0 outcomes to {RUN}\n"


def test_tests_are_tied_to_the_files_after_the_step(repotrace: Shell) -> None:
    store = record(repotrace, "s1")
    state = exact(store.snapshots.take(repotrace.cwd, ref=f"runs/{RUN}"))
    store.runs.add_events([event("state", 0.5, step_id="s1", state_id=state)])
    store.close()
    os.utime(repotrace.cwd / "report.xml", (NOON.timestamp(), NOON.timestamp()))
    repotrace("runs", "report-tests", "--junit", "report.xml")
    found = outcomes(repotrace)
    assert {outcome.state_id for outcome in found} == {state}
    assert {outcome.timestamp for outcome in found} == {NOON}


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "Cannot read bad.xml: No such file or directory."),
        ("", "no readable XML"),
        ("<html/>", "begins with <html>"),
        ("<!DOCTYPE x [<!ENTITY a 'a'>]><testsuite/>", "document type"),
    ],
)
def test_what_is_no_report(repotrace: Shell, content: str | None, what: str) -> None:
    record(repotrace, "s1")
    if content is not None:
        (repotrace.cwd / "bad.xml").write_text(content)
    done = repotrace("runs", "report-tests", "--junit", "report.xml", "--junit", "bad.xml")
    assert done.returncode == 2
    assert what in done.stderr.decode()
    assert outcomes(repotrace) == [], "all of the files or none"


def test_wrong_calls(repotrace: Shell) -> None:
    done = repotrace("runs", "report-tests", "--junit", "report.xml")
    assert done.returncode == 2
    assert "No runs are recorded here." in done.stderr.decode()
    record(repotrace, "s1")
    assert b"--junit" in repotrace("runs", "report-tests").stderr
    done = repotrace("runs", "report-tests", "--step", "9", "--junit", "report.xml")
    assert done.returncode == 2
    assert b"9" in done.stderr


def test_pytests_own_report_from_its_own_folder(repotrace: Shell) -> None:
    record(repotrace, "s1")
    files = {"TestCart.py": "class TestAll:\n    def test_a(self): pass\n"}
    write_files(repotrace.cwd, files)
    run_pytest(repotrace.cwd, "TestCart.py", "--junit-xml=own.xml", python=sys.executable)
    repotrace("runs", "report-tests", "--junit", "own.xml")
    assert [outcome.node_id for outcome in outcomes(repotrace)] == ["TestCart.py::TestAll::test_a"]
