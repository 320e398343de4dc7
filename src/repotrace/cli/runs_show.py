"""`repotrace runs show`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from repotrace.cli.options import JsonOption, RunArgument, open_runs, print_json, the_run


def runs_show(
    ctx: typer.Context,
    run: RunArgument = "latest",
    all_steps: Annotated[
        bool, typer.Option("--all", help="Every step, even of a long run")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a run: what was asked, what it cost, its steps and tests"""
    opened = open_runs(ctx)
    found = the_run(opened, run)
    from repotrace.read.runs import show_run, stream_steps

    view = show_run(opened.store, found, whole=all_steps and as_json)
    if as_json:
        print_json(view.json_object())
        return
    from repotrace.render.console import console
    from repotrace.render.runs import grid_lines, run_head, step_table, streamed
    from repotrace.render.runs_layout import Lines

    out = console(color=opened.color)
    width = out.width
    out.print(Lines(run_head(view, now=datetime.now(UTC))), soft_wrap=True)
    if view.steps:
        out.print()
        if all_steps:
            for line in streamed(stream_steps(opened.store, found), width=width):
                out.print(Lines([line]), soft_wrap=True)
        else:
            out.print(Lines(step_table(view, width=width)), soft_wrap=True)
    if view.grid.tests:
        out.print()
        out.print(Lines(grid_lines(view.grid, width=width)), soft_wrap=True)
