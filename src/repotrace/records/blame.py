"""`Blame` and `Check`: what is said of the tests of a run, with the evidence."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from repotrace.records.base import OsText, Record


class Evidence(Record):
    """One execution, or one result that the run itself recorded, and what it says of the test."""

    purpose: str
    state_id: str
    step_number: int | None = None
    """The state is the one after this step; 0: before the first one. None: hunks were tried."""
    tests_of: str = ""
    """The state whose test files lay over those of the state; empty: its own."""
    hunks_added: int = 0
    hunks_removed: int = 0
    kind: str
    """passed, failed, error, skipped, missing, timeout, signal or unusable."""
    note: str = ""
    alone: bool = True
    given: bool = False
    """The run itself recorded it."""
    source: str = ""
    """Id of the execution in the memo, or of the recorded outcome."""
    duration: float | None = None


class BlamedHunk(Record):
    """A hunk that breaks the test."""

    path: OsText
    lines: tuple[OsText, ...] = ()
    """As in a unified diff, without context; none for a file as a whole."""
    what: str = ""
    """For a file as a whole: created, deleted, changed."""
    step: int | None = None
    """The one step that made it, where the break is among several."""


class BlamedStep(Record):
    """A step that is named, with what led to it."""

    number: int
    step_type: str
    description: str = ""
    files: tuple[OsText, ...] = ()
    """What it changed."""
    model: str | None = None
    tokens: int | None = None
    cost_usd: Decimal | None = None
    reason: str | None = None
    """The model's words that led to it."""
    inferred: bool = False
    """Its state was rebuilt from a transcript."""


class BlamedBreak(Record):
    """A flip from passing to failing."""

    steps: tuple[int, ...]
    verdict: str
    passes_after: int
    """The test passes after this step; 0: before the first one."""
    fails_after: int
    passed: int
    """Executions that passed on the last good state."""
    failed: int
    given_passed: int = 0
    """Results of the run itself on these states."""
    given_failed: int = 0
    odds: float
    """A test without a break looks so with at most this probability."""
    chance: str = ""
    """The same in words."""
    message: str = ""
    """How it fails."""
    skipped: int = 0
    """States between the two that say nothing."""
    hunks: tuple[BlamedHunk, ...] | None = None
    """The smallest part of the change that breaks the test; None: not looked for."""
    hunks_of: int = 0
    minimal: bool = False
    necessary: bool | None = None
    """Whether undoing it makes the final state pass; None: not known."""
    revert: str = ""
    """What came of undoing it."""


class RateOfFailing(Record):
    """How often a flaky test fails."""

    failed: int
    runs: int
    upper: float
    """With 95 % the rate is below this."""


class Suspects(Record):
    """What is known of a flaky test."""

    steps: tuple[int, ...]
    """Together they are as probable as was asked for; with `always`, where that is one more."""
    probability: float
    """Of the most probable one."""
    always: bool = False
    """That it was flaky from the beginning is not excluded."""
    before: RateOfFailing
    after: RateOfFailing


class SeenByAgent(Record):
    """What the run itself saw of the test."""

    runs: int = 0
    """Steps in which it ran the test."""
    first_step: int | None = None
    """The first step after the break in which it did; None: never."""
    first_result: str | None = None
    repaired_after: int | None = None
    """The first step after that in which the test passed."""
    retries: int = 0
    tokens: int = 0
    """From seeing it fail to seeing it pass."""
    cost_usd: Decimal | None = None


class Blame(Record):
    """What broke one test."""

    schema_version: int = 1
    id: str
    run_id: str
    test: str
    """Node id; empty where a command is judged as a whole."""
    command: str
    verdict: str
    """A `blame.Verdict`."""
    reason: str
    """One line without a full stop."""
    named: bool = False
    """Whether one step is named."""
    steps: tuple[BlamedStep, ...] = ()
    breaks: tuple[BlamedBreak, ...] = ()
    first_broken: tuple[int, ...] = ()
    """Steps that broke it first, if it was repaired before the last flip."""
    flaky: Suspects | None = None
    message: str = ""
    """How the test fails on the final state."""
    until: int
    """The last step that was looked at."""
    repaired: bool = False
    """The run went on until the test passed again; `until` is before that."""
    test_step: int | None = None
    """The step that added the test, or changed it."""
    original_tests: bool = False
    overlay: tuple[OsText, ...] = ()
    """Files of the tests that were laid over earlier states."""
    uncaptured: tuple[OsText, ...] = ()
    """Files that the test asks for, that the project has and that no state holds."""
    inferred: bool = False
    """It rests on states that were rebuilt from a transcript."""
    states: int = 0
    """Different states of the run."""
    tried: int = 0
    executions: int = 0
    reductions: int = 0
    exhausted: bool = False
    disturbed: int = 0
    """States on which runs in parallel contradicted one alone, which counts."""
    seen: SeenByAgent = SeenByAgent()
    evidence: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()
    created_at: datetime

    @property
    def exit_code(self) -> int:
        """0 a step named, 1 nothing is broken, 2 undecided."""
        if self.named:
            return 0
        return 1 if self.verdict in ("not-reproducible", "broken-before") else 2


