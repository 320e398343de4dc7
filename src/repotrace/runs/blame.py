"""Which step of a run broke a test: the search, with executions on the states of the run.

`repotrace.blame` decides; here its questions are answered, from the memo or by executing, and its
finding becomes a record with the evidence. See docs/blame.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import NamedTuple

from repotrace.blame import (
    Candidate,
    Kind,
    Memo,
    Observation,
    Plan,
    Probe,
    Progress,
    Purpose,
    Searcher,
    Subject,
    Verdict,
)
from repotrace.errors import RepoTraceError
from repotrace.outcomes import verdicts
from repotrace.records.blame import Blame
from repotrace.records.run import FAILING, OutcomeOrigin, Run
from repotrace.runs.checking.sides import Sides, sides_of_run
from repotrace.runs.finding.hunk_origins import is_undone
from repotrace.runs.finding.record import Account, blame_of
from repotrace.runs.finding.step_facts import StepFacts
from repotrace.runs.testing.agent_tests import AgentTests, Sighting
from repotrace.runs.testing.executions import Bench, workers
from repotrace.runs.testing.observing import observed, of_outcomes
from repotrace.runs.testing.options import Testing, bench_for, named_run, workspace_of
from repotrace.runs.testing.sources import sources_in
from repotrace.runs.traces import Workspace, store_of
from repotrace.storage.memo import Execution, KeptVerdict

USUAL = Plan()

LONGEST = 600.0
"""Seconds for one execution of a test that was not yet seen to pass."""

LEAST_TIME = 60.0
PATIENCE = 10
"""After that it may take so many times as long as when it passed, or `LEAST_TIME`."""


_TOGETHER = 30.0
"""Seconds that all tests may take to be executed for the sake of one."""


class Moment(NamedTuple):
    """How far a search is, before an execution."""

    test: str
    purpose: str
    where: str
    """On which files: `after step 7`, `with hunks`."""
    passes: str
    """The last such place where it is known to pass; empty: none is."""
    fails: str
    """The first one after that where it is known to fail."""
    executions: int
    left: int
    """About how many are to come."""


type OnProgress = Callable[[Moment], None]


@dataclass(frozen=True, slots=True)
class BlameOptions:
    """How a break is searched for."""

    plan: Plan = USUAL
    jobs: int = 1
    original_tests: bool = False
    """The tests of the first state lie over all states, and not those of the last one."""
    on_progress: OnProgress | None = None
    """Told before each execution."""


class StoredMemo(Memo):
    """What the store knows is looked up when a subject is first asked about."""

    def __init__(self, bench: Bench, selection: Sequence[str], test: str) -> None:
        super().__init__()
        self._bench = bench
        self._selection = selection
        self._test = test
        self._loaded: set[Subject] = set()

    def of(self, subject: Subject) -> tuple[Observation, ...]:
        """All that was observed on `subject`."""
        self._load(subject)
        return super().of(subject)

    def executions(self, subject: Subject) -> int:
        """How often `subject` was executed; what was given counts for nothing."""
        self._load(subject)
        return super().executions(subject)

    def _load(self, subject: Subject) -> None:
        if subject in self._loaded:
            return
        self._loaded.add(subject)
        for execution in self._bench.known(subject, self._selection):
            super().add(subject, observed(execution, self._test))


class Blaming:
    """Searches for what broke tests between two sides."""

    def __init__(
        self, bench: Bench, sides: Sides, run: Run | None, options: BlameOptions | None = None
    ) -> None:
        self.bench = bench
        self.sides = sides
        self.run = run
        self.options = options or BlameOptions()
        self.agent = AgentTests(bench.store, run)
        self._took: dict[str, float] = {}
        self._facts = StepFacts(bench.store, run) if run is not None else None
        self._candidates = self._with_fingerprints(sides.candidates)

    def _with_fingerprints(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        subjects = self.bench.subjects
        installs = self._facts.installs if self._facts is not None else ()
        return tuple(
            replace(
                one,
                tests=subjects.tests_of(one.state_id),
                environment=f"{subjects.locks_of(one.state_id)}"
                f" {sum(number <= max(one.steps, default=0) for number in installs)}",
            )
            for one in candidates
        )

    # --- One test ---------------------------------------------------------------------------

    def blame(self, test: str, plan: Plan | None = None) -> Blame:
        """What broke the test; empty: the command as a whole. `plan`: another one than usual.

        One that passes alone, and failed when all were run, is executed with all the others.

        Raises KeyboardInterrupt when it is interrupted; what was executed is kept.
        """
        found = self._found(test, plan, self.selection(test))
        if found.verdict == Verdict.NOT_REPRODUCIBLE and self._fails_with_others(test):
            together = self._found(test, plan, ())
            if together.verdict != Verdict.NOT_REPRODUCIBLE:
                notes = (*together.notes, "it passes alone: it was executed with all other tests")
                found = together.model_copy(update={"notes": notes})
        self.bench.store.memo.keep_verdict(
            KeptVerdict(
                found.id,
                found.run_id,
                test,
                found.verdict,
                found.created_at,
                found.model_dump(mode="json"),
            )
        )
        return found

    def _fails_with_others(self, test: str) -> bool:
        """Whether a run of all tests on the final state is known in which it failed, and did not
        take too long to be repeated."""
        if not self.selection(test):
            return False
        known = self.bench.known(Subject(self._candidates[-1].state_id))
        return any(
            observed(one, test).kind is Kind.FAILED and (one.duration or 0.0) <= _TOGETHER
            for one in known
        )

    def _found(self, test: str, plan: Plan | None, selection: Sequence[str]) -> Blame:
        sightings = self.agent.of(test)
        end = self._until(test, sightings)
        candidates = self._candidates[: end + 1]
        tests = candidates[0 if self.options.original_tests else -1].state_id
        memo = StoredMemo(self.bench, selection, test)
        searcher = Searcher(
            candidates,
            memo=memo,
            plan=plan or self.options.plan,
            tests=tests,
            hunks=lambda before, after: self._hunks(before, after),
            lacks=lambda hunks, candidate: self._lacks(hunks, candidate),
        )
        for subject, observation in self._given(sightings, candidates):
            memo.add(subject, observation)
        if self.options.jobs > 1:
            self._search_in_parallel(searcher, test, selection)
        else:
            self._search(searcher, test, selection)
        account = Account(
            bench=self.bench,
            run=self.run,
            facts=self._facts,
            candidates=candidates,
            all_states=len(self._candidates),
            tests=tests,
            selection=selection,
            sightings=sightings,
        )
        return blame_of(test, searcher, account)

    def selection(self, test: str) -> tuple[str, ...]:
        """What the command is given to run just this test."""
        return (test,) if test and self.bench.command.pytest else ()

    def fails_at_the_end(self, test: str) -> bool:
        """Whether the test fails on the final state, executed once unless that is known."""
        subject = Subject(self._candidates[-1].state_id)
        known = self.bench.known(subject, self.selection(test))
        execution = known[-1] if known else self._execute(subject, test, Purpose.REPRODUCE)
        return observed(execution, test).kind is not Kind.PASSED

    @property
    def different_states(self) -> int:
        """How many states there are to run a test on."""
        return len({one.state_id for one in self._candidates})

    @property
    def last_step(self) -> int:
        """The last step that made a state."""
        return max((max(one.steps, default=0) for one in self._candidates), default=0)

    @property
    def usual_duration(self) -> float | None:
        """Seconds that an execution took so far, the middle one; None: none was made."""
        run_id = self.run.id if self.run is not None else ""
        known = self.bench.store.memo.executions(run_id=run_id)
        durations = sorted(one.duration for one in known if one.duration is not None)
        return durations[len(durations) // 2] if durations else None

    def meant(self, tests: Sequence[str]) -> list[str]:
        """The tests that are named; for files, folders and classes those below that fail."""
        if not tests or not self.bench.command.pytest:
            return list(tests) or self.failing()
        found: dict[str, None] = {}
        for test in tests:
            if "::" in test and not self._is_class(test):
                found[test] = None
            else:
                found.update(dict.fromkeys(self.failing(test.rstrip("/"))))
        return list(found)

    def _is_class(self, test: str) -> bool:
        path, _, name = test.partition("::")
        contents = [self.sides.read_final(path), self.sides.read_base(path)]
        names = {one for content in contents if content for one in sources_in(content) or ()}
        return name not in names and any(one.startswith(f"{name}::") for one in names)

    def failing(self, below: str = "") -> list[str]:
        """The tests that fail on the final state, and those that the run itself saw fail; of tests
        that do not come to their end, the one that they came to.

        `below`: of this file, folder or class only. Of a command that names no tests: itself, as
        the empty text. Raises RepoTraceError if there are no tests, or none can be run.
        """
        if not self.bench.command.pytest:
            return [""]
        last = self._candidates[-1].state_id
        execution = self.bench.execute(
            Subject(last), [below] if below else [], purpose=str(Purpose.REPRODUCE)
        )
        results = verdicts(execution.outcomes)
        collectors = {one.node_id for one in execution.outcomes if one.phase == "collect"}
        failing = [test for test, result in results.items() if result in FAILING]
        found = [test for test in failing if test not in collectors]
        found += [self._one_of(name) for name in failing if name in collectors]
        for test in self.agent.tests:
            if below and not test.startswith((f"{below}::", f"{below}/")):
                continue
            if any(seen.result in FAILING and "::" in test for seen in self.agent.of(test)):
                found.append(test)
        ended = execution.complete and execution.origin is not None
        if not found and not (ended and results):
            found = [self._stuck(execution, below, results)]
        return list(dict.fromkeys(found))

    def _stuck(self, execution: Execution, below: str, reached: Collection[str]) -> str:
        """The first test that was not reached by tests that did not come to their end."""
        for one in (self._candidates[-1], self._candidates[0]):
            collected = self.bench.collect(one.state_id, [below] if below else [])
            stuck = next((test for test in collected if test not in reached), None)
            if stuck is not None:
                return stuck
        why = execution.problem or observed(execution, below or "?").note
        raise RepoTraceError(
            f"No tests were run {self.sides.about}: {why or 'none were found'}.",
            hint='Name what runs them: --test-cmd "…", or one test and --timeout.',
        )

    def _one_of(self, collector: str) -> str:
        """A test of a file that cannot be collected; the file itself if none is known."""
        for one in reversed(self._candidates):
            content = self.bench.store.snapshots.read(one.state_id, collector)
            names = sources_in(content) if content is not None else None
            for name in names or ():
                if name.rpartition("::")[2].startswith("test"):
                    return f"{collector}::{name}"
        return collector

    def _execute(self, subject: Subject, test: str, purpose: Purpose) -> Execution:
        return self.bench.execute(subject, self.selection(test), purpose=str(purpose))

    def _until(self, test: str, sightings: Sequence[Sighting]) -> int:
        """The index of the state to search up to: the last one, unless the run repaired it."""
        last = len(self._candidates) - 1
        failing = [seen for seen in sightings if seen.result in FAILING and seen.state_id]
        if not failing or sightings[-1].result in FAILING or self.fails_at_the_end(test):
            return last
        seen = failing[-1]
        places = [
            one.index
            for one in self._candidates
            if one.state_id == seen.state_id and max(one.steps, default=0) <= seen.step_number
        ]
        return places[-1] if places else last

    def _given(
        self, sightings: Sequence[Sighting], candidates: Sequence[Candidate]
    ) -> Iterator[tuple[Subject, Observation]]:
        """What the run itself saw of the test, on states that are exactly what it had."""
        exact = {one.state_id for one in candidates if not one.inferred}
        root = (self.run.workspace or "") if self.run is not None else ""
        for seen in sightings:
            reliable = all(one.origin == OutcomeOrigin.PLUGIN for one in seen.outcomes)
            if seen.state_id not in exact or not seen.outcomes or not reliable:
                continue
            kind, fingerprint, note = of_outcomes(seen.outcomes, seen.result, root)
            if kind is Kind.FAILED and not any(one.details for one in seen.outcomes):
                continue  # nobody knows whether it is the same failure
            yield (
                Subject(seen.state_id),
                Observation(kind, fingerprint, given=True, source=seen.outcomes[-1].id, note=note),
            )

    def _hunks(self, before: Candidate, after: Candidate) -> list[str]:
        changes = self.bench.subjects.changes(before.state_id, after.state_id, tests=False)
        return [change.id for change in changes]

    def _lacks(self, hunks: Sequence[str], candidate: Candidate) -> bool:
        read = self.bench.store.snapshots.read
        for change in map(self.bench.subjects.change, hunks):
            states = change.before, change.after, candidate.state_id
            if is_undone(change.hunk, *(read(state, change.path) for state in states)):
                return True
        return False

    # --- Executing --------------------------------------------------------------------------

    def _search(self, searcher: Searcher, test: str, selection: Sequence[str]) -> None:
        while probes := searcher.next():
            for probe in probes:
                self._tell_progress(test, searcher)
                searcher.tell(probe, self._answer(probe, test, selection, 0))

    def _answer(
        self, probe: Probe, test: str, selection: Sequence[str], worker: int
    ) -> Observation:
        execution = self.bench.execute(
            probe.subject,
            selection,
            purpose=str(probe.purpose),
            alone=probe.alone,
            worker=worker,
            timeout=self._limit(test),
        )
        seen = observed(execution, test)
        if seen.passed and seen.duration is not None:
            self._took[test] = max(seen.duration, self._took.get(test, 0.0))
        return seen

    def _limit(self, test: str) -> float | None:
        """Seconds for one execution: a change may well have made an endless loop."""
        if self.bench.options.timeout is not None:
            return self.bench.options.timeout
        took = self._took.get(test)
        return LONGEST if took is None else max(LEAST_TIME, PATIENCE * took)

    def _search_in_parallel(self, searcher: Searcher, test: str, selection: Sequence[str]) -> None:
        jobs = self.options.jobs
        free = list(range(jobs))
        running: dict[Future[Observation], tuple[Probe, int]] = {}
        with workers(jobs, "repotrace-worker") as pool:
            while (probes := searcher.next(jobs)) or running:
                for probe in probes:
                    worker = free.pop(0)
                    job = pool.submit(self._answer, probe, test, selection, worker)
                    running[job] = (probe, worker)
                self._tell_progress(test, searcher)
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for job in done:
                    probe, worker = running.pop(job)
                    free.append(worker)
                    searcher.tell(probe, job.result())

    def _tell_progress(self, test: str, searcher: Searcher) -> None:
        if self.options.on_progress is not None:
            self.options.on_progress(self._moment(test, searcher.progress))

    def _moment(self, test: str, progress: Progress) -> Moment:
        probe = progress.probe
        index = probe.candidate if probe is not None else None
        return Moment(
            test=test,
            purpose=str(probe.purpose) if probe is not None else "",
            where="with hunks" if index is None else self._place(index),
            passes="" if progress.passes is None else self._place(progress.passes),
            fails="" if progress.fails is None else self._place(progress.fails),
            executions=progress.executions,
            left=progress.left,
        )

    def _place(self, index: int) -> str:
        steps = self._candidates[index].steps
        if self.run is not None and steps:
            return f"after step {max(steps)}"
        return "at the beginning" if index == 0 else "at the end"


def blame_run(
    workspace: Workspace,
    run: Run | str,
    test: str | None = None,
    *,
    testing: Testing | None = None,
    trusted: bool = False,
    options: BlameOptions | None = None,
) -> list[Blame]:
    """What broke a test of a run; without one, every test that fails at its end or that the run
    itself saw fail.

    `workspace`: the folder of a project, or its store. A command that is no pytest is judged as a
    whole where no test is named.

    Raises NotTrusted if the run came from elsewhere and is not `trusted`, RepoTraceError if the
    files of the run were not kept, or nothing is known that runs its tests.
    """
    store = store_of(workspace)
    found = named_run(store, run) if isinstance(run, str) else run
    sides = sides_of_run(store, found)
    with bench_for(store, workspace_of(found, store), testing, run=found) as bench:
        bench.permit(trusted=trusted)
        blaming = Blaming(bench, sides, found, options)
        tests = blaming.meant([test] if test is not None else [])
        return [blaming.blame(one) for one in tests]
