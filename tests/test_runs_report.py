"""Reports of what failed in a run: replayed, and turned into tests, on the files of then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recording import event
from running import clean_environment, plain_git
from stepping import Recorded

from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.generator import write_test
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandRun, CommandSpec, Output
from repotrace.records.trace import command_run_of
from repotrace.redact import Redactor
from repotrace.replay import ReplayOptions, Verdict, replay
from repotrace.runs.reporting import (
    Reported,
    ReportOptions,
    find_failure,
    narrowed,
    report_failure,
)
from repotrace.system.execution import execute

GOOD = "def leap(y):\n    return y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)\n"
BAD = "def leap(y):\n    return y % 4 == 0\n"
TESTS = """
import pytest
from dates import leap

def test_plain():
    assert leap(2024)

@pytest.mark.parametrize("year", [1900, 2000])
def test_century(year):
    assert leap(year) == (year == 2000)
"""
CENTURY = "tests/test_dates.py::test_century[1900]"


class Project(Recorded):
    """A recorded run in a project with a date function and its tests, under git."""

    def __init__(self, top: Path) -> None:
        work = top / "work"
        (work / "tests").mkdir(parents=True)
        (work / "dates.py").write_text(GOOD)
        (work / "tests" / "test_dates.py").write_text(TESTS)
        (work / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        (work / ".gitignore").write_text("__pycache__\n.pytest_cache\n")
        plain_git(work, "init", "-q")
        plain_git(work, "add", ".")
        plain_git(work, "commit", "-qm", "one")
        super().__init__(
            work, top / "home", base_commit=plain_git(work, "rev-parse", "HEAD"), task="leap years"
        )
        self.environ = clean_environment(top)
        self.redactor = Redactor(key=b"k" * 32)

    def run_command(self, *argv: str, script: str | None = None, **facts: Any) -> tuple[str, str]:
        """A step with a command that really runs; the ids of the step and of the command."""
        spec = CommandSpec(
            argv=argv, script=script, cwd=str(self.workspace), env=self.environ, inherit_stdin=False
        )
        step = f"s{next(self._numbers)}"
        kind = "test" if facts.get("is_test") else "command"
        self.tell("step_started", id=step, step_type=kind)
        done = execute(spec, redactor=self.redactor, limit=1 << 20, with_repository=True)
        kept = done.model_dump(mode="json", exclude_defaults=True)
        command = step.replace("s", "c")
        self.tell("command", id=command, step_id=step, command=kept, **facts)
        self.tell("state", step_id=step, state_id=self.state())
        self.tell("step_ended", id=step)
        return step, command

    def fails(self, step: str, command: str | None, node_id: str, **facts: Any) -> None:
        self.tell(
            "test", step_id=step, command_id=command, node_id=node_id, outcome="failed", **facts
        )

    def report(self, *, step: int | None = None, test: str | None = None, **more: Any) -> Reported:
        options = ReportOptions(redactor=self.redactor, environ=self.environ, **more)
        failure = find_failure(self.store, self.run, step=step, test=test)
        return report_failure(self.store, self.run, failure, options)

    def verdict(self, reported: Reported) -> str:
        """Of a replay on the files as they were."""
        options = ReplayOptions(
            environ=self.environ, at_capture=True, snapshots=self.store.snapshots, key=b"k" * 32
        )
        return replay(reported.stored.report, options=options).verdict


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Step 1 breaks the function, step 2 runs the tests, step 3 repairs it."""
    made = Project(tmp_path)
    made.step(lambda: (made.workspace / "dates.py").write_text(BAD), step_type="edit")
    step, command = made.run_command(
        *("python", "-m", "pytest", "-q", "-p", "no:cacheprovider"), is_test=True, runner="pytest"
    )
    made.fails(step, command, CENTURY, runner="pytest")
    made.tell("test", step_id=step, command_id=command, node_id="t::ok", outcome="passed")
    made.step(lambda: (made.workspace / "dates.py").write_text(GOOD), step_type="edit")
    return made


def test_a_failing_command_is_reported_with_the_files_it_ran_on(project: Project) -> None:
    done = project.report(step=2)
    run = command_run_of(done.stored.report)
    assert run.argv[:3] == ("python", "-m", "pytest")
    assert run.exit_code == 1
    assert run.files is not None
    assert run.files.quality == "exact"
    assert project.store.snapshots.read(run.files.state_id or "", "dates.py") == BAD.encode()
    assert project.verdict(done) in (Verdict.SAME, Verdict.SAME_AFTER_NORMALISING)
    assert done.doubts == ()
    report = done.stored.report
    assert report.metadata["run"] == {"run_id": project.id, "step_number": 2}
    assert report.tags == ["run"]
    assert f"reports/{report.id}" in project.store.snapshots.refs()


