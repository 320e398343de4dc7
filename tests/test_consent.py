"""What came from elsewhere is not executed unasked, whoever asks the library for it."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent_runs import PYTEST, AgentRun
from recording import NOON, RUN
from reporting import command_run, report_of
from running import Shell, plain_git

from repotrace.blame import Plan
from repotrace.capture import store_report
from repotrace.errors import NotTrusted, RepoTraceError, RunNotFound
from repotrace.generator import Reproduction
from repotrace.read.runs import show_run
from repotrace.records.bug import BugReport
from repotrace.records.run import Run
from repotrace.redact import Redactor
from repotrace.replay import (
    ReplayOptions,
    Verdict,
    replay,
    replay_all,
    replay_from_store,
    replay_report,
)
from repotrace.runs import blame_run, check_run, rerun_from_step, restore_to_step
from repotrace.runs.blame import BlameOptions
from repotrace.runs.checkpoints import take_checkpoint
from repotrace.runs.cleaning import delete_run
from repotrace.runs.export.exporting import export_run
from repotrace.runs.export.selection import ExportOptions
from repotrace.runs.receiving import receive
from repotrace.runs.reporting import ReportOptions, find_failure, report_failure
from repotrace.runs.restore import refuse_busy, restore_in_place
from repotrace.runs.testing.options import Testing, workspace_of
from repotrace.storage import ReportStore, Store
from repotrace.tui.restoring import proposed

TEST = "tests/test_money.py::test_add"
NAME = "tests/test_money.py"


class Reports:
    """A store with one report of another machine, whose command leaves a trace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trace = folder / "executed"
        code = f"import pathlib; pathlib.Path({str(self.trace)!r}).touch(); raise SystemExit(3)"
        run = command_run(argv=("python", "-c", code), cwd=str(folder), exit_code=3, stdout="")
        self.report = report_of(run, id="a1")
        self.file = folder / "report.json"
        self.file.write_text(self.report.model_dump_json())
        home = folder / ".repotrace"
        self.store = Store(home, home / "reports")

    def receive(self) -> None:
        receive(self.store, self.file, now=NOON)


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reports:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REPOTRACE_HOME", raising=False)
    found = Reports(tmp_path)
    found.receive()
    return found


def _loaded(reports: Reports) -> BugReport:
    return ReportStore(reports.store.reports.root).load("a1")


REPLAYS: dict[str, Callable[[Reports, bool], object]] = {
    "replay": lambda found, trusted: replay(_loaded(found), trusted=trusted),
    "of the store": lambda found, trusted: replay(found.store.reports.load("a1"), trusted=trusted),
    "replay_report": lambda found, trusted: replay_report(_loaded(found), trusted=trusted),
    "replay_from_store": lambda found, trusted: replay_from_store(
        "a1", ReportStore(found.store.reports.root), trusted=trusted
    ),
    "options": lambda found, trusted: replay(
        _loaded(found), options=ReplayOptions(trusted=trusted)
    ),
    "only this": lambda found, trusted: replay(
        _loaded(found), options=ReplayOptions(trusted={"a1"} if trusted else {"a2"})
    ),
    "reproduction": lambda found, trusted: replay(
        Reproduction.from_report(_loaded(found)), trusted=trusted
    ),
    "changed": lambda found, trusted: replay(
        _loaded(found).model_copy(update={"id": "other", "title": "mine"}), trusted=trusted
    ),
    "updated": lambda found, trusted: replay(
        found.store.reports.update("a1", status="closed"), trusted=trusted
    ),
    "scanned": lambda found, trusted: [
        replay(report, trusted=trusted)
        for _, report in found.store.reports.scan()
        if isinstance(report, BugReport)
    ],
}


@pytest.mark.parametrize("way", REPLAYS)
def test_a_received_report_is_executed_only_if_trusted(reports: Reports, way: str) -> None:
    with pytest.raises(NotTrusted) as refused:
        REPLAYS[way](reports, False)
    assert not reports.trace.exists()
    assert (refused.value.kind, refused.value.name) == ("report", "a1")
    assert (refused.value.file, refused.value.at) == ("report.json", NOON)
    assert "SystemExit(3)" in refused.value.command
    assert "trusted=True" in (refused.value.hint or "")
    REPLAYS[way](reports, True)
    assert reports.trace.exists()


