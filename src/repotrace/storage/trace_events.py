"""A loaded trace as the events that make it again: the way in of saved records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

from repotrace.records.base import encode_bytes
from repotrace.records.events import Event, Kind
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    FileRead,
    LLMInteraction,
    LogEntry,
    Run,
    RunStatus,
    StateQuality,
    StepCommand,
    StepStatus,
    TestOutcome,
)
from repotrace.storage.rows import nanoseconds

_PLACED = frozenset({"run_id", "timestamp", "content_before", "content_after"})
_PATHS = ("file_path", "renamed_from", "workspace")


def events_of(trace: ExecutionTrace) -> Iterator[Event]:
    """All that a trace says, in an order in which `RunStore.save` keeps its numbers."""
    run = trace.run or Run(
        id=trace.run_id,
        task_id=trace.task_id,
        started_at=trace.started_at,
        completed_at=trace.completed_at,
        status=trace.status,
    )
    yield from run_events(run)
    # A trace that has operations has all of them: nothing is to be derived of its states again.
    derived = bool(trace.file_operations)
    for step in sorted(trace.steps, key=lambda step: step.step_number):
        yield from step_events(step, derived=derived)
    parts: tuple[list[Any], ...] = (
        trace.llm_interactions,
        trace.file_operations,
        trace.file_reads,
        trace.commands,
        trace.test_outcomes,
        trace.logs,
    )
    for part in chain.from_iterable(parts):
        yield part_event(part)


def run_events(run: Run) -> Iterator[Event]:
    """A run alone."""
    data = _facts(run, omit={"started_at", "completed_at", "last_event_at", "totals"})
    yield _event(Kind.RUN_STARTED, run.id, run.id, run.started_at, data)
    if run.completed_at is not None:
        ended = {"status": run.status}
        yield _event(Kind.RUN_ENDED, run.id, run.id, run.completed_at, ended)
    if run.status != RunStatus.RUNNING or run.completed_at is None:
        yield _event(Kind.RUN_UPDATED, run.id, run.id, run.started_at, {"status": run.status})


def step_events(step: ExecutionStep, *, derived: bool = False) -> Iterator[Event]:
    """A step alone. `derived`: what its states show is told by operations."""
    known = {"derived": True} if derived else {}
    states = {"state_id", "state_before_id", "state_quality", "state_reason"}
    data = _facts(step, omit={"started_at", "completed_at", "status", *states})
    if step.external_id is not None:
        data["source"] = step.source
    yield _event(Kind.STEP_STARTED, step.id, step.run_id, step.started_at, data)
    status = {"id": step.id, "status": step.status}
    if step.completed_at is not None:
        yield _event(Kind.STEP_ENDED, step.id, step.run_id, step.completed_at, status)
    elif step.status != StepStatus.STARTED:
        yield _event(Kind.STEP_UPDATED, step.id, step.run_id, step.started_at, status)
    if step.state_before_id is not None:
        before = {"step_id": step.id, "when": "start", "state_id": step.state_before_id, **known}
        yield _event(Kind.STATE, step.id, step.run_id, step.started_at, before)
    if step.state_quality is not None or step.state_id is not None:
        after = {
            "step_id": step.id,
            "state_id": step.state_id,
            "state_quality": step.state_quality or StateQuality.EXACT.value,
            "state_reason": step.state_reason,
            **known,
        }
        yield _event(Kind.STATE, step.id, step.run_id, step.started_at, after)


type Part = LLMInteraction | FileOperation | FileRead | StepCommand | TestOutcome | LogEntry

_KINDS: Mapping[type[Part], Kind] = {
    LLMInteraction: Kind.LLM,
    FileOperation: Kind.FILE_OPERATION,
    FileRead: Kind.FILE_READ,
    StepCommand: Kind.COMMAND,
    TestOutcome: Kind.TEST,
    LogEntry: Kind.LOG,
}


def part_event(part: Part) -> Event:
    """What hangs on a step, alone. Contents of files are not in it."""
    omitted: set[str] = set(_PLACED)
    data: dict[str, Any]
    if isinstance(part, StepCommand):
        data = _facts(part, omit=omitted | {"command"})
        data["command"] = part.command.model_dump(mode="json", exclude_defaults=True)
    else:
        data = _facts(part, omit=omitted)
    if isinstance(part, LLMInteraction):
        data["source"] = part.source if part.external_id is not None else None
    kind = next(kind for cls, kind in _KINDS.items() if isinstance(part, cls))
    return _event(kind, part.id, part.run_id, part.timestamp, data)


def record_events(record: ExecutionStep | Part, workspace: str | None) -> Iterator[Event]:
    """One record alone; `workspace` is the folder of its run, if that is not known."""
    events = step_events(record) if isinstance(record, ExecutionStep) else [part_event(record)]
    for number, event in enumerate(events):
        if number == 0 and workspace is not None:
            folder = {"workspace": encode_bytes(workspace.encode("utf-8", "surrogateescape"))}
            update: Event = {**event, "kind": Kind.RUN_UPDATED, "data": folder, "weak": True}
            yield update
        yield event


def _facts(record: Any, *, omit: set[str]) -> dict[str, Any]:
    facts = {}
    for name in type(record).model_fields:
        if name in omit:
            continue
        value = getattr(record, name)
        if name in _PATHS and value is not None:
            value = encode_bytes(value.encode("utf-8", "surrogateescape"))
        elif isinstance(value, tuple):
            value = list(value)
        facts[name] = value
    return facts


def _event(kind: Kind, name: str, run_id: str, time: datetime, data: dict[str, Any]) -> Event:
    facts = {key: value for key, value in data.items() if value is not None}
    return {"id": name, "run": run_id, "kind": kind, "time": nanoseconds(time), "data": facts}
