"""Whose work the files of a run were at a moment: the states of its steps in order of time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from repotrace.read.views import Patch, StateView
from repotrace.records.run import Run, StateQuality
from repotrace.storage.overview import Outline


class _Moment(NamedTuple):
    """A state that was seen."""

    at: int
    number: int
    at_end: bool
    """Whether at the end of the step, or at its start."""
    state_id: str
    quality: str
    step_id: str


class StateTimeline:
    """The states that were taken of the files of a run."""

    def __init__(
        self,
        run: Run,
        steps: Sequence[Outline],
        change_times: Callable[[], Sequence[tuple[int, str]]],
    ) -> None:
        """`change_times` tells in order when files changed, and the ids of the steps."""
        self._change_times = cache(change_times)
        self._steps = {step.id: step for step in steps}
        qualities = {step.state_id: step.state_quality for step in steps if step.state_id}
        moments = []
        for step in steps:
            if step.state_before_id is not None:
                quality = qualities.get(step.state_before_id) or StateQuality.EXACT
                start = (step.started_at, step.number, False)
                moments.append(_Moment(*start, step.state_before_id, quality, step.id))
            if step.state_id is not None:
                end = (step.completed_at or step.started_at, step.number, True)
                quality = step.state_quality or StateQuality.EXACT
                moments.append(_Moment(*end, step.state_id, quality, step.id))
        self._moments = sorted(moments)
        self._base = _base(run, self._moments)

    def before(self, step: Outline) -> StateView:
        """The files when the step began."""
        if step.state_before_id is not None:
            own = next(m for m in self._moments if m.number == step.number and not m.at_end)
            return _view(own)
        return self._newest(step.started_at, step.number)

    def after(self, step: Outline) -> StateView:
        """The files when the step had ended, or as far as they are known."""
        if step.state_id is not None or step.state_quality == StateQuality.MISSING:
            return StateView(
                state_id=step.state_id,
                quality=step.state_quality or StateQuality.EXACT,
                step_number=step.number,
            )
        return self._newest(step.completed_at or step.started_at, step.number + 1)

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
            return _patch(state_id, unchanged=state_id == self._base.state_id)
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
        number = bisect_right(self._moments, until, key=attrgetter("at")) - 1
        while number >= 0 and self._moments[number].state_id != state_id:
            number -= 1
        if number < 0:
            return None
        while number and self._moments[number - 1].state_id == state_id:
            number -= 1
        return None if number == 0 and state_id == self._base.state_id else self._moments[number]

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

    def _newest(self, at: int, number: int) -> StateView:
        """The newest state that earlier steps left at this time."""
        known = self._moments[: bisect_right(self._moments, at, key=attrgetter("at"))]
        for moment in reversed(known):
            if moment.at < at or moment.number < number:
                return _view(moment)
        return self._base


def _patch(state_id: str | None, **facts: Any) -> Patch:
    return Patch.model_construct(state_id=state_id, **facts)


def _base(run: Run, moments: Sequence[_Moment]) -> StateView:
    """The files before the first step."""
    if run.base_state is not None:
        quality = run.base_quality or StateQuality.EXACT
        return StateView(state_id=run.base_state, quality=quality)
    if moments and not moments[0].at_end:
        return _view(moments[0]).model_copy(update={"step_number": 0, "at_start": False})
    return StateView(quality=StateQuality.MISSING, reason="no state was taken")


def _view(moment: _Moment) -> StateView:
    return StateView(
        state_id=moment.state_id,
        quality=moment.quality,
        step_number=moment.number,
        at_start=not moment.at_end,
    )
