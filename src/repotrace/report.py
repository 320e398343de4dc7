"""Reports and sweeps as Markdown that renders well in an issue.

    print(format_report(report, result=replay_from_store(report.id, store)))

Nothing that a command printed can act in the result: it is readable text in fences, code spans
and escaped cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field

from repotrace.comparison import explain
from repotrace.errors import NoCommand, ReportExists, RepoTraceError
from repotrace.facts import ending, facts_of, failure
from repotrace.markdown import (
    MISSING,
    code_span,
    details,
    escape_cell,
    fence,
    hard_breaks,
    inline,
    prose,
)
from repotrace.readable import one_line, readable, shell_line, truncate
from repotrace.records.base import Record
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandRun, Termination, signal_name
from repotrace.records.replay import CANNOT_RUN, Outcome, ReplayResult, ReplaySummary
from repotrace.records.trace import command_line, command_run_of
from repotrace.report_sections import event_lines, metadata_lines
from repotrace.storage.files import write_document

__all__ = [
    "Outcome",
    "ReplayResult",
    "ReplaySummary",
    "ReportSection",
    "build_summary",
    "escape_cell",
    "format_datetime",
    "format_exit_code",
    "format_replays",
    "format_report",
    "outcome_label",
    "render_result_line",
    "truncate",
    "write_replays",
    "write_report",
]

_EXCERPT = 12
_DIFF_LINES = 200


class ReportSection(Record):
    """One titled block of a rendered report."""

    title: str = Field(description="Heading of the section")
    lines: list[str] = Field(default_factory=list, description="Body without the heading")

    def render(self) -> list[str]:
        """Heading, body, and a blank line."""
        end = len(self.lines)
        while end and not self.lines[end - 1]:
            end -= 1
        return [f"## {self.title}", *self.lines[:end], ""]


def format_report(
    report: BugReport,
    *,
    result: ReplayResult | None = None,
    include_metadata: bool = True,
    include_events: bool = True,
) -> str:
    """`report` as a Markdown document; with `result` as the report of that replay."""
    try:
        run = command_run_of(report)
    except NoCommand:
        run = None
    if result is None:
        heading = f"Capture report: {inline(report.title)}"
    else:
        heading = f"Replay report — {_headline(result)}"
    sections = [ReportSection(title="Summary", lines=_summary_lines(report, run, result))]
    if result is not None:
        lines = _outcome_lines(run, result)
        sections.append(ReportSection(title="Replay outcome", lines=lines))
    if include_metadata:
        lines = metadata_lines(_with_variables(report.metadata, run), facts_of(run) if run else [])
        sections.append(ReportSection(title="Metadata", lines=lines))
    if include_events:
        lines = event_lines(report.metadata.get("events"))
        sections.append(ReportSection(title="Events", lines=lines))
    lines = [f"# {heading}", ""]
    for section in sections:
        lines.extend(section.render())
    return "\n".join(lines).rstrip("\n") + "\n"


def _with_variables(metadata: dict[str, Any], run: CommandRun | None) -> dict[str, Any]:
    """`metadata` with the kept variables among the facts of the host, where a reader looks."""
    environment = metadata.get("environment")
    if run is None or not run.env or not isinstance(environment, dict):
        return metadata
    return metadata | {"environment": environment | {"variables": dict(run.env)}}


def write_report(
    report: BugReport,
    path: Path | str,
    *,
    result: ReplayResult | None = None,
    include_metadata: bool = True,
    include_events: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write `format_report` to `path`, making its folders. Returns the path.

    Raises ReportExists (a FileExistsError) if the file exists and `overwrite` is false.
    """
    text = format_report(
        report, result=result, include_metadata=include_metadata, include_events=include_events
    )
    return write_text(path, text, overwrite=overwrite)


def format_replays(summary: ReplaySummary, *, max_rows: int | None = None) -> str:
    """A sweep as a Markdown table of at most `max_rows` rows under its totals."""
    totals = [
        f"**Reports replayed:** {summary.total}",
        f"**Reproduced:** {summary.matched}",
        f"**No longer reproduce:** {summary.differed}",
        f"**Failed to run:** {summary.failed}",
        f"**Reproducibility:** {percent(summary)}",
    ]
    rows = [_row(result) for result in summary.results]
    rows += [
        (code_cell(name), "`unreadable`", MISSING, escape_cell(reason))
        for name, reason in summary.unreadable
    ]
    hidden = 0 if max_rows is None else max(len(rows) - max_rows, 0)
    shown = rows[: len(rows) - hidden]
    if hidden:
        shown.append(("…", "…", "…", f"{hidden} more not shown"))
    table = [("Report", "Outcome", "Exit code", "Differences"), ("---",) * 4, *shown]
    lines = ["# Replay summary", "", *hard_breaks(totals), ""]
    lines += [f"| {' | '.join(cells)} |" for cells in table]
    return "\n".join(lines) + "\n"


