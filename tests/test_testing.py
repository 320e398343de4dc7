"""Test commands, run here and on states, with the outcome of each test."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugged import write_files
from running import clean_environment
from states import REF, exact, fingerprint, picture

import repotrace
from repotrace.errors import RepoTraceError
from repotrace.records.command import CommandSpec, Termination
from repotrace.records.run import OutcomeOrigin, TestResult
from repotrace.redact import Redactor
from repotrace.runs.testing.runner import TestRun, TestRunner, run_tests_here
from repotrace.system.snapshots import SnapshotStore

PASSED, FAILED = TestResult.PASSED, TestResult.FAILED
REDACTOR = Redactor(key=b"k")
PYTEST = (sys.executable, "-m", "pytest", "-q")
SUMS = {
    "sums.py": "def total(numbers):\n    return sum(numbers)\n",
    "test_sums.py": "from sums import total\n\ndef test_total(): assert total([1, 2]) == 3\n"
    "def test_none(): assert total([]) == 0\n",
}


class Work:
    """A workspace, its snapshots, and a runner on them."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "work space"
        self.workspace.mkdir()
        self.home = folder
        self.scratch = folder / "scratch"
        self.snapshots = SnapshotStore(folder / "snapshots.git")
        self._runner: TestRunner | None = None

    def state(self, **files: str | None) -> str:
        """Changes files and keeps the state; `test_a__py` means `test_a.py`."""
        for name, text in files.items():
            path = self.workspace / name.replace("__", ".")
            if text is None:
                path.unlink()
            else:
                write_files(self.workspace, {str(path.relative_to(self.workspace)): text})
        return exact(self.snapshots.take(self.workspace, ref=REF))

    def files(self, files: dict[str, str]) -> str:
        write_files(self.workspace, files)
        return self.state()

    @property
    def runner(self) -> TestRunner:
        if self._runner is None:
            self._runner = TestRunner(
                self.snapshots, self.scratch, workspace=self.workspace, redactor=REDACTOR
            )
        return self._runner

    def spec(self, *argv: str, cwd: Path | None = None, **env: str) -> CommandSpec:
        folder = cwd or self.workspace
        environment = clean_environment(self.home, {"PWD": str(folder), **env})
        return CommandSpec(argv=argv or PYTEST, cwd=str(folder), env=environment)

    def run(self, state: str, *argv: str, cwd: Path | None = None, **env: str) -> TestRun:
        return self.runner.run(state, self.spec(*argv, cwd=cwd, **env), timeout=60)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self.snapshots.close()


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    made = Work(tmp_path)
    yield made
    made.close()


def names(run: TestRun) -> dict[str, str]:
    return {name.rpartition("::")[2]: str(result) for name, result in run.verdicts.items()}


# --- Here -----------------------------------------------------------------------------------


def test_a_command_here(work: Work) -> None:
    work.files(SUMS | {"test_bad.py": "def test_bad(): assert 0\n"})
    before = work.spec()
    run = run_tests_here(before, redactor=REDACTOR)
    assert run.verdicts == {
        "test_sums.py::test_total": PASSED,
        "test_sums.py::test_none": PASSED,
        "test_bad.py::test_bad": FAILED,
    }
    assert (run.origin, run.complete, run.state_id) == (OutcomeOrigin.PLUGIN, True, None)
    assert run.command.exit_code == 1
    assert "PYTHONPATH" not in run.command.env, "recorded as the user would run it"
    assert not [name for name in run.command.env if name.startswith("REPOTRACE_")]
    failed = next(outcome for outcome in run.outcomes if outcome.failed)
    assert failed.message == "assert 0"
    assert failed.details
    assert (failed.origin, failed.runner, failed.run_id) == ("plugin", "pytest", "")
    times = [outcome.timestamp for outcome in run.outcomes]
    assert times == sorted(times)


def test_outcomes_are_redacted_like_output(work: Work) -> None:
    secret = "ghp_" + "".join(chr(97 + n % 26) for n in range(36))
    work.files({"test_s.py": f"def test_s(): assert {secret!r} == ''\n"})
    run = run_tests_here(work.spec(), redactor=REDACTOR)
    assert names(run) == {"test_s": "failed"}
    assert secret not in repr(run.outcomes) + run.command.stdout.text
    assert "ghp" in repr(run.outcomes) or "REDACTED" in repr(run.outcomes)


