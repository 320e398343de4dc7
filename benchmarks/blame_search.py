"""The search for a break on a fake runner: how often it is right, and what it costs.

    python benchmarks/blame_search.py --searches 1000 --coins 5000

To be reached: no wrong `proven`; of tests without any break, which fail at 0.3, 0.5, 0.7, less than
0.1 % proven; executions of a clean break at most 2 * ceil(log2 states) + 7 until `likely` and 8
more until `proven`; a test that fails never before and at 0.5 after a step named rightly in at
least 95 %; a step of the posterior for 200 states under 20 ms. Beside the search: plain
bisection, and bisection with the majority of five, both from a known good and a known bad end.
Every search has a seed of its own; the figures are the same on every machine, save the times.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from repotrace.blame import (
    Candidate,
    Finding,
    Kind,
    Memo,
    Observation,
    Plan,
    Probe,
    Searcher,
    Subject,
    Verdict,
    executions_at_most,
)
from repotrace.blame.odds import upper_rate
from repotrace.blame.posterior import Counts, Posterior

PASSES = Observation(Kind.PASSED)
FAILS = Observation(Kind.FAILED, "same")
SKIPS = Observation(Kind.ERROR, "ImportError")

type Result = Callable[[int], Observation]
"""What comes of running the test on the state with this index."""


def states_of(count: int) -> list[Candidate]:
    return [Candidate(at, f"s{at}", (at,) if at else ()) for at in range(count)]


def searched(
    count: int, result: Result, *, plan: Plan | None = None, memo: Memo | None = None
) -> tuple[Finding, list[Probe]]:
    """What is found with one worker, and what was run for it."""
    searcher = Searcher(states_of(count), plan=plan, memo=memo)
    ran = []
    while probes := searcher.next():
        ran += probes
        for probe in probes:
            searcher.tell(probe, result(int(probe.subject.state[1:])))
    assert searcher.finding is not None
    return searcher.finding, ran


def rates(first_bad: int, before: float, after: float, chance: random.Random) -> Result:
    def result(at: int) -> Observation:
        return FAILS if chance.random() < (after if at >= first_bad else before) else PASSES

    return result


def bisected(count: int, result: Result, *, votes: int = 1) -> int:
    """The first bad state according to bisection."""
    low, high = 0, count - 1
    while high - low > 1:
        middle = (low + high) // 2
        failed = sum(not result(middle).passed for _ in range(votes))
        low, high = (low, middle) if 2 * failed > votes else (middle, high)
    return high


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:6.2f} %"


def clean_breaks(searches: int) -> None:
    print("One clean break: executions until the flip is known three times, and until proven")
    print("  states   mean   most   allowed   mean proven   most   allowed   right")
    for count in (20, 64, 83, 200):
        likely, proven, right = [], [], 0
        for seed in range(min(searches, 500)):
            first_bad = random.Random(seed).randrange(1, count)
            finding, ran = searched(count, rates(first_bad, 0, 1, random.Random(seed)))
            right += finding.verdict is Verdict.PROVEN and finding.steps == (first_bad,)
            proven.append(len(ran))
            seen: Counter[int] = Counter()
            for number, probe in enumerate(ran, 1):
                seen[int(probe.subject.state[1:])] += 1
                if min(seen[first_bad - 1], seen[first_bad]) >= 3:
                    likely.append(number)
                    break
        allowed = executions_at_most(count)
        print(
            f"  {count:6} {sum(likely) / len(likely):6.1f} {max(likely):6} {allowed[0]:9}"
            f" {sum(proven) / len(proven):13.1f} {max(proven):6} {allowed[1]:9}"
            f"   {percent(right, len(proven))}"
        )


def flaky_breaks(searches: int) -> None:
    print("\nA step that changed how often the test fails")
    print("  states   before  after    right    wrong     open   executions   bisect   best of 5")
    cases = [(64, 0.0, 0.5), (64, 0.1, 0.9), (64, 0.05, 0.6), (64, 0.0, 0.3), (200, 0.0, 0.5)]
    for count, before, after in cases:
        right = wrong = executions = plain = majority = 0
        for seed in range(searches):
            chance = random.Random(f"{count} {before} {after} {seed}")
            first_bad = chance.randrange(1, count)
            result = rates(first_bad, before, after, chance)
            finding, ran = searched(count, result)
            named = finding.steps if finding.named else ()
            right += named == (first_bad,)
            wrong += bool(named) and named != (first_bad,)
            executions += len(ran)
            plain += bisected(count, result) == first_bad
            majority += bisected(count, result, votes=5) == first_bad
        print(
            f"  {count:6} {before:8.2f} {after:6.2f} {percent(right, searches)}"
            f" {percent(wrong, searches)} {percent(searches - right - wrong, searches)}"
            f" {executions / searches:12.1f} {percent(plain, searches)}"
            f"    {percent(majority, searches)}"
        )


def coins(searches: int, whole: int) -> None:
    print("\nNo break at all, 64 states: a constant rate of failing")
    print(
        "    rate   searches   proven   below, with 95 %   likely"
        "   |   searches   always so   open   a step named"
    )
    for rate in (0.3, 0.5, 0.7):
        proven = likely = 0
        # Once a state contradicted itself nothing is proven any more: no need to go on.
        plan = Plan(budget=30)
        for seed in range(searches):
            result = rates(0, rate, rate, random.Random(f"coin {rate} {seed}"))
            finding, _ = searched(64, result, plan=plan)
            proven += any(found.confirmed for found in finding.breaks)
            likely += finding.verdict is Verdict.LIKELY
        ends: Counter[str] = Counter()
        for seed in range(whole):
            result = rates(0, rate, rate, random.Random(f"whole {rate} {seed}"))
            finding, _ = searched(64, result)
            always = finding.flakiness is not None and finding.flakiness.credible == (0,)
            ends["named" if finding.named else "always" if always else "open"] += 1
        print(
            f"  {rate:6.1f} {searches:10} {proven:8} {100 * upper_rate(proven, searches):16.3f} %"
            f" {likely:8}   | {whole:10}"
            f" {percent(ends['always'], whole):>11} {percent(ends['open'], whole)}"
            f"   {percent(ends['named'], whole)}"
        )


def skipped_block(searches: int) -> None:
    print("\nA block of 20 states of 83 that can't be run, the break anywhere")
    exact = inside = executions = wrong = 0
    for seed in range(searches):
        chance = random.Random(f"block {seed}")
        first_bad, block = chance.randrange(1, 83), chance.randrange(1, 62)

        def result(at: int, first_bad: int = first_bad, block: int = block) -> Observation:
            if block <= at < block + 20:
                return SKIPS
            return FAILS if at >= first_bad else PASSES

        finding, ran = searched(83, result)
        executions += len(ran)
        exact += finding.named and finding.steps == (first_bad,)
        inside += first_bad in finding.steps and not finding.named
        wrong += first_bad not in finding.steps
    print(
        f"  exact {percent(exact, searches)}   in the range {percent(inside, searches)}"
        f"   wrong {percent(wrong, searches)}   executions {executions / searches:.1f}"
    )


def prefilled(searches: int) -> None:
    print("\nOne clean break in 64 states, with results of the agent on so many of them")
    for known in (0, 2, 5, 10):
        executions = 0
        for seed in range(searches):
            chance = random.Random(f"known {known} {seed}")
            first_bad = chance.randrange(1, 64)
            result = rates(first_bad, 0, 1, chance)
            memo = Memo(
                (Subject(f"s{at}"), replace(result(at), given=True))
                for at in chance.sample(range(64), known)
            )
            executions += len(searched(64, result, memo=memo)[1])
        print(f"  {known:3} known: {executions / searches:5.1f} executions until proven")


def steps_of_the_posterior() -> None:
    print("\nOne step of the posterior, least CPU time of 20")
    for count in (64, 200, 500):
        chance = random.Random(count)
        counts = [Counts(chance.randrange(3), chance.randrange(3)) for _ in range(count)]
        least = float("inf")
        for _ in range(20):
            start = time.process_time()
            Posterior(counts, [True] * count).entropy_after()
            least = min(least, time.process_time() - start)
        print(f"  {count:4} states: {1000 * least:6.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--searches", type=int, default=1000, help="for each line")
    parser.add_argument("--coins", type=int, default=5000, help="for each rate without a break")
    parser.add_argument("--only", default="", help="one of: " + ", ".join(_TABLES))
    given = parser.parse_args()
    for name, table in _TABLES.items():
        if given.only in ("", name):
            table(given.searches, given.coins)


_TABLES: dict[str, Callable[[int, int], None]] = {
    "clean": lambda searches, _: clean_breaks(searches),
    "flaky": lambda searches, _: flaky_breaks(searches),
    "coins": lambda searches, many: coins(many, min(many, searches)),
    "block": lambda searches, _: skipped_block(searches),
    "known": lambda searches, _: prefilled(searches),
    "time": lambda *_: steps_of_the_posterior(),
}


if __name__ == "__main__":
    main()
