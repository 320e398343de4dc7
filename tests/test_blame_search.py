"""The search for a break against brute force, with a fake runner."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from blaming import FAILS, LETTERS, PASSES, PATIENT, Runner, by_letter, candidates, place, search
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.blame import (
    Candidate,
    Finding,
    Kind,
    Memo,
    Observation,
    Plan,
    Probe,
    Purpose,
    Searcher,
    Subject,
    Verdict,
    executions_at_most,
)

strings = st.text("PFE", min_size=1, max_size=70).map(lambda letters: letters + "F")


@st.composite
def one_flip(draw: st.DrawFn, *, between: str = "E") -> str:
    """Passes, then failures, both at least once; anywhere states that can't be run."""
    good = draw(st.text("P" + between, max_size=40)) + "P"
    bad = draw(st.text("F" + between, max_size=40)) + "F"
    return good + draw(st.text(between, max_size=25)) + bad


def flip_of(finding: Finding) -> tuple[int, int]:
    return finding.breaks[0].boundary[:2]


def last_flip(letters: str) -> tuple[int, int]:
    """By brute force: the last pass, and the first failure after it."""
    low = letters.rindex("P")
    return low, letters.index("F", low)


@given(one_flip())
@settings(deadline=None)
def test_a_single_flip_is_found_as_by_brute_force(letters: str) -> None:
    finding, _ = search(letters)
    low, high = last_flip(letters)
    found = finding.breaks[0]
    assert found.boundary == (low, high, tuple(range(low + 1, high)))
    assert found.steps == tuple(range(low + 1, high + 1))
    assert finding.verdict is (Verdict.PROVEN if high == low + 1 else Verdict.RANGE)
    assert found.confirmed
    assert found.odds < PATIENT.chance
    assert min(found.passed, found.failed) >= 7
    assert {letters[at] for at, _ in finding.others} <= {"E"}


@given(strings)
@settings(deadline=None)
def test_what_is_reported_is_always_a_true_flip(letters: str) -> None:
    finding, probes = search(letters)
    if finding.breaks:
        low, high, between = finding.breaks[0].boundary
        assert letters[low] == "P"
        assert letters[high] == "F"
        assert {letters[at] for at in between} <= {"E"}
        assert between == tuple(range(low + 1, high))
    else:
        assert "P" not in letters
        assert {probe.candidate for probe in probes} == set(range(len(letters)))
        first = Verdict.BROKEN_BEFORE if letters[0] == "F" else Verdict.NEVER_PASSED
        assert finding.verdict is first


@given(strings)
@settings(deadline=None)
def test_a_pass_that_is_hidden_may_be_missed_but_not_looked_away_from(letters: str) -> None:
    """With the default measures: among many states there may be a pass that nobody looked for."""
    finding, probes = search(letters, plan=Plan())
    if not finding.breaks:
        executed = {probe.candidate for probe in probes}
        assert "P" not in {letters[at] for at in executed if at is not None}
        assert len(executed) >= min(len(letters), 20)
        assert f"{len(executed)} states" in finding.reason or "first state" in finding.reason


@given(strings)
@settings(deadline=None)
def test_a_scan_finds_the_last_flip_and_the_first(letters: str) -> None:
    finding, probes = search(letters, plan=replace(PATIENT, scan=True))
    assert {probe.candidate for probe in probes} == set(range(len(letters)))
    if "P" not in letters:
        assert not finding.breaks
        return
    assert flip_of(finding) == last_flip(letters)
    after_first_pass = letters.index("P")
    high = letters.index("F", after_first_pass)
    low = letters.rindex("P", 0, high)
    if (low, high) == last_flip(letters):
        assert finding.first_broken is None
    else:
        assert finding.first_broken is not None
        assert finding.first_broken[:2] == (low, high)


@given(st.integers(2, 300), st.data())
@settings(deadline=None)
def test_executions_stay_within_the_promise(states: int, data: st.DataObject) -> None:
    first_bad = data.draw(st.integers(1, states - 1))
    letters = "P" * first_bad + "F" * (states - first_bad)
    finding, probes = search(letters, plan=Plan())
    assert finding.steps == (first_bad,)
    assert finding.verdict is Verdict.PROVEN
    likely, proven = executions_at_most(states)
    assert (likely, proven) == (
        2 * math.ceil(math.log2(states)) + 7,
        2 * math.ceil(math.log2(states)) + 15,
    )
    assert len(probes) == finding.executions <= proven
    seen: Counter[int] = Counter()
    for count, probe in enumerate(probes, 1):
        seen[place(probe.subject)] += 1
        if seen[first_bad - 1] >= 3 and seen[first_bad] >= 3:
            assert count <= likely
            break


def test_83_states_take_few_executions_to_the_flip() -> None:
    """The figure to beat in the notes: 8, with one execution for each state."""
    for first_bad in range(1, 83):
        _, probes = search("P" * first_bad + "F" * (83 - first_bad))
        assert len({probe.subject for probe in probes}) <= 2 * 7