def write_replays(
    summary: ReplaySummary,
    path: Path | str,
    *,
    max_rows: int | None = None,
    overwrite: bool = False,
) -> Path:
    """Write `format_replays` to `path`, making its folders. Returns the path.

    Raises ReportExists (a FileExistsError) if the file exists and `overwrite` is false.
    """
    return write_text(path, format_replays(summary, max_rows=max_rows), overwrite=overwrite)


def write_text(path: Path | str, text: str, *, overwrite: bool = False) -> Path:
    """Write a rendered document to `path`, making its folders. Returns the path.

    Raises ReportExists if the file exists and `overwrite` is false, RepoTraceError if it
    cannot be written.
    """
    destination = Path(path)
    try:
        write_document(destination, text, overwrite=overwrite)
    except FileExistsError as error:
        if destination.is_dir():
            raise RepoTraceError(f"Cannot write {destination}: not a file.") from error
        raise ReportExists(
            f"{destination} already exists.", hint="Replace it with: --overwrite"
        ) from error
    except OSError as error:
        raise RepoTraceError(f"Cannot write {destination}: {error.strerror}.") from error
    return destination


def render_result_line(result: ReplayResult) -> str:
    """One replay as one line of plain text: ``5303b4f97c12 `matched` — no differences``."""
    label = one_line(result.report_id) or "(no id)"
    return f"{label} `{row_outcome(result)}` — {describe(result)}"


def build_summary(
    total: int = 0,
    matched: int = 0,
    differed: int = 0,
    failed: int = 0,
    results: Sequence[ReplayResult] | None = None,
) -> ReplaySummary:
    """A summary of counts that the caller already has."""
    return ReplaySummary(
        total=total,
        matched=matched,
        differed=differed,
        failed=failed,
        results=list(results or []),
    )


def outcome_label(outcome: Outcome) -> str:
    """`reproduced` or `no longer reproduces`."""
    return "reproduced" if outcome is Outcome.MATCHED else "no longer reproduces"


def row_outcome(result: ReplayResult) -> str:
    """The one word for the outcome of a replay: `matched`, `differs` or `cannot-run`."""
    return result.outcome.value if result.matched or result.ran else CANNOT_RUN


def describe(result: ReplayResult) -> str:
    """What the replay showed, in one line; `no differences` only where there are none."""
    if result.detail:
        text = result.detail if result.ran else result.detail.removeprefix("cannot run: ")
    elif result.differences:
        text = ", ".join(result.differences)
    elif result.verdict in ("", "same"):
        text = "no differences"
    else:
        text = result.verdict.replace("-", " ")
    return one_line(text)


