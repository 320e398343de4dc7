"""Looks at the files become states of steps: which step each of them shows the end of.

A look fits the end of a step that was over when it began, if no other step had begun when it was
done. What differs between two looks while nothing was at work is somebody else's change: a step
`external`, or `edit` where nothing but the files is known of the run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from repotrace.records.events import Event, Kind, derived_id
from repotrace.records.run import StateQuality, StepType
from repotrace.storage.joins import LOOKS, NOT_SEEN, PYTEST, Look, StepMoment

_WORKING = frozenset(
    {StepType.EDIT, StepType.COMMAND, StepType.TEST, StepType.TOOL, "tool_call", StepType.GATE}
)
"""Types of steps that may change files."""

_FOREVER = 1 << 62


class Files(Protocol):
    """What there is to ask about the files of states."""

    def described(self, before: str, after: str) -> str:
        """In one line for people, what differs."""

    def equal(self, one: str, other: str) -> bool:
        """Whether two states have the same files, as far as a transcript can tell."""


class _Known(NamedTuple):
    """A state of the run whose place is settled."""

    at: int
    until: int
    state_id: str


@dataclass(slots=True)
class _Binding:
    run_id: str
    steps: list[StepMoment]
    """Those that may have changed files, and have no such parts; in order of their start."""
    running: bool
    touching: bool
    files: Files

    def end_of(self, step: StepMoment, next_start: int) -> tuple[int, int] | None:
        """The time between the end of a step and the start of the next one."""
        if step.completed_at is not None:
            return _surely_ended(step.completed_at), next_start
        # It was broken off, and may have worked on until the files were last looked at.
        return None if self.running else (step.started_at, next_start)


def bind(
    run_id: str,
    steps: Sequence[StepMoment],
    looks: Sequence[Look],
    states: Iterable[Look],
    *,
    running: bool,
    touching: bool = False,
    files: Files,
) -> Iterator[Event]:
    """The events that make `looks` states of `steps`, or steps of their own.

    `states` are those that were taken for steps, and the one before the first. `touching`: steps
    follow each other without a gap, since it was only seen when each of them was told of.
    """
    binding = _Binding(run_id, _at_work(steps), running, touching, files)
    known = [_Known(*state) for state in states]
    ended = {step.id for step in binding.steps if step.has_state}
    for step, look in _ends(binding, looks):
        ended.add(step.id)
        known.append(_Known(*look))
        yield _state(run_id, step.id, look)
    own = {StepType.EXTERNAL, StepType.NOTE}
    others = any(step.source not in (PYTEST, LOOKS) and step.type not in own for step in steps)
    for step, state_id in list(_confirmed(binding, known, ended)):
        look = Look(step.completed_at or 0, step.completed_at or 0, state_id)
        known.append(_Known(*look))
        yield _state(run_id, step.id, look)
    yield from _unexplained(binding, looks, known, has_other_views=others)
    yield from _unseen(binding, sorted(known))


def _surely_ended(at: int) -> int:
    """A moment at which a step was over whose end is told in whole milliseconds: rounded down."""
    return at if at % 1000 else at + 1000


def _at_work(steps: Sequence[StepMoment]) -> list[StepMoment]:
    wholes = {step.parent_id for step in steps}
    found = [s for s in steps if s.type in _WORKING and (s.id not in wholes or s.has_state)]
    return sorted(found, key=lambda step: step.started_at)


def _ends(binding: _Binding, looks: Sequence[Look]) -> Iterator[tuple[StepMoment, Look]]:
    """Each step that was seen when it had ended, with the look."""
    # Where moments are those at which something was seen, one begins as the one before ends.
    bisect = bisect_right if binding.touching else bisect_left
    starts = [step.started_at for step in binding.steps]
    begun = [look.at for look in looks]
    for number, step in enumerate(binding.steps, 1):
        if step.has_state:
            continue
        after = step.completed_at if step.completed_at is not None else step.started_at + 1
        place = bisect(starts, after, number)
        window = binding.end_of(step, starts[place] if place < len(starts) else _FOREVER)
        if window is None:
            continue
        fitting = bisect_left(begun, window[0])
        if step.completed_at is None:
            last = [look for look in looks[fitting:] if look.until <= window[1]][-1:]
            yield from ((step, look) for look in last)
        elif fitting < len(looks) and looks[fitting].until <= window[1]:
            yield step, looks[fitting]


def _confirmed(
    binding: _Binding, known: Sequence[_Known], ended: Container[str]
) -> Iterator[tuple[StepMoment, str]]:
    """Steps that nobody looked at the end of, but whose rebuilt files were seen next."""
    seen = sorted(known)
    times = [state.at for state in seen]
    for step in binding.steps:
        if step.rebuilt is None or step.completed_at is None or step.id in ended:
            continue
        place = bisect_left(times, step.completed_at)
        if place < len(seen) and binding.files.equal(step.rebuilt, seen[place].state_id):
            yield step, seen[place].state_id


def _unexplained(
    binding: _Binding, looks: Sequence[Look], known: list[_Known], *, has_other_views: bool
) -> Iterator[Event]:
    """Steps for the looks that show a change while no step was at work."""
    settled = sorted(known)
    place, last = 0, None
    before = 0
    for look in looks:
        while place < len(settled) and settled[place].at <= look.at:
            last = settled[place].state_id
            before = settled[place].until
            place += 1
        if look.state_id == last or last is None or _is_at_work(binding, before, look):
            continue
        kind = StepType.EXTERNAL if has_other_views else StepType.EDIT
        name = derived_id(look.at * 1000, binding.run_id, LOOKS, look.state_id)
        start = min(before, look.at) if kind == StepType.EDIT and before else look.at
        words = binding.files.described(last, look.state_id)
        yield from _step(binding.run_id, name, kind, start, look, words)
        known.append(_Known(*look))
        last, before = look.state_id, look.until


def _is_at_work(binding: _Binding, before: int, look: Look) -> bool:
    """Whether a step was going on, or came and went, between what was known and the look."""
    for step in binding.steps:
        if step.started_at >= look.until:
            return False
        end = None if step.completed_at is None else _surely_ended(step.completed_at)
        if end is None:
            end = _FOREVER if binding.running else step.started_at
        if end > look.at or (end >= before and not step.has_state and step.started_at >= before):
            return True
    return False


def _step(run_id: str, name: str, kind: str, start: int, look: Look, words: str) -> Iterator[Event]:
    data: dict[str, Any] = {
        "id": name,
        "source": LOOKS,
        "external_id": name,
        "step_type": kind,
        "description": words,
    }
    yield _event(run_id, Kind.STEP_STARTED, start, data, name)
    yield _state(run_id, name, look)
    yield _event(run_id, Kind.STEP_ENDED, look.at, {"id": name}, name)


def _unseen(binding: _Binding, known: list[_Known]) -> Iterator[Event]:
    """Say that the state after a step is not known, where files changed about it and nobody
    looked: it would pass for the one before."""
    times = [state.at for state in known]
    for step in binding.steps:
        if step.type != StepType.TOOL or step.has_state or step.reads or step.completed_at is None:
            continue
        place = bisect_left(times, step.completed_at)
        if 0 < place < len(known) and known[place].state_id != known[place - 1].state_id:
            data = {"step_id": step.id, "state_quality": StateQuality.MISSING}
            facts = data | {"state_reason": NOT_SEEN}
            at = step.completed_at
            yield {**_event(binding.run_id, Kind.STATE, at, facts, step.id, "unseen"), "weak": True}


def _state(run_id: str, step_id: str, look: Look) -> Event:
    data = {"step_id": step_id, "state_id": look.state_id, "state_quality": StateQuality.EXACT}
    return _event(run_id, Kind.STATE, look.at, data, step_id)


def _event(run_id: str, kind: str, at: int, data: dict[str, Any], *names: str) -> Event:
    name = derived_id(at * 1000, run_id, LOOKS, kind, *names)
    return {"id": name, "run": run_id, "kind": kind, "time": at * 1000, "data": data}
