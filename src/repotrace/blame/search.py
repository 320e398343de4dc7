"""The search for one break: what to run next, or what was found, decided by the evidence alone.

`Trial.decide` keeps nothing in mind. It looks at all that was observed so far and says what is
wanted next, so that a search that is stopped goes on from its memo, a result that turns out to be
disturbed is simply no longer there, and results of the agent itself are like those of a search
that has already begun.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple

from repotrace.blame.evidence import Failure, Kind, Memo, Observation, Probe, Purpose, Subject
from repotrace.blame.finding import Boundary
from repotrace.blame.odds import greatest_chance
from repotrace.blame.plan import Plan
from repotrace.blame.posterior import Counts, Posterior

_A_STRETCH = 3
"""So many states that can't be run are taken for a stretch of them; its ends come first."""


class Outcome(Enum):
    """What a state says of the break that is searched for."""

    PASS = auto()
    FAIL = auto()
    """The same failure as on the final state."""
    SKIP = auto()
    """It could not be run, or fails in another way."""
    MIXED = auto()
    """It passed, and it did not."""


class End(Enum):
    """Why a search for one break is over."""

    NOT_REPRODUCED = auto()
    FLAKY = auto()
    FLIP = auto()
    NO_PASS = auto()
    """It passes on no state that was run."""
    ENVIRONMENT = auto()
    """It passes on no state here, though the run saw it pass."""
    UNUSABLE = auto()
    """The final state can't be run."""
    EXHAUSTED = auto()


@dataclass(frozen=True, slots=True)
class Need:
    """What has to be run before the search can go on. All of it, in any order."""

    probes: tuple[Probe, ...]
    left: int
    """About how many executions are to come, with these."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a search for one break."""

    end: End
    boundary: Boundary | None = None
    odds: float = 1.0
    proven: bool = False
    likely: bool = False
    exhausted: bool = False


class Sight:
    """The evidence on one subject, as far as it counts."""

    def __init__(self, observations: Sequence[Observation]) -> None:
        own = [seen for seen in observations if not seen.given]
        alone = [seen for seen in own if seen.alone]
        results = {seen.passed for seen in alone}
        beside = [seen for seen in own if not seen.alone]
        if alone:
            kept = [seen for seen in beside if seen.passed in results]
        else:
            # Two of them that contradict each other say nothing; it has to be run alone.
            kept = beside if len({seen.passed for seen in beside}) == 1 else []
        self.disturbed = len(kept) < len(beside)
        self.own = tuple(seen for seen in own if seen.alone or seen in kept)
        self.given = tuple(seen for seen in observations if seen.given)
        self.alone = tuple(alone)


class Tally(NamedTuple):
    """Results on one state that bear on the break, those of the run itself included."""

    passed: int
    failed: int
    """As the final state fails."""


