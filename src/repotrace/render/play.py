"""What the terminal screen shows of a step: a row of the list, and a view for each tab."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from rich.cells import cell_len

from repotrace.errors import RepoTraceError
from repotrace.read.diffs import StepDiff
from repotrace.read.playing import ShownTests
from repotrace.read.views import Alert, Branch, StepLine, StepView, TestGrid
from repotrace.readable import one_line, size
from repotrace.records.blame import Blame
from repotrace.records.run import LLMInteraction, Run, StepCommand, TestOutcome
from repotrace.render.alerts import STYLE, alert_count
from repotrace.render.blame import blame_view
from repotrace.render.blocks import (
    Block,
    NumberedLine,
    by_and_by,
    fixed,
    in_order,
    lines_from,
    rows_of,
    text_blocks,
)
from repotrace.render.diffs import Line, Span, code_spans, lexer_of
from repotrace.render.runs import branch_lines, grid_lines, patch_of, tests_of
from repotrace.render.runs_layout import (
    COLOURED,
    STATUS_STYLES,
    captured_part,
    count,
    fit,
    indented,
    lines_of,
    phrase,
    shortened,
    time_of,
    tokens_of,
)
from repotrace.render.runs_step import (
    arguments_lines,
    call_line,
    changes,
    command_head,
    log_lines,
    message_lines,
    outcome_lines,
    read_lines,
    said,
    since_lines,
    state_lines,
    step_head,
    title,
)
from repotrace.render.split import WIDE_ENOUGH, split_lines, unified_lines

ONE_ROW = 88
"""Columns from which on a step of the list has one row."""

FIGURES = frozenset({"lines", "tokens", "tests"})
"""Columns of the one row that a run may have nothing for."""

_MARKS = {
    "completed": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "interrupted": ("!", "bold yellow"),
    "started": ("…", "cyan"),
}
_CODE_LIMIT = 2_000_000
"""Bytes of a file above which it is shown without colours."""

_LONG_LINE = 5_000
_FAILURES_SHOWN = 5
_STEPS_NAMED = 5
type MoreTests = Callable[[bool], Iterable[TestOutcome]]
"""Reads the tests that passed, or those that did not and are not shown yet."""

_NOTHING = Span("nothing", "dim")


# --- The list -------------------------------------------------------------------------------


def step_rows(
    step: StepLine,
    *,
    width: int,
    digits: int,
    marked: bool = False,
    blamed: bool = False,
    branched: bool = False,
    figures: Collection[str] = FIGURES,
) -> list[Line]:
    """A step in one row where there is room, else in two; `figures` are the columns of the one."""
    symbol, style = _MARKS.get(step.status, ("·", ""))
    failing = step.tests is not None and step.tests.failing > 0
    if failing and step.status == "completed":
        symbol, style = "✗", "red"
    title_style = "bold red" if step.status == "failed" or failing else ""
    head = [
        Span("◆" if marked else " ", "bold magenta"),
        Span(f"{step.number:>{digits}} "),
        Span(f"{symbol} ", style),
        Span("  " * min(step.depth, 6)),
    ]
    if blamed:
        head.append(Span("⚑ ", "bold red"))
    if branched:
        head.append(Span("┬ ", "bold cyan"))
    if step.attempt > 1:
        head.append(Span(f"↻{step.attempt} ", "bold yellow"))
    text = phrase(step.description) or one_line(step.tool or "") or one_line(step.step_type, 12)
    if step.label:
        text += f" [{one_line(step.label)}]"
    used = sum(cell_len(span.text) for span in head)
    if width < ONE_ROW:
        margin = 1 + digits + 3 + 2 * min(step.depth, 6)
        below = _below(step, width - margin)
        return [
            [*head, Span(shortened(text, max(width - used, 1)).rstrip(), title_style)],
            [Span(" " * margin), Span(fit(below, max(width - margin, 1)).rstrip(), "dim")],
        ]
    took, changed, tests = _figures(step)
    tokens = f"{tokens_of(step.tokens)} tokens" if step.tokens else ""
    columns = [fit(one_line(step.step_type, 12), 12), f"{took:>9}"]
    for name, figure, wide in (("lines", changed, 11), ("tokens", tokens, 12)):
        if name in figures:
            columns.append(f"{figure:>{wide}}")
    if "tests" in figures:
        columns.append(fit(tests, 22))
    tail = "  ".join(columns)
    room = max(width - used - cell_len(tail) - 2, 1)
    tail_style = "red" if failing else "dim"
    return [
        [*head, Span(fit(shortened(text, room), room), title_style), Span(f"  {tail}", tail_style)]
    ]


def _below(step: StepLine, width: int) -> str:
    took, changed, tests = _figures(step)
    parts = [one_line(step.step_type, 12), took, changed, tests]
    below = " · ".join(filter(None, parts))
    if (
        cell_len(below) > width and step.tests is not None
    ):  # of which type it is goes without saying
        tests = f"{step.tests.failing} failed" if step.tests.failing else tests
        below = " · ".join(filter(None, [took, changed, tests]))
    return below


def _figures(step: StepLine) -> tuple[str, str, str]:
    changed = lines_of(step.lines_added, step.lines_removed) if step.files else ""
    return time_of(step.duration), changed, tests_of(step.tests) if step.tests else ""


def run_title(run: Run, alerts: Sequence[Alert] = ()) -> Line:
    """The run on one line, with the steps that somebody should look at."""
    style = STATUS_STYLES.get(run.status, "")
    tested = run.outcome in ("passed", "failed")
    outcome = Span(f"tests {run.outcome} ", "green" if run.outcome == "passed" else "red")
    about = " · ".join(filter(None, (one_line(run.agent or ""), phrase(run.task or ""))))
    return [
        Span(f" {one_line(run.id)} ", "bold"),
        Span(f" {one_line(run.status, 14)}{',' if tested else ''} ", style),
        *([outcome] if tested else []),
        *_parent(run),
        *_alerted(alerts),
        Span(f" {about}" if about else ""),
    ]


def _alerted(alerts: Sequence[Alert]) -> Line:
    if not alerts:
        return []
    steps = sorted({alert.step for alert in alerts if alert.step})
    names = ", ".join(map(str, steps[:_STEPS_NAMED])) + (", …" if len(steps) > _STEPS_NAMED else "")
    where = f" at step {names}" if steps else ""
    return [Span(f" {alert_count(len(alerts))}{where} ", STYLE)]


def _parent(run: Run) -> Line:
    if run.parent_run_id is None:
        return []
    step = "" if run.branched_from_step is None else f" after step {run.branched_from_step}"
    return [Span(f" from {one_line(run.parent_run_id)}{step} ", "cyan")]


# --- Overview -------------------------------------------------------------------------------


def overview_blocks(
    view: StepView, blamed: Sequence[Blame] = (), branches: Sequence[Branch] = ()
) -> list[Block]:
    """What the step was about, and what came of it, each on few lines.

    `blamed` is what blame found in the run, `branches` are the runs that went on from the step.
    """
    step, line = view.step, view.line
    blocks = [fixed(step_head(view))]
    for blame in blamed:
        if any(one.number == line.number for one in blame.steps):
            text = f"⚑ {one_line(blame.verdict)}: {one_line(blame.test) or 'the command'}"
            blocks.append(fixed([[], [Span(text, "bold red")]]))
    known = {step.description, *(item.command_line for item in view.commands)}
    if step.input_context and step.input_context.strip() not in known:
        blocks += _input(step.input_context)
    if step.reason:
        blocks += _section("Reason", step.reason)
    if view.interactions:
        blocks.append(fixed([*title("Model calls"), *indented(map(call_line, view.interactions))]))
    blocks += _error(view)
    if view.commands:
        heads = (row for item in view.commands for row in _ending(item))
        blocks.append(fixed([*title("Commands"), *indented(heads)]))
    elif step.output_result:
        blocks += _section("Output", step.output_result)
    if line.tests is not None:
        blocks.append(fixed([*title("Tests"), *indented(_test_summary(line))]))
    if view.operations:
        blocks.append(fixed([*title("Files changed"), *indented(changes(view.operations))]))
    if view.since_failure is not None:
        name = f"Changed since the failure in step {view.since_failure.step_number}"
        blocks.append(fixed([*title(name), *indented(since_lines(view, view.since_failure))]))
    if view.reads:
        blocks.append(fixed([*title("Files read"), *indented(read_lines(view.reads))]))
    if view.logs:
        blocks.append(fixed(title("Logs")))
        blocks += [fixed(indented(log_lines(entry)), foldable=True) for entry in view.logs]
    blocks.append(fixed([*title("State"), *indented(state_lines(view.after))]))
    if branches:
        blocks.append(fixed([*title("Went on from here"), *indented(branch_lines(branches))]))
    return blocks


def _input(text: str) -> list[Block]:
    if len(text) > COLOURED:
        return _section("Input", text)
    lines = indented(arguments_lines(text))
    return [fixed(title("Input")), fixed(lines, foldable=True)]


def _section(name: str, text: str) -> list[Block]:
    return [
        fixed(title(name)),
        Block(lambda width: indented(by_and_by(text)), rows_of(text), foldable=True),
    ]


def _error(view: StepView) -> list[Block]:
    """The error, unless it only repeats what is said beside it."""
    error, output = view.step.error, view.step.output_result or ""
    codes = {f"exit code {item.exit_code}" for item in view.commands}
    if not error or error in codes or output.startswith(error.removesuffix("…")):
        return []
    return _section("Error", error)


def _ending(item: StepCommand) -> Iterator[Line]:
    """A command and how it ended, without loading what it printed."""
    if item.background:
        ending, style = "left running", "yellow"
    elif item.exit_code is None:
        ending, style = "how it ended is not known", "yellow"
    else:
        ending, style = f"exit code {item.exit_code}", "red" if item.exit_code else "green"
    took = "" if item.duration is None else f" after {time_of(item.duration)}"
    yield [Span("$ ", "dim"), Span(phrase(item.command_line))]
    yield [Span(f"→ {ending}", style), Span(took, "dim")]


def _test_summary(line: StepLine) -> Iterator[Line]:
    assert line.tests is not None
    said_of = " ".join(filter(None, (tests_of(line.tests), patch_of(line.patch))))
    yield [Span(said_of, "red" if line.tests.failing else "green")]
    for node_id in line.failing_tests[:_FAILURES_SHOWN]:
        yield [Span("FAILED ", "red"), Span(one_line(node_id))]
    more = line.tests.failing - _FAILURES_SHOWN
    if more > 0:
        yield [Span(f"… {more} more", "red")]


# --- Messages -------------------------------------------------------------------------------


def message_blocks(
    view: StepView,
    calls: Sequence[tuple[int, LLMInteraction]],
    led: tuple[int, LLMInteraction] | None = None,
) -> list[Block]:
    """The conversation of each model call of the step.

    Of a step that called no model the answer that `led` to it, with the number of its step.
    """
    if not calls:
        said_of = f"step {view.line.number} called no model"
        if led is None:
            return [fixed([[Span(said_of, "dim")]])]
        number, call = led
        head = [Span(f"{said_of}; the call before it was in step {number}:", "dim")]
        return [fixed([head, [], *_call_head(call)]), *_answer(call)]
    blocks: list[Block] = []
    for number, (repeated, call) in enumerate(calls):
        if number:
            blocks.append(fixed([[]]))
        blocks.append(fixed(_call_head(call)))
        if repeated:
            text = f"▸ {count(repeated, 'message')} as in the call before"
            old = [row for message in call.messages[:repeated] for row in _message(message)]
            blocks.append(fixed(old, short=[Span(text, "cyan")]))
        blocks += [_message_block(message) for message in call.messages[repeated:]]
        if call.prompt:
            blocks.append(_said("prompt", call.prompt))
        blocks += _answer(call)
    return blocks


def _answer(call: LLMInteraction) -> Iterator[Block]:
    if call.response_message:
        yield _message_block(call.response_message)
    elif call.response:
        yield _said("response", call.response)
    if call.error:
        yield _said("error", call.error)


def _call_head(call: LLMInteraction) -> Iterator[Line]:
    yield call_line(call)
    if call.tools:
        names = (one_line(str(_tool_name(tool)), 40) for tool in call.tools)
        yield [Span("tools: " + ", ".join(names), "dim")]


def _tool_name(tool: Mapping[str, Any]) -> object:
    function = tool.get("function")
    inner = function.get("name") if isinstance(function, Mapping) else None
    return tool.get("name") or inner or tool.get("type") or "?"


def _message_block(message: Mapping[str, Any]) -> Block:
    return Block(lambda width: _message(message), 6, foldable=True)


def _message(message: Mapping[str, Any]) -> Iterator[Line]:
    yield []
    yield from message_lines(message)


def _said(who: str, text: str) -> Block:
    if len(text) > 200_000:
        made = partial(_by_and_by, who, text)
        return Block(made, rows_of(text) + 2, foldable=True)
    return Block(lambda width: [[], *said(who, text)], rows_of(text) + 2, foldable=True)


def _by_and_by(who: str, text: str, width: int) -> Iterator[Line]:
    yield []
    yield [Span(who, "bold")]
    yield from indented(by_and_by(text))


# --- Files and diffs ------------------------------------------------------------------------


def content_blocks(path: str, data: bytes | None) -> list[Block]:
    """A file with numbers of lines and the colours of its language."""
    if data is None:
        return [fixed([[Span("the content of this file was not kept", "yellow")]])]
    if b"\0" in data[:8000]:
        return [fixed([[Span(f"binary, {size(len(data))}", "yellow")]])]
    if not data:
        return [fixed([[Span("empty", "dim")]])]
    rows = data.count(b"\n") + (not data.endswith(b"\n"))
    return in_order(_numbered(path, data, len(str(rows))), rows)


def _numbered(path: str, data: bytes, digits: int) -> Iterator[Line]:
    text = data.decode("utf-8", "replace").removesuffix("\n")
    rows = _code(path, text) if len(data) <= _CODE_LIMIT else captured_part(text)
    for number, row in enumerate(rows, start=1):
        yield NumberedLine([Span(f"{number:>{digits}} ", "dim"), *row])


def _code(path: str, text: str) -> Iterator[Line]:
    plain = [span.text for row in _visible_rows(text) for span in row]
    lexer = lexer_of(path) if max(map(len, plain)) <= _LONG_LINE else None
    if lexer is None:
        yield from ([Span(row)] for row in plain)
    else:
        yield from code_spans(plain, lexer)


def _visible_rows(text: str) -> Iterator[Line]:
    return captured_part(text.replace("\x1b", "\u241b").replace("\r", "\u240d"))


def diff_blocks(diff: StepDiff, nothing: str, *, width: int) -> list[Block]:
    """What a step changed, the two sides beside each other where there is room."""
    blocks: list[Block] = []
    if diff.diff:
        rows = diff.diff.count(b"\n")
        if width >= WIDE_ENOUGH:
            blocks += in_order(split_lines(diff.diff, width=width), rows)
        else:
            blocks += in_order(unified_lines(diff.diff), rows)
    unknown = [
        [Span(f"the contents of {one_line(item.file_path)} were not kept", "yellow")]
        for item in diff.unknown
    ]
    if unknown:
        blocks.append(fixed(unknown))
    return blocks or [fixed([[Span(nothing, "dim")]])]


# --- Output, tests, blame -------------------------------------------------------------------


def output_blocks(view: StepView) -> list[Block]:
    """What the commands of the step printed, or what else came out of it."""
    blocks: list[Block] = []
    printed = set()
    for item in view.commands:
        blocks.append(fixed([*([[]] if blocks else []), *command_head(item)]))
        for name, stream in (("stdout", item.command.stdout), ("stderr", item.command.stderr)):
            if not stream.head and not stream.tail:
                continue
            if name == "stderr":
                blocks.append(fixed([[Span("stderr", "bold")]]))
            blocks += text_blocks(stream.data)
            if len(stream.head) < 1_000_000:
                printed.add(stream.text.strip())
    output = view.step.output_result
    if output and output.strip() not in printed:
        blocks.append(fixed([*([[]] if blocks else []), [Span("output of the step", "bold")]]))
        blocks += text_blocks(output.encode("utf-8", "replace"))
    blocks += _error(view)
    return blocks or [fixed([[Span("nothing was printed", "dim")]])]


def test_blocks(view: StepView, grid: TestGrid, tests: ShownTests, more: MoreTests) -> list[Block]:
    """The tests of the step, and which test of the run did what in which step; `more` reads what
    is folded."""
    line, at = view.line, view.line.number
    if line.tests is None:
        blocks = [fixed([[Span(f"step {at} ran no tests", "dim")], []])]
    else:
        blocks = [fixed([*islice(_test_summary(line), 1), []])]
    if grid.tests and grid.runs:
        blocks.append(
            Block(lambda width: grid_lines(grid, width=width, at=at), len(grid.tests) + 3)
        )
    elif grid.runs:
        names = ", ".join(str(run.step_number) for run in grid.runs)
        word = "steps" if len(grid.runs) > 1 else "step"
        text = f"no test ever failed; tests ran in {word} {names}"
        blocks.append(fixed([[Span(text, "green")]]))
    else:
        blocks.append(fixed([[Span("the run ran no tests", "dim")]]))
    blocks += [_outcome_block(outcome) for outcome in tests.others]
    for number, passed, said_of, style in (
        (tests.left_out, False, f"{count(tests.left_out, 'more test')} did not pass", "red"),
        (tests.passed, True, f"{count(tests.passed, 'test')} passed", "green"),
    ):
        if number:
            made = partial(_outcomes, more, passed)
            blocks += [fixed([[]]), Block(made, number, short=[Span(f"▸ {said_of}", style)])]
    return blocks


def _outcome_block(outcome: TestOutcome) -> Block:
    return Block(lambda width: [[], *outcome_lines(outcome)], 4, foldable=True)


def _outcomes(more: MoreTests, passed: bool, width: int) -> Iterator[Line]:
    for outcome in more(passed):
        yield from outcome_lines(outcome)


def blame_blocks(blamed: Iterable[Blame]) -> list[Block]:
    """What blame found, test by test."""
    blocks: list[Block] = []
    for blame in blamed:
        if blocks:
            blocks.append(fixed([[]]))
        blocks.append(Block(partial(lines_from, blame_view(blame)), 12))
    return blocks or [fixed([[_NOTHING]])]


def problem(error: RepoTraceError | OSError) -> Line:
    """What went wrong, on one line."""
    if isinstance(error, RepoTraceError):
        return [Span(error.message, "red"), Span(f"  {error.hint}" if error.hint else "")]
    return [Span(f"the store could not be read: {one_line(str(error))}", "red")]