def test_a_sweep_leaves_out_what_is_not_trusted(reports: Reports) -> None:
    own = report_of(command_run(argv=("true",), cwd=str(reports.folder), exit_code=0), id="b2")
    reports.store.reports.save(own)
    store = ReportStore(reports.store.reports.root)
    foreign, mine = replay_all(store, jobs=2).results
    assert foreign.verdict == Verdict.CANNOT_RUN
    assert foreign.detail == "cannot run: it came from elsewhere (report.json)"
    assert (foreign.report_id, foreign.title) == ("a1", reports.report.title)
    assert mine.ran
    assert not reports.trace.exists()
    replay_all(store, jobs=2, trusted=True)
    assert reports.trace.exists()


def test_what_a_program_made_is_its_own(reports: Reports) -> None:
    assert replay(reports.report).ran
    assert reports.trace.exists()


def test_where_a_report_was_read_is_no_part_of_it(reports: Reports) -> None:
    assert _loaded(reports) == reports.report.model_copy(
        update={"updated_at": _loaded(reports).updated_at}
    )
    assert reports.report.kept is None
    kept = _loaded(reports).kept
    assert kept is not None
    assert (kept.id, kept.reports) == ("a1", reports.store.reports.root)


def test_the_home_of_a_store_is_asked_wherever_it_is(tmp_path: Path) -> None:
    found = Reports(tmp_path)
    found.store = Store(tmp_path / "a home", tmp_path / "kept")
    found.receive()
    with pytest.raises(NotTrusted):
        replay(found.store.reports.load("a1"))
    assert not found.trace.exists()


def test_a_repository_that_is_made_later_makes_nothing_trusted(
    reports: Reports, tmp_path: Path
) -> None:
    plain_git(tmp_path, "init", "-q")
    with pytest.raises(NotTrusted):
        replay_from_store("a1", ReportStore(reports.store.reports.root))
    assert not reports.trace.exists()


HIDDEN = "touch executed # \rpytest -q tests"
"""On a terminal, what stands before the carriage return is not to be seen."""


def test_all_of_the_command_is_shown(tmp_path: Path) -> None:
    found = Reports(tmp_path)
    shell = Shell(tmp_path)
    shell.cwd = tmp_path
    for number, script in enumerate((HIDDEN, "touch executed\x1b[2K\x1b[1G", "#\ntouch executed")):
        run = command_run(argv=(), script=script, cwd=str(tmp_path), exit_code=0)
        found.file.write_text(report_of(run, id=f"a{number}").model_dump_json())
        found.receive()
        with pytest.raises(NotTrusted) as refused:
            replay(found.store.reports.load(f"a{number}"))
        assert "touch executed" in refused.value.command
        assert refused.value.command.isprintable()
        for args in (("--dry-run",), ()):
            done = shell("replay", f"a{number}", *args)
            told = (done.stdout + done.stderr).decode()
            assert "touch executed" in told
            assert told.replace("\n", "").isprintable(), told
    assert not (tmp_path / "executed").exists()


# --- What a file may claim ----------------------------------------------------------------------


def repository(folder: Path) -> Store:
    plain_git(folder, "init", "-q")
    return Store(folder / ".git" / "repotrace", folder / ".repotrace" / "reports")


def test_a_report_that_git_tracks_here_is_as_trusted_as_the_code(tmp_path: Path) -> None:
    found = Reports(tmp_path)
    found.store = repository(tmp_path)
    plain_git(tmp_path, "add", "report.json")
    found.receive()
    assert replay(found.store.reports.load("a1")).ran
    assert found.trace.exists()


def test_one_that_came_from_elsewhere_before_is_trusted_once_git_tracks_it(
    tmp_path: Path,
) -> None:
    found = Reports(tmp_path)
    found.store = repository(tmp_path)
    found.receive()
    with pytest.raises(NotTrusted):
        replay(found.store.reports.load("a1"))
    plain_git(tmp_path, "add", "report.json")
    found.receive()
    assert found.store.reports.list_ids() == ["a1"]
    assert replay(found.store.reports.load("a1")).ran


