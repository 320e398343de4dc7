"""Outcomes out of output, and verdicts. The logs are real ones, shared with the log reader."""

# ruff: noqa: RUF001 - runners print such signs

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugged import run_pytest, write_files
from recording import NOON
from test_pytest_plugin import KINDS
from test_testlogs import EXPECTED, GO, log

from repotrace.outcomes import outcomes_from_output, outcomes_from_text, verdicts
from repotrace.records.command import CommandRun, Output
from repotrace.records.run import FAILING, TestOutcome, TestResult

PASSED, FAILED, ERROR = TestResult.PASSED, TestResult.FAILED, TestResult.ERROR


def named(text: str) -> dict[str, str]:
    return {data["node_id"]: data["outcome"] for data in outcomes_from_text(text)}


@pytest.mark.parametrize(
    ("name", "framework", "failed"), [row[:3] for row in EXPECTED], ids=[row[0] for row in EXPECTED]
)
def test_all_failing_tests_of_real_logs(name: str, framework: str, failed: tuple[str, ...]) -> None:
    found = outcomes_from_text(log(name))
    assert {data["node_id"] for data in found if data["outcome"] in FAILING} == set(failed)
    assert {(data["origin"], data["runner"]) for data in found} <= {("parsed", framework)}


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("pytest-default", {}),
        ("pytest-rA", {"test_shop.py::test_fine": PASSED}),
        (
            "pytest-colour",
            {"test_shop.py::test_fine": PASSED, "test_shop.py::TestCart::test_later": "skipped"},
        ),
        ("unittest-verbose", {"mod_test.Sums.test_good": PASSED}),
        ("jest-verbose", {"cart › is empty": PASSED}),
        ("jest-colour", {"cart › is empty": PASSED}),
        ("cargo-test", {"tests::fine": PASSED, "tests::later": "skipped"}),
        ("node-test-tap", {"fine": PASSED}),
    ],
)
def test_other_tests_where_the_runner_names_them(name: str, others: dict[str, str]) -> None:
    found = named(log(name))
    assert {test: word for test, word in found.items() if word not in FAILING} == others


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            GO,
            {
                "TestOpen": FAILED,
                "TestTotal": FAILED,
                "TestTotal/empty": FAILED,
                "TestTotal/two": PASSED,
                "example.com/cart [build failed]": FAILED,
            },
        ),
        ("--- SKIP: TestA (0.00s)\nok  \texample.com/shop\t0.003s\n", {"TestA": "skipped"}),
        (
            "        PASS [   0.004s] shop tests::fine\n"
            "     Summary [   0.006s] 1 test run: 1 passed, 0 skipped\n",
            {"shop tests::fine": PASSED},
        ),
        (
            "test_a (mod.C) ... ok\ntest_b (mod.C)\nWhat it does ... skipped 'why'\n"
            "test_c (mod.C) ... expected failure\n\n-----\nRan 3 tests in 0.001s\n\nOK\n",
            {"mod.C.test_a": PASSED, "mod.C.test_b": "skipped", "mod.C.test_c": "xfailed"},
        ),
        (
            " ✓ sum.test.js > cart > fine 4ms\n\n Test Files  1 passed (1)\n"
            "      Tests  1 passed (1)\n",
            {"sum.test.js > cart > fine": PASSED},
        ),
        ("nothing of the kind", {}),
        ("", {}),
    ],
)
def test_texts(text: str, expected: dict[str, str]) -> None:
    assert named(text) == expected


@pytest.mark.parametrize("args", [("-v",), ("-rA",), ("-v", "-n", "2"), ("-v", "--color=yes")])
def test_what_pytest_prints_is_what_the_plugin_says(tmp_path: Path, args: tuple[str, ...]) -> None:
    """As far as it prints it: skipped tests have no name in the summary."""
    project = write_files(tmp_path / "project", {"test_kinds.py": KINDS})
    said = run_pytest(project, *args)
    told = verdicts(outcome(name, word, phase=phase) for name, phase, word in said.tests)
    found = named(said.done.stdout)
    if args == ("-rA",):
        told = {name: word for name, word in told.items() if word != TestResult.SKIPPED}
    errors = {name for name in told if "setup" in name or "teardown" in name}
    assert {name: word for name, word in found.items() if name not in errors} == {
        name: word for name, word in told.items() if name not in errors
    }
    assert all(found[name] in FAILING for name in errors)


