"""`repotrace runs checkpoint`."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from repotrace.cli.options import JsonOption, note, open_runs, print_json, the_run
from repotrace.config import workspace_for
from repotrace.redact import Redactor
from repotrace.runs.checkpoints import label_step, take_checkpoint


def runs_checkpoint(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of the checkpoint", show_default=False),
    ] = None,
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Name a step of this run", show_default=False),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="N", min=1, help="Which step; default: the last"),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="NAME", help="The name, said like this")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Name a step of a run, or keep the present files under a name"""
    if label is not None:
        name, run = label, run or name
    if name is None:
        raise typer.BadParameter("say a name", param_hint="NAME")
    opened = open_runs(ctx)
    store = opened.store
    name = Redactor(key=store.key, variables=os.environ).redact(name)
    if run is not None or step is not None:
        made = label_step(store, the_run(opened, run or "latest"), name, step=step)
    else:
        workspace = workspace_for(Path.cwd(), os.environ)
        made = take_checkpoint(store, workspace, name, now=time.time_ns())
    store.close()
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "label": name,
                "run_id": made.run.id,
                "step_number": made.step_number,
                "state_id": made.known.state_id,
                "quality": made.known.quality,
            }
        )
        return
    note(f"checkpoint {name}: step {made.step_number} of {made.run.id}")
    if made.known.state_id is None:
        note("its files were not kept")
    else:
        note(f"get its files with: repotrace runs restore --checkpoint {shlex.quote(name)}")
