"""A trace for other programs, as JSON, and for people, as Markdown."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha1
from typing import Any

from repotrace import markdown
from repotrace.journal import redacted
from repotrace.readable import seconds, truncate
from repotrace.records.base import Record, encode_bytes
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    LLMInteraction,
    StepStatus,
    TestOutcome,
)
from repotrace.redact import Redactor
from repotrace.runs.contents import bytes_of
from repotrace.runs.step_text import by_step, duration

_MARKS: dict[str, str] = {
    StepStatus.COMPLETED: "[OK]",
    StepStatus.FAILED: "[FAIL]",
    StepStatus.STARTED: "[...]",
}


# --- JSON -----------------------------------------------------------------------------------


def export_trace_json(trace: ExecutionTrace, *, allow_secrets: bool = False) -> dict[str, Any]:
    """All of a trace as a dict that `json.dumps` takes.

    The run, its `summary`, and `steps`; each with its fields, its `llm_interactions`,
    `file_operations` (contents included) and `logs`, and where it has some with `file_changes`,
    `commands` and `test_outcomes`. A step's type stands in `type` and in `step_type`. What
    belongs to no step stands beside the steps. A call that goes on with the conversation of an
    earlier one, `kept_from`, gives in `kept` how many of its messages it repeats, and in
    `messages` the others.

    Secrets are masked, also those in the contents of files, unless `allow_secrets`. The object
    id of a masked content is that of what is shown.
    """
    redact = None if allow_secrets else redactor().redact
    parts = _Parts(trace, redact)
    steps = [{**_step(step), **parts.of(step.id)} for step in trace.steps]
    outside = {name: found for name, found in parts.rest().items() if found}
    exported: dict[str, Any] = {
        "run_id": trace.run_id,
        "task_id": trace.task_id,
        "started_at": trace.started_at.isoformat(),
        "completed_at": trace.completed_at.isoformat() if trace.completed_at else None,
        "status": trace.status,
        "steps": steps,
        "summary": trace.summary(),
        **outside,
    }
    if trace.run is not None:
        exported["run"] = _plain(trace.run)
    if redact is not None:
        exported = redacted(exported, redact)
    for step in (*exported["steps"], exported):
        for operation in step.get("file_operations", ()):
            operation.update(parts.contents[operation["id"]])
    return exported


def calls_in_order(trace: ExecutionTrace) -> list[LLMInteraction]:
    """The model calls by time, those of one moment by step: the order does not depend on more."""
    places = {step.id: place for place, step in enumerate(trace.steps)}
    return sorted(
        trace.llm_interactions,
        key=lambda call: (call.timestamp, places.get(call.step_id, len(places)), call.step_id),
    )


class _Parts:
    """What hangs on steps, as plain values, by step; each step's is taken once."""

    def __init__(self, trace: ExecutionTrace, redact: Callable[[str], str] | None) -> None:
        self._found: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        self.contents: dict[str, dict[str, Any]] = {}
        """The contents of operations, by their ids, masked in a way of their own: as files."""
        before: LLMInteraction | None = None
        for call in calls_in_order(trace):
            self._add("llm_interactions", call.step_id, _call(call, before))
            before = call if call.messages else before
        for operation in trace.file_operations:
            self.contents[operation.id] = _contents(operation, redact)
            hollow = operation.model_copy(update={"content_before": None, "content_after": None})
            self._add("file_operations", operation.step_id, _plain(hollow))
            change = {"operation": operation.operation_type, "file_path": operation.file_path}
            self._add("file_changes", operation.step_id, change)
        others: dict[str, Sequence[Any]] = {
            "logs": trace.logs,
            "file_reads": trace.file_reads,
            "commands": trace.commands,
            "test_outcomes": trace.test_outcomes,
        }
        for name, records in others.items():
            for record in records:
                self._add(name, record.step_id, _plain(record))

    def _add(self, name: str, step_id: str | None, value: Any) -> None:
        self._found[step_id or ""][name].append(value)

    def of(self, step_id: str) -> dict[str, list[Any]]:
        """Of a step; the three lists that every step has come first."""
        found = self._found.pop(step_id, {})
        always = ("llm_interactions", "file_operations", "logs")
        return {name: found.pop(name, []) for name in always} | dict(found)

    def rest(self) -> dict[str, list[Any]]:
        """Of no step of the trace."""
        merged: dict[str, list[Any]] = defaultdict(list)
        for found in self._found.values():
            for name, values in found.items():
                merged[name] += values
        return dict(merged)


def _step(step: ExecutionStep) -> dict[str, Any]:
    fields = _plain(step)
    first = {"step_number": fields.pop("step_number"), "type": step.step_type}
    del fields["run_id"]
    return first | fields


