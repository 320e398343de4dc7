"""Runs of a scripted agent in a small Python project, for tests of check and blame."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from plugged import write_files
from running import Shell, clean_environment, plain_git
from stepping import Recorded

from repotrace.blame import Plan
from repotrace.records.blame import Blame, Check
from repotrace.runs.blame import BlameOptions, blame_run
from repotrace.runs.check import check_run
from repotrace.runs.testing.options import Testing

MONEY = "def add(a, b):\n    return a + b\n\n\ndef half(a):\n    return a // 2\n"
TESTS = """from money import add, half


def test_add():
    assert add(1, 2) == 3


def test_half():
    assert half(9) == 4


def test_none():
    assert add(0, 0) == 0
"""
PROJECT = {
    "money.py": MONEY,
    "tests/test_money.py": TESTS,
    "tests/test_more.py": "from money import half\n\n\ndef test_more():\n    assert half(8) == 4\n",
    "pytest.ini": "[pytest]\npythonpath = .\n",
    ".gitignore": "__pycache__\n.pytest_cache\nlocal.txt\n",
}
QUICK = Plan(
    reproduce=1, recheck=2, likely=1, confirmations=2, chance=1.0, reduce=False, undo=False
)
"""For what is not about how sure it is: pytest takes its time to start."""
PYTEST = f"{shlex.quote(sys.executable)} -m pytest -q"


class AgentRun(Recorded):
    """A run in the making, in a project under git that its files are given for."""

    def __init__(self, shell: Shell, files: Mapping[str, str] = PROJECT) -> None:
        self.shell = shell
        write_files(shell.cwd, dict(files))
        plain_git(shell.cwd, "init", "-q")
        plain_git(shell.cwd, "add", ".")
        plain_git(shell.cwd, "commit", "-qm", "one")
        commit = plain_git(shell.cwd, "rev-parse", "HEAD")
        home = shell.cwd / ".git" / "repotrace"
        super().__init__(shell.cwd, home, base_commit=commit, task="work")
        self.environ = clean_environment(shell.home)

    def edit(self, path: str, old: str, new: str) -> None:
        """A step that replaces a text in a file."""
        file = self.workspace / path

        def change() -> None:
            text = file.read_text()
            assert text.count(old) == 1, (path, old)
            file.write_text(text.replace(old, new))

        self.step(change, step_type="edit", description=f"edit {path}")

    def write(self, path: str, text: str | None) -> None:
        """A step that writes a file, or removes it."""
        file = self.workspace / path

        def change() -> None:
            if text is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)

        self.step(change, step_type="edit", description=f"write {path}")

    def runs_tests(self, *tests: str) -> None:
        """A step in which the agent runs tests, for real, and is told each outcome."""
        name = f"s{next(self._numbers)}"
        self.tell("step_started", id=name, step_type="test", description="run tests")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-rA", "-q", "-p", "no:cacheprovider", *tests],
            cwd=self.workspace,
            env={**self.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        for line in done.stdout.splitlines():
            word, _, rest = line.partition(" ")
            if word in ("PASSED", "FAILED", "ERROR"):
                node, _, message = rest.partition(" - ")
                facts = {"node_id": node, "outcome": word.lower(), "origin": "plugin"}
                self.tell("test", step_id=name, runner="pytest", message=message, **facts)
        self.tell("step_ended", id=name)

    # --- Asking -----------------------------------------------------------------------------

    def testing(self, command: str | None = None, **more: str) -> Testing:
        """With our own interpreter, whatever else is on the path."""
        environ = {**self.environ, **more}
        return Testing(command=command or PYTEST, environ=environ, timeout=60)

    def check(
        self,
        *tests: str,
        budget: int | None = None,
        command: str | None = None,
        jobs: int = 1,
        **environ: str,
    ) -> Check:
        """The check of this run."""
        return check_run(
            self.store,
            self.run,
            tests=tests,
            budget=budget,
            testing=self.testing(command, **environ),
            blame=BlameOptions(QUICK, jobs),
        )

    def blame(
        self,
        test: str | None = None,
        *,
        command: str | None = None,
        jobs: int = 1,
        plan: Plan | None = None,
        original_tests: bool = False,
    ) -> Blame:
        """What is blamed for one test."""
        options = BlameOptions(plan or Plan(), jobs, original_tests=original_tests)
        testing = self.testing(command)
        (found,) = blame_run(self.store, self.run, test, testing=testing, options=options)
        return found

    def files(self) -> dict[str, bytes]:
        """All files of the work tree, but for git's own."""
        found = {}
        for top, folders, names in os.walk(self.workspace):
            folders[:] = [name for name in folders if name != ".git"]
            for name in names:
                path = Path(top, name)
                found[str(path.relative_to(self.workspace))] = path.read_bytes()
        return found


def changes(check: Check) -> dict[str, str]:
    """What is said of each test: by its name alone."""
    return {one.test.rpartition("::")[2]: str(one.change) for one in check.tests}
