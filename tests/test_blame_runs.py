"""`blame` on recorded runs: what is executed, kept, and said."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_runs import MONEY, PROJECT, QUICK, AgentRun
from plugged import write_files
from running import Shell

from repotrace.blame import Plan
from repotrace.errors import RepoTraceError
from repotrace.records.blame import Blame
from repotrace.runs.blame import BlameOptions, blame_run
from repotrace.runs.testing.options import Testing
from repotrace.storage import Store

HALF = "tests/test_money.py::test_half"
PLAIN = {"value.txt": "good\n", "other.txt": "0\n", ".gitignore": "__pycache__\nlocal.txt\n"}
GREP = "grep -q good value.txt"
SOURCE = "".join(f"line {number}\n" for number in range(40))


@pytest.fixture
def agent(tmp_path: Path) -> AgentRun:
    """In a Python project."""
    return AgentRun(Shell(tmp_path))


@pytest.fixture
def plain(tmp_path: Path) -> AgentRun:
    """In a project of two files of text, judged by a command that takes a millisecond."""
    return AgentRun(Shell(tmp_path), PLAIN)


def steps(found: Blame) -> list[int]:
    return [step.number for step in found.steps]


def executed(agent: AgentRun) -> int:
    return len(agent.store.memo.executions())


# --- The search, executed -------------------------------------------------------------------


def test_any_command_will_do(plain: AgentRun) -> None:
    before = plain.files()
    for number in range(1, 9):
        plain.write("other.txt", f"{number}\n")
    plain.write("value.txt", "bad\n")
    for number in range(10, 15):
        plain.write("other.txt", f"{number}\n")
    plain.end()
    found = plain.blame(command=GREP)
    assert (found.verdict, found.named, steps(found)) == ("necessary", True, [9])
    (broken,) = found.breaks
    assert (broken.passes_after, broken.fails_after) == (8, 9)
    assert broken.passed >= 7
    assert broken.failed >= 7
    assert broken.odds < 0.001
    assert broken.hunks is not None
    assert broken.hunks[0].lines == ("@@ -1,1 +1,1 @@", "-good", "+bad")
    assert found.exit_code == 0
    assert found.seen.first_step is None
    assert plain.files() == before | {"value.txt": b"bad\n", "other.txt": b"14\n"}


def test_what_was_executed_is_not_executed_again(plain: AgentRun) -> None:
    plain.write("other.txt", "1\n")
    plain.write("value.txt", "bad\n")
    plain.end()
    first = plain.blame(command=GREP)
    known = executed(plain)
    # Undoing the only change gives the files of before, which were executed already.
    assert known == len({one.source for one in first.evidence}) < len(first.evidence)
    second = plain.blame(command=GREP)
    assert executed(plain) == known
    assert (second.verdict, steps(second)) == (first.verdict, steps(first))
    kept = plain.store.memo.executions(ids=[one.source for one in first.evidence])
    assert {one.command.exit_code for one in kept} == {0, 1}
    # Another command is another question.
    plain.blame(command=f"{GREP} other.txt")
    assert executed(plain) > known
    # And so is another environment.
    known = executed(plain)
    testing = Testing(command=GREP, environ=plain.environ, rerun=True)
    blame_run(plain.store, plain.run, testing=testing)
    assert executed(plain) > known


def test_an_interrupted_search_goes_on(plain: AgentRun) -> None:
    for number in range(1, 20):
        plain.write("other.txt", f"{number}\n")
    plain.write("value.txt", "bad\n")
    plain.end()
    left = 5

    def interrupt(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt

    testing = plain.testing(GREP)
    options = BlameOptions(on_progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        blame_run(plain.store, plain.run, "", testing=testing, options=options)
    assert executed(plain) == 5
    found = plain.blame(command=GREP)
    assert steps(found) == [20]
    assert executed(plain) == len({one.source for one in found.evidence})


def test_in_parallel_the_same(plain: AgentRun) -> None:
    for number in range(1, 30):
        plain.write("value.txt" if number == 13 else "other.txt", f"bad {number}\n")
    plain.end()
    found = plain.blame(command=GREP, jobs=3)
    assert (steps(found), found.verdict) == ([13], "necessary")


def test_workers_have_folders_of_their_own(plain: AgentRun, tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in range(1, 12):
        plain.write("value.txt" if number == 6 else "other.txt", f"bad {number}\n")
    plain.end()
    script = f'echo "$REPOTRACE_WORKER $TMPDIR $PWD" >> {log}; touch $TMPDIR/x junk; {GREP}'
    found = plain.blame(command=script, jobs=2)
    assert steps(found) == [6]
    lines = {tuple(line.split()) for line in log.read_text().splitlines()}
    assert {worker for worker, *_ in lines} == {"0", "1"}
    assert len({folder for _, _, folder in lines}) == 2
    assert not any(Path(folder).exists() for _, *folders in lines for folder in folders)
    assert not (plain.workspace / "junk").exists()


def test_only_the_hunk_that_matters(plain: AgentRun) -> None:
    plain.write("value.txt", f"{SOURCE}good\n{SOURCE}")
    changed = SOURCE.replace("line 7\n", "line seven\n").replace("line 30\n", "")
    plain.write("value.txt", f"{changed}bad\n{SOURCE}")
    plain.edit("value.txt", "line seven\n", "line 7 again\n")
    plain.end()
    found = plain.blame(command=GREP)
    (broken,) = found.breaks
    assert (broken.minimal, broken.hunks_of, broken.necessary) == (True, 3, True)
    assert broken.hunks is not None
    (hunk,) = broken.hunks
    assert hunk.lines == ("@@ -41,1 +40,1 @@", "-good", "+bad")


def test_secrets_in_hunks_are_masked(plain: AgentRun) -> None:
    secret = "ghp_" + "".join(chr(97 + number % 26) for number in range(36))
    plain.write("value.txt", f"token = {secret}\n")
    plain.end()
    found = plain.blame(command=GREP)
    assert found.breaks[0].hunks is not None
    assert "+token = " in " ".join(found.breaks[0].hunks[0].lines)
    assert secret not in found.model_dump_json()
    kept = [plain.store.home / name for name in ("runs.db", "runs.db-wal")]
    assert not any(secret.encode() in path.read_bytes() for path in kept if path.exists())


def test_two_breaks_in_turn(plain: AgentRun) -> None:
    plain.write("other.txt", "wrong\n")
    plain.write("note.txt", "1\n")
    plain.write("value.txt", "bad\n")
    plain.end()
    found = plain.blame(command="grep -q good value.txt && ! grep -q wrong other.txt")
    assert [list(one.steps) for one in found.breaks] == [[1], [3]]
    assert [one.necessary for one in found.breaks] == [False, True]
    found = plain.blame(command="grep -q good value.txt || ! grep -q wrong other.txt")
    assert [list(one.steps) for one in found.breaks] == [[3]]


def test_broken_before_and_nothing_broken(plain: AgentRun) -> None:
    plain.write("other.txt", "1\n")
    plain.end()
    found = plain.blame(command="grep -q missing value.txt")
    assert (found.verdict, found.named, found.exit_code) == ("broken-before", False, 1)
    found = plain.blame(command=GREP)
    assert (found.verdict, found.exit_code) == ("not-reproducible", 1)


def test_a_script_may_say_that_it_cannot_tell(plain: AgentRun) -> None:
    """As for `git bisect run`, 125 is no answer."""
    plain.write("other.txt", "1\n")
    plain.write("other.txt", "skip\n")
    plain.write("value.txt", "bad\n")
    plain.write("other.txt", "3\n")
    plain.end()
    found = plain.blame(command=f"grep -q skip other.txt && exit 125; {GREP}")
    assert (found.verdict, found.exit_code) == ("range", 2)
    assert found.breaks[0].steps == (2, 3, 4)


def test_a_budget_that_is_too_small(plain: AgentRun) -> None:
    for number in range(1, 30):
        plain.write("value.txt" if number == 13 else "other.txt", f"bad {number}\n")
    plain.end()
    found = plain.blame(command=GREP, plan=Plan(budget=4))
    assert (found.verdict, found.exhausted, found.exit_code) == ("undecided", True, 2)
    assert executed(plain) == 4


def test_a_timeout_is_no_failure(plain: AgentRun) -> None:
    plain.write("other.txt", "slow\n")
    plain.write("value.txt", "bad\n")
    plain.write("other.txt", "3\n")
    plain.end()
    testing = Testing(
        command=f"grep -q slow other.txt && sleep 60; {GREP}", environ=plain.environ, timeout=0.5
    )
    (found,) = blame_run(plain.store, plain.run, testing=testing)
    assert "timeout" in {one.kind for one in found.evidence}
    assert found.breaks[0].steps == (1, 2, 3)


def test_the_setup_runs_in_every_copy(plain: AgentRun) -> None:
    plain.write("repotrace.toml", '[check]\nsetup = "tr a-z A-Z < value.txt > MADE"\n')
    plain.write("value.txt", "bad\n")
    plain.end()
    found = plain.blame(command="grep -q GOOD MADE")
    assert steps(found) == [2]
    assert not (plain.workspace / "MADE").exists()


def test_what_a_state_lacks_can_be_linked(plain: AgentRun) -> None:
    """`local.txt` is ignored by git; no state holds it."""
    (plain.workspace / "local.txt").write_text("needed\n")
    plain.write("value.txt", "bad\n")
    plain.end()
    command = f"cat local.txt && {GREP}"
    found = plain.blame(command=command)
    assert found.verdict == "depends-on-uncaptured-files"
    assert found.uncaptured == ("local.txt",)
    assert found.exit_code == 2
    (plain.workspace / "repotrace.toml").write_text('[check]\nlink = ["local.txt"]\n')
    found = plain.blame(command=command)
    assert (found.verdict, steps(found)) == ("necessary", [1])


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("limits.py", "import limits"),
        ("src/limits.py", "import limits"),
        ("parts/limits.py", "from parts import limits"),
        ("parts/limits/__init__.py", "from parts.limits import MOST"),
    ],
)
def test_a_generated_module_that_git_ignores(tmp_path: Path, path: str, line: str) -> None:
    """It is here, and in no state: nothing is broken before, and no step is to blame."""
    more = {".gitignore": "__pycache__\nlimits.py\nlimits/\n", "parts/__init__.py": ""}
    ini = "[pytest]\npythonpath = . src\n"
    agent = AgentRun(Shell(tmp_path), PROJECT | more | {"pytest.ini": ini})
    write_files(agent.workspace, {path: "MOST = 9\n"})
    agent.write("money.py", f"{line}\n{MONEY}")
    agent.write("money.py", f"{line}\n\n{MONEY}")
    agent.end()
    found = agent.blame(HALF, plan=QUICK)
    assert (found.verdict, found.uncaptured) == ("depends-on-uncaptured-files", (path,))


def test_a_file_that_is_only_complained_about(plain: AgentRun) -> None:
    (plain.workspace / "local.txt").write_text("for somebody else\n")
    plain.write("other.txt", "1\n")
    plain.write("value.txt", "bad\n")
    plain.end()
    found = plain.blame(command=f"cat local.txt; {GREP}")
    assert (found.verdict, steps(found), found.uncaptured) == ("necessary", [2], ())


def test_a_module_that_was_deleted_and_is_back(tmp_path: Path) -> None:
    """A state holds it: the step that deleted it is to blame, whatever is here by now."""
    agent = AgentRun(Shell(tmp_path), PROJECT | {"limits.py": "MOST = 9\n"})
    agent.write("money.py", f"import limits\n{MONEY}")
    agent.write("limits.py", None)
    agent.end()
    write_files(agent.workspace, {"limits.py": "MOST = 9\n"})
    found = agent.blame(HALF, plan=QUICK)
    assert (found.verdict, steps(found), found.uncaptured) == ("proven", [2], ())


def test_states_that_were_pruned(plain: AgentRun) -> None:
    plain.write("value.txt", "bad\n")
    plain.end()
    plain.store.snapshots.delete(f"runs/{plain.id}")
    plain.store.snapshots.prune(grace=0)
    plain.store.close()
    store = Store(plain.store.home)
    with pytest.raises(RepoTraceError, match="not kept any more"):
        blame_run(store, plain.run, testing=plain.testing(GREP))
    store.close()


def test_an_environment_that_changed(plain: AgentRun, tmp_path: Path) -> None:
    """It passed for the agent, and fails on every state now: a package went meanwhile."""
    plain.write("other.txt", "1\n")
    plain.step(step_type="test", keep=False)
    plain.tell(
        "test", step_id="s2", node_id="t", outcome="passed", origin="plugin", state_id=plain.state()
    )
    plain.step(step_type="command", keep=False)
    plain.tell("command", step_id="s3", command={"argv": ["pip", "install", "-U", "thing"]})
    plain.write("other.txt", "2\n")
    plain.end()
    found = plain.blame("t", command=f"test -e {tmp_path / 'installed'}")
    assert (found.verdict, found.named, found.exit_code) == ("environment", False, 2)
    assert steps(found) == [3]


def test_what_the_run_saw_is_said_where_it_differs(plain: AgentRun) -> None:
    plain.write("other.txt", "1\n")
    plain.step(step_type="test", keep=False)
    facts = {"origin": "plugin", "details": "E  boom", "state_id": plain.state()}
    plain.tell("test", step_id="s2", node_id="t", outcome="failed", **facts)
    plain.end()
    found = plain.blame("t", command=GREP)
    assert found.verdict in ("not-reproducible", "flaky")
    assert found.exit_code in (1, 2)


# --- pytest ---------------------------------------------------------------------------------


def test_a_test_that_the_run_repaired(agent: AgentRun) -> None:
    agent.runs_tests()
    agent.edit("money.py", "a // 2", "(a + 1) // 2")
    agent.write("notes.txt", "1\n")
    agent.runs_tests()
    agent.edit("money.py", "(a + 1) // 2", "a // 2")
    agent.runs_tests()
    agent.end()
    found = agent.blame(HALF, plan=QUICK)
    assert (steps(found), found.repaired, found.named) == ([2], True, True)
    assert found.breaks[0].given_passed == 1, "what the run saw on the same files"
    assert (found.seen.first_step, found.seen.repaired_after) == (4, 6)
    assert found.seen.runs == 3


def test_a_new_test_that_never_passed(agent: AgentRun) -> None:
    agent.write("notes.txt", "1\n")
    agent.write("tests/test_new.py", "def test_new():\n    assert 0\n")
    agent.write("notes.txt", "2\n")
    agent.end()
    found = agent.blame("tests/test_new.py::test_new", plan=QUICK)
    assert (found.verdict, found.test_step, found.named) == ("never-passed", 2, False)


def test_a_new_test_of_what_worked_before(agent: AgentRun) -> None:
    """The final tests lie over all states, so the older ones can tell."""
    agent.edit("money.py", "a // 2", "(a + 1) // 2")
    agent.write(
        "tests/test_new.py", "from money import half\n\ndef test_new():\n    assert half(5) == 2\n"
    )
    agent.end()
    found = agent.blame("tests/test_new.py::test_new", plan=QUICK)
    assert (steps(found), found.verdict) == ([1], "proven")
    assert found.overlay == ("tests/test_new.py",)


def test_only_the_test_changed(agent: AgentRun) -> None:
    agent.edit("money.py", "a + b", "b + a")
    agent.edit("tests/test_money.py", "half(9) == 4", "half(9) == 5")
    agent.end()
    found = agent.blame(HALF, plan=QUICK)
    assert (found.verdict, found.test_step, steps(found)) == ("test-changed", 2, [2])
    assert found.exit_code == 0


def test_a_stretch_that_cannot_be_imported(agent: AgentRun) -> None:
    """Another failure than that of the end is no answer."""
    agent.edit("money.py", "a + b", "b + a")
    agent.edit("money.py", "def half", "def half(")
    agent.write("notes.txt", "1\n")
    agent.edit("money.py", "def half((a):\n    return a // 2", "def half(a):\n    return a // 3")
    agent.end()
    found = agent.blame(HALF, plan=QUICK)
    assert (found.verdict, found.breaks[0].steps) == ("range", (2, 3, 4))
    assert found.exit_code == 2


def test_the_same_change_once_more(plain: AgentRun) -> None:
    """Made, undone, and made again where the search does not look: the last time counts."""
    for number in range(1, 22):
        texts = {2: "bad\n", 8: "good\n", 13: "bad\n"}
        if number in texts:
            plain.write("value.txt", texts[number])
        else:
            plain.write("other.txt", f"{number}\n")
    plain.end()
    found = plain.blame(command=GREP)
    assert (found.verdict, steps(found), found.first_broken) == ("necessary", [13], (2,))


def test_the_step_of_a_range_that_made_the_hunk(plain: AgentRun) -> None:
    """None of the states between can be run, and still one hunk of them breaks it."""
    plain.write("value.txt", f"{SOURCE}good\n{SOURCE}")
    plain.write("other.txt", "skip\n")
    plain.write("value.txt", f"first\n{SOURCE}good\n{SOURCE}")
    plain.write("value.txt", f"first\n{SOURCE}bad\n{SOURCE}")
    plain.write("value.txt", f"first\n{SOURCE}bad\n{SOURCE}last\n")
    plain.write("other.txt", "1\n")
    plain.end()
    found = plain.blame(command=f"grep -q skip other.txt && exit 125; {GREP}")
    assert (found.verdict, found.named) == ("range", False)
    (broken,) = found.breaks
    assert broken.steps == (2, 3, 4, 5, 6)
    assert broken.hunks is not None
    assert [(hunk.path, hunk.step) for hunk in broken.hunks] == [("value.txt", 4)]


def test_a_file_that_cannot_be_imported_at_the_end(agent: AgentRun) -> None:
    agent.write("notes.txt", "1\n")
    agent.edit("money.py", "def half", "def third")
    agent.write("notes.txt", "2\n")
    agent.end()
    found = agent.blame(HALF, plan=QUICK)
    assert (steps(found), found.verdict) == ([2], "proven")
    assert "cannot import name 'half'" in found.message


def test_a_flaky_test(agent: AgentRun, tmp_path: Path) -> None:
    """It fails every other time, on all states."""
    count = tmp_path / "count"
    count.write_text("0")
    agent.write(
        "tests/test_flaky.py",
        f"from pathlib import Path\n\n\ndef test_flaky():\n    file = Path({str(count)!r})\n"
        "    number = int(file.read_text()) + 1\n    file.write_text(str(number))\n"
        "    assert number % 2\n",
    )
    agent.write("notes.txt", "1\n")
    agent.end()
    found = agent.blame("tests/test_flaky.py::test_flaky", plan=Plan(budget=12))
    assert (found.verdict, found.named, found.exit_code) == ("flaky", False, 2)
    assert found.flaky is not None
    assert found.flaky.after.failed > 0


def test_every_failing_test_is_found(agent: AgentRun) -> None:
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    found = blame_run(
        agent.store,
        agent.run,
        testing=agent.testing(),
        options=BlameOptions(QUICK),
    )
    assert [one.test for one in found] == [HALF, "tests/test_more.py::test_more"]
    assert [steps(one) for one in found] == [[1], [1]]
    assert agent.store.memo.verdicts(agent.id)[0].test == HALF


def test_files_folders_and_what_is_not_there(agent: AgentRun) -> None:
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    options = BlameOptions(QUICK)
    testing = agent.testing()
    found = blame_run(
        agent.store, agent.run, "tests/test_more.py", testing=testing, options=options
    )
    assert [one.test for one in found] == ["tests/test_more.py::test_more"]
    (one,) = blame_run(agent.store, agent.run, f"{HALF}x", testing=testing, options=options)
    assert (one.verdict, one.exit_code, one.test_step) == ("no-such-test", 2, None)


# --- The traps ------------------------------------------------------------------------------


def test_a_stale_cache_of_bytecode_passes_nothing(agent: AgentRun) -> None:
    """The two states differ by one byte within a second; `PYTHONDONTWRITEBYTECODE` is not set."""
    assert "PYTHONDONTWRITEBYTECODE" not in agent.environ
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    found = agent.blame(HALF, plan=QUICK)
    assert steps(found) == [1]
    assert {one.kind for one in found.evidence if one.step_number == 0} == {"passed"}
    assert {one.kind for one in found.evidence if one.step_number == 1} == {"failed"}


def test_exit_code_4_means_two_things(agent: AgentRun) -> None:
    """pytest gives it for a test that is not there, and for one whose file has an error."""
    agent.write("tests/test_more.py", "def test_other():\n    assert 1\n")
    agent.write("notes.txt", "1\n")
    agent.end()
    found = agent.blame("tests/test_more.py::test_more", plan=QUICK)
    assert (found.verdict, found.test_step) == ("test-changed", 1)
    assert "missing" in {one.kind for one in found.evidence}


def test_what_tests_write_and_leave_running_is_gone(agent: AgentRun, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    agent.write(
        "tests/test_dirty.py",
        "import subprocess, sys\nfrom pathlib import Path\nfrom money import half\n\n\n"
        "def test_dirty():\n    assert not Path('left').exists()\n    Path('left').mkdir()\n"
        "    Path('money.py').write_text('broken')\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"    Path({str(pid)!r}).open('a').write(f'{{child.pid}}\\n')\n"
        "    assert half(9) == 4\n",
    )
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    found = agent.blame("tests/test_dirty.py::test_dirty", plan=QUICK)
    assert (steps(found), found.verdict) == ([2], "proven")
    pids = pid.read_text().split()
    assert len(pids) >= 4
    alive = [one for one in pids if Path(f"/proc/{one}/cmdline").exists()]
    assert not any(b"sleep" in Path(f"/proc/{one}/cmdline").read_bytes() for one in alive)
    assert not (agent.workspace / "left").exists()


def test_code_of_elsewhere_is_refused(agent: AgentRun, tmp_path: Path) -> None:
    """An installed copy of the project would be tested in the place of every state."""
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "money.py").write_text("def add(a, b):\n    return a + b\n\n\nhalf = add\n")
    agent.write("pytest.ini", "[pytest]\naddopts = --import-mode=importlib\n")
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    testing = agent.testing(PYTHONPATH=str(installed), PYTHONSAFEPATH="1")
    with pytest.raises(RepoTraceError, match=r"import money from .*/installed/money\.py"):
        blame_run(agent.store, agent.run, HALF, testing=testing)


def test_a_folder_of_the_workspace_on_the_path_is_that_of_the_state(agent: AgentRun) -> None:
    """As an editable install has it: the path of the workspace itself."""
    agent.write("pytest.ini", "[pytest]\naddopts = --import-mode=importlib\n")
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    testing = agent.testing(PYTHONPATH=str(agent.workspace), PYTHONSAFEPATH="1")
    (found,) = blame_run(agent.store, agent.run, HALF, testing=testing, options=BlameOptions(QUICK))
    assert steps(found) == [2]


def test_another_interpreter_without_us(agent: AgentRun) -> None:
    """The plug-ins come along; nothing of RepoTrace is installed there."""
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    isolated = f"{shlex.quote(sys.executable)} -m pytest -q -p no:repotrace"
    found = agent.blame(HALF, command=isolated, plan=QUICK)
    assert steps(found) == [1]