def _call(call: LLMInteraction, before: LLMInteraction | None) -> dict[str, Any]:
    fields = _plain(call)
    known = before.messages if before is not None else ()
    if before is None or call.messages[: len(known)] != known:
        return fields | {"kept": 0, "kept_from": None}
    fields["messages"] = fields["messages"][len(known) :]
    return fields | {"kept": len(known), "kept_from": before.id}


def _contents(operation: FileOperation, redact: Callable[[str], str] | None) -> dict[str, Any]:
    """The fields of an operation that hold or name contents."""
    fields: dict[str, Any] = {}
    for side in ("before", "after"):
        text, object_id = getattr(operation, f"content_{side}"), getattr(operation, f"{side}_id")
        if text is not None and redact is not None and (masked := redact(text)) != text:
            text, object_id = masked, object_id and _blob_id(bytes_of(masked))
        fields[f"content_{side}"] = None if text is None else encode_bytes(bytes_of(text))
        fields[f"{side}_id"] = object_id
    return fields


def _blob_id(data: bytes) -> str:
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _plain(record: Record) -> dict[str, Any]:
    """The fields of a record, times as ISO 8601 with the offset."""
    fields = record.model_dump(mode="json")
    for name in fields:
        value = getattr(record, name)
        if isinstance(value, datetime):
            fields[name] = value.isoformat()
    return fields


def redactor() -> Redactor:
    """What masks the secrets of one export, also those of our own environment."""
    # A key of its own: equal secrets carry equal digests within one export, and only there.
    return Redactor(key=os.urandom(32), variables=os.environ)


# --- Markdown -------------------------------------------------------------------------------


def export_trace_markdown(trace: ExecutionTrace) -> str:
    """A trace as a Markdown page: what it was about, counts, and each step with its outcome.

    Secrets are masked.
    """
    summary = trace.summary()
    lines = [
        f"# Execution Trace: {markdown.inline(trace.run_id)}",
        "",
        f"- **Task**: {markdown.inline(trace.task_id)}",
        f"- **Status**: {markdown.inline(trace.status)}",
        f"- **Started**: {trace.started_at.isoformat()}",
    ]
    if trace.completed_at:
        lines.append(f"- **Completed**: {trace.completed_at.isoformat()}")
    lines += [*_about(trace), "", "## Summary", "", "| Metric | Value |", "|--------|-------|"]
    for name, key in (
        ("Total steps", "total_steps"),
        ("LLM calls", "llm_calls"),
        ("Total tokens", "total_tokens"),
        ("Files modified", "files_modified"),
    ):
        lines.append(f"| {name} | {summary[key]} |")
    lines += ["", "## Steps", ""]
    calls, operations = by_step(trace.llm_interactions), by_step(trace.file_operations)
    tests = by_step(trace.test_outcomes)
    for step in trace.steps:
        lines += _timeline(
            step,
            calls.get(step.id, []),
            operations.get(step.id, []),
            tests.get(step.id, []),
        )
        lines.append("")
    return redactor().redact("\n".join(lines))


def _about(trace: ExecutionTrace) -> list[str]:
    run = trace.run
    if run is None:
        return []
    facts = {"Asked": run.task, "Agent": run.agent, "Outcome": run.outcome, "Error": run.error}
    return [f"- **{name}**: {_shortened(text)}" for name, text in facts.items() if text]


def _timeline(
    step: ExecutionStep,
    calls: Sequence[LLMInteraction],
    operations: Sequence[FileOperation],
    tests: Sequence[TestOutcome],
) -> list[str]:
    status = markdown.inline(step.status)
    lines = [
        f"### Step {step.step_number}: {_shortened(step.description)}",
        f"- **Type**: {markdown.inline(step.step_type)}",
        f"- **Status**: {_MARKS.get(step.status, f'[{status}]')} {status}",
    ]
    if step.completed_at is not None:
        lines.append(f"- **Duration**: {seconds(duration(step.started_at, step.completed_at))}")
    if step.attempt > 1:
        lines.append(f"- **Attempt**: {step.attempt}")
    if step.reason:
        lines.append(f"- **Reason**: {_shortened(step.reason)}")
    if step.error:
        lines.append(f"- **Error**: {_shortened(step.error)}")
    if calls:
        models = ", ".join(dict.fromkeys(call.model for call in calls if call.model))
        used = f"{sum(call.tokens_used for call in calls)} tokens"
        by = f" by {markdown.inline(models)}" if models else ""
        lines.append(f"- **LLM calls**: {len(calls)}{by}, {used}")
    if tests:
        counts = Counter(test.outcome for test in tests)
        found = ", ".join(f"{count} {markdown.inline(word)}" for word, count in counts.items())
        lines.append(f"- **Tests**: {found}")
    if operations:
        lines.append("- **File changes**:")
        for operation in operations:
            path = markdown.code_span(operation.file_path)
            lines.append(f"  - {markdown.inline(operation.operation_type)}: {path}")
    return lines


def _shortened(text: str) -> str:
    return markdown.inline(truncate(" ".join(text.split()), 300))
