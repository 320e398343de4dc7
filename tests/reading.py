"""A small recorded run with real states, for the tests that read it back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from recording import RUN, event
from running import plain_git
from states import exact

from repotrace.records.events import Event
from repotrace.storage import Store

TASK = "Fix the date bug in the invoice export.\nIt fails on leap days."
REASON = "The leap day does not exist in the next year."
BROKEN = b"def due(year):\n    return year + 2\n"
FIXED = b"def due(year):\n    return year + 1\n"
LEAP, SIMPLE = "tests/test_export.py::test_leap_year", "tests/test_export.py::test_simple"


class Recorded(NamedTuple):
    """The run, and what its files were."""

    store: Store
    workspace: Path
    states: tuple[str, str, str]
    """Before all, after step 3, after step 5."""


def project(folder: Path) -> Path:
    """A git repository with an invoice project."""
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "export.py").write_bytes(b"def due(year):\n    return year\n")
    plain_git(folder, "init", "-q")
    plain_git(folder, "add", "-A")
    plain_git(folder, "commit", "-qm", "start")
    return folder


def record(workspace: Path, *, run: str = RUN, start: float = 0.0) -> Recorded:
    """A run of six steps: plan, search, a patch that breaks a test, the test, a retry, the test."""
    store = Store(workspace / ".git" / "repotrace")
    code = workspace / "app" / "export.py"

    def state() -> str:
        return exact(store.snapshots.take(workspace, ref=f"runs/{run}"))

    base = state()
    code.write_bytes(BROKEN)
    broken = state()
    code.write_bytes(FIXED)
    code.chmod(0o755)
    (workspace / "logo.bin").write_bytes(b"\0\1\2")
    fixed = state()
    states = (base, broken, fixed)
    store.runs.add_events(_events(workspace, run, start, states))
    return Recorded(store, workspace, states)


def _events(
    workspace: Path, run: str, start: float, states: tuple[str, str, str]
) -> Iterator[Event]:
    base, broken, fixed = states

    def say(kind: str, seconds: float, **data: Any) -> Event:
        return event(kind, start + seconds, run=run, **data)

    def state(seconds: float, state_id: str, **data: Any) -> Event:
        return say("state", seconds, state_id=state_id, state_quality="exact", **data)

    yield say(
        "run_started", 0, task=TASK, agent="fixer", agent_version="1.2", source="sdk",
        environment="production", workspace=str(workspace), tags=["ci"],
    )  # fmt: skip
    yield state(0, base)
    yield say("step_started", 1, id="plan", step_type="planning", description="Plan",
              input_context=TASK)  # fmt: skip
    yield say(
        "llm", 1.5, id="call1", step_id="plan", model="m-1", response="Look at the export.",
        messages=[{"role": "user", "content": TASK}], input_tokens=1200, output_tokens=80,
        tokens_used=1280, cost_usd="0.03",
    )  # fmt: skip
    yield say("step_ended", 2, id="plan", output_result="1. look\n2. fix")
    yield say("step_started", 3, id="search", step_type="tool", description="Search",
              metadata={"tool": "grep"})  # fmt: skip
    for name in ("app/export.py", "tests/test_export.py"):
        yield say("file_read", 3, step_id="search", file_path=name, first_line=1, last_line=9)
    yield say("log", 3.5, step_id="search", level="warning", message="two files match")
    yield say("step_ended", 4, id="search")
    yield say("step_started", 5, id="patch", step_type="edit", description="Write the patch",
              reason=REASON)  # fmt: skip
    yield state(5, base, step_id="patch", when="start")
    yield state(6, broken, step_id="patch")
    yield say("step_ended", 6, id="patch")
    yield from _test_step(say, 7, "check", broken, {LEAP: "failed", SIMPLE: "passed"})
    yield say("step_started", 9, id="retry", step_type="edit", description="Retry", attempt=2,
              retry_of="patch", reason="It must be one year.")  # fmt: skip
    yield say(
        "llm", 9.5, id="call2", step_id="retry", model="m-1", response="One year.",
        messages=[{"role": "user", "content": TASK}, {"role": "user", "content": "E [bold]x"}],
        input_tokens=2000, output_tokens=20, tokens_used=2020, cost_usd="0.01",
    )  # fmt: skip
    yield state(9, broken, step_id="retry", when="start")
    yield state(10, fixed, step_id="retry")
    yield say("step_ended", 10, id="retry")
    yield from _test_step(say, 11, "check again", fixed, {LEAP: "passed", SIMPLE: "passed"})
    yield say("run_ended", 13)


def _test_step(
    say: Any, seconds: float, name: str, state: str, outcomes: dict[str, str]
) -> Iterator[Event]:
    failed = "failed" in outcomes.values()
    yield say("step_started", seconds, id=name, step_type="test", description=name.capitalize())
    yield say("state", seconds, step_id=name, when="start", state_id=state)
    command = {"argv": ["pytest", "-q"], "exit_code": int(failed), "duration": 0.5,
               "stdout": "\x1b[31mE assert 2026 == 2025\x1b[0m\n"}  # fmt: skip
    yield say("command", seconds, id=f"c {name}", step_id=name, command=command, is_test=True)
    for node_id, outcome in outcomes.items():
        yield say(
            "test", seconds + 1, step_id=name, command_id=f"c {name}", node_id=node_id,
            outcome=outcome, details="E assert 2026 == 2025" if outcome == "failed" else None,
        )  # fmt: skip
    yield say("state", seconds + 1, step_id=name, state_id=state)
    yield say("step_ended", seconds + 1, id=name, **({"status": "failed"} if failed else {}))
