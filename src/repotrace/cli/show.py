"""`repotrace show`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from repotrace.cli.boundary import warn
from repotrace.cli.options import (
    JsonOption,
    Opened,
    ReportArgument,
    StoreOption,
    named,
    note,
    open_store,
    print_json,
    say,
    the_report,
)
from repotrace.errors import ReportNotFound, RepoTraceError, RunNotFound
from repotrace.readable import one_line
from repotrace.storage import LATEST


def show(
    ctx: typer.Context,
    report_id: ReportArgument = "latest",
    store: StoreOption = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the whole report as Markdown")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the fields and metadata of a report, or a run"""
    opened = open_store(ctx, store)
    ref = named(opened, report_id)
    try:
        report = the_report(opened, ref)
    except ReportNotFound:
        if not _is_run(opened, ref):
            raise
        _show_run(ctx, opened, ref, markdown=markdown, as_json=as_json)
        return
    if markdown:
        from repotrace.report import format_report

        say(format_report(report).rstrip("\n"))
        return
    root = opened.store.reports.root
    try:
        occurrences = opened.store.history.occurrences(root, report)
        verdicts = opened.store.history.verdicts(root, report.id, limit=20)
    except RepoTraceError as error:
        warn(error)
        occurrences, verdicts = None, []
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "report": report.model_dump(mode="json"),
                "occurrences": occurrences.count if occurrences else 1,
                "verdicts": [
                    {"verdict": item.verdict, "detail": item.detail, "at": item.at.isoformat(),
                     "duration": item.duration, "commit": item.commit}
                    for item in verdicts
                ],
            }
        )  # fmt: skip
        return
    from repotrace.render.console import console
    from repotrace.render.reports import report_view
    from repotrace.storage.consent import foreign_report

    console(color=opened.color).print(
        report_view(report, occurrences, verdicts, now=datetime.now(UTC))
    )
    origin = foreign_report(opened.store, report.id)
    if origin is not None:
        day = f"{origin.at.astimezone():%Y-%m-%d}"
        note(f"came from elsewhere: {one_line(origin.file)}, imported {day}")


def _is_run(opened: Opened, ref: str) -> bool:
    if ref == LATEST:
        return False
    opened.store.runs.ingest()
    try:
        return bool(opened.store.runs.resolve(ref))
    except RunNotFound:
        return False


def _show_run(
    ctx: typer.Context, opened: Opened, ref: str, *, markdown: bool, as_json: bool
) -> None:
    if not markdown:
        from repotrace.cli.runs_show import runs_show

        runs_show(ctx, ref, as_json=as_json)
        return
    from repotrace.runs.export.exporting import export_run
    from repotrace.runs.export.selection import ExportOptions

    page = export_run(opened.store, opened.store.runs.get(ref), "markdown", ExportOptions())
    say(page.decode().rstrip("\n"))
