"""The figures of many runs, with small bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from repotrace.read.views import Spread, StatsGroup, StatsView
from repotrace.readable import one_line, seconds
from repotrace.render.diffs import Line, Span
from repotrace.render.runs import columns
from repotrace.render.runs_layout import cost_of, count, phrase, tokens_of

BAR = 10
"""Cells of the longest bar."""

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEAD = ("RUNS", "PASSED", "", "STEPS", "RETRIES", "TOKENS", "TIME", "TOKENS/FIX", "COST/FIX")


def stats(view: StatsView, *, width: int) -> Iterator[Line]:
    """A row for each group and one for all, then what fails most."""
    assert view.whole is not None
    groups = [*view.groups, view.whole] if len(view.groups) > 1 else list(view.groups)
    rows = [[(title, "bold") for title in (*_HEAD, view.group_by.upper())]]
    for number, group in enumerate(groups):
        is_whole = number == len(view.groups)
        rows.append(_row(group, "all" if is_whole else None))
    yield from columns(rows, right={0, 1, 3, 4, 5, 6, 7, 8}, width=width)
    yield [Span("median (middle half); per fix: of all runs, for each that passed", "dim")]
    if view.failing:
        yield []
        yield [Span("What fails most", "bold")]
        most = max(kind.failed for kind in view.failing)
        rows = [
            [
                (f"  {one_line(kind.name, 30)}", ""),
                (bar(kind.failed / most), "red"),
                (f"{kind.failed} of {count(kind.steps, 'step')}", ""),
            ]
            for kind in view.failing
        ]
        yield from columns(rows, width=width)
    if view.broken_files:
        yield []
        yield [Span("Changed before a test went red", "bold")]
        most = max(file.runs for file in view.broken_files)
        rows = [
            [
                (bar(file.runs / most, pad=True), "red"),
                (count(file.runs, "run"), ""),
                (one_line(file.path), ""),
            ]
            for file in view.broken_files
        ]
        yield from ([Span("  "), *line] for line in columns(rows, right={1}, width=width - 2))


def _row(group: StatsGroup, name: str | None) -> list[tuple[str, str]]:
    rate = group.success_rate
    said = "" if rate is None else f"{rate:.0%} of {group.passed + group.failed}"
    per_fix = group.tokens_per_fix
    cost = group.cost_per_fix_usd
    return [
        (str(group.runs), ""),
        (said, ""),
        (bar(rate or 0, pad=True), "green"),
        (_spread(group.steps), ""),
        (_spread(group.retries), ""),
        (_spread(group.tokens, tokens=True), ""),
        (_time(group.duration), ""),
        (tokens_of(round(per_fix)) if per_fix else "", ""),
        (
            cost_of(cost, group.unpriced_calls) if cost is not None and group.total_tokens else "",
            "",
        ),
        (name or phrase(group.name or "") or "(none)", "bold" if name else "cyan"),
    ]


def bar(part: float, *, pad: bool = False) -> str:
    """A bar of `BAR` cells for 1, in eighths of a cell; never empty for more than 0."""
    eighths = min(round(part * BAR * 8), BAR * 8) or (1 if part > 0 else 0)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return text.ljust(BAR) if pad else text


def _spread(spread: Spread, *, tokens: bool = False) -> str:
    values: Sequence[float] = (spread.median, spread.low, spread.high)
    words = [tokens_of(round(value)) if tokens else f"{value:g}" for value in values]
    return words[0] if words[1] == words[2] else f"{words[0]} ({words[1]}-{words[2]})"


def _time(spread: Spread | None) -> str:
    return "" if spread is None else seconds(spread.median)
