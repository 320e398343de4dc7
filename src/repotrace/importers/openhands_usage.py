"""What the answers of OpenHands cost, and what they are put together from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from repotrace.importers.building import Data, moment_of, number, parts_text, text_of

type Record = dict[str, Any]

_COUNTS = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "cache_read_tokens": "cache_read_tokens",
    "cache_write_tokens": "cache_write_tokens",
    "reasoning_tokens": "reasoning_tokens",
}
_AGENTS = ("agent", "default", "")
"""What calls of the agent itself are said to be for."""


@dataclass(slots=True)
class Answer:
    """An answer of the model, as its events come in."""

    key: str
    response: str
    """The id that the provider gave; empty if it is not known."""
    asked_at: int
    begun: Data
    ended: int = 0
    step_id: str = ""
    parts: list[Data] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    facts: Data = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What it says."""
        return "\n\n".join(self.words)

    @property
    def reason(self) -> str:
        """What it says, or what was thought if it says nothing."""
        return self.text or "\n\n".join(self.thoughts)

    def think(self, event: Record) -> None:
        """Take in what an event says of the answer."""
        thoughts = [text_of(event.get("reasoning_content"))]
        blocks = event.get("thinking_blocks")
        if not thoughts[0] and isinstance(blocks, list):
            thoughts = [text_of(b.get("thinking")) for b in blocks if isinstance(b, dict)]
        for thought in filter(None, thoughts):
            self.thoughts.append(thought)
            self.parts.append({"type": "thinking", "text": thought})
        said = parts_text(event.get("thought"))
        if said:
            self.words.append(said)
            self.parts.append({"type": "text", "text": said})


class _Told(NamedTuple):
    usage_id: str
    tokens: Record
    cost: Any
    moment: int | None
    latency: Any


class Usage:
    """The tokens and costs of answers, as the state of a conversation tells them, or its events."""

    def __init__(self, state: Record) -> None:
        self._told: dict[str, _Told] = {}
        self._models: dict[str, str] = {}
        self._before: dict[str, Record] = {}
        self._grown: list[tuple[str, Data]] = []
        """What totals grew by, and no answer has taken yet."""
        for usage_id, metrics in _metrics(state.get("stats")):
            self._read(usage_id, metrics)

    def _read(self, usage_id: str, metrics: Record) -> None:
        usages, costs = _objects(metrics.get("token_usages")), _objects(metrics.get("costs"))
        late = {
            text_of(one.get("response_id")): one.get("latency")
            for one in _objects(metrics.get("response_latencies"))
        }
        paired = len(usages) == len(costs)
        for place, tokens in enumerate(usages):
            name = text_of(tokens.get("response_id")) or f"{usage_id} {place}"
            cost = costs[place] if paired else {}
            moment = moment_of(cost.get("timestamp"))
            self._told[name] = _Told(usage_id, tokens, cost.get("cost"), moment, late.get(name))

    def moment(self, response: str) -> int | None:
        """When an answer was complete, by a clock whose time zone is known."""
        told = self._told.get(response)
        return told.moment if told else None

    def taken(self, response: str, usage: Record) -> Data:
        """The facts of an answer, as `LLMData` has them; `usage` if nothing else tells. They are
        not `left` then."""
        told = self._told.pop(response, None)
        if told is not None:
            return _facts(told)
        if usage:
            return _counted(usage, usage.get("cost"))
        return self._grown.pop(0)[1] if self._grown else {}

    def grown(self, stats: Record, name: str) -> Iterator[tuple[str, Data]]:
        """Take in new totals. What no answer had taken of the last ones is given back."""
        for usage_id, metrics in _metrics(stats):
            total = metrics.get("accumulated_token_usage")
            tokens = total if isinstance(total, dict) else {}
            before = self._before.get(usage_id, {})
            self._before[usage_id] = {**tokens, "cost": metrics.get("accumulated_cost")}
            more = {
                key: (number(tokens.get(key)) or 0) - (number(before.get(key)) or 0)
                for key in _COUNTS.values()
            }
            if more["prompt_tokens"] <= 0 or self._told:
                continue
            yield from self._grown
            cost = _difference(metrics.get("accumulated_cost"), before.get("cost"))
            facts = _counted({**more, "model": metrics.get("model_name")}, cost)
            self._grown = [(f"{usage_id} {name}", _purposed(usage_id, facts))]

    def left(self) -> Iterator[tuple[str, int | None, Data]]:
        """Calls that no event tells of: a name, when they were done, their facts."""
        for name, told in self._told.items():
            yield name, told.moment, _facts(told)
        for name, facts in self._grown:
            yield f"stats {name}", None, facts


def _facts(told: _Told) -> Data:
    facts = _purposed(told.usage_id, _counted(told.tokens, told.cost))
    response = told.tokens.get("response_id")
    if isinstance(response, str) and response:
        facts["external_id"] = response
    if isinstance(told.latency, int | float) and told.latency >= 0:
        facts["duration"] = float(told.latency)
    return facts


def _purposed(usage_id: str, facts: Data) -> Data:
    return facts if usage_id in _AGENTS else {**facts, "purpose": usage_id}


def _counted(tokens: Record, cost: Any) -> Data:
    facts: Data = {ours: number(tokens.get(theirs)) for ours, theirs in _COUNTS.items()}
    model = tokens.get("model")
    facts["model"] = model if isinstance(model, str) and model else None
    if isinstance(cost, int | float) and not isinstance(cost, bool) and cost > 0:
        # Of a model without a known price, OpenHands says 0.
        facts["cost_usd"] = str(cost)
    return {name: fact for name, fact in facts.items() if fact is not None}


def _difference(now: Any, before: Any) -> float | None:
    if isinstance(now, bool) or not isinstance(now, int | float):
        return None
    return now - before if isinstance(before, int | float) else now


def _metrics(stats: Any) -> Iterator[tuple[str, Record]]:
    by_usage = stats.get("usage_to_metrics") if isinstance(stats, dict) else None
    for usage_id, metrics in (by_usage if isinstance(by_usage, dict) else {}).items():
        if isinstance(metrics, dict):
            yield str(usage_id), metrics


def _objects(value: Any) -> list[Record]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
