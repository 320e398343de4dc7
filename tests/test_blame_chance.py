"""How sure: the odds behind `proven`, and what is said of flaky tests."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from blaming import FAILS, LETTERS, PASSES, Runner, candidates, coin, place
from hypothesis import given, settings
from hypothesis import strategies as st

from repotrace.blame import (
    Finding,
    Memo,
    Observation,
    Plan,
    Probe,
    Searcher,
    Subject,
    Verdict,
    chance_words,
)
from repotrace.blame.odds import greatest_chance, upper_rate
from repotrace.blame.posterior import CHANGE, NOTHING_CHANGED, Counts, Posterior

RATES = [number / 50 for number in range(1, 50)]

# --- False proofs, exactly --------------------------------------------------------------------


def false_proofs(states: int, memo: Memo, plan: Plan) -> Iterator[tuple[int, int, float]]:
    """Every way in which a coin looks like a proven break: failures, passes, and the odds given.

    A state that both passed and failed is a way that leads to no proof: see the test below.
    """
    searcher = Searcher(candidates(states), memo=Memo(memo), plan=plan)
    probes = searcher.next()
    if not probes:
        assert searcher.finding is not None
        if searcher.finding.breaks and searcher.finding.breaks[0].confirmed:
            results = [seen.passed for _, seen in memo]
            yield results.count(False), results.count(True), searcher.finding.breaks[0].odds
        return
    subject = probes[0].subject
    known = {seen.passed for seen in memo.of(subject)}
    for result in (FAILS, PASSES):
        if known <= {result.passed}:
            yield from false_proofs(states, Memo([*memo, (subject, result)]), plan)


@pytest.mark.parametrize("states", [2, 3, 5, 8, 16, 21])
def test_a_coin_looks_like_a_proven_break_less_often_than_the_odds_say(states: int) -> None:
    """Summed over all sequences of results, for any rate of failing; nothing is simulated."""
    ways = Counter(false_proofs(states, Memo(), Plan()))
    worst = max(
        math.fsum(count * rate**f * (1 - rate) ** p for (f, p, _), count in ways.items())
        for rate in RATES
    )
    assert 0 < worst < max(odds for _, _, odds in ways) < 0.001


@pytest.mark.parametrize("plan", [Plan(confirmations=5), Plan(confirmations=3, chance=0.02)])
def test_the_odds_hold_for_other_measures(plan: Plan) -> None:
    ways = Counter(false_proofs(9, Memo(), plan))
    worst = max(
        math.fsum(count * rate**f * (1 - rate) ** p for (f, p, _), count in ways.items())
        for rate in RATES
    )
    assert 0 < worst < max(odds for _, _, odds in ways) < plan.chance


@pytest.mark.parametrize("known", [(1, 3, 5), (2, 2, 2, 3, 3, 3), (0, 0, 6, 6)])
def test_the_odds_hold_with_results_of_the_run_itself(known: Sequence[int]) -> None:
    """The agent's own results come from the same coin, and decide where the search begins."""
    ways: Counter[tuple[int, int, float]] = Counter()
    for results in itertools.product((FAILS, PASSES), repeat=len(known)):
        memo = Memo()
        for at, result in zip(known, results, strict=True):
            memo.add(Subject(f"s{at}"), replace(result, given=True))
        if all(len({seen.passed for seen in memo.of(Subject(f"s{at}"))}) == 1 for at in known):
            ways.update(false_proofs(8, memo, Plan()))
    worst = max(
        math.fsum(count * rate**f * (1 - rate) ** p for (f, p, _), count in ways.items())
        for rate in RATES
    )
    assert 0 < worst < 0.001


@given(st.integers(3, 40), st.integers(0, 10**9), st.sampled_from([0.2, 0.5, 0.8]))
@settings(deadline=None)
def test_what_contradicted_itself_is_never_proven(states: int, seed: int, rate: float) -> None:
    runner = coin(states, 0, rate, rate, seed)
    searcher = Searcher(candidates(states), plan=Plan(budget=40))
    finding = runner.run(searcher)
    assert finding is not None
    results: dict[Subject, set[bool]] = {}
    for subject, seen in searcher.memo:
        results.setdefault(subject, set()).add(seen.passed)
    if any(len(both) == 2 for both in results.values()):
        assert finding.verdict is Verdict.FLAKY
        assert not finding.breaks