def format_datetime(value: datetime | str | None) -> str:
    """A time as `2026-10-18 04:05:48 UTC`; one without a zone counts as UTC.

    None gives an em dash, a string that is no ISO 8601 time comes back as it is.
    """
    if value is None:
        return MISSING
    if isinstance(value, str):
        text = value
        try:
            value = datetime.fromisoformat(text)
        except ValueError:
            return text
    try:
        return _aware(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:  # year 1 or 9999, and a zone that leads out of them
        return value.isoformat()


def format_exit_code(code: int | None) -> str:
    """`7`, `0 (success)`, `-11 (SIGSEGV)`, or an em dash for None."""
    if code is None:
        return MISSING
    if code == 0:
        return "0 (success)"
    return f"{code} ({signal_name(-code)})" if code < 0 else str(code)


def exit_cell(result: ReplayResult) -> str:
    """The observed exit code, or in a few words how the command ended where it has none."""
    run = result.observed
    if run is not None and run.termination is Termination.SPAWN_ERROR:
        return "not started"
    if run is not None and run.exit_code is None and run.termination is not Termination.SIGNALED:
        return one_line(run.ending)
    return format_exit_code(result.exit_code)


def percent(summary: ReplaySummary) -> str:
    """The share that reproduced; `100%` and `0%` are never rounded ones."""
    share = summary.reproducible * 100
    rounded = round(share)
    if rounded in (0, 100) and rounded != share:
        return f"{min(max(share, 0.1), 99.9):.1f}%"
    return f"{rounded}%"


def code_cell(text: str) -> str:
    """`text` as code in a table cell."""
    return code_span(text) if text and text == escape_cell(text) else escape_cell(text or MISSING)


def _row(result: ReplayResult) -> tuple[str, str, str, str]:
    text = "none" if describe(result) == "no differences" else describe(result)
    return (
        code_cell(result.report_id),
        f"`{row_outcome(result)}`",
        escape_cell(exit_cell(result)),
        escape_cell(text),
    )


def _headline(result: ReplayResult) -> str:
    """The outcome, qualified where "no longer reproduces" alone would mislead."""
    label = outcome_label(result.outcome)
    match result.verdict:
        case "cannot-run":
            return "could not be run"
        case "flaky":
            return f"flaky, reproduced {result.reproduced} of {result.repeats} times"
        case "partly-fixed" | "different-failure":
            return f"{label} ({result.verdict.replace('-', ' ')})"
        case _:
            return label


def was_changed(report: BugReport) -> bool:
    """Whether `report` was changed after it was made (storing it takes a moment)."""
    if report.updated_at is None:
        return False
    record = report.metadata.get("command_run")
    duration = record.get("duration") if isinstance(record, dict) else None
    took = duration if isinstance(duration, float) else 0.0
    return (_aware(report.updated_at) - _aware(report.created_at)).total_seconds() > took + 5


def _aware(value: datetime) -> datetime:
    return value if value.tzinfo else value.replace(tzinfo=UTC)


def _summary_lines(
    report: BugReport, run: CommandRun | None, result: ReplayResult | None
) -> list[str]:
    tags = ", ".join(inline(tag) for tag in report.tags)
    facts: list[tuple[str, str | None]] = [
        ("ID", code_span(report.id)),
        ("Status", inline(report.status)),
        ("Severity", inline(report.severity or "") or MISSING),
        ("Reporter", inline(report.reporter or "")),
        ("Assignee", inline(report.assignee or "")),
        ("Tags", tags or MISSING),
        ("Created", format_datetime(report.created_at)),
        ("Updated", format_datetime(report.updated_at) if was_changed(report) else ""),
        ("Title", inline(report.title) if result else ""),
        ("Recorded" if result else "Ended", inline(ending(run)) if run else ""),
        ("Failure", inline(failure(run.signature)) if run and run.signature else ""),
    ]
    lines = hard_breaks([f"**{name}:** {value}" for name, value in facts if value])
    if report.description and report.description.strip():
        lines += ["", *prose(report.description)]
    if run is not None:
        lines += ["", *fence(shell_line(run), "sh")]
        if result is None:
            lines += _excerpt(run)
    return lines


def _excerpt(run: CommandRun) -> list[str]:
    """The end of the stream that says most about the failure."""
    names = run.signature.failing_tests if run.signature else ()
    texts = {"stderr": readable(run.stderr.text), "stdout": readable(run.stdout.text)}
    told = any(name.rpartition("::")[2] in texts["stdout"] for name in names)
    order = ("stdout", "stderr") if told else ("stderr", "stdout")
    stream = next((name for name in order if texts[name].strip()), None)
    if stream is None:
        return ["", "It printed nothing."]
    lines = texts[stream].strip("\n").split("\n")
    shown = [truncate(line, 300) for line in lines[-_EXCERPT:]]
    what = f"The end of {stream}:" if len(lines) > _EXCERPT else f"{stream}:"
    return ["", what, "", *fence("\n".join(shown), "text")]


def _outcome_lines(run: CommandRun | None, result: ReplayResult) -> list[str]:
    label = outcome_label(result.outcome) if result.ran else "could not be run"
    observed, recorded = result.observed, result.expected
    lines = [f"**Outcome:** `{row_outcome(result)}` ({label})"]
    if result.ran and result.verdict not in ("", "same"):
        lines.append(f"**Verdict:** {inline(describe(result))}")
    if result.repeats > 1:
        lines.append(f"**Runs:** reproduced {result.reproduced} of {result.repeats} times")
    expected = format_exit_code(result.expected_exit_code)
    lines.append(f"**Exit code:** {format_exit_code(result.exit_code)} (recorded {expected})")
    if observed and recorded and not _both_exited(observed, recorded):
        told = f"{observed.ending} (recorded: {recorded.ending})"
        lines.append(f"**Ended:** {inline(told)}")
    lines += [
        f"**Working directory:** {code_span(result.cwd)}",
        f"**Command:** {code_span(command_line(run)) if run else MISSING}",
    ]
    differences = ", ".join(result.differences) if result.ran else result.detail
    lines = [*hard_breaks(lines), "", f"Differences: {inline(differences) or 'none'}"]
    tests = [
        *(f"- fixed: {code_span(name)}" for name in result.fixed_tests),
        *(f"- fails as before: {code_span(name)}" for name in result.still_failing),
        *(f"- fails newly: {code_span(name)}" for name in result.new_failing),
    ]
    if tests:
        lines += ["", *tests]
    return lines + _difference(result)


def _both_exited(*runs: CommandRun) -> bool:
    return all(run.termination is Termination.EXITED for run in runs)


def _difference(result: ReplayResult) -> list[str]:
    if result.verdict == "same":
        return []
    lines = diff_lines(result)
    if not lines:
        return []
    if len(lines) <= _DIFF_LINES // 4:
        return ["", *fence("\n".join(lines), "diff")]
    more = len(lines) - _DIFF_LINES
    shown = lines[:_DIFF_LINES] + ([f"@@ {more} more lines @@"] if more > 0 else [])
    return ["", *details(f"Diff: {len(lines)} lines", fence("\n".join(shown), "diff"))]


def diff_lines(result: ReplayResult) -> list[str]:
    """A readable diff of what was recorded and what was observed, in the unified form."""
    if result.expected is None or result.observed is None:
        return []
    found = explain(result.expected, result.observed)
    return [truncate(diff_line(line.kind, readable(line.text)), 500) for line in found]


def diff_line(kind: str, text: str) -> str:
    """One line of a unified diff."""
    return f"@@ {text} @@" if kind == "@" else f"{kind}{text}"
