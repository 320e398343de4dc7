"""Stored reports: one in full, many as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from repotrace.errors import NoCommand
from repotrace.facts import facts_of
from repotrace.readable import age, one_line, readable, shell_line, truncate, visible
from repotrace.records.bug import BugReport
from repotrace.records.command import signal_name
from repotrace.records.trace import command_run_of
from repotrace.report import was_changed
from repotrace.storage import Occurrences, RecordedVerdict

MISSING = "—"

_LONGEST = 160
_FIRST = {"cwd": 0, "exit_code": 1}
_HOST = {"python_version": "python", "executable": "python executable", "platform": "platform"}
_DEFAULT_TITLES = ("Command failed: ", "Command captured: ")
_SHORT_VERDICTS = {"same-after-normalising": "same (normalised)"}


def report_view(
    report: BugReport,
    occurrences: Occurrences | None,
    verdicts: Sequence[RecordedVerdict],
    *,
    now: datetime,
) -> RenderableType:
    """The fields of a report, its metadata, how often it was seen and what replays said."""
    parts: list[RenderableType] = [_fields(report), Text(), Text("metadata", style="bold")]
    parts += [
        Text.assemble("  ", (name, "cyan"), f": {value}") for name, value in _metadata(report)
    ]
    if occurrences is not None and occurrences.count > 1:
        parts += [Text(), Text(f"seen {occurrences.count} times", style="bold")]
        parts.append(Text(f"  last {age(occurrences.last, now)} ago"))
    if verdicts:
        parts += [Text(), Text("replays", style="bold")]
        parts += [_verdict(verdict, now) for verdict in verdicts]
    return Group(*parts)


def _fields(report: BugReport) -> Table:
    table = Table(title=f"Report {one_line(report.id)}", title_style="bold", box=box.HEAVY_HEAD)
    table.add_column("Field")
    table.add_column("Value", overflow="fold")
    rows: list[tuple[str, object]] = [
        ("id", report.id),
        ("title", one_line(report.title)),
        ("description", report.description),
        ("status", report.status),
        ("severity", report.severity or MISSING),
        ("reporter", report.reporter),
        ("assignee", report.assignee),
        ("tags", ", ".join(report.tags) or MISSING),
        ("created_at", report.created_at),
        ("updated_at", report.updated_at if was_changed(report) else None),
    ]
    for name, value in rows:
        if value is not None:
            table.add_row(name, Text(readable(str(value)).strip("\n")))
    return table


def _metadata(report: BugReport) -> list[tuple[str, str]]:
    """Plain values as they are, the long ones as facts."""
    metadata = report.metadata
    names = sorted(metadata, key=lambda name: (_FIRST.get(name, len(_FIRST)), name))
    rows = [
        (name, truncate(visible(repr(metadata[name])), _LONGEST))
        for name in names
        if name not in ("events", "command_run", "environment", "schema_version")
    ]
    events = metadata.get("events")
    if isinstance(events, list) and events:
        rows.append(("events", f"[...] ({len(events)})"))
    environment = metadata.get("environment")
    if isinstance(environment, Mapping):
        rows += [
            (label, one_line(str(environment[name])))
            for name, label in _HOST.items()
            if environment.get(name)
        ]
    try:
        run = command_run_of(report)
    except NoCommand:
        return rows
    rows.append(("command", one_line(shell_line(run))))
    rows += facts_of(run)
    for name, output in (("stdout", run.stdout), ("stderr", run.stderr)):
        lines = readable(output.text).strip("\n").split("\n")
        if lines != [""]:
            last = truncate(one_line(lines[-1]), 80)
            rows.append((name, f"{len(lines)} line{'s' * (len(lines) > 1)}, the last: {last}"))
    return rows


def _verdict(verdict: RecordedVerdict, now: datetime) -> Text:
    text = Text(f"  {age(verdict.at, now):>6} ago  ")
    style = "green" if verdict.verdict.startswith("same") else "red"
    text.append(one_line(verdict.verdict), style=style)
    if verdict.detail and verdict.detail != verdict.verdict:
        text.append(f" — {one_line(verdict.detail)}")
    if verdict.commit:
        text.append(f"  at {verdict.commit[:12]}", style="dim")
    return text


def report_list_table(rows: Sequence[Mapping[str, Any]], *, now: datetime) -> Table:
    """`list --long`. The keys of a row are those of `list --json`.

    Where room is short, titles give way, then verdicts; ids never do.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Report", style="cyan", no_wrap=True)
    table.add_column("Title")
    table.add_column("Exit", no_wrap=True)
    table.add_column("Seen", justify="right", no_wrap=True)
    table.add_column("Last", justify="right", no_wrap=True)
    table.add_column("Status", no_wrap=True)
    table.add_column("Verdict")
    titles = [Text(one_line(row["title"])) for row in rows]
    widest = max((title.cell_len for title in titles), default=0)
    for row, title in zip(rows, titles, strict=True):
        seen = datetime.fromisoformat(row["last_seen"])
        seen = seen if seen.tzinfo else seen.replace(tzinfo=UTC)
        verdict = one_line(row["last_verdict"] or MISSING)
        table.add_row(
            Text(one_line(row["id"])),
            _Title(title, widest),
            Text(_short_ending(row)),
            Text(f"{row['occurrences']}x"),
            Text(age(seen, now)),
            Text(one_line(row["status"], 20)),
            _shrinking(_SHORT_VERDICTS.get(verdict, verdict)),
        )
    return table


def _shrinking(text: str) -> Text:
    """Text whose column may be narrowed: the cell ends with `…` then, on one line."""
    return Text(text, no_wrap=True, overflow="ellipsis")


class _Title:
    """A title. Where the widest of all does not fit, default titles give the command alone."""

    def __init__(self, title: Text, widest: int) -> None:
        self._whole = title
        self._widest = widest
        short = title.plain
        for prefix in _DEFAULT_TITLES:
            short = short.removeprefix(prefix)
        self._short = _shrinking(short)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._whole)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._whole if self._widest <= options.max_width else self._short


def _short_ending(row: Mapping[str, Any]) -> str:
    """`7`, `SIGSEGV`, `timed out`, `not started`, `interrupted`."""
    code = row["exit_code"]
    if isinstance(code, int):
        return signal_name(-code) if code < 0 else str(code)
    return one_line(str(row["ending"] or MISSING).partition(":")[0].partition(" after")[0], 20)