def test_both_streams_of_a_command_are_read() -> None:
    run = CommandRun(stdout=Output.of(b"noise\n"), stderr=Output.of(log("unittest").encode()))
    assert len(outcomes_from_output(run)) == 6
    again = CommandRun(
        stdout=Output.of(log("unittest").encode()), stderr=Output.of(log("unittest").encode())
    )
    assert outcomes_from_output(again) == outcomes_from_output(run)
    assert outcomes_from_output(CommandRun()) == []


def test_phases_and_messages() -> None:
    found = {data["node_id"]: data for data in outcomes_from_text(log("pytest-default"))}
    broken = found["test_shop.py::test_setup"]
    assert (broken["outcome"], broken["phase"]) == ("error", "setup")
    assert broken["message"] == "RuntimeError: no database"
    assert "phase" not in found["test_shop.py::test_total"]
    (uncollected,) = outcomes_from_text(log("pytest-collection-error"))
    assert (uncollected["outcome"], uncollected["phase"]) == ("error", "collect")


@given(st.text(), st.sampled_from(EXPECTED))
def test_any_text_is_read(
    text: str, row: tuple[str, str, tuple[str, ...], int | None, int]
) -> None:
    for piece in (text, text + log(row[0]), log(row[0])[: len(text) * 40]):
        assert all(data["node_id"] and data["outcome"] for data in outcomes_from_text(piece))


# --- Verdicts -------------------------------------------------------------------------------


def outcome(node_id: str, word: str, *, phase: str = "call", attempt: int = 1) -> TestOutcome:
    return TestOutcome(
        id="t",
        run_id="r",
        step_id="s",
        node_id=node_id,
        outcome=word,
        phase=phase,
        attempt=attempt,
        timestamp=NOON,
    )


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ([("passed", "call", 1)], PASSED),
        ([("passed", "call", 1), ("error", "teardown", 1)], ERROR),
        ([("failed", "call", 1), ("error", "teardown", 1)], FAILED),
        ([("error", "teardown", 1), ("failed", "call", 1)], FAILED),
        ([("skipped", "setup", 1)], TestResult.SKIPPED),
        ([("xfailed", "call", 1), ("error", "teardown", 1)], ERROR),
        ([("xpassed", "call", 1)], TestResult.XPASSED),
        ([("rerun", "call", 1), ("rerun", "call", 2), ("passed", "call", 3)], PASSED),
        ([("passed", "call", 3), ("rerun", "call", 1)], PASSED),
        ([("rerun", "call", 1), ("failed", "call", 2)], FAILED),
        ([("rerun", "call", 1)], TestResult.RERUN),
        ([("a word of its own", "call", 1)], ERROR),
    ],
)
def test_the_verdict_on_a_test(words: list[tuple[str, str, int]], verdict: TestResult) -> None:
    found = verdicts(outcome("t", word, phase=p, attempt=n) for word, p, n in words)
    assert found == {"t": verdict}


def test_a_failing_subtest_fails_its_test() -> None:
    names = {
        "t.py::test_a": "passed",
        "t.py::test_a [m] (i=1)": "failed",
        "t.py::test_b[x y]": "passed",
        "t.py::test_b[x y] (<subtest>)": "failed",
        "t.py::test_c": "passed",
        "t.py::test_cc [m]": "failed",
        "t.py::test_d": "failed",
        "t.py::test_d [m]": "passed",
        "t.py::test_e": "skipped",
    }
    found = verdicts(outcome(name, word) for name, word in names.items())
    assert found == names | {"t.py::test_a": "failed", "t.py::test_b[x y]": "failed"}
