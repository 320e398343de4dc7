"""`repotrace runs report-tests`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from repotrace.cli.options import JsonOption, RunArgument, note, open_runs, print_json, the_run
from repotrace.redact import Redactor
from repotrace.runs.test_reports import ReportedTests, report_tests


def runs_report_tests(
    ctx: typer.Context,
    junit: Annotated[
        list[Path],
        typer.Option("--junit", metavar="FILE", help="A JUnit XML report; may be repeated"),
    ],
    run: RunArgument = "latest",
    step: Annotated[
        int | None,
        typer.Option(
            "--step", metavar="N", min=1, help="The step that ran them; default: the last"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Add the outcomes in a test runner's report to a run"""
    opened = open_runs(ctx)
    found = the_run(opened, run)
    redactor = Redactor(key=opened.store.key, variables=os.environ)
    done = report_tests(opened.store, found, junit, redactor=redactor, step=step)
    opened.store.close()
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "run_id": done.run_id,
                "step_number": done.step_number,
                "outcomes": done.outcomes,
            }
        )
        return
    note(_line(done))


def _line(done: ReportedTests) -> str:
    total = sum(done.outcomes.values())
    where = f"step {done.step_number} of " if done.step_number is not None else ""
    counted = ", ".join(f"{count} {word}" for word, count in done.outcomes.items())
    outcomes = "1 outcome" if total == 1 else f"{total} outcomes"
    return f"added {outcomes} to {where}{done.run_id}" + (f": {counted}" if counted else "")
