"""The steps of a run as lines of a table, each with what it did, used and led to."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import batched
from operator import attrgetter
from typing import Any

from repotrace.read.states import StateTimeline
from repotrace.read.views import CommandLine, StepLine, TestCounts
from repotrace.records.run import Run, StepStatus, TestResult
from repotrace.storage.overview import Change, Heads, Outline, Overview, Spent, StepTests
from repotrace.storage.rows import from_moment

_AT_ONCE = 500
"""Lines that are read together."""

_FEW = 400
"""Steps up to which their rows are asked for by name, rather than all rows of the run."""

_FAILING_NAMES = 20

_SKIPPED = frozenset({TestResult.SKIPPED, TestResult.XFAILED})


class StepLines:
    """Makes the lines of a run's steps. Lives as long as the view of the database that it reads,
    or longer: `look_into` gives it a new one."""

    def __init__(self, overview: Overview, run: Run) -> None:
        self.run = run
        self.outline = overview.outline(run.id)
        self.tested = overview.tested_steps(run.id)
        self._overview = overview
        self.states = StateTimeline(run, self.outline, lambda: self._overview.change_times(run.id))
        self.by_id = {step.id: step for step in self.outline}
        self._parts: dict[str, list[Outline]] = defaultdict(list)
        for step in self.outline:
            if step.parent_id is not None and step.parent_id in self.by_id:
                self._parts[step.parent_id].append(step)

    def look_into(self, overview: Overview) -> None:
        """Read what the lines tell of through this view from now on."""
        self._overview = overview

    def of(self, steps: Iterable[Outline]) -> Iterator[StepLine]:
        """The lines of these steps, which are read by and by."""
        for some in batched(steps, _AT_ONCE):
            yield from self._batch(some)

    def parts(self, step_id: str) -> list[int]:
        """The numbers of the steps that are directly a part of this one."""
        return [part.number for part in self._parts.get(step_id, ())]

    def failure_before(self, step: Outline) -> tuple[int, str] | None:
        """The newest step before this one with failing tests, and the state that they ran on."""
        first = bisect_left(self.outline, step.number, key=attrgetter("number"))
        for earlier in reversed(self.outline[:first]):
            if earlier.id not in self.tested:
                continue
            tests = self.tests([earlier]).get(earlier.id)
            if tests is not None and tests.failing:
                patch = self.states.patch(earlier, tests.state_id)
                state_id = None if patch is None else patch.state_id
                return None if state_id is None else (earlier.number, state_id)
        return None

    def attempt(self, step: Outline) -> list[Outline]:
        """All that a retry took: the steps beside it since the failure that it answers, and it."""
        first = bisect_left(self.outline, step.number, key=attrgetter("number"))
        since: list[Outline] = []
        for earlier in reversed(self.outline[:first]):
            if earlier.parent_id != step.parent_id:
                continue
            if self._has_failed(earlier):
                return [*reversed(since), step]
            since.append(earlier)
        return [step]

    def _has_failed(self, step: Outline) -> bool:
        if step.status == StepStatus.FAILED:
            return True
        tests = self.tests([step]).get(step.id) if step.id in self.tested else None
        return tests is not None and bool(tests.failing)

    def spent(self, steps: Collection[Outline]) -> dict[str, Spent]:
        """What each of these steps used, its parts included."""
        families = {step.id: self._family(step) for step in steps}
        spent = self._overview.spent(self.run.id, _few(families.values()))
        return {name: _sum(spent, family) for name, family in families.items()}

    def _batch(self, steps: Sequence[Outline]) -> Iterator[StepLine]:
        run_id, overview = self.run.id, self._overview
        families = {step.id: self._family(step) for step in steps}
        members = _few(families.values())
        own = [step.id for step in steps]
        heads = overview.heads(run_id, [step.number for step in steps])
        spent = overview.spent(run_id, members)
        changes = overview.changes(run_id, members)
        reads = overview.reads(run_id, own)
        commands = overview.commands(run_id, own)
        tests = self.tests(steps)
        for step in steps:
            line = self._line(step, heads.get(step.number, Heads("", None, None, None)))
            family = families[step.id]
            line |= _spending(_sum(spent, family))
            line |= _changed([change for name in family for change in changes.get(name, ())])
            line["files_read"] = reads.get(step.id, 0)
            line["commands"] = tuple(
                CommandLine.model_construct(**ended._asdict())
                for ended in commands.get(step.id, ())
            )
            if step.id in tests:
                line |= self._tested(step, tests[step.id])
            yield StepLine.model_construct(**line)

    def tests(self, steps: Iterable[Outline]) -> dict[str, StepTests]:
        """What came of the tests of these steps, by their ids."""
        ids = [step.id for step in steps if step.id in self.tested]
        return self._overview.tests(self.run.id, ids)

    def _line(self, step: Outline, heads: Heads) -> dict[str, Any]:
        above = list(self._above(step))
        retried = self.by_id.get(step.retry_of or "")
        return {
            "number": step.number,
            "id": step.id,
            "parent": above[0].number if above else None,
            "depth": len(above),
            "step_type": step.step_type,
            **heads._asdict(),
            "status": step.status,
            "label": step.label,
            "started_at": from_moment(step.started_at),
            "duration": seconds_of(step) if self.run.is_timed else None,
            "attempt": step.attempt,
            "retry_of": retried.number if retried else None,
            "state_id": step.state_id,
            "state_quality": step.state_quality,
            "ambiguous": bool(step.ambiguous),
        }

    def _tested(self, step: Outline, tests: StepTests) -> dict[str, Any]:
        return {
            "tests": counts_of(tests.outcomes),
            "patch": self.states.patch(step, tests.state_id),
            "failing_tests": tests.failing[:_FAILING_NAMES],
        }

    def _above(self, step: Outline) -> Iterator[Outline]:
        """The steps that this one is a part of, the nearest first."""
        seen = {step.id}
        parent = self.by_id.get(step.parent_id or "")
        while parent is not None and parent.id not in seen:
            yield parent
            seen.add(parent.id)
            parent = self.by_id.get(parent.parent_id or "")

    def _family(self, step: Outline) -> list[str]:
        """The ids of the step and of all its parts."""
        family, seen = [step.id], {step.id}
        for name in family:
            new = [part.id for part in self._parts.get(name, ()) if part.id not in seen]
            family += new
            seen.update(new)
        return family


def seconds_of(step: Outline) -> float | None:
    """The seconds that a step took, never below 0; None as long as it has not ended."""
    if step.completed_at is None:
        return None
    return max(0, step.completed_at - step.started_at) / 1_000_000


def seconds_between(start: datetime, end: datetime | None) -> float | None:
    """The seconds from start to end, never below 0; None without an end."""
    return None if end is None else max(0.0, (end - start).total_seconds())


def counts_of(outcomes: Mapping[str, int]) -> TestCounts:
    """How many tests passed and failed."""
    left = dict(outcomes)
    return TestCounts.model_construct(
        failed=left.pop(TestResult.FAILED, 0),
        errors=left.pop(TestResult.ERROR, 0),
        skipped=sum(left.pop(outcome, 0) for outcome in _SKIPPED),
        passed=sum(left.values()),
    )


def _few(families: Iterable[Sequence[str]]) -> list[str] | None:
    """All ids, or None where they are many."""
    names: dict[str, None] = {}
    for family in families:
        names.update(dict.fromkeys(family))
        if len(names) > _FEW:
            return None
    return list(names)


def _sum(spent: dict[str, Spent], family: Iterable[str]) -> Spent:
    total = Spent()
    for name in family:
        if name in spent:
            total = total.plus(spent[name])
    return total


def _spending(spent: Spent) -> dict[str, Any]:
    return {
        "llm_calls": spent.calls,
        "tokens": spent.tokens,
        "cost_usd": spent.cost,
        "unpriced_calls": spent.unpriced,
    }


def _changed(changes: Sequence[Change]) -> dict[str, Any]:
    return {
        "files": tuple(sorted({change.path for change in changes})),
        "lines_added": sum(change.lines_added for change in changes),
        "lines_removed": sum(change.lines_removed for change in changes),
    }
