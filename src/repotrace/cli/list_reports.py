"""`repotrace list`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from repotrace.cli.boundary import warn
from repotrace.cli.options import JsonOption, Opened, StoreOption, open_store, print_json, say
from repotrace.errors import NoCommand, RepoTraceError
from repotrace.records.bug import BugReport
from repotrace.records.trace import command_run_of


def list_reports(
    ctx: typer.Context,
    store: StoreOption = None,
    status: Annotated[
        str | None, typer.Option("--status", help="Only reports with this status")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only reports with this tag")] = None,
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Add title, ending, age and occurrences")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print ids only")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the ids of the stored reports"""
    opened = open_store(ctx, store)
    reports: list[BugReport] = []
    broken: list[tuple[str, RepoTraceError]] = []
    for name, loaded in opened.store.reports.scan():
        if isinstance(loaded, RepoTraceError):
            broken.append((name, loaded))
        elif (status is None or loaded.status == status) and (tag is None or tag in loaded.tags):
            reports.append(loaded)
    if as_json:
        rows = _rows(opened, reports)
        unreadable = [{"name": name, "problem": error.message} for name, error in broken]
        print_json({"schema_version": 1, "reports": rows, "unreadable": unreadable})
    elif quiet:
        for report in reports:
            say(report.id)
    elif long and reports:
        _print_table(opened, reports)
    else:
        _print_ids(reports, filtered=status is not None or tag is not None)
    for _, error in broken:
        warn(error)
    if broken:
        raise typer.Exit(2)


def _print_ids(reports: list[BugReport], *, filtered: bool) -> None:
    if not reports:
        say("no matching reports" if filtered else "no reports stored")
        return
    for report in reports:
        say(report.id)
    say()
    say(f"{len(reports)} report(s)")


def _print_table(opened: Opened, reports: list[BugReport]) -> None:
    from repotrace.render.console import console
    from repotrace.render.reports import report_list_table

    console(color=opened.color).print(
        report_list_table(_rows(opened, reports), now=datetime.now(UTC))
    )
    say()
    say(f"{len(reports)} report(s)")


def _rows(opened: Opened, reports: list[BugReport]) -> list[dict[str, Any]]:
    """One row a report, ready for JSON. A history that cannot be read counts as none."""
    root = opened.store.reports.root
    try:
        seen = opened.store.history.all_occurrences(root, reports)
        verdicts = opened.store.history.last_verdicts(root)
    except RepoTraceError as error:
        warn(error)
        seen, verdicts = {}, {}
    rows = []
    for report in reports:
        occurrences = seen.get(report.id)
        verdict = verdicts.get(report.id)
        rows.append(
            {
                "id": report.id,
                "title": report.title,
                "status": report.status,
                "severity": report.severity,
                "tags": report.tags,
                "created_at": report.created_at.isoformat(),
                "last_seen": (occurrences.last if occurrences else report.created_at).isoformat(),
                "occurrences": occurrences.count if occurrences else 1,
                "exit_code": report.metadata.get("exit_code"),
                "ending": _ending(report),
                "last_verdict": verdict.verdict if verdict else None,
                "last_replayed": verdict.at.isoformat() if verdict else None,
            }
        )
    return rows


def _ending(report: BugReport) -> str | None:
    try:
        return command_run_of(report).ending
    except NoCommand:
        return None
