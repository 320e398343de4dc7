"""Replays: one result, its differences, a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from repotrace.comparison import DiffLine, explain
from repotrace.config import UserRule
from repotrace.readable import one_line, readable
from repotrace.records.command import CommandRun
from repotrace.records.replay import CANNOT_RUN, ReplayResult, ReplaySummary
from repotrace.report import (
    describe,
    exit_cell,
    outcome_label,
    render_result_line,
    row_outcome,
)
from repotrace.sweeps import counts

MOST_LINES = 60

_STYLES = {"-": "red", "+": "green", "@": "cyan", " ": "dim"}


def outcome_style(result: ReplayResult) -> str:
    """Green for reproduced, yellow for what could not run or comes and goes, else red."""
    if result.matched:
        return "green"
    return "yellow" if result.verdict in (CANNOT_RUN, "flaky") else "red"


def result_line(result: ReplayResult) -> Text:
    """``5303b4f97c12 `matched` — no differences``, coloured."""
    text = Text(render_result_line(result))
    text.highlight_regex(r"^\S+", "cyan")
    text.highlight_regex(r"`[^`]+`", outcome_style(result))
    return text


def differences_view(
    result: ReplayResult, user_rules: Sequence[UserRule], *, exact: bool = False
) -> RenderableType | None:
    """What differs, as a diff; None if there is nothing to show.

    The outputs are normalised first, or with `exact` taken as they are.
    """
    if result.expected is None or result.observed is None:
        return None
    lines = explain(result.expected, result.observed, user_rules=user_rules, exact=exact)
    parts: list[RenderableType] = [
        Text(f"  {one_line(difference)}{_unseen(difference, result.expected)}")
        for difference in result.differences
        if not difference.endswith(" differs") or not lines
    ]
    parts += [_diff_line(line) for line in lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        parts.append(Text(f"  … {len(lines) - MOST_LINES} more lines", style="dim"))
    return Group(*parts) if parts else None


def _unseen(difference: str, expected: CommandRun) -> str:
    """That nobody can see where a stream differs of which the middle is not kept."""
    stream = {"stdout differs": expected.stdout, "stderr differs": expected.stderr}.get(difference)
    return " in what was not kept of it; see output_limit" if stream and stream.cut else ""


def _diff_line(line: DiffLine) -> Text:
    mark = "" if line.kind == "@" else line.kind
    text = Text(f"  {mark}{readable(line.text)}", style=_STYLES.get(line.kind, ""))
    if line.rules and line.kind in "+-":
        text.append(f"   [{', '.join(sorted(line.rules))}]", style="dim")
    return text


def replay_table(summary: ReplaySummary) -> Table:
    """A sweep: one row a report, those that cannot be read last."""
    table = Table(title="Replay summary", title_style="bold", box=box.HEAVY_HEAD)
    table.add_column("Report", style="cyan", no_wrap=True)
    table.add_column("Outcome")
    table.add_column("Exit code", justify="right")
    table.add_column("Differences", overflow="fold")
    for result in summary.results:
        label = outcome_label(result.outcome) if result.ran else "cannot run"
        text = describe(result)
        table.add_row(
            Text(one_line(result.report_id)),
            Text(label if row_outcome(result) != "differs" else "differs", outcome_style(result)),
            Text(exit_cell(result)),
            Text("none" if text == "no differences" else text),
        )
    for name, reason in summary.unreadable:
        table.add_row(
            Text(one_line(name)), Text("unreadable", "yellow"), Text("—"), Text(one_line(reason))
        )
    return table


def sweep_line(summary: ReplaySummary) -> str:
    """`replayed 1 · reproduced 1 · differs 0 · failed 0 · reproducibility 100%`"""
    return counts(summary, " · ")
