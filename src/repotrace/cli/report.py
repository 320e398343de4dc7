"""`repotrace report`."""

from __future__ import annotations

from dataclasses import replace as with_
from typing import Annotated

import typer

from repotrace.cli.consent import YesOption, may_execute_report
from repotrace.cli.options import (
    OutputOption,
    OverwriteOption,
    ReportArgument,
    StoreOption,
    check_output,
    note,
    open_store,
    say,
    the_report,
)
from repotrace.cli.replay import options_for, replay_once
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
    no_payload: Annotated[
        bool, typer.Option("--no-payload", help="Leave out what makes the page importable")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Print a report as Markdown

    The report itself is folded away at its end if it fits; repotrace import takes the page.
    """
    from repotrace.report import format_report, render_result_line, write_text
    from repotrace.runs.export.payload import payload_lines

    opened = open_store(ctx, store)
    loaded = the_report(opened, report_id)
    result: ReplayResult | None = None
    check_output(output, overwrite=overwrite)
    if replay:
        may_execute_report(loaded, yes=yes)
        result = replay_once(opened, loaded, with_(options_for(opened), trusted=True))
        note(render_result_line(result))
    parts = {"include_metadata": not no_metadata, "include_events": not no_events}
    text = format_report(loaded, result=result, **parts)
    if not no_payload and (payload := payload_lines(loaded)):
        text += "\n" + "\n".join(payload) + "\n"
    if output is None:
        say(text.rstrip("\n"))
    else:
        say(f"wrote {write_text(output, text, overwrite=overwrite)}")
