"""The run half: what is recorded of an agent, and what can be done with it afterwards.

    from repotrace.runs import ExecutionRecorder, ReplaySession, load_execution_trace

Names are loaded when they are first used: a recorded program pays for its recorder alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repotrace.records.run import (
        ExecutionStep,
        ExecutionTrace,
        FileOperation,
        LLMInteraction,
    )
    from repotrace.runs.blame import blame_run
    from repotrace.runs.check import check_run
    from repotrace.runs.file_states import (
        ExecutionSnapshot,
        compare_steps,
        get_file_state_at_step,
        get_step_snapshot,
        prepare_rerun,
        restore_to_step,
    )
    from repotrace.runs.recording.recorder import ExecutionRecorder
    from repotrace.runs.rerun import rerun_from_step
    from repotrace.runs.session import ReplaySession
    from repotrace.runs.trace_export import export_trace_json, export_trace_markdown
    from repotrace.runs.traces import (
        get_execution_steps,
        get_file_operations,
        get_llm_interactions,
        load_execution_trace,
        save_execution_step,
        save_file_operation,
        save_llm_interaction,
    )

__all__ = [
    "ExecutionRecorder",
    "ExecutionSnapshot",
    "ExecutionStep",
    "ExecutionTrace",
    "FileOperation",
    "LLMInteraction",
    "ReplaySession",
    "blame_run",
    "check_run",
    "compare_steps",
    "export_trace_json",
    "export_trace_markdown",
    "get_execution_steps",
    "get_file_operations",
    "get_file_state_at_step",
    "get_llm_interactions",
    "get_step_snapshot",
    "load_execution_trace",
    "prepare_rerun",
    "rerun_from_step",
    "restore_to_step",
    "save_execution_step",
    "save_file_operation",
    "save_llm_interaction",
]

_HOMES = {
    "repotrace.records.run": (
        *("ExecutionStep", "ExecutionTrace", "FileOperation", "LLMInteraction"),
    ),
    "repotrace.runs.file_states": (
        *("ExecutionSnapshot", "compare_steps", "get_file_state_at_step", "get_step_snapshot"),
        *("prepare_rerun", "restore_to_step"),
    ),
    "repotrace.runs.blame": ("blame_run",),
    "repotrace.runs.check": ("check_run",),
    "repotrace.runs.recording.recorder": ("ExecutionRecorder",),
    "repotrace.runs.rerun": ("rerun_from_step",),
    "repotrace.runs.session": ("ReplaySession",),
    "repotrace.runs.trace_export": ("export_trace_json", "export_trace_markdown"),
    "repotrace.runs.traces": (
        *("get_execution_steps", "get_file_operations", "get_llm_interactions"),
        *("load_execution_trace", "save_execution_step", "save_file_operation"),
        "save_llm_interaction",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
