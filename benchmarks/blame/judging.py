"""What blame said, held against the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarks.blame.scenarios import NONE, RANGE, STEP, Truth
from repotrace.blame import NAMING, Kind, Purpose
from repotrace.records.blame import Blame
from repotrace.runs.testing.observing import observed
from repotrace.storage.memo import Execution

EXACT, INSIDE, RIGHT, OPEN, WRONG = "exact", "range", "right", "open", "wrong"
GRADES = (EXACT, INSIDE, RIGHT, OPEN, WRONG)
CHANGED = frozenset({Purpose.REDUCE, Purpose.REVERT})


def grade(blame: Blame, truth: Truth) -> str:
    """How right an answer is.

    exact: the step is named. range: it is among those that are named together. right: another
    verdict was the right answer, and was given. open: nothing false is said, and not enough.
    """
    named = tuple(step.number for step in blame.steps) if blame.named else ()
    if truth.expected in (STEP, RANGE):
        assert truth.step is not None
        if named:
            return EXACT if set(named) <= {truth.step, *truth.also} else WRONG
        among = {number for found in blame.breaks for number in found.steps}
        if blame.flaky is not None:
            among = set(blame.flaky.steps)
        if truth.step in among:
            return INSIDE
        return WRONG if blame.verdict in ("range", "ambiguous") else OPEN
    if truth.expected == NONE:
        return WRONG if named else (RIGHT if _always(blame) else OPEN)
    if blame.verdict == truth.expected:
        said = blame.test_step if truth.expected == "never-passed" else None
        said = said if said is not None else next(iter(s.number for s in blame.steps), None)
        return RIGHT if truth.step in (None, said) else WRONG
    return WRONG if named else OPEN


def _always(blame: Blame) -> bool:
    """Whether it is said that the test was flaky from the beginning, or is not seen to fail."""
    if blame.verdict == "not-reproducible":
        return True
    return blame.flaky is not None and blame.flaky.always and not blame.flaky.steps


def proven(blame: Blame) -> bool:
    """Whether the answer claims to be more than likely."""
    return blame.verdict in NAMING and blame.verdict != "likely"


class Costs:
    """Executions, in order of time."""

    def __init__(self, test: str, executions: Sequence[Execution]) -> None:
        self._seen = [(one, observed(one, test)) for one in executions]
        apart = [one for one, _ in self._seen if one.purpose in CHANGED]
        self.reductions = len(apart)
        self.executions = len(self._seen) - len(apart)

    def until(self, passes: str, fails: str, times: int, given: tuple[int, int] = (0, 0)) -> int:
        """Executions until the two states were seen so often, with what the agent saw of them."""
        seen: Counter[str] = Counter({passes: given[0], fails: given[1]})
        count = 0
        for one, what in self._seen:
            if one.purpose in CHANGED:
                continue
            count += 1
            if one.state_id == passes and what.passed:
                seen[passes] += 1
            elif one.state_id == fails and not what.passed and what.kind is not Kind.UNUSABLE:
                seen[fails] += 1
            if min(seen[passes], seen[fails]) >= times:
                break
        return count
