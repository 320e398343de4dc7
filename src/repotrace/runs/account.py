"""What was done in a run up to a step, in a line each: for an agent that goes on from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from repotrace.read.lines import StepLines
from repotrace.read.views import StepLine
from repotrace.records.run import ExecutionStep, Run, StepStatus, StepType
from repotrace.storage import Store
from repotrace.storage.overview import Outline

_LONGEST = 40
"""Steps that are told of; of more, the last ones."""

_TESTS = 3
_TEXT = 200


def account_of(store: Store, run: Run, number: int) -> list[str]:
    """The steps up to one that did something: what, what came of it, and the words that led to
    it. Model calls are left out, and so are steps that are made of others. Of a branch, those of
    the run before it come first."""
    told, more = _told(store, run, number)
    known = {run.id}
    while len(told) < _LONGEST and run.parent_run_id not in known:
        parent = store.runs.named(run.parent_run_id) if run.parent_run_id else None
        if parent is None or run.branched_from_step is None:
            break
        earlier, before = _told(store, parent, run.branched_from_step)
        told = [*(f"earlier {line}" for line in earlier), *told]
        more += before
        known.add(parent.id)
        run = parent
    cut = max(0, len(told) - _LONGEST)
    return [*([f"({more + cut} steps before)"] if more + cut else []), *told[cut:]]


def _told(store: Store, run: Run, number: int) -> tuple[list[str], int]:
    """A line each for the last steps up to one, and how many were before."""
    with store.runs.overview() as overview:
        if overview is None:
            return [], 0
        lines = StepLines(overview, run)
        parents = {step.parent_id for step in lines.outline}
        within = parts_of(lines.outline, number)
        done = [
            step
            for step in lines.outline
            if (step.number <= number or step.number in within)
            and step.step_type != StepType.LLM
            and step.id not in parents
        ]
        told = list(lines.of(done[-_LONGEST:]))
    reasons = [None, *(line.reason for line in told)]
    texts = [
        f"{line.number}. {'; '.join(_facts(line, is_new=line.reason != before))}"
        for line, before in zip(told, reasons, strict=False)
    ]
    return texts, len(done) - len(told)


def parts_of(steps: Sequence[ExecutionStep | Outline], number: int) -> set[int]:
    """The numbers of the steps that a step is made of; what it did includes them."""
    within = {step.id for step in steps if _number(step) == number}
    found: set[int] = set()
    for step in steps:  # parts come after what they are parts of
        if step.parent_id in within:
            within.add(step.id)
            found.add(_number(step))
    return found


def _number(step: ExecutionStep | Outline) -> int:
    return step.step_number if isinstance(step, ExecutionStep) else step.number


def _facts(line: StepLine, *, is_new: bool) -> Iterator[str]:
    what = _short(line.description) or line.step_type
    ran = [_short(command.command_line) for command in line.commands]
    ran = [command for command in ran if command and command not in what]
    if ran:
        what = f"{what}: {', '.join(f'`{command}`' for command in ran)}"
    named = [path for path in line.files if path not in what]
    if named:
        what = f"{what}: {', '.join(named[:_TESTS])}{_more(len(named) - _TESTS)}"
    if line.files:
        what = f"{what} +{line.lines_added} -{line.lines_removed}"
    yield f"{what}{_outcome(line)}"
    if line.reason and is_new:
        yield f"because: {_short(line.reason)}"


def _outcome(line: StepLine) -> str:
    tests = line.tests
    if tests is not None and tests.failing:
        names = line.failing_tests[:_TESTS]
        of = f"{tests.failing} of {tests.total} tests"
        return f" → {of} failed: {', '.join(names)}{_more(tests.failing - len(names))}"
    if tests is not None and tests.total:
        return " → the tests passed" if tests.total > 1 else " → the test passed"
    codes = [command.exit_code for command in line.commands if command.exit_code]
    if codes:
        return f" → exit code {codes[-1]}"
    return " → failed" if line.status == StepStatus.FAILED else ""


def _more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TEXT else f"{line[:_TEXT]}…"
