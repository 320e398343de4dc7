"""`repotrace report`."""

from __future__ import annotations

from typing import Annotated

import typer

from repotrace.cli.options import (
    OutputOption,
    OverwriteOption,
    ReportArgument,
    StoreOption,
    note,
    open_store,
    say,
)
from repotrace.cli.replay import replay_once
from repotrace.records.replay import ReplayResult


def report(
    ctx: typer.Context,
    report_id: ReportArgument = "latest",
    store: StoreOption = None,
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Replay first, and put the verdict in")
    ] = False,
    no_metadata: Annotated[
        bool, typer.Option("--no-metadata", help="Leave the metadata out")
    ] = False,
    no_events: Annotated[bool, typer.Option("--no-events", help="Leave the events out")] = False,
) -> None:
    """Print a report as Markdown"""
    from repotrace.report import format_report, render_result_line, write_report

    opened = open_store(ctx, store)
    loaded = opened.store.reports.load(opened.store.resolve(report_id))
    result: ReplayResult | None = None
    if replay:
        result = replay_once(opened, loaded)
        note(render_result_line(result))
    parts = {"include_metadata": not no_metadata, "include_events": not no_events}
    if output is None:
        say(format_report(loaded, result=result, **parts).rstrip("\n"))
    else:
        say(f"wrote {write_report(loaded, output, result=result, overwrite=overwrite, **parts)}")
