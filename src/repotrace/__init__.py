"""RepoTrace: a flight recorder for failures, of commands and of coding agents."""

from typing import TYPE_CHECKING, Any

from repotrace._version import __version__

if TYPE_CHECKING:
    from repotrace.sdk import (
        Span,
        TraceHandler,
        TracingExecutor,
        checkpoint,
        child_environment,
        current_span,
        instrument,
        propagate,
        record_decision,
        record_edit,
        record_llm,
        record_log,
        record_read,
        record_tests,
        run_command,
        run_tests,
        span,
        trace_agent,
        uninstrument,
    )

__all__ = [
    "Span",
    "TraceHandler",
    "TracingExecutor",
    "__version__",
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


def __getattr__(name: str) -> Any:
    # Loaded when they are first used: the command line, and pytest, import this package as well.
    if name.startswith("_") or name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from repotrace import sdk

    value = getattr(sdk, name)
    globals()[name] = value
    return value
