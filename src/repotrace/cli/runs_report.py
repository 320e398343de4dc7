"""`repotrace runs report`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from repotrace.cli.boundary import warn
from repotrace.cli.consent import YesOption, may_execute_run
from repotrace.cli.options import (
    JsonOption,
    RunArgument,
    StoreOption,
    inherited,
    note,
    open_runs,
    print_json,
    the_run,
)
from repotrace.readable import shell_line, visible
from repotrace.records.command import CommandRun
from repotrace.redact import Redactor
from repotrace.runs.reporting import Reported, ReportOptions, find_failure, report_failure
from repotrace.storage import validate_id


def runs_report(
    ctx: typer.Context,
    run: RunArgument = "latest",
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="N", min=1, help="The step that failed; default: the last"),
    ] = None,
    test: Annotated[
        str | None, typer.Option("--test", metavar="ID", help="This test, run once by itself")
    ] = None,
    as_recorded: Annotated[
        bool, typer.Option("--as-recorded", help="Keep the whole command of a test; run nothing")
    ] = False,
    report_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Id of the report")
    ] = None,
    yes: YesOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Report a failed command or test of a run, with its files"""
    if report_id is not None:
        validate_id(report_id)
    opened = open_runs(ctx, store)
    found = the_run(opened, run)
    failure = find_failure(opened.store, found, step=step, test=test)
    trusted = False
    if failure.test is not None and not as_recorded:
        may_execute_run(opened, found, f"the test {failure.test.node_id}", yes=yes)
        trusted = True

    def tell(command: CommandRun) -> None:
        note(f"$ {shell_line(command)}  (in a copy of its files)")

    options = ReportOptions(
        redactor=Redactor(key=opened.store.key, variables=os.environ),
        settings=opened.settings,
        environ=inherited(opened),
        as_recorded=as_recorded,
        report_id=report_id,
        trusted=trusted,
        on_run=tell,
    )
    done = report_failure(opened.store, found, failure, options)
    opened.store.close()
    for doubt in done.doubts:
        note(doubt)
    warn(done.stored.problem)
    if as_json:
        print_json(_view(done, str(opened.store.reports.path(done.stored.report.id))))
        return
    report = done.stored.report
    note(f"captured {report.id}")
    what = f"{visible(failure.test.node_id)}: " if failure.test is not None else ""
    note(f"step {failure.step.step_number} of {found.id}: {what}{done.run.ending}")
    if done.stored.occurrences > 1:
        note(f"seen {done.stored.occurrences} times; the report has the files of the first time")


def _view(done: Reported, path: str) -> dict[str, object]:
    files = done.run.files
    return {
        "schema_version": 1,
        "id": done.stored.report.id,
        "new": done.stored.new,
        "occurrences": done.stored.occurrences,
        "title": done.stored.report.title,
        "run_id": done.failure.step.run_id,
        "step_number": done.failure.step.step_number,
        "test": done.failure.test.node_id if done.failure.test is not None else None,
        "alone": done.alone,
        "exit_code": done.run.exit_code,
        "state_id": files.state_id if files is not None else None,
        "doubts": list(done.doubts),
        "path": path,
    }
