"""Rows of the tables of runs become records, long texts pending."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

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
from repotrace.storage.bodies import Bodies, Contents
from repotrace.storage.rows import from_moment
from repotrace.storage.texts import decode

type Loaders = dict[str, Callable[[], Any]]

RUN = (
    *("id", "task_id", "task", "agent", "agent_version", "source", "source_id", "environment"),
    *("status", "outcome", "error", "started_at", "completed_at", "last_event_at", "workspace"),
    *("base_commit", "base_state", "base_quality", "parent_run_id", "branched_from_step"),
    *("models", "pinned", "attributes", "totals"),
)

STEP = (
    *("id", "run_id", "step_number", "step_type", "description", "started_at", "completed_at"),
    *("status", "input_context", "output_result", "metadata", "parent_id", "source"),
    *("external_id", "reason", "attempt", "retry_of", "state_id", "state_before_id"),
    *("state_quality", "state_reason", "ambiguous", "error", "label"),
)

INTERACTION = (
    *("id", "run_id", "step_id", "prompt", "response", "model", "tokens_used", "timestamp"),
    *("purpose", "source", "external_id", "provider", "response_message", "tools", "parameters"),
    *("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "cost_usd", "cost_source", "duration", "first_token", "stop_reason"),
    *("request_id", "attempts", "error", "rowid"),
)

OPERATION = (
    *("id", "run_id", "step_id", "operation_type", "file_path", "timestamp", "before_id"),
    *("after_id", "mode_before", "mode_after", "renamed_from", "is_binary", "lines_added"),
    *("lines_removed", "origin"),
)

READ = (
    *("id", "run_id", "step_id", "file_path", "timestamp", "kind", "first_line", "last_line"),
    "object_id",
)

LOG = ("id", "run_id", "step_id", "level", "message", "timestamp", "logger", "data")

COMMAND = (
    *("id", "run_id", "step_id", "command_line", "timestamp", "duration", "exit_code"),
    *("is_test", "background", "state_id", "record", "stdout_head", "stdout_tail"),
    *("stderr_head", "stderr_tail"),
)

TEST = (
    *("id", "run_id", "step_id", "command_id", "node_id", "phase", "outcome", "duration"),
    *("message", "details", "timestamp", "state_id", "origin", "runner", "attempt"),
)


class Reader:
    """Makes records of rows. `contents` reads files of the snapshot store."""

    def __init__(self, bodies: Bodies, contents: Contents | None) -> None:
        self._bodies = bodies
        self._contents = contents

    def run(self, row: Sequence[Any], tags: Iterable[str]) -> Run:
        """A run out of the columns `RUN`."""
        fields = _words(RUN, row)
        _times(fields, "started_at", "completed_at", "last_event_at")
        for name in ("task", "error"):
            fields[name] = self._bodies.text(fields[name])
        fields["attributes"] = self._bodies.document(fields["attributes"], {})
        fields["models"] = tuple(json.loads(fields["models"]))
        fields["pinned"] = bool(fields["pinned"])
        fields["totals"] = RunTotals.model_validate_json(fields["totals"] or "{}")
        fields["tags"] = tuple(sorted(tags))
        return Run.model_construct(**fields)

    def step(self, row: Sequence[Any]) -> ExecutionStep:
        """A step out of the columns `STEP`."""
        fields, pending = self._split(STEP, row, json_columns={"metadata": {}})
        _times(fields, "started_at", "completed_at")
        fields["ambiguous"] = bool(fields["ambiguous"])
        if fields.get("description", "") is None:
            fields["description"] = ""
        return ExecutionStep.pending(fields, pending)

    def interaction(self, row: Sequence[Any]) -> LLMInteraction:
        """A model call out of the columns `INTERACTION`."""
        fields, pending = self._split(
            INTERACTION,
            row,
            json_columns={"response_message": None, "tools": [], "parameters": {}},
            empty=("prompt", "response"),
        )
        _times(fields, "timestamp")
        if "tools" in fields:
            fields["tools"] = tuple(fields["tools"])
        else:
            load = pending["tools"]
            pending["tools"] = lambda: tuple(load())
        cost = fields["cost_usd"]
        fields["cost_usd"] = None if cost is None else Decimal(cost)
        pending["messages"] = partial(self._bodies.messages, fields.pop("rowid"))
        return LLMInteraction.pending(fields, pending)

    def operation(self, row: Sequence[Any]) -> FileOperation:
        """A file operation out of the columns `OPERATION`."""
        fields = _words(OPERATION, row)
        _times(fields, "timestamp")
        fields["is_binary"] = bool(fields["is_binary"])
        pending: Loaders = {
            "content_before": partial(self._content, fields["before_id"]),
            "content_after": partial(self._content, fields["after_id"]),
        }
        return FileOperation.pending(fields, pending)

    def _content(self, object_id: str | None) -> str | None:
        if object_id is None or self._contents is None:
            return None
        data = self._contents(object_id)
        return None if data is None else os.fsdecode(data)

    def read(self, row: Sequence[Any]) -> FileRead:
        """A read out of the columns `READ`."""
        fields = _words(READ, row)
        _times(fields, "timestamp")
        return FileRead.model_construct(**fields)

    def log(self, row: Sequence[Any]) -> LogEntry:
        """A log entry out of the columns `LOG`."""
        fields = _words(LOG, row)
        _times(fields, "timestamp")
        fields["message"] = self._bodies.text(fields["message"]) or ""
        fields["data"] = self._bodies.document(fields["data"], {})
        return LogEntry.model_construct(**fields)

    def command(self, row: Sequence[Any]) -> StepCommand:
        """A command out of the columns `COMMAND`."""
        cells = dict(zip(COMMAND, row, strict=True))
        ends = {name: cells.pop(name) for name in COMMAND[-4:]}
        record = cells.pop("record")
        fields = {name: _word(value) for name, value in cells.items()}
        _times(fields, "timestamp")
        fields["command_line"] = self._bodies.text(cells["command_line"]) or ""
        for name in ("is_test", "background"):
            fields[name] = bool(fields[name])
        return StepCommand.pending(fields, {"command": partial(self._bodies.command, record, ends)})

    def test(self, row: Sequence[Any]) -> TestOutcome:
        """A test outcome out of the columns `TEST`."""
        fields = _words(TEST, row)
        _times(fields, "timestamp")
        for name in ("message", "details"):
            fields[name] = self._bodies.text(fields[name])
        return TestOutcome.model_construct(**fields)

    def _split(
        self,
        columns: Sequence[str],
        row: Sequence[Any],
        *,
        json_columns: Mapping[str, Any],
        empty: tuple[str, ...] = (),
    ) -> tuple[dict[str, Any], Loaders]:
        """The fields that stand in the row, and loaders of those that do not."""
        fields = dict(zip(columns, row, strict=True))
        pending: Loaders = {}
        for name, default in json_columns.items():
            value = fields[name]
            if isinstance(value, int):
                pending[name] = partial(self._bodies.document, fields.pop(name), default)
            else:
                fields[name] = self._bodies.document(value, default) if value else default
                if value is None and isinstance(default, dict | list):
                    fields[name] = default.copy()
        for name in _LONG:
            if isinstance(fields.get(name), int):
                pending[name] = partial(self._long, fields.pop(name), name in empty)
        for name, value in fields.items():
            if isinstance(value, bytes):
                fields[name] = decode(value)
        for name in empty:
            if name in fields and fields[name] is None:
                fields[name] = ""
        return fields, pending

    def _long(self, value: int, is_required: bool) -> str | None:
        found = self._bodies.text(value)
        return "" if found is None and is_required else found


_LONG = (
    *("description", "input_context", "output_result", "reason", "error", "state_reason"),
    *("prompt", "response"),
)


def _words(columns: Sequence[str], row: Sequence[Any]) -> dict[str, Any]:
    return {name: _word(value) for name, value in zip(columns, row, strict=True)}


def _word(value: Any) -> Any:
    return decode(value) if isinstance(value, bytes) else value


def _times(fields: dict[str, Any], *names: str) -> None:
    for name in names:
        if fields[name] is not None:
            fields[name] = from_moment(fields[name])
