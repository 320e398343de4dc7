"""What a run broke: the suite on the files of before and of after, and what differs.

A test counts as broken that passed before and fails now; or that was deleted, skipped or expected
to fail, and fails now as it was. What cannot be run, or comes and goes, is undecided.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from repotrace.blame.evidence import Purpose, Subject
from repotrace.records.blame import Change, Check, CheckedTest, Suite
from repotrace.records.command import CommandRun
from repotrace.records.run import FAILING, Run, TestResult
from repotrace.runs.checking.nearness import by_nearness
from repotrace.runs.checking.sides import Sides
from repotrace.runs.testing.agent_tests import AgentTests
from repotrace.runs.testing.executions import Bench
from repotrace.runs.testing.sources import gained_assertions, lost_assertions, source_of
from repotrace.runs.testing.suites import PASSING, Asked, Results, limit_after, run_both
from repotrace.runs.testing.uncaptured import uncaptured_in
from repotrace.storage.memo import Execution

_HIDING = (Change.DELETED, Change.GONE, Change.SKIPPED, Change.XFAILED)
_ORDER = {change: number for number, change in enumerate(Change)}

type Say = Callable[[str], None]


def order_of(entry: CheckedTest) -> tuple[int, str]:
    """What is broken comes first."""
    return _ORDER.get(Change(entry.change), len(_ORDER)), entry.test


def quiet(text: str) -> None:
    """Tells nobody."""


@dataclass(slots=True)
class _Checking:
    bench: Bench
    sides: Sides
    say: Say
    agent: AgentTests
    chosen: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)

    # --- Running ----------------------------------------------------------------------------

    def suite(
        self, subject: Subject, paths: Sequence[str], what: str, timeout: float | None = None
    ) -> Results:
        self.say(f"{what}: {shlex.join(paths)}" if paths else what)
        execution = self.bench.execute(
            subject, paths, purpose=str(Purpose.REPRODUCE), timeout=timeout
        )
        return Results.of(execution)

    def both(self, wanted: Sequence[str], jobs: int) -> tuple[Results, Results]:
        """The suites of the base and of the final state, with more than one job at once."""
        sides, pytest = self.sides, self.bench.command.pytest
        states = (sides.base_state, sides.final_state)
        paths = [self.paths(state, wanted) for state in states]
        if jobs > 1 and not (pytest and None in paths):
            asked = [Asked(state, own or ()) for state, own in zip(states, paths, strict=True)]
            self.say("both suites at once")
            base, final, notes = run_both(self.bench, *asked)
            self.notes += notes
            return base, final
        results: list[Results] = []
        limit: float | None = None
        for state, own, what in zip(states, paths, (sides.base_about, sides.about), strict=True):
            if own is None and pytest:
                self.notes.append(f"{what} has none of the chosen tests")
                results.append(Results.of(_nothing(self.bench, state)))
                continue
            results.append(self.suite(Subject(state), own or (), what, limit))
            limit = limit_after(results[-1], self.bench.options.timeout) or limit
        return results[0], results[1]

    def paths(self, state_id: str, wanted: Sequence[str]) -> list[str] | None:
        """Those files of the wanted tests that a state has; None: it has none of them."""
        if not wanted:
            return []
        files = dict.fromkeys(test.partition("::")[0] for test in wanted)
        found = [path for path in files if self.sides.has(state_id, path)]
        return found or None

    def nearest(self, budget: int) -> list[str]:
        """The files of the tests nearest to what changed, as far as the budget goes."""
        states = (self.sides.base_state, self.sides.final_state)
        self.say("collecting the tests of both states")
        collected = [
            self.bench.collect(state, self.paths(state, self.chosen) or ()) for state in states
        ]
        tests = list(dict.fromkeys([*collected[1], *collected[0]]))
        tests = [test for test in tests if self._is_wanted(test)]
        ordered = by_nearness(tests, self.sides.changed, self.sides.read_final)
        kept: dict[str, None] = {}
        count = 0
        for file, own in ordered:
            if count and count + len(own) > budget:
                self.unchecked += own
                continue
            kept[file] = None
            count += len(own)
        return list(kept)

    def _is_wanted(self, test: str) -> bool:
        return not self.chosen or any(
            test == one or test.startswith((f"{one}::", f"{one}/", f"{one}["))
            for one in self.chosen
        )

    # --- Comparing --------------------------------------------------------------------------

    def compared(self, base: Results, final: Results) -> list[CheckedTest]:
        found = []
        stuck = next((test for test in base.tests if test not in final.tests), None)
        for test in dict.fromkeys([*base.tests, *final.tests]):
            if not self._is_wanted(test) and test != base.execution.command_line:
                continue
            entry = self.entry(test, base, final)
            if entry is not None:
                if test == stuck and entry.change == Change.UNDECIDED and not final.ended:
                    ending = final.execution.command.ending
                    message = f"the suite came as far as this: {ending}"
                    entry = entry.model_copy(update={"message": message, "stuck": True})
                by_agent, step = self.agent.ran(test)
                about = {
                    "by_agent": by_agent,
                    "agent_step": step,
                    "agent_result": self.agent.result(test, step),
                }
                found.append(entry.model_copy(update=about))
        return found

    def entry(self, test: str, base: Results, final: Results) -> CheckedTest | None:
        before, after = base.tests.get(test), final.tests.get(test)
        if before is None and not base.names_all and base.ended:
            before = TestResult.PASSED
        if after is None and not final.names_all and final.ended:
            after = TestResult.PASSED
        about: dict[str, Any] = {"test": test, "before": before, "after": after}
        message = final.messages.get(test, "")
        if before is None:
            return self._new(about, test, base, message)
        if before not in PASSING:
            if after in PASSING:
                if before in FAILING:
                    return CheckedTest(change=Change.FIXED, **about)
                return None
            if before in FAILING and after in FAILING:
                return self._failed_before(about, message, final)
            if before in FAILING and after is None and self.bench.command.pytest:
                return self._missing(about, test, final)
            return None
        if after in PASSING:
            return self._weakened(about, test)
        if after is None:
            return self._missing(about, test, final)
        change = {
            TestResult.SKIPPED: Change.SKIPPED,
            TestResult.XFAILED: Change.XFAILED,
        }.get(after, Change.BROKEN)
        return CheckedTest(change=change, message=message, **about)

    def _new(
        self, about: dict[str, Any], test: str, base: Results, message: str
    ) -> CheckedTest | None:
        after = about["after"]
        error = base.file_error(test)
        if error is not None or not base.ended:
            if after in FAILING:
                why = error or "the suite on the base did not run to its end"
                return CheckedTest(change=Change.UNDECIDED, message=f"before: {why}", **about)
            return CheckedTest(change=Change.FIXED, **about) if error is not None else None
        change = Change.NEW_FAILING if after in FAILING else Change.NEW
        return CheckedTest(change=change, message=message, **about)

    def _failed_before(self, about: dict[str, Any], message: str, final: Results) -> CheckedTest:
        """A test that fails on both sides, perhaps for want of a file that no state holds."""
        paths = sorted(set(uncaptured_in(message, final.execution, self.bench)))
        if not paths:
            return CheckedTest(change=Change.FAILED_BEFORE, message=message, **about)
        link = ", ".join(f'"{path}"' for path in paths)
        message = (
            f"it needs {', '.join(paths)}, which no state holds; add to [tool.repotrace.check]:"
            f" link = [{link}]"
        )
        return CheckedTest(change=Change.UNDECIDED, message=message, **about)

    def uncollected(self, base: Results, final: Results) -> list[CheckedTest]:
        """Files that cannot be collected and of whose tests nothing is known."""
        found = []
        for file, message in final.uncollected.items():
            folder = file.rstrip("/")
            if any(test.startswith((f"{folder}::", f"{folder}/")) for test in base.tests):
                continue
            when = "before and after" if file in base.uncollected else "after"
            told = f"it cannot be collected, {when}: {message}"
            found.append(CheckedTest(test=file, change=Change.UNDECIDED, message=told))
        return found

    def _missing(self, about: dict[str, Any], test: str, final: Results) -> CheckedTest:
        """A test that the final suite told nothing of."""
        error = final.file_error(test)
        if error is not None:
            return CheckedTest(change=Change.NOT_COLLECTED, message=error, **about)
        if not final.ended:
            message = f"not reached: {final.problem}"
            return CheckedTest(change=Change.UNDECIDED, message=message, **about)
        path = test.partition("::")[0]
        if not path.endswith(".py"):
            return CheckedTest(change=Change.GONE, **about)
        content = self.sides.read_final(path)
        gone = content is None or source_of(content, test) is None
        return CheckedTest(change=Change.DELETED if gone else Change.GONE, **about)

    def _weakened(self, about: dict[str, Any], test: str) -> CheckedTest | None:
        path = test.partition("::")[0]
        if path not in self.sides.changed or not path.endswith(".py"):
            return None
        before = source_of(self.sides.read_base(path), test)
        after = source_of(self.sides.read_final(path), test)
        if before is None or after is None:
            return None
        lost = lost_assertions(before, after)
        if not lost:
            return None
        redact = self.bench.options.redactor.redact
        return CheckedTest(
            change=Change.WEAKENED,
            lost=tuple(map(redact, lost)),
            gained=tuple(map(redact, gained_assertions(before, after))),
            **about,
        )

    # --- Originals --------------------------------------------------------------------------

    def with_originals(self, entries: list[CheckedTest]) -> list[CheckedTest]:
        """The tests that were deleted or changed, as they were, on the final code."""
        changes = (*_HIDING, Change.WEAKENED)
        hidden = [one for one in entries if one.change in changes and one.before in PASSING]
        if not hidden or not self.bench.command.pytest:
            return entries
        base, final = self.sides.base_state, self.sides.final_state
        files = list(dict.fromkeys(one.test.partition("::")[0] for one in hidden))
        files = [path for path in files if self.sides.has(base, path)]
        subject = Subject(final, base)
        if not files or not self.bench.subjects.overlay(final, base):
            return entries
        results = self.suite(subject, files, "the tests as they were, on the final code")
        return [self._judged(one, results) if one in hidden else one for one in entries]

    def _judged(self, entry: CheckedTest, results: Results) -> CheckedTest:
        result = results.tests.get(entry.test)
        error = results.file_error(entry.test)
        original = str(result) if result is not None else "cannot be run"
        message = results.messages.get(entry.test, "") or error or entry.message
        entry = entry.model_copy(update={"original": original})
        if entry.change == Change.WEAKENED or result not in FAILING:
            return entry
        update = {"change": Change.HIDDEN, "how": str(entry.change), "message": message}
        return entry.model_copy(update=update)


def check_sides(
    bench: Bench,
    sides: Sides,
    *,
    run: Run | None = None,
    tests: Sequence[str] = (),
    budget: int | None = None,
    jobs: int = 1,
    say: Say = quiet,
) -> Check:
    """The suite on both states, and what differs; nothing is blamed yet.

    `tests`: node ids, files or folders; all by default. `budget`: so many tests at most, those
    nearest to the changed files first. `jobs`: with more than one, both suites at once. Raises
    KeyboardInterrupt when it is interrupted.
    """
    agent = AgentTests(bench.store, run)
    checking = _Checking(bench, sides, say, agent, chosen=tuple(tests))
    wanted: Sequence[str] = tests
    if budget is not None and bench.command.pytest:
        wanted = checking.nearest(budget)
    base, final = checking.both(wanted, jobs)
    base.beside(final)
    final.beside(base)
    entries = checking.with_originals(checking.compared(base, final))
    entries += checking.uncollected(base, final)
    if base.tests and not any(result in PASSING for result in final.tests.values()):
        entries = [_unproven(one) for one in entries]
    if base.tests and all(result in FAILING for result in base.tests.values()):
        checking.notes.append(
            "no test passed on the base; do the copies lack something? see: link, setup and env in"
            " [tool.repotrace.check]"
        )
    entries = [one.model_copy(update={"step": sides.step_of(one)}) for one in entries]
    entries.sort(key=order_of)
    every = dict.fromkeys([*base.tests, *final.tests])
    every = {test: None for test in every if test == bench.line() or checking._is_wanted(test)}
    undecided = {one.test for one in entries if one.change == Change.UNDECIDED}
    undecided |= {one.test for one in entries if one.change == Change.NOT_COLLECTED}
    undecided &= every.keys()
    return Check(
        run_id=run.id if run is not None else None,
        agent=run.agent if run is not None else None,
        command=bench.line(),
        base=_suite("base", sides.base_about, sides.base_inferred, base),
        final=_suite("final", sides.about, sides.inferred, final),
        tests=tuple(entries),
        total=len(every) + len(checking.unchecked),
        checked=len(every) - len(undecided),
        unchecked=tuple(checking.unchecked),
        notes=(*sides.notes, *checking.notes, *([bench.unseen] if bench.unseen else [])),
        created_at=datetime.now(UTC),
    )


def _unproven(entry: CheckedTest) -> CheckedTest:
    """Where no test passes on either side, nothing could have been seen to break."""
    if entry.change != Change.FAILED_BEFORE:
        return entry
    message = f"it fails before and after, as all do: {entry.message}".removesuffix(": ")
    return entry.model_copy(update={"change": Change.UNDECIDED, "message": message})


def _nothing(bench: Bench, state: str) -> Execution:
    return Execution(
        id="",
        key="",
        state_id=state,
        command_line=bench.line(),
        started_at=datetime.now(UTC),
        command=CommandRun(exit_code=5),
        origin="plugin",
    )


def _suite(name: str, about: str, inferred: bool, results: Results) -> Suite:
    execution = results.execution
    counted = list(results.tests.values())
    problem = results.problem
    return Suite(
        name=name,
        about=about,
        state_id=execution.state_id,
        inferred=inferred,
        tests=len(counted),
        passed=sum(result in PASSING for result in counted),
        failed=sum(result in FAILING for result in counted),
        complete=problem is None,
        problem=problem,
        execution=execution.id,
        duration=execution.duration,
    )