def test_a_failing_test_is_run_by_itself(project: Project, tmp_path: Path) -> None:
    before = {*os.listdir(project.workspace), ".repotrace"}  # noqa: PTH208
    done = project.report(test=CENTURY)
    run = command_run_of(done.stored.report)
    assert done.alone
    assert run.argv == ("python", "-m", "pytest", "-p", "no:cacheprovider", CENTURY)
    assert b"1 failed" in run.stdout.data
    assert b"passed" not in run.stdout.data
    assert run.cwd == str(project.workspace)
    assert b"repotrace-replay" not in run.stdout.data
    assert run.signature is not None
    assert run.signature.failing_tests == (CENTURY,)
    assert {*os.listdir(project.workspace)} == before  # noqa: PTH208
    assert project.verdict(done) in (Verdict.SAME, Verdict.SAME_AFTER_NORMALISING)
    assert done.stored.report.title == f"Test failed: {CENTURY}"


def test_the_generated_test_is_red_on_the_files_of_then_and_green_now(
    project: Project, tmp_path: Path
) -> None:
    report = project.report(test=CENTURY).stored.report
    path = write_test(report, project.workspace / "test_regression.py", expect="fixed")

    def passes() -> bool:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", path],
            cwd=project.workspace,
            env=project.environ,
            capture_output=True,
            check=False,
        )
        return done.returncode == 0

    assert passes()
    (project.workspace / "dates.py").write_text(BAD)
    assert not passes()


def test_the_command_is_kept_whole_if_that_is_wished(project: Project) -> None:
    done = project.report(test="test_century[1900]", as_recorded=True)
    assert not done.alone
    assert command_run_of(done.stored.report).argv[-2:] == ("-p", "no:cacheprovider")
    assert project.verdict(done) in (Verdict.SAME, Verdict.SAME_AFTER_NORMALISING)


def test_a_test_that_passes_by_itself_is_kept_with_its_command(tmp_path: Path) -> None:
    """The second test only fails after the first one."""
    project = Project(tmp_path)
    tests = "seen = []\ndef test_one():\n    seen.append(1)\ndef test_two():\n    assert not seen\n"
    project.step(lambda: (project.workspace / "tests" / "test_dates.py").write_text(tests))
    step, command = project.run_command(*("python", "-m", "pytest", "-q"), is_test=True)
    project.fails(step, command, "tests/test_dates.py::test_two", runner="pytest")
    done = project.report(test="test_two")
    assert not done.alone
    assert done.doubts == ("by itself, on the same files, the test passes",)
    assert command_run_of(done.stored.report).argv == ("python", "-m", "pytest", "-q")


def test_the_report_is_the_latest_one(project: Project) -> None:
    project.run_command("false")
    other = BugReport(id="other", title="made after the command had failed")
    project.store.reports.save(other)
    done = project.report()
    assert project.store.resolve("latest") == done.stored.report.id


def test_a_run_of_tests_that_nobody_heard_is_reported_by_a_test_of_it(project: Project) -> None:
    """The plug-in knows the command and the outcomes, not what was printed."""
    project.step(lambda: (project.workspace / "dates.py").write_text(BAD))
    step = project.step()
    command = {"argv": ["python", "-m", "pytest", "-q"], "cwd": str(project.workspace)}
    project.tell("command", id="c9", step_id=step, command=command, exit_code=1, is_test=True)
    project.fails(step, "c9", CENTURY, runner="pytest")
    done = project.report()
    assert done.alone
    assert done.failure.test is not None
    assert project.verdict(done) in (Verdict.SAME, Verdict.SAME_AFTER_NORMALISING)
    whole = project.report(as_recorded=True)
    assert whole.doubts == ("what it printed is not known; replay it with --exit-code-only",)


def test_the_last_failure_of_the_run_is_meant_without_a_step(project: Project) -> None:
    project.run_command(script="echo broken; exit 3")
    project.run_command("true")
    done = project.report()
    run = command_run_of(done.stored.report)
    assert (run.script, run.exit_code) == ("echo broken; exit 3", 3)
    assert done.failure.step.step_number == 4
    assert project.verdict(done) == Verdict.SAME


def test_the_parts_of_a_step_belong_to_it(project: Project) -> None:
    project.store.runs.add_events([event("step_updated", 5, id="s2", parent_id="s1")])
    assert find_failure(project.store, project.run, step=1).step.step_number == 2