@pytest.mark.parametrize(
    ("code", "args", "complete"),
    [
        ("def test_a(): pass", (), True),
        ("def test_a(): assert 0", (), True),
        ("", (), True),
        ("import nothing_of_this_name", (), False),
        ("def test_a(): assert 0\ndef test_b(): pass", ("-x",), False),
        ("import os\ndef test_a(): os._exit(0)", (), False),
        ("import os\ndef test_a(): os.kill(os.getpid(), 9)", (), False),
        ("def test_a(): raise KeyboardInterrupt", (), False),
        ("def test_a(): pass", ("--no-such-option",), True),
        ("def test_a(): pass", ("test_a.py::test_none",), False),
    ],
)
def test_complete_or_not(work: Work, code: str, args: tuple[str, ...], complete: bool) -> None:
    work.files({"test_a.py": code})
    run = run_tests_here(work.spec(*PYTEST, *args), redactor=REDACTOR)
    assert run.complete is complete or args == ("--no-such-option",)
    if args == ("--no-such-option",):
        assert (run.origin, run.outcomes) == (None, ())


def test_another_runner_is_read_from_its_output(work: Work) -> None:
    code = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.fail('no')\n"
    work.files({"test_u.py": code + "    def test_b(self): pass\n"})
    argv = (sys.executable, "-m", "unittest", "-v", "test_u")
    run = run_tests_here(work.spec(*argv), redactor=REDACTOR)
    assert run.verdicts == {"test_u.T.test_a": FAILED, "test_u.T.test_b": PASSED}
    assert (run.origin, run.complete) == (OutcomeOrigin.PARSED, True)


def test_pytest_without_the_plugin_is_read_from_its_output(work: Work) -> None:
    work.files({"test_a.py": "def test_a(): assert 0\n", "test_b.py": "import nothing_at_all\n"})
    argv = (sys.executable, "-I", "-m", "pytest", "-p", "no:repotrace")
    run = run_tests_here(work.spec(*argv, "test_a.py"), redactor=REDACTOR)
    assert run.verdicts == {"test_a.py::test_a": FAILED}
    assert (run.origin, run.complete) == (OutcomeOrigin.PARSED, True)
    run = run_tests_here(work.spec(*argv), redactor=REDACTOR)
    assert run.verdicts == {"test_b.py": TestResult.ERROR}
    assert (run.origin, run.complete) == (OutcomeOrigin.PARSED, False)


def test_a_command_without_tests(work: Work) -> None:
    run = run_tests_here(work.spec("true"), redactor=REDACTOR)
    assert (run.outcomes, run.origin, run.complete) == ((), None, True)


def test_a_command_that_runs_out_of_time(work: Work) -> None:
    work.files({"test_a.py": "import time\ndef test_a(): pass\ndef test_b(): time.sleep(60)\n"})
    spec = work.spec().model_copy(update={"timeout": 2.0})
    run = run_tests_here(spec, redactor=REDACTOR)
    assert run.command.termination is Termination.TIMEOUT
    assert not run.complete
    assert names(run) in ({"test_a": "passed"}, {})


def test_a_folder_that_is_not_there(work: Work) -> None:
    run = run_tests_here(work.spec(cwd=work.workspace / "none"), redactor=REDACTOR)
    assert run.command.termination is Termination.SPAWN_ERROR
    assert (run.outcomes, run.complete) == ((), False)


# --- On states ------------------------------------------------------------------------------


def test_each_state_has_its_own_outcomes(work: Work) -> None:
    good = work.files(SUMS)
    bad = work.state(sums__py="def total(numbers):\n    return max(numbers)\n")
    gone = work.state(sums__py=None)
    for state, expected in (
        (good, {"test_total": "passed", "test_none": "passed"}),
        (bad, {"test_total": "failed", "test_none": "failed"}),
        (gone, {"test_sums.py": "error"}),
        (good, {"test_total": "passed", "test_none": "passed"}),
    ):
        run = work.run(state)
        assert names(run) == expected
        assert run.state_id == state
        assert {outcome.state_id for outcome in run.outcomes} == {state}
        assert run.complete is (state != gone)