class Change(StrEnum):
    """What became of a test between two states."""

    BROKEN = "broken"
    """It passed and fails now."""
    HIDDEN = "hidden"
    """It is deleted, skipped or expected to fail, and as it was it fails now."""
    NEW_FAILING = "new-failing"
    NOT_COLLECTED = "not-collected"
    """Its file cannot be imported any more."""
    FLAKY = "flaky"
    UNDECIDED = "undecided"
    DELETED = "deleted"
    GONE = "no-longer-collected"
    """The source is there, and the runner does not find it any more."""
    SKIPPED = "newly-skipped"
    XFAILED = "newly-xfailed"
    WEAKENED = "assertion-changed"
    FIXED = "fixed"
    NEW = "new"
    FAILED_BEFORE = "failed-before"


COUNTS_AS_BROKEN = frozenset({Change.BROKEN, Change.HIDDEN, Change.NEW_FAILING})
COUNTS_AS_UNDECIDED = frozenset({Change.NOT_COLLECTED, Change.FLAKY, Change.UNDECIDED})


class CheckedTest(Record):
    """One test about which there is something to say."""

    test: str
    change: str
    """A `Change`."""
    before: str | None = None
    """A `TestResult`; None: there was no such test."""
    after: str | None = None
    message: str = ""
    """Why it fails, or what there is to know."""
    how: str = ""
    """Of a hidden one: `deleted`, `newly-skipped`, `newly-xfailed`. Of a broken one whose file
    cannot be imported any more: `not-collected`."""
    stuck: bool = False
    """Whether it is the first one that the suite at the end did not come past."""
    by_agent: str = "unknown"
    """Whether the run itself ran the test: yes, no, unknown."""
    agent_step: int | None = None
    """The last step in which it did."""
    agent_result: str | None = None
    """What came of it there."""
    step: int | None = None
    """The step that did it, as far as is known without blame."""
    original: str | None = None
    """What comes of the test as it was, on the final code."""
    lost: tuple[OsText, ...] = ()
    """Assertions that are gone."""
    gained: tuple[OsText, ...] = ()
    blame: Blame | None = None


class Suite(Record):
    """One run of the suite."""

    name: str
    """`base` or `final`."""
    about: str
    """Which state it is, for people."""
    state_id: str
    inferred: bool = False
    tests: int = 0
    passed: int = 0
    failed: int = 0
    complete: bool = True
    """Whether it ran to its end."""
    problem: str | None = None
    """Why it did not."""
    execution: str = ""
    """Id in the memo."""
    duration: float | None = None


class Check(Record):
    """What a run, or a change, did to the tests."""

    schema_version: int = 1
    run_id: str | None = None
    agent: str | None = None
    command: str
    base: Suite
    final: Suite
    tests: tuple[CheckedTest, ...] = ()
    """Those about which there is something to say; first what is broken."""
    total: int = 0
    """Tests of both suites together."""
    checked: int = 0
    """Those about which something can be said."""
    unchecked: tuple[str, ...] = ()
    """Those that were left out, as the budget says."""
    notes: tuple[str, ...] = ()
    created_at: datetime

    def having(self, *changes: str) -> list[CheckedTest]:
        """The tests with these changes."""
        return [test for test in self.tests if test.change in changes]

    @property
    def broken(self) -> int:
        return sum(test.change in COUNTS_AS_BROKEN for test in self.tests)

    @property
    def undecided(self) -> int:
        return sum(test.change in COUNTS_AS_UNDECIDED for test in self.tests)

    @property
    def exit_code(self) -> int:
        """0 nothing is broken and all ran, 1 broken, 2 undecided."""
        if self.broken:
            return 1
        ran = self.base.complete and self.final.complete and self.total > 0
        return 0 if ran and not self.undecided and not self.unchecked else 2

    @property
    def summary(self) -> str:
        """`checked 212 of 212 · 1 broken · 0 undecided`"""
        return (
            f"checked {self.checked} of {self.total}"
            f" · {self.broken} broken · {self.undecided} undecided"
        )
