"""The example agent: what is read back of it is what plain git says of the same files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import clean_environment, plain_git

ROOT = Path(__file__).parents[1]

BROKEN = ("sent.replace(year=sent.year + 1)", "sent + timedelta(days=365)")
REPAIRED = (
    "        return sent + timedelta(days=365)\n",
    "        day = 28 if (sent.month, sent.day) == (2, 29) else sent.day\n"
    "        return sent.replace(year=sent.year + 1, day=day)\n",
)
LEAP_DAY = "tests/test_terms.py::Terms::test_yearly_from_a_leap_day"
OVER_A_LEAP_DAY = "tests/test_reminders.py::Reminders::test_yearly_over_a_leap_day"


class Example:
    """The example after it ran once, and the states it should have, as commits of plain git."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "an invoice"
        self.home = folder / "home"
        self.home.mkdir()
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "invoice_agent.py", self.folder],
            env=clean_environment(self.home),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        self.said = done.stdout
        self.truth = folder / "truth"
        plain_git(folder, "clone", "-q", str(self.folder), str(self.truth))
        self.commits = [plain_git(self.truth, "rev-parse", "HEAD")]
        for old, new in (BROKEN, REPAIRED):
            path = self.truth / "billing" / "terms.py"
            text = path.read_text()
            assert text.count(old) == 1
            path.write_text(text.replace(old, new))
            self.commits.append(self._commit())

    def _commit(self) -> str:
        plain_git(self.truth, "add", "-A")
        plain_git(self.truth, "commit", "-q", "-m", "state")
        return plain_git(self.truth, "rev-parse", "HEAD")

    def __call__(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "repotrace", *args],
            cwd=self.folder,
            env=clean_environment(self.home),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "--json"))

    def files(self, commit: str) -> dict[str, bytes]:
        names = plain_git(self.truth, "ls-tree", "-r", "--name-only", commit).splitlines()
        return {
            name: subprocess.run(
                ["git", "show", f"{commit}:{name}"],
                cwd=self.truth,
                capture_output=True,
                check=True,
            ).stdout
            for name in names
        }


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Example:
    return Example(tmp_path_factory.mktemp("example"))


STEPS = [
    *("llm", "tool", "llm", "tool", "llm", "tool", "llm", "edit", "llm", "test", "llm", "edit"),
    *("llm", "test", "llm"),
]
BREAKS, REPAIRS = 8, 12
"""Numbers of the two steps that edit."""


def commit_after(example: Example, number: int) -> str:
    return example.commits[(number >= BREAKS) + (number >= REPAIRS)]


def test_show_tells_what_happened(example: Example) -> None:
    shown = example("runs", "show")
    assert "2 files read, 1 edited" in shown
    assert "1 retry" in shown
    listed = example.json("runs", "list")
    (line,) = listed["runs"]
    assert (line["status"], line["outcome"]) == ("completed", "passed")
    assert line["agent"] == "invoice_agent"
    assert line["totals"]["steps"] == len(STEPS)


def test_the_steps_are_those_of_the_agent(example: Example) -> None:
    for number, kind in enumerate(STEPS, 1):
        step = example.json("play", "--step", str(number))["step"]
        assert (step["step_number"], step["step_type"]) == (number, kind)
        assert step["status"] == ("failed" if number == 10 else "completed")
    assert "I'll add 365 days instead." in example("play", "--step", str(BREAKS))
    assert "test_yearly_over_a_leap_day" in example("play", "--step", "10")


def test_restoring_gives_the_files_of_every_step(example: Example, tmp_path: Path) -> None:
    for number in range(1, len(STEPS) + 1):
        into = tmp_path / str(number)
        example("runs", "restore", "--step", str(number), "--into", str(into))
        found = {
            path.relative_to(into).as_posix(): path.read_bytes()
            for path in into.rglob("*")
            if path.is_file()
        }
        assert found == example.files(commit_after(example, number)), number


def test_diffs_are_those_of_git(example: Example, tmp_path: Path) -> None:
    for number in range(1, len(STEPS) + 1):
        before, after = (commit_after(example, n) for n in (number - 1, number))
        diff = example("runs", "diff", "--step", str(number))
        if before == after:
            assert diff == ""
            continue
        expected = plain_git(example.truth, "diff", "--full-index", before, after)
        assert diff.strip() == expected
        copy = tmp_path / str(number)
        plain_git(tmp_path, "clone", "-q", str(example.truth), str(copy))
        plain_git(copy, "checkout", "-q", before)
        (copy / "the.diff").write_text(diff)
        plain_git(copy, "apply", "the.diff")
        assert plain_git(copy, "diff", after, "--", "billing", "tests") == ""
    whole = plain_git(example.truth, "diff", "--full-index", example.commits[0], example.commits[2])
    assert example("runs", "diff").strip() == whole


def test_each_test_run_is_tied_to_the_patch_it_ran_on(example: Example) -> None:
    """The outcomes are those that pytest gives on the same files, without us."""
    for number, commit in ((10, example.commits[1]), (14, example.commits[2])):
        plain_git(example.truth, "checkout", "-q", commit)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-rA", "-q"],
            cwd=example.truth,
            env=clean_environment(example.home),
            capture_output=True,
            text=True,
            check=False,
        )
        expected = {
            line.split()[1]: line.split()[0].lower()
            for line in done.stdout.splitlines()
            if line.startswith(("PASSED ", "FAILED "))
        }
        tests = example.json("play", "--step", str(number))["tests"]
        assert {test["node_id"]: test["outcome"] for test in tests} == expected
        assert len(expected) == 6
        assert {test["origin"] for test in tests} == {"plugin"}
        assert (expected[OVER_A_LEAP_DAY] == "failed") == (number == 10)
        assert expected[LEAP_DAY] == "passed"


def test_the_users_repository_is_only_changed_by_the_agent(example: Example) -> None:
    assert plain_git(example.folder, "status", "--short") == "M billing/terms.py"
    assert plain_git(example.folder, "for-each-ref", "--format=%(refname)") in (
        *("refs/heads/master", "refs/heads/main"),
    )
    plain_git(example.folder, "fsck", "--strict")
