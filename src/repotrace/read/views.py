"""The view records: what the faces show of runs, versioned.

Fields are only added, with defaults; a change of meaning raises the `schema_version`. Durations
are seconds, times UTC, costs US dollars. `View.model_json_schema()` gives the schema of a view.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from pydantic import ConfigDict

from repotrace.records.base import OsText, Record
from repotrace.records.run import (
    ExecutionStep,
    FileOperation,
    FileRead,
    LLMInteraction,
    LogEntry,
    Run,
    RunTotals,
    StepCommand,
    TestOutcome,
)


class Part(Record):
    """A part of a view. Its schema is only built when it is asked for: that takes long."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class View(Part):
    """What a face shows."""

    def json_object(self) -> dict[str, Any]:
        """The view in plain values, as `--json` prints it."""
        return self.model_dump(mode="json")


class Alert(Part):
    """Something about a run that somebody should look at."""

    rule: str
    """Its name in the settings: `broken-test`, `false-claim`, …"""
    run_id: str
    step: int | None = None
    """The step to look at; None where it is about the whole run."""
    message: str
    """One line."""
    evidence: tuple[OsText, ...] = ()
    """Paths, tests, words: what it is raised for."""


class RunLine(Part):
    """A run in a list."""

    id: str
    started_at: datetime
    completed_at: datetime | None = None
    duration: float | None = None
    """From the start to the end, or to the newest event of a run that did not say its end.
    None while it is running."""
    status: str
    """A `RunStatus`, or a word of its writer's own."""
    outcome: str | None = None
    """A `RunOutcome`."""
    agent: str | None = None
    agent_version: str | None = None
    task_id: str | None = None
    task: str | None = None
    source: str = ""
    environment: str | None = None
    models: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    workspace: OsText | None = None
    parent_run_id: str | None = None
    totals: RunTotals = RunTotals()
    alerts: int | None = None
    """How many were found when it was looked over, in `runs list`; None: it was not yet."""


class RunList(View):
    """`runs list`."""

    schema_version: int = 1
    runs: tuple[RunLine, ...] = ()
    """The newest first."""
    more: bool = False
    """Whether others fit that the limit left out."""
    elsewhere: int = 0
    """Runs of other work trees, where only those of one were asked for and it has none."""


class FoundIn(Part):
    """The step that something was found in."""

    number: int
    step_type: str
    status: str
    description: str = ""


class Found(Part):
    """One thing that a search found."""

    run_id: str
    step: FoundIn | None = None
    """None for a text of the run itself, and for a run that was found by filters alone."""
    field: str
    """Where the text stands: `description`, `response`, `stdout_head`, `file_path`, `node_id`, …;
    `step` or `run` where only filters were given."""
    snippet: str = ""
    """One line around the first word that was found."""
    marks: tuple[tuple[int, int], ...] = ()
    """Where in the snippet what was searched for stands: start and end, in characters."""


class SearchView(View):
    """`runs search`."""

    schema_version: int = 1
    query: str
    hits: tuple[Found, ...] = ()
    """The newest first."""
    runs: tuple[RunLine, ...] = ()
    """The runs of the hits."""
    more: bool = False
    """Whether the limit left some out."""
    advice: tuple[str, ...] = ()
    """Sentences about why nothing was found."""


class TestCounts(Part):
    """How the tests of one step ended, each counted once."""

    __test__ = False

    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    """And those that were expected to fail and did."""

    @property
    def total(self) -> int:
        return self.passed + self.failed + self.errors + self.skipped

    @property
    def failing(self) -> int:
        return self.failed + self.errors


class Patch(Part):
    """The files that something ran on, and whose work they were."""

    state_id: str | None = None
    """None where no states were kept; the steps are those of the newest change then."""
    steps: tuple[int, ...] = ()
    """Numbers of the steps whose change is the newest in the state. Empty where that is not
    known, and where the files are `unchanged`."""
    unchanged: bool = False
    """No step had changed anything yet."""
    quality: str = "exact"
    """A `StateQuality`."""
    ambiguous: bool = False
    """Other steps were at work when the change was made, so it may be theirs."""


class CommandLine(Part):
    """A command of a step, on one line."""

    command_line: str
    exit_code: int | None = None
    """As a shell has it; None: not known."""
    duration: float | None = None