@pytest.mark.parametrize(("failures", "passes"), [(1, 1), (3, 6), (9, 6), (7, 7)])
def test_the_greatest_chance_is_the_greatest(failures: int, passes: int) -> None:
    fine = (number / 100_000 for number in range(100_001))
    greatest = max(rate**failures * (1 - rate) ** passes for rate in fine)
    assert greatest_chance(failures, passes) == pytest.approx(greatest, rel=1e-6)
    assert greatest_chance(7, 7) == pytest.approx(0.25**7)


def test_nothing_is_excluded_without_results() -> None:
    assert greatest_chance(0, 9) == greatest_chance(9, 0) == greatest_chance(3, -1) == 1.0


def test_odds_in_words_are_never_too_small() -> None:
    assert chance_words(0.00013) == "< 0.1 %"
    assert chance_words(0.00004) == "< 0.01 %"
    assert chance_words(0.0099) == "< 1 %"
    assert chance_words(0.013) == "up to 2 %"
    assert chance_words(1.0) == "up to 100 %"


def test_upper_rates_are_those_of_the_tables() -> None:
    """Clopper and Pearson, one-sided 95 %: 1 - 0.05 ** (1 / n) for none, tables for the others."""
    assert upper_rate(0, 8) == pytest.approx(1 - 0.05 ** (1 / 8))
    assert upper_rate(0, 100) == pytest.approx(3 / 100, rel=0.02)
    assert upper_rate(1, 10) == pytest.approx(0.3942, abs=1e-4)
    assert upper_rate(5, 20) == pytest.approx(0.4556, abs=1e-4)
    assert upper_rate(7, 7) == upper_rate(0, 0) == 1.0


# --- The posterior ----------------------------------------------------------------------------


