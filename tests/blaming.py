"""A fake runner for the search of breaks: states as letters, hunks as sets."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

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
)
from repotrace.blame.investigation import Hunks

PATIENT = Plan(budget=10_000, reduce_budget=10_000, skips=10_000)

PASSES = Observation(Kind.PASSED)
FAILS = Observation(Kind.FAILED, "same")
LETTERS = {
    "P": PASSES,
    "F": FAILS,
    "O": Observation(Kind.FAILED, "another"),
    "E": Observation(Kind.ERROR, "ImportError"),
    "M": Observation(Kind.MISSING),
    "T": Observation(Kind.TIMEOUT),
    "K": Observation(Kind.SIGNAL, "SIGSEGV"),
    "U": Observation(Kind.UNUSABLE),
}


def candidates(count: int) -> tuple[Candidate, ...]:
    """So many different states; step N made candidate N."""
    return tuple(Candidate(at, f"s{at}", (at,) if at else ()) for at in range(count))


def place(subject: Subject) -> int:
    """The index of a state that `candidates` named."""
    return int(subject.state[1:])


@dataclass
class Runner:
    """Runs probes, several at a time, and holds the searcher to what it promises."""

    result: Callable[[Probe], Observation]
    workers: int = 1
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    ran: list[Probe] = field(default_factory=list)

    def run(self, searcher: Searcher, *, at_most: int | None = None) -> Finding | None:
        """Until there is an answer, or so many executions were made."""
        running: list[Probe] = []
        while at_most is None or len(self.ran) < at_most:
            started = searcher.next(self.workers)
            running += started
            assert len(running) <= self.workers
            assert len(running) == 1 or not any(probe.alone for probe in running)
            if not running:
                assert searcher.finding is not None
                return searcher.finding
            probe = running.pop(self.chance.randrange(len(running)))
            self.ran.append(probe)
            searcher.tell(probe, self.result(probe))
        return None


def by_letter(letters: str) -> Callable[[Probe], Observation]:
    """The results of a deterministic test: one letter for each state."""
    return lambda probe: LETTERS[letters[place(probe.subject)]]


def search(
    letters: str,
    *,
    plan: Plan = PATIENT,
    memo: Memo | None = None,
    states: Sequence[Candidate] = (),
    workers: int = 1,
    hunks: Hunks | None = None,
) -> tuple[Finding, list[Probe]]:
    """What is found where candidate N ends as the N-th letter says, and what was run for it."""
    states = states or candidates(len(letters))
    runner = Runner(by_letter(letters), workers)
    finding = runner.run(Searcher(states, memo=memo, plan=plan, hunks=hunks))
    assert finding is not None
    return finding, runner.ran


def coin(states: int, first_bad: int, before: float, after: float, seed: int) -> Runner:
    """A test that fails with one rate before a state, and with another one from there on."""
    chance = random.Random(seed)

    def result(probe: Probe) -> Observation:
        rate = after if place(probe.subject) >= first_bad else before
        return FAILS if chance.random() < rate else PASSES

    return Runner(result)