@pytest.mark.parametrize("how", ["not tracked", "another repository", "link", "submodule"])
def test_a_report_that_git_does_not_track_here_is_not_trusted(tmp_path: Path, how: str) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    found = Reports(there)
    found.store = repository(here)
    if how == "another repository":
        plain_git(there, "init", "-q")
        plain_git(there, "add", "report.json")
    elif how == "link":
        link = here / "report.json"
        link.symlink_to(found.file)
        plain_git(here, "add", "report.json")
        found.file = link
    else:
        inside = here / "inside"
        inside.mkdir()
        found.file = found.file.rename(inside / "report.json")
        if how == "submodule":
            plain_git(inside, "init", "-q")
            plain_git(inside, "add", "report.json")
    found.receive()
    with pytest.raises(NotTrusted):
        replay(found.store.reports.load("a1"))
    assert not found.trace.exists()


def test_an_own_report_keeps_its_id_and_stays_trusted(tmp_path: Path) -> None:
    found = Reports(tmp_path)
    own = report_of(command_run(argv=("true",), cwd=str(tmp_path), exit_code=0), id="a1")
    found.store.reports.save(own)
    found.receive()
    assert found.store.reports.list_ids() == ["a1", "a1-2"]
    assert replay(found.store.reports.load("a1")).ran
    with pytest.raises(NotTrusted):
        replay(found.store.reports.load("a1-2"))
    # The same as an own one is that one.
    found.file.write_text(own.model_dump_json())
    found.receive()
    assert replay(found.store.reports.load("a1")).ran
    assert not found.trace.exists()


def test_a_capture_does_not_become_what_was_there_before(reports: Reports, tmp_path: Path) -> None:
    reports.store.reports.delete("a1")
    own = report_of(command_run(argv=("true",), cwd=str(tmp_path), exit_code=0), id="a1")
    assert store_report(own, reports.store).report.id == "a1-2"
    assert replay(reports.store.reports.load("a1-2")).ran
    assert not store_report(own, reports.store).new


# --- Runs -----------------------------------------------------------------------------------


class Runs:
    """A bundle of another machine, with a run whose tests and modules leave a trace; and a store
    that has received it."""

    def __init__(self, folder: Path) -> None:
        agent = AgentRun(Shell(folder))
        self.trace = folder / "executed"
        touch = f"import pathlib\npathlib.Path({str(self.trace)!r}).touch()\n"
        agent.write("conftest.py", touch)
        agent.edit("money.py", "a + b", "a - b")
        agent.runs_tests()
        agent.write("json.py", touch)  # where Python looks first
        agent.write("pytest.py", touch)
        agent.write("bin/python", f"#!/bin/sh\ntouch '{self.trace}'\n")
        self.trace.unlink()
        self.file = folder / "run.repotrace"
        self.file.write_bytes(export_run(agent.store, agent.run, "bundle", ExportOptions()))
        agent.store.close()
        shutil.rmtree(agent.workspace)
        self.shell = agent.shell
        self.environ = agent.environ

    def receive(self, folder: Path) -> None:
        self.trace.unlink(missing_ok=True)
        self.shell.cwd = folder
        self.store = Store(folder / ".repotrace")
        receive(self.store, self.file, now=NOON)

    @property
    def run(self) -> Run:
        return self.store.runs.get(RUN)

    def testing(self, command: str | None = PYTEST) -> Testing:
        return Testing(command=command, environ=self.environ, timeout=60)

    def options(self, **more: Any) -> ReportOptions:
        redactor = Redactor(key=self.store.key, variables={})
        return ReportOptions(redactor=redactor, environ=self.environ, **more)


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("another machine"))


