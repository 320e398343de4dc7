"""The vocabulary of the journal: what a writer may say about a run.

One event is one JSON object, in the journal one line:

    {"id": "…", "run": "r…", "kind": "step_started", "time": 1767225600000000000, "data": {…}}

`id`    unique, from the writer; sorts by time (`journal.new_id`). An importer derives it from
        what it reads (`derived_id`), so that importing twice gives the same rows.
`run`   id of the run, begins with `r`. Absent only in `writer`, `closed` and `lost`.
`kind`  one of `Kind`. A reader counts and skips kinds that it does not know.
`time`  nanoseconds since 1970, UTC: when it happened.
`data`  the facts, as listed below for each kind. The names are those of the fields of the
        records in `records/run.py`, with the same meaning. A field that is absent or null says
        nothing; only `id` (and what the kind needs) is required. Moments in `data` are
        nanoseconds too, or ISO 8601 text.
`weak`  optional, true: the event only fills what is not known yet. One view of a run that
        completes another uses it. Without it a later fact replaces an earlier one.
`raw`   optional, true: the texts were not redacted. The reader does it; the journal class
        redacts by itself and never writes it. For writers that cannot, as the pytest plugin.

Nothing here needs more than the standard library. Every event may come twice, and events of
different processes in any order: a fact about a step that was not heard of yet makes the step.

**Numbers.** A step gets its `step_number` when it is read, by `time`. A number that the recorded
program counted itself goes into `metadata.step_number`.

**Joining.** A run is known by its id, and by (`source`, `source_id`): `run_started` with a pair
that is known already joins that run, and the new id becomes another name of it. Steps and model
calls likewise by (`source`, `external_id`) within a run; `source` defaults to that of the run.
Views of one session that use the same ids (a tool-call id) therefore use the same `source`.

**Contents of files** never enter the journal or the database. Whoever has a snapshot store puts
them there first and gives `before_id` and `after_id`. An importer, which has none, may give the
fields of `ClaimedContent`; the step between importer and store takes them out.

**Long texts** are cut by the journal, head and tail stay, and a line between says what is missing
(`journal.CUT`).
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Any, Literal, NotRequired, TypedDict

RUN_VARIABLE = "REPOTRACE_RUN"
"""Environment variable: id of the run that a child process belongs to."""
STEP_VARIABLE = "REPOTRACE_STEP"
"""Environment variable: id of the step that a child process belongs to."""
COMMAND_VARIABLE = "REPOTRACE_COMMAND"
"""Environment variable: id of the command event that a child process belongs to."""
JOURNAL_VARIABLE = "REPOTRACE_JOURNAL"
"""Environment variable: the folder to which a child process writes its journal file."""

WORKSPACE_VARIABLE = "REPOTRACE_WORKSPACE"
"""Environment variable: the folder whose files the run of a child process keeps."""

RECORDER_VARIABLE = "REPOTRACE_RECORDER"
"""Environment variable: what records the run from outside, `record`. Whoever is started in it and
belongs to no step may begin one."""

JOURNAL_SUFFIX = ".jsonl"
"""Of a journal file. Its stem is anything that no other process uses."""


class Kind(StrEnum):
    """What an event says; the class of its data stands beside it."""

    RUN_STARTED = "run_started"  # RunData
    RUN_UPDATED = "run_updated"  # RunData
    RUN_ENDED = "run_ended"  # RunData: status (completed), outcome, error
    STEP_STARTED = "step_started"  # StepData
    STEP_UPDATED = "step_updated"  # StepData
    STEP_ENDED = "step_ended"  # StepData: status (completed), output_result, error
    LLM = "llm"  # LLMData
    FILE_OPERATION = "file_operation"  # FileOperationData
    FILE_READ = "file_read"  # FileReadData
    COMMAND = "command"  # CommandData
    TEST = "test"  # OutcomeData
    LOG = "log"  # LogData
    STATE = "state"  # StateData
    LOOK = "look"  # LookData
    FOLLOWED = "followed"  # FollowedData
    WRITER = "writer"  # WriterData: first line of a journal file
    CLOSED = "closed"  # ClosedData: last line of a journal file, nothing follows
    LOST = "lost"  # LostData


class Event(TypedDict):
    """One event; see the module."""

    id: str
    run: NotRequired[str]
    kind: str
    time: int
    data: dict[str, Any]
    weak: NotRequired[bool]
    raw: NotRequired[bool]


class RunData(TypedDict, total=False):
    """`run_started` (its time is the start), `run_updated`, `run_ended` (its time is the end).

    `tags` are added to those known, `attributes` merged key by key. `run_ended` with the status
    `running` is not an end. A `run_updated` takes back an end by the status `running`.
    """

    task_id: str
    task: str
    agent: str
    agent_version: str
    source: str
    source_id: str
    environment: str
    status: str
    outcome: str
    """Where it is not given it is read off the last outcome of each test."""
    error: str
    workspace: str
    base_commit: str
    base_state: str
    base_quality: str
    parent_run_id: str
    branched_from_step: int
    models: list[str]
    """Besides those of the model calls."""
    tags: list[str]
    pinned: bool
    attributes: dict[str, Any]
    """`command`: argv that the agent was started with. `git_branch`. And anything else."""


class StepData(TypedDict, total=False):
    """`step_started` (its time is the start), `step_updated`, `step_ended` (the end).

    `metadata` is merged key by key. Known keys: `tool` (the agent's name of the tool),
    `tool_names`, `arguments` (of the tool), `step_number` (counted by the program), `thread`,
    `attributes` (given to a span), `raw_type`.
    """

    id: str
    """Required. From the writer; unique within the run."""
    parent_id: str
    source: str
    external_id: str
    step_type: str
    description: str
    """One line."""
    input_context: str
    output_result: str
    reason: str
    attempt: int
    retry_of: str
    status: str
    """`step_ended` defaults to `completed`, or to `failed` where there is an `error`."""
    error: str
    metadata: dict[str, Any]
    ambiguous: bool
    label: str
    """A checkpoint's name."""


class Part(TypedDict, total=False):
    """One part of a message. Fields depend on `type`."""

    type: Literal["text", "thinking", "tool_call", "tool_result", "image", "unknown"]
    text: str
    """Of `text` and `thinking`."""
    id: str
    """Of `tool_call` and `tool_result`: the tool-call id, the same in both."""
    name: str
    """Of `tool_call`."""
    arguments: Any
    """Of `tool_call`: decoded where it was JSON."""
    content: str | list[dict[str, Any]]
    """Of `tool_result`: text, or parts."""
    is_error: bool
    """Of `tool_result`."""
    media_type: str
    """Of `image`. The picture itself is not kept."""
    raw: Any
    """Of `unknown`: as it was."""


class Message(TypedDict, total=False):
    """One message of a conversation, in one form for all providers."""

    role: str
    """system, user, assistant, tool."""
    content: str | list[Part]
    name: str


class LLMData(TypedDict, total=False):
    """`llm`: one model call. Its time is the moment the request was sent.

    The conversation is given in one of three ways: `prompt` as text; `messages` whole; or
    `previous_id` with the messages that were added since that call, after the first `kept` of
    its messages (all of them if absent). The store keeps repeated messages once in any case; the
    third way keeps the journal small as well.
    """

    id: str
    """Absent: the id of the event. A second event of the id completes or replaces the first."""
    step_id: str
    source: str
    external_id: str
    prompt: str
    response: str
    """The answer as text."""
    messages: list[dict[str, Any]]
    """`Message` each; a provider's own form is kept too, but read less well."""
    previous_id: str
    kept: int
    response_message: dict[str, Any]
    """A `Message`. Without a `response`, its text is the response."""
    tools: list[dict[str, Any]]
    parameters: dict[str, Any]
    model: str
    provider: str
    tokens_used: int
    input_tokens: int
    """Including cache reads and writes. (Anthropic reports the rest alone: add them.)"""
    output_tokens: int
    """Including reasoning."""
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: str
    """A decimal number, as text or number; absent if unknown."""
    cost_source: str
    """`given` if absent."""
    duration: float
    first_token: float
    stop_reason: str
    request_id: str
    purpose: str
    attempts: int
    error: str


class ClaimedContent(TypedDict, total=False):
    """What an importer knows of a change beyond its path; never stored. One of:

    both contents (`content_before` absent or null for a create, `content_after` for a delete);
    `edits` that are to be applied to the file; `patch`, a unified diff.
    """

    content_before: str | dict[str, str] | None
    """Text, or {"base64": "…"}."""
    content_after: str | dict[str, str] | None
    edits: list[dict[str, Any]]
    """Each {"old": text, "new": text, "all": whether to replace every occurrence}, in order.

    With `first` and `last`, lines from 1, only what is within them; without `old` they are replaced
    as a whole, by nothing if `new` is null. `last` before `first` inserts; a `first` behind all
    lines appends. `expand_tabs`: all tabs of the file become blanks before."""
    patch: str


class FileOperationData(ClaimedContent, total=False):
    """`file_operation`: one path changed."""

    id: str
    """Absent: the id of the event."""
    step_id: str
    operation_type: str
    """create, edit, delete. A rename is a delete and a create with `renamed_from`."""
    file_path: str | dict[str, str]
    """Relative to the workspace where it lies inside; {"base64": "…"} if it is not UTF-8."""
    before_id: str
    after_id: str
    mode_before: int
    mode_after: int
    renamed_from: str | dict[str, str]
    is_binary: bool
    lines_added: int
    lines_removed: int
    origin: str
    """`claimed` if absent."""


class FileReadData(TypedDict, total=False):
    """`file_read`: the agent looked at a path."""

    id: str
    step_id: str
    file_path: str | dict[str, str]
    kind: str
    first_line: int
    last_line: int
    object_id: str


class CommandData(TypedDict, total=False):
    """`command`: a command ran. Its time is its start."""

    id: str
    step_id: str
    command: dict[str, Any]
    """A `CommandRun` as its `model_dump(mode="json", exclude_defaults=True)` gives it. Where a
    transcript tells little: `argv` or `script`, `stdout` and `stderr` as plain strings."""
    exit_code: int
    """As a shell has it; only where `command` cannot say it."""
    is_test: bool
    background: bool
    state_id: str


class OutcomeData(TypedDict, total=False):
    """`test`: the outcome of one phase of one test. Its time is the end of the phase."""

    id: str
    step_id: str
    command_id: str
    node_id: str
    """Required."""
    outcome: str
    """Required; a `TestResult`."""
    phase: str
    duration: float
    message: str
    details: str
    state_id: str
    """Absent: the state of the step at its start."""
    origin: str
    runner: str
    attempt: int


class LogData(TypedDict, total=False):
    """`log`: a message, of a step or of the run."""

    id: str
    step_id: str
    level: str
    message: str
    logger: str
    data: dict[str, Any]


class StateData(TypedDict, total=False):
    """`state`: the files at a moment. Sets the fields of the step; see `ExecutionStep`."""

    step_id: str
    """Absent: the state before the first step, `Run.base_state`."""
    when: str
    """`start` or `end` (the default) of the step."""
    state_id: str
    """Null where the quality is `missing`."""
    state_quality: str
    state_reason: str
    duration: float
    """Seconds that taking it took."""


class LookData(TypedDict, total=False):
    """`look`: the files at a moment that belongs to no step yet. Its time is when the look began.

    When views of the run are joined, looks become states of the steps that they fit."""

    state_id: str
    """Null where the files could not be looked at."""
    until: int
    """When it was done, in nanoseconds."""
    reason: str
    """Why there is no state."""


class FollowedData(TypedDict, total=False):
    """`followed`: a program writes down what it does in the run, for an importer to read."""

    path: str
    """Required. The transcript, as an absolute path."""
    format: str
    """Required. The name of the importer."""
    since: int
    """In nanoseconds: what the transcript tells of earlier times is not of this run."""
    size: int
    """Bytes that it had grown to at the time of the event. Said again and again where the format
    tells no moments itself."""


class WriterData(TypedDict, total=False):
    """`writer`: which process writes this journal file. Also holds a shared flock on it."""

    pid: int
    pid_started: int
    """Start time of the process in clock ticks since boot (field 22 of /proc/PID/stat)."""
    boot: str
    """Id of the boot, /proc/sys/kernel/random/boot_id."""
    pid_namespace: str
    """Link target of /proc/self/ns/pid."""


class ClosedData(TypedDict, total=False):
    """`closed`: how a session of pytest ended, from the plug-in; empty from others."""

    runner: str
    exit_status: int
    """pytest's exit code."""
    stopped: bool
    """Before all tests had run, as with `--exitfirst`."""
    collected: int
    """How many tests were to run."""


class LostData(TypedDict, total=False):
    """`lost`: events that the writer could not write."""

    count: int
    reason: str


def derived_id(time: int, *names: str) -> str:
    """An id for what is known by `names`, in the shape of `journal.new_id`, sorting by `time`.

    The same arguments give the same id, in every process.
    """
    microseconds = time // 1000 if time > 0 else 0
    return f"{microseconds:014x}{_digest(names)[:18]}"


def derived_run_id(source: str, source_id: str) -> str:
    """The id of a run that a source knows by `source_id`, the same in every process."""
    return f"r{_digest((source, source_id))[:12]}"


def _digest(names: tuple[str, ...]) -> str:
    found: str = _sha256()("\0".join(names).encode("utf-8", "surrogatepass")).hexdigest()
    return found


@cache
def _sha256() -> Any:
    from hashlib import sha256  # milliseconds that a writer without imports need not pay

    return sha256
