"""`repotrace runs compare`."""

from __future__ import annotations

from typing import Annotated

import typer

from repotrace.cli.options import JsonOption, open_runs, print_json, the_run


def runs_compare(
    ctx: typer.Context,
    a: Annotated[str, typer.Argument(metavar="A", help="Id of a run, a prefix, or latest")],
    b: Annotated[str, typer.Argument(metavar="B", help="The run that is compared with it")],
    everything: Annotated[
        bool, typer.Option("--all", help="Every step and the whole diff, however long")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two runs: tests, cost, steps, files

    The tests decide which is better. Steps are aligned by what they did; the first at which the
    runs part is named.
    """
    opened = open_runs(ctx)
    from repotrace.runs.compare import compare_runs

    found = compare_runs(opened.store, the_run(opened, a), the_run(opened, b))
    if as_json:
        print_json(found.json_object())
        return
    from repotrace.render.compare import comparison
    from repotrace.render.runs_layout import Page

    page = Page(opened.color)
    page.print(comparison(found, width=page.width, whole=everything))
