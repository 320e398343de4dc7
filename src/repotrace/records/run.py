"""`Run`, `ExecutionStep` and what hangs on them: the record of an agent's work.

Words that are kept in plain text fields are listed as enums; a word that no enum knows is kept
as it was given. Durations are seconds, times UTC, costs US dollars.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from pydantic import Field

from repotrace.records.base import OsText, Record
from repotrace.records.command import CommandRun
from repotrace.records.lazy import LazyRecord


class StepType(StrEnum):
    """What a step did. `ExecutionStep.step_type` may also hold a word of the agent's own."""

    PLANNING = "planning"
    LLM = "llm"
    TOOL = "tool"
    EDIT = "edit"
    COMMAND = "command"
    TEST = "test"
    GATE = "gate"
    VERIFICATION = "verification"
    DECISION = "decision"
    """A choice, retry, blocker or branch; the reason is in `reason`."""
    EXTERNAL = "external"
    """A change of files that no step made."""
    NOTE = "note"
    UNKNOWN = "unknown"
    """A record of a foreign format that could not be read; its text is in `output_result`."""


STEP_TYPE_SYNONYMS = {"tool_call": StepType.TOOL, "execution": StepType.TOOL}
"""Other words for a step type. Both forms are kept as given; compare with `same_type`."""


def same_type(one: str, other: str) -> bool:
    """Whether two words name one step type: `tool_call` is `tool`."""
    return STEP_TYPE_SYNONYMS.get(one, one) == STEP_TYPE_SYNONYMS.get(other, other)


class StepStatus(StrEnum):
    """How far a step came."""

    STARTED = "started"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """It was started, and its process is gone without having said how it ended."""


CHECKPOINT_SOURCE = "checkpoint"
"""The source of a run that holds nothing but a checkpoint."""


class RunStatus(StrEnum):
    """How far a run came. Says nothing about its result; see `RunOutcome`."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    UNKNOWN = "UNKNOWN"
    """Records of it were saved, and nobody said how it went."""


class RunOutcome(StrEnum):
    """What the tests say about the result of a run."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not-run"


class StateQuality(StrEnum):
    """How far a step's state can be relied on."""

    EXACT = "exact"
    """A snapshot of the work tree."""
    INFERRED = "inferred"
    """Rebuilt from claimed edits."""
    UNVERIFIED = "unverified"
    """Inferred, and a command may have changed more."""
    MISSING = "missing"


class OperationType(StrEnum):
    """What happened to a path. A rename is a delete and a create that names the old path."""

    CREATE = "create"
    EDIT = "edit"
    DELETE = "delete"


class Origin(StrEnum):
    """Who says that a file changed."""

    OBSERVED = "observed"
    """Two states differ."""
    CLAIMED = "claimed"
    """A transcript or the program itself says so."""


class OutcomeOrigin(StrEnum):
    """Where a test outcome was learnt."""

    PLUGIN = "plugin"
    """From pytest itself, with its exact node ids."""
    PARSED = "parsed"
    """Read out of the output of a test runner."""
    JUNIT = "junit"
    GIVEN = "given"
    """The recorded program said so."""


class TestResult(StrEnum):
    """The outcome of one phase of a test."""

    __test__ = False

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """It broke outside of the test itself: in setup, teardown or collection."""
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    RERUN = "rerun"
    """It failed and will be tried again."""


FAILING = frozenset({TestResult.FAILED, TestResult.ERROR})
"""The outcomes that mean a test failed."""


class CostSource(StrEnum):
    """Where the cost of a model call comes from. None: the cost is unknown."""

    GIVEN = "given"
    COMPUTED = "computed"


TIMES_UNTOLD = "not told"
"""`attributes.import.times` of a run whose transcript tells no moments."""


class RunTotals(Record):
    """Sums over a run, kept for listing."""

    steps: int = 0
    failed_steps: int = 0
    retries: int = 0
    """Steps whose `attempt` is above 1."""
    llm_calls: int = 0
    tokens_used: int = 0
    input_tokens: int = 0
    """Including cache reads and writes."""
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: Decimal = Decimal(0)
    """Of the calls whose cost is known."""
    unpriced_calls: int = 0
    """Calls whose cost is not known."""
    files_read: int = 0
    """Different paths."""
    files_modified: int = 0
    """Different paths."""
    lines_added: int = 0
    lines_removed: int = 0
    commands: int = 0
    test_runs: int = 0
    """Steps with test outcomes."""
    tests: int = 0
    """Different tests."""
    tests_failing: int = 0
    """Tests whose last outcome is a failure."""
    lost: int = 0
    """Events that are known to be lost: a full disk, a torn or unreadable line."""


