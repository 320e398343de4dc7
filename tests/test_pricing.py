"""What model calls cost, against the providers' published prices, worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
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
