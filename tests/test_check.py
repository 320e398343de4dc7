"""`check`: what a run did to the tests of its project."""

from __future__ import annotations

import io
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from agent_runs import PROJECT, QUICK, TESTS, AgentRun, changes
from rich.console import Console
from running import Shell

from repotrace.records.blame import Blame, CheckedTest
from repotrace.render.checks import check_view
from repotrace.runs.blame import BlameOptions, blame_run
from repotrace.runs.check import check_run
from repotrace.storage.memo import Execution


def blamed(entry: CheckedTest) -> Blame:
    assert entry.blame is not None
    return entry.blame


def executed(agent: AgentRun, blame: Blame) -> list[Execution]:
    """What a verdict rests on."""
    known = {one.id: one for one in agent.store.memo.executions()}
    return [known[one.source] for one in blame.evidence]


@pytest.fixture
def agent(tmp_path: Path) -> AgentRun:
    return AgentRun(Shell(tmp_path))


def test_an_agent_that_broke_deleted_skipped_and_hid(agent: AgentRun) -> None:
    """It ran one test, and says all is well."""
    before = agent.files()
    agent.edit("money.py", "a + b", "a + b + 0")
    agent.edit("money.py", "a // 2", "(a + 1) // 2")
    agent.runs_tests("tests/test_money.py::test_add")
    agent.edit("tests/test_money.py", "def test_none():\n    assert add(0, 0) == 0\n", "")
    agent.edit(
        "tests/test_money.py",
        "from money import add, half\n",
        "import pytest\n\nfrom money import add, half\n",
    )
    agent.edit("tests/test_money.py", "def test_add", "@pytest.mark.skip\ndef test_add")
    agent.edit("tests/test_more.py", "import half", "import third")
    agent.end()
    after = agent.files()

    check = agent.check()

    assert changes(check) == {
        "test_half": "broken",
        "test_more": "not-collected",
        "test_none": "deleted",
        "test_add": "newly-skipped",
    }
    by_name = {one.test.rpartition("::")[2]: one for one in check.tests}
    blame = by_name["test_half"].blame
    assert blame is not None
    assert [step.number for step in blame.steps] == [2]
    assert blame.verdict == "proven"
    blame = by_name["test_more"].blame
    assert blame is not None
    assert [step.number for step in blame.steps] == [7], blame.reason
    assert {name: one.step for name, one in by_name.items() if one.step} == {
        "test_none": 4,
        "test_add": 6,
    }
    assert {name: one.by_agent for name, one in by_name.items()} == {
        "test_half": "no",
        "test_more": "no",
        "test_none": "no",
        "test_add": "yes",
    }
    assert (by_name["test_none"].original, by_name["test_add"].original) == ("passed", "passed")
    assert check.exit_code == 1
    assert check.summary == "checked 3 of 4 · 1 broken · 1 undecided"
    assert agent.files() == after != before


def test_only_what_cannot_be_collected_is_undecided(agent: AgentRun) -> None:
    agent.edit("tests/test_more.py", "import half", "import third")
    agent.end()
    check = agent.check()
    assert changes(check) == {"test_more": "not-collected"}
    assert (check.exit_code, check.broken, check.undecided) == (2, 0, 1)
    assert "third" in check.tests[0].message


def test_nothing_broken(agent: AgentRun) -> None:
    agent.edit("money.py", "a + b", "b + a")
    agent.write("tests/test_new.py", "def test_new():\n    assert True\n")
    agent.end()
    check = agent.check()
    assert changes(check) == {"test_new": "new"}
    assert check.exit_code == 0
    assert check.summary == "checked 5 of 5 · 0 broken · 0 undecided"


def test_a_break_behind_a_deleted_test(agent: AgentRun) -> None:
    agent.edit("money.py", "a // 2", "(a + 1) // 2")
    agent.edit("tests/test_money.py", "def test_half():\n    assert half(9) == 4\n", "")
    agent.end()
    check = agent.check()
    assert changes(check) == {"test_half": "hidden"}
    entry = check.tests[0]
    assert (entry.how, entry.original, entry.step) == ("deleted", "failed", 2)
    assert entry.blame is not None
    assert [step.number for step in entry.blame.steps] == [1], entry.blame.reason
    assert check.exit_code == 1


def test_an_assertion_that_was_turned_round(agent: AgentRun) -> None:
    agent.edit("money.py", "a // 2", "(a + 1) // 2")
    agent.edit("tests/test_money.py", "half(9) == 4", "half(9) == 5")
    agent.end()
    check = agent.check()
    assert changes(check) == {"test_half": "assertion-changed"}
    entry = check.tests[0]
    assert (entry.lost, entry.gained) == (("assert half(9) == 4",), ("assert half(9) == 5",))
    assert (entry.original, entry.step) == ("failed", 2)
    assert check.exit_code == 0


