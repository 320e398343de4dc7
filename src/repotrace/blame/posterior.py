"""Which step changed how often a flaky test fails.

Hypothesis k says: the test fails with some rate before candidate k and with a clearly higher one
from there on; hypothesis 0 says: with one rate everywhere. Rates are unknown, each with Jeffreys'
prior, Beta(½, ½), held as points of equal weight. The next state to run is the one whose result is
expected to leave the least entropy over the hypotheses. That a change has to be worth the name is
what lets a test without any be recognised: between one rate and two that are almost equal no number
of results would decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

GRID = 32
"""Points that stand for the distribution of a rate."""

CHANGE = 0.2
"""A rise of the rate by less is no break."""

NOTHING_CHANGED = 0.5
"""Probability, before anything was run, that no step changed the rate."""

_RATES = tuple(math.sin(math.pi * (2 * point + 1) / (4 * GRID)) ** 2 for point in range(GRID))
_LOG = tuple(math.log(rate) for rate in _RATES)
_LOG_NOT = tuple(math.log1p(-rate) for rate in _RATES)
_ENDS = tuple(sum(rate <= later - CHANGE for rate in _RATES) for later in _RATES)
_LOWER = tuple(zip((0, *_ENDS), _ENDS, strict=False))
"""For each rate, which ones come to those that are clearly lower than the rate before."""
_PAIRS = sum(_ENDS)


class Counts(NamedTuple):
    """Results on one state."""

    failed: int
    passed: int


class Posterior:
    """The probability of each hypothesis, given the results."""

    def __init__(self, counts: Sequence[Counts], possible: Sequence[bool]) -> None:
        """`counts` by candidate; `possible[k]` tells whether candidate k may be the one."""
        failed = [0, *accumulate(count.failed for count in counts)]
        passed = [0, *accumulate(count.passed for count in counts)]
        size = len(counts)
        share = (1 - NOTHING_CHANGED) / max(1, sum(possible[1:]))
        logs = [-math.inf] * size
        self._before, self._after = [0.5] * size, [0.5] * size
        tables: dict[tuple[int, int, int, int], tuple[float, float, float]] = {}
        for k in range(size):
            if k and not possible[k]:
                continue
            key = (failed[k], passed[k], failed[-1] - failed[k], passed[-1] - passed[k])
            if k == 0:
                logs[0], self._before[0] = _constant(*key[2:])
                self._after[0] = self._before[0]
                logs[0] += math.log(NOTHING_CHANGED)
                continue
            if key not in tables:
                tables[key] = _changed(*key)
            logs[k], self._before[k], self._after[k] = tables[key]
            logs[k] += math.log(share)
        top = max(logs)
        weights = [math.exp(log - top) for log in logs]
        total = math.fsum(weights)
        self.probability = tuple(weight / total for weight in weights)
        """By candidate; the first is that no step changed the rate."""

    def rates(self, k: int) -> tuple[float, float]:
        """Expected rates before candidate k and from it on, if it is the one."""
        return self._before[k], self._after[k]

    def credible(self, confidence: float) -> tuple[int, ...]:
        """The fewest hypotheses that together have this probability, most probable first."""
        order = sorted(range(len(self.probability)), key=lambda k: -self.probability[k])
        total, taken = 0.0, []
        for k in order:
            taken.append(k)
            total += self.probability[k]
            if total >= confidence:
                break
        return tuple(taken)

    def entropy_after(self) -> tuple[float, ...]:
        """By candidate: the entropy to expect once its state is run once more."""
        # A result on candidate x multiplies hypothesis k by the rate after it if k <= x, by the
        # one before it otherwise: sums over both parts give the whole, in linear time for all x.
        size = len(self.probability)
        entropies = [0.0] * size
        for failing in (True, False):
            below, below_log = [0.0], [0.0]
            above, above_log = [0.0], [0.0]
            for k, weight in enumerate(self.probability):
                for rate, sums, logs in (
                    (self._after[k], below, below_log),
                    (self._before[k], above, above_log),
                ):
                    part = weight * (rate if failing else 1 - rate)
                    sums.append(sums[-1] + part)
                    logs.append(logs[-1] + (part * math.log(part) if part > 0 else 0.0))
            for x in range(size):
                mass = below[x + 1] + above[size] - above[x + 1]
                if mass > 0:
                    logs_of = below_log[x + 1] + above_log[size] - above_log[x + 1]
                    entropies[x] += mass * math.log(mass) - logs_of
        return tuple(entropies)


def _likelihoods(failed: int, passed: int) -> list[float]:
    """Of the results at each rate, as logarithms."""
    return [failed * log + passed * not_ for log, not_ in zip(_LOG, _LOG_NOT, strict=True)]


def _constant(failed: int, passed: int) -> tuple[float, float]:
    """The logarithm of how probable the results are with one rate, and the rate to expect."""
    logs = _likelihoods(failed, passed)
    top = max(logs)
    weights = [math.exp(log - top) for log in logs]
    total = math.fsum(weights)
    mean = math.fsum(w * rate for w, rate in zip(weights, _RATES, strict=True)) / total
    return top + math.log(total / GRID), mean


def _changed(
    failed: int, passed: int, later_failed: int, later_passed: int
) -> tuple[float, float, float]:
    """As `_constant`, with a clearly higher rate for the later results: both rates to expect."""
    logs, later = _likelihoods(failed, passed), _likelihoods(later_failed, later_passed)
    top, later_top = max(logs), max(later)
    weights = [math.exp(log - top) for log in logs]
    below = mean_below = total = mean = later_mean = 0.0
    for log, rate, end in zip(later, _RATES, _LOWER, strict=True):
        for place in range(*end):
            below += weights[place]
            mean_below += weights[place] * _RATES[place]
        now = math.exp(log - later_top)
        total += now * below
        mean += now * mean_below
        later_mean += now * rate * below
    if total <= 0:
        return -math.inf, 0.5, 0.5
    return (
        top + later_top + math.log(total / _PAIRS),
        mean / total,
        later_mean / total,
    )
