"""The files at each moment of a run: which state of the snapshot store they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.records.run import ExecutionStep, Run, StateQuality
from repotrace.storage import Store


class KnownState(NamedTuple):
    """The files at a moment of a run."""

    state_id: str | None
    """None: they are not known, and `quality` is `missing`."""
    quality: str
    """A `StateQuality`."""
    step_number: int
    """The step that the state comes from; 0: from before the first one."""
    reason: str | None = None
    """Why it is not known, or not exact."""

    @property
    def exact(self) -> bool:
        return self.quality == StateQuality.EXACT


class _Moment(NamedTuple):
    time: datetime
    number: int
    at_end: bool
    """Whether it is the end of the step, or its start."""
    known: KnownState


class StatesOfRun:
    """The states of a run in order of time.

    Steps may overlap: a parent ends after its children, and two may run at once. A step's own
    state stands for it; one that has none leaves the files as they were when it ended.
    """

    def __init__(self, run: Run, steps: Iterable[ExecutionStep]) -> None:
        self.run = run
        self._steps = {step.step_number: step for step in steps}
        self._ends = _ends(self._steps.values())
        self._above = {step.id: step.parent_id for step in self._steps.values()}
        qualities = {
            step.state_id: step.state_quality or StateQuality.EXACT
            for step in self._steps.values()
            if step.state_id is not None
        }
        if run.base_state is not None:
            qualities[run.base_state] = run.base_quality or StateQuality.EXACT
        self._moments = sorted(
            (moment for step in self._steps.values() for moment in self._of(step, qualities)),
            key=lambda moment: moment[:3],
        )
        self._times = [moment.time for moment in self._moments]

    @classmethod
    def of(cls, store: Store, run: Run) -> StatesOfRun:
        """The states of a stored run."""
        return cls(run, store.runs.steps(run.id))

    @property
    def last_step(self) -> int:
        """The highest number of a step; 0 for a run without steps."""
        return max(self._steps, default=0)

    def before(self, step_number: int) -> KnownState:
        """The files when the step began. Raises RunNotFound if there is no such step."""
        step = self._step(step_number)
        own = next((m for m in self._moments if m.number == step_number and not m.at_end), None)
        return own.known if own else self._newest(step, step.started_at, ended=False)

    def after(self, step_number: int) -> KnownState:
        """The files when the step had ended; 0 means before the first step.

        Raises RunNotFound if there is no such step.
        """
        if step_number == 0:
            return self._base()
        step = self._step(step_number)
        if step.state_id is not None or step.state_quality == StateQuality.MISSING:
            return _own_state(step)
        return self._newest(step, self._ends[step.id], ended=True)

    def last(self) -> KnownState:
        """The newest files that are known; those of before if no step has a state."""
        known = [moment.known for moment in self._moments if moment.known.state_id is not None]
        return known[-1] if known else self._base()

    def newest(self) -> KnownState:
        """The files at the end of the run, known or not."""
        return self._moments[-1].known if self._moments else self._base()

    def _step(self, number: int) -> ExecutionStep:
        step = self._steps.get(number)
        if step is None:
            count = f"has the steps 1 to {self.last_step}" if self._steps else "has no steps"
            raise RunNotFound(
                f"Run {self.run.id} has no step {number}; it {count}.",
                hint=f"List its steps with: repotrace runs show {self.run.id}",
            )
        return step

    def _base(self) -> KnownState:
        run = self.run
        if run.base_state is not None:
            return KnownState(run.base_state, run.base_quality or StateQuality.EXACT, 0)
        first = self._moments[0] if self._moments else None
        if first is not None and first.number == 1 and not first.at_end:
            return first.known._replace(step_number=0)
        return KnownState(None, StateQuality.MISSING, 0, "no state was taken before the first step")

    def _newest(self, step: ExecutionStep, time: datetime, *, ended: bool) -> KnownState:
        """The newest state at `time`, the start or the end of the step.

        Of moments at that very time only those count that belong before: of earlier steps, and
        at its end of the step itself and of its parts.
        """
        for moment in reversed(self._moments[: bisect_right(self._times, time)]):
            if moment.time < time or moment.number < step.step_number:
                return moment.known
            if ended and self._is_part(self._steps[moment.number].id, step.id):
                return moment.known
        return self._base()

    def _is_part(self, step_id: str | None, whole: str) -> bool:
        seen = set()
        while step_id is not None and step_id not in seen:
            if step_id == whole:
                return True
            seen.add(step_id)
            step_id = self._above.get(step_id)
        return False

    def _of(self, step: ExecutionStep, qualities: dict[str, str]) -> Iterable[_Moment]:
        if step.state_before_id is not None:
            quality = qualities.get(step.state_before_id) or StateQuality.EXACT
            before = KnownState(step.state_before_id, quality, step.step_number)
            yield _Moment(step.started_at, step.step_number, at_end=False, known=before)
        if step.state_id is not None or step.state_quality == StateQuality.MISSING:
            end = self._ends[step.id]
            yield _Moment(end, step.step_number, at_end=True, known=_own_state(step))


def state_after(store: Store, run: Run, step_number: int) -> KnownState:
    """The files of `run` after a step; 0 means before the first one.

    Of a step without a state of its own: the newest state that was known when it ended. Raises
    RunNotFound if there is no such step.
    """
    return StatesOfRun.of(store, run).after(step_number)


def required(known: KnownState, run: Run, what: str) -> str:
    """The id of the state. Raises RepoTraceError if it is not known; `what` names the moment."""
    if known.state_id is not None:
        return known.state_id
    why = f": {known.reason.rstrip('.')}" if known.reason else ""
    raise RepoTraceError(
        f"The files {what} of run {run.id} were not kept{why}.",
        hint=f"See which steps have a state with: repotrace runs show {run.id}",
    )


def _own_state(step: ExecutionStep) -> KnownState:
    missing = step.state_id is None
    quality = step.state_quality or StateQuality.EXACT
    return KnownState(
        step.state_id,
        StateQuality.MISSING if missing else quality,
        step.step_number,
        step.state_reason,
    )


def _ends(steps: Iterable[ExecutionStep]) -> dict[str, datetime]:
    """When each step ended; of one that did not, when its last part did, or when it began."""
    steps = list(steps)
    parts: dict[str, list[ExecutionStep]] = {}
    for step in steps:
        if step.parent_id is not None:
            parts.setdefault(step.parent_id, []).append(step)
    ends: dict[str, datetime] = {}
    # Parts have higher numbers than what they are parts of, save where a program gave them.
    for step in sorted(steps, key=lambda step: -step.step_number):
        below = [ends.get(part.id, part.started_at) for part in parts.get(step.id, ())]
        ends[step.id] = step.completed_at or max([step.started_at, *below])
    return ends