def test_a_state_of_the_same_second_and_size_is_not_taken_for_the_last(work: Work) -> None:
    """A stale .pyc would say `passed`; our own environment may forbid writing one."""
    good = work.files({"answer.py": "VALUE = 1\n", "test_a.py": "import answer\ndef test_a(): assert answer.VALUE == 1\n"})  # noqa: E501  # fmt: skip
    bad = work.state(answer__py="VALUE = 2\n")

    def same_second(folder: Path) -> None:
        os.utime(folder / "answer.py", (1_700_000_000, 1_700_000_000))

    for state, expected in ((good, "passed"), (bad, "failed")) * 2:
        assert "PYTHONDONTWRITEBYTECODE" not in work.spec().env
        run = work.runner.run(state, work.spec(), prepare=same_second)
        assert names(run) == {"test_a": expected}
    assert not list(work.scratch.rglob("__pycache__"))


def test_what_tests_write_is_cleaned_away_and_the_workspace_stays(work: Work) -> None:
    code = """
import os, subprocess, sys
from pathlib import Path
def test_writes():
    Path("made").mkdir()
    Path("made/file").write_text("x")
    Path("data.txt").write_text("changed")
    os.remove("gone.txt")
    subprocess.run([sys.executable, "-c", "import helper"], env={}, check=True)
"""
    files = {"test_w.py": code, "data.txt": "as it was", "gone.txt": "", "helper.py": ""}
    state = work.files(files)
    before = fingerprint(work.workspace)
    for _ in range(2):
        assert names(work.run(state)) == {"test_writes": "passed"}
        assert picture(work.scratch) == picture(work.workspace)
    assert fingerprint(work.workspace) == before


def test_what_tests_leave_running_is_ended(work: Work) -> None:
    code = """
import subprocess, sys
def test_leaves():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    open(PLACE, "w").write(str(child.pid))
"""
    place = work.home / "child"
    state = work.files({"test_l.py": f"PLACE = {str(place)!r}\n{code}"})
    assert names(work.run(state)) == {"test_leaves": "passed"}
    child = int(place.read_text())
    deadline = time.monotonic() + 20
    while is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_paths_of_the_workspace_mean_the_state(work: Work) -> None:
    code = """
import os, sys
from pathlib import Path
import lib
HERE = Path(__file__).parents[1]
def test_here():
    assert Path(lib.__file__).is_relative_to(HERE)
    assert os.environ["DATA"] == f"file://{HERE}/data.db"
    assert os.environ["PWD"] == os.getcwd() == str(HERE / "tests")
    assert "SECOND" in os.environ and lib.VALUE == 1
"""
    state = work.files({"src/lib.py": "VALUE = 1\n", "tests/test_p.py": code})
    work.state(**{"src/lib__py": "VALUE = 2\n"})
    ws = str(work.workspace)
    run = work.run(
        state,
        *PYTEST,
        f"--rootdir={ws}",
        f"{ws}/tests/test_p.py::test_here",
        cwd=work.workspace / "tests",
        PYTHONPATH=f"{ws}/src:/nowhere",
        DATA=f"file://{ws}/data.db",
        SECOND=f"{ws}-not-this",
    )
    assert run.verdicts == {"tests/test_p.py::test_here": PASSED}
    assert run.command.argv[-1] == f"{work.scratch}/tests/test_p.py::test_here"
    assert run.command.env["PYTHONPATH"] == f"{work.scratch}/src:/nowhere"


def test_a_test_that_a_state_does_not_have_is_not_taken_from_the_workspace(work: Work) -> None:
    before = work.files({"test_a.py": "def test_a(): pass\n"})
    work.files({"test_new.py": "def test_new(): pass\n", "later/test_b.py": "def test_b(): pass\n"})
    run = work.run(before, *PYTEST, str(work.workspace / "test_new.py"))
    assert (run.verdicts, run.complete) == ({}, False)
    run = work.run(before, cwd=work.workspace / "later")
    assert run.command.termination is Termination.SPAWN_ERROR


def test_a_script_runs_in_the_state(work: Work) -> None:
    state = work.files(SUMS)
    python = shlex.quote(sys.executable)
    spec = work.spec().model_copy(
        update={"argv": (), "script": f"cd '{work.workspace}' && {python} -m pytest -q"}
    )
    assert names(work.runner.run(state, spec)) == {"test_total": "passed", "test_none": "passed"}


# --- The project's environment --------------------------------------------------------------


