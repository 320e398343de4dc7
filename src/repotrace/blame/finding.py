"""What a search for a break found: verdicts with the evidence that they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from repotrace.blame.evidence import Failure, Observation, Probe, Subject


class Verdict(StrEnum):
    """What is said of a test that fails at the end of a run. The first four are a ladder."""

    LIKELY = "likely"
    """A step was found, and seen to break the test three times of three."""
    PROVEN = "proven"
    """Confirmed until chance was excluded."""
    MINIMAL = "minimal"
    """Proven, and no hunk of those named can be left out."""
    NECESSARY = "necessary"
    """Proven, and undoing it makes the final state pass."""
    RANGE = "range"
    """The step is among several: the states between could not be run."""
    AMBIGUOUS = "ambiguous"
    """The change is found; several steps may have made it."""
    FLAKY = "flaky"
    """The test passed and failed on one state. What changed its rate of failing may be named."""
    NEVER_PASSED = "never-passed"
    """The test is new in this run, or never could be run before, and passed on no state."""
    TEST_CHANGED = "test-changed"
    """The tests of before pass on the final state; only the changed ones fail."""
    ENVIRONMENT = "environment"
    """It fails on every state here, also where the run saw it pass."""
    BROKEN_BEFORE = "broken-before"
    """It fails on the first state already."""
    NOT_REPRODUCIBLE = "not-reproducible"
    """It passes on the final state here."""
    UNDECIDED = "undecided"
    """Stopped, or out of budget, before a step could be named."""


NAMING = frozenset({Verdict.LIKELY, Verdict.PROVEN, Verdict.MINIMAL, Verdict.NECESSARY})
"""The verdicts that name one step."""


class Boundary(NamedTuple):
    """Two candidates: the test passes on the first and fails on the second."""

    passes: int
    """Index of the candidate."""
    fails: int
    skipped: tuple[int, ...] = ()
    """Indices between the two that say nothing: they could not be run, or failed otherwise."""

    @property
    def exact(self) -> bool:
        """Whether nothing lies between the two."""
        return self.fails == self.passes + 1


class Rate(NamedTuple):
    """How often a test failed."""

    failed: int
    runs: int
    mean: float
    """Of the posterior: what to expect."""
    upper: float
    """With 95 % the rate is below this. 3 / runs, roughly, if it never failed."""


@dataclass(frozen=True, slots=True)
class Break:
    """A flip from passing to failing, and what is known of it."""

    boundary: Boundary
    steps: tuple[int, ...]
    """Numbers of the steps that made the changes between: one for an exact answer."""
    verdict: Verdict
    """`likely`, `proven`, `minimal`, `necessary`, `range` or `ambiguous`; of a break that was
    never confirmed `undecided`."""
    passed: int
    """Executions of ours that passed on the last good state; none failed."""
    failed: int
    """Executions of ours that failed on the first bad state; none passed."""
    given_passed: int
    """Results of the run itself on these states, in agreement."""
    given_failed: int
    odds: float
    """A test with any constant rate of failing looks so with at most this probability, over all
    states that were tried. Below `Plan.chance` for `proven`."""
    confirmed: bool
    """Whether the odds are below `Plan.chance`: also of a range, and of an ambiguous one."""
    likely: bool
    """Whether each of the two states was seen three times, the bad one failing each time."""
    failure: Failure
    """How it fails."""
    inferred: bool = False
    """Whether one of the two states was rebuilt from what a transcript claims."""
    new_environment: bool = False
    """Whether the installed packages differ between the two, as far as the run tells."""
    hunks: tuple[str, ...] | None = None
    """The part of the change that breaks the test, as small as it was made; None: not known."""
    hunks_of: int = 0
    """How many hunks the change has."""
    minimal: bool = False
    """Whether none of `hunks` can be left out, each tried."""
    necessary: bool | None = None
    """Whether undoing the hunks makes the final state pass; None: not tried, or it cannot be
    told, for the reason in `revert`."""
    revert: Observation | None = None
    """What came of undoing it on the final state."""


@dataclass(frozen=True, slots=True)
class Flakiness:
    """What is known of a test that passes and fails on one state."""

    posterior: tuple[float, ...]
    """By index of the candidate: how probable it is that it changed the rate. The first: that
    none of them did."""
    best: int | None
    """The candidate with a probability of `Plan.confidence` or more; None: nothing is."""
    credible: tuple[int, ...]
    """The fewest candidates, most probable first, that reach that probability together; 0 among
    them: that it always was like that."""
    before: Rate
    """Before the most probable candidate."""
    after: Rate
    steps: tuple[int, ...] = ()
    """Numbers of the steps of the credible candidates."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer, with its evidence. A part is empty where the search did not come to it."""

    verdict: Verdict
    reason: str
    """One line for people, without a full stop."""
    steps: tuple[int, ...] = ()
    """Numbers of the steps that are named: the one that explains why the final state fails."""
    breaks: tuple[Break, ...] = ()
    """In the order in which they were found. The first is the last flip before the end; each
    further one still broke the test after all before it had been undone."""
    first_broken: Boundary | None = None
    """Where the test was broken first, if it was repaired before the last flip."""
    flakiness: Flakiness | None = None
    failure: Failure | None = None
    """How the final state fails."""
    installs: tuple[int, ...] = ()
    """Numbers of the steps that changed the installed packages, as far as is known."""
    test_step: int | None = None
    """The step that added the test, or changed it; for `never-passed` and `test-changed`."""
    original_tests: bool = False
    """Whether the breaks were found with the tests of the first state."""
    others: tuple[tuple[int, Observation], ...] = ()
    """Candidates that said nothing of this break: they could not be run, or failed otherwise."""
    disturbed: tuple[Subject, ...] = ()
    """Where a run beside others contradicted one alone. The one alone counts."""
    tried: int = 0
    """Different states of the run that were executed."""
    executions: int = 0
    """Runs of the test on states of the run that the memo holds, also those of earlier searches."""
    reductions: int = 0
    """Runs of the test on changed states: for the hunks, and for undoing them."""
    exhausted: bool = False
    """Whether the budget was spent, or the search stopped, with something left to do."""

    @property
    def named(self) -> bool:
        """Whether one step is named."""
        if self.verdict is Verdict.FLAKY:
            return self.flakiness is not None and self.flakiness.best is not None
        return self.verdict in NAMING or (
            self.verdict is Verdict.TEST_CHANGED and self.test_step is not None
        )


class Progress(NamedTuple):
    """How far a search is."""

    probe: Probe | None
    """What is being run, or is next."""
    passes: int | None
    """The last candidate that is known to pass."""
    fails: int | None
    """The first one after it that is known to fail."""
    executions: int
    """Done by this searcher."""
    left: int
    """About how many are to come; grows when the test turns out to be flaky."""