class StepLine(Part):
    """A step in a table. Files, tokens and costs are those of the step and of its parts."""

    number: int
    id: str
    parent: int | None = None
    """Number of the step that this one is a part of."""
    depth: int = 0
    """How many steps it is a part of."""
    step_type: str
    description: str = ""
    tool: str | None = None
    """The agent's name of the tool."""
    reason: str | None = None
    """The beginning of the words that led to it."""
    status: str
    """A `StepStatus`, or a word of its writer's own."""
    error: str | None = None
    """The beginning."""
    label: str | None = None
    started_at: datetime
    duration: float | None = None
    """None as long as it has not ended."""
    attempt: int = 1
    retry_of: int | None = None
    """Number of the step that is tried again."""
    files_read: int = 0
    files: tuple[OsText, ...] = ()
    """The paths that it changed, sorted."""
    lines_added: int = 0
    lines_removed: int = 0
    commands: tuple[CommandLine, ...] = ()
    tests: TestCounts | None = None
    """None for a step that ran no tests."""
    patch: Patch | None = None
    """What the tests ran on."""
    failing_tests: tuple[str, ...] = ()
    """The first of them."""
    llm_calls: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    """Of the calls whose cost is known."""
    unpriced_calls: int = 0
    state_id: str | None = None
    state_quality: str | None = None
    ambiguous: bool = False
    """Another step ran at the same time, so changes of files may be either's."""


class LeftOut(Part):
    """Steps that a table leaves out."""

    after: int
    """The number of the step before them."""
    count: int


class TestRun(Part):
    """A column of the grid: a step that ran tests."""

    __test__ = False

    step_number: int
    started_at: datetime
    tests: TestCounts
    patch: Patch | None = None


class GridRow(Part):
    """A row of the grid: a test that failed at some time."""

    node_id: str
    outcomes: tuple[str | None, ...]
    """A `TestResult` for each column; None where it did not run."""

    @property
    def last(self) -> str | None:
        """Its newest outcome."""
        return next((outcome for outcome in reversed(self.outcomes) if outcome), None)


class TestGrid(Part):
    """Which test did what in which step."""

    __test__ = False

    runs: tuple[TestRun, ...] = ()
    runs_left_out: int = 0
    """Further test runs, before these or between them."""
    tests: tuple[GridRow, ...] = ()
    """Those that failed at some time; the ones that fail last come first."""
    left_out: int = 0
    """More tests that failed at some time."""
    never_failed: int = 0
    """How many others there are."""


class RetryTotals(Part):
    """What the retries of a run cost together, each from the failure that it answers on."""

    count: int = 0
    tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    unpriced_calls: int = 0
    duration: float = 0.0


class Branch(Part):
    """A run that went on from a step of another one."""

    run: RunLine
    step: int | None = None
    """The step whose files it began with; 0: before the first one. None: not told."""
    modification: str | None = None
    """What was changed in the task."""


class CameFrom(Part):
    """Where a run came from that was not recorded here, or whose files were not made here."""

    file: str
    at: datetime
    """When it was imported."""
    worked_on: bool = False
    """It was recorded here, on the files of a run that came from there."""
    left_out: tuple[str, ...] = ()
    """What never came with it, in words."""


