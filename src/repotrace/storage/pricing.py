"""What a model call costs, where nobody said it: by the price list of `genai-prices`.

The list comes with the package; nothing is looked up anywhere else. A model that it does not know
has no price, which is not the same as being free.

A long session has thousands of calls of one model. The model is looked up once, and what is left to
do for a call is the sum of tokens times prices; where there is more to it than that, the package
does it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

_PRICED = {
    "input_mtok": "input_tokens",
    "output_mtok": "output_tokens",
    "cache_read_mtok": "cache_read_tokens",
    "cache_write_mtok": "cache_write_tokens",
}
"""The prices of a million of what a call tells."""
_CACHED = ("cache_read_mtok", "cache_write_mtok")
_UNTOLD = frozenset({"cache_write_1h_mtok", "web_searches_kcount", "storage_searches_kcount"})
"""Prices of what a call does not tell, so that nothing is asked for it."""
_MILLION = Decimal(1_000_000)
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def price(facts: Mapping[str, Any], at: datetime) -> Decimal | None:
    """US dollars for a call with the `model`, `provider` and token counts of `facts`.

    Input tokens include those read from and written to a cache, which are priced apart. None if
    the model or its price is not known, or the counts are not.
    """
    model, provider = facts.get("model"), facts.get("provider")
    counts = {name: facts[name] for name in _PRICED.values() if facts.get(name) is not None}
    if not model or "input_tokens" not in counts or "output_tokens" not in counts:
        return None
    for known in _models(str(model), str(provider) if provider else None):
        try:
            return _total(known.get_prices(at), counts)
        except ValueError:
            continue
    return None


@lru_cache(maxsize=1024)
def _models(model: str, provider: str | None) -> tuple[ModelInfo, ...]:
    """What the list has under this name, the surest first."""
    # Takes 0.2 s to import: only who reads model calls that have no price pays for it.
    from genai_prices import Usage, calc_price

    nothing = Usage(input_tokens=0, output_tokens=0)
    found = []
    for company, name in _names(model, provider):
        try:
            told = calc_price(nothing, name, provider_id=company, genai_request_timestamp=_ANY_TIME)
        except (LookupError, ValueError):
            continue
        found.append(told.model)
    return tuple(found)


def _names(model: str, provider: str | None) -> list[tuple[str | None, str]]:
    """The ways to look a model up, the surest first: `anthropic/claude-x` names its provider."""
    ways = [(provider, model), (None, model)]
    first, slash, rest = model.partition("/")
    if slash and rest:
        ways += [(first, rest), (None, rest.rpartition("/")[2])]
    return list(dict.fromkeys(ways))


def _total(prices: ModelPrice, counts: Mapping[str, Any]) -> Decimal:
    """Dollars for so many tokens. Raises ValueError if there cannot be so many."""
    rates = {key: rate for key, rate in vars(prices).items() if rate is not None}
    plain = all(type(count) is int and count >= 0 for count in counts.values())
    if not plain or not rates.keys() <= _PRICED.keys() | _UNTOLD:
        from genai_prices import Usage

        return Decimal(prices.calc_price(Usage(**counts))["total_price"])
    apart = sum(counts.get(_PRICED[key], 0) for key in _CACHED if key in rates)
    total = Decimal(0)
    for key, rate in rates.items():
        count = counts.get(_PRICED.get(key, ""), 0) - (apart if key == "input_mtok" else 0)
        if count < 0:
            raise ValueError("more tokens of a cache than tokens")
        if count:
            total += _rate(rate, counts["input_tokens"]) * count / _MILLION
    return total


def _rate(rate: Decimal | TieredPrices, input_tokens: int) -> Decimal:
    """Dollars a million: a long prompt may make all of its call dearer."""
    if isinstance(rate, Decimal):
        return rate
    return next(
        (tier.price for tier in reversed(rate.tiers) if input_tokens > tier.start), rate.base
    )
