"""The smallest part of a change, and what comes of undoing it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from blaming import FAILS, PASSES, Runner
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
    Verdict,
    ddmin,
)


def reduced(items: Sequence[int], shows: Callable[[frozenset[int]], bool]) -> tuple[int, ...]:
    """The result of `ddmin`, which must not ask twice, nor for what is known."""
    asked: list[tuple[int, ...]] = []
    parts = ddmin(items)
    try:
        part = next(parts)
        while True:
            assert part not in asked
            assert 0 < len(part) < len(items)
            assert list(part) == [item for item in items if item in part]
            asked.append(part)
            part = parts.send(shows(frozenset(part)))
    except StopIteration as done:
        return tuple(done.value)


@given(st.integers(1, 12), st.lists(st.frozensets(st.integers(0, 11), min_size=1), max_size=6))
@settings(deadline=None)
def test_the_part_shows_it_and_none_of_its_items_can_be_left_out(
    size: int, causes: list[frozenset[int]]
) -> None:
    """Any one of the causes is enough."""
    items = list(range(size))

    def shows(part: frozenset[int]) -> bool:
        return len(part) == size or any(cause <= part for cause in causes)

    found = frozenset(reduced(items, shows))
    assert shows(found)
    assert len(found) == 1 or not any(shows(found - {item}) for item in found)


@given(st.integers(1, 8), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_it_holds_without_any_sense_in_the_answers(size: int, chance: object) -> None:
    """Parts that do not even run are as good as passing ones, whatever they are contained in."""
    items = list(range(size))
    sets = [frozenset(s) for n in range(1, size + 1) for s in itertools.combinations(items, n)]
    picked = {s for s in sets if chance.random() < 0.3} | {frozenset(items)}  # type: ignore[attr-defined]
    found = frozenset(reduced(items, lambda part: part in picked))
    assert found in picked
    assert len(found) == 1 or not any(found - {item} in picked for item in found)


def test_thirteen_hunks_take_few_runs() -> None:
    """The figure to beat in the notes: 7 runs."""
    counts = []
    for culprit in range(13):
        asked = 0

        def shows(part: frozenset[int], culprit: int = culprit) -> bool:
            nonlocal asked
            asked += 1
            return culprit in part

        assert reduced(range(13), shows) == (culprit,)
        counts.append(asked)
    assert min(counts) <= 5
    assert sum(counts) / 13 <= 7


# --- Whole runs made of hunks -----------------------------------------------------------------


class Project:
    """A run whose steps add hunks; the test fails where one of the causes is there whole."""

    def __init__(self, steps: Sequence[Sequence[str]], causes: Sequence[frozenset[str]]) -> None:
        self.steps = steps
        self.causes = causes
        self.candidates = tuple(
            Candidate(at, f"s{at}", (at,) if at else ()) for at in range(len(steps) + 1)
        )

    def hunks(self, before: Candidate, after: Candidate) -> list[str]:
        return [hunk for step in self.steps[before.index : after.index] for hunk in step]

    def fails(self, present: set[str]) -> bool:
        return any(cause <= present for cause in self.causes)

    def result(self, probe: Probe) -> Observation:
        at = int(probe.subject.state[1:])
        present = {hunk for step in self.steps[:at] for hunk in step}
        assert set(probe.subject.removed) <= present, "nothing is undone that is not there"
        assert not set(probe.subject.added) & present
        present = present - set(probe.subject.removed) | set(probe.subject.added)
        return FAILS if self.fails(present) else PASSES

    def blame(self, plan: Plan | None = None, memo: Memo | None = None) -> tuple[Finding, Runner]:
        runner = Runner(self.result)
        plan = plan or Plan(budget=10_000, reduce_budget=10_000, breaks=50)
        finding = runner.run(Searcher(self.candidates, plan=plan, memo=memo, hunks=self.hunks))
        assert finding is not None
        return finding, runner


@st.composite
def projects(draw: st.DrawFn) -> Project:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=20))
    steps = [[f"{at}:{n}" for n in range(size)] for at, size in enumerate(sizes, 1)]
    hunks = [hunk for step in steps for hunk in step]
    cause = st.frozensets(st.sampled_from(hunks), min_size=1, max_size=3)
    return Project(steps, draw(st.lists(cause, min_size=1, max_size=4)))


@given(projects())
@settings(deadline=None)
def test_all_breaks_are_found_in_turn_until_undoing_them_helps(project: Project) -> None:
    finding, _ = project.blame()
    everything = {hunk for step in project.steps for hunk in step}
    undone: set[str] = set()
    for found in finding.breaks:
        assert found.confirmed
        assert found.hunks is not None
        assert found.minimal
        low, high, _ = found.boundary
        before = {hunk for step in project.steps[:low] for hunk in step} - undone
        hunks = set(found.hunks)
        assert hunks <= set(project.steps[high - 1])
        assert project.fails(before | hunks)
        assert not any(project.fails(before | hunks - {hunk}) for hunk in hunks)
        undone |= hunks
        assert found.necessary == (not project.fails(everything - undone))
    assert not project.fails(everything - undone)
    assert [found.necessary for found in finding.breaks][:-1] == [False] * (len(finding.breaks) - 1)
    first = Verdict.NECESSARY if len(finding.breaks) == 1 else Verdict.MINIMAL
    assert finding.verdict is first


def test_two_hunks_of_one_step_that_each_break_it() -> None:
    project = Project([["a"], ["b", "c", "d"], ["e"]], [frozenset("b"), frozenset("d")])
    finding, _ = project.blame()
    assert [(found.steps, found.necessary) for found in finding.breaks] == [
        ((2,), False),
        ((2,), True),
    ]
    assert {found.hunks for found in finding.breaks} == {("b",), ("d",)}


@given(projects(), st.integers(0, 80))
@settings(deadline=None)
def test_reduction_goes_on_from_the_memo(project: Project, cut: int) -> None:
    whole, runner = project.blame()
    memo = Memo()
    Runner(project.result).run(
        Searcher(project.candidates, memo=memo, hunks=project.hunks), at_most=cut
    )
    finding, more = project.blame(memo=memo)
    assert finding == whole
    assert len(more.ran) + cut == len(runner.ran) or cut > len(runner.ran)


def test_reductions_are_counted_apart_and_have_a_budget_of_their_own() -> None:
    project = Project([[f"{n}" for n in range(40)]], [frozenset(["3", "17", "30"])])
    finding, runner = project.blame(Plan(reduce_budget=10))
    assert finding.executions == 14
    assert finding.reductions == 10
    (found,) = finding.breaks
    assert found.verdict is Verdict.PROVEN
    assert not found.minimal
    assert found.hunks is not None
    assert {"3", "17", "30"} <= set(found.hunks)
    assert all(probe.candidate is None for probe in runner.ran[14:])


def test_without_reduction_the_whole_step_is_undone() -> None:
    project = Project([["a"], ["b", "c"], ["d"]], [frozenset("c")])
    finding, runner = project.blame(Plan(reduce=False))
    (found,) = finding.breaks
    assert (found.hunks, found.minimal, found.necessary) == (("b", "c"), False, True)
    assert found.verdict is Verdict.NECESSARY
    assert Purpose.REDUCE not in {probe.purpose for probe in runner.ran}


def test_what_cannot_be_undone_is_said() -> None:
    project = Project([["a"], ["b"], ["c"]], [frozenset("b")])

    def conflict(probe: Probe) -> Observation:
        if probe.subject.removed:
            return Observation(Kind.UNUSABLE, note="conflict in a.py")
        return project.result(probe)

    finding = Runner(conflict).run(Searcher(project.candidates, hunks=project.hunks))
    assert finding is not None
    (found,) = finding.breaks
    assert found.verdict is Verdict.MINIMAL
    assert found.necessary is None
    assert found.revert is not None
    assert found.revert.note == "conflict in a.py"


def test_another_failure_after_undoing_is_another_break() -> None:
    """The first break hides the second one, which fails in another way."""
    steps = [["a"], ["b"], ["c"], ["d"]]
    project = Project(steps, [])

    def result(probe: Probe) -> Observation:
        at = int(probe.subject.state[1:])
        present = {hunk for step in steps[:at] for hunk in step} - set(probe.subject.removed)
        if "b" in present:
            return Observation(Kind.FAILED, "first")
        return Observation(Kind.FAILED, "second") if "d" in present else PASSES

    finding = Runner(result).run(Searcher(project.candidates, hunks=project.hunks))
    assert finding is not None
    assert [(found.steps, found.failure.fingerprint) for found in finding.breaks] == [
        ((2,), "first"),
        ((4,), "second"),
    ]
    assert "broken again by step 4" in finding.reason