class Run(Record):
    """One recorded execution of an agent, or of anything that changes a work tree in steps."""

    id: str
    """Begins with `r`."""
    task_id: str | None = None
    task: str | None = None
    """What was asked, in words."""
    agent: str | None = None
    agent_version: str | None = None
    source: str = ""
    """Who told of the run first: `sdk`, `record`, `hooks`, `otlp`, or the name of an importer."""
    source_id: str | None = None
    """The id that the source knows it by, as a session id. One run per source and id."""
    environment: str | None = None
    """`production` or the like, as the program named it."""
    status: str = RunStatus.RUNNING
    """A `RunStatus`, or a word of its writer's own."""
    outcome: str | None = None
    """A `RunOutcome`; None as long as nothing is known."""
    error: str | None = None
    """Why it failed."""
    started_at: datetime
    completed_at: datetime | None = None
    """None while it is running, and where its end was not recorded."""
    last_event_at: datetime | None = None
    """The time of the newest event."""
    workspace: OsText | None = None
    """The folder whose files the states hold, absolute."""
    base_commit: str | None = None
    """The commit that was checked out at the start."""
    base_state: str | None = None
    """State before the first step."""
    base_quality: str | None = None
    """A `StateQuality`."""
    parent_run_id: str | None = None
    """The run that this one branched from."""
    branched_from_step: int | None = None
    """The number of the parent's step whose state this run began with."""
    models: tuple[str, ...] = ()
    """Models that were called, in order of their first call."""
    tags: tuple[str, ...] = ()
    """Sorted."""
    pinned: bool = False
    """Never deleted to save space."""
    attributes: dict[str, Any] = Field(default_factory=dict)
    totals: RunTotals = RunTotals()

    @property
    def is_timed(self) -> bool:
        """Whether the moments of its steps are known; else no more than their order is."""
        told = self.attributes.get("import")
        return not (isinstance(told, dict) and told.get("times") == TIMES_UNTOLD)


class ExecutionStep(LazyRecord):
    """One step of a run."""

    id: str
    run_id: str
    step_number: int
    """From 1, by start; given once and never changed."""
    step_type: str = StepType.UNKNOWN
    """A `StepType`, a synonym, or the agent's own word."""
    description: str = ""
    started_at: datetime
    completed_at: datetime | None = None
    status: str = StepStatus.STARTED
    """A `StepStatus`, or a word of its writer's own."""
    input_context: str | None = None
    """What went into the step: arguments, the task, a context. Loaded when read."""
    output_result: str | None = None
    """What came out of it. Loaded when read."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Anything else. `tool` is the agent's name of the tool; `step_number` is the number that
    the recorded program counted itself."""
    parent_id: str | None = None
    """The step that this one is a part of."""
    source: str = ""
    """The source whose name `external_id` is."""
    external_id: str | None = None
    """The id that the source gave it, as a tool-call id. Unique per run and source."""
    reason: str | None = None
    """The model's words that led to it."""
    attempt: int = 1
    """2, 3, … for a retry of an earlier failed step."""
    retry_of: str | None = None
    """Id of the step that is tried again."""
    state_id: str | None = None
    """The files after the step, an id of the snapshot store."""
    state_before_id: str | None = None
    """The files before the step; None: as the step before left them."""
    state_quality: str | None = None
    """A `StateQuality`; None: no state belongs to the step, its files are those of before."""
    state_reason: str | None = None
    """Why the state is missing or unverified."""
    ambiguous: bool = False
    """Another step ran at the same time, so changes of files may be either's."""
    error: str | None = None
    label: str | None = None
    """The name that a checkpoint gave to the step."""


