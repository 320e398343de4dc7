"""What model calls cost, against the providers' published prices, worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data import providers
from genai_prices.types import ModelInfo, ModelPrice, StartDateConstraint, TimeOfDateConstraint
from recording import RUN, event

from repotrace.storage import Store
from repotrace.storage.pricing import price

SUMMER = datetime(2026, 6, 1, tzinfo=UTC)
OPUS: dict[str, Any] = {
    "model": "claude-opus-4-5",
    "provider": "anthropic",
    "input_tokens": 1000,
    "cache_read_tokens": 600,
    "cache_write_tokens": 100,
    "output_tokens": 50,
}
# Dollars per million: 5 for input, 0.50 read from the cache, 6.25 written to it, 25 for output.
OPUS_COST = (300 * Decimal(5) + 600 * Decimal("0.5") + 100 * Decimal("6.25") + 50 * Decimal(25)) / (
    1_000_000
)


def test_cached_tokens_have_prices_of_their_own() -> None:
    assert price(OPUS, SUMMER) == OPUS_COST == Decimal("0.003675")


@pytest.mark.parametrize("name", ["claude-opus-4-5", "anthropic/claude-opus-4-5"])
@pytest.mark.parametrize("provider", [None, "anthropic", "a-gateway"])
def test_a_model_is_found_whoever_serves_it(name: str, provider: str | None) -> None:
    assert price(OPUS | {"model": name, "provider": provider}, SUMMER) == OPUS_COST


@pytest.mark.parametrize(
    "unknown",
    [
        {"model": "nobody-knows-this-one"},
        {"model": ""},
        {"model": "/"},
        {"input_tokens": None},
        {"output_tokens": None},
    ],
)
def test_what_is_not_known_is_not_free(unknown: dict[str, Any]) -> None:
    assert price(OPUS | unknown, SUMMER) is None


def test_calls_are_priced_when_they_are_read(tmp_path: Path) -> None:
    runs = Store(tmp_path / "home").runs
    runs.add_events(
        [
            event("run_started"),
            event("llm", 1, id="known", **OPUS),
            event("llm", 2, id="given", cost_usd="0.5", **OPUS),
            event("llm", 3, id="unknown", **(OPUS | {"model": "nobody-knows-this-one"})),
            event("llm", 4, id="grows", **(OPUS | {"output_tokens": None})),
        ]
    )
    calls = {call.id: call for call in runs.interactions(RUN)}
    assert (calls["known"].cost_usd, calls["known"].cost_source) == (OPUS_COST, "computed")
    assert (calls["given"].cost_usd, calls["given"].cost_source) == (Decimal("0.5"), "given")
    assert (calls["unknown"].cost_usd, calls["unknown"].cost_source) == (None, None)
    assert calls["grows"].cost_usd is None
    totals = runs.get(RUN).totals
    assert (totals.cost_usd, totals.unpriced_calls) == (OPUS_COST + Decimal("0.5"), 2)

    runs.add_events([event("llm", 5, id="grows", output_tokens=50)])
    grown = next(call for call in runs.interactions(RUN) if call.id == "grows")
    assert (grown.cost_usd, grown.cost_source) == (OPUS_COST, "computed")
    runs.add_events([event("llm", 6, id="grows", output_tokens=1050)])
    grown = next(call for call in runs.interactions(RUN) if call.id == "grows")
    assert grown.cost_usd == OPUS_COST + Decimal("0.025")


USAGES = [
    {"input_tokens": 0, "output_tokens": 0},
    {"input_tokens": 1_234, "output_tokens": 567},
    {"input_tokens": 90_000, "cache_read_tokens": 80_000, "output_tokens": 3_001},
    {"input_tokens": 128_001, "cache_write_tokens": 128_001, "output_tokens": 1},
    {"input_tokens": 200_000, "cache_read_tokens": 150_000, "output_tokens": 7},
    {
        "input_tokens": 1_000_001,
        "cache_read_tokens": 999_983,
        "cache_write_tokens": 18,
        "output_tokens": 64_000,
    },
    {"input_tokens": 10, "cache_read_tokens": 11, "output_tokens": 1},
]
"""Short and long prompts, to both sides of the usual limits; the last one cannot be."""


def moments(model: ModelInfo) -> Iterator[datetime]:
    """Times on both sides of every change of the model's prices."""
    yield SUMMER
    for conditional in [] if isinstance(model.prices, ModelPrice) else model.prices:
        constraint, second = conditional.constraint, timedelta(seconds=1)
        if isinstance(constraint, StartDateConstraint):
            begin = datetime.combine(constraint.start_date, datetime.min.time(), UTC)
            yield from (begin - second, begin)
        elif isinstance(constraint, TimeOfDateConstraint):
            for clock in (constraint.start_time, constraint.end_time):
                turn = SUMMER.replace(hour=clock.hour, minute=clock.minute)
                yield from (turn - second, turn, turn + second)


def listed(usage: dict[str, int], model: str, provider: str, at: datetime) -> Decimal | None:
    try:
        found = calc_price(Usage(**usage), model, provider_id=provider, genai_request_timestamp=at)
    except ValueError:
        return None
    return Decimal(found.total_price)


def test_every_price_of_the_list_at_all_times() -> None:
    priced = refused = 0
    seen = set()
    for provider in providers:
        for model in provider.models:
            # Some lists price a thousand models alike; and a name may mean another model.
            prices = re.sub(r"'\d+(\.\d+)?'", "…", repr(model.prices))
            if prices in seen or provider.find_model(model.id) is not model:
                continue
            seen.add(prices)
            named = {"model": model.id, "provider": provider.id}
            for at in moments(model):
                for usage in USAGES:
                    expected = listed(usage, model.id, provider.id, at)
                    if expected is None:
                        refused += 1  # another provider may have a price for it
                        continue
                    assert price(named | usage, at) == expected, (named, usage, at)
                    priced += 1
    assert len(seen) > 100
    assert priced > 1_000
    assert refused > 100


@pytest.mark.parametrize(
    "impossible",
    [
        {"cache_read_tokens": 950, "cache_write_tokens": 51},
        {"cache_read_tokens": -1},
        {"output_tokens": -1},
        {"output_tokens": True},
        {"output_tokens": float("nan")},
    ],
)
def test_what_cannot_be_is_not_priced(impossible: dict[str, Any]) -> None:
    assert price(OPUS | impossible, SUMMER) is None
