"""Two runs side by side."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from repotrace.read.views import ComparedStep, ComparedTest, RunComparison, RunLine, StepLine
from repotrace.readable import one_line
from repotrace.render.diffs import Line, Span, diff_lines
from repotrace.render.runs import columns, result_of
from repotrace.render.runs_layout import (
    cost_of,
    count,
    lines_of,
    phrase,
    time_of,
    tokens_of,
    wrapped,
)

STEPS_WHOLE = 60
"""Steps up to which all are shown; of more, those that differ and their neighbours."""

STEPS_SHOWN = 100
TESTS_SHOWN = 20
DIFF_SHOWN = 200
"""Lines of the diff that are shown unless all are wanted."""

_VERDICTS = {
    "better": ("B is better", "green"),
    "worse": ("B is worse", "red"),
    "mixed": ("Neither is better", "yellow"),
    "same": ("The tests say the same of both", ""),
    "unknown": ("No test ran in both, so nothing says which is better", "yellow"),
}
_PASSED = "passed"
_MARKS = {True: ("=", "dim"), False: ("≠", "yellow")}


def comparison(view: RunComparison, *, width: int, whole: bool = False) -> Iterator[Line]:
    """The figures, the tests, the steps and the files of two runs; `whole`: all of them."""
    yield from _tasks(view, width)
    yield from columns(list(_figures(view)), width=width)
    yield []
    yield from _verdict(view)
    yield []
    yield from _divergence(view)
    yield from _steps(view.steps, width, whole=whole)
    yield []
    yield from _files(view, whole=whole)


def _tasks(view: RunComparison, width: int) -> Iterator[Line]:
    tasks = [phrase(run.task or "") for run in (view.a, view.b)]
    if tasks[0] == tasks[1]:
        del tasks[1]
    else:
        tasks = [f"{name}  {task or '(no task)'}" for name, task in zip("AB", tasks, strict=True)]
    yield from ([Span(line)] for task in tasks for line in wrapped(task, width))


def _figures(view: RunComparison) -> Iterator[list[tuple[str, str]]]:
    runs = (view.a, view.b)
    yield [("", ""), *((f"{name} {one_line(run.id)}", "bold cyan")
                       for name, run in zip("AB", runs, strict=True))]  # fmt: skip
    yield [("result", "dim"), *map(result_of, runs)]
    rows = {
        "agent": [one_line(run.agent or "") for run in runs],
        "model": [one_line(", ".join(run.models)) for run in runs],
        "tests": list(map(_tests_of, runs)),
        "steps": [_parts(run.totals.steps, run.totals.failed_steps, "failed") for run in runs],
        "retries": [str(run.totals.retries) for run in runs],
        "files": [_changed(run) for run in runs],
        "calls": [str(run.totals.llm_calls) for run in runs],
        "tokens": list(map(_tokens_of, runs)),
        "  input": [tokens_of(run.totals.input_tokens) for run in runs],
        "  from cache": [tokens_of(run.totals.cache_read_tokens) for run in runs],
        "  to cache": [tokens_of(run.totals.cache_write_tokens) for run in runs],
        "  output": [tokens_of(run.totals.output_tokens) for run in runs],
        "  reasoning": [tokens_of(run.totals.reasoning_tokens) for run in runs],
        "cost": list(map(_cost_of, runs)),
        "time": [time_of(run.duration) for run in runs],
    }
    for name, values in rows.items():
        if any(value not in ("", "0") for value in values):
            style = "" if values[0] == values[1] else "bold"
            yield [(name, "dim"), *((value, style) for value in values)]


def _tokens_of(run: RunLine) -> str:
    used = run.totals.tokens_used
    return tokens_of(used) if used or not run.totals.llm_calls else ""


def _cost_of(run: RunLine) -> str:
    totals = run.totals
    is_told = totals.tokens_used or totals.cost_usd
    return cost_of(totals.cost_usd, totals.unpriced_calls) if is_told else ""


def _tests_of(run: RunLine) -> str:
    return _parts(run.totals.tests, run.totals.tests_failing, "failing")


def _parts(number: int, bad: int, word: str) -> str:
    return f"{number}, {bad} {word}" if bad else str(number)


def _changed(run: RunLine) -> str:
    totals = run.totals
    if not totals.files_modified:
        return "0"
    return f"{totals.files_modified} {lines_of(totals.lines_added, totals.lines_removed)}"


def _verdict(view: RunComparison) -> Iterator[Line]:
    text, style = _VERDICTS[view.verdict]
    said = [count(len(view.fixed), "test") + " fixed"] if view.fixed else []
    said += [count(len(view.broken), "test") + " broken"] if view.broken else []
    said += [f"{len(view.failing)} failing in both"] if view.failing else []
    yield [Span(text, f"bold {style}".strip()), Span(f": {', '.join(said)}" if said else "")]
    groups = {
        "fixed": (view.fixed, "green"),
        "broken": (view.broken, "red"),
        "failing": (view.failing, "red"),
        "only in A": (view.only_a, "dim"),
        "only in B": (view.only_b, "dim"),
    }
    for name, (tests, colour) in groups.items():
        # Of what ran in one of them alone, a test that passed says little.
        named = [test for test in tests if (test.a and test.b) or (test.a or test.b) != _PASSED]
        for test in named[:TESTS_SHOWN]:
            yield [Span(f"  {name:<9}  ", colour), Span(f"{one_line(test.node_id)}{_change(test)}")]
        if len(named) > TESTS_SHOWN:
            yield [Span(f"  {name:<9}  … and {len(named) - TESTS_SHOWN} more", "dim")]
        if len(named) < len(tests):
            passed = count(len(tests) - len(named), "test")
            yield [Span(f"  {name:<9}  ", colour), Span(f"{passed}  {_PASSED}")]


def _change(test: ComparedTest) -> str:
    if test.a is None or test.b is None:
        return f"  {test.a or test.b}"
    return f"  {test.a} → {test.b}" if test.a != test.b else ""


# --- Steps ----------------------------------------------------------------------------------


def _divergence(view: RunComparison) -> Iterator[Line]:
    if view.branch is not None:
        names = ("A", "B") if view.branch == "a" else ("B", "A")
        place = f"step {view.branched_from_step}" if view.branched_from_step else "the beginning"
        yield [
            Span(f"{names[0]} goes on from {place} of {names[1]}; the steps are those after it.")
        ]
    if view.same_start is False:
        yield [Span("They began with different files.", "yellow")]
    if view.divergence is None:
        yield [Span("Both did the same, step by step." if view.steps else "No steps to compare.")]
        return
    step = view.steps[view.divergence]
    sides = (("A", step.a), ("B", step.b))
    where = " and ".join(f"step {line.number} of {name}" for name, line in sides if line)
    what = f", which {'B' if step.a else 'A'} did not take there."
    if step.a and step.b:
        what = f": the same was done, with other {' and other '.join(step.differs)}."
    yield [Span("They part at "), Span(where, "bold"), Span(what)]


def _steps(steps: Sequence[ComparedStep], width: int, *, whole: bool) -> Iterator[Line]:
    shown = range(len(steps))
    if len(steps) > STEPS_WHOLE and not whole:
        near = {n + by for n, step in enumerate(steps) if not step.same for by in (-1, 0, 1)}
        chosen = [n for n in shown if n in near][:STEPS_SHOWN]
    else:
        chosen = list(shown)
    rows = [[_mark(steps[n]), *_cells(steps[n])] for n in chosen]
    if rows:
        yield from columns(rows, right={1, 2}, width=width)
    if len(chosen) < len(steps):
        rest = count(len(steps) - len(chosen), "more step")
        yield [Span(f"… and {rest}, the most of them the same; all with --all", "dim")]


def _mark(step: ComparedStep) -> tuple[str, str]:
    if step.a and step.b:
        return _MARKS[step.same]
    return ("-", "red") if step.a else ("+", "green")


def _cells(step: ComparedStep) -> Iterator[tuple[str, str]]:
    line = step.b or step.a
    assert line is not None
    for own in (step.a, step.b):
        yield str(own.number) if own else "", "dim"
    style = "" if step.a and step.b else _mark(step)[1]
    yield one_line(line.step_type), style
    what = _did(line)
    if step.differs:
        what = f"{what}  ({_difference(step)})"
    yield what, style


def _did(line: StepLine) -> str:
    said = phrase(line.description)
    if line.commands:
        return f"$ {phrase(line.commands[0].command_line)}"
    if line.files and not any(path in said for path in line.files):
        more = f" and {len(line.files) - 1} more" if len(line.files) > 1 else ""
        return f"{said} · {one_line(line.files[0])}{more}" if said else one_line(line.files[0])
    return said


def _difference(step: ComparedStep) -> str:
    parts = []
    a, b = step.a, step.b
    assert a is not None
    assert b is not None
    for word in step.differs:
        if word == "tests" and a.tests and b.tests:
            parts.append(f"{a.tests.failing} failing → {b.tests.failing} failing")
        elif word == "exit code" and a.commands and b.commands:
            codes = [str(line.commands[-1].exit_code) for line in (a, b)]
            parts.append(f"exit code {' → '.join(codes)}")
        elif word == "content":
            changes = [lines_of(line.lines_added, line.lines_removed) for line in (a, b)]
            more = f": {changes[0]} → {changes[1]}" if changes[0] != changes[1] else ""
            parts.append(f"other content{more}")
        else:
            parts.append(f"other {word}")
    return ", ".join(parts)


# --- Files ----------------------------------------------------------------------------------


def _files(view: RunComparison, *, whole: bool) -> Iterator[Line]:
    doubts = [q for q in view.end_qualities if q not in ("exact", "missing")]
    doubt = f" (on {doubts[0]} states)" if doubts else ""
    if view.same_end is None:
        yield [Span("The files at the end of one of them were not kept.", "yellow")]
        return
    if view.same_end:
        yield [Span(f"Both ended with the same files{doubt}.")]
        return
    yield [Span(f"Different at the end, from A to B{doubt}: {count(len(view.files), 'file')}")]
    for file in view.files if whole else view.files[:TESTS_SHOWN]:
        yield [Span(f"  {one_line(file.path)}  {lines_of(file.lines_added, file.lines_removed)}")]
    if not whole and len(view.files) > TESTS_SHOWN:
        yield [Span(f"  … and {len(view.files) - TESTS_SHOWN} more", "dim")]
    yield []

    lines = list(diff_lines(os.fsencode(view.diff or "")))
    yield from lines if whole else lines[:DIFF_SHOWN]
    if not whole and len(lines) > DIFF_SHOWN:
        yield [Span(f"… and {len(lines) - DIFF_SHOWN} more lines; all with --all", "dim")]