@pytest.fixture
def runs(sent: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    sent.receive(here)
    return sent


QUICK = BlameOptions(Plan(budget=1, reduce=False, undo=False))
AGENT = {"agent_cmd": "touch executed-by-agent"}

VERBS: dict[str, Callable[[Runs, bool], object]] = {
    "check": lambda found, trusted: check_run(
        found.store, RUN, tests=[TEST], testing=found.testing(), blame=QUICK, trusted=trusted
    ),
    "blame": lambda found, trusted: blame_run(
        found.store, RUN, TEST, testing=found.testing(), options=QUICK, trusted=trusted
    ),
    "rerun": lambda found, trusted: rerun_from_step(
        found.store, RUN, 1, AGENT, into="../branch", dry_run=False, trusted=trusted
    ),
    "report": lambda found, trusted: report_failure(
        found.store,
        found.run,
        find_failure(found.store, found.run, test="test_add"),
        found.options(trusted=trusted),
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_received_run_is_executed_only_if_trusted(runs: Runs, verb: str, tmp_path: Path) -> None:
    with pytest.raises(NotTrusted) as refused:
        VERBS[verb](runs, False)
    assert (refused.value.kind, refused.value.name) == ("run", RUN)
    assert refused.value.file == "run.repotrace"
    assert not runs.trace.exists()
    assert not list(tmp_path.rglob("executed-by-agent"))
    VERBS[verb](runs, True)
    assert runs.trace.exists() or list(tmp_path.rglob("executed-by-agent"))


def test_no_file_of_a_received_run_is_executed_to_find_out_what_runs_its_tests(
    runs: Runs,
) -> None:
    for command in (None, "bin/python -m pytest", "./bin/python -m pytest"):
        with pytest.raises(NotTrusted):
            check_run(runs.store, RUN, testing=runs.testing(command))
    assert not runs.trace.exists()


COMMANDS = {
    "check": ("check", RUN, "--test-cmd", PYTEST),
    "blame": ("blame", RUN, TEST, "--test-cmd", PYTEST),
    "runs report": ("runs", "report", RUN, "--test", "test_add"),
    "rerun": ("rerun", RUN, "--from-step", "1", "--execute", "--agent-cmd", "touch here"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_asks_for_a_received_run(runs: Runs, command: str) -> None:
    refused = runs.shell(*COMMANDS[command])
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"came from elsewhere (run.repotrace)" in refused.stderr
    assert b"say --yes" in refused.stderr
    assert not runs.trace.exists()
    assert not list(runs.shell.cwd.parent.glob(f"*{RUN}-*"))


def test_where_a_run_came_from_is_shown(runs: Runs, tmp_path: Path) -> None:
    shown = runs.shell("runs", "show", RUN).stdout.decode()
    day = NOON.astimezone().strftime("%Y-%m-%d")
    assert re.search(f"^came from +elsewhere: run.repotrace, imported {day}$", shown, re.MULTILINE)
    view = json.loads(runs.shell("runs", "show", RUN, "--json").stdout)
    assert view["came_from"]["file"] == "run.repotrace"
    own = take_checkpoint(runs.store, tmp_path / "here", "mine", now=time.time_ns()).run
    assert show_run(runs.store, own).came_from is None


def test_where_a_report_came_from_is_shown(reports: Reports, tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    shell.cwd = tmp_path
    assert b"came from elsewhere: report.json, imported 20" in shell("show", "a1").stderr


def test_a_received_run_is_named_where_none_was_recorded(runs: Runs) -> None:
    for command in ("check", "blame"):
        refused = runs.shell(command)
        assert refused.returncode == 2
        assert f"The newest run of all is {RUN}. Name it".encode() in refused.stderr


@pytest.mark.parametrize("command", ["check", "blame"])
def test_a_command_from_elsewhere_cannot_act_on_the_terminal(tmp_path: Path, command: str) -> None:
    agent = AgentRun(Shell(tmp_path))
    evil = '[tool.repotrace.check]\ncommand = "true \\u001b]0;owned\\u0007"\n'
    agent.write("pyproject.toml", evil)
    agent.edit("money.py", "a + b", "a - b")
    file = tmp_path / "run.repotrace"
    file.write_bytes(export_run(agent.store, agent.run, "bundle", ExportOptions()))
    shutil.rmtree(agent.workspace)
    here = tmp_path / "here"
    here.mkdir()
    receive(Store(here / ".repotrace"), file, now=NOON)
    agent.shell.cwd = here
    for more in ([], ["--dry-run"], ["--yes"]):
        done = agent.shell(command, RUN, *more)
        assert b"owned" in done.stdout + done.stderr
        assert b"\x1b" not in done.stdout + done.stderr


def test_nobody_is_asked_about_no_command(runs: Runs) -> None:
    refused = runs.shell("rerun", RUN, "--from-step", "1", "--execute")
    assert refused.returncode == 2
    assert b"There is no command to run" in refused.stderr


@pytest.mark.parametrize("command", ["check", "blame"])
def test_telling_what_would_be_run_executes_nothing_from_elsewhere(
    runs: Runs, command: str
) -> None:
    told = runs.shell(*COMMANDS[command], "--dry-run")
    assert told.returncode == 0, told.stderr
    assert b"-m pytest" in told.stdout
    assert not runs.trace.exists()


def test_what_is_recorded_on_files_from_elsewhere_is_from_there_too(
    runs: Runs, tmp_path: Path
) -> None:
    done = rerun_from_step(
        runs.store, RUN, 1, AGENT, into=tmp_path / "branch", dry_run=False, trusted=True
    )
    branch = runs.store.runs.get(done["new_run_id"])
    assert (branch.parent_run_id, branch.workspace) == (RUN, str(tmp_path / "branch"))
    with pytest.raises(NotTrusted, match=r"run\.repotrace"):
        check_run(runs.store, branch.id, testing=runs.testing())
    with pytest.raises(NotTrusted):
        rerun_from_step(runs.store, branch.id, 0, AGENT, dry_run=False)
    assert workspace_of(branch, runs.store) == tmp_path / "branch"


def test_a_run_that_goes_on_elsewhere_does_not_go_on_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AgentRun(Shell(tmp_path))
    agent.edit("money.py", "a + b", "a - b")
    file = tmp_path / "run.repotrace"
    file.write_bytes(export_run(agent.store, agent.run, "bundle", ExportOptions()))
    # A colleague has the project in a folder of the same name.
    monkeypatch.chdir(agent.workspace)
    store = Store(tmp_path / "home of another")
    receive(store, file, now=NOON)
    assert store.runs.get(RUN).status == "running"
    made = take_checkpoint(store, agent.workspace, "mine", now=time.time_ns())
    assert made.run.id != RUN
    done = restore_to_step(agent.workspace, RUN, 0, into=tmp_path / "x")
    assert done.written
    assert restore_in_place(store, done.state_id, agent.workspace).written == ("money.py",)
    refuse_busy(store, agent.workspace)
    with pytest.raises(RepoTraceError, match="being recorded"):
        refuse_busy(agent.store, agent.workspace)
    with pytest.raises(RepoTraceError, match="being recorded"):
        delete_run(agent.store, agent.run)
    assert delete_run(store, store.runs.get(RUN))


def test_a_verdict_from_elsewhere_replaces_none_of_an_own_run(tmp_path: Path) -> None:
    agent = AgentRun(Shell(tmp_path))
    agent.edit("money.py", "a + b", "a - b")
    own = agent.blame(TEST, plan=QUICK.plan)
    store, file = agent.store, tmp_path / "run.json"
    document = json.loads(export_run(store, agent.run, "json", ExportOptions()))
    assert [blame["id"] for blame in document["blames"]] == [own.id]
    document["run_id"] = document["run"]["id"] = "rfeedfeed"
    document["blames"][0]["verdict"] = "not_broken"
    file.write_text(json.dumps(document))
    got = receive(store, file, now=NOON)
    assert got.is_new
    assert [(kept.id, kept.verdict) for kept in store.memo.verdicts(RUN)] == [(own.id, own.verdict)]
    (kept,) = store.memo.verdicts("rfeedfeed")
    assert kept.verdict == kept.record["verdict"] == "not_broken"
    assert kept.id == kept.record["id"] != own.id
    # Of the same run it keeps its id, so that a round trip changes nothing.
    store.runs.delete("rfeedfeed")
    document["blames"][0]["id"] = kept.id
    file.write_text(json.dumps(document))
    receive(store, file, now=NOON)
    assert [one.id for one in store.memo.verdicts("rfeedfeed")] == [kept.id]


def test_a_run_from_elsewhere_does_not_say_where_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    agent = AgentRun(Shell(tmp_path))
    agent.edit("money.py", "a + b", "a - b")
    agent.tell("run_ended", status="completed")
    file = tmp_path / "run.repotrace"
    file.write_bytes(export_run(agent.store, agent.run, "bundle", ExportOptions()))
    before = agent.files()
    monkeypatch.chdir(here)
    store = Store(here / ".repotrace")
    receive(store, file, now=NOON)
    beside = tmp_path / f"here-{RUN}-step-0"
    assert rerun_from_step(store, RUN, 0, AGENT)["folder"] == str(beside)
    with pytest.raises(RunNotFound, match="no folder here"):
        restore_to_step(store, RUN, 0, in_place=True)
    assert restore_to_step(here, RUN, 0, in_place=True).folder == here
    assert proposed(store, store.runs.get(RUN), 0) == beside
    assert restore_to_step(store, RUN, 0).folder == beside
    assert agent.files() == before
