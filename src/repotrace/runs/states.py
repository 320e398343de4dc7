"""The files at each moment of a run: which state of the snapshot store they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.read.states import StateTimeline
from repotrace.read.views import StateView
from repotrace.records.run import ExecutionStep, Run, StateQuality
from repotrace.storage import Store
from repotrace.storage.overview import Outline
from repotrace.storage.rows import to_moment


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


class StatesOfRun:
    """The states of a run in order of time, by the numbers of steps; see `read.states`."""

    def __init__(self, run: Run, steps: Iterable[ExecutionStep]) -> None:
        self.run = run
        self._steps = {step.step_number: step for step in steps}
        self._outlines = {number: _outline(step) for number, step in self._steps.items()}
        self._timeline = StateTimeline(run, list(self._outlines.values()))

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
        return self._known(self._timeline.before(self._step(step_number)))

    def after(self, step_number: int) -> KnownState:
        """The files when the step had ended; 0 means before the first step.

        Raises RunNotFound if there is no such step.
        """
        if step_number == 0:
            return self._known(self._timeline.base)
        return self._known(self._timeline.after(self._step(step_number)))

    def last(self) -> KnownState:
        """The newest files that are known; those of before if no step has a state."""
        return self._known(self._timeline.newest_known())

    def newest(self) -> KnownState:
        """The files at the end of the run, known or not."""
        return self._known(self._timeline.newest())

    def _known(self, view: StateView) -> KnownState:
        step = None if view.at_start else self._steps.get(view.step_number)
        reason = view.reason if step is None else step.state_reason
        return KnownState(view.state_id, view.quality, view.step_number, reason)

    def _step(self, number: int) -> Outline:
        step = self._outlines.get(number)
        if step is None:
            count = f"has the steps 1 to {self.last_step}" if self._steps else "has no steps"
            raise RunNotFound(
                f"Run {self.run.id} has no step {number}; it {count}.",
                hint=f"List its steps with: repotrace runs show {self.run.id}",
            )
        return step


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


def _outline(step: ExecutionStep) -> Outline:
    ended = step.completed_at
    return Outline(
        number=step.step_number,
        id=step.id,
        parent_id=step.parent_id,
        step_type=step.step_type,
        status=step.status,
        started_at=to_moment(step.started_at),
        completed_at=None if ended is None else to_moment(ended),
        attempt=step.attempt,
        retry_of=step.retry_of,
        state_before_id=step.state_before_id,
        state_id=step.state_id,
        state_quality=step.state_quality,
        ambiguous=int(step.ambiguous),
        label=None,
    )