class Trial:
    """One search, over these subjects in order; the last one is the one that fails."""

    def __init__(
        self, subjects: Sequence[Subject], memo: Memo, plan: Plan, *, left: int, first: int = 0
    ) -> None:
        """`left`: executions that may still be made. `first`: the candidate of the first subject.

        All indices in here count from the first subject, save those in probes.
        """
        self.subjects = tuple(subjects)
        self._memo = memo
        self._plan = plan
        self._left = left
        self.first = first
        self._sights: dict[Subject, Sight] = {}
        self._tallies: dict[int, Tally] = {}

    @property
    def last(self) -> int:
        """The index of the final state."""
        return len(self.subjects) - 1

    def sight(self, index: int) -> Sight:
        """What is known of a candidate."""
        subject = self.subjects[index]
        if subject not in self._sights:
            self._sights[subject] = Sight(self._memo.of(subject))
        return self._sights[subject]

    @cached_property
    def reference(self) -> frozenset[Failure]:
        """The ways to fail that are the break: those of the final state, of its commonest kind."""
        sight = self.sight(self.last)
        failures = [seen.failure for seen in sight.own or sight.given if not seen.passed]
        failures = [failure for failure in failures if failure.kind is not Kind.UNUSABLE]
        if not failures:
            return frozenset()
        kind = Counter(failure.kind for failure in failures).most_common(1)[0][0]
        return frozenset(failure for failure in failures if failure.kind is kind)

    @cached_property
    def failure(self) -> Failure | None:
        """How the final state fails, most often."""
        sight = self.sight(self.last)
        failures = [seen.failure for seen in sight.own or sight.given]
        counted = Counter(failure for failure in failures if failure in self.reference)
        return counted.most_common(1)[0][0] if counted else None

    @cached_property
    def outcomes(self) -> tuple[Outcome | None, ...]:
        """By candidate; None: not known."""
        return tuple(self._outcome(index) for index in range(len(self.subjects)))

    def _outcome(self, index: int) -> Outcome | None:
        sight, tally = self.sight(index), self.tally(index)
        if tally.passed:
            # Of what the run itself saw only a failure contradicts: its environment, in which
            # something could not be imported, was another one.
            contrary = sum(not seen.passed and seen.kind is not Kind.UNUSABLE for seen in sight.own)
            contrary += sum(seen.kind is Kind.FAILED for seen in sight.given)
            return Outcome.MIXED if contrary or tally.failed else Outcome.PASS
        if tally.failed:
            return Outcome.FAIL
        return Outcome.SKIP if sight.own else None

    def tally(self, index: int) -> Tally:
        """The results on a candidate that bear on the break."""
        if index not in self._tallies:
            sight = self.sight(index)
            seen = [*sight.own, *sight.given]
            failed = sum(one.failure in self.reference for one in seen)
            self._tallies[index] = Tally(sum(one.passed for one in seen), failed)
        return self._tallies[index]

    def indices(self, outcome: Outcome | None) -> list[int]:
        """The candidates with this outcome."""
        return [index for index, seen in enumerate(self.outcomes) if seen is outcome]

    @property
    def looked(self) -> int:
        """How many different states there are results of."""
        return len({self.subjects[at] for at, seen in enumerate(self.outcomes) if seen is not None})

    # --- What to do next ------------------------------------------------------------------

    def decide(self, workers: int = 1) -> Need | Ended:
        """What to run next, or what was found."""
        decided = self._reproduce()
        if decided is None and self.indices(Outcome.MIXED):
            decided = self._foreign()
            if decided is None or (isinstance(decided, Need) and self._left <= 0):
                return self._flaky()
            return decided
        if decided is None and self._plan.scan:
            decided = self._scan(self._unknown(range(len(self.subjects))), workers)
        if decided is None:
            decided = self._search(workers)
        if isinstance(decided, Need) and self._left <= 0:
            return self._exhausted()
        return decided

    def _reproduce(self) -> Need | Ended | None:
        plan, alone = self._plan, self.sight(self.last).alone
        seen = [one for one in alone if one.kind is not Kind.UNUSABLE]
        passed = sum(one.passed for one in seen)
        if passed and passed < len(seen):
            return None
        wanted = plan.recheck if passed else plan.reproduce
        if len(seen) < wanted:
            if len(alone) - len(seen) >= plan.reproduce:
                return Ended(End.UNUSABLE)
            probe = self._probe(self.last, Purpose.REPRODUCE)
            return Need((probe,), self._still(plan.reproduce - len(seen)))
        return Ended(End.NOT_REPRODUCED) if passed else None

    def _search(self, workers: int) -> Need | Ended:
        passing = self.indices(Outcome.PASS)
        if not passing:
            return self._gallop(workers) or self._look_for_a_pass(workers)
        low = passing[-1]
        high = min(index for index in self.indices(Outcome.FAIL) if index > low)
        return self._narrow(low, high, workers) or self._confirm(self.between(low, high))

    def _foreign(self) -> Need | Ended | None:
        """Whether nothing passes here, not even what passed where the run was recorded."""
        if any(
            seen.passed for index in range(len(self.subjects)) for seen in self.sight(index).own
        ):
            return None
        return self._insist(0) or Ended(End.ENVIRONMENT)

    def _insist(self, index: int) -> Need | None:
        """Run a state as often as the final one."""
        if len(self.sight(index).alone) >= self._plan.reproduce:
            return None
        return Need((self._probe(index, Purpose.BASE),), self._still(0))

    def _gallop(self, workers: int) -> Need | None:
        earliest = self.indices(Outcome.FAIL)[0]
        strides = [1 << power for power in range(self.last.bit_length())]
        places = [self.last - stride for stride in strides if stride < self.last] + [0]
        wanted = [place for place in places if place < earliest and self.outcomes[place] is None]
        return self._need(wanted[:workers], Purpose.GALLOP, workers)

    def _look_for_a_pass(self, workers: int) -> Need | Ended:
        """It passes neither at the end nor at the beginning nor where it was galloped to."""
        fails = self.indices(Outcome.FAIL)
        skips = [index for index in self.indices(Outcome.SKIP) if index < fails[0]]
        if skips:
            # States that can't be run yet, then some that pass, then failing ones: a pass would
            # be found between the first two.
            wanted = self._middle(skips[-1], fails[0], 1)
            if wanted:
                return Need((self._probe(wanted[0], Purpose.SCAN),), self._still(0))
        unknown = self._unknown(range(len(self.subjects)))
        enough = max(self._plan.skips, 3 * math.ceil(math.log2(len(self.subjects) + 1)))
        if unknown and self.looked < enough:
            return Need((self._probe(self._loneliest(unknown), Purpose.SCAN),), self._still(0))
        return self._insist(0) or Ended(End.NO_PASS)

    def _narrow(
        self, low: int, high: int, workers: int, purpose: Purpose = Purpose.BISECT
    ) -> Need | None:
        skipped = sum(
            self._memo.executions(self.subjects[index])
            for index in range(low + 1, high)
            if self.outcomes[index] is Outcome.SKIP
        )
        if skipped >= self._plan.skips:
            return None
        return self._need(self._middle(low, high, workers), purpose, workers)

    def narrow_first(self, workers: int = 1) -> Need | Boundary | None:
        """Where the test was broken first, if it was repaired before the last flip."""
        passes, fails = self.indices(Outcome.PASS), self.indices(Outcome.FAIL)
        flips = [index for index in fails if passes and passes[0] < index < passes[-1]]
        if not flips:
            return None
        high = flips[0]
        low = max(index for index in passes if index < high)
        need = self._narrow(low, high, workers, Purpose.FIRST) if self._left > 0 else None
        return need or self.between(low, high)

    def _confirm(self, boundary: Boundary) -> Need | Ended:
        plan, low, high = self._plan, boundary.passes, boundary.fails
        odds = self.odds(boundary)
        counts = self.tally(low).passed, self.tally(high).failed
        executed = self.sure(low, passing=True), self.sure(high, passing=False)
        likely = all(executed) and min(counts) >= plan.likely
        proven = all(executed) and min(counts) >= plan.confirmations and odds < plan.chance
        strange = sum(
            not seen.passed and seen.failure not in self.reference
            for index in (low, high)
            for seen in self.sight(index).own
        )
        # A state that also fails in other ways does not confirm; don't insist.
        if proven or strange > 1:
            return Ended(End.FLIP, boundary, odds, proven, likely)
        enough = plan.confirmations if likely else plan.likely
        sides = zip((low, high), executed, counts, strict=True)
        # First what was never run alone, then what has too few results, then the less tried.
        wanted, _, _ = min(sides, key=lambda side: (bool(side[1]), side[2] >= enough, side[2]))
        missing = sum(max(0, plan.confirmations - count) for count in counts)
        return Need((self._probe(wanted, Purpose.CONFIRM),), max(1, missing))

    def sure(self, index: int, *, passing: bool) -> int:
        """Executions that passed or failed with nothing beside them."""
        return sum(
            seen.passed if passing else seen.failure in self.reference
            for seen in self.sight(index).alone
        )

    def odds(self, boundary: Boundary) -> float:
        """At most so probable is it that a test with a constant rate looks like this flip."""
        low, high = boundary.passes, boundary.fails
        ends = {self.subjects[index] for index in (low, high, self.last)}
        others = set(self.subjects) - ends
        repeated = sum(len(Sight(self._memo.of(subject)).alone) > 1 for subject in others)
        # Of each side one result, the one that the pair was picked by, says nothing.
        passes = self.sure(low, passing=True) - 1
        failures = self.sure(self.last, passing=False)
        if high != self.last:
            failures += self.sure(high, passing=False) - 1
        odds = (1 + repeated) * greatest_chance(failures, passes)
        if self.sight(low).given or self.sight(high).given:
            # The results of the run were there before: any pair may have been picked by them.
            pairs = len(set(self.subjects)) - 1
            chance = greatest_chance(self.tally(high).failed, self.tally(low).passed)
            odds = min(odds, pairs * chance)
        return min(1.0, odds)

    # --- Flaky ------------------------------------------------------------------------------

    def posterior(self) -> Posterior:
        """What changed the rate of failing."""
        counts, seen = [], set[Subject]()
        for index, subject in enumerate(self.subjects):
            passed, failed = (0, 0) if subject in seen else self.tally(index)
            seen.add(subject)
            counts.append(Counts(failed, passed))
        return Posterior(counts, self._possible())

    def _possible(self) -> list[bool]:
        """Whether all states differ before and from each candidate on: equal ones fail equally."""
        last = {subject: index for index, subject in enumerate(self.subjects)}
        possible, reach = [True], 0
        for index in range(1, len(self.subjects)):
            reach = max(reach, last[self.subjects[index - 1]])
            possible.append(reach < index)
        return possible

    def _flaky(self) -> Need | Ended:
        posterior = self.posterior()
        usable = [self._usable(index) for index in range(len(self.subjects))]
        if self._settled(posterior, usable):
            return Ended(End.FLAKY)
        if self._left <= 0:
            return Ended(End.FLAKY, exhausted=True)
        entropy = posterior.entropy_after()
        index = min(
            (index for index, fit in enumerate(usable) if fit), key=lambda place: entropy[place]
        )
        return Need((self._probe(index, Purpose.FLAKY),), min(self._left, 20))

    def _usable(self, index: int) -> bool:
        """Whether one may hope for a result there."""
        return self.outcomes[index] is not Outcome.SKIP or len(self.sight(index).own) < 2

    def _settled(self, posterior: Posterior, usable: Sequence[bool]) -> bool:
        """Whether one hypothesis, or those that no state can tell apart, are probable enough."""
        together = 0.0
        for k, probability in enumerate(posterior.probability):
            apart = k < 2 or usable[k - 1]
            together = probability if apart else together + probability
            if together >= self._plan.confidence:
                return True
        return False

    # --- Places -----------------------------------------------------------------------------

    def between(self, low: int, high: int) -> Boundary:
        """The boundary, with the states between that say nothing."""
        return Boundary(low, high, tuple(range(low + 1, high)))

    def _middle(self, low: int, high: int, workers: int) -> list[int]:
        """Which of the unknown states between the two to run; the fewer are left the better."""
        unknown = self._unknown(range(low + 1, high))
        skips = [index for index in range(low + 1, high) if self.outcomes[index] is Outcome.SKIP]
        if workers > 1 and not skips:
            parts = (len(unknown) * part // (workers + 1) for part in range(1, workers + 1))
            return [unknown[place] for place in dict.fromkeys(parts) if place < len(unknown)]
        if len(skips) >= _A_STRETCH:
            edges = [
                [index for index in unknown if index < skips[0]],
                [index for index in unknown if index > skips[-1]],
            ]
            unknown = max(edges, key=len) or unknown
        chosen: list[int] = []
        while unknown and len(chosen) < workers:
            chosen.append(max(unknown, key=lambda index: self._worth(low, index, high, skips)))
            unknown.remove(chosen[-1])
            skips = [*skips, chosen[-1]]
        return chosen

    def _worth(self, low: int, index: int, high: int, skips: Sequence[int]) -> tuple[float, int]:
        # Where some states can't be run, their neighbours often can't either: the more of them
        # were met, the wider the berth.
        berth = (1 << min(len(skips), 16)) - 1
        away = min((abs(index - skip) for skip in skips), default=1)
        return min(index - low, high - index) * away / (away + berth), -index

    def _unknown(self, places: Collection[int]) -> list[int]:
        """Those that were not run, one for each different state."""
        subjects = {self.subjects[index]: index for index in places if self.outcomes[index] is None}
        return sorted(subjects.values())

    def _loneliest(self, unknown: Sequence[int]) -> int:
        known = [index for index, seen in enumerate(self.outcomes) if seen is not None]
        return max(unknown, key=lambda place: min(abs(place - index) for index in known))

    def _scan(self, places: Sequence[int], workers: int) -> Need | None:
        return self._need(places[:workers], Purpose.SCAN, workers, left=len(places))

    def _need(
        self, places: Sequence[int], purpose: Purpose, workers: int, *, left: int = 0
    ) -> Need | None:
        if not places:
            return None
        probes = tuple(
            # What contradicted itself beside others is asked again without them.
            self._probe(
                index,
                purpose,
                alone=workers == 1 or self._memo.executions(self.subjects[index]) > 0,
            )
            for index in places
        )
        return Need(probes, self._still(left))

    def _probe(self, index: int, purpose: Purpose, *, alone: bool = True) -> Probe:
        subject = self.subjects[index]
        return Probe(
            subject, purpose, self.first + index, self._memo.executions(subject) + 1, alone
        )

    def _still(self, more: int) -> int:
        """About how many executions are to come, with `more` before the search begins."""
        passes, fails = self.indices(Outcome.PASS), self.indices(Outcome.FAIL)
        span = self.last
        if passes and any(index > passes[-1] for index in fails):
            span = min(index for index in fails if index > passes[-1]) - passes[-1]
        confirm = 2 * self._plan.confirmations - self._plan.reproduce - 1
        return max(1, more) + math.ceil(math.log2(max(1, span))) + confirm

    def _exhausted(self) -> Ended:
        passing = self.indices(Outcome.PASS)
        fails = [index for index in self.indices(Outcome.FAIL) if passing and index > passing[-1]]
        if not fails:
            return Ended(End.EXHAUSTED, exhausted=True)
        boundary = self.between(passing[-1], fails[0])
        confirmed = self._confirm(boundary)
        likely = False
        if boundary.exact:
            low, high = boundary.passes, boundary.fails
            both = min(self.tally(low).passed, self.tally(high).failed)
            alone = self.sure(low, passing=True) and self.sure(high, passing=False)
            likely = bool(alone) and both >= self._plan.likely
        if isinstance(confirmed, Ended):
            return Ended(
                End.FLIP, boundary, confirmed.odds, confirmed.proven, likely, exhausted=True
            )
        return Ended(End.FLIP, boundary, self.odds(boundary), False, likely, exhausted=True)
