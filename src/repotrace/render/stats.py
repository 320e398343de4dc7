"""The figures of many runs, with small bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from rich.cells import cell_len

from repotrace.read.views import Spread, StatsGroup, StatsView
from repotrace.readable import one_line, seconds
from repotrace.render.diffs import Line, Span
from repotrace.render.runs import columns
from repotrace.render.runs_layout import cost_of, count, phrase, tokens_of, wrapped

BAR = 10
"""Cells of the longest bar."""

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_HEAD = ("RUNS", "PASSED", "", "STEPS", "RETRIES", "TOKENS", "TIME", "TOKENS/FIX", "COST/FIX")
_RATE = 2
"""The column of bars, the only one that is not a figure."""

_LAYOUTS = (
    (range(9), True),
    ((0, 1, 3, 4, 5, 6, 7, 8), True),
    ((0, 1, 3, 4, 5, 6, 7, 8), False),
    ((0, 1, 3, 5, 7, 8), False),
    ((0, 1, 7, 8), False),
    ((0, 1, 7), False),
)
"""Columns, and whether with quartiles: the first that fits is taken."""

_NAME = 14
"""Cells that a name has at least, if it is as long."""

_NARROW = 60
"""Below it there is no room for bars."""

type _Cell = tuple[str, str]


def stats(view: StatsView, *, width: int) -> Iterator[Line]:
    """A row for each group and one for all, then what fails most."""
    assert view.whole is not None
    yield from _table(view, width)
    bars = width >= _NARROW
    if view.failing:
        yield []
        yield [Span("What fails most", "bold")]
        most = max(kind.failed for kind in view.failing)
        yield from columns(
            [
                [
                    (f"  {one_line(kind.name, 30)}", ""),
                    *([(bar(kind.failed / most), "red")] if bars else []),
                    (f"{kind.failed} of {count(kind.steps, 'step')}", ""),
                ]
                for kind in view.failing
            ],
            width=width,
        )
    if view.broken_files:
        yield []
        yield [Span("Changed before a test went red", "bold")]
        most = max(file.runs for file in view.broken_files)
        rows = [
            [
                *([(bar(file.runs / most, pad=True), "red")] if bars else []),
                (count(file.runs, "run"), ""),
                (one_line(file.path), ""),
            ]
            for file in view.broken_files
        ]
        right = {1} if bars else {0}
        yield from ([Span("  "), *line] for line in columns(rows, right=right, width=width - 2))


def _table(view: StatsView, width: int) -> Iterator[Line]:
    assert view.whole is not None
    groups = [*view.groups, view.whole] if len(view.groups) > 1 else list(view.groups)
    for chosen, spread in _LAYOUTS:
        head = [(title, "bold") for title in (*_HEAD, view.group_by.upper())]
        rows = [head]
        for number, group in enumerate(groups):
            name = "all" if number == len(view.groups) else None
            rows.append(_row(group, name, spread=spread))
        rows = [[*(row[n] for n in chosen), row[-1]] for row in rows]
        if _least(rows) <= width:
            break
    right = [place for place, n in enumerate(chosen) if n != _RATE]
    yield from columns(rows, right=right, width=width)
    said = "median (middle half)" if spread else "medians"
    legend = f"{said}; per fix: of all runs on tasks with tests, for each that passed"
    yield from ([Span(line, "dim")] for line in wrapped(legend, width))


def _least(rows: Sequence[Sequence[_Cell]]) -> int:
    """Cells that a table needs so that its names can be read."""
    *figures, names = zip(*rows, strict=True)
    widths = [max(cell_len(text) for text, _ in column) + 2 for column in figures]
    return sum(widths) + min(_NAME, max(cell_len(text) for text, _ in names))


def _row(group: StatsGroup, name: str | None, *, spread: bool) -> list[_Cell]:
    rate = group.success_rate
    said = "" if rate is None else f"{rate:.0%} of {group.passed + group.failed}"
    per_fix = group.tokens_per_fix
    return [
        (str(group.runs), ""),
        (said, ""),
        (bar(rate or 0, pad=True), "green"),
        (_spread(group.steps, whole=spread), ""),
        (_spread(group.retries, whole=spread), ""),
        (_tokens(group, spread), ""),
        ("" if group.duration is None else seconds(group.duration.median), ""),
        (_with_doubt(tokens_of(round(per_fix)), group.untold_per_fix) if per_fix else "", ""),
        (_cost_per_fix(group), ""),
        (name or phrase(group.name or "") or "(none)", "bold" if name else "cyan"),
    ]


def _tokens(group: StatsGroup, spread: bool) -> str:
    if group.tokens is None or not group.total_tokens:
        return ""
    return _spread(group.tokens, whole=spread, tokens=True)


def _with_doubt(shown: str, untold: int) -> str:
    return f"{shown} + ?" if untold else shown


def _cost_per_fix(group: StatsGroup) -> str:
    if not group.tokens_per_fix and not group.cost_per_fix_usd:
        return ""
    return cost_of(group.cost_per_fix_usd or Decimal(0), group.unpriced_per_fix)


def bar(part: float, *, pad: bool = False) -> str:
    """A bar of `BAR` cells for 1, in eighths of a cell; never empty for more than 0."""
    eighths = min(round(part * BAR * 8), BAR * 8) or (1 if part > 0 else 0)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (_EIGHTHS[rest] if rest else "")
    return text.ljust(BAR) if pad else text


def _spread(spread: Spread, *, whole: bool, tokens: bool = False) -> str:
    values: Sequence[float] = (spread.median, spread.low, spread.high)
    words = [tokens_of(round(value)) if tokens else f"{value:g}" for value in values]
    return f"{words[0]} ({words[1]}-{words[2]})" if whole and words[1] != words[2] else words[0]
