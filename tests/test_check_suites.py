"""Both suites of a check at once."""

from __future__ import annotations

import shlex
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
from agent_runs import PROJECT, AgentRun, changes
from running import Shell

from repotrace.runs.blame import BlameOptions
from repotrace.runs.check import check_run

LOCKED = """import os
import time
from pathlib import Path

from money import half

PLACE = Path({place!r})


def test_locked():
    with (PLACE / "folders").open("a") as file:
        print(os.getcwd(), os.environ["TMPDIR"], file=file)
    try:
        (PLACE / "lock").mkdir()
    except FileExistsError:
        (PLACE / "refused").write_text(os.environ["REPOTRACE_WORKER"])
        raise AssertionError("the database is locked") from None
    deadline = time.monotonic() + 30
    while not (PLACE / "refused").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    (PLACE / "lock").rmdir()


def test_half():
    assert half(9) == 4
"""
"""The first one that gets the lock keeps it until another one was refused."""


@pytest.fixture
def agent(tmp_path: Path) -> AgentRun:
    return AgentRun(Shell(tmp_path))


def test_the_same_is_found(agent: AgentRun) -> None:
    agent.edit("money.py", "a // 2", "(a + 1) // 2")
    agent.write("tests/test_new.py", "def test_new():\n    assert True\n")
    agent.end()
    check = agent.check(jobs=2)
    assert changes(check) == {"test_half": "broken", "test_new": "new"}
    assert (check.summary, check.exit_code) == ("checked 5 of 5 · 1 broken · 0 undecided", 1)
    assert check.notes == ()
    blamed = [one.blame.steps[0].number for one in check.tests if one.blame is not None]
    assert blamed == [1]
    by_id = {one.id: one for one in agent.store.memo.executions()}
    assert not by_id[check.base.execution].alone
    assert not by_id[check.final.execution].alone


def test_what_fails_beside_the_other_suite_alone_is_what_counts(tmp_path: Path) -> None:
    place = tmp_path / "database"
    place.mkdir()
    text = LOCKED.format(place=str(place))
    agent = AgentRun(Shell(tmp_path), {**PROJECT, "tests/test_locked.py": text})
    agent.edit("money.py", "a + b", "b + a")
    agent.end()
    check = agent.check(jobs=2)
    assert (place / "refused").read_text() in ("0", "1"), "they ran at the same time"
    assert (changes(check), check.exit_code) == ({}, 0)
    (note,) = (note for note in check.notes if "alone counts" in note)
    assert note.startswith("1 test gave another result beside the other suite")
    assert note.endswith(": tests/test_locked.py::test_locked")
    folders = {line.split()[0] for line in (place / "folders").read_text().splitlines()}
    temporary = {line.split()[1] for line in (place / "folders").read_text().splitlines()}
    assert len(folders) == len(temporary) == 2


def test_a_suite_that_does_not_end(agent: AgentRun) -> None:
    """It is given its time once more, alone."""
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    command = "grep -q 'a // 2' money.py || sleep 600"
    testing = replace(agent.testing(command), timeout=2)
    check = check_run(agent.store, agent.run, testing=testing, blame=BlameOptions(jobs=2))
    assert (check.base.complete, check.final.complete) == (True, False)
    assert check.final.problem == "timed out after 2 s"
    assert (check.exit_code, changes(check)) == (1, {command: "broken"}), "it ended before"
    by_id = {one.id: one for one in agent.store.memo.executions()}
    assert by_id[check.final.execution].alone


def test_an_interrupt_ends_both(agent: AgentRun, tmp_path: Path) -> None:
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    pids = tmp_path / "pids"
    # A shell may miss an interrupt while it starts a program; one that becomes it does not.
    line = f"echo $$ >> {shlex.quote(str(pids))}; exec sleep 600"
    process = agent.shell.start("check", "--jobs", "2", "--test-cmd", line)
    interrupt_when_running(process, pids, 2)


def interrupt_when_running(process: subprocess.Popen[bytes], pids: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while not pids.exists() or len(pids.read_text().split()) < count:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert b"interrupted" in told
    alive = [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]
    assert alive == []


def test_an_interrupt_ends_what_blame_executes(agent: AgentRun, tmp_path: Path) -> None:
    for number in range(4):
        agent.write("money.py", f"number = {number}\n")
    agent.end()
    pids = tmp_path / "pids"
    line = f"echo $$ >> {shlex.quote(str(pids))}; exec sleep 600"
    process = agent.shell.start("blame", "--jobs", "2", "--test-cmd", line)
    interrupt_when_running(process, pids, 1)


def test_a_command_that_names_no_tests(agent: AgentRun) -> None:
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    check = agent.check(command="grep -q 'a // 2' money.py", jobs=2)
    assert [one.change for one in check.tests] == ["broken"]
    assert check.exit_code == 1
