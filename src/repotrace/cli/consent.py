"""Asks before something that came from elsewhere is executed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated

import typer

from repotrace.cli.boundary import USAGE
from repotrace.cli.options import Opened, note
from repotrace.errors import NotTrusted, RepoTraceError
from repotrace.readable import one_line, shell_line, visible
from repotrace.records.bug import BugReport
from repotrace.records.run import Run

YesOption = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Execute what came from elsewhere, without being asked"),
]

_LONGEST = 4_000
"""Characters of a command that is asked about."""


def may_execute_report(report: BugReport, *, yes: bool) -> None:
    """Returns if the command of the report may be run; else raises, or exits with 2."""
    from repotrace.records.trace import command_run_of
    from repotrace.storage.consent import permit_report

    command = shell_line(command_run_of(report))
    try:
        permit_report(report.kept, command, trusted=yes)
    except NotTrusted as refused:
        _ask(refused, command)


def trusted_reports(opened: Opened, names: Iterable[str]) -> frozenset[str]:
    """The reports from elsewhere that a person says may be executed; the others are counted."""
    from repotrace.storage.consent import foreign_report

    trusted, left = set(), 0
    for name in names:
        if foreign_report(opened.store, name) is None:
            continue
        left += 1
        with suppress(RepoTraceError, typer.Exit):
            may_execute_report(opened.store.reports.load(name), yes=False)
            trusted.add(name)
            left -= 1
    if left:
        what = "1 report" if left == 1 else f"{left} reports"
        note(f"{what} from elsewhere not executed; with --yes that is done unasked")
    return frozenset(trusted)


def may_execute_run(opened: Opened, run: Run, command: str, *, yes: bool) -> None:
    """Returns if the code of the run may be run; else raises, or exits with 2."""
    from repotrace.storage.consent import permit_run

    try:
        permit_run(opened.store, run.id, command, trusted=yes)
    except NotTrusted as refused:
        _ask(refused, command)


def _ask(refused: NotTrusted, command: str) -> None:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        hint = "Look at it first. If you trust it, say --yes"
        raise RepoTraceError(refused.message, hint=hint) from refused
    day = refused.at.astimezone().strftime("%Y-%m-%d")
    where = f"{one_line(refused.file, 200)}, imported {day}"
    note(f"{refused.kind} {refused.name} came from elsewhere: {where}")
    note("it would execute, as you and with your files within reach:")
    for line in _shown(command):
        note(f"  {line}")
    sys.stderr.write("execute it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        note("nothing was executed")
        raise typer.Exit(USAGE)


def _shown(command: str) -> Iterator[str]:
    """All of the command, also what a terminal would not show, as far as anybody reads."""
    lines = visible(command).splitlines()
    left = _LONGEST
    for number, line in enumerate(lines):
        if len(line) > left:
            rest = sum(map(len, lines[number:])) - left
            yield f"{'  ' if number else '$ '}{line[:left]}"
            yield f"… and {rest:,} characters more"
            return
        left -= len(line)
        yield f"{'  ' if number else '$ '}{line}"
