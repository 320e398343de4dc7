"""Runs: many as a list, one with its steps and tests."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from rich.cells import cell_len

from repotrace.read.views import Branch, Patch, RunLine, RunView, StepLine, TestCounts, TestGrid
from repotrace.readable import age, one_line
from repotrace.records.run import Run, RunOutcome, RunStatus, RunTotals
from repotrace.render.alerts import STYLE, alert_count, alert_rows
from repotrace.render.console import WIDE
from repotrace.render.diffs import Line, Span
from repotrace.render.runs_layout import (
    STATUS_STYLES,
    cost_of,
    count,
    fit,
    fit_end,
    known_lines,
    phrase,
    shortened,
    status_word,
    time_of,
    tokens_of,
    usage_of,
    wrapped,
)

ONE_ROW = 150
"""Columns from which on a run has one row in a list."""

_RESULTS: dict[str, tuple[str, str]] = {
    RunOutcome.PASSED: ("tests pass", "green"),
    RunOutcome.FAILED: ("tests fail", "red"),
}
_MARKS = {
    "passed": (".", "green"),
    "failed": ("F", "bold red"),
    "error": ("E", "bold red"),
    "skipped": ("s", "yellow"),
    "xfailed": ("x", "yellow"),
    "xpassed": ("X", "yellow"),
}
_FAILING_SHOWN = 3
_NAMES = (12, 20)
"""Columns for the names of facts, at least and at most."""


# --- Many -----------------------------------------------------------------------------------


def run_list(runs: Sequence[RunLine], *, width: int, now: datetime) -> Iterator[Line]:
    """The runs of a list: one row each where there is room, else two lines each."""
    if width >= ONE_ROW:
        yield from _run_rows(runs, width, now)
        return
    cells = [(run.id, f"{age(run.started_at, now)} ago", *result_of(run)) for run in runs]
    widths = [max((cell_len(cell[n]) for cell in cells), default=0) for n in range(3)]
    for run, (name, when, result, style) in zip(runs, cells, strict=True):
        line = [
            Span(fit(one_line(name), widths[0]), "cyan"),
            Span(f"  {when:>{widths[1]}}  "),
            Span(fit(result, widths[2]), style),
        ]
        room = width - sum(widths) - 6
        title = " · ".join(filter(None, (one_line(run.agent or ""), phrase(run.task or ""))))
        yield [*line, Span(f"  {fit(title, room).rstrip()}" if title and room > 4 else "")]
        alerts = alert_count(run.alerts)
        figures = " · ".join(filter(None, (alerts, *_figures(run.totals, _elapsed(run, now)))))
        margin = " " * (widths[0] + 2)
        for row in wrapped(figures, _beside(len(margin), width)):
            yield [Span(margin), Span(row[: len(alerts)], STYLE), Span(row[len(alerts) :], "dim")]
            alerts = ""


def _run_rows(runs: Sequence[RunLine], width: int, now: datetime) -> Iterator[Line]:
    head = ["RUN", "WHEN", "RESULT", "AGENT", "STEPS", "FILES", "LINES", "TESTS", "TOKENS"]
    head += ["COST", "TIME", "TASK"]
    with_alerts = any(run.alerts for run in runs)
    if with_alerts:
        head.insert(3, "ALERTS")
    rows = [[(title, "bold") for title in head]]
    for run in runs:
        totals = run.totals
        result, style = result_of(run)
        tests = f"{totals.tests_failing}/{totals.tests} fail" if totals.tests_failing else ""
        rows.append(
            [
                (one_line(run.id), "cyan"),
                (age(run.started_at, now), ""),
                (result, style),
                (one_line(run.agent or "", 20), ""),
                (str(totals.steps), ""),
                (str(totals.files_modified), ""),
                (known_lines(totals.lines_added, totals.lines_removed), ""),
                (tests or (str(totals.tests) if totals.tests else ""), ""),
                (tokens_of(totals.tokens_used) if totals.tokens_used else "", ""),
                (cost_of(totals.cost_usd, totals.unpriced_calls) if totals.llm_calls else "", ""),
                (time_of(_elapsed(run, now)), ""),
                (phrase(run.task or ""), ""),
            ]
        )
        if with_alerts:
            rows[-1].insert(3, (str(run.alerts or ""), STYLE))
    right = range(5, 12) if with_alerts else range(4, 11)
    yield from columns(rows, right={1, *right, *([3] if with_alerts else [])}, width=width)


def columns(
    rows: Sequence[Sequence[tuple[str, str]]], *, right: Iterable[int] = (), width: int = WIDE
) -> Iterator[Line]:
    """Cells (text, style) below each other; the last one has the room that is left."""
    to_right = set(right)
    last = max(map(len, rows), default=1) - 1
    widths = [max(cell_len(row[n][0]) for row in rows) for n in range(last)]
    room = width - sum(widths) - 2 * last
    for row in rows:
        line = []
        for number, (text, style) in enumerate(row[:last]):
            pad = " " * (widths[number] - cell_len(text))
            line += [Span(pad if number in to_right else ""), Span(text, style)]
            line.append(Span(("" if number in to_right else pad) + "  "))
        text, style = row[last]
        line.append(Span(text if width >= WIDE else fit(text, max(room, 1)).rstrip(), style))
        yield line


def result_of(run: RunLine | Run) -> tuple[str, str]:
    """How the run came out, in a word or two, and its colour."""
    if run.status != RunStatus.COMPLETED:
        return one_line(run.status, 14), STATUS_STYLES.get(run.status, "")
    return _RESULTS.get(run.outcome or "", ("completed", ""))


def _elapsed(run: RunLine, now: datetime) -> float | None:
    if run.duration is None and run.status == RunStatus.RUNNING:
        return max(0.0, (now - run.started_at).total_seconds())
    return run.duration


def _figures(totals: RunTotals, duration: float | None) -> Iterator[str]:
    yield count(totals.steps, "step")
    if totals.files_modified:
        changed = known_lines(totals.lines_added, totals.lines_removed)
        yield f"{count(totals.files_modified, 'file')} {changed}".rstrip()
    if totals.tests:
        failing = f", {totals.tests_failing} failing" if totals.tests_failing else ""
        yield f"{count(totals.tests, 'test')}{failing}"
    yield from usage_of(totals.tokens_used, totals.cost_usd, totals.unpriced_calls)
    if duration is not None:
        yield time_of(duration)


# --- One ------------------------------------------------------------------------------------


def run_head(view: RunView, *, width: int, now: datetime) -> Iterator[Line]:
    """What a run was, how it came out, and its totals."""
    result, style = result_of(view.run)
    yield [Span(f"Run {one_line(view.run.id)}", "bold cyan"), Span("  "), Span(result, style)]
    facts = list(_facts(view, now))
    least, most = _NAMES
    column = 1 + min(most, max(least, *(len(name) for name, _ in facts)))
    for name, text in facts:
        for row in wrapped(text, _beside(column, width)):
            yield [Span(f"{name:<{column}}", "dim"), Span(row)]
            name = ""
    yield []
    for text in _totals(view):
        yield from ([Span(row)] for row in wrapped(text, width))
    lost = view.run.totals.lost
    if lost:
        warning = f"{count(lost, 'event')} lost: what was recorded is not all that happened"
        yield [Span(warning, "bold yellow")]
    if view.alerts:
        yield []
        yield from alert_rows(view.alerts, width=width)


def _totals(view: RunView) -> Iterator[str]:
    totals, retries = view.run.totals, view.retries
    failed = f", {totals.failed_steps} failed" if totals.failed_steps else ""
    interrupted = f", {view.interrupted_steps} interrupted" if view.interrupted_steps else ""
    read = f"{count(totals.files_read, 'file')} read, {totals.files_modified} edited"
    parts = [f"{count(totals.steps, 'step')}{failed}{interrupted}"]
    if totals.files_read or totals.files_modified:
        parts.append(read)
    if changed := known_lines(totals.lines_added, totals.lines_removed):
        parts.append(f"{changed} lines")
    if totals.commands:
        parts.append(count(totals.commands, "command"))
    if totals.tests:
        tests = f"{count(totals.tests, 'test')} in {count(totals.test_runs, 'test run')}"
        failing = f", {totals.tests_failing} failing" if totals.tests_failing else ""
        parts.append(f"{tests}{failing}")
    yield " · ".join(parts)
    if totals.llm_calls:
        yield _usage(totals)
    if retries.count:
        spent = list(usage_of(retries.tokens, retries.cost_usd, retries.unpriced_calls))
        if view.run.is_timed:
            spent.append(time_of(retries.duration))
        counted = count(retries.count, "retry", "retries")
        yield f"{counted}: {', '.join(spent)}" if spent else counted


def _facts(view: RunView, now: datetime) -> Iterator[tuple[str, str]]:
    run = view.run
    if run.task_id:
        yield "task id", one_line(run.task_id)
    for number, row in enumerate((run.task or "").strip().split("\n")[:6]):
        if run.task:
            yield "task" if not number else "", one_line(row)
    agent = " ".join(filter(None, (run.agent, run.agent_version)))
    yield from _given("agent", agent)
    yield from _given("model" if len(run.models) == 1 else "models", ", ".join(run.models))
    yield from _given("environment", run.environment)
    outcome = f", tests {run.outcome}" if run.outcome else ""
    yield "status", one_line(f"{run.status}{outcome}".replace("tests not-run", "no tests run"))
    yield from _given("error", phrase(run.error or ""))
    began = run.started_at.astimezone(UTC)
    took = ""
    if view.duration is not None:
        word = "last heard of after" if run.completed_at is None else "took"
        took = f", {word} {time_of(view.duration)}"
    yield "started", f"{began:%Y-%m-%d %H:%M:%S} UTC, {age(run.started_at, now)} ago{took}"
    if run.workspace:
        yield "workspace", one_line(run.workspace)
    yield from _given("commit", run.base_commit)
    if run.parent_run_id:
        at = run.branched_from_step
        yield "parent", one_line(run.parent_run_id) + ("" if at is None else f", after step {at}")
    if view.came_from is not None:
        came = view.came_from
        what = "files of " if came.worked_on else ""
        day = f"{came.at.astimezone():%Y-%m-%d}"
        yield "came from", one_line(f"elsewhere: {what}{came.file}, imported {day}")
        if came.left_out:
            yield "left out", "; ".join(came.left_out)
    yield from _given("tags", ", ".join(run.tags))
    yield from _given("source", " ".join(filter(None, (run.source, run.source_id))))
    if run.pinned:
        yield "pinned", "yes"
    for name, value in run.attributes.items():
        words = _as_typed(value) if name == "command" else _plain(value)
        yield one_line(name.replace("_", " "), _NAMES[1]), one_line(words, 300)


def branch_lines(branches: Iterable[Branch]) -> Iterator[Line]:
    """Runs that went on from steps of another one, each on a line of its own."""
    for branch in branches:
        result, style = result_of(branch.run)
        where = "" if branch.step is None else f"step {branch.step} "
        changed = f"  {phrase(branch.modification)}" if branch.modification else ""
        yield [
            Span(f"{where}└─ ", "dim"),
            Span(one_line(branch.run.id), "cyan"),
            Span("  "),
            Span(result, style),
            Span(f"  {count(branch.run.totals.steps, 'step')}{changed}"),
        ]


def _as_typed(command: Any) -> str:
    """A command as it is typed into a shell."""
    return shlex.join(map(str, command)) if isinstance(command, list) else _plain(command)


def _plain(value: Any) -> str:
    """A value as words, without the marks of a programming language."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        facts = {key: item for key, item in value.items() if item not in ([], {}, "", None)}
        return ", ".join(f"{key.replace('_', ' ')} {_plain(item)}" for key, item in facts.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return str(value)


def _given(name: str, value: str | None) -> Iterator[tuple[str, str]]:
    if value:
        yield name, one_line(value)


def _usage(totals: RunTotals) -> str:
    details = [f"{tokens_of(totals.input_tokens)} in", f"{tokens_of(totals.output_tokens)} out"]
    if totals.cache_read_tokens:
        details.append(f"{tokens_of(totals.cache_read_tokens)} from cache")
    if totals.reasoning_tokens:
        details.append(f"{tokens_of(totals.reasoning_tokens)} of reasoning")
    used = list(usage_of(totals.tokens_used, totals.cost_usd, totals.unpriced_calls))
    if not totals.tokens_used:
        used.insert(0, "tokens not known")
    elif totals.input_tokens or totals.output_tokens:
        used[0] += f" ({', '.join(details)})"
    parts = [count(totals.llm_calls, "model call"), *used]
    if totals.unpriced_calls:
        parts.append(f"cost of {count(totals.unpriced_calls, 'call')} not known")
    return " · ".join(parts)


# --- Steps ----------------------------------------------------------------------------------


class _Widths(NamedTuple):
    number: int = 3
    status: int = 6
    kind: int = 8
    time: int = 10

    @classmethod
    def of(cls, steps: Sequence[StepLine]) -> _Widths:
        return cls(
            number=max((len(str(step.number)) for step in steps), default=1),
            status=max((len(status_word(step.status)) for step in steps), default=2),
            kind=max((cell_len(one_line(step.step_type, 12)) for step in steps), default=4),
            time=max((len(time_of(step.duration)) for step in steps), default=0),
        )


def step_table(view: RunView, *, width: int) -> Iterator[Line]:
    """The steps with their details, and where some are left out how many."""
    widths = _Widths.of(view.steps)
    missing = {gap.after: gap.count for gap in view.left_out}
    for step in view.steps:
        yield from step_lines(step, widths, width=width)
        if step.number in missing:
            more = f"… {count(missing[step.number], 'more step')} (all of them with --all)"
            yield [Span(" " * widths.number + "  "), Span(more, "dim")]


def step_lines(step: StepLine, widths: _Widths | None = None, *, width: int) -> Iterator[Line]:
    """A step: what it was on one line, what came of it below."""
    widths = widths or _Widths()
    yield _first(step, widths, width)
    margin = widths.number + widths.status + 4 + 2 * step.depth
    for text, style in _details(step):
        for row in wrapped(text, _beside(margin, width)):
            yield [Span(" " * margin), Span(row, style)]


def _beside(margin: int, width: int) -> int:
    """The columns beside a margin; `WIDE` stays."""
    return width if width >= WIDE else max(width - margin, 20)


def _first(step: StepLine, widths: _Widths, width: int) -> Line:
    status = status_word(step.status)
    head = [
        Span(f"{step.number:>{widths.number}}  ", "bold"),
        Span(f"{status:<{widths.status}}  ", STATUS_STYLES.get(step.status, "")),
        Span("  " * step.depth),
        Span(fit(one_line(step.step_type, 12), widths.kind) + "  ", "cyan"),
    ]
    text = phrase(step.description) or one_line(step.tool or "")
    notes = [f"[{one_line(step.label)}]"] if step.label else []
    if step.attempt > 1:
        of = f" of step {step.retry_of}" if step.retry_of else ""
        notes.append(f"attempt {step.attempt}{of}")
    title = " · ".join(filter(None, (text, *notes)))
    took = time_of(step.duration)
    used = sum(cell_len(span.text) for span in head)
    room = width - used - (len(took) + 2 if took else 0)
    if width >= WIDE:
        return [*head, Span(title), Span(f"  {took}" if took else "", "dim")]
    room = max(room, 4)
    shown = fit(shortened(title, room), room)
    if not took:
        return [*head, Span(shown.rstrip())]
    return [*head, Span(shown), Span(f"  {took}", "dim")]


def _details(step: StepLine) -> Iterator[tuple[str, str]]:
    if step.reason:
        yield f"because: {phrase(step.reason)}", "italic"
    did = []
    if step.files_read:
        did.append(f"{count(step.files_read, 'file')} read")
    if step.files:
        names = ", ".join(one_line(path) for path in step.files[:3])
        more = f" and {len(step.files) - 3} more" if len(step.files) > 3 else ""
        changed = known_lines(step.lines_added, step.lines_removed)
        did.append(f"{names}{more} {changed}".rstrip())
    did += usage_of(step.tokens, step.cost_usd, step.unpriced_calls)
    if did:
        yield " · ".join(did), "dim"
    if step.ambiguous:
        yield "another step was at work meanwhile: changes may be either's", "yellow"
    for command in step.commands[:3]:
        code = "" if command.exit_code is None else f" → exit code {command.exit_code}"
        style = "" if command.exit_code in (0, None) else "red"
        yield f"$ {phrase(command.command_line)}{code}", style
    if len(step.commands) > 3:
        yield f"… {count(len(step.commands) - 3, 'more command')}", "dim"
    if step.tests is not None:
        style = "red" if step.tests.failing else "green"
        yield " ".join(filter(None, (tests_of(step.tests), patch_of(step.patch)))), style
        for node_id in step.failing_tests[:_FAILING_SHOWN]:
            yield f"FAILED {one_line(node_id)}", "red"
        if step.tests.failing > _FAILING_SHOWN:
            yield f"… {step.tests.failing - _FAILING_SHOWN} more", "red"
    codes = {f"exit code {command.exit_code}" for command in step.commands}
    if step.error and step.error not in codes:
        yield f"error: {phrase(step.error)}", "red"
    if step.state_quality not in (None, "exact"):
        yield f"files after this step: {one_line(step.state_quality or '')}", "yellow"


def tests_of(tests: TestCounts) -> str:
    """`1 failed, 2 errors, 4 passed`."""
    parts = [f"{tests.failed} failed"] if tests.failed else []
    parts += [count(tests.errors, "error")] if tests.errors else []
    parts += [f"{tests.passed} passed"] if tests.passed else []
    parts += [f"{tests.skipped} skipped"] if tests.skipped else []
    return ", ".join(parts) or "no tests"


def patch_of(patch: Patch | None) -> str:
    """`on the files of step 3`; empty where nothing is known."""
    if patch is None:
        return ""
    if patch.unchanged:
        return "on files that no step had changed"
    if not patch.steps:
        return f"on state {one_line(patch.state_id or '')[:12]}"
    names = " and ".join(map(str, patch.steps))
    word = "step" if len(patch.steps) == 1 else "steps"
    doubts = [] if patch.quality == "exact" else [f"state {patch.quality}"]
    if patch.ambiguous:
        doubts.append("or of one at work meanwhile")
    return f"on the files of {word} {names}" + (f" ({', '.join(doubts)})" if doubts else "")


# --- Tests ----------------------------------------------------------------------------------


def grid_lines(grid: TestGrid, *, width: int, at: int | None = None) -> Iterator[Line]:
    """Which test did what in which step; nothing where no test ever failed.

    Where there is no room for all steps, the last ones; or those around step `at`, which is
    marked.
    """
    if not grid.tests or not grid.runs:
        return
    names = [one_line(row.node_id) for row in grid.tests]
    cell = max(len(str(run.step_number)) for run in grid.runs) + 1
    name_width = max(max(map(cell_len, names)), 12)
    if width < WIDE:
        name_width = min(name_width, max(width // 2, width - cell * len(grid.runs) - 2))
    most = max(1, (width - name_width - 2) // cell)
    first = max(0, len(grid.runs) - most)
    if at is not None:
        here = sum(run.step_number < at for run in grid.runs)
        first = max(0, min(first, here - most // 2))
    runs = grid.runs[first : first + most]
    skipped = len(grid.runs) - len(runs) + grid.runs_left_out
    earlier = f", {count(skipped, 'other test run')} not shown" if skipped else ""
    yield [Span(f"Tests that failed at some time, by step{earlier}", "bold")]
    head = [Span(fit("step", name_width + 2))]
    for run in runs:
        number = str(run.step_number)
        style = "bold reverse" if run.step_number == at else ""
        head += [Span(" " * (cell - len(number))), Span(number, style)]
    yield head
    if any(run.patch and run.patch.steps for run in runs):
        yield [
            Span(fit("on the files of step", name_width + 2), "dim"),
            *(Span(f"{_patch_cell(run.patch):>{cell}}", "dim") for run in runs),
        ]
    for name, row in zip(names, grid.tests, strict=True):
        line = [Span(fit(fit_end(name, name_width), name_width + 2))]
        for outcome in row.outcomes[first : first + most]:
            mark, style = _MARKS.get(outcome or "", ("?" if outcome else "", ""))
            line.append(Span(f"{mark:>{cell}}", style))
        yield line
    used = {outcome for row in grid.tests for outcome in row.outcomes if outcome}
    legend = [f"{_MARKS[word][0]} {word}" for word in _MARKS if word in used]
    others = [f"{grid.left_out} more failed at some time"] if grid.left_out else []
    if grid.never_failed:
        others.append(f"{count(grid.never_failed, 'other test')} never failed")
    yield [Span(" · ".join([", ".join(legend), *others]), "dim")]


def _patch_cell(patch: Patch | None) -> str:
    if patch is None or not patch.steps:
        return "-"
    return str(patch.steps[-1])


def streamed(steps: Iterable[StepLine], *, width: int) -> Iterator[Line]:
    """All steps one after another, each with its details, as they are read."""
    for step in steps:
        yield from step_lines(step, width=width)
