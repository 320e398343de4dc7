"""The face of the search: what to run next, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence

from repotrace.blame.candidates import Candidate
from repotrace.blame.evidence import Memo, Observation, Probe, Subject
from repotrace.blame.finding import Finding, Progress
from repotrace.blame.investigation import CHANGED, Account, Hunks, Inquiry, Lacks
from repotrace.blame.plan import Plan
from repotrace.blame.search import Need, Outcome


class Searcher:
    """Finds what broke one test. It runs nothing itself:

        searcher = Searcher(candidates, memo=memo, tests=final_state, hunks=hunks_between)
        while probes := searcher.next():
            for probe in probes:
                searcher.tell(probe, run_the_test_on(probe.subject))
        finding = searcher.finding

    With several workers `next` is called whenever one is free: `next(workers)`. It may have
    nothing to do for it as long as others are at work. All that is told goes into `memo` as well:
    who stores that can stop at any time, and go on with a new searcher.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        memo: Memo | None = None,
        plan: Plan | None = None,
        tests: str = "",
        hunks: Hunks | None = None,
        lacks: Lacks | None = None,
    ) -> None:
        """The last candidate is the state on which the test fails.

        `memo` holds what is known already: executions, and results of the run itself, marked as
        `given`, each for the subject that it is true of: `subject` tells its name. `tests` is
        the state whose test files lie over all others, as a rule the last one; empty: each has
        its own. `hunks` is asked when a break is proven; without it nothing is reduced. `lacks`
        tells of a state whether hunks are undone in it. Raises ValueError without candidates.
        """
        if not candidates:
            raise ValueError("a search needs at least one state")
        self.memo = Memo() if memo is None else memo
        self.plan = plan or Plan()
        self._candidates = tuple(candidates)
        self._tests = tests
        self._account = Account()
        self._inquiry = Inquiry(
            self._candidates,
            self.memo,
            self.plan,
            self._account,
            tests=tests,
            hunks=hunks,
            lacks=lacks,
        )
        self._steps = self._inquiry.run()
        self._need: Need | None = None
        self._running: list[Probe] = []
        self.finding: Finding | None = None
        """The answer; None as long as the search goes on."""

    def next(self, workers: int = 1) -> tuple[Probe, ...]:
        """What to start now, if up to `workers` may run at once; those that run are counted in.

        Empty: there is an answer, or what runs has to be told first.
        """
        self._account.workers = max(1, workers)
        self._advance()
        if self._need is None:
            return ()
        free = max(1, workers) - len(self._running)
        started: list[Probe] = []
        for probe in self._open():
            busy = bool(self._running)
            if free <= 0 or (probe.alone and busy) or any(one.alone for one in self._running):
                break
            self._running.append(probe)
            started.append(probe)
            free -= 1
        return tuple(started)

    def tell(self, probe: Probe, observation: Observation) -> None:
        """Say what came of a probe. One that was not asked for, or not any more, counts too.

        The observation is `alone` only if the probe was.
        """
        if probe in self._running:
            self._running.remove(probe)
        self.memo.add(probe.subject, observation)
        if observation.given:
            return
        if probe.purpose in CHANGED:
            self._account.reductions += 1
        else:
            self._account.executions += 1

    def abandon(self, probe: Probe) -> None:
        """Take back a probe that was started and will not be told: `next` gives it again."""
        if probe in self._running:
            self._running.remove(probe)

    def stop(self) -> Finding:
        """End the search. What is known so far, with `exhausted` if there was more to do."""
        self._account.stopped = True
        while self.finding is None:
            self._resume()
        return self.finding

    def subject(self, candidate: Candidate, *, tests: str | None = None) -> Subject:
        """What the memo knows a candidate as, with the tests that lie over it.

        `tests` is a state whose tests those are; by default those of the search.
        """
        tests = self._tests if tests is None else tests
        return self._inquiry.subject(candidate.state_id, tests)

    @property
    def progress(self) -> Progress:
        """How far the search is."""
        trial = self._inquiry.trial(self._tests)
        passing = trial.indices(Outcome.PASS)
        low = passing[-1] if passing else None
        failing = [at for at in trial.indices(Outcome.FAIL) if low is None or at > low]
        done = self._account.executions + self._account.reductions
        probe = self._running[0] if self._running else None
        if probe is None and self._need is not None:
            probe = next(iter(self._open()), None)
        left = self._need.left if self._need else 0
        return Progress(probe, low, failing[0] if failing else None, done, left)

    def _advance(self) -> None:
        while self.finding is None and (self._need is None or not self._open()):
            if self._need is not None and self._running:
                return
            self._resume()

    def _resume(self) -> None:
        try:
            self._need = next(self._steps)
        except StopIteration as done:
            self._need, self.finding = None, done.value

    def _open(self) -> list[Probe]:
        """What is needed, not told and not running."""
        assert self._need is not None
        return [
            probe
            for probe in self._need.probes
            if self.memo.executions(probe.subject) < probe.number and probe not in self._running
        ]