def test_a_test_that_is_skipped_from_outside_of_its_source(agent: AgentRun) -> None:
    agent.edit("money.py", "a + b", "b + a")
    agent.write(
        "tests/conftest.py",
        "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n    for item in items:\n"
        "        if item.name == 'test_half':\n"
        "            item.add_marker(pytest.mark.skip('later'))\n",
    )
    agent.end()
    check = agent.check()
    assert changes(check) == {"test_half": "newly-skipped"}
    blame = check.tests[0].blame
    assert blame is not None
    assert [step.number for step in blame.steps] == [2], blame.reason
    assert check.exit_code == 0


def test_the_budget_goes_to_the_nearest(agent: AgentRun) -> None:
    agent.write("tests/test_far.py", "def test_far():\n    assert True\n")
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    check = agent.check(budget=4)
    assert "test_half" in changes(check)
    assert set(check.unchecked) == {"tests/test_more.py::test_more"} or check.unchecked
    assert check.total == 5
    assert check.exit_code == 1


def test_chosen_tests_only(agent: AgentRun) -> None:
    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    check = agent.check("tests/test_money.py::test_add")
    assert (changes(check), check.exit_code, check.total) == ({}, 0, 1)


def test_no_tests_at_all_is_not_fine(agent: AgentRun) -> None:
    agent.edit("money.py", "a + b", "b + a")
    agent.end()
    check = agent.check(command="true")
    assert check.exit_code == 0, "a command that names no tests is one test"
    check = agent.check("nowhere.py")
    assert (check.exit_code, check.total) == (2, 0)


def test_a_runner_that_names_only_what_fails(tmp_path: Path) -> None:
    unit = (
        "import unittest\n\nfrom money import half\n\n\nclass T(unittest.TestCase):\n"
        "    def test_half(self):\n        self.assertEqual(half(9), 4)\n"
    )
    agent = AgentRun(Shell(tmp_path), PROJECT | {"test_unit.py": unit})
    agent.edit("money.py", "a + b", "b + a")
    agent.edit("money.py", "a // 2", "(a + 1) // 2")
    agent.end()
    check = agent.check(command=f"{shlex.quote(sys.executable)} -m unittest -q test_unit")
    assert changes(check) == {"test_unit.T.test_half": "broken"}
    blame = check.tests[0].blame
    assert blame is not None
    assert [step.number for step in blame.steps] == [2]


def test_a_suite_that_is_killed(agent: AgentRun) -> None:
    agent.edit("money.py", "    return a // 2", "    import os\n    os.abort()")
    agent.end()
    check = agent.check()
    messages = {one.test.rpartition("::")[2]: one.message for one in check.tests}
    not_reached = dict.fromkeys(["test_none", "test_more"], "undecided")
    assert changes(check) == {"test_half": "broken"} | not_reached
    assert "as far as this: killed by SIGABRT" in messages["test_half"]
    assert messages["test_more"].startswith("not reached: killed by SIGABRT")
    assert (check.exit_code, check.summary) == (1, "checked 2 of 4 · 1 broken · 2 undecided")
    assert [step.number for step in blamed(check.tests[0]).steps] == [1]


def test_a_test_that_does_not_end(agent: AgentRun) -> None:
    agent.edit("money.py", "a + b", "b + a")
    agent.edit("money.py", "    return a // 2", "    while a % 2:\n        pass\n    return a // 2")
    agent.end()
    testing = replace(agent.testing(), timeout=4)
    check = check_run(agent.store, agent.run, testing=testing, blame=BlameOptions(QUICK))
    not_reached = dict.fromkeys(["test_none", "test_more"], "undecided")
    assert changes(check) == {"test_half": "broken"} | not_reached
    assert [step.number for step in blamed(check.tests[0]).steps] == [2]

    (found,) = blame_run(agent.store, agent.run, testing=testing, options=BlameOptions(QUICK))
    assert (found.test, found.message) == ("tests/test_money.py::test_half", "timed out after 4 s")
    assert [step.number for step in found.steps] == [2], "blame alone finds it as well"


def test_a_break_that_shows_only_after_other_tests(tmp_path: Path) -> None:
    files = {
        "store.py": "kept = {}\n\n\ndef put(key):\n    kept[key] = 1\n",
        "tests/test_a.py": "from store import put\n\n\ndef test_put():\n    put('a')\n",
        "tests/test_b.py": "from store import kept\n\n\ndef test_b(): assert 'c' not in kept\n",
    }
    agent = AgentRun(Shell(tmp_path), PROJECT | files)
    agent.edit("money.py", "a + b", "b + a")
    agent.edit("store.py", "kept[key] = 1", "kept[key] = kept['c'] = 1")
    agent.end()
    check = agent.check()
    assert changes(check) == {"test_b": "broken"}
    found = blamed(check.tests[0])
    assert [step.number for step in found.steps] == [2]
    assert found.notes[-1] == "it passes alone: it was executed with all other tests"
    assert all(one.command_line.endswith("errors") for one in executed(agent, found)), "all tests"

    again = agent.blame("tests/test_b.py::test_b", plan=QUICK)
    assert again.steps == found.steps, "since it is known that it fails with the others"


