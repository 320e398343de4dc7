"""Asks before something that came from elsewhere is executed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from repotrace.cli.boundary import USAGE
from repotrace.cli.options import Opened, note
from repotrace.readable import one_line, shell_line
from repotrace.records.bug import BugReport
from repotrace.records.run import Run
from repotrace.storage.received import Kind, Origin

YesOption = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Execute what came from elsewhere, without being asked"),
]


def may_execute_report(opened: Opened, report: BugReport, *, yes: bool) -> None:
    """Returns if the command of the report may be run; else raises, or exits with 2."""
    if yes:
        return
    from repotrace.records.trace import command_run_of
    from repotrace.runs.consent import foreign_report

    origin = foreign_report(opened.store, report.id)
    if origin is not None:
        _ask("report", report.id, origin, shell_line(command_run_of(report)))


def refused_reports(opened: Opened, names: Iterable[str]) -> dict[str, str]:
    """The reports of a sweep that may not be executed, with the reason; asks on a terminal."""
    from repotrace.errors import RepoTraceError
    from repotrace.runs.consent import foreign_report

    refused = {}
    for name in names:
        origin = foreign_report(opened.store, name)
        if origin is None:
            continue
        try:
            may_execute_report(opened, opened.store.reports.load(name), yes=False)
        except (RepoTraceError, typer.Exit):
            refused[name] = f"came from elsewhere ({origin.file}); execute it with --yes"
    return refused


def may_execute_run(opened: Opened, run: Run, command: str, *, yes: bool) -> None:
    """Returns if the code of the run may be run; else raises, or exits with 2."""
    if yes:
        return
    from repotrace.runs.consent import foreign_run

    origin = foreign_run(opened.store, run.id)
    if origin is not None:
        _ask("run", run.id, origin, command)


def _ask(kind: Kind, name: str, origin: Origin, command: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        from repotrace.runs.consent import refusal

        raise refusal(kind, name, origin, one_line(command, 300))
    day = origin.at.astimezone().strftime("%Y-%m-%d")
    note(f"{kind} {name} came from elsewhere: {one_line(origin.file, 200)}, imported {day}")
    note("it would execute, as you and with your files within reach:")
    note(f"  $ {one_line(command, 2_000)}")
    sys.stderr.write("execute it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note("nothing was executed")
        raise typer.Exit(USAGE)
