"""The whole inquiry into one failing test: search, reduce, undo, search on; then say it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from repotrace.blame.candidates import Candidate
from repotrace.blame.evidence import Kind, Memo, Observation, Probe, Purpose, Subject
from repotrace.blame.finding import (
    Boundary,
    Break,
    Finding,
    Flakiness,
    Rate,
    Verdict,
)
from repotrace.blame.odds import chance_words, upper_rate
from repotrace.blame.plan import Plan
from repotrace.blame.reduction import ddmin
from repotrace.blame.search import End, Ended, Need, Outcome, Sight, Trial

type Hunks = Callable[[Candidate, Candidate], Sequence[str]]
"""The ids of the hunks that lead from one state to the other, in an order that makes sense."""

type Lacks = Callable[[Sequence[str], Candidate], bool]
"""Whether the files of a state have some of the hunks undone."""

type Steps[T] = Generator[Need, None, T]
"""Yields what has to be run, and returns what came of it."""

type Undone = tuple[tuple[int, tuple[str, ...]], ...]
"""Hunks that are kept undone, with the index of the first candidate that has them."""

CHANGED = frozenset({Purpose.REDUCE, Purpose.REVERT})
"""The purposes whose executions are counted apart."""


@dataclass(slots=True)
class Account:
    """What was executed, and what may be."""

    workers: int = 1
    executions: int = 0
    reductions: int = 0
    stopped: bool = False


class Inquiry:
    """Everything that is asked about one test. `run` is a coroutine; the memo is its memory."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        memo: Memo,
        plan: Plan,
        account: Account,
        *,
        tests: str,
        hunks: Hunks | None,
        lacks: Lacks | None = None,
    ) -> None:
        self._candidates = candidates
        self._memo = memo
        self._plan = plan
        self._account = account
        self._tests = tests
        self._hunks = hunks
        self._lacks = lacks
        self._versions = {one.state_id: one.tests for one in candidates}

    def subject(
        self, state: str, tests: str, *, added: Sequence[str] = (), removed: Sequence[str] = ()
    ) -> Subject:
        """The state with the tests of another. One name for one thing: see `same_tests`."""
        if not added and not removed and self.same_tests(state, tests):
            tests = ""
        return Subject(state, tests, tuple(added), tuple(removed))

    def same_tests(self, state: str, tests: str) -> bool:
        """Whether the state has just those tests itself, as far as is known."""
        version = self._versions.get(state)
        return tests in ("", state) or bool(version and version == self._versions.get(tests))

    def trial(self, tests: str, undone: Undone = (), *, first: int = 0) -> Trial:
        """The search over the states from `first` on, as the evidence is now."""
        subjects = [
            self.subject(one.state_id, tests, removed=_removed_at(one.index, undone))
            for one in self._candidates[first:]
        ]
        left = 0 if self._account.stopped else self._plan.budget - self._account.executions
        return Trial(subjects, self._memo, self._plan, left=left, first=first)

    def run(self) -> Steps[Finding]:
        """Ask on until there is an answer."""
        trial, ended = yield from self._search(self._tests)
        if ended.end is End.FLIP:
            return (yield from self._flip(trial, ended, self._tests))
        if ended.end is End.NO_PASS:
            return (yield from self._nothing_passes(trial))
        return self._plain(trial, ended)

    def _search(
        self, tests: str, undone: Undone = (), *, first: int = 0
    ) -> Steps[tuple[Trial, Ended]]:
        while True:
            trial = self.trial(tests, undone, first=first)
            decided = trial.decide(self._account.workers)
            if isinstance(decided, Ended):
                return trial, decided
            yield decided

    # --- One subject ----------------------------------------------------------------------

    def _observe(
        self, subject: Subject, purpose: Purpose, *, index: int | None = None, times: int = 1
    ) -> Steps[tuple[Observation, ...]]:
        """What comes of a subject, run alone; fewer than `times` if that is not to be afforded."""
        while True:
            seen = Sight(self._memo.of(subject)).alone
            if len(seen) >= times or not self._affordable(purpose):
                return seen
            number = self._memo.executions(subject) + 1
            yield Need((Probe(subject, purpose, index, number),), max(1, times - len(seen)))

    def _affordable(self, purpose: Purpose) -> bool:
        account, plan = self._account, self._plan
        if account.stopped:
            return False
        if purpose in CHANGED:
            return account.reductions < plan.reduce_budget
        return account.executions < plan.budget

    # --- A flip was found -----------------------------------------------------------------

    def _flip(self, trial: Trial, ended: Ended, tests: str) -> Steps[Finding]:
        first = yield from self._first_broken(tests)
        breaks: list[Break] = []
        undone: Undone = ()
        exhausted = ended.exhausted
        while True:
            found = self._break_of(trial, ended)
            if found.confirmed:
                found = yield from self._reduced(found, trial, tests, undone)
                if not undone and (yield from self._repaired(found, tests)):
                    trial, ended = yield from self._search(tests)
                    if ended.end is not End.FLIP:
                        return self._plain(trial, ended)
                    first = yield from self._first_broken(tests)
                    continue
                undone = (*undone, (found.boundary.fails, found.hunks or ()))
                if self._plan.undo and found.hunks:
                    found = yield from self._undone(found, tests, undone)
            breaks.append(found)
            if found.necessary is not False or len(breaks) >= self._plan.breaks:
                break
            trial, ended = yield from self._search(tests, undone, first=found.boundary.passes)
            exhausted = exhausted or ended.exhausted
            if ended.end is not End.FLIP:
                break
        return self._finding(
            breaks[0].verdict,
            _reason_of(breaks),
            steps=breaks[0].steps,
            breaks=tuple(breaks),
            first_broken=first,
            failure=breaks[0].failure,
            original_tests=tests != self._tests,
            exhausted=exhausted or self._account.stopped,
        )

    def _first_broken(self, tests: str) -> Steps[Boundary | None]:
        while True:
            found = self.trial(tests).narrow_first(self._account.workers)
            if not isinstance(found, Need):
                return found
            yield found

    def _break_of(self, trial: Trial, ended: Ended) -> Break:
        assert ended.boundary is not None
        assert trial.failure is not None
        low, high, skipped = ended.boundary
        good, bad = trial.sight(low), trial.sight(high)
        boundary = Boundary(
            low + trial.first, high + trial.first, tuple(one + trial.first for one in skipped)
        )
        steps = self._steps_between(boundary)
        found = Break(
            boundary=boundary,
            steps=steps,
            verdict=Verdict.UNDECIDED,
            passed=sum(one.passed for one in good.own),
            failed=sum(one.failure in trial.reference for one in bad.own),
            given_passed=sum(one.passed for one in good.given),
            given_failed=sum(one.failure in trial.reference for one in bad.given),
            odds=ended.odds,
            confirmed=ended.proven,
            likely=ended.likely,
            failure=trial.failure,
            inferred=any(self._candidates[at].inferred for at in boundary[:2]),
            new_environment=self._candidates[boundary.passes].environment
            != self._candidates[boundary.fails].environment,
        )
        return replace(found, verdict=_verdict_of(found))

    def _steps_between(self, boundary: Boundary) -> tuple[int, ...]:
        between = self._candidates[boundary.passes + 1 : boundary.fails + 1]
        return tuple(dict.fromkeys(number for one in between for number in one.steps))

    def _reduced(self, found: Break, trial: Trial, tests: str, undone: Undone) -> Steps[Break]:
        """With the smallest part of the change that still breaks the test."""
        before = self._candidates[found.boundary.passes]
        after = self._candidates[found.boundary.fails]
        gone = {hunk for _, hunks in undone for hunk in hunks}
        hunks = self._hunks(before, after) if self._hunks else ()
        hunks = tuple(hunk for hunk in hunks if hunk not in gone)
        if not hunks or not self._plan.reduce:
            return replace(found, hunks=hunks or None, hunks_of=len(hunks))
        removed = _removed_at(before.index, undone)
        smallest, minimal = hunks, False
        parts = ddmin(hunks)
        try:
            part = next(parts)
            while True:
                subject = self.subject(before.state_id, tests, added=part, removed=removed)
                seen = yield from self._observe(subject, Purpose.REDUCE)
                if not seen:
                    break
                shows = seen[0].failure in trial.reference
                if shows and len(part) < len(smallest):
                    smallest = part
                part = parts.send(shows)
        except StopIteration as done:
            smallest, minimal = done.value, True
        found = replace(found, hunks=smallest, hunks_of=len(hunks), minimal=minimal)
        return replace(found, verdict=_verdict_of(found))

    def _repaired(self, found: Break, tests: str) -> Steps[bool]:
        """Whether a later state without the hunks passes: they were undone, and made once more.

        To undo them on the final state would help then, and still another step made them.
        """
        later = self._candidates[found.boundary.fails + 1 :]
        if self._lacks is None or not found.hunks:
            return False
        without = [one for one in later if self._lacks(found.hunks, one)]
        if not without:
            return False
        last = without[-1]
        subject = self.subject(last.state_id, tests)
        seen = yield from self._observe(subject, Purpose.SCAN, index=last.index)
        return bool(seen) and all(one.passed for one in seen)

    def _undone(self, found: Break, tests: str, undone: Undone) -> Steps[Break]:
        """With what comes of undoing it, and all before it, on the final state."""
        final = self._candidates[-1]
        removed = _removed_at(final.index, undone)
        subject = self.subject(final.state_id, tests, removed=removed)
        seen = yield from self._observe(subject, Purpose.REVERT)
        if seen and seen[0].passed:
            seen = yield from self._observe(subject, Purpose.REVERT, times=self._plan.likely)
        if not seen:
            return found
        telling = next((one for one in seen if not one.passed), seen[0])
        necessary: bool | None = None
        if all(one.passed for one in seen):
            necessary = True if len(seen) >= self._plan.likely else None
        elif not any(one.passed for one in seen) and telling.kind is found.failure.kind:
            necessary = False
        found = replace(found, necessary=necessary, revert=telling)
        return replace(found, verdict=_verdict_of(found))

    # --- It passes nowhere ----------------------------------------------------------------

    def _nothing_passes(self, trial: Trial) -> Steps[Finding]:
        base, final = self._candidates[0].state_id, self._candidates[-1].state_id
        seen = trial.sight(0).alone
        if self.same_tests(base, self._tests):
            own: tuple[Observation, ...] = seen
        else:
            own = yield from self._observe(self.subject(base, ""), Purpose.BASE, index=0)
        if not own:
            reason = "the budget was spent before the first state was run with its own tests"
            return self._finding(Verdict.UNDECIDED, reason, failure=trial.failure, exhausted=True)
        if own[0].kind is Kind.MISSING:
            return (yield from self._new_test(trial))
        if own[0].passed:
            subject = self.subject(final, base)
            last = len(self._candidates) - 1
            times = self._plan.likely
            old = yield from self._observe(subject, Purpose.TESTS, index=last, times=times)
            if len(old) == times and all(one.passed for one in old):
                return (yield from self._changed_test(trial, base, final))
            if not any(one.passed for one in old):
                trial, ended = yield from self._search(base)
                if ended.end is End.FLIP:
                    return (yield from self._flip(trial, ended, base))
                return self._plain(trial, ended)
            reason = "the tests were changed, and those of before are not steady on the final state"
            return self._finding(Verdict.UNDECIDED, reason, failure=trial.failure)
        if trial.outcomes[0] is Outcome.FAIL or own[0].failure in trial.reference:
            times = len(trial.sight(0).alone)
            reason = f"fails on the first state already ({times}/{times})"
            return self._finding(Verdict.BROKEN_BEFORE, reason, failure=trial.failure)
        reason = f"passes on none of the {trial.looked} states that were run"
        return self._finding(Verdict.NEVER_PASSED, reason, failure=trial.failure)

    def _new_test(self, trial: Trial) -> Steps[Finding]:
        def there(observation: Observation) -> bool:
            return observation.kind is not Kind.MISSING

        index = yield from self._first_version(lambda one: self.subject(one.state_id, ""), there)
        step = self._one_step(index)
        reason = "the test is new in this run and passed on none of its states"
        return self._finding(Verdict.NEVER_PASSED, reason, failure=trial.failure, test_step=step)

    def _changed_test(self, trial: Trial, base: str, final: str) -> Steps[Finding]:
        def fails(observation: Observation) -> bool:
            return not observation.passed

        index = yield from self._first_version(lambda one: self.subject(final, one.state_id), fails)
        steps = self._candidates[index].steps if index is not None else ()
        return self._finding(
            Verdict.TEST_CHANGED,
            "the tests of the first state pass on the final one; only the changed tests fail",
            steps=steps,
            failure=trial.failure,
            test_step=self._one_step(index),
            exhausted=index is None,
        )

    def _first_version(
        self, subject_of: Callable[[Candidate], Subject], holds: Callable[[Observation], bool]
    ) -> Steps[int | None]:
        """The first candidate with tests for which it holds; it does for the last ones."""
        versions = [
            one.index
            for before, one in pairwise(self._candidates)
            if not one.tests or one.tests != before.tests
        ]
        low, high = 0, len(versions) - 1
        while low < high:
            middle = (low + high) // 2
            one = self._candidates[versions[middle]]
            seen = yield from self._observe(subject_of(one), Purpose.TESTS, index=one.index)
            if not seen:
                return None
            if holds(seen[0]):
                high = middle
            else:
                low = middle + 1
        return versions[low] if versions else None

    def _one_step(self, index: int | None) -> int | None:
        steps = self._candidates[index].steps if index is not None else ()
        return steps[0] if len(steps) == 1 else None

    # --- Words ----------------------------------------------------------------------------

    def _plain(self, trial: Trial, ended: Ended) -> Finding:
        if ended.end is End.NOT_REPRODUCED:
            runs = len(trial.sight(trial.last).alone)
            rate = upper_rate(0, runs)
            reason = f"passes on the final state ({runs}/{runs}): it fails in less than {rate:.0%}"
            return self._finding(Verdict.NOT_REPRODUCIBLE, reason)
        if ended.end is End.FLAKY:
            return self._flaky(trial, ended)
        if ended.end is End.ENVIRONMENT:
            installs = self._installs()
            reason = "fails on every state here, also where the run saw it pass"
            return self._finding(
                Verdict.ENVIRONMENT,
                reason,
                steps=installs,
                installs=installs,
                failure=trial.failure,
            )
        if ended.end is End.UNUSABLE:
            reason = "could not be run on the final state"
        elif ended.end is End.NO_PASS:
            reason = f"passes on none of the {trial.looked} states that were run"
        else:
            reason = "the budget was spent before a state was found on which it passes"
        return self._finding(
            Verdict.UNDECIDED, reason, failure=trial.failure, exhausted=ended.exhausted
        )

    def _flaky(self, trial: Trial, ended: Ended) -> Finding:
        posterior = trial.posterior()
        confidence = self._plan.confidence
        credible = posterior.credible(confidence)
        probable = max(posterior.probability[1:], default=0.0)
        place = posterior.probability.index(probable, 1) if probable else 0
        best = place if probable >= confidence else None
        before, after = (
            self._rate(trial, range(place), posterior.rates(place)[0]),
            self._rate(trial, range(place, len(trial.subjects)), posterior.rates(place)[1]),
        )
        steps = [number for k in sorted(credible) if k for number in self._candidates[k].steps]
        flakiness = Flakiness(
            posterior=posterior.probability,
            best=best,
            credible=credible,
            before=before,
            after=after,
            steps=tuple(dict.fromkeys(steps)),
        )
        if best is not None:
            reason = (
                f"flaky: fails {before.failed} of {before.runs} before,"
                f" {after.failed} of {after.runs} after; {probable:.0%} sure"
            )
        elif posterior.probability[0] >= confidence:
            reason = f"flaky from the beginning: fails {after.failed} of {after.runs}"
        else:
            reason = "flaky, and no single change is probable enough"
        return self._finding(
            Verdict.FLAKY,
            reason,
            steps=self._candidates[best].steps if best is not None else (),
            flakiness=flakiness,
            failure=trial.failure,
            exhausted=ended.exhausted,
        )

    def _rate(self, trial: Trial, places: range, mean: float) -> Rate:
        tallies = {trial.subjects[place]: trial.tally(place) for place in places}
        failed = sum(tally.failed for tally in tallies.values())
        runs = failed + sum(tally.passed for tally in tallies.values())
        return Rate(failed, runs, mean, upper_rate(failed, runs) if runs else 1.0)

    def _installs(self) -> tuple[int, ...]:
        known = [one for one in self._candidates if one.environment]
        return tuple(
            number
            for before, one in pairwise(known)
            if before.environment != one.environment
            for number in one.steps
        )

    def _others(self) -> tuple[tuple[int, Observation], ...]:
        """States of the search that could not be run, or failed in another way."""
        trial = self.trial(self._tests)
        return tuple((at, trial.sight(at).own[0]) for at in trial.indices(Outcome.SKIP))

    def _finding(self, verdict: Verdict, reason: str, **found: Any) -> Finding:
        states = set[str]()
        executions = reductions = 0
        disturbed = []
        for subject in dict.fromkeys(subject for subject, _ in self._memo):
            runs = self._memo.executions(subject)
            if Sight(self._memo.of(subject)).disturbed:
                disturbed.append(subject)
            if subject.added or subject.removed:
                reductions += runs
            elif runs:
                executions += runs
                states.add(subject.state)
        return Finding(
            verdict=verdict,
            reason=reason,
            others=self._others(),
            tried=len(states),
            executions=executions,
            reductions=reductions,
            disturbed=tuple(disturbed),
            **found,
        )


