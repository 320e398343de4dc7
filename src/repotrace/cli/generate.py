"""`repotrace generate`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from repotrace.cli.options import (
    Opened,
    OutputOption,
    OverwriteOption,
    ReportArgument,
    StoreOption,
    note,
    open_store,
    say,
    the_report,
)
from repotrace.comparison import Verdict
from repotrace.errors import RepoTraceError
from repotrace.readable import one_line
from repotrace.records.bug import BugReport


def generate(
    ctx: typer.Context,
    report_id: ReportArgument = "latest",
    store: StoreOption = None,
    output: OutputOption = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the test function")] = None,
    exit_code_only: Annotated[
        bool, typer.Option("--exit-code-only", help="Assert the exit code only")
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Assert the output byte for byte, nothing masked")
    ] = False,
    expect: Annotated[
        Literal["failure", "fixed"],
        typer.Option("--expect", help="Pass while the failure stays, or once it is fixed"),
    ] = "failure",
    overwrite: OverwriteOption = False,
) -> None:
    """Print or write a standalone pytest test made from a report"""
    from repotrace.generator import describe, generate_test, write_test
    from repotrace.storage.consent import foreign_report

    opened = open_store(ctx, store)
    report = the_report(opened, report_id)
    if output is None:
        source = generate_test(
            report,
            function_name=name,
            match_output=not exit_code_only,
            exact=exact,
            expect=expect,
            user_rules=opened.settings.normalize,
        )
        say(source.rstrip("\n"))
    else:
        written = write_test(
            report,
            output,
            function_name=name,
            match_output=not exit_code_only,
            exact=exact,
            expect=expect,
            overwrite=overwrite,
            user_rules=opened.settings.normalize,
        )
        say(f"wrote {written}")
    note(describe(report, expect))
    if expect == "failure" and not exit_code_only and _varies(opened, report):
        note("but replays of it printed other things: --exit-code-only leaves the output out")
    origin = foreign_report(opened.store, report.id)
    if origin is not None:
        note(f"the report came from elsewhere ({one_line(origin.file)}), and the test runs its")
        note("command, whoever runs the test: look at it first")


def _varies(opened: Opened, report: BugReport) -> bool:
    """Whether a replay saw the same failure with another output."""
    try:
        verdicts = opened.store.history.verdicts(opened.store.reports.root, report.id, limit=20)
    except RepoTraceError:
        return False
    return any(item.verdict == Verdict.SAME_FAILURE for item in verdicts)
