"""`repotrace demo`: the first thing that somebody sees of us."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pydantic
import pytest
from running import Shell, clean_environment, plain_git

import repotrace

BROKEN = "tests/test_reminders.py::Reminders::test_yearly_over_a_leap_day"


class Demonstrated:
    """The demo after it ran once."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        env = {
            "TMPDIR": str(self.temporary),
            # What somebody may have set for another project has no place in it.
            "REPOTRACE_HOME": str(folder / "other home"),
            "REPOTRACE_RECORD": "0",
            "PYTEST_ADDOPTS": "-x --no-such-option",
            "GIT_DIR": str(folder / "other.git"),
        }
        self.done = self.shell("demo", "--into", "the demo", env=env)
        self.repository = self.shell.cwd / "the demo" / "invoice"

    @property
    def out(self) -> str:
        return self.done.stdout.decode()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Demonstrated:
    return Demonstrated(tmp_path_factory.mktemp("demo"))


def test_the_story(shown: Demonstrated) -> None:
    assert shown.done.returncode == 0, shown.done.stderr
    assert shown.done.stderr == b""
    for line in (
        'agent  "Yearly invoices of 29 February no longer crash. All tests pass."',
        f"{BROKEN}  passed before and fails now",
        "  run by the agent: no",
        "checked 6 of 6 · 1 broken · 0 undecided",
        "  minimal    1 of 2 hunks:",
        "             +        return sent + timedelta(days=365)",
        "  necessary  undoing it on the final state makes the test pass",
    ):
        assert f"\n{line}\n" in shown.out, line
    assert re.search(r"\n  broken by  step 6 · edit billing/terms.py · scripted-model ", shown.out)
    assert re.search(r"\n  proven     passes .* \(7/7\), fails after step 6 \(7/7\): ", shown.out)


def test_it_is_true(shown: Demonstrated) -> None:
    """By plain git and pytest: the agent's tests pass, the other one passed before it."""

    def tests(*names: str) -> int:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *names],
            cwd=shown.repository,
            env=clean_environment(shown.shell.home, {"PYTHONDONTWRITEBYTECODE": "1"}),
            capture_output=True,
            check=False,
        ).returncode

    assert plain_git(shown.repository, "status", "--short").split() == [
        *("M", "CHANGELOG.md", "M", "billing/terms.py"),
    ]
    assert tests("tests/test_terms.py") == 0
    assert tests(BROKEN) == 1
    plain_git(shown.repository, "fsck", "--strict")
    was = plain_git(shown.repository, "show", "HEAD:billing/terms.py")
    now = (shown.repository / "billing/terms.py").read_text()
    try:
        (shown.repository / "billing/terms.py").write_text(was + "\n")
        assert tests(BROKEN) == 0
        assert tests("tests/test_terms.py") == 1
    finally:
        (shown.repository / "billing/terms.py").write_text(now)


def test_nothing_is_written_elsewhere(shown: Demonstrated) -> None:
    assert list(shown.shell.home.iterdir()) == []
    assert list(shown.temporary.iterdir()) == []
    assert [path.name for path in shown.shell.cwd.iterdir()] == ["the demo"]
    assert [path.name for path in shown.repository.parent.iterdir()] == ["invoice"]
    before, after = re.findall(
        r"  files (\w+) · index (\w+) · refs (\w+) · config (\w+)\n", shown.out
    )
    assert before == after
    assert len(set(before)) == 4


def test_the_commands_to_go_on_with_work(shown: Demonstrated) -> None:
    lines = shown.out.partition("\ngo on with\n")[2].splitlines()
    assert len(lines) == 4
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "repotrace"
        done = shown.shell(*words[1:], cwd=shown.shell.home)
        assert done.returncode == 0, (line, done.stderr)
        assert done.stdout, line
    diff = shown.shell("-C", str(shown.repository), "runs", "diff", "--step", "6").stdout
    assert b"+        return sent + timedelta(days=365)\n" in diff


def test_the_commands_of_the_story_say_the_same(shown: Demonstrated) -> None:
    commands = [line[2:] for line in shown.out.splitlines() if line.startswith("$ ")]
    checked, blamed = (shlex.split(line)[1:] for line in commands)
    done = shown.shell(*checked)
    assert done.returncode == 1, done.stderr
    assert done.stdout.decode().splitlines()[-1] == "checked 6 of 6 · 1 broken · 0 undecided"
    done = shown.shell(*blamed)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() in shown.out, "and nothing is executed again"


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    repotrace = Shell(tmp_path)
    (repotrace.cwd / "mine").write_text("x")
    done = repotrace("demo", "--into", ".")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"is not empty" in done.stderr
    assert [path.name for path in repotrace.cwd.iterdir()] == ["mine"]
    done = repotrace("demo", "--into", "mine")
    assert done.returncode == 2
    assert b"Not a directory" in done.stderr


def without_pytest(folder: Path) -> Path:
    """An interpreter that has us and what we need, and no pytest, as an installed tool has it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    for path in Path(pydantic.__file__).parents[1].iterdir():
        if not path.name.lower().startswith(("pytest", "_pytest", "__pycache__")):
            (site / path.name).symlink_to(path)
    (site / "ours.pth").write_text(f"{Path(repotrace.__file__).parents[1]}\n")
    return folder / "venv" / "bin" / "python"


def test_with_unittest_where_there_is_no_pytest(tmp_path: Path) -> None:
    python = without_pytest(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [python, "-m", "repotrace", "demo", "--json"],
        cwd=tmp_path,
        env=clean_environment(home, {"TMPDIR": str(tmp_path)}),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert Path(told["repository"]).is_relative_to(tmp_path)
    assert told["check"]["command"] == f"{python} -m unittest discover -v"
    (broken,) = (one for one in told["check"]["tests"] if one["change"] == "broken")
    assert "test_yearly_over_a_leap_day" in broken["test"]
    assert broken["by_agent"] == "no"
    assert broken["blame"]["steps"][0]["number"] == 6
    assert broken["blame"]["breaks"][0]["necessary"] is True
    assert told["before"] == told["after"]


def test_without_git(tmp_path: Path) -> None:
    repotrace = Shell(tmp_path)
    (tmp_path / "bin").mkdir()
    env = {"PATH": str(tmp_path / "bin"), "TMPDIR": str(repotrace.home)}
    done = repotrace("demo", env=env)
    assert done.returncode == 2
    assert b"Is git installed?" in done.stderr
    assert list(repotrace.home.iterdir()) == [], "nothing is left"
