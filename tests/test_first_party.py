"""Whether the tests import the code of the state: what is refused, and what cannot be seen."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest
from agent_runs import QUICK, AgentRun, changes
from running import Shell

from repotrace.errors import RepoTraceError
from repotrace.runs.blame import BlameOptions
from repotrace.runs.check import check_run

PYTHON = shlex.quote(sys.executable)
UNITTEST = f"{PYTHON} -m unittest discover -v -s tests"
MONEY = "def half(a):\n    return a // 2\n"
TESTS = """from unittest import TestCase, main

from money import half


class Money(TestCase):
    def test_half(self):
        self.assertEqual(half(9), 4)


if __name__ == "__main__":
    main()
"""
UNSEEN = "is taken for granted"


class Sourced(AgentRun):
    """A project whose code lies in `src`, which somebody has to put on the path."""

    def __init__(self, folder: Path) -> None:
        files = {"src/money.py": MONEY, "tests/test_money.py": TESTS, "run.sh": ""}
        super().__init__(Shell(folder), files)
        self.installed = folder / "installed"
        self.installed.mkdir()
        (self.installed / "money.py").write_text(MONEY)
        self.edit("src/money.py", "a // 2", "a // 3")
        self.end()


@pytest.fixture
def agent(tmp_path: Path) -> Sourced:
    return Sourced(tmp_path)


@pytest.mark.parametrize(
    "command",
    [
        UNITTEST,
        f"{PYTHON} tests/test_money.py",
        f"true && {PYTHON} tests/test_money.py",
        f"{PYTHON} -c 'import money; raise SystemExit(money.half(9) != 4)'",
    ],
)
def test_an_installed_copy_is_refused(agent: Sourced, command: str) -> None:
    """Without that the broken code would pass on all states."""
    with pytest.raises(RepoTraceError, match=r"import money from .*/installed/money\.py"):
        agent.check(command=command, PYTHONPATH=str(agent.installed))


@pytest.mark.parametrize("command", [UNITTEST, f"{PYTHON} tests/test_money.py"])
def test_the_code_of_the_state_is_seen(agent: Sourced, command: str) -> None:
    """The workspace on the path, as an editable install has it, means the copy."""
    place = str(agent.workspace / "src")
    check = agent.check(command=command, PYTHONPATH=place)
    assert list(changes(check).values()) == ["broken"]
    assert not any(UNSEEN in note for note in check.notes)
    blame = check.tests[0].blame
    assert blame is not None
    assert [step.number for step in blame.steps] == [1]
    assert not any(UNSEEN in note for note in blame.notes)


@pytest.mark.parametrize(
    "command",
    [
        "grep -q 'a // 2' src/money.py",
        f"{PYTHON} -I -c \"assert 'a // 2' in open('src/money.py').read()\"",
    ],
)
def test_what_cannot_be_seen_is_said(agent: Sourced, command: str) -> None:
    check = agent.check(command=command)
    assert list(changes(check).values()) == ["broken"]
    assert any(UNSEEN in note for note in check.notes)
    blame = check.tests[0].blame
    assert blame is not None
    assert any(UNSEEN in note for note in blame.notes)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_of_node_it_is_said(tmp_path: Path) -> None:
    agent = AgentRun(
        Shell(tmp_path),
        {
            "half.js": "exports.half = (a) => Math.floor(a / 2)\n",
            "half.test.js": "const test = require('node:test'), assert = require('node:assert')\n"
            "test('half', () => assert.equal(require('./half').half(9), 4))\n",
        },
    )
    agent.edit("half.js", "a / 2", "a / 3")
    agent.end()
    check = agent.check(command="node --test")
    assert "broken" in changes(check).values()
    assert any(UNSEEN in note for note in check.notes)


def test_packages_that_are_links_to_the_work_tree_are_named(tmp_path: Path) -> None:
    """As the workspaces of npm have them."""
    shell = Shell(tmp_path)
    modules = shell.cwd / "node_modules"
    (modules / "@ours").mkdir(parents=True)
    (modules / "other").mkdir()
    (modules / "same").symlink_to("other")
    (modules / "@ours" / "half").symlink_to("../../packages/half")
    agent = AgentRun(shell, {"packages/half/half.txt": "a / 2\n", ".gitignore": "node_modules\n"})
    agent.edit("packages/half/half.txt", "2", "3")
    agent.end()
    check = agent.check(command="grep -q 'a / 2' packages/half/half.txt")
    (note,) = check.notes
    assert note.startswith("node_modules links @ours/half to the work tree itself: ")


def test_another_sitecustomize_still_does_its_work(agent: Sourced, tmp_path: Path) -> None:
    """And what the tests start is as it was: no variable of ours for the first process."""
    place = tmp_path / "customized"
    place.mkdir()
    (place / "sitecustomize.py").write_text("import sys\n\nsys.customized = 'yes'\n")
    code = (
        "import os, subprocess, sys; assert sys.customized == 'yes'; import sitecustomize;"
        " assert 'customized' in sitecustomize.__file__;"
        " assert 'REPOTRACE_IMPORTS_FIRST' not in os.environ;"
        " again = 'import sys; print(sys.customized)';"
        " assert subprocess.check_output([sys.executable, '-c', again]) == b'yes\\n'"
    )
    testing = agent.testing(f"{PYTHON} -c {shlex.quote(code)}", PYTHONPATH=str(place))
    check = check_run(agent.store, agent.run, testing=testing, blame=BlameOptions(QUICK))
    assert (check.exit_code, check.tests) == (0, ())


def test_pytest_without_its_plug_ins(agent: Sourced) -> None:
    """`PYTEST_DISABLE_PLUGIN_AUTOLOAD` keeps ours out unless they are named."""
    with pytest.raises(RepoTraceError, match=r"import money from .*/installed/money\.py"):
        agent.check(PYTHONPATH=str(agent.installed), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
