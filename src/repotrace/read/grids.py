"""Which test did what in which step of a run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from repotrace.read.lines import StepLines
from repotrace.read.views import GridRow, TestCounts, TestGrid, TestRun
from repotrace.records.run import FAILING
from repotrace.storage.overview import Outline, Overview
from repotrace.storage.rows import from_moment

GRID_TESTS = 100
"""Rows of a grid, unless all are wanted."""

AROUND = 60
"""Columns of the grid around a step."""


def grid_of(
    overview: Overview,
    lines: StepLines,
    steps: Sequence[Outline],
    runs: Iterable[TestRun],
    *,
    whole: bool,
) -> TestGrid:
    """Which test did what in these steps, whose columns are `runs`; `whole`: without a limit."""
    failed = overview.failed_tests(lines.run.id)
    columns: dict[str, dict[str, str]] = {step.id: {} for step in steps}
    for result in overview.results(lines.run.id, list(columns), failed):
        columns[result.step_id][result.node_id] = result.outcome
    return _grid(lines, failed, list(columns.values()), runs, most=None if whole else GRID_TESTS)


def _grid(
    lines: StepLines,
    failed: Sequence[str],
    columns: Sequence[Mapping[str, str]],
    runs: Iterable[TestRun],
    *,
    most: int | None,
) -> TestGrid:
    rows = []
    for name in failed:
        outcomes = tuple(column.get(name) for column in columns)
        if any(outcomes):
            rows.append(GridRow.model_construct(node_id=name, outcomes=outcomes))
    rows.sort(key=lambda row: row.last not in FAILING)
    shown = rows[:most]
    return TestGrid.model_construct(
        runs=tuple(runs),
        runs_left_out=len(lines.tested) - len(columns),
        tests=tuple(shown),
        left_out=len(failed) - len(shown),
        never_failed=max(0, lines.run.totals.tests - len(failed)),
    )


class GridAround:
    """The grid around one step after another; what was read of a step stays at hand."""

    def __init__(self, lines: StepLines) -> None:
        self._lines = lines
        self._tested = [step for step in lines.outline if step.id in lines.tested]
        self._failed: list[str] | None = None
        self._columns: dict[str, dict[str, str]] = {}
        self._runs: dict[str, TestRun] = {}

    def at(self, overview: Overview, step: Outline) -> TestGrid:
        """The test runs around a step; their counts are left out."""
        here = bisect_left(self._tested, step.number, key=attrgetter("number"))
        first = max(0, min(here - AROUND // 2, len(self._tested) - AROUND))
        steps = self._tested[first : first + AROUND]
        if self._failed is None:
            self._failed = overview.failed_tests(self._lines.run.id)
        self._read(overview, [one for one in steps if one.id not in self._runs], self._failed)
        columns = [self._columns[one.id] for one in steps]
        runs = (self._runs[one.id] for one in steps)
        return _grid(self._lines, self._failed, columns, runs, most=GRID_TESTS)

    def _read(self, overview: Overview, steps: Sequence[Outline], failed: Sequence[str]) -> None:
        if not steps:
            return
        run, names = self._lines.run, [step.id for step in steps]
        # Where few of very many tests ever failed, their rows are sooner found by their names.
        by_name = len(failed) * len(self._tested) < run.totals.tests * len(steps)
        columns: dict[str, dict[str, str]] = {name: {} for name in names}
        states: dict[str, str] = {}
        for result in overview.results(run.id, names, failed, by_name=by_name):
            columns[result.step_id][result.node_id] = result.outcome
            if result.state_id is not None and result.outcome in FAILING:
                states.setdefault(result.step_id, result.state_id)
        for name in names:
            if name not in states and (state := overview.state_of_tests(run.id, name)) is not None:
                states[name] = state
        self._columns |= columns
        for step in steps:
            self._runs[step.id] = TestRun.model_construct(
                step_number=step.number,
                started_at=from_moment(step.started_at),
                tests=TestCounts(),
                patch=self._lines.states.patch(step, states.get(step.id)),
            )