class RunView(View):
    """`runs show`."""

    schema_version: int = 1
    run: Run
    duration: float | None = None
    """As in `RunLine`."""
    retries: RetryTotals = RetryTotals()
    interrupted_steps: int = 0
    steps: tuple[StepLine, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    grid: TestGrid = TestGrid()
    branches: tuple[Branch, ...] = ()
    """The runs that were branched from it, the oldest first."""
    alerts: tuple[Alert, ...] = ()
    """As they were found when it was looked over last."""
    came_from: CameFrom | None = None
    """None: it was recorded here."""


class StateView(Part):
    """The files at a moment."""

    state_id: str | None = None
    """None: they are not known."""
    quality: str
    """A `StateQuality`."""
    step_number: int = 0
    """The step that the state is of; 0: it is from before the first one."""
    at_start: bool = False
    """It is how the step found the files, not how it left them."""
    reason: str | None = None
    """Why it is not known, or not exact."""
    not_captured: tuple[OsText, ...] = ()
    """Paths of the workspace that it lacks, the first hundred."""
    not_captured_count: int = 0


class SinceFailure(Part):
    """What was changed after the failure that a retry answers."""

    step_number: int
    """The step whose test failed."""
    state_id: str
    """The files on which it failed."""
    files: tuple[OsText, ...] = ()
    """The paths that are different after the retry, sorted."""
    lines_added: int = 0
    lines_removed: int = 0


class ReachedView(Part):
    """How far the run had come with a step."""

    steps: int
    files_modified: int


class StepView(View):
    """`play --step`: one step whole."""

    schema_version: int = 1
    run_id: str
    last_step: int
    """The highest step number of the run."""
    line: StepLine
    step: ExecutionStep
    parts: tuple[int, ...] = ()
    """Numbers of the steps that are directly a part of this one."""
    interactions: tuple[LLMInteraction, ...] = ()
    operations: tuple[FileOperation, ...] = ()
    reads: tuple[FileRead, ...] = ()
    logs: tuple[LogEntry, ...] = ()
    commands: tuple[StepCommand, ...] = ()
    tests: tuple[TestOutcome, ...] = ()
    before: StateView
    after: StateView
    since_failure: SinceFailure | None = None
    """Of a retry; None where no test failed before it, or where states are not kept."""
    alerts: tuple[Alert, ...] = ()
    """Those of the step; of the last one also what is about the whole run."""
    reached: ReachedView | None = None
    """Of a checkpoint."""


class ComparedTest(Part):
    """What came of a test when it ran last in either run."""

    node_id: str
    a: str | None = None
    """A `TestResult`; None: it did not run."""
    b: str | None = None


class ComparedStep(Part):
    """What the two runs did at one point: the same thing, or what only one of them did."""

    a: StepLine | None = None
    b: StepLine | None = None
    differs: tuple[str, ...] = ()
    """In what they differ although both did it: `content`, `exit code`, `tests`."""

    @property
    def same(self) -> bool:
        """Whether both did it, with the same effect."""
        return self.a is not None and self.b is not None and not self.differs


class ComparedFile(Part):
    """A file that is different at the end of the two runs; from A to B."""

    path: OsText
    operation: str
    """`create`, `edit`, `delete` or `rename`."""
    lines_added: int = 0
    lines_removed: int = 0


class RunComparison(View):
    """`runs compare`: two runs side by side."""

    schema_version: int = 1
    a: RunLine
    b: RunLine
    verdict: str
    """What the tests say of B beside A: `better`, `worse`, `mixed`, `same`, or `unknown` where no
    test ran in both."""
    fixed: tuple[ComparedTest, ...] = ()
    """Tests that fail at the end of A and not of B."""
    broken: tuple[ComparedTest, ...] = ()
    """Tests that fail at the end of B and not of A."""
    failing: tuple[ComparedTest, ...] = ()
    """Tests that fail at the end of both."""
    only_a: tuple[ComparedTest, ...] = ()
    """Tests that ran in A alone."""
    only_b: tuple[ComparedTest, ...] = ()
    steps: tuple[ComparedStep, ...] = ()
    """The steps without parts, model calls left out, in order."""
    divergence: int | None = None
    """Index in `steps` of the first that is not the same; None: there is none."""
    branch: str | None = None
    """`a` or `b`: which of them goes on from a step of the other."""
    branched_from_step: int | None = None
    """That step of the other one; what the other one did before is no part of `steps`."""
    same_start: bool | None = None
    """Whether both began with the same files, a branch with those of its step; None: not known."""
    same_end: bool | None = None
    """Whether both ended with the same files."""
    end_qualities: tuple[str, str] = ("missing", "missing")
    """A `StateQuality` for either end."""
    files: tuple[ComparedFile, ...] = ()
    """What differs between the ends, by path."""
    diff: OsText | None = None
    """As a unified diff from A to B; None where an end was not kept."""


class Spread(Part):
    """The middle of some figures, and between what the middle half of them lies."""

    median: float
    low: float
    """The lower quartile."""
    high: float
    """The upper quartile."""


class StatsGroup(Part):
    """What the runs of one agent, model, task or tag came to."""

    name: str | None
    """None: the runs without one."""
    runs: int
    passed: int
    """Runs that ended with their tests passing."""
    failed: int
    """Runs that ended with a test failing."""
    unfinished: int = 0
    """Runs that are going on, failed themselves, or were interrupted."""
    success_rate: float | None = None
    """`passed` among those that say; None where none does."""
    steps: Spread
    retries: Spread
    tokens: Spread | None = None
    """Of the runs that tell them; None where none does."""
    untold_runs: int = 0
    """Runs with model calls whose tokens nobody tells."""
    duration: Spread | None = None
    """Seconds; None where no run has ended."""
    total_tokens: int = 0
    total_cost_usd: Decimal = Decimal(0)
    """Of the calls whose cost is known."""
    unpriced_calls: int = 0
    tokens_per_fix: float | None = None
    """All tokens of the runs on tasks with tests, those of failed runs included, for each run that
    passed; None without one, and where none are told."""
    untold_per_fix: int = 0
    """Those of these runs whose tokens nobody tells."""
    cost_per_fix_usd: Decimal | None = None
    """The same of their cost; also None where none of it is known."""
    unpriced_per_fix: int = 0
    """Calls of these runs whose cost is not known."""


class FailingKind(Part):
    """A tool, or a type of step where no tool is named."""

    name: str
    steps: int
    failed: int


class BrokenFile(Part):
    """A file that had been changed when a test went red."""

    path: OsText
    runs: int
    """In how many runs."""


class StatsView(View):
    """`runs stats`."""

    schema_version: int = 1
    group_by: str
    whole: StatsGroup | None = None
    """All runs together; None where there is none."""
    groups: tuple[StatsGroup, ...] = ()
    """Those with the most runs first."""
    failing: tuple[FailingKind, ...] = ()
    """What fails most often, first."""
    broken_files: tuple[BrokenFile, ...] = ()


class AlertsView(View):
    """`runs alerts`."""

    schema_version: int = 1
    runs: tuple[str, ...] = ()
    """The ids of the runs that were looked at."""
    alerts: tuple[Alert, ...] = ()
    """Run by run, in the order of the rules."""
