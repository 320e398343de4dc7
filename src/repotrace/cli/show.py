"""`repotrace show`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from repotrace.cli.boundary import warn
from repotrace.cli.options import (
    JsonOption,
    ReportArgument,
    StoreOption,
    open_store,
    print_json,
    say,
    the_report,
)
from repotrace.errors import RepoTraceError


def show(
    ctx: typer.Context,
    report_id: ReportArgument = "latest",
    store: StoreOption = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the whole report as Markdown")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the fields and metadata of a report"""
    opened = open_store(ctx, store)
    report = the_report(opened, report_id)
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

    console(color=opened.color).print(
        report_view(report, occurrences, verdicts, now=datetime.now(UTC))
    )