@pytest.mark.parametrize(
    ("old", "new"),
    [("def half(a):", "def half(a)"), ("def half(a):", "import rounding\n\n\ndef half(a):")],
)
def test_code_that_cannot_be_imported_is_broken(tmp_path: Path, old: str, new: str) -> None:
    """No test fails then; it is the change that keeps them from being collected."""
    agent = AgentRun(Shell(tmp_path), PROJECT | {"rounding.py": ""})
    agent.edit("money.py", "a + b", "b + a")
    agent.write("rounding.py", None)
    agent.edit("money.py", old, new)
    agent.end()
    check = agent.check()
    assert set(changes(check).values()) == {"broken"}
    assert {one.how for one in check.tests} == {"not-collected"}
    assert {blamed(one).steps[0].number for one in check.tests} == {3}
    assert (check.exit_code, check.summary) == (1, "checked 4 of 4 · 4 broken · 0 undecided")
    view = io.StringIO()
    Console(file=view, width=100).print(check_view(check))
    assert view.getvalue().count("cannot be collected any more") == 4
    assert view.getvalue().count("broken by  step 3") == 2, "once for each file"


def test_a_package_that_is_not_installed_here_decides_nothing(agent: AgentRun) -> None:
    agent.edit("money.py", "def half", "import package_of_nobody\n\n\ndef half")
    agent.end()
    check = agent.check()
    assert set(changes(check).values()) == {"not-collected"}
    assert check.tests[0].message == "package_of_nobody is not installed where the tests run"
    assert (check.exit_code, check.undecided) == (2, 4)


def test_where_nothing_passes_nothing_can_be_seen_to_break(agent: AgentRun) -> None:
    agent.edit("money.py", "a + b", "b + a")
    agent.end()
    check = agent.check(command="sh -c 'echo no such thing; exit 3'")
    assert (check.exit_code, check.summary) == (2, "checked 0 of 1 · 0 broken · 1 undecided")
    assert "before and after, as all do" in check.tests[0].message


def test_a_suite_that_cannot_start(agent: AgentRun) -> None:
    agent.write("tests/conftest.py", "import nothing_of_this_name\n")
    agent.end()
    check = agent.check()
    assert not check.final.complete
    assert "nothing_of_this_name" in (check.final.problem or "")
    assert check.exit_code == 2
    assert check.undecided == 4
    assert TESTS.count("def test_") == 3


def test_a_file_that_no_state_holds(tmp_path: Path) -> None:
    """`local.txt` is ignored by git. Its test fails on both sides; that says nothing of the run."""
    text = "def test_local():\n    assert open('local.txt').read()\n"
    agent = AgentRun(Shell(tmp_path), PROJECT | {"tests/test_local.py": text})
    (agent.workspace / "local.txt").write_text("needed\n")
    agent.edit("money.py", "a + b", "b + a")
    agent.end()
    check = agent.check()
    assert changes(check) == {"test_local": "undecided"}
    assert check.tests[0].message.endswith('link = ["local.txt"]')
    assert (check.exit_code, check.summary) == (2, "checked 4 of 5 · 0 broken · 1 undecided")


def test_a_file_that_never_could_be_collected(tmp_path: Path) -> None:
    files = {"tests/test_odd.py": "import nothing_of_this_name\n"}
    agent = AgentRun(Shell(tmp_path), PROJECT | files)
    agent.edit("money.py", "a + b", "b + a")
    agent.write("tests/test_new.py", "import nothing_like_that\n")
    agent.end()
    check = agent.check()
    assert changes(check) == {"tests/test_odd.py": "undecided", "tests/test_new.py": "undecided"}
    assert "before and after" in {one.test: one.message for one in check.tests}["tests/test_odd.py"]
    assert (check.exit_code, check.summary) == (2, "checked 4 of 4 · 0 broken · 2 undecided")


def test_by_program_in_a_folder(agent: AgentRun) -> None:
    """As the page of the API has it: the folder of the project, and what to compare."""
    from repotrace.runs import blame_run, check_run

    agent.edit("money.py", "a // 2", "a // 3")
    agent.end()
    testing = agent.testing("grep -q '// 2' money.py")
    found = check_run(agent.workspace, base="HEAD", testing=testing)
    assert (found.broken, found.run_id, found.final.about) == (1, None, "the work tree")
    (blame,) = blame_run(agent.workspace, "latest", testing=testing)
    assert [step.number for step in blame.steps] == [1]
