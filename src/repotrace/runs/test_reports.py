"""Outcomes of tests from a runner's own report, added to a run that is recorded already."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from repotrace.errors import RepoTraceError
from repotrace.journal import redacted
from repotrace.junit import outcomes_from_junit
from repotrace.records.command import digest
from repotrace.records.events import Event, Kind, derived_id
from repotrace.records.run import ExecutionStep, Run
from repotrace.redact import Redactor
from repotrace.runs.states import StatesOfRun
from repotrace.storage import Store

SIZE_LIMIT = 256 << 20
"""Bytes of a report above which it is refused."""


class ReportedTests(NamedTuple):
    """What was added to a run."""

    run_id: str
    step_number: int | None
    """None for a run without steps."""
    outcomes: dict[str, int]
    """How many there were of each outcome."""


def report_tests(
    store: Store,
    run: Run,
    files: list[Path],
    *,
    redactor: Redactor,
    step: int | None = None,
) -> ReportedTests:
    """Add the outcomes in JUnit reports to a step of a run, to its last one by default.

    The tests count as run on the files after the step, at the time of the report file. Adding a
    file again changes nothing, or moves its outcomes to another step.

    Raises RunNotFound if there is no such step, RepoTraceError for a file that cannot be read or
    is no such report; nothing is added then.
    """
    owner = _step_of(store, run, step)
    state_id = None
    if owner is not None:
        state_id = StatesOfRun.of(store, run).after(owner.step_number).state_id
    workspace = Path(run.workspace) if run.workspace else None
    events: list[Event] = []
    counts: dict[str, int] = {}
    for file in files:
        for event in _events(file, run.id, workspace):
            data = event["data"]
            if owner is not None:
                data["step_id"] = owner.id
            if state_id is not None:
                data["state_id"] = state_id
            event["data"] = redacted(data, redactor.redact)
            counts[data["outcome"]] = counts.get(data["outcome"], 0) + 1
            events.append(event)
    if events:
        store.runs.add_events(events)
    return ReportedTests(run.id, None if owner is None else owner.step_number, counts)


def _step_of(store: Store, run: Run, step: int | None) -> ExecutionStep | None:
    if step is not None:
        return store.runs.step(run.id, step)
    steps = store.runs.steps(run.id)
    return steps[-1] if steps else None


def _events(file: Path, run_id: str, workspace: Path | None) -> list[Event]:
    try:
        with file.open("rb") as stream:
            data = stream.read(SIZE_LIMIT + 1)
        written = file.stat().st_mtime_ns
    except OSError as error:
        raise RepoTraceError(f"Cannot read {file}: {error.strerror}.") from error
    if len(data) > SIZE_LIMIT:
        raise RepoTraceError(f"{file} is larger than {SIZE_LIMIT >> 20} MiB.")
    exists = None if workspace is None else (lambda path: (workspace / path).is_file())
    content = digest(data)
    events: list[Event] = []
    seen: dict[tuple[str, str, int], int] = {}
    for outcome in outcomes_from_junit(data, exists=exists):
        facts = dict(outcome)
        key = (outcome["node_id"], outcome.get("phase", ""), outcome.get("attempt", 1))
        seen[key] = seen.get(key, 0) + 1
        name = derived_id(written, "junit", content, *map(str, key), str(seen[key]))
        events.append(
            {"id": name, "run": run_id, "kind": Kind.TEST, "time": written, "data": facts}
        )
    return events