def test_the_same_failure_again_is_counted(project: Project) -> None:
    assert project.report(step=2).stored.new
    again = project.report(step=2)
    assert not again.stored.new
    assert again.stored.occurrences == 2
    refs = [ref for ref in project.store.snapshots.refs() if ref.startswith("reports/")]
    assert refs == [f"reports/{again.stored.report.id}"]


def test_a_command_of_a_transcript_has_little(tmp_path: Path) -> None:
    """Argv and output as text are all that is known."""
    project = Project(tmp_path)
    step = project.step()
    project.tell(
        "command",
        step_id=step,
        command={"script": "cat dates.py; exit 4", "stdout": GOOD},
        exit_code=4,
    )
    done = project.report()
    run = command_run_of(done.stored.report)
    assert (run.exit_code, run.cwd, run.cwd_in_repository) == (4, str(project.workspace), ".")
    assert project.verdict(done) == Verdict.SAME


def test_a_test_without_a_command_is_run_with_pytest(project: Project) -> None:
    step = project.step(lambda: (project.workspace / "dates.py").write_text(BAD))
    project.step()
    project.fails("s5", None, CENTURY, origin="junit", runner=None)
    done = project.report(step=5)
    assert done.alone
    assert command_run_of(done.stored.report).argv == ("python", "-m", "pytest", CENTURY)
    assert step == "s4"


def test_a_test_of_another_runner_without_a_command_is_refused(project: Project) -> None:
    step = project.step()
    project.fails(step, None, "adds two numbers", runner="jest")
    with pytest.raises(RepoTraceError, match="No command is known that ran adds two numbers"):
        project.report(test="adds two numbers")


def test_a_missing_state_is_told(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.store.runs.add_events(
        [
            event("state", 1, state_id=None, state_quality="missing"),
            event("step_started", 2, id="s1"),
            event("state", 3, step_id="s1", state_quality="missing", state_reason="too slow"),
            event("step_ended", 4, id="s1"),
            event("step_started", 5, id="s2"),
            event("command", 6, step_id="s2", command={"argv": ["false"]}, exit_code=1),
            event("step_ended", 7, id="s2"),
        ]
    )
    done = project.report()
    assert done.doubts == ("the files that it ran on were not kept: too slow",)
    assert project.verdict(done) == Verdict.CANNOT_RUN


def test_nothing_failed(project: Project) -> None:
    with pytest.raises(RepoTraceError, match="No command and no test is known in step 1") as caught:
        project.report(step=1)
    assert "runs show" in (caught.value.hint or "")
    project.run_command("true")
    with pytest.raises(RepoTraceError, match="No command and no test failed in step 4"):
        project.report(step=4)
    with pytest.raises(RunNotFound):
        project.report(step=9)


def test_a_test_is_named_by_a_part_that_only_one_has(project: Project) -> None:
    project.fails("s2", "c2", "tests/test_dates.py::test_century[2000]")
    with pytest.raises(RepoTraceError, match="means 2 failing tests") as caught:
        find_failure(project.store, project.run, test="tests/test_dates.py::test_century")
    assert CENTURY in (caught.value.hint or "")
    with pytest.raises(RepoTraceError, match="t::ok did not fail"):
        find_failure(project.store, project.run, test="t::ok")
    with pytest.raises(RepoTraceError, match="No failing test nothing is known") as caught:
        find_failure(project.store, project.run, test="nothing")
    assert CENTURY in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("argv", "script", "expected"),
    [
        (["pytest", "-q", "tests"], None, ["pytest", "N"]),
        ([".venv/bin/pytest"], None, [".venv/bin/pytest", "N"]),
        (
            ["uv", "run", "pytest", "-x", "-c", "a.ini"],
            None,
            ["uv", "run", "pytest", "-c", "a.ini", "N"],
        ),
        (
            ["py", "-m", "pytest", "-o", "x=1", "-k", "y"],
            None,
            ["py", "-m", "pytest", "-o", "x=1", "N"],
        ),
        (["py.test", "--rootdir=.", "-v"], None, ["py.test", "--rootdir=.", "N"]),
        ([], "cd x && pytest -q | tail", ["python", "-m", "pytest", "N"]),
        (["make", "test"], None, None),
        ([], "make test", None),
        (["tox"], None, None),
    ],
)
def test_one_test_out_of_a_command(
    argv: list[str], script: str | None, expected: list[str] | None
) -> None:
    run = CommandRun(argv=tuple(argv), script=script, stdout=Output.of(b"x"))
    found = narrowed(run, "N")
    assert (found and list(found.argv)) == expected
    assert found is None or found.script is None
