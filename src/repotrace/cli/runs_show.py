"""`repotrace runs show`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from repotrace.cli.blame import show_verdicts
from repotrace.cli.options import JsonOption, RunArgument, open_runs, print_json, the_run


def runs_show(
    ctx: typer.Context,
    run: RunArgument = "latest",
    all_steps: Annotated[
        bool, typer.Option("--all", help="Every step, even of a long run")
    ] = False,
    blame: Annotated[
        bool, typer.Option("--blame", help="What blame said of its tests, with every execution")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a run with its cost, steps and tests"""
    opened = open_runs(ctx)
    found = the_run(opened, run)
    if blame:
        show_verdicts(opened, found, as_json=as_json)
        return
    from repotrace.read.runs import show_run, stream_steps

    view = show_run(opened.store, found, whole=all_steps and as_json)
    if as_json:
        print_json(view.json_object())
        return
    from repotrace.render.runs import branch_lines, grid_lines, run_head, step_table, streamed
    from repotrace.render.runs_layout import Page

    page = Page(opened.color)
    page.print(run_head(view, width=page.width, now=datetime.now(UTC)))
    if view.steps:
        page.print([[]])
        if all_steps:
            page.print(streamed(stream_steps(opened.store, found), width=page.width))
        else:
            page.print(step_table(view, width=page.width))
    if view.grid.tests:
        page.print([[]])
        page.print(grid_lines(view.grid, width=page.width))
    if view.branches:
        page.print([[]])
        page.print(branch_lines(view.branches))
