"""The cases that are no plain flip: each gets its own right answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from blaming import FAILS, LETTERS, PASSES, Runner, by_letter, candidates, place, search
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.blame import (
    Candidate,
    Finding,
    Kind,
    Memo,
    MemoKey,
    Observation,
    Plan,
    Probe,
    Purpose,
    Searcher,
    Subject,
    Verdict,
)


def blame(
    states: Sequence[Candidate],
    result: Callable[[Probe], Observation],
    *,
    memo: Memo | None = None,
    plan: Plan | None = None,
    tests: str = "",
) -> tuple[Finding, list[Probe]]:
    runner = Runner(result)
    finding = runner.run(Searcher(states, memo=memo, plan=plan, tests=tests))
    assert finding is not None
    return finding, runner.ran


def versions(letters: str) -> tuple[Candidate, ...]:
    """States whose test files are those of their letter."""
    return tuple(
        replace(one, tests=letter)
        for one, letter in zip(candidates(len(letters)), letters, strict=True)
    )


def version_of(subject: Subject, letters: str) -> str:
    """The letter of the test files that lie there when `subject` is run."""
    return letters[int((subject.tests or subject.state)[1:])]


# --- Tests that are new or were changed -------------------------------------------------------


def test_a_new_test_that_passed_before_the_break_is_an_ordinary_regression() -> None:
    tests = "aaaaaabbbbbbb"

    def result(probe: Probe) -> Observation:
        if version_of(probe.subject, tests) == "a":
            return LETTERS["M"]
        return FAILS if place(probe.subject) >= 4 else PASSES

    finding, probes = blame(versions(tests), result, tests="s12")
    assert finding.verdict is Verdict.PROVEN
    assert finding.steps == (4,), "not the step that added the test"
    assert {probe.subject.tests for probe in probes} <= {"", "s12"}


@given(st.integers(1, 19), st.booleans())
@settings(deadline=None)
def test_a_new_test_that_passes_nowhere_never_passed(added: int, overlaid: bool) -> None:
    tests = "a" * added + "b" * (20 - added)

    def result(probe: Probe) -> Observation:
        return LETTERS["M"] if version_of(probe.subject, tests) == "a" else FAILS

    finding, _ = blame(versions(tests), result, tests="s19" if overlaid else "")
    assert finding.verdict is Verdict.NEVER_PASSED
    assert finding.test_step == added
    assert finding.steps == ()
    assert not finding.named


def test_a_test_of_something_that_is_not_there_at_first() -> None:
    """Before the feature it fails in another way, then it passes, then it is broken."""
    finding, _ = search("O" * 30 + "P" * 3 + "F" * 20, plan=Plan())
    assert finding.verdict is Verdict.PROVEN
    assert finding.steps == (33,)


@given(st.integers(1, 19))
@settings(deadline=None)
def test_only_the_changed_test_fails(changed: int) -> None:
    tests = "a" * changed + "b" * (20 - changed)

    def result(probe: Probe) -> Observation:
        return FAILS if version_of(probe.subject, tests) == "b" else PASSES

    finding, probes = blame(versions(tests), result, tests="s19")
    assert finding.verdict is Verdict.TEST_CHANGED
    assert finding.test_step == changed
    assert finding.steps == (changed,)
    assert finding.named
    assert Subject("s19", "s0") in {probe.subject for probe in probes}


def test_both_versions_of_a_changed_test_fail() -> None:
    """The final test fails everywhere; that of before tells what broke."""
    tests = "aaaaabbbbb"

    def result(probe: Probe) -> Observation:
        broken = place(probe.subject) >= 7
        return FAILS if broken or version_of(probe.subject, tests) == "b" else PASSES

    finding, _ = blame(versions(tests), result, tests="s9")
    assert finding.verdict is Verdict.PROVEN
    assert finding.steps == (7,)
    assert finding.original_tests


def test_results_on_states_with_the_same_tests_are_the_same_question() -> None:
    states = versions("aaabbb")
    searcher = Searcher(states, tests="s5")
    assert searcher.subject(states[4]) == Subject("s4")
    assert searcher.subject(states[5]) == Subject("s5")
    assert searcher.subject(states[1]) == Subject("s1", "s5")
    assert searcher.subject(states[1], tests="s2") == Subject("s1")
    unknown = Searcher(candidates(6), tests="s5")
    assert unknown.subject(candidates(6)[4]) == Subject("s4", "s5")


# --- Nothing passes ---------------------------------------------------------------------------


def test_what_fails_at_first_was_broken_before() -> None:
    finding, probes = search("F" * 64, plan=Plan())
    assert finding.verdict is Verdict.BROKEN_BEFORE
    assert "3/3" in finding.reason
    assert sum(place(probe.subject) == 0 for probe in probes) == 3


def test_broken_before_repaired_and_broken_again_is_a_break() -> None:
    finding, _ = search("FFFFFFFFPPPPFFFFFFF", plan=Plan())
    assert finding.verdict is Verdict.PROVEN
    assert finding.steps == (12,)


def test_the_environment_is_to_blame() -> None:
    states = [replace(one, environment="old" if one.index < 6 else "new") for one in candidates(10)]
    memo = Memo([(Subject("s0"), replace(PASSES, given=True))])
    finding, probes = blame(states, by_letter("F" * 10), memo=memo)
    assert finding.verdict is Verdict.ENVIRONMENT
    assert finding.installs == finding.steps == (6,)
    assert sum(place(probe.subject) == 0 for probe in probes) == 3


def test_a_break_at_a_change_of_the_environment_says_so() -> None:
    states = [replace(one, environment="ab"[one.index >= 4]) for one in candidates(8)]
    finding, _ = blame(states, by_letter("PPPPFFFF"))
    assert finding.steps == (4,)
    assert finding.breaks[0].new_environment
    finding, _ = blame(states, by_letter("PPPFFFFF"))
    assert not finding.breaks[0].new_environment


def test_not_reproducible_even_if_the_run_saw_it_fail() -> None:
    memo = Memo([(Subject("s4"), replace(FAILS, given=True))])
    finding, _ = search("PPPPP", memo=memo, plan=Plan())
    assert finding.verdict is Verdict.NOT_REPRODUCIBLE


# --- Steps ------------------------------------------------------------------------------------


def test_a_change_that_several_steps_may_have_made_is_ambiguous() -> None:
    states = list(candidates(8))
    states[5] = replace(states[5], steps=(5, 6))
    finding, _ = blame(states, by_letter("PPPPPFFF"))
    assert finding.verdict is Verdict.AMBIGUOUS
    assert finding.steps == (5, 6)
    assert finding.breaks[0].confirmed
    assert not finding.named


@pytest.mark.parametrize("quality", ["inferred", "unverified"])
def test_states_that_were_rebuilt_are_said(quality: str) -> None:
    states = [replace(one, quality=quality) for one in candidates(4)]
    finding, _ = blame(states, by_letter("PPFF"))
    assert finding.breaks[0].inferred
    assert not search("PPFF")[0].breaks[0].inferred


def test_a_bad_state_that_also_fails_otherwise_is_not_proven() -> None:
    count = 0

    def result(probe: Probe) -> Observation:
        nonlocal count
        if place(probe.subject) < 3:
            return PASSES
        count += place(probe.subject) == 3
        return LETTERS["O"] if place(probe.subject) == 3 and count % 2 == 0 else FAILS

    finding, probes = blame(candidates(6), result)
    assert finding.breaks[0].boundary[:2] == (2, 3)
    assert not finding.breaks[0].confirmed
    assert finding.verdict in (Verdict.LIKELY, Verdict.UNDECIDED)
    assert len(probes) < 30


@pytest.mark.parametrize("letter", "OETK")
def test_a_good_state_that_also_fails_in_any_way_is_flaky(letter: str) -> None:
    seen = 0

    def result(probe: Probe) -> Observation:
        nonlocal seen
        seen += place(probe.subject) == 2
        if place(probe.subject) == 2 and seen == 4:
            return LETTERS[letter]
        return FAILS if place(probe.subject) >= 3 else PASSES

    finding, _ = blame(candidates(6), result)
    assert finding.verdict is Verdict.FLAKY


def test_a_state_that_once_could_not_be_set_up_is_tried_again() -> None:
    seen = 0

    def result(probe: Probe) -> Observation:
        nonlocal seen
        seen += place(probe.subject) == 2
        if place(probe.subject) == 2 and seen == 4:
            return LETTERS["U"]
        return FAILS if place(probe.subject) >= 3 else PASSES

    finding, _ = blame(candidates(6), result)
    assert finding.verdict is Verdict.PROVEN
    assert finding.breaks[0].passed == 7


# --- Stopping, keys ---------------------------------------------------------------------------


@given(st.integers(0, 40), st.text("PFEMO", min_size=1, max_size=20))
@settings(deadline=None)
def test_stopping_at_any_moment_gives_an_answer(after: int, letters: str) -> None:
    searcher = Searcher(candidates(len(letters)))
    Runner(by_letter(letters)).run(searcher, at_most=after)
    done = searcher.finding
    finding = searcher.stop()
    assert finding == (done or finding)
    assert searcher.next() == ()
    whole, _ = search(letters, plan=Plan())
    assert finding.exhausted or finding.executions == whole.executions


@given(st.integers(0, 30), st.text("PF", min_size=2, max_size=20))
@settings(deadline=None)
def test_stopping_where_the_run_saw_otherwise(after: int, letters: str) -> None:
    """What the run saw is the opposite of what is seen here."""
    memo = Memo()
    for at, letter in enumerate(letters):
        memo.add(Subject(f"s{at}"), replace(LETTERS["F" if letter == "P" else "P"], given=True))
    searcher = Searcher(candidates(len(letters)), memo=memo)
    Runner(by_letter(letters)).run(searcher, at_most=after)
    assert searcher.stop().verdict in (
        Verdict.FLAKY,
        Verdict.UNDECIDED,
        Verdict.ENVIRONMENT,
        Verdict.NOT_REPRODUCIBLE,
        Verdict.RANGE,
    )


@given(
    order=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    letters=st.text("PFOEMTKU", min_size=1, max_size=40),
    known=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("PFOEM")), max_size=8),
    workers=st.integers(1, 4),
    tests=st.sampled_from(["", "s0", "last"]),
    plan=st.sampled_from([Plan(), Plan(scan=True, budget=40), Plan(budget=25, reduce_budget=9)]),
    cut=st.integers(0, 60),
)
@settings(deadline=None)
def test_whatever_comes_of_the_probes_there_is_an_end(
    order: list[int],
    letters: str,
    known: list[tuple[int, str]],
    workers: int,
    tests: str,
    plan: Plan,
    cut: int,
) -> None:
    """Results without any sense, other ones each time; stopped once and resumed."""
    states = [
        Candidate(at, f"s{name}", (at,) if at else (), tests="xyz"[name % 3])
        for at, name in enumerate(order)
    ]
    memo = Memo((Subject(f"s{at}"), replace(LETTERS[letter], given=True)) for at, letter in known)
    results = itertools.cycle(letters)

    def result(probe: Probe) -> Observation:
        return replace(LETTERS[next(results)], alone=probe.alone)

    def hunks(before: Candidate, after: Candidate) -> list[str]:
        return [
            f"{step}:{n}"
            for one in states[before.index : after.index]
            for step in one.steps
            for n in range(3)
        ]

    def searcher() -> Searcher:
        overlay = states[-1].state_id if tests == "last" else tests
        return Searcher(states, memo=memo, plan=plan, tests=overlay, hunks=hunks)

    Runner(result, workers).run(searcher(), at_most=cut)
    last = searcher()
    runner = Runner(result, workers)
    finding = runner.run(last)
    assert finding is not None
    # Those that run at once may together exceed the budget that was left when they began.
    assert len(runner.ran) < plan.budget + plan.reduce_budget + workers
    assert finding.executions + finding.reductions == sum(not seen.given for _, seen in memo)
    assert finding.reason
    assert last.progress.left == 0
    if finding.named:
        assert finding.steps


def test_an_observation_that_nobody_asked_for_counts() -> None:
    searcher = Searcher(candidates(4), plan=Plan(scan=True))
    for at in range(3):
        searcher.tell(Probe(Subject(f"s{at}"), Purpose.SCAN), LETTERS["PPF"[at]])
    runner = Runner(by_letter("PPFF"))
    finding = runner.run(searcher)
    assert finding is not None
    assert Purpose.SCAN not in {probe.purpose for probe in runner.ran}
    assert finding.executions == len(runner.ran) + 3


def test_keys_of_the_memo_differ_where_the_question_does() -> None:
    key = MemoKey(Subject("a", "t", ("1", "2"), ("3",)), "test", "pytest", "cp312")
    others = [
        key._replace(subject=Subject("b", "t", ("1", "2"), ("3",))),
        key._replace(subject=Subject("a", "", ("1", "2"), ("3",))),
        key._replace(subject=Subject("a", "t", ("1",), ("2", "3"))),
        key._replace(subject=Subject("a", "t", ("12",), ("3",))),
        key._replace(test="other"),
        key._replace(command="tox"),
        key._replace(environment="cp313"),
        key._replace(test="", command="testpytest"),
    ]
    assert len({one.digest for one in (key, *others)}) == len(others) + 1
    assert key.digest == MemoKey(*key).digest
    assert MemoKey(Subject("\udcff"), "\udcff", "", "").digest


def test_given_results_are_no_executions() -> None:
    memo = Memo([(Subject("a"), replace(PASSES, given=True)), (Subject("a"), FAILS)])
    assert memo.executions(Subject("a")) == 1
    assert memo.of(Subject("a"))[0].kind is Kind.PASSED
    assert memo.of(Subject("b")) == ()
    assert len(memo) == 2
