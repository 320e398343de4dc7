"""How probable it is that mere chance looks like a break.

The rule behind `proven`. Suppose that nothing broke: the test fails on every state with the same
unknown probability p. A search picks the two states whose results happened to look like a flip, so
the results that it picked them by say nothing, however many states it tried. Those that were made
afterwards are free of that choice: a passes on the one and b failures on the other have the
probability p^b (1 - p)^a, which is greatest at p = b / (a + b). The failures on the final state
that began it all were asked for whatever else happened, so they count as well. A search that had to
pick another pair of states had one more chance for each.
"""

from __future__ import annotations

import math


def greatest_chance(failures: int, passes: int) -> float:
    """The probability of just these results under the constant rate that fits them best."""
    runs = failures + passes
    if failures <= 0 or passes <= 0:
        return 1.0
    log = failures * math.log(failures / runs) + passes * math.log(passes / runs)
    return math.exp(log)


def chance_words(odds: float) -> str:
    """The odds for people, rounded up to a power of ten or to a percentage: `< 0.01 %`."""
    for power in (4, 3, 2, 1, 0):
        if odds < 10.0**-power / 100:
            return f"< {10.0**-power:.{power}f} %"
    return f"up to {math.ceil(100 * odds)} %"


def upper_rate(failed: int, runs: int, *, confidence: float = 0.95) -> float:
    """The rate that is not exceeded with this confidence (Clopper and Pearson, one-sided)."""
    if failed >= runs:
        return 1.0
    low, high = failed / runs, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(failed, runs, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(failed: int, runs: int, rate: float) -> float:
    """The probability of at most `failed` failures."""
    return math.fsum(
        math.comb(runs, count) * rate**count * (1 - rate) ** (runs - count)
        for count in range(failed + 1)
    )
