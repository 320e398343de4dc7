"""Runs, reports and replays to render, made of real records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from repotrace.comparison import compare
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandRun, Output
from repotrace.records.replay import Outcome, ReplayResult
from repotrace.records.trace import metadata_of, trace_of

STARTED = datetime(2026, 10, 18, 4, 5, 48, 298051, tzinfo=UTC)
BOOM = ("python", "-c", "import sys; print('boom'); sys.exit(7)")
ENVIRONMENT = {"python_version": "3.12.1", "platform": "Linux-6.1-x86_64", "cwd": "/tmp/demo"}


def command_run(**fields: Any) -> CommandRun:
    """The run of the specification's example; `stdout` and `stderr` may be given as text."""
    known: dict[str, Any] = {
        "argv": BOOM,
        "cwd": "/tmp/demo",
        "exit_code": 7,
        "stdout": "boom\n",
        "started_at": STARTED,
        "duration": 0.03,
    }
    known |= fields
    for stream in ("stdout", "stderr"):
        if isinstance(known.get(stream), str):
            known[stream] = Output.of(known[stream].encode())
    return CommandRun(**known)


def report_of(run: CommandRun, **fields: Any) -> BugReport:
    """The report of `run` as capture would have made it."""
    metadata = metadata_of(trace_of(run, dict(ENVIRONMENT)))
    known: dict[str, Any] = {
        "id": "5303b4f97c12",
        "title": "Command failed: python -c import sys; print('boom'); sys.exit(7)",
        "created_at": STARTED,
        "tags": ["capture"],
        "metadata": metadata,
    }
    return BugReport(**(known | fields))


def result_of(expected: CommandRun, observed: CommandRun, **fields: Any) -> ReplayResult:
    """The replay of `expected` that gave `observed`, judged as a replay judges."""
    compared = compare(expected, observed)
    known: dict[str, Any] = {
        "report_id": "5303b4f97c12",
        "outcome": Outcome.MATCHED if compared.verdict.matched else Outcome.DIFFERS,
        "exit_code": observed.returncode,
        "expected_exit_code": expected.returncode,
        "cwd": observed.cwd,
        "expected": expected,
        "observed": observed,
        "duration": observed.duration,
        "title": "Command failed",
        "status": "open",
        **{name: list(getattr(compared, name)) for name in (
            "differences", "rules", "fixed_tests", "still_failing", "new_failing"
        )},
        "verdict": compared.verdict.value,
        "detail": compared.detail,
    }  # fmt: skip
    return ReplayResult(**(known | fields))


def cannot_run(reason: str = "needs OPENAI_API_KEY", **fields: Any) -> ReplayResult:
    """A replay that lacked something."""
    known: dict[str, Any] = {
        "report_id": "0123456789ab",
        "outcome": Outcome.DIFFERS,
        "verdict": "cannot-run",
        "detail": f"cannot run: {reason}",
        "differences": [f"cannot run: {reason}"],
        "expected_exit_code": 1,
        "repeats": 0,
    }
    return ReplayResult(**(known | fields))
