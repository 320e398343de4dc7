"""Which call of a session a hook has heard of, where the agent does not tell hooks its id.

A hook knows the tool, its arguments and the order; the session knows the id as well. Calls that
are alike in both are matched in order, and what is then left of a tool by its order alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from repotrace.hook import call_digest
from repotrace.records.events import Event, Kind, derived_id
from repotrace.records.run import ExecutionStep


class _Call(NamedTuple):
    """A call of a tool: its id, or that of the step of a hook."""

    id: str
    tool: str
    digest: str
    time: int


def nameless(steps: Iterable[ExecutionStep]) -> list[ExecutionStep]:
    """Steps of hooks that do not know the id of their call, in order of time."""
    found = [s for s in steps if s.external_id is None and "call_digest" in s.metadata]
    return sorted(found, key=lambda step: (step.started_at, step.step_number))


def naming(run_id: str, steps: Iterable[ExecutionStep], session: Iterable[Event]) -> list[Event]:
    """Events that give the steps of hooks among `steps` the ids of the calls of a session."""
    steps = list(steps)
    heard = [
        _Call(s.id, str(s.metadata.get("tool")), str(s.metadata["call_digest"]), 0)
        for s in nameless(steps)
    ]
    if not heard:
        return []
    known = {step.external_id for step in steps}
    calls = [call for call in _calls(session) if call.id not in known]
    named = dict(_pairs(heard, calls, lambda call: call.digest, even=False))
    left = [call for call in heard if call not in named]
    others = [call for call in calls if call not in named.values()]
    named |= dict(_pairs(left, others, lambda call: call.tool, even=True))
    return [_named(run_id, step.id, call) for step, call in named.items()]


def _calls(session: Iterable[Event]) -> Iterator[_Call]:
    for event in session:
        data = event["data"]
        if event["kind"] != Kind.STEP_STARTED or not data.get("external_id"):
            continue
        told = data.get("metadata") or {}
        tool = str(told.get("tool"))
        digest = call_digest(tool, told.get("arguments"))
        yield _Call(str(data["external_id"]), tool, digest, event["time"])


def _pairs(
    heard: Iterable[_Call], calls: Iterable[_Call], key: Callable[[_Call], str], *, even: bool
) -> Iterator[tuple[_Call, _Call]]:
    """Those with the same key, in order; with `even` where there are as many on both sides."""
    sides: dict[str, tuple[list[_Call], list[_Call]]] = defaultdict(lambda: ([], []))
    for side, found in enumerate((heard, calls)):
        for call in found:
            sides[key(call)][side].append(call)
    for ours, theirs in sides.values():
        if not even or len(ours) == len(theirs):
            yield from zip(ours, theirs, strict=False)


def _named(run_id: str, step_id: str, call: _Call) -> Event:
    return {
        "id": derived_id(call.time, run_id, "named", step_id),
        "run": run_id,
        "kind": Kind.STEP_UPDATED,
        "time": call.time,
        "data": {"id": step_id, "external_id": call.id},
    }
