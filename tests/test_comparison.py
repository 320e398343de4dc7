"""Verdicts: each of them, from what two runs printed and how they ended."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.comparison import Comparison, DiffLine, Verdict, compare, explain
from repotrace.config import UserRule
from repotrace.records.command import CommandRun, Output, Places, Termination, digest
from repotrace.redact import Redactor

HERE = Places(cwd="/home/john/app", home="/home/john", tmp="/tmp")
THERE = Places(cwd="/srv/build/w", home="/root", tmp="/var/tmp/x")


def run(
    stdout: str | bytes = "",
    stderr: str | bytes = "",
    *,
    code: int | None = 1,
    places: Places = HERE,
    **more: Any,
) -> CommandRun:
    def output(data: str | bytes) -> Output:
        return Output.of(data.encode() if isinstance(data, str) else data)

    return CommandRun(
        exit_code=code, stdout=output(stdout), stderr=output(stderr), places=places, **more
    )


def killed(number: int, stdout: str = "") -> CommandRun:
    return run(stdout, code=None, termination=Termination.SIGNALED, signal=number)


def hung(stdout: str = "", timeout: float = 2) -> CommandRun:
    return run(stdout, code=None, termination=Termination.TIMEOUT, timeout=timeout)


def unstarted(number: int, error: str = "no such file") -> CommandRun:
    return run(code=None, termination=Termination.SPAWN_ERROR, spawn_errno=number, error=error)


def traceback(error: str, line: int = 3, function: str = "go") -> str:
    frame = f'  File "app.py", line {line}, in {function}\n    x\n'
    return f"Traceback (most recent call last):\n{frame}{error}\n"


def pytest_log(*failed: str, passed: int, seconds: str = "0.12") -> str:
    lines = "".join(f"FAILED t.py::{name} - ValueError: x\n" for name in failed)
    counts = f"{len(failed)} failed, {passed} passed in {seconds}s\n"
    return f"=========== short test summary info ===========\n{lines}{counts}"


class TestSame:
    def test_equal_bytes(self) -> None:
        assert compare(run("boom\n", code=7), run("boom\n", code=7)) == Comparison(
            verdict=Verdict.SAME, detail="no differences"
        )

    def test_equal_but_for_digests_of_secrets(self) -> None:
        texts = [
            Redactor(key=key, variables={"API_TOKEN": "tops3cretvalue"}).redact("no tops3cretvalue")
            for key in (b"one", b"two")
        ]

        assert texts[0] != texts[1]
        assert compare(run(texts[0]), run(texts[1])).verdict is Verdict.SAME
        assert compare(run(texts[0]), run(texts[1]), match="exact").verdict is Verdict.SAME

    def test_two_different_secrets_of_one_variable_are_the_same(self) -> None:
        texts = [
            Redactor(key=b"key", variables={"API_TOKEN": value}).redact(f"no {value}")
            for value in ("tops3cretvalue", "other-s3cret-value")
        ]

        assert compare(run(texts[0]), run(texts[1])).verdict is Verdict.SAME

    def test_the_same_error_of_starting(self) -> None:
        assert compare(unstarted(errno.ENOENT), unstarted(errno.ENOENT, "absent")).detail == (
            "no differences"
        )

    def test_passing_commands(self) -> None:
        assert compare(run("a", code=0), run("a", code=0)).verdict is Verdict.SAME

    @pytest.mark.parametrize("mode", ["pty", "merge"])
    def test_stderr_does_not_count_where_it_went_into_stdout(self, mode: str) -> None:
        how = {"pty": mode == "pty", "merge": mode == "merge"}
        expected = run("a").model_copy(update=how)
        observed = run("a", "stray").model_copy(update=how)

        assert compare(expected, observed).verdict is Verdict.SAME


class TestSameAfterNormalising:
    def test_names_the_rules_that_decided(self) -> None:
        expected = run("\x1b[1mfine\x1b[0m\nin /home/john/app\n1 failed in 0.12s\n")
        observed = run("\x1b[1mfine\x1b[0m\nin /srv/build/w\n1 failed in 9.12s\n", places=THERE)

        assert compare(expected, observed) == Comparison(
            verdict=Verdict.SAME_AFTER_NORMALISING,
            detail="same after normalising: cwd, duration",
            rules=("cwd", "duration"),
        )

    def test_a_longer_duration_in_a_rule_of_fixed_width(self) -> None:
        one = run("================ 1 failed in 0.12s ================\n")
        two = run("=============== 1 failed in 10.12s ================\n")

        assert compare(one, two).detail == "same after normalising: duration, rule-width"

    def test_equal_addresses_must_stay_equal(self) -> None:
        one = run("a <x at 0x7f0000000001> <y at 0x7f0000000001>")
        two = run("a <x at 0x7f0000000002> <y at 0x7f0000000002>")
        other = run("a <x at 0x7f0000000002> <y at 0x7f0000000003>")

        assert compare(one, two).verdict is Verdict.SAME_AFTER_NORMALISING
        assert compare(one, other).verdict is Verdict.DIFFERENT_FAILURE

    def test_user_rules_decide_too(self) -> None:
        rule = UserRule("build", r"build \d+", "build N")

        found = compare(run("build 1"), run("build 2"), user_rules=[rule])

        assert found.detail == "same after normalising: user:build"

    def test_never_with_another_ending(self) -> None:
        found = compare(run("in 0.12s", code=7), run("in 0.13s", code=1))

        assert found.verdict is Verdict.DIFFERENT_FAILURE
        assert found.detail == "different failure: exit code 7 -> 1"

    def test_what_only_differs_in_volatile_text_is_not_called_different(self) -> None:
        found = compare(run("total 7\n", "took in 0.12s\n"), run("total 8\n", "took in 0.13s\n"))

        assert found.verdict is Verdict.DIFFERENT_FAILURE
        assert found.differences == ("stdout differs",)

    def test_line_ends_and_progress(self) -> None:
        found = compare(run("10%\r100%\r\ndone\r\n"), run("50%\r70%\r100%\ndone\n"))

        assert found.detail == "same after normalising: crlf, progress"


class TestSameFailure:
    def test_the_same_exception_with_other_numbers(self) -> None:
        found = compare(
            run(stderr="took 3 tries\n" + traceback("ValueError: 0.7 != 0.5", 3)),
            run(stderr="took 4 tries\n" + traceback("ValueError: 0.1 != 12", 9)),
        )

        assert found == Comparison(
            verdict=Verdict.SAME_FAILURE,
            detail="same failure, output differs",
            differences=("stderr differs",),
        )

    @pytest.mark.parametrize(
        "other",
        [
            traceback("TypeError: 0.7 != 0.5"),
            traceback("ValueError: no such item"),
            traceback("ValueError: 0.7 != 0.5", function="other"),
        ],
    )
    def test_exception_message_and_frame_must_agree(self, other: str) -> None:
        found = compare(
            run("a", traceback("ValueError: 0.7 != 0.5")),
            run("b", other),
        )

        assert found.verdict is Verdict.DIFFERENT_FAILURE
        assert found.differences == ("stdout differs", "stderr differs")

    def test_the_same_failing_tests(self) -> None:
        found = compare(
            run("order 1\n" + pytest_log("test_b", "test_a", passed=1)),
            run("order 2\n" + pytest_log("test_a", "test_b", passed=1)),
        )

        assert found.verdict is Verdict.SAME_FAILURE
        assert found.still_failing == ("t.py::test_a", "t.py::test_b")
        assert (found.fixed_tests, found.new_failing) == ((), ())

    def test_the_same_signal(self) -> None:
        found = compare(killed(11, "0.3 of it"), killed(11, "0.9 of something"))

        assert found.verdict is Verdict.SAME_FAILURE

    def test_a_hang_that_still_hangs(self) -> None:
        assert compare(hung("one\n"), hung("one\n")).verdict is Verdict.SAME
        assert compare(hung("one\n"), hung("one\ntwo\n", timeout=5)) == Comparison(
            verdict=Verdict.SAME_FAILURE,
            detail="same failure, output differs",
            differences=("stdout differs",),
        )

    def test_a_last_line_never_promotes(self) -> None:
        found = compare(run("1\n", "error: no\n"), run("2\n", "error: no\n"))

        assert found.verdict is Verdict.DIFFERENT_FAILURE
        assert found.detail == "different failure: stdout differs"

    def test_an_exit_code_of_its_own_is_another_failure(self) -> None:
        text = traceback("ValueError: x")

        assert compare(run("a", text, code=1), run("b", text, code=2)).verdict is (
            Verdict.DIFFERENT_FAILURE
        )

    def test_a_stored_signature_is_not_trusted(self) -> None:
        stored = run("a", "error: one\n").signature
        expected = run("a", traceback("ValueError: x")).model_copy(update={"signature": stored})

        assert compare(expected, run("b", traceback("ValueError: x"))).verdict is (
            Verdict.SAME_FAILURE
        )


class TestPartlyFixed:
    def test_some_of_the_tests_pass_now(self) -> None:
        found = compare(
            run(pytest_log("test_x", "test_y", "test_z", passed=1)),
            run(pytest_log("test_y", "test_z", passed=2)),
        )

        assert found == Comparison(
            verdict=Verdict.PARTLY_FIXED,
            detail="2 of 3 still fail; fixed: test_x",
            differences=("stdout differs",),
            fixed_tests=("t.py::test_x",),
            still_failing=("t.py::test_y", "t.py::test_z"),
        )

    def test_another_test_that_fails_makes_it_another_failure(self) -> None:
        found = compare(
            run(pytest_log("test_x", "test_y", passed=1)),
            run(pytest_log("test_y", "test_new", passed=1)),
        )

        assert found.verdict is Verdict.DIFFERENT_FAILURE
        assert found.detail == (
            "different failure: stdout differs; fails newly: test_new; fixed: test_x"
        )
        assert found.fixed_tests == ("t.py::test_x",)
        assert found.still_failing == ("t.py::test_y",)
        assert found.new_failing == ("t.py::test_new",)

    def test_a_test_that_no_longer_ran_is_not_fixed(self) -> None:
        found = compare(
            run(pytest_log("test_x", "test_y", passed=5)),
            run(pytest_log("test_y", passed=5)),
        )

        assert found.verdict is Verdict.DIFFERENT_FAILURE
        assert found.fixed_tests == ()

    def test_nor_one_in_a_run_that_was_killed(self) -> None:
        log = pytest_log("test_y", passed=2)
        observed = run(log, code=None, termination=Termination.SIGNALED, signal=9)

        found = compare(run(pytest_log("test_x", "test_y", passed=1)), observed)

        assert found.verdict is Verdict.DIFFERENT_FAILURE
        assert found.detail == (
            "different failure: exit code 1 -> killed by SIGKILL (signal 9), stdout differs"
        )
        assert found.fixed_tests == ()

    def test_many_fixed_tests_are_counted(self) -> None:
        names = [f"test_{letter}" for letter in "abcdef"]

        found = compare(run(pytest_log(*names, passed=0)), run(pytest_log("test_f", passed=5)))

        assert found.detail == "1 of 6 still fail; fixed: test_a, test_b, test_c and 2 more"


class TestFixed:
    def test_exit_code_0(self) -> None:
        assert compare(run("boom", code=7), run("boom", code=0)) == Comparison(
            verdict=Verdict.FIXED,
            detail="fixed: exit code 7 -> 0",
            differences=("exit code 7 -> 0",),
        )

    @pytest.mark.parametrize(
        ("expected", "difference"),
        [
            (killed(11), "killed by SIGSEGV (signal 11) -> exit code 0"),
            (hung(), "timed out after 2 s -> exit code 0"),
            (unstarted(errno.ENOENT), "not started: no such file -> exit code 0"),
        ],
    )
    def test_other_endings(self, expected: CommandRun, difference: str) -> None:
        found = compare(expected, run(code=0))

        assert found.verdict is Verdict.FIXED
        assert found.differences == (difference,)


class TestDifferentFailure:
    def test_another_exit_code(self) -> None:
        assert compare(run("a", code=7), run("b", code=1)) == Comparison(
            verdict=Verdict.DIFFERENT_FAILURE,
            detail="different failure: exit code 7 -> 1, stdout differs",
            differences=("exit code 7 -> 1", "stdout differs"),
        )

    def test_another_error_of_starting(self) -> None:
        found = compare(unstarted(errno.ENOENT), unstarted(errno.EACCES, "not executable"))

        assert found.verdict is Verdict.DIFFERENT_FAILURE

    def test_another_signal(self) -> None:
        assert compare(killed(11), killed(6)).differences == (
            "killed by SIGSEGV (signal 11) -> killed by SIGABRT (signal 6)",
        )

    def test_what_passed_and_prints_something_else_is_not_fixed(self) -> None:
        text = traceback("ValueError: x")

        found = compare(run("a", text, code=0), run("b", text, code=0))

        assert found.verdict is Verdict.DIFFERENT_FAILURE
        assert found.detail.endswith(": stdout differs")

    def test_what_passed_and_fails_now(self) -> None:
        assert compare(run(code=0), run(code=1)).verdict is Verdict.DIFFERENT_FAILURE


class TestModes:
    def test_exact_wants_equal_bytes(self) -> None:
        one, two = run("in 0.12s"), run("in 0.13s")

        assert compare(one, one, match="exact").verdict is Verdict.SAME
        assert compare(one, two, match="exact") == Comparison(
            verdict=Verdict.DIFFERENT_FAILURE,
            detail="different failure: stdout differs",
            differences=("stdout differs",),
        )

    def test_exact_is_no_friend_of_signatures_but_knows_progress(self) -> None:
        text = traceback("ValueError: x")
        tests = run(pytest_log("test_x", "test_y", passed=1)), run(pytest_log("test_y", passed=2))

        assert not compare(run("a", text), run("b", text), match="exact").verdict.matched
        assert compare(*tests, match="exact").verdict is Verdict.PARTLY_FIXED
        assert compare(run(code=1), run(code=0), match="exact").verdict is Verdict.FIXED

    def test_exit_code_looks_at_the_ending_only(self) -> None:
        assert compare(run("a"), run("b"), match="exit-code") == Comparison(
            verdict=Verdict.SAME, detail="no differences (exit code only)"
        )
        assert compare(hung("a"), hung("b"), match="exit-code").verdict is Verdict.SAME
        assert compare(run("a"), run("b", code=0), match="exit-code") == Comparison(
            verdict=Verdict.FIXED,
            detail="fixed: exit code 1 -> 0",
            differences=("exit code 1 -> 0",),
        )
        assert compare(run("a"), run("b", code=3), match="exit-code").detail == (
            "different failure: exit code 1 -> 3"
        )


class TestCutStreams:
    def cut(self, data: bytes, *, middle: bytes = b"", sha256: str | None = None) -> CommandRun:
        whole = data + middle + data
        output = Output(
            head=data,
            tail=data,
            omitted=len(middle),
            length=len(whole),
            sha256=digest(whole) if sha256 is None else sha256,
        )
        return CommandRun(exit_code=1, stdout=output)

    def test_equal_digests(self) -> None:
        one = self.cut(b"x in 0.1s\n", middle=b"m" * 50)

        assert compare(one, one).verdict is Verdict.SAME

    def test_an_unseen_middle_is_never_the_same(self) -> None:
        one = self.cut(b"x\n", middle=b"m" * 50)
        two = self.cut(b"x\n", middle=b"n" * 50)

        assert compare(one, two).verdict is Verdict.DIFFERENT_FAILURE

    def test_without_digests_nothing_is_known(self) -> None:
        one = self.cut(b"x\n", middle=b"m" * 50, sha256="")

        assert compare(one, one).verdict is Verdict.DIFFERENT_FAILURE

    def test_the_signature_still_counts(self) -> None:
        text = traceback("ValueError: 1").encode()

        found = compare(self.cut(text, middle=b"m" * 50), self.cut(text, middle=b"n" * 50))

        assert found.verdict is Verdict.SAME_FAILURE


class TestExplain:
    def test_nothing_to_say_about_equals(self) -> None:
        assert explain(run("a\n"), run("a\n")) == []
        assert explain(run("in 0.12s\n"), run("in 0.13s\n")) == []

    def test_a_change_with_its_surroundings_and_rules(self) -> None:
        expected = run("1\n2\n3\n4\nred in 0.1s\n6\n7\n8\n9\n")
        observed = run("1\n2\n3\n4\nblue in /home/john/app\n6\n7\n8\n9\n")

        assert explain(expected, observed, context=1) == [
            DiffLine("stdout: expected (-) and observed (+)", "@", "stdout"),
            DiffLine("4", " ", "stdout"),
            DiffLine("red in <duration>", "-", "stdout", frozenset({"duration"})),
            DiffLine("blue in <cwd>", "+", "stdout", frozenset({"cwd"})),
            DiffLine("6", " ", "stdout"),
        ]

    def test_both_streams_and_distant_changes(self) -> None:
        text = "".join(f"{number}\n" for number in range(40))

        lines = explain(run(text, "a\n"), run(f"x\n{text}y\n", "b\n"), context=0)

        assert [(line.kind, line.text) for line in lines] == [
            ("@", "stdout: expected (-) and observed (+)"),
            ("+", "x"),
            ("@", "…"),
            ("+", "y"),
            ("@", "stderr: expected (-) and observed (+)"),
            ("-", "a"),
            ("+", "b"),
        ]

    def test_a_missing_last_newline_is_visible(self) -> None:
        lines = explain(run("a\n"), run("a"))

        assert [(line.kind, line.text) for line in lines[1:]] == [
            (" ", "a"),
            ("+", "\\ no newline at the end"),
        ]

    def test_exact_shows_the_output_as_it_is(self) -> None:
        lines = explain(run("in 0.12s\n"), run("in 0.13s\n"), exact=True)

        assert [line.text for line in lines[1:]] == ["in 0.12s", "in 0.13s"]

    def test_bytes_that_are_no_text_can_be_told_apart(self) -> None:
        lines = explain(run(b"\xff\n"), run(b"\xfe\n"))

        assert [line.text for line in lines[1:]] == ["\\xff", "\\xfe"]

    def test_long_output_is_cut_and_rules_stay_with_their_lines(self) -> None:
        text = "".join(f"line {number}\n" for number in range(50_000))

        lines = explain(run("a\n" + text + "in 0.1s\nx\n"), run("b\n" + text + "in 0.2s\ny\n"))

        assert len(lines) < 20
        assert {(line.kind, line.text) for line in lines} >= {
            ("-", "a"), ("+", "b"), ("-", "x"), ("+", "y")
        }  # fmt: skip
        assert [line.rules for line in lines if line.text == "in <duration>"] == [
            frozenset({"duration"})
        ]


BUGGY = {
    "traceback": (
        "import os, tempfile\nprint(os.getcwd(), tempfile.mkdtemp(), object(), os.getpid())\n"
        "raise ValueError(f'{os.getcwd()}/x')\n",
        Verdict.SAME_FAILURE,
    ),
    "paths": (
        "import sys, tempfile\nfrom pathlib import Path\n"
        "sys.exit(f'{Path.home()} {Path.cwd()} {tempfile.mkdtemp()} {object()}')\n",
        Verdict.SAME_AFTER_NORMALISING,
    ),
    "plain": ("import sys\nprint('boom')\nsys.exit(7)\n", Verdict.SAME),
    "random": ("import os, sys\nsys.exit(os.urandom(8).hex())\n", Verdict.DIFFERENT_FAILURE),
    "unittest": (
        "import unittest, random\nclass T(unittest.TestCase):\n"
        "    def test_a(self): self.assertEqual(random.random(), 2)\n"
        "    def test_b(self): pass\nunittest.main()\n",
        Verdict.SAME_FAILURE,
    ),
}


@pytest.mark.parametrize("name", BUGGY)
def test_real_failures_from_two_folders(name: str, tmp_path: Path) -> None:
    source, verdict = BUGGY[name]
    runs: list[CommandRun] = []
    for folder in (tmp_path / "one", tmp_path / "another" / "and" / "deeper"):
        (folder / "work").mkdir(parents=True)
        script = folder / "work" / "main.py"
        script.write_text(source, "utf-8")
        environment = os.environ | {"HOME": str(folder), "TMPDIR": str(folder)}
        done = subprocess.run(
            [sys.executable, script],
            cwd=script.parent,
            env=environment,
            capture_output=True,
            check=False,
        )
        places = Places(cwd=str(script.parent), home=str(folder), tmp=str(folder))
        runs.append(run(done.stdout, done.stderr, code=done.returncode, places=places))

    found = compare(*runs)

    # The traceback prints a pid that nothing names, so its output differs.
    assert found.verdict is verdict, found.detail
    assert compare(runs[0], runs[0]).verdict is Verdict.SAME


@pytest.mark.parametrize("verdict", Verdict)
def test_three_verdicts_match(verdict: Verdict) -> None:
    matching = {"same", "same-after-normalising", "same-failure"}

    assert verdict.matched is (verdict.value in matching)


ENDINGS = st.sampled_from(
    [{"code": 0}, {"code": 1}, {"code": 7}]
    + [{"code": None, "termination": Termination.SIGNALED, "signal": n} for n in (6, 11)]
    + [{"code": None, "termination": Termination.TIMEOUT, "timeout": 2.0}]
    + [{"code": None, "termination": Termination.INTERRUPTED}]
    + [{"code": None, "termination": Termination.SPAWN_ERROR, "spawn_errno": 2, "error": "x"}]
)  # fmt: skip
TEXTS = st.sampled_from(
    [
        "",
        "a\n",
        "in 0.1s\n",
        traceback("ValueError: 1"),
        traceback("ValueError: 2"),
        pytest_log("test_a", "test_b", passed=1),
        pytest_log("test_a", passed=2),
    ]
) | st.binary(max_size=40)
RUNS = st.builds(lambda out, err, ending: run(out, err, **ending), TEXTS, TEXTS, ENDINGS)


@given(RUNS, RUNS, st.sampled_from(["normal", "exact", "exit-code"]))
@settings(max_examples=300, deadline=None)
def test_any_two_runs_are_judged(expected: CommandRun, observed: CommandRun, match: Any) -> None:
    found = compare(expected, observed, match=match)

    assert "\n" not in found.detail
    assert found.detail
    assert Comparison.model_validate_json(found.model_dump_json()) == found
    assert compare(expected, expected, match=match).verdict is Verdict.SAME
    if found.verdict is Verdict.SAME:
        assert found.differences == ()
        assert expected.ending == observed.ending
    if found.verdict is Verdict.FIXED:
        assert expected.failed
        assert not observed.failed
    if found.verdict.matched:
        assert expected.shell_code == observed.shell_code
    explain(expected, observed)
