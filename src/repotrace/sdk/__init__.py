"""The SDK: a Python program that acts as a coding agent tells what it does.

    from repotrace import span, trace_agent

    @trace_agent
    def fix_bug(task: str) -> str:
        patch = span("write-patch", lambda: write_patch(task), type="llm", input=task)
        with span("apply", type="edit", reason=patch.reason):
            patch.apply()
        run_tests(["pytest", "-q"])

Spans of the types in `STATEFUL` keep the files before and after them. What happens to the
recording never changes what the program does: no function here raises for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from repotrace.sdk.agents import trace_agent
from repotrace.sdk.spans import STATEFUL, Span, current_span, span

if TYPE_CHECKING:
    from repotrace.sdk.children import TracingExecutor, child_environment, propagate
    from repotrace.sdk.commands import CommandResult, run_command, run_tests
    from repotrace.sdk.instrumenting import instrument, uninstrument
    from repotrace.sdk.logs import TraceHandler
    from repotrace.sdk.telling import (
        checkpoint,
        record_decision,
        record_edit,
        record_llm,
        record_log,
        record_read,
        record_tests,
    )

__all__ = [
    "STATEFUL",
    "CommandResult",
    "Span",
    "TraceHandler",
    "TracingExecutor",
    "checkpoint",
    "child_environment",
    "current_span",
    "instrument",
    "propagate",
    "record_decision",
    "record_edit",
    "record_llm",
    "record_log",
    "record_read",
    "record_tests",
    "run_command",
    "run_tests",
    "span",
    "trace_agent",
    "uninstrument",
]

_HOMES = {
    "CommandResult": "commands",
    "TraceHandler": "logs",
    "TracingExecutor": "children",
    "checkpoint": "telling",
    "child_environment": "children",
    "instrument": "instrumenting",
    "propagate": "children",
    "record_decision": "telling",
    "record_edit": "telling",
    "record_llm": "telling",
    "record_log": "telling",
    "record_read": "telling",
    "record_tests": "telling",
    "run_command": "commands",
    "run_tests": "commands",
    "uninstrument": "instrumenting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
