"""What the pages say of a run: the facts that a reader asks for first."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from repotrace.read.views import Alert, StepLine
from repotrace.readable import seconds
from repotrace.records.run import (
    FAILING,
    ExecutionStep,
    RunTotals,
    StepCommand,
    StepStatus,
    TestOutcome,
)
from repotrace.runs.alerts.rules import QUOTING
from repotrace.runs.export.selection import Selection

_LIMIT = 60_000
_OUTCOMES = {"passed": "tests pass", "failed": "tests fail", "not-run": "no tests were run"}


class Failing(NamedTuple):
    """A test and how it failed last."""

    outcome: TestOutcome
    step_number: int
    repaired_in: int | None = None
    """The later step in which it passed."""


class Account:
    """A selection, as a page tells it."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.run = selection.run
        self.steps = {step.id: step for step in selection.steps}
        self.numbers = {step.id: step.step_number for step in selection.steps}

    @property
    def limit(self) -> int:
        """Bytes of a text that a page shows."""
        return self.selection.options.max_bytes or _LIMIT

    @property
    def title(self) -> str:
        """What was asked, or the id."""
        first, _, more = (self.run.task or "").strip().partition("\n")
        if first.endswith(":") and more.strip():  # it announces what was asked
            first = f"{first} {more.strip().partition('\n')[0].lstrip('# ')}"
        return first or f"Run {self.run.id}"

    @property
    def outcome(self) -> str:
        """How it ended: `tests pass`, else how far it came."""
        return _OUTCOMES.get(self.run.outcome or "", self.run.outcome or "no tests were seen")

    @property
    def broken(self) -> str:
        """`1 test broken by step 6`: what blame found; empty for nothing."""
        named = [blame for blame in self.selection.blames if blame.named and not blame.repaired]
        if not named:
            return ""
        steps = sorted({step.number for blame in named for step in blame.steps})
        tests = "1 test" if len(named) == 1 else f"{len(named)} tests"
        noun = "step" if len(steps) == 1 else "steps"
        return f"{tests} broken by {noun} {', '.join(map(str, steps[:5]))}"

    @cached_property
    def alerts(self) -> list[Alert]:
        """What somebody should look at in the steps that are shown; no words of models where
        these are left out."""
        shown = {step.step_number for step in self.selection.steps}
        return [
            alert
            if self.selection.options.llm or alert.rule not in QUOTING
            else alert.model_copy(update={"evidence": ()})
            for alert in self.selection.view.alerts
            if alert.step is None or alert.step in shown
        ]

    @property
    def is_good(self) -> bool | None:
        """Whether the tests pass at the end, as the run saw them; None: not known."""
        return {"passed": True, "failed": False}.get(self.run.outcome or "")

    @cached_property
    def facts(self) -> dict[str, str]:
        """The summary, in the order in which one reads it."""
        run, totals, view = self.run, self.run.totals, self.selection.view
        tokens = f"{totals.input_tokens:,} tokens in, {totals.output_tokens:,} out"
        if not totals.input_tokens and totals.tokens_used:
            tokens = f"{totals.tokens_used:,} tokens"
        cost = f", {totals.cost_usd:.4f} USD" if totals.cost_usd else ""
        unknown = f" ({totals.unpriced_calls} of unknown cost)" if totals.unpriced_calls else ""
        retries = view.retries
        facts = {
            "Run": run.id,
            "Agent": " ".join(filter(None, [run.agent or "unknown", run.agent_version])),
            "Models": ", ".join(run.models),
            "Status": f"{run.status}; {self.outcome}",
            "Started": run.started_at.strftime("%Y-%m-%d %H:%M UTC"),
            "Took": seconds(view.duration) if view.duration is not None else "",
            "Steps": _counted(totals.steps, {"failed": totals.failed_steps}),
            "Retries": f"{retries.count}: {retries.tokens:,} tokens, {seconds(retries.duration)}"
            if retries.count
            else "",
            "Files": f"{totals.files_modified} changed{lines_of(totals, ', ', ' lines')};"
            f" {totals.files_read} read",
            "Tests": _counted(totals.tests, {"fail at the end": totals.tests_failing})
            if totals.tests
            else "none seen",
            "Model calls": f"{totals.llm_calls}: {tokens}{cost}{unknown}",
            "Task": run.task_id or "",
            "Branch of": f"{run.parent_run_id}, step {run.branched_from_step}"
            if run.parent_run_id
            else "",
            "Commit": (run.base_commit or "")[:12],
            "Tags": ", ".join(run.tags),
            "Error": run.error or "",
            "Lost": f"{totals.lost} events" if totals.lost else "",
            "Shown": self._shown(),
            "Left out": "; ".join(self.selection.left_out.told),
        }
        return {name: text for name, text in facts.items() if text}

    def _shown(self) -> str:
        steps, whole = self.selection.steps, self.run.totals.steps
        if len(steps) == whole or not steps:
            return ""
        first, last = steps[0].step_number, steps[-1].step_number
        return f"steps {first} to {last} of {whole}"

    def line(self, step: ExecutionStep) -> StepLine:
        """The row of a step in a table."""
        return self.selection.lines[step.id]

    def took(self, step: ExecutionStep) -> str:
        """How long; empty if it has not ended."""
        value = self.line(step).duration
        return "" if value is None else seconds(value)

    @cached_property
    def failing(self) -> list[Failing]:
        """The tests that failed when they were seen last."""
        return [one for one in self._failures if one.repaired_in is None]

    @cached_property
    def repaired(self) -> list[Failing]:
        """The tests that failed and passed later."""
        return [one for one in self._failures if one.repaired_in is not None]

    @cached_property
    def _failures(self) -> list[Failing]:
        last: dict[str, Failing] = {}
        for outcome in self.selection.trace.test_outcomes:
            number = self.numbers.get(outcome.step_id, 0)
            known = last.get(outcome.node_id)
            if outcome.outcome in FAILING:
                if known is None or known.step_number != number or not known.outcome.details:
                    last[outcome.node_id] = Failing(outcome, number)
            elif (
                known is not None
                and known.repaired_in is None
                and known.step_number != number
                and outcome.phase == "call"
            ):
                last[outcome.node_id] = known._replace(repaired_in=number)
        return list(last.values())

    @cached_property
    def failed_command(self) -> StepCommand | None:
        """The last command that failed, where no test is known to."""
        failed = [one for one in self.selection.trace.commands if one.exit_code]
        return failed[-1] if failed else None

    def retries(self) -> Iterator[tuple[ExecutionStep, int | None]]:
        """The steps that try again, and the number of the step that they repeat."""
        for step in self.selection.steps:
            if step.attempt > 1:
                yield step, self.line(step).retry_of

    def reasons(self) -> Iterator[tuple[int, int, str]]:
        """Why steps were taken, each reason once with the first and the last of its steps."""
        said = (step for step in self.selection.steps if step.reason)
        for reason, steps in groupby(said, key=lambda step: step.reason or ""):
            numbers = [step.step_number for step in steps]
            yield numbers[0], numbers[-1], reason


def lines_of(counted: RunTotals | StepLine, before: str = " ", after: str = "") -> str:
    """`+3 -1` between two texts; empty where no lines are known to have changed."""
    added, removed = counted.lines_added, counted.lines_removed
    return f"{before}+{added} -{removed}{after}" if added or removed else ""


def is_failed(step: ExecutionStep) -> bool:
    """Whether the step itself failed, or was broken off."""
    return step.status in (StepStatus.FAILED, StepStatus.INTERRUPTED)


def tests_of(line: StepLine) -> str:
    """`2 passed, 1 failed`; empty for a step that ran no tests."""
    if line.tests is None:
        return ""
    names = {"failed": "failed", "errors": "errors", "passed": "passed", "skipped": "skipped"}
    counts = ((getattr(line.tests, name), word) for name, word in names.items())
    return ", ".join(f"{count} {word}" for count, word in counts if count)


def _counted(whole: int, parts: dict[str, int]) -> str:
    told = [f"{count} {name}" for name, count in parts.items() if count]
    return ", ".join([str(whole), *told])