class LLMInteraction(LazyRecord):
    """One model call. Its texts are loaded when they are read."""

    id: str
    run_id: str
    step_id: str
    """Empty for a call that belongs to no step."""
    prompt: str = ""
    """The prompt as text, where the writer gave one instead of, or beside, `messages`."""
    response: str = ""
    model: str = ""
    tokens_used: int = 0
    """Input and output, unless the writer gave another sum."""
    timestamp: datetime
    purpose: str = "execution"
    """execution, planning, review, verification, side, or the writer's own word."""
    source: str = ""
    external_id: str | None = None
    """The id that the provider gave the response. Unique per run and source."""
    provider: str | None = None
    messages: tuple[dict[str, Any], ...] = ()
    """All that the model was shown, in order; see `events.Message`."""
    response_message: dict[str, Any] | None = None
    """The answer whole: words, reasoning and tool calls; see `events.Message`."""
    tools: tuple[dict[str, Any], ...] = ()
    """Definitions of the tools that were offered."""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Temperature and the like."""
    input_tokens: int | None = None
    """Including those read from and written to a cache. None: not known."""
    output_tokens: int | None = None
    """Including those of reasoning."""
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost_usd: Decimal | None = None
    """None: not known, which is not the same as free."""
    cost_source: str | None = None
    """A `CostSource`."""
    duration: float | None = None
    """Seconds."""
    first_token: float | None = None
    """Seconds until the first part of the response arrived."""
    stop_reason: str | None = None
    request_id: str | None = None
    attempts: int = 1
    """How often the request was sent until it was answered."""
    error: str | None = None
    """Why it failed; None for an answered call."""


class FileOperation(LazyRecord):
    """A change of one path in a step. Contents lie in the snapshot store, loaded when read."""

    id: str
    run_id: str
    step_id: str
    operation_type: str
    """An `OperationType`."""
    file_path: OsText
    """Relative to the workspace, with `/`; absolute outside of it."""
    content_before: OsText | None = None
    """None if it did not exist, and where the content is not kept (`before_id` is None then)."""
    content_after: OsText | None = None
    timestamp: datetime
    before_id: str | None = None
    """Object id of the content in the snapshot store."""
    after_id: str | None = None
    mode_before: int | None = None
    """`st_mode`, type and permissions."""
    mode_after: int | None = None
    renamed_from: OsText | None = None
    """Of a create: the path that was deleted in the same step and had this content."""
    is_binary: bool = False
    lines_added: int | None = None
    lines_removed: int | None = None
    origin: str = Origin.OBSERVED
    """An `Origin`."""


class FileRead(Record):
    """A path that the agent looked at."""

    id: str
    run_id: str
    step_id: str
    file_path: OsText
    """Relative to the workspace, with `/`; absolute outside of it."""
    timestamp: datetime
    kind: str = "read"
    """`read`, `search` (the path came up in a search), or `list`."""
    first_line: int | None = None
    last_line: int | None = None
    object_id: str | None = None
    """The content that was read, where the snapshot store has it."""


class LogEntry(Record):
    """A message that was logged during a step."""

    id: str
    run_id: str
    step_id: str | None = None
    level: str = "info"
    """debug, info, warning, error, critical, or the writer's own word; lower case."""
    message: str = ""
    timestamp: datetime
    logger: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)


class StepCommand(LazyRecord):
    """A command that ran in a step."""

    id: str
    run_id: str
    step_id: str
    command: CommandRun
    """Loaded when read. Without an exit code and with `termination` exited where a transcript
    does not tell how it ended."""
    command_line: str = ""
    timestamp: datetime
    """When it started."""
    duration: float | None = None
    exit_code: int | None = None
    """As a shell has it; None: not known."""
    is_test: bool = False
    """Whether it ran tests."""
    background: bool = False
    """It was left running; how it ended is not known."""
    state_id: str | None = None
    """The state that it ran on."""


class TestOutcome(Record):
    """What came of one phase of one test."""

    __test__ = False

    id: str
    run_id: str
    step_id: str
    command_id: str | None = None
    """The `StepCommand` that ran it."""
    node_id: str
    """pytest's node id, or the runner's own name of the test."""
    phase: str = "call"
    """setup, call, teardown or collect."""
    outcome: str
    """A `TestResult`."""
    duration: float | None = None
    message: str | None = None
    """One line."""
    details: str | None = None
    """The failure in full."""
    timestamp: datetime
    state_id: str | None = None
    """The state that the test ran on."""
    origin: str = OutcomeOrigin.PLUGIN
    """An `OutcomeOrigin`."""
    runner: str | None = None
    """pytest, unittest, jest, …"""
    attempt: int = 1
    """Counts reruns of the test within one command."""

    @property
    def failed(self) -> bool:
        return self.outcome in FAILING


class ExecutionTrace(LazyRecord):
    """A run with all that belongs to it, each list in order. Lists are loaded when read."""

    run_id: str
    task_id: str
    """`unknown` where the run has none."""
    started_at: datetime
    status: str
    steps: list[ExecutionStep] = Field(default_factory=list)
    llm_interactions: list[LLMInteraction] = Field(default_factory=list)
    file_operations: list[FileOperation] = Field(default_factory=list)
    completed_at: datetime | None = None
    file_reads: list[FileRead] = Field(default_factory=list)
    logs: list[LogEntry] = Field(default_factory=list)
    commands: list[StepCommand] = Field(default_factory=list)
    test_outcomes: list[TestOutcome] = Field(default_factory=list)
    run: Run | None = None
    """None for a trace that was put together by hand."""

    def summary(self) -> dict[str, Any]:
        """Counts: `total_steps`, `llm_calls`, `total_tokens`, `files_modified`."""
        return {
            "total_steps": len(self.steps),
            "llm_calls": len(self.llm_interactions),
            "total_tokens": sum(call.tokens_used for call in self.llm_interactions),
            "files_modified": len({change.file_path for change in self.file_operations}),
        }
