"""`repotrace check` and `repotrace blame` as a user has them."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from agent_runs import PYTEST, AgentRun
from importing import CLAUDE, RIGHT, SHARED, calc_repository, invoice_repository
from rich.console import Console
from running import Shell, plain_git

from repotrace.render.checks import check_view

HALF = "tests/test_money.py::test_half"


@pytest.fixture
def agent(tmp_path: Path) -> AgentRun:
    made = AgentRun(Shell(tmp_path))
    made.edit("money.py", "a + b", "b + a")
    made.edit("money.py", "a // 2", "(a + 1) // 2")
    made.end()
    return made


def test_check_and_blame(agent: AgentRun) -> None:
    repotrace = agent.shell
    done = repotrace("check", "--test-cmd", PYTEST)
    out = done.stdout.decode()
    assert done.returncode == 1, done.stderr
    assert f"{HALF}  passed before and fails now" in out
    assert "broken by  step 2 · edit money.py" in out
    assert "necessary  undoing it" in out
    assert out.splitlines()[-1] == "checked 4 of 4 · 1 broken · 0 undecided"
    assert b"your files stay as they are" in done.stderr

    known = len(agent.store.memo.executions())
    done = repotrace("blame", "latest", HALF, "--test-cmd", PYTEST)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().startswith(f"{HALF}\n  broken by  step 2")
    assert len(agent.store.memo.executions()) == known, "all of it was known"

    done = repotrace("runs", "show", "--blame")
    lines = done.stdout.decode().splitlines()
    assert lines[0] == HALF
    assert sum("passed  " in line for line in lines) >= 7
    done = repotrace("runs", "show", "--blame", "--json")
    assert json.loads(done.stdout)["blames"][0]["steps"][0]["number"] == 2


def test_the_run_may_be_named_anywhere(agent: AgentRun) -> None:
    repotrace = agent.shell
    first = json.loads(repotrace("runs", "show", "--json").stdout)["run"]["id"]
    done = repotrace("record", "--", "sh", "-c", "echo a note > NOTES")
    assert done.returncode == 0, done.stderr
    for words in ((HALF, first), (HALF, first[:9]), (first, HALF)):
        done = repotrace("blame", *words, "--no-reduce", "--test-cmd", PYTEST)
        assert done.stdout.decode().startswith(f"{HALF}\n  broken by  step 2"), words


def test_from_a_folder_below(agent: AgentRun) -> None:
    repotrace = agent.shell
    below = agent.workspace / "tests"
    done = repotrace("check", "test_more.py", "--test-cmd", PYTEST, cwd=below)
    assert done.stdout.decode().splitlines()[-1] == "checked 1 of 1 · 0 broken · 0 undecided"
    words = ("test_money.py::test_half", "--no-reduce", "--test-cmd", PYTEST)
    done = repotrace("blame", *words, cwd=below)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().startswith(f"{HALF}\n  broken by  step 2")


def test_formats(agent: AgentRun) -> None:
    repotrace = agent.shell
    done = repotrace("check", "--test-cmd", PYTEST, "--format", "json")
    found = json.loads(done.stdout)
    assert (found["broken"], found["exit_code"]) == (1, 1)
    assert found["tests"][0]["blame"]["evidence"]

    done = repotrace("check", "--test-cmd", PYTEST, "--format", "junit")
    suite = ElementTree.fromstring(done.stdout).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "0")

    done = repotrace("check", "--test-cmd", PYTEST, "--format", "github")
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("::error file=tests/test_money.py,title=tests/test_money.py%3A%3A")
    assert lines[-1] == "checked 4 of 4 · 1 broken · 0 undecided"

    done = repotrace("check", "--test-cmd", PYTEST, "--format", "markdown")
    assert "### Broken" in done.stdout.decode()


def test_dry_runs_execute_nothing(agent: AgentRun) -> None:
    repotrace = agent.shell
    done = repotrace("check", "--dry-run", "--test-cmd", PYTEST)
    assert done.returncode == 0, done.stderr
    assert b"4 before, 4 after" in done.stdout
    done = repotrace("blame", "--dry-run", HALF, "--test-cmd", PYTEST)
    assert done.returncode == 0, done.stderr
    assert agent.store.memo.executions() == []


def test_the_command_is_told_once(agent: AgentRun) -> None:
    for jobs in ("1", "2"):
        told = agent.shell("check", "--test-cmd", "sh -c true", "--jobs", jobs).stderr.decode()
        assert told.count("sh -c true") == 1, told
    told = agent.shell("check", "tests/test_more.py", "--test-cmd", PYTEST).stderr.decode()
    assert told.count("-m pytest") == 1, told
    assert re.search(r"^after step 2 of r\w+: tests/test_more.py$", told, re.MULTILINE), told


@pytest.mark.parametrize("count", [1, 4])
def test_an_interrupt_says_what_is_kept(agent: AgentRun, count: int) -> None:
    # The first executions are those of the suites: what is kept of them is of no use to blame.
    seen = agent.workspace.parent / "seen"
    stub = agent.workspace.parent / "suite.sh"
    stub.write_text(
        f"echo x >> '{seen}'\n"
        f"if [ $(wc -l < '{seen}') -eq {count} ]; then kill -INT $PPID; sleep 30; fi\n"
        "grep -q 'a // 2' money.py\n"
    )
    process = agent.shell.start("check", "--test-cmd", f"sh '{stub}'")
    told = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130, told
    said = told.splitlines()[-1]
    assert said == "interrupted" + ("; what was executed for blame is kept" if count > 3 else "")


def test_what_is_found_fits_the_terminal(agent: AgentRun) -> None:
    found = agent.check(HALF)
    for columns in (24, 30, 40, 80):
        terminal = Console(width=columns, file=io.StringIO())
        terminal.print(check_view(found))
        lines = terminal.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(len, lines)) <= columns
        place = next(n for n, line in enumerate(lines) if line.startswith("  proven"))
        indent = 4 if columns < 33 else 13
        assert (lines[place] == "  proven") == (columns < 33)
        following = lines[
            place + 1 : next(
                n for n in range(place + 1, len(lines)) if not lines[n].startswith(" " * 4)
            )
        ]
        assert columns == 80 or len(following) > 1
        assert all(line[:indent].isspace() and line[indent] != " " for line in following)


def test_the_work_tree_against_a_commit(agent: AgentRun) -> None:
    repotrace = agent.shell
    done = repotrace("check", "--base", "HEAD", "--test-cmd", PYTEST)
    out = done.stdout.decode()
    assert done.returncode == 1, done.stderr
    assert f"{HALF}  passed before and fails now" in out
    assert "1 of 2 hunks" in out
    done = repotrace("check", "--base", "HEAD", "--test-cmd", PYTEST, "--format", "github")
    found = re.search(r"passes on the base .(\d+)/\1., fails on the final state", str(done.stdout))
    assert found is not None, done.stdout
    assert b"state 0" not in done.stdout
    done = repotrace("check", "--base", "nowhere", "--test-cmd", PYTEST)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"'nowhere' is no commit" in done.stderr


def test_a_project_in_a_folder_needs_no_preparation(tmp_path: Path) -> None:
    repotrace = Shell(tmp_path)
    for name in ("a", "b"):
        (repotrace.cwd / name / "tests").mkdir(parents=True)
        (repotrace.cwd / name / "money.py").write_text("def half(n):\n    return n / 2\n")
        test = "from money import half\n\n\ndef test_half():\n    assert half(3) == 1.5\n"
        (repotrace.cwd / name / "tests" / "test_half.py").write_text(test)
    plain_git(repotrace.cwd, "init", "-q")
    plain_git(repotrace.cwd, "add", "-A")
    plain_git(repotrace.cwd, "commit", "-q", "-m", "before")
    broken = repotrace.cwd / "b" / "money.py"
    done = repotrace("record", "--", "sh", "-c", "sed -i s,/,//, b/money.py")
    assert (done.returncode, broken.read_text()) == (0, "def half(n):\n    return n // 2\n")

    done = repotrace("check")  # of both projects, that of what changed
    out = done.stdout.decode()
    assert done.returncode == 1, done.stderr
    assert "b/tests/test_half.py::test_half  passed before and fails now" in out
    assert "broken by  step 1" in out
    assert "necessary  undoing it" in out
    assert b"the tests of b" in done.stderr
    done = repotrace("check", "--dry-run", cwd=repotrace.cwd / "a")
    assert b" a (pytest is installed; the tests of a)\n" in done.stdout
    done = repotrace("check", "--base", "HEAD")
    assert b"several projects here: a, b" in done.stderr


def test_without_a_run_it_says_what_to_do(tmp_path: Path) -> None:
    repotrace = Shell(tmp_path)
    repotrace.git("init", "-q")
    done = repotrace("check")
    assert done.returncode == 2
    assert b"--base HEAD" in done.stderr


# --- Sessions of agents ---------------------------------------------------------------------


@pytest.fixture
def session(tmp_path: Path) -> Shell:
    """A session of an agent that repaired `add` at the second try, and what it left."""
    repotrace = Shell(tmp_path)
    repotrace.cwd.rmdir()
    calc_repository(repotrace.cwd)
    place = "".join(c if c.isalnum() and c.isascii() else "-" for c in str(repotrace.cwd))
    folder = repotrace.home / ".claude" / "projects" / place
    folder.mkdir(parents=True)
    told = CLAUDE.read_text().replace("/home/ada/calc", str(repotrace.cwd))
    (folder / CLAUDE.name).write_text(told)
    (repotrace.cwd / "calc.py").write_text(RIGHT)
    return repotrace


def test_the_newest_session_needs_no_preparation(session: Shell) -> None:
    done = session("check", "--test-cmd", PYTEST)
    out = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(b"no run was recorded here; imported r")
    assert done.stderr.count(b"imported") == 1
    assert "fixed: 1\n  test_calc.py::test_add\n" in out
    assert "on inferred states" in out
    assert out.splitlines()[-1] == "checked 1 of 1 · 0 broken · 0 undecided"
    done = session("check", "--session", "latest", "--test-cmd", PYTEST, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["final"]["inferred"] is True


def test_a_session_of_elsewhere_is_meant_for_this_project(tmp_path: Path) -> None:
    repotrace = Shell(tmp_path)
    repotrace.cwd.rmdir()
    calc_repository(repotrace.cwd)
    done = repotrace("check", "--session", CLAUDE, "--test-cmd", PYTEST)
    assert done.returncode == 0, done.stderr
    assert "fixed: 1\n" in done.stdout.decode()
    assert "differs from the work tree in calc.py" in done.stdout.decode()
    assert repotrace("check", "--session", "nowhere").returncode == 2


TRANSCRIPTS = {
    "claude-code": "session/**/*.jsonl",
    "codex": "session/**/*.jsonl",
    "gemini-cli": "session-*.jsonl",
    "inspect-ai": "*.eval",
    "mini-swe-agent": "*.traj.json",
    "opencode": "session-export.json",
    "openhands": "conversations/*",
}


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="the sessions of real agents are not here")
@pytest.mark.parametrize("agent", TRANSCRIPTS)
def test_sessions_of_real_agents(tmp_path: Path, agent: str) -> None:
    """The test that broke midway is blamed on the first edit; nothing is broken at the end."""
    repotrace = Shell(tmp_path)
    repotrace.cwd.rmdir()
    invoice_repository(repotrace.cwd)
    folder = SHARED / "agents" / "fixtures" / agent / "plain"
    plain_git(repotrace.cwd, "apply", str(folder / "final.diff"))
    path = sorted(folder.rglob(TRANSCRIPTS[agent]))[0]
    done = repotrace("check", "--session", path, "--test-cmd", PYTEST, timeout=300)
    assert done.returncode == 0, done.stderr + done.stdout
    assert done.stdout.decode().splitlines()[-1].endswith("· 0 broken · 0 undecided")
    test = "tests/test_duedate.py::test_annual_across_a_leap_day"
    done = repotrace("blame", test, "--test-cmd", PYTEST, "--json", timeout=300)
    (blame,) = json.loads(done.stdout)["blames"]
    if agent == "openhands":
        # Both of its test runs show the code of one edit before, as their tracebacks tell: what it
        # saw fail on the files of the end does not fail there.
        assert (done.returncode, blame["verdict"]) == (1, "not-reproducible")
        assert any("the run saw it fail on the same files" in note for note in blame["notes"])
        return
    assert done.returncode == 0, done.stderr
    (step,) = blame["steps"]
    shown = json.loads(repotrace("runs", "show", "--json").stdout)
    edits = [one["number"] for one in shown["steps"] if one["files"]]
    assert step["number"] == edits[0]
    assert (blame["inferred"], blame["repaired"]) == (True, True)
