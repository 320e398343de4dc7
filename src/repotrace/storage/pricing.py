"""What a model call costs, where nobody said it: by the price list of `genai-prices`.

The list comes with the package; nothing is looked up anywhere else. A model that it does not know
has no price, which is not the same as being free.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
)


def price(facts: Mapping[str, Any], at: datetime) -> Decimal | None:
    """US dollars for a call with the `model`, `provider` and token counts of `facts`.

    Input tokens include those read from and written to a cache, which are priced apart. None if
    the model or its price is not known, or the counts are not.
    """
    model = facts.get("model")
    counts = {name: facts[name] for name in _COUNTS if facts.get(name) is not None}
    if not model or "input_tokens" not in counts or "output_tokens" not in counts:
        return None
    # Takes 0.2 s to import: only who reads model calls that have no price pays for it.
    from genai_prices import Usage, calc_price

    for provider, name in _names(str(model), facts.get("provider")):
        try:
            found = calc_price(
                Usage(**counts),
                model_ref=name,
                provider_id=provider,
                genai_request_timestamp=at,
            )
        except (LookupError, ValueError):
            continue
        return Decimal(found.total_price)
    return None


def _names(model: str, provider: object) -> list[tuple[str | None, str]]:
    """The ways to look a model up, the surest first: `anthropic/claude-x` names its provider."""
    given = str(provider) if provider else None
    ways = [(given, model), (None, model)]
    first, slash, rest = model.partition("/")
    if slash and rest:
        ways += [(first, rest), (None, rest.rpartition("/")[2])]
    return list(dict.fromkeys(ways))
