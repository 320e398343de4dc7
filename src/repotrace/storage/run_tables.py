"""Which facts go into which column of the tables of runs."""

from __future__ import annotations

from repotrace.records.run import (
    Origin,
    OutcomeOrigin,
    RunStatus,
    StepStatus,
    StepType,
)
from repotrace.storage.rows import (
    Convert,
    Table,
    cost,
    flag,
    integer,
    number,
    path,
    text,
)
from repotrace.storage.texts import to_json

_OWN: dict[str, Convert | None] = {"id": None, "run_id": None}

RUNS = Table(
    "runs",
    {
        "id": None,
        "task_id": text,
        "task": text,
        "agent": text,
        "agent_version": text,
        "source": None,
        "source_id": None,
        "environment": text,
        "status": None,
        "outcome": None,
        "outcome_given": None,
        "error": text,
        "started_at": None,
        "completed_at": None,
        "last_event_at": None,
        "workspace": path,
        "base_commit": text,
        "base_state": text,
        "base_quality": text,
        "parent_run_id": text,
        "branched_from_step": integer,
        "models": None,
        "pinned": flag,
        "attributes": to_json,
        "next_step": None,
        "writer": None,
    },
    defaults={
        "source": "",
        "status": RunStatus.RUNNING.value,
        "outcome_given": 0,
        "models": "[]",
        "pinned": 0,
        "next_step": 1,
    },
    long=frozenset({"task", "error", "attributes"}),
    merged=frozenset({"attributes"}),
    searched=("task",),
    key=("id",),
)

STEPS = Table(
    "execution_steps",
    {
        **_OWN,
        "step_number": None,
        "step_type": text,
        "description": text,
        "started_at": None,
        "completed_at": None,
        "status": None,
        "input_context": text,
        "output_result": text,
        "metadata": to_json,
        "parent_id": text,
        "source": None,
        "external_id": None,
        "reason": text,
        "attempt": integer,
        "retry_of": text,
        "state_id": None,
        "state_before_id": None,
        "state_quality": None,
        "state_reason": None,
        "ambiguous": flag,
        "error": text,
        "label": text,
        "writer": None,
    },
    defaults={
        "step_type": StepType.UNKNOWN.value,
        "status": StepStatus.STARTED.value,
        "source": "",
        "attempt": 1,
        "ambiguous": 0,
    },
    long=frozenset(
        {
            "description",
            "input_context",
            "output_result",
            "metadata",
            "reason",
            "state_reason",
            "error",
        }
    ),
    merged=frozenset({"metadata"}),
    searched=("description", "input_context", "output_result", "reason", "error", "label"),
)

INTERACTIONS = Table(
    "llm_interactions",
    {
        **_OWN,
        "step_id": text,
        "prompt": text,
        "response": text,
        "model": text,
        "tokens_used": integer,
        "timestamp": None,
        "purpose": text,
        "source": None,
        "external_id": None,
        "provider": text,
        "previous": None,
        "kept": None,
        "added": None,
        "depth": None,
        "response_message": to_json,
        "tools": to_json,
        "parameters": to_json,
        "input_tokens": integer,
        "output_tokens": integer,
        "cache_read_tokens": integer,
        "cache_write_tokens": integer,
        "reasoning_tokens": integer,
        "cost_usd": cost,
        "cost_source": text,
        "duration": number,
        "first_token": number,
        "stop_reason": text,
        "request_id": text,
        "attempts": integer,
        "error": text,
    },
    defaults={
        "step_id": "",
        "model": "",
        "tokens_used": 0,
        "purpose": "execution",
        "source": "",
        "kept": 0,
        "added": "[]",
        "depth": 0,
        "attempts": 1,
    },
    long=frozenset(
        {"prompt", "response", "response_message", "tools", "parameters", "error"},
    ),
    searched=("prompt", "response", "error"),
)

OPERATIONS = Table(
    "file_operations",
    {
        **_OWN,
        "step_id": text,
        "operation_type": text,
        "file_path": path,
        "timestamp": None,
        "before_id": text,
        "after_id": text,
        "mode_before": integer,
        "mode_after": integer,
        "renamed_from": path,
        "is_binary": flag,
        "lines_added": integer,
        "lines_removed": integer,
        "origin": text,
    },
    defaults={
        "step_id": "",
        "operation_type": "edit",
        "is_binary": 0,
        "origin": Origin.CLAIMED.value,
    },
    long=frozenset(),
    searched=("file_path",),
)

READS = Table(
    "file_reads",
    {
        **_OWN,
        "step_id": text,
        "file_path": path,
        "timestamp": None,
        "kind": text,
        "first_line": integer,
        "last_line": integer,
        "object_id": text,
    },
    defaults={"step_id": "", "kind": "read"},
    searched=("file_path",),
)

LOGS = Table(
    "log_entries",
    {
        **_OWN,
        "step_id": text,
        "level": text,
        "message": text,
        "timestamp": None,
        "logger": text,
        "data": to_json,
    },
    defaults={"level": "info"},
    long=frozenset({"message", "data"}),
    searched=("message",),
)

COMMANDS = Table(
    "command_runs",
    {
        **_OWN,
        "step_id": text,
        "command_line": None,
        "timestamp": None,
        "duration": None,
        "exit_code": integer,
        "is_test": flag,
        "background": flag,
        "state_id": text,
        "record": None,
        "stdout_head": None,
        "stdout_tail": None,
        "stderr_head": None,
        "stderr_tail": None,
    },
    defaults={"step_id": "", "is_test": 0, "background": 0},
    long=frozenset(
        {"command_line", "record", "stdout_head", "stdout_tail", "stderr_head", "stderr_tail"}
    ),
    searched=("command_line", "stdout_head", "stdout_tail", "stderr_head", "stderr_tail"),
)

TESTS = Table(
    "test_outcomes",
    {
        **_OWN,
        "step_id": text,
        "command_id": text,
        "node_id": text,
        "phase": text,
        "outcome": text,
        "duration": number,
        "message": text,
        "details": text,
        "timestamp": None,
        "state_id": text,
        "origin": text,
        "runner": text,
        "attempt": integer,
    },
    defaults={
        "step_id": "",
        "phase": "call",
        "origin": OutcomeOrigin.PLUGIN.value,
        "attempt": 1,
    },
    long=frozenset({"message", "details"}),
    searched=("node_id", "message", "details"),
)

PARTS = (STEPS, INTERACTIONS, OPERATIONS, READS, LOGS, COMMANDS, TESTS)
"""All tables whose rows belong to one run."""
