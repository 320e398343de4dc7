"""`runs list` and `runs show`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from repotrace.read.alerts import alerts_in
from repotrace.read.grids import grid_of
from repotrace.read.lines import StepLines, seconds_between, seconds_of
from repotrace.read.views import (
    Branch,
    CameFrom,
    LeftOut,
    RetryTotals,
    RunLine,
    RunList,
    RunView,
    StepLine,
    TestCounts,
    TestRun,
)
from repotrace.records.omitted import Omitted
from repotrace.records.run import Run, RunStatus, StepStatus, StepType
from repotrace.storage import Store
from repotrace.storage.overview import Outline, Spent

ENDS = 100
"""Steps that a table shows from either end of a long run."""

BETWEEN = 100
"""Steps that it shows between them, at most: failures and test runs."""

GRID_RUNS = 100

_NOTABLE = frozenset({StepStatus.FAILED, StepStatus.INTERRUPTED})
_TESTING = frozenset({StepType.TEST, StepType.GATE, StepType.VERIFICATION})


def list_runs(
    store: Store,
    *,
    workspace: str | None = None,
    status: str | None = None,
    outcome: str | None = None,
    agent: str | None = None,
    tag: str | None = None,
    since: datetime | None = None,
    limit: int | None = None,
) -> RunList:
    """The runs that fit all that is given, the newest first; of one work tree if it is named."""
    runs = store.runs.list(
        workspace=workspace,
        status=status,
        outcome=outcome,
        agent=agent,
        tag=tag,
        since=since,
        limit=None if limit is None else limit + 1,
    )
    elsewhere = 0
    if workspace is not None and not runs and not store.runs.list(workspace=workspace, limit=1):
        elsewhere = store.runs.count()
    alerts = store.alerts.counts(run.id for run in runs[:limit])
    return RunList.model_construct(
        schema_version=1,
        runs=tuple(run_line(run, alerts=alerts.get(run.id)) for run in runs[:limit]),
        more=len(runs[:limit]) < len(runs),
        elsewhere=elsewhere,
    )


def show_run(store: Store, run: Run, *, whole: bool = False) -> RunView:
    """A run with its steps and tests.

    Of a long run the first and last hundred steps, failures and test runs; `whole`: all.
    """
    with store.runs.overview() as overview:
        if overview is None:
            return RunView(run=run, duration=duration_of(run))
        lines = StepLines(overview, run)
        chosen = lines.outline if whole else _chosen(lines)
        attempts = {s.id: lines.attempt(s) for s in lines.outline if s.attempt > 1}
        tested = [step for step in chosen if step.id in lines.tested]
        columns = tested if whole else tested[-GRID_RUNS:]
        steps = {line.id: line for line in lines.of(chosen)}
        runs = (column_of(steps[step.id]) for step in columns)
        return RunView.model_construct(
            schema_version=1,
            run=run,
            duration=duration_of(run),
            retries=_retries(attempts, lines),
            interrupted_steps=sum(step.status == StepStatus.INTERRUPTED for step in lines.outline),
            steps=tuple(steps.values()),
            left_out=tuple(_left_out(lines.outline, chosen)),
            grid=grid_of(overview, lines, columns, runs, whole=whole),
            branches=branches_of(store, run),
            alerts=alerts_in(store, run.id),
            came_from=_came_from(store, run),
        )


def branches_of(store: Store, run: Run) -> tuple[Branch, ...]:
    """The runs that were branched from this one, the oldest first."""
    return tuple(map(_branch, reversed(store.runs.list(parent=run.id))))


def _branch(run: Run) -> Branch:
    modification = run.attributes.get("modification")
    return Branch.model_construct(
        run=run_line(run),
        step=run.branched_from_step,
        modification=modification if isinstance(modification, str) else None,
    )


def column_of(line: StepLine) -> TestRun:
    """The column of a step that ran tests."""
    return TestRun.model_construct(
        step_number=line.number,
        started_at=line.started_at,
        tests=line.tests or TestCounts(),
        patch=line.patch,
    )


def stream_steps(store: Store, run: Run) -> Iterator[StepLine]:
    """All steps of a run, read by and by."""
    with store.runs.overview() as overview:
        if overview is not None:
            lines = StepLines(overview, run)
            yield from lines.of(lines.outline)


def _came_from(store: Store, run: Run) -> CameFrom | None:
    origin = store.received.origin("run", run.id)
    if origin is None:
        return None
    rest = ("what was cut off: import it again",) if origin.arriving else ()
    left_out = (*Omitted.noted(origin.left_out).told, *rest)
    return CameFrom(file=origin.file, at=origin.at, worked_on=origin.worked_on, left_out=left_out)


def duration_of(run: Run) -> float | None:
    """From the start to the end, or to the newest event where the end was not told.

    None while it is running, and where the transcript of a run tells no times.
    """
    if not run.is_timed:
        return None
    if run.completed_at is None and run.status == RunStatus.RUNNING:
        return None
    return seconds_between(run.started_at, run.completed_at or run.last_event_at)


def run_line(run: Run, *, alerts: int | None = None) -> RunLine:
    """A run as lists show it."""
    known: dict[str, Any] = {"duration": duration_of(run), "alerts": alerts}
    fields = {name: getattr(run, name) for name in RunLine.model_fields if name not in known}
    return RunLine.model_construct(**fields, **known)


def _chosen(lines: StepLines) -> list[Outline]:
    steps = lines.outline
    if len(steps) <= 2 * ENDS:
        return steps
    between = [
        step
        for step in steps[ENDS:-ENDS]
        if step.status in _NOTABLE or step.step_type in _TESTING or step.id in lines.tested
    ]
    return [*steps[:ENDS], *between[-BETWEEN:], *steps[-ENDS:]]


def _left_out(steps: Sequence[Outline], chosen: Sequence[Outline]) -> Iterator[LeftOut]:
    if len(steps) == len(chosen):
        return
    shown = {step.number for step in chosen}
    after, count = 0, 0
    for step in steps:
        if step.number not in shown:
            count += 1
            continue
        if count:
            yield LeftOut(after=after, count=count)
        after, count = step.number, 0


def _retries(attempts: Mapping[str, Sequence[Outline]], lines: StepLines) -> RetryTotals:
    """What is a part of several attempts counts once."""
    steps = {step.id: step for attempt in attempts.values() for step in attempt}
    tops = [step for step in steps.values() if step.parent_id not in steps]
    spent = lines.spent(tops)
    total = Spent()
    for step in tops:
        total = total.plus(spent[step.id])
    return RetryTotals(
        count=len(attempts),
        tokens=total.tokens,
        cost_usd=total.cost,
        unpriced_calls=total.unpriced,
        duration=sum(seconds_of(step) or 0.0 for step in tops) if lines.run.is_timed else 0.0,
    )
