"""`repotrace runs stats`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from repotrace.cli.options import JsonOption, moment_given, open_runs, print_json, say


def runs_stats(
    ctx: typer.Context,
    group_by: Annotated[
        str, typer.Option("--group-by", metavar="WHAT", help="agent, model, task or tag")
    ] = "agent",
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only newer runs: 2h, 7d, or a date"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Sum runs up: success, tokens and cost per fix, what fails"""
    from repotrace.read.stats import GROUPS, run_stats

    if group_by not in GROUPS:
        raise typer.BadParameter(f"say one of {', '.join(GROUPS)}", param_hint="--group-by")
    moment = None if since is None else moment_given(since, datetime.now(UTC))
    opened = open_runs(ctx)
    found = run_stats(opened.store, group_by=group_by, since=moment)
    if as_json:
        print_json(found.json_object())
    elif found.whole is None:
        say("no runs recorded" if since is None else "no matching runs")
    else:
        from repotrace.render.runs_layout import Page
        from repotrace.render.stats import stats

        page = Page(opened.color)
        page.print(stats(found, width=page.width))
