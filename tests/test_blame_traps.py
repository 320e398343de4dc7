"""Traps that a verdict can fall into, with the environment of another project than ours."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from agent_runs import AgentRun
from plugged import fingerprint, foreign_environment, interpreter
from running import Shell, clean_environment

SOURCES = {
    "pyproject.toml": '[project]\nname = "money"\nversion = "1"\n',
    "src/money.py": "def add(a, b):\n    return a + b\n\n\ndef half(a):\n    return a // 2\n",
    "tests/test_money.py": "from unittest import TestCase\n\nfrom money import add, half\n\n\n"
    "class Money(TestCase):\n    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n\n"
    "    def test_half(self):\n        self.assertEqual(half(9), 4)\n",
    ".gitignore": ".venv\n__pycache__\n",
}


class Foreign(AgentRun):
    """A project with a `.venv` of another Python, in which it is installed in place."""

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell, SOURCES)
        (self.packages,) = (self.workspace / ".venv" / "lib").glob("python3*/site-packages")
        # What `uv pip install -e .` writes. A test would import the code of the work tree.
        (self.packages / "_money.pth").write_text(f"{self.workspace / 'src'}\n")
        self.edit("src/money.py", "a + b", "b + a")
        self.edit("src/money.py", "a // 2", "a // 3")
        self.edit("pyproject.toml", 'version = "1"', 'version = "2"')
        self.end()
        # The work tree passes: whoever imports from it sees nothing broken anywhere.
        path = self.workspace / "src" / "money.py"
        path.write_text(path.read_text().replace("a // 3", "a // 2"))


def assert_found(agent: Foreign, command: str, test: str) -> None:
    """`check` as it is, and what it leaves of the environment and of the work tree."""
    files, packages = agent.files(), fingerprint(agent.packages)
    done = agent.shell("check", "--format", "json", timeout=300)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["command"].startswith(command)
    assert told["notes"] == []
    (entry,) = told["tests"]
    assert (entry["test"], entry["change"]) == (test, "broken")
    blame = entry["blame"]
    assert [step["number"] for step in blame["steps"]] == [2]
    assert blame["breaks"][0]["necessary"] is True
    assert fingerprint(agent.packages) == packages, "not even a cache of bytecode"
    assert agent.files() == files


def test_unittest_of_another_python_with_an_editable_install(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    base = interpreter("3.9")
    argv = [base, "-m", "venv", "--without-pip", str(shell.cwd / ".venv")]
    subprocess.run(argv, check=True, capture_output=True, env=clean_environment(shell.home))
    agent = Foreign(shell)
    line = ".venv/bin/python -m unittest discover -v -s tests"
    files = agent.files()
    done = shell("check", "--test-cmd", line, "--format", "json", timeout=300)
    assert done.returncode == 1, done.stderr
    (entry,) = json.loads(done.stdout)["tests"]
    assert entry["test"] == "test_money.Money.test_half"
    assert [step["number"] for step in entry["blame"]["steps"]] == [2]
    assert entry["blame"]["notes"] == []
    assert agent.files() == files


@pytest.mark.slow
@pytest.mark.parametrize(("version", "package"), [("3.9", "pytest==7.4.4"), ("3.13", "pytest>=9")])
def test_pytest_of_another_python_with_an_editable_install(
    tmp_path: Path, version: str, package: str
) -> None:
    shell = Shell(tmp_path)
    foreign_environment(shell.cwd / ".venv", version, package)
    agent = Foreign(shell)
    assert_found(agent, ".venv/bin/python -m pytest", "tests/test_money.py::Money::test_half")
