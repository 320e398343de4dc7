"""The states of a run that a test can be run on, and the steps that made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from repotrace.records.run import ExecutionStep, Run, StateQuality, StepType


@dataclass(frozen=True, slots=True)
class Candidate:
    """A state of a run, and who made it from the one before."""

    index: int
    """From 0, in order of time."""
    state_id: str
    """The same as that of an earlier candidate if the files were put back."""
    steps: tuple[int, ...] = ()
    """Numbers of the steps that may have made the change: one, or several that cannot be told
    apart. Empty for the first state."""
    quality: str = StateQuality.EXACT
    """A `StateQuality`."""
    environment: str = ""
    """Fingerprint of the installed packages as far as the run tells it; empty: not known."""
    tests: str = ""
    """Fingerprint of the test files in the state; equal ones mean that the tests are the same."""

    @property
    def ambiguous(self) -> bool:
        """Whether several steps may have made the change."""
        return len(self.steps) > 1

    @property
    def inferred(self) -> bool:
        """Whether the state was rebuilt from what a transcript claims."""
        return self.quality != StateQuality.EXACT


def candidates_of(
    run: Run,
    steps: Iterable[ExecutionStep],
    *,
    environments: Mapping[str, str] | None = None,
    tests: Mapping[str, str] | None = None,
) -> tuple[Candidate, ...]:
    """The states of `run` in order, each where the id of the state changes.

    `environments` and `tests` give fingerprints by state id. A change that is first seen at the
    start of a step is that of an external step, or of the step that was at work. Steps without a
    known state are suspects together with the next one that has one.
    """
    steps = sorted(steps, key=lambda step: step.step_number)
    timeline = _Timeline(steps)
    found: list[Candidate] = []

    def append(state_id: str, numbers: Sequence[int], quality: str) -> None:
        if found and found[-1].state_id == state_id:
            return
        found.append(
            Candidate(
                index=len(found),
                state_id=state_id,
                steps=tuple(numbers) if found else (),
                quality=quality,
                environment=(environments or {}).get(state_id, ""),
                tests=(tests or {}).get(state_id, ""),
            )
        )

    qualities = {step.state_id: step.state_quality for step in steps if step.state_id}
    if run.base_state is not None:
        append(run.base_state, (), run.base_quality or StateQuality.EXACT)
    unknown: list[int] = []
    for moment in timeline.moments:
        if moment.state_id is None:
            unknown.append(moment.step.step_number)
            continue
        quality = qualities.get(moment.state_id) or StateQuality.EXACT
        changed = not found or found[-1].state_id != moment.state_id
        append(moment.state_id, [*unknown, *timeline.makers(moment)] if changed else (), quality)
        if changed or moment.at_end:
            unknown.clear()
    return tuple(found)


class _Moment(NamedTuple):
    """A time at which the state was taken, or should have been."""

    time: datetime
    rank: int
    """An external step ends before the step begins that it was seen at."""
    number: int
    at_end: bool
    state_id: str | None
    step: ExecutionStep


class _Timeline:
    def __init__(self, steps: Sequence[ExecutionStep]) -> None:
        self._steps = steps
        self._by_id = {step.id: step for step in steps}
        self._ends = _ends(steps)
        self.moments = sorted(self._all(), key=lambda moment: moment[:4])

    def _all(self) -> Iterator[_Moment]:
        for step in self._steps:
            outside = step.step_type == StepType.EXTERNAL
            rank = 0 if outside else 1
            if step.state_before_id is not None:
                yield _Moment(
                    step.started_at, rank, step.step_number, False, step.state_before_id, step
                )
            if step.state_id is not None or step.state_quality == StateQuality.MISSING:
                end = self._ends[step.id]
                yield _Moment(end, rank, step.step_number, True, step.state_id, step)

    def makers(self, moment: _Moment) -> list[int]:
        """The numbers of the steps that may have made the change seen at `moment`."""
        if moment.at_end:
            if not moment.step.ambiguous:
                return [moment.step.step_number]
            family = self._family(moment.step)
            start, end = moment.step.started_at, moment.time
            rivals = [
                step.step_number
                for step in self._steps
                if step.ambiguous
                and step.id not in family
                and step.started_at <= end
                and self._ends[step.id] >= start
            ]
            return sorted({moment.step.step_number, *rivals})
        at_work = [
            step
            for step in self._steps
            if step is not moment.step
            and step.step_type != StepType.EXTERNAL
            and step.started_at <= moment.time < self._ends[step.id]
        ]
        above = {step.parent_id for step in at_work}
        leaves = [step.step_number for step in at_work if step.id not in above]
        return leaves or [moment.step.step_number]

    def _family(self, step: ExecutionStep) -> set[str]:
        """Ids of the steps that `step` is a part of; it is none of its own rivals."""
        family: set[str] = set()
        parent = step.parent_id
        while parent is not None and parent not in family:
            family.add(parent)
            parent = self._by_id[parent].parent_id if parent in self._by_id else None
        return family


def _ends(steps: Sequence[ExecutionStep]) -> dict[str, datetime]:
    """When each step ended; of one that did not, when its last part did, or when it began."""
    parts: dict[str, list[ExecutionStep]] = {}
    for step in steps:
        if step.parent_id is not None:
            parts.setdefault(step.parent_id, []).append(step)
    ends: dict[str, datetime] = {}
    for step in sorted(steps, key=lambda step: -step.step_number):
        below = [ends.get(part.id, part.started_at) for part in parts.get(step.id, ())]
        ends[step.id] = step.completed_at or max([step.started_at, *below])
    return ends