@given(st.text("PFEM", min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_a_state_that_comes_back_is_known(letters: str, data: st.DataObject) -> None:
    """Files that were put back: one state at several places, one result for all of them."""
    order = data.draw(st.lists(st.integers(0, len(letters) - 1), min_size=1, max_size=40))
    order = [name for at, name in enumerate(order) if at == 0 or name != order[at - 1]]
    states = [Candidate(at, f"s{name}", (at,)) for at, name in enumerate(order)]
    finding, probes = search(letters, states=states)
    counts = Counter(probe.subject for probe in probes)
    repeated = {subject for subject, count in counts.items() if count > 1}
    allowed = {states[0].state_id, states[-1].state_id}
    for found in finding.breaks:
        low, high, _ = found.boundary
        assert letters[order[low]] == "P"
        assert LETTERS[letters[order[high]]].failure == found.failure
        allowed |= {states[low].state_id, states[high].state_id}
    assert {subject.state for subject in repeated} <= allowed


@given(strings, st.integers(2, 5))
@settings(deadline=None)
def test_workers_find_a_true_flip_as_well(letters: str, workers: int) -> None:
    finding, _ = search(letters, workers=workers)
    for found in finding.breaks:
        low, high, between = found.boundary
        assert (letters[low], letters[high]) == ("P", "F")
        assert {letters[at] for at in between} <= {"E"}


@given(one_flip(), st.integers(2, 5))
@settings(deadline=None)
def test_workers_find_the_same(letters: str, workers: int) -> None:
    assert flip_of(search(letters, workers=workers)[0]) == last_flip(letters)


@given(one_flip(between="F"), st.integers(0, 60), st.integers(1, 3))
@settings(deadline=None)
def test_a_stopped_search_goes_on_from_its_memo(letters: str, cut: int, workers: int) -> None:
    whole, probes = search(letters)
    memo = Memo()
    states = candidates(len(letters))
    runner = Runner(by_letter(letters), workers)
    if runner.run(Searcher(states, memo=memo, plan=PATIENT), at_most=cut) is None:
        stopped = Searcher(states, memo=memo, plan=PATIENT)
        assert stopped.stop().exhausted
        assert len(memo) == cut
    stored = Memo(list(memo))
    finding = Runner(by_letter(letters)).run(Searcher(states, memo=stored, plan=PATIENT))
    assert finding is not None
    if workers == 1:
        assert finding == whole
        assert len(stored) == len(probes)
    else:
        low, high = flip_of(finding)
        assert letters[low] + letters[high] == "PF"
        assert finding.verdict is whole.verdict


@given(one_flip(between="F"), st.data())
@settings(deadline=None)
def test_results_of_the_run_itself_spare_executions(letters: str, data: st.DataObject) -> None:
    known = data.draw(st.sets(st.integers(0, len(letters) - 1)))
    memo = Memo()
    for at in sorted(known):
        memo.add(Subject(f"s{at}"), replace(LETTERS[letters[at]], given=True))
    finding, probes = search(letters, memo=memo)
    low, high = flip_of(finding)
    assert (letters[low], letters[high]) == ("P", "F")
    executed = {place(probe.subject) for probe in probes}
    assert {low, high} <= executed
    assert executed & known <= {low, high, len(letters) - 1}
    assert finding.breaks[0].given_passed == (low in known)


def test_results_of_the_run_itself_count_for_a_proof_but_are_not_fresh() -> None:
    alone, _ = search("PPFF", plan=Plan())
    memo = Memo()
    for _ in range(4):
        memo.add(Subject("s1"), replace(PASSES, given=True))
        memo.add(Subject("s2"), replace(FAILS, given=True))
    helped, _ = search("PPFF", plan=Plan(), memo=memo)
    assert helped.verdict is alone.verdict is Verdict.PROVEN
    assert helped.executions < alone.executions
    assert helped.breaks[0].odds < 0.001


def test_a_contradicting_result_of_the_run_itself_means_flaky() -> None:
    memo = Memo([(Subject("s19"), replace(FAILS, given=True))])
    finding, _ = search("P" * 20 + "F" * 20, memo=memo, plan=Plan())
    assert finding.verdict is Verdict.FLAKY
    assert finding.flakiness is not None
    assert finding.steps == (20,)
    assert finding.flakiness.before.failed == 1


def test_what_the_run_could_not_import_contradicts_nothing() -> None:
    memo = Memo([(Subject("s19"), replace(LETTERS["E"], given=True))])
    finding, _ = search("P" * 20 + "F" * 20, memo=memo, plan=Plan())
    assert finding.verdict is Verdict.PROVEN


def test_what_runs_beside_others_counts_less_than_what_runs_alone() -> None:
    letters = "P" * 30 + "F" * 30

    def result(probe: Probe) -> Observation:
        # Two at once get into each other's way on one state.
        disturbed = not probe.alone and place(probe.subject) in (19, 20, 29)
        seen = FAILS if disturbed else LETTERS[letters[place(probe.subject)]]
        return replace(seen, alone=probe.alone)

    finding = Runner(result, workers=3).run(Searcher(candidates(60), plan=PATIENT))
    assert finding is not None
    assert flip_of(finding) == (29, 30)
    assert Subject("s29") in finding.disturbed


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(2, 4))
@settings(deadline=None)
def test_any_noise_beside_others_ends(noise: list[bool], workers: int) -> None:
    """Runs that contradict each other when they are not alone are asked again, alone."""
    flips = iter(noise * 1000)

    def result(probe: Probe) -> Observation:
        right = PASSES if place(probe.subject) < 13 else FAILS
        if probe.alone or not next(flips):
            return replace(right, alone=probe.alone)
        return replace(PASSES if right is FAILS else FAILS, alone=False)

    finding = Runner(result, workers).run(Searcher(candidates(32), plan=Plan()))
    assert finding is not None
    if finding.breaks and finding.breaks[0].confirmed:
        assert finding.steps == (13,)


def test_confirming_alternates_and_is_alone() -> None:
    _, probes = search("PPPPFFFF", workers=4)
    confirming = [probe for probe in probes if probe.purpose is Purpose.CONFIRM]
    assert all(probe.alone for probe in confirming)
    places = [place(probe.subject) for probe in confirming][-8:]
    assert places in ([3, 4] * 4, [4, 3] * 4)


def test_a_long_stretch_that_cannot_be_run_costs_no_more_than_is_allowed() -> None:
    letters = "P" * 40 + "E" * 100 + "F" * 40
    finding, probes = search(letters, plan=Plan())
    assert finding.verdict is Verdict.RANGE
    low, high, _ = finding.breaks[0].boundary
    assert (low, high) == (39, 140)
    assert sum(letters[place(probe.subject)] == "E" for probe in probes) <= 20


@pytest.mark.parametrize("letter", "OETMK")
def test_another_way_to_fail_is_no_failure(letter: str) -> None:
    finding, _ = search("PPPPP" + letter * 3 + "FFFFF")
    assert finding.verdict is Verdict.RANGE
    assert flip_of(finding) == (4, 8)
    assert dict(finding.others).keys() == {5, 6, 7}
    assert {seen.kind for _, seen in finding.others} == {LETTERS[letter].kind}


@pytest.mark.parametrize("letter", "OETMK")
def test_a_way_to_fail_that_is_that_of_the_final_state_is_searched_for(letter: str) -> None:
    finding, _ = search("PPPPP" + letter * 8)
    assert finding.verdict is Verdict.PROVEN
    assert finding.steps == (5,)
    assert finding.failure == LETTERS[letter].failure


def test_several_fingerprints_of_the_final_state_are_all_the_failure() -> None:
    numbers = iter(range(1000))

    def result(probe: Probe) -> Observation:
        fails = place(probe.subject) >= 9
        return Observation(Kind.FAILED, f"line {next(numbers) % 2}") if fails else PASSES

    finding = Runner(result).run(Searcher(candidates(16), plan=Plan()))
    assert finding is not None
    assert finding.verdict is Verdict.PROVEN
    assert finding.steps == (9,)


def test_a_final_state_that_cannot_be_run_is_no_break() -> None:
    finding, probes = search("PPPUUU")
    assert finding.verdict is Verdict.UNDECIDED
    assert len(probes) == 3


def test_a_test_that_passes_is_run_more_often_before_that_is_said() -> None:
    finding, probes = search("FFPP")
    assert finding.verdict is Verdict.NOT_REPRODUCIBLE
    assert len(probes) == 8
    assert "8/8" in finding.reason


@given(one_flip(), st.integers(0, 40))
@settings(deadline=None)
def test_a_spent_budget_is_said_and_claims_nothing_false(letters: str, budget: int) -> None:
    finding, probes = search(letters, plan=Plan(budget=budget, skips=1000))
    assert len(probes) <= budget
    low, high = last_flip(letters)
    if finding.breaks:
        found = finding.breaks[0]
        assert found.boundary.passes <= low < high <= found.boundary.fails
        if finding.verdict in (Verdict.LIKELY, Verdict.PROVEN):
            assert found.boundary == (low, high, ())
            assert min(found.passed, found.failed) >= 3
    assert finding.exhausted or len(probes) < budget or finding.breaks


def test_progress_tells_how_far_it_is() -> None:
    letters = "P" * 40 + "F" * 24
    searcher = Searcher(candidates(64), plan=Plan())
    left = []
    while probes := searcher.next():
        progress = searcher.progress
        assert progress.probe == probes[0]
        left.append(progress.left)
        searcher.tell(probes[0], by_letter(letters)(probes[0]))
    assert searcher.progress.passes == 39
    assert searcher.progress.fails == 40
    assert searcher.progress.left == 0
    assert left[-1] == 1
    assert abs(left[0] - len(left)) <= 8


def test_a_probe_that_was_given_up_is_given_again() -> None:
    searcher = Searcher(candidates(4))
    (probe,) = searcher.next()
    assert searcher.next() == ()
    searcher.abandon(probe)
    assert searcher.next() == (probe,)


def test_a_search_needs_states() -> None:
    with pytest.raises(ValueError, match="at least one state"):
        Searcher([])
