"""What blame says of a test, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from repotrace.readable import one_line, visible
from repotrace.records.blame import Blame, BlamedBreak, BlamedHunk, BlamedStep, RateOfFailing

_LABEL = 11
"""Columns of the name of a fact, with the space after it."""

_LEAST = 20
"""Columns for a text, without which it goes below its name."""
_NARROW = 4
"""Where it begins there."""

_HUNK_LINES = 30
_CERTAIN = ("proven", "minimal", "necessary")
_STYLES = {"+": "green", "-": "red", "@": "cyan"}


type Row = tuple[Text, Text]


def blame_view(blame: Blame) -> RenderableType:
    """The test, and below it what is said of it."""
    title = visible(blame.test) or visible(blame.command)
    return Group(Text(title, style="bold", overflow="fold"), blame_facts(blame))


class Facts:
    """Rows of a name and a text; what is too long goes on below its beginning, and where there
    is no room beside the name, all of it below the name."""

    def __init__(self, rows: Sequence[Row], *, column: int = _LABEL + 2) -> None:
        """`column`: where the texts begin, unless a name is longer."""
        self._rows = rows
        self._column = column

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        longest = max((label.cell_len for label, _ in self._rows), default=0)
        indent = max(self._column, longest + 1)
        if options.max_width - indent < _LEAST:
            indent = min(indent, _NARROW)
        for label, text in self._rows:
            head = label
            if label.cell_len >= indent:
                yield label
                head = Text()
            for part in text.wrap(console, max(1, options.max_width - indent)):
                line = head.copy()
                line.pad_right(indent - line.cell_len)
                part.rstrip()
                yield Text.assemble(line, part)
                head = Text()


def blame_facts(blame: Blame) -> RenderableType:
    """What is said of the test, one fact a row."""
    return Facts(list(_rows(blame)))


def _rows(blame: Blame) -> Iterator[Row]:
    yield from _culprit(blame)
    for number, found in enumerate(blame.breaks):
        yield from _break(blame, found, again=number > 0)
    if blame.flaky is not None:
        yield from _flaky(blame)
    yield from _circumstances(blame)
    yield from _story(blame)
    yield _next(blame)


def _line(label: str, text: str, style: str = "", *, label_style: str = "") -> Row:
    return Text(f"  {label}", style=label_style or "dim"), Text(text, style=style)


def _culprit(blame: Blame) -> Iterator[Row]:
    if not blame.named:
        style = "yellow" if blame.exit_code == 2 else "green"
        yield _line(blame.verdict, visible(blame.reason), label_style=style)
    elif blame.verdict == "test-changed":
        yield _line(blame.verdict, visible(blame.reason), label_style="yellow")
    label = "broken by" if blame.named else "suspects"
    if blame.verdict == "test-changed":
        label = "changed in"
    elif blame.verdict == "environment":
        label = "installs"
    elif blame.uncaptured:
        label = "since"
    for step in blame.steps:
        yield _line(label, _step(step), "bold")
        label = ""
    if not blame.steps and blame.test_step is not None:
        yield _line("added in", f"step {blame.test_step}")


def _step(step: BlamedStep) -> str:
    parts = [f"step {step.number}", one_line(step.description or step.step_type, 120)]
    if step.files and not any(path in step.description for path in step.files):
        more = f" and {len(step.files) - 2} more" if len(step.files) > 2 else ""
        parts.append(visible(", ".join(step.files[:2])) + more)
    if step.model:
        parts.append(visible(step.model))
    if step.tokens:
        parts.append(f"{step.tokens:,} tokens")
    if step.cost_usd is not None:
        parts.append(_dollars(step.cost_usd))
    return " · ".join(parts)


def _dollars(cost: Decimal) -> str:
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.3f}"


def _break(blame: Blame, found: BlamedBreak, *, again: bool) -> Iterator[Row]:
    if again:
        steps = ", ".join(f"step {number}" for number in found.steps)
        yield _line("then by", steps or "between the two", "bold")
    passed, failed = found.passed + found.given_passed, found.failed + found.given_failed
    certain = found.verdict in _CERTAIN
    label = "proven" if certain else found.verdict
    before, after = "on the base", "on the final state"
    if blame.run_id:
        before, after = _after(found.passes_after), _after(found.fails_after)
    text = f"passes {before} ({passed}/{passed}), fails {after} ({failed}/{failed})"
    if blame.message and not again:
        text += f": {one_line(blame.message, 160)}"
    if certain or found.odds < 0.05:
        text += f"; by chance {found.chance}"
    if blame.inferred:
        text += "; on inferred states"
    yield _line(label, text, label_style="green" if certain else "yellow")
    if found.skipped:
        yield _line("between", f"{found.skipped} states that could not be run or failed otherwise")
    if found.hunks is not None:
        yield from _hunks(found)
    if found.necessary:
        where = f"after step {blame.until}" if blame.repaired else "on the final state"
        yield _line("necessary", f"undoing it {where} makes the test pass")
    elif found.necessary is False:
        yield _line(
            "not enough", f"undone on the final state, the test still fails: {found.revert}"
        )
    elif found.revert:
        yield _line("undone", f"nothing can be said of the final state: {found.revert}")


def _after(step: int) -> str:
    return f"after step {step}" if step else "before step 1"


def _hunks(found: BlamedBreak) -> Iterator[Row]:
    assert found.hunks is not None
    count = len(found.hunks)
    noun = "hunk" if found.hunks_of == 1 else "hunks"
    maker = _maker(found)
    made = "" if maker is None else f", made by step {maker} alone"
    text = f"{count} of {found.hunks_of} {noun}{made}:"
    yield _line("minimal" if found.minimal else "hunks", text)
    shown = 0
    for hunk in found.hunks:
        if shown > _HUNK_LINES:
            yield _line("", "…", "dim")
            return
        yield _line("", f"{visible(hunk.path)} {hunk.what}".rstrip(), "bold")
        for line in _hunk(hunk):
            yield line
            shown += 1


def _maker(found: BlamedBreak) -> int | None:
    """The step of a range that made all of the hunks."""
    makers = {hunk.step for hunk in found.hunks or ()}
    return makers.pop() if len(makers) == 1 else None


def _hunk(hunk: BlamedHunk) -> Iterator[Row]:
    for line in hunk.lines[:_HUNK_LINES]:
        yield _line("", visible(line), _STYLES.get(line[:1], ""))
    if len(hunk.lines) > _HUNK_LINES:
        more = len(hunk.lines) - _HUNK_LINES
        yield _line("", f"… {more} more lines", "dim")


def _flaky(blame: Blame) -> Iterator[Row]:
    found = blame.flaky
    assert found is not None
    yield _line("before", _rate(found.before))
    yield _line("after", _rate(found.after))
    if found.steps and not blame.named:
        steps = ", ".join(map(str, found.steps[:12])) + (", …" if len(found.steps) > 12 else "")
        always = ", or it was always like that" if found.always else ""
        yield _line("credible", f"steps {steps}{always}")


def _rate(rate: RateOfFailing) -> str:
    if not rate.runs:
        return "was not run"
    return f"fails {rate.failed} of {rate.runs} (below {rate.upper:.0%} with 95 %)"


def _circumstances(blame: Blame) -> Iterator[Row]:
    if blame.first_broken:
        steps = ", ".join(map(str, blame.first_broken))
        yield _line("first", f"broken first in step {steps}, and repaired before this")
    if blame.repaired:
        text = f"the run repaired it later; this is about the states up to step {blame.until}"
        yield _line("repaired", text)
    for path in blame.uncaptured:
        yield _line("add", f'[tool.repotrace.check] link = ["{visible(path)}"]')
    if blame.overlay:
        few = ", ".join(blame.overlay[:4]) + (", …" if len(blame.overlay) > 4 else "")
        whose = "first" if blame.original_tests else "last"
        yield _line("tests", f"those of the {whose} state, on all states: {visible(few)}")
    if blame.disturbed:
        text = f"{blame.disturbed} states gave another result in parallel; alone counts"
        yield _line("disturbed", text)
    for note in blame.notes:
        yield _line("note", visible(note))
    if blame.exhausted:
        yield _line("budget", "it was spent before all was known; --budget allows more")


def _story(blame: Blame) -> Iterator[Row]:
    if len(blame.steps) == 1 and blame.steps[0].reason:
        yield _line("why", f'"{one_line(blame.steps[0].reason, 200)}"')
    seen = blame.seen
    if not blame.steps or not blame.run_id:
        return
    if seen.first_step is None:
        yield _line("seen", "never run by the agent after that")
        return
    text = f"first run by the agent at step {seen.first_step}"
    if seen.first_result and seen.first_result != "failed":
        text += f" ({seen.first_result})"
    if seen.repaired_after is not None:
        spent = [f"{seen.retries} {'retry' if seen.retries == 1 else 'retries'}"]
        if seen.tokens:
            spent.append(f"{seen.tokens:,} tokens")
        if seen.cost_usd is not None:
            spent.append(_dollars(seen.cost_usd))
        text += f"; {', '.join(spent)} to repair, at step {seen.repaired_after}"
    yield _line("seen", text)


def _next(blame: Blame) -> Row:
    count = len({one.source for one in blame.evidence if not one.given})
    told = f"{count} executions, on {blame.tried} of {blame.states} states"
    if not blame.run_id or not blame.steps:
        return _line("tried", told, "dim")
    maker = _maker(blame.breaks[0]) if blame.breaks else None
    step = blame.steps[0].number if maker is None else maker
    text = f"repotrace play {blame.run_id} --step {step}"
    if blame.seen.first_step is not None and blame.test:
        text += (
            f" · repotrace runs report {blame.run_id} --step {blame.seen.first_step}"
            f" --test '{visible(blame.test)}'"
        )
    label, line = _line("next", text)
    line.append(f"   ({told})", style="dim")
    return label, line


def evidence_view(blame: Blame) -> RenderableType:
    """Every execution that the verdict rests on, in the order of the states."""
    lines: list[Text] = []
    ordered = sorted(
        blame.evidence,
        key=lambda one: (one.step_number is None, one.step_number or 0, one.tests_of, one.given),
    )
    for one in ordered:
        if one.step_number is None:
            where = f"{one.hunks_added} hunks made" if one.hunks_added else "hunks undone"
        else:
            where = _after(one.step_number)
        style = {"passed": "green", "failed": "red"}.get(one.kind, "yellow")
        line = Text(f"    {where:<16}", style="dim")
        line.append(f"{one.kind:<9}", style=style)
        told = ["by the agent" if one.given else f"{one.duration or 0:.2f} s"]
        told += [f"with the tests of state {one.tests_of[:12]}"] * bool(one.tests_of)
        told += ["beside others"] * (not one.alone)
        told += [one_line(one.note, 100)] * bool(one.note)
        line.append("  ".join(told), style="dim")
        lines.append(line)
    return Group(*lines, Text())
