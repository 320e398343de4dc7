"""Model calls that were seen on the wire, and what a transcript tells of the same calls.

Most transcripts keep the ids that the provider gave to its answers; the store joins those by
itself. For the others an answer is known by the calls of tools in it, or by its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from repotrace.records.events import Event, Kind
from repotrace.records.run import LLMInteraction, StepType
from repotrace.storage import Store
from repotrace.storage.rows import nanoseconds

WIRE = "wire"
"""The attribute of a run whose model calls were seen on the wire."""

_CLOCKS = 10**9


@dataclass(slots=True)
class _Call:
    id: str
    external_id: str | None
    tools: frozenset[str]
    words: str
    output_tokens: int | None
    asked_at: int
    """In nanoseconds, as the duration."""
    duration: int
    taken: bool = False

    def was_at(self, time: int) -> bool:
        """Whether it was going on at a moment, by clocks that may differ a little."""
        return self.asked_at - _CLOCKS <= time <= self.asked_at + self.duration + _CLOCKS


@dataclass(slots=True)
class WireCalls:
    """The model calls of a run that were seen on the wire; none if nobody looked there."""

    calls: list[_Call] = field(default_factory=list)
    _others: set[str] = field(default_factory=set)
    """The ids of the other calls of the run."""
    forsaken: set[str] = field(default_factory=set)
    """Steps that a transcript told of for an answer which has a step of the wire by now."""
    _same: dict[str, _Call] = field(default_factory=dict)
    """By the ids of a transcript's calls, the same as they were seen."""
    _dropped: set[str] = field(default_factory=set)
    """Steps of the transcript that stand for an answer which the wire has a step for."""

    @classmethod
    def of(cls, store: Store, run_id: str) -> WireCalls:
        """Those of a stored run."""
        run = store.runs.named(run_id)
        if run is None or not run.attributes.get(WIRE):
            return cls()
        # What a transcript told when it was last read is no account of the wire.
        everything = store.runs.steps(run_id)
        steps = [step for step in everything if step.step_type == StepType.LLM]
        seen = {step.id for step in steps if "thread" in step.metadata}
        told = store.runs.interactions(run_id)
        found = [
            _Call(
                call.id,
                call.external_id,
                _tools(call.response_message),
                _words(call),
                call.output_tokens,
                nanoseconds(call.timestamp),
                int((call.duration or 0) * 1e9),
            )
            for call in told
            if call.step_id in seen
        ]
        others = {call.id for call in told if call.step_id not in seen}
        used = seen | {call.step_id for call in told} | {step.parent_id for step in everything}
        words = {call.words for call in found} - {""}
        forsaken = {
            step.id
            for step in steps
            if step.id not in used and (step.output_result or "").strip() in words
        }
        return cls(found, others, forsaken)

    @property
    def outdated(self) -> set[str]:
        """The ids of calls that a transcript told before they were known as those of the wire."""
        return self._others & self._same.keys()

    def compared(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events of a transcript as they add to what the wire told."""
        if not self.calls:
            yield from events
            return
        told = list(events)
        for event in told:
            if event["kind"] == Kind.LLM:
                self._match(event["data"], event["time"])
        for event in told:
            data, kind = event["data"], event["kind"]
            if kind.startswith("step_") and data.get("id") in self._dropped:
                continue
            yield self._of_call(event) if kind == Kind.LLM else event

    def _match(self, data: Mapping[str, Any], time: int) -> None:
        name, outer = str(data.get("id")), data.get("external_id")
        tokens = data.get("output_tokens")
        tools, words = _tools(data.get("response_message")), str(data.get("response") or "").strip()
        tests: tuple[Callable[[_Call], bool], ...] = (
            lambda call: call.id == name,
            lambda call: outer is not None and call.external_id == outer,
            lambda call: bool(tools) and call.tools == tools,
            lambda call: bool(words) and call.words == words and not tools and not call.tools,
            lambda call: bool(tokens) and call.output_tokens == tokens and call.was_at(time),
        )
        for test in tests:
            call = next((c for c in self.calls if not c.taken and test(c)), None)
            if call is None:
                continue
            call.taken = True
            if call.id != name:  # else the transcript itself told of it, when it was last read
                self._same[name] = call
                if not tools and data.get("step_id"):
                    self._dropped.add(str(data["step_id"]))
            return

    def _of_call(self, event: Event) -> Event:
        data = dict(event["data"])
        call = self._same.get(str(data.get("id")))
        if str(data.get("previous_id")) in self._same:
            for name in ("previous_id", "kept"):
                data.pop(name, None)
        if call is None:
            return {**event, "data": data}
        for name in ("step_id", "external_id"):
            data.pop(name, None)
        return {**event, "data": {**data, "id": call.id}, "weak": True}


def completing_wire(store: Store, events: Iterator[Event]) -> Iterator[Event]:
    """The events of a transcript as they add to its run, if that was seen on the wire."""
    first = next(events, None)
    if first is None:
        return
    told = first["data"]
    known = store.joins.run_of(str(told.get("source")), str(told.get("source_id")))
    wire = WireCalls.of(store, known or str(first.get("run")))
    yield from wire.compared(chain([first], events))


def _words(call: LLMInteraction) -> str:
    return (call.response or "").strip()


def _tools(message: Any) -> frozenset[str]:
    """The ids of the calls of tools in a message."""
    content = message.get("content") if isinstance(message, Mapping) else None
    parts = content if isinstance(content, list) else []
    return frozenset(
        str(part["id"])
        for part in parts
        if isinstance(part, dict) and part.get("type") == "tool_call" and part.get("id")
    )
