"""One suite on one state: what its execution says of each test; and two suites at once.

What fails while another suite runs beside it is run again alone, and that counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from repotrace.blame.evidence import Kind, Purpose, Subject
from repotrace.outcomes import verdicts
from repotrace.records.run import FAILING, OutcomeOrigin, TestResult
from repotrace.runs.testing.executions import Bench, workers
from repotrace.runs.testing.observing import is_pytest, observed
from repotrace.storage.memo import Execution

PASSING = frozenset({TestResult.PASSED, TestResult.XPASSED})

LONGEST = 600.0
"""Seconds for the later of two suites while nobody knows how long the earlier one takes."""
_LEAST_TIME = 60.0
_PATIENCE = 10
"""The suite on the final state may take so many times as long as on the base."""
_FEW = 50
"""Failing tests that are run again by name; with more of them the whole suite is."""
_NAMED = 3


@dataclass(slots=True)
class Results:
    """What one execution of a suite says of each test."""

    execution: Execution
    tests: dict[str, TestResult] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    uncollected: dict[str, str] = field(default_factory=dict)
    """Files that could not be collected, with the reason."""
    names_all: bool = True
    """Whether passing tests are named like failing ones."""

    @classmethod
    def of(cls, execution: Execution) -> Results:
        """The results of an execution; of a command that names no tests, its own."""
        found = cls(execution)
        for outcome in execution.outcomes:
            if outcome.phase == "collect" and outcome.outcome in FAILING:
                found.uncollected[outcome.node_id] = outcome.message or "it cannot be imported"
            elif outcome.message:
                found.messages.setdefault(outcome.node_id, outcome.message)
        collectors = {one.node_id for one in execution.outcomes if one.phase == "collect"}
        results = verdicts(execution.outcomes)
        found.tests = {name: result for name, result in results.items() if name not in collectors}
        named = any(result in PASSING for result in found.tests.values())
        found.names_all = named or execution.origin != OutcomeOrigin.PARSED
        if execution.origin is None and not is_pytest(execution):
            whole = observed(execution)
            if whole.kind in (Kind.PASSED, Kind.FAILED):
                passed = whole.kind is Kind.PASSED
                result = TestResult.PASSED if passed else TestResult.FAILED
                found.tests = {execution.command_line: result}
                found.messages[execution.command_line] = whole.note
        return found

    @property
    def whole(self) -> bool:
        """Whether the command told of no test, so that it counts as one itself."""
        return self.tests.keys() == {self.execution.command_line}

    def beside(self, other: Results) -> None:
        """Of a runner that names only what fails, a success is one of all tests that the other
        side names."""
        if (
            self.whole
            and other.tests
            and not other.whole
            and self.execution.command.failed is False
        ):
            self.tests, self.names_all = {}, False

    def file_error(self, test: str) -> str | None:
        """Why the file of a test could not be collected; None if that is not the reason."""
        file = test.partition("::")[0]
        for name, message in self.uncollected.items():
            folder = name.rstrip("/")
            if folder in ("", ".", file) or file.startswith(f"{folder}/"):
                return message
        return None

    @property
    def ended(self) -> bool:
        """Whether all tests were run that were found."""
        execution = self.execution
        if execution.problem is not None or not execution.complete:
            return False
        return execution.origin is not None or not is_pytest(execution)

    @property
    def problem(self) -> str | None:
        """Why the suite did not run to its end, or has no tests; None if all is well."""
        execution = self.execution
        if execution.problem is not None:
            return execution.problem
        if not self.ended:
            return f"{execution.command.ending}{_last_words(execution)}"
        if self.tests or self.uncollected:
            return None
        if execution.command.exit_code in (126, 127):
            return execution.command.ending
        return "no tests were collected"


def _last_words(execution: Execution) -> str:
    """Why a session could not start, after a colon; empty if it says nothing of that."""
    if not is_pytest(execution):
        return ""
    error = observed(execution, "?")
    if error.kind is Kind.ERROR:
        return f": {error.note}"
    if execution.origin is not None:
        return ""
    lines = execution.command.stderr.text.strip() or execution.command.stdout.text.strip()
    return f": {lines.rpartition('\n')[2][:200]}" if lines else ""


class Asked(NamedTuple):
    """One suite that is to be run."""

    state: str
    paths: Sequence[str]
    """Files of tests; all tests if there are none."""


def limit_after(base: Results, given: float | None) -> float | None:
    """Seconds for the suite on the final state; None: as given for all, or not known."""
    took = base.execution.duration
    if took is None or not base.ended or given is not None:
        return None
    return max(_LEAST_TIME, _PATIENCE * took)


def run_both(bench: Bench, base: Asked, final: Asked) -> tuple[Results, Results, list[str]]:
    """Both suites at once, each in a worker of its own, and what there is to say of that.

    A failure is believed only alone: the tests that failed are run again, and where they pass
    then, so is their suite. Raises KeyboardInterrupt when it is interrupted.
    """
    limit = LONGEST if bench.options.timeout is None else None
    jobs = ((0, base, None), (1, final, limit))

    def suite(job: tuple[int, Asked, float | None]) -> Results:
        worker, asked, seconds = job
        return Results.of(
            bench.execute(
                Subject(asked.state),
                asked.paths,
                purpose=str(Purpose.REPRODUCE),
                alone=False,
                worker=worker,
                timeout=seconds,
            )
        )

    with workers(len(jobs), "repotrace-suite") as pool:
        before, after = pool.map(suite, jobs)
    notes: list[str] = []
    before = _alone(bench, base, before, None, notes)
    after = _alone(bench, final, after, limit_after(before, bench.options.timeout), notes)
    return before, after, notes


def _alone(
    bench: Bench, asked: Asked, beside: Results, limit: float | None, notes: list[str]
) -> Results:
    """`beside`, unless it says otherwise when nothing runs beside it."""
    failing = [test for test, result in beside.tests.items() if result in FAILING]
    if beside.ended and not failing:
        return beside

    def again(tests: Sequence[str]) -> Results:
        purpose = str(Purpose.REPRODUCE)
        return Results.of(
            bench.execute(Subject(asked.state), tests, purpose=purpose, timeout=limit)
        )

    if beside.ended and bench.command.pytest and len(failing) <= _FEW:
        alone = again(failing)
        if all(alone.tests.get(test) in FAILING for test in failing):
            return beside
    alone = again(asked.paths)
    other = list(_different(beside, alone))
    if other:
        named = ", ".join(other[:_NAMED]) + (", …" if len(other) > _NAMED else "")
        what = "1 test" if len(other) == 1 else f"{len(other)} tests"
        notes.append(f"{what} gave another result beside the other suite; alone counts: {named}")
    elif beside.ended != alone.ended:
        notes.append(f"beside the other suite it did not end ({beside.problem}); alone counts")
    return alone


def _different(beside: Results, alone: Results) -> Iterator[str]:
    for test in dict.fromkeys([*beside.tests, *alone.tests]):
        results = (beside.tests.get(test), alone.tests.get(test))
        if (results[0] in FAILING) != (results[1] in FAILING):
            yield test