results_of = st.lists(
    st.builds(Counts, st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=12
)


FINE = 150
POINTS = [math.sin(math.pi * (number + 0.5) / (2 * FINE)) ** 2 for number in range(FINE)]
"""Points of equal weight under Beta(½, ½), whose distribution function is an arc sine."""


@given(results_of)
@settings(max_examples=15, deadline=None)
def test_the_posterior_is_that_of_a_fine_integration(counts: list[Counts]) -> None:
    size = len(counts)
    pairs = [(low, high) for low in POINTS for high in POINTS if high - low >= CHANGE]
    weights = []
    for k in range(1, size):
        f, p = (sum(column) for column in zip(*counts[:k], strict=True))
        g, q = (sum(column) for column in zip(*counts[k:], strict=True))
        likelihoods = (a**f * (1 - a) ** p * b**g * (1 - b) ** q for a, b in pairs)
        weights.append((1 - NOTHING_CHANGED) / (size - 1) * math.fsum(likelihoods) / len(pairs))
    failed, passed = (sum(column) for column in zip(*counts, strict=True))
    # One rate everywhere: a Beta function, in closed form.
    log = math.lgamma(failed + 0.5) + math.lgamma(passed + 0.5)
    constant = math.exp(log - math.lgamma(failed + passed + 1)) / math.pi
    weights.insert(0, NOTHING_CHANGED * constant)
    posterior = Posterior(counts, [True] * size)
    total = math.fsum(weights)
    for ours, exact in zip(posterior.probability, weights, strict=True):
        assert ours == pytest.approx(exact / total, abs=0.03)
    mean = (failed + 0.5) / (failed + passed + 1)
    assert posterior.rates(0)[0] == pytest.approx(mean, abs=0.01)


@given(results_of)
@settings(deadline=None)
def test_the_expected_entropy_is_what_one_more_result_leaves(counts: list[Counts]) -> None:
    possible = [True] * len(counts)

    def entropy(posterior: Posterior) -> float:
        return -math.fsum(p * math.log(p) for p in posterior.probability if p > 0)

    now = Posterior(counts, possible)
    for at, expected in enumerate(now.entropy_after()):
        left = 0.0
        for failing in (True, False):
            more = list(counts)
            more[at] = Counts(counts[at].failed + failing, counts[at].passed + (not failing))
            chance = math.fsum(
                p * (rate if failing else 1 - rate)
                for k, p in enumerate(now.probability)
                for rate in (now.rates(k)[0 if at < k else 1],)
            )
            left += chance * entropy(Posterior(more, possible))
        assert expected == pytest.approx(left, abs=1e-9)


def test_what_cannot_be_is_not_thought_of() -> None:
    counts = [Counts(0, 5), Counts(0, 5), Counts(5, 0), Counts(5, 0)]
    assert Posterior(counts, [True, True, False, True]).probability[2] == 0
    assert max(Posterior(counts, [True] * 4).probability) == pytest.approx(0.98, abs=0.03)
    assert Posterior(counts, [True] * 4).credible(0.9) == (2,)


# --- Flaky tests ------------------------------------------------------------------------------


def outcome(states: int, first_bad: int, before: float, after: float, seed: int) -> Finding:
    finding = coin(states, first_bad, before, after, seed).run(Searcher(candidates(states)))
    assert finding is not None
    return finding


def rightly_named(before: float, after: float, *, searches: int) -> tuple[int, int]:
    """How many of so many searches through 64 states name the step, and how many a wrong one."""
    right = wrong = 0
    for seed in range(searches):
        first_bad = 1 + seed * 37 % 63
        finding = outcome(64, first_bad, before, after, seed)
        right += finding.steps == (first_bad,) and finding.named
        wrong += finding.named and finding.steps != (first_bad,)
    return right, wrong


def test_a_flaky_break_is_named_with_both_rates() -> None:
    finding = outcome(64, 30, 0.0, 0.5, 4)
    assert finding.verdict is Verdict.FLAKY
    assert finding.steps == (30,)
    flakiness = finding.flakiness
    assert flakiness is not None
    assert flakiness.best == 30
    assert flakiness.credible == (30,)
    assert flakiness.posterior[30] >= 0.95
    assert flakiness.before.failed == 0
    assert flakiness.before.upper == pytest.approx(upper_rate(0, flakiness.before.runs))
    assert 0.2 < flakiness.after.mean < 0.8
    assert flakiness.before.runs + flakiness.after.runs == finding.executions


def test_a_flaky_test_that_could_not_be_run_on_some_states_names_those_that_it_may_be() -> None:

    runner = coin(32, 14, 0.0, 0.6, 11)
    inner = runner.result

    def result(probe: Probe) -> Observation:
        return LETTERS["E"] if 12 <= place(probe.subject) < 16 else inner(probe)

    finding = Runner(result).run(Searcher(candidates(32)))
    assert finding is not None
    assert finding.verdict is Verdict.FLAKY
    assert finding.flakiness is not None
    assert finding.flakiness.best is None
    assert set(finding.flakiness.steps) >= {14}
    assert set(finding.flakiness.credible) <= {12, 13, 14, 15, 16}
    assert not finding.exhausted


def test_a_flaky_test_without_a_break_was_always_like_that() -> None:
    verdicts: Counter[str] = Counter()
    for seed in range(20):
        finding = outcome(64, 0, 0.5, 0.5, seed)
        assert finding.verdict is Verdict.FLAKY
        assert finding.flakiness is not None
        if finding.flakiness.credible == (0,):
            assert "from the beginning" in finding.reason
            assert finding.steps == finding.flakiness.steps == ()
        verdicts["named" if finding.named else str(finding.flakiness.credible == (0,))] += 1
    assert verdicts["named"] <= 2
    assert verdicts["True"] >= 12


def test_flaky_breaks_are_mostly_named_rightly() -> None:
    right, wrong = rightly_named(0.0, 0.5, searches=40)
    assert right >= 36
    assert wrong <= 3


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("before", "after"), [(0.0, 0.5), (0.1, 0.9)])
def test_flaky_breaks_are_named_rightly_in_95_of_100_searches(before: float, after: float) -> None:
    right, wrong = rightly_named(before, after, searches=1000)
    assert right >= 950
    assert wrong <= 40


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("rate", [0.3, 0.5, 0.7])
def test_coins_are_no_proven_breaks(rate: float) -> None:
    """5,000 searches: at most a rate of 0.1 % would be 5; the exact tests say what to expect."""
    proven = 0
    for seed in range(5000):
        finding = coin(64, 0, rate, rate, seed).run(Searcher(candidates(64), plan=Plan(budget=30)))
        assert finding is not None
        proven += any(found.confirmed for found in finding.breaks)
    assert proven <= 3
