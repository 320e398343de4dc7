"""The shape of an exported run: its JSON Schema, and the way back to records."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from repotrace.errors import ImportFailed, NewerSchema
from repotrace.records.base import Record
from repotrace.records.blame import Blame
from repotrace.records.omitted import Omitted
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    FileRead,
    LLMInteraction,
    LogEntry,
    Run,
    StepCommand,
    TestOutcome,
)
from repotrace.runs.export.json_ import SCHEMA_VERSION


class ExportedCall(LLMInteraction):
    """A model call, whose `messages` are only those that the conversation did not have before."""

    kept: int = 0
    """So many messages are the first ones of the call `kept_from`."""
    kept_from: str | None = None
    """Id of an earlier call."""


class FileChange(Record):
    """A change in short."""

    operation: str
    file_path: Any


class ExportedStep(ExecutionStep):
    """A step with what hangs on it."""

    run_id: str = ""
    type: str = ""
    """`step_type` once more."""
    llm_interactions: tuple[ExportedCall, ...] = ()
    file_operations: tuple[FileOperation, ...] = ()
    file_changes: tuple[FileChange, ...] = ()
    file_reads: tuple[FileRead, ...] = ()
    logs: tuple[LogEntry, ...] = ()
    commands: tuple[StepCommand, ...] = ()
    test_outcomes: tuple[TestOutcome, ...] = ()


class Summary(Record):
    """Counts of what is in the document."""

    total_steps: int
    files_modified: int
    llm_calls: int
    total_tokens: int


class ExportedRun(Record):
    """A run as `repotrace export --format json` writes it. Times are ISO 8601, durations
    seconds, costs US dollars as text. What is no UTF-8 is `{"base64": "…"}`."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    run_id: str
    task_id: str
    started_at: datetime
    completed_at: datetime | None = None
    status: str
    steps: tuple[ExportedStep, ...]
    summary: Summary
    run: Run
    llm_interactions: tuple[ExportedCall, ...] = ()
    """Those of no step, as the following ones."""
    file_operations: tuple[FileOperation, ...] = ()
    file_changes: tuple[FileChange, ...] = ()
    file_reads: tuple[FileRead, ...] = ()
    logs: tuple[LogEntry, ...] = ()
    commands: tuple[StepCommand, ...] = ()
    test_outcomes: tuple[TestOutcome, ...] = ()
    blames: tuple[Blame, ...] = ()
    """What broke which test."""
    lost: int = 0
    """Events that are known to be lost."""
    left_out: Omitted | None = None
    """None for a whole run."""
    format: Literal["repotrace-run"] = "repotrace-run"
    schema_version: int = SCHEMA_VERSION
    exported_by: str = ""

    @property
    def trace(self) -> ExecutionTrace:
        """The run as it is stored. Raises ImportFailed for conversations that do not fit."""
        steps = [
            ExecutionStep.model_construct(
                **{name: getattr(step, name) for name in ExecutionStep.model_fields}
                | {"run_id": self.run_id}
            )
            for step in self.steps
        ]
        return ExecutionTrace.model_construct(
            run_id=self.run_id,
            task_id=self.task_id,
            started_at=self.started_at,
            completed_at=self.completed_at,
            status=self.status,
            steps=steps,
            llm_interactions=list(self._calls()),
            file_operations=list(self._parts("file_operations")),
            file_reads=list(self._parts("file_reads")),
            logs=list(self._parts("logs")),
            commands=list(self._parts("commands")),
            test_outcomes=list(self._parts("test_outcomes")),
            run=self.run,
        )

    def _parts(self, name: str) -> Iterator[Any]:
        for holder in (*self.steps, self):
            for part in getattr(holder, name):
                yield part.model_copy(update={"run_id": self.run_id})

    def _calls(self) -> Iterator[LLMInteraction]:
        """The calls with all their messages. A call is later than the one that it goes on with."""
        places = {step.id: place for place, step in enumerate(self.steps)}
        calls: list[ExportedCall] = sorted(
            self._parts("llm_interactions"),
            key=lambda call: (call.timestamp, places.get(call.step_id, len(places)), call.step_id),
        )
        whole: dict[str, tuple[dict[str, Any], ...]] = {}
        for call in calls:
            fields = {name: getattr(call, name) for name in LLMInteraction.model_fields}
            if call.kept:
                before = whole.get(call.kept_from or "", ())
                if len(before) < call.kept:
                    raise ImportFailed(
                        f"The model call {call.id!r} goes on with one that is not in the file."
                    )
                fields["messages"] = (*before[: call.kept], *call.messages)
            whole[call.id] = fields["messages"]
            yield LLMInteraction.model_construct(**fields)


def run_of(document: dict[str, Any], name: str) -> ExportedRun:
    """The run in a document; `name` is what the file is called. Raises ImportFailed."""
    version = document.get("schema_version", 1)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{name} was written by a newer RepoTrace: its schema is {version}.",
            hint="Update RepoTrace.",
        )
    if "run" not in document:  # as export_trace_json and other programs write it
        fields = {key: document.get(key) for key in ("task_id", "started_at", "completed_at")}
        run = fields | {"id": document.get("run_id"), "status": document.get("status")}
        document = document | {"run": run}
    try:
        found = ExportedRun.model_validate(document)
    except (ValidationError, RecursionError, OverflowError) as error:
        raise ImportFailed(f"{name} is no exported run: {_first_fault(error)}.") from error
    if found.run.id != found.run_id:
        raise ImportFailed(f"{name} is no exported run: it names two runs.")
    return found


def _first_fault(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "it is nested too deeply, or a number is out of range"
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the document'}: {first['msg']}"


class _Schema(GenerateJsonSchema):
    """Knows how `Bytes` and `OsText` look, which validate themselves."""

    def function_plain_schema(
        self, schema: core_schema.PlainValidatorFunctionSchema
    ) -> JsonSchemaValue:
        """Text, or the bytes of what is none."""
        del schema
        packed = {"base64": {"type": "string", "contentEncoding": "base64"}}
        return {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "properties": packed, "required": ["base64"]},
            ]
        }


def json_schema() -> dict[str, Any]:
    """The JSON Schema of an exported run."""
    schema = ExportedRun.model_json_schema(schema_generator=_Schema)
    return {"$schema": _Schema.schema_dialect, **schema}
