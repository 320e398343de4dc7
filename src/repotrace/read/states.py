"""Whose work the files of a run were at a moment: the states of its steps in order of time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from repotrace.read.views import Patch, StateView
from repotrace.records.run import Run, StateQuality
from repotrace.storage.overview import Outline


class _Moment(NamedTuple):
    """A moment at which the files were looked at."""

    at: int
    number: int
    at_end: bool
    """Whether at the end of the step, or at its start."""
    state_id: str | None
    """None: the look failed, and `quality` is `missing`."""
    quality: str
    step_id: str


class StateTimeline:
    """The states of a run in order of time.

    Steps may overlap: a parent ends after its children, and two may run at once. A step's own
    state stands for it; one that has none leaves the files as they were when it ended.
    """

    def __init__(
        self,
        run: Run,
        steps: Sequence[Outline],
        change_times: Callable[[], Sequence[tuple[int, str]]] = tuple,
    ) -> None:
        """`change_times` tells in order when files changed, and the ids of the steps."""
        self._change_times = cache(change_times)
        self._steps = {step.id: step for step in steps}
        self._ends = _ends(steps)
        qualities = {
            step.state_id: step.state_quality or StateQuality.EXACT
            for step in steps
            if step.state_id is not None
        }
        if run.base_state is not None:
            qualities[run.base_state] = run.base_quality or StateQuality.EXACT
        self._moments = sorted(moment for step in steps for moment in self._of(step, qualities))
        self._own = {(moment.number, moment.at_end): moment for moment in self._moments}
        self._seen = [moment for moment in self._moments if moment.state_id is not None]
        self.base = _base(run, self._moments)
        """The files before the first step."""

    def _of(self, step: Outline, qualities: Mapping[str, str]) -> Iterator[_Moment]:
        before = step.state_before_id
        if before is not None:
            quality = qualities.get(before) or StateQuality.EXACT
            yield _Moment(step.started_at, step.number, False, before, quality, step.id)
        if step.state_id is not None or step.state_quality == StateQuality.MISSING:
            quality = step.state_quality or StateQuality.EXACT
            quality = StateQuality.MISSING if step.state_id is None else quality
            end = self._ends[step.id]
            yield _Moment(end, step.number, True, step.state_id, quality, step.id)

    def before(self, step: Outline) -> StateView:
        """The files when the step began."""
        own = self._own.get((step.number, False))
        return _view(own) if own else self._newest(step, step.started_at, ended=False)

    def after(self, step: Outline) -> StateView:
        """The files when the step had ended, or as far as they are known."""
        own = self._own.get((step.number, True))
        return _view(own) if own else self._newest(step, self._ends[step.id], ended=True)

    def newest(self) -> StateView:
        """The files at the end of the run, known or not."""
        return _view(self._moments[-1]) if self._moments else self.base

    def newest_known(self) -> StateView:
        """The newest files that are known; those of before if no step has a state."""
        return _view(self._seen[-1]) if self._seen else self.base

    def patch(self, step: Outline, state_id: str | None) -> Patch | None:
        """Whose work the files were that something in `step` ran on.

        `state_id` is the state of it where that was told. None if nothing is known of files.
        """
        state_id = state_id or self.before(step).state_id
        if state_id is None:
            numbers = self._numbers(self._changed_before(step.started_at))
            return _patch(None, steps=numbers, quality=StateQuality.MISSING) if numbers else None
        found = self._origin(state_id, step.completed_at or step.started_at)
        if found is None:
            return _patch(state_id, unchanged=state_id == self.base.state_id)
        names = self._changed_at(found)
        return _patch(
            state_id,
            steps=self._numbers(names),
            quality=found.quality,
            ambiguous=any(bool(self._steps[name].ambiguous) for name in names),
        )

    def _origin(self, state_id: str, until: int) -> _Moment | None:
        """The moment at which the files last became this state.

        None for a state that they had from the beginning, and for one that was never seen.
        """
        seen = self._seen
        number = bisect_right(seen, until, key=attrgetter("at")) - 1
        while number >= 0 and seen[number].state_id != state_id:
            number -= 1
        if number < 0:
            return None
        while number and seen[number - 1].state_id == state_id:
            number -= 1
        return None if number == 0 and state_id == self.base.state_id else seen[number]

    def _changed_at(self, moment: _Moment) -> list[str]:
        """The ids of the steps that made the change which `moment` shows."""
        if moment.at_end:
            return [moment.step_id]
        times = self._change_times()
        start = bisect_left(times, moment.at, key=itemgetter(0))
        end = bisect_right(times, moment.at, key=itemgetter(0))
        return [name for _, name in times[start:end] if name in self._steps]

    def _changed_before(self, at: int) -> list[str]:
        """The id of the step that last changed a file."""
        times = self._change_times()
        end = bisect_right(times, at, key=itemgetter(0))
        return [name for _, name in times[max(end - 1, 0) : end] if name in self._steps]

    def _numbers(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(sorted(self._steps[name].number for name in names))

    def _newest(self, step: Outline, at: int, *, ended: bool) -> StateView:
        """The newest state at the start or the end of the step.

        Of moments at that very time only those count that belong before: of earlier steps, and
        at its end of the step itself and of its parts.
        """
        known = self._moments[: bisect_right(self._moments, at, key=attrgetter("at"))]
        for moment in reversed(known):
            if moment.at < at or moment.number < step.number:
                return _view(moment)
            if ended and self._is_part(moment.step_id, step.id):
                return _view(moment)
        return self.base

    def _is_part(self, step_id: str | None, whole: str) -> bool:
        seen = set()
        while step_id is not None and step_id not in seen:
            if step_id == whole:
                return True
            seen.add(step_id)
            above = self._steps.get(step_id)
            step_id = above.parent_id if above is not None else None
        return False


def _patch(state_id: str | None, **facts: Any) -> Patch:
    return Patch.model_construct(state_id=state_id, **facts)


def _base(run: Run, moments: Sequence[_Moment]) -> StateView:
    if run.base_state is not None:
        quality = run.base_quality or StateQuality.EXACT
        return StateView(state_id=run.base_state, quality=quality)
    if moments and moments[0].number == 1 and not moments[0].at_end:
        return _view(moments[0]).model_copy(update={"step_number": 0, "at_start": False})
    reason = "no state was taken before the first step"
    return StateView(quality=StateQuality.MISSING, reason=reason)


def _ends(steps: Sequence[Outline]) -> dict[str, int]:
    """When each step ended; of one that did not, when its last part did, or when it began."""
    parts: dict[str, list[Outline]] = {}
    for step in steps:
        if step.parent_id is not None:
            parts.setdefault(step.parent_id, []).append(step)
    ends: dict[str, int] = {}
    # Parts have higher numbers than what they are parts of, save where a program gave them.
    for step in sorted(steps, key=lambda step: -step.number):
        below = [ends.get(part.id, part.started_at) for part in parts.get(step.id, ())]
        ends[step.id] = step.completed_at or max([step.started_at, *below])
    return ends


def _view(moment: _Moment) -> StateView:
    return StateView(
        state_id=moment.state_id,
        quality=moment.quality,
        step_number=moment.number,
        at_start=not moment.at_end,
    )
