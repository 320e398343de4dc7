"""`repotrace runs delete`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from repotrace.cli.options import JsonOption, note, open_runs, print_json, the_run
from repotrace.errors import RepoTraceError
from repotrace.readable import one_line
from repotrace.records.run import Run
from repotrace.runs.cleaning import delete_run


def runs_delete(
    ctx: typer.Context,
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Ids of runs or unique prefixes", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Delete a run too that is still being recorded")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete runs with all their records and files"""
    opened = open_runs(ctx, tell=False)
    found = {run.id: run for run in (the_run(opened, ref) for ref in runs)}
    if not yes:
        _ask(list(found.values()))
    deleted = [run.id for run in found.values() if delete_run(opened.store, run, force=force)]
    opened.store.close()
    if as_json:
        print_json({"schema_version": 1, "deleted": deleted})
        return
    for name in deleted:
        note(f"deleted {name}")
    note("the room is given back by: repotrace runs gc")


def _ask(runs: list[Run]) -> None:
    """Exits with 1 if the answer is no. Raises RepoTraceError where nobody can be asked."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RepoTraceError("Nothing was deleted: nobody can be asked.", hint="Say --yes.")
    for run in runs:
        pinned = ", pinned" if run.pinned else ""
        steps = "1 step" if run.totals.steps == 1 else f"{run.totals.steps} steps"
        task = f"  {one_line(run.task, 60)}" if run.task else ""
        note(f"{run.id}  {run.started_at:%Y-%m-%d %H:%M}  {steps}{pinned}{task}")
    count = "this run" if len(runs) == 1 else f"these {len(runs)} runs"
    if not typer.confirm(f"Delete {count} for good?", err=True):
        note("nothing deleted")
        raise typer.Exit(1)