def make_environment(folder: Path) -> Path:
    """A virtual environment that has our pytest; its folder of packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    ours = (pytest.__file__, repotrace.__file__)
    lines = "\n".join(str(Path(file).parents[1]) for file in ours)
    (packages / "of_the_tests.pth").write_text(f"{lines}\n")
    return packages


PLACE = "import mod, sys\ndef test_place():\n    print(sys.prefix)\n    assert 0, mod.__file__\n"


@pytest.mark.parametrize("ignored", [True, False])
@pytest.mark.parametrize(
    "how",
    ["absolute", "relative", "active", "script"],
)
def test_the_virtual_environment_of_the_workspace_is_used(
    work: Work, how: str, ignored: bool
) -> None:
    subprocess.run(["git", "init", "-q", work.workspace], check=True)
    name = "tools" if ignored else ".venv"
    make_environment(work.workspace / name)
    state = work.files({"mod.py": "", "test_p.py": PLACE, ".gitignore": "tools\n"})
    venv = work.workspace / name
    spec = {
        "absolute": work.spec(f"{venv}/bin/python", "-m", "pytest"),
        "relative": work.spec(f"./{name}/bin/python", "-m", "pytest"),
        "active": work.spec(
            "python",
            *("-m", "pytest"),
            VIRTUAL_ENV=str(venv),
            PATH=f"{venv}/bin:{os.environ['PATH']}",
        ),
        "script": CommandSpec(
            script=f". {name}/bin/activate && python -m pytest",
            cwd=str(work.workspace),
            env=clean_environment(work.home),
        ),
    }[how]
    run = work.runner.run(state, spec)
    assert names(run) == {"test_place": "failed"}
    (outcome,) = run.outcomes
    assert f"{work.scratch}/mod.py" in (outcome.message or "")
    assert (outcome.details or "").endswith(f"/{name}"), "the prefix that the test printed"


@pytest.mark.parametrize("how", ["path", "finder"])
def test_an_editable_install_gives_way_to_the_state(work: Work, how: str) -> None:
    packages = make_environment(work.workspace / ".venv")
    source = work.workspace / "src"
    if how == "path":
        (packages / "__editable__.mod-1.pth").write_text(f"{source}\n")
    else:
        (packages / "__editable___mod_finder.py").write_text(
            "import sys\nfrom importlib.util import spec_from_file_location\n"
            f"MAPPING = {{'mod': '{source}/mod'}}\n"
            "class Finder:\n"
            "    @classmethod\n"
            "    def find_spec(cls, name, path=None, target=None):\n"
            "        if name in MAPPING:\n"
            "            return spec_from_file_location(name, MAPPING[name] + '/__init__.py')\n"
            "sys.meta_path.append(Finder)\n"
        )
        (packages / "__editable__.mod-1.pth").write_text("import __editable___mod_finder\n")
    file = "src/mod.py" if how == "path" else "src/mod/__init__.py"
    old = work.files({file: "VALUE = 1\n", "tests/test_p.py": PLACE})
    work.files({file: "VALUE = 2\n"})
    run = work.run(old, ".venv/bin/python", "-m", "pytest")
    (outcome,) = run.outcomes
    assert outcome.message
    assert outcome.message.splitlines()[0].endswith(f"{work.scratch}/{file}")


def test_git_finds_no_repository_around_the_folder(work: Work) -> None:
    subprocess.run(["git", "init", "-q", work.home], check=True)
    code = "import subprocess\ndef test_g(): assert subprocess.run(['git', 'status']).returncode\n"
    assert names(work.run(work.files({"test_g.py": code}))) == {"test_g": "passed"}


def test_a_folder_in_the_workspace_is_refused(work: Work) -> None:
    with pytest.raises(RepoTraceError, match="in the workspace"):
        TestRunner(
            work.snapshots,
            work.workspace / "scratch",
            workspace=work.workspace,
            redactor=REDACTOR,
        )


def test_an_interrupt_leaves_a_clean_folder(work: Work) -> None:
    code = "import time\ndef test_a():\n    open('dirt', 'w').close()\n    time.sleep(60)\n"
    state = work.files({"test_a.py": code})

    def stop(stream: str, data: bytes) -> None:
        raise KeyboardInterrupt

    spec = work.spec("sh", "-c", "touch dirt; echo; sleep 60")
    with pytest.raises(KeyboardInterrupt):
        work.runner.run(state, spec, on_output=stop)
    assert picture(work.scratch) == picture(work.workspace)
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