def _removed_at(index: int, undone: Undone) -> tuple[str, ...]:
    """What is undone of a candidate: what it has of it."""
    return tuple(hunk for first, hunks in undone if first <= index for hunk in hunks)


def _verdict_of(found: Break) -> Verdict:
    if not found.boundary.exact:
        return Verdict.RANGE
    if len(found.steps) > 1:
        return Verdict.AMBIGUOUS
    if not found.confirmed:
        return Verdict.LIKELY if found.likely else Verdict.UNDECIDED
    if found.necessary:
        return Verdict.NECESSARY
    return Verdict.MINIMAL if found.minimal else Verdict.PROVEN


def _reason_of(breaks: Sequence[Break]) -> str:
    found = breaks[0]
    passes, fails = found.boundary[:2]
    reason = (
        f"passes after state {passes} ({found.passed}/{found.passed}),"
        f" fails after state {fails} ({found.failed}/{found.failed})"
    )
    if found.confirmed:
        reason += f"; by chance {chance_words(found.odds)}"
    if len(breaks) > 1:
        steps = dict.fromkeys(number for one in breaks[1:] for number in one.steps)
        reason += f"; broken again by {_numbered(tuple(steps))}"
    return reason


def _numbered(steps: Sequence[int]) -> str:
    return f"step{'s' if len(steps) != 1 else ''} {', '.join(map(str, steps))}"
