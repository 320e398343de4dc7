"""`repotrace runs checkpoint`."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from repotrace.cli.options import JsonOption, note, open_runs, print_json, say, the_run
from repotrace.config import workspace_for
from repotrace.readable import one_line, reached_words
from repotrace.redact import Redactor
from repotrace.runs.checkpoints import Checkpoint, checkpoints, label_step, take_checkpoint


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
    list_: Annotated[
        bool, typer.Option("--list", help="List all checkpoints, or those of a run given as NAME")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Name a step of a run, or keep the present files under a name"""
    if list_:
        if label is not None or run is not None or step is not None:
            raise typer.BadParameter("takes a run at most", param_hint="--list")
        _list(ctx, name, as_json=as_json)
        return
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
        print_json({"schema_version": 1, **_facts(made)})
        return
    note(f"checkpoint {name}: step {made.step_number} of {made.run.id}")
    if made.known.state_id is None:
        note("its files were not kept")
    else:
        note(f"get its files with: repotrace runs restore --checkpoint {shlex.quote(name)}")


def _facts(made: Checkpoint) -> dict[str, Any]:
    return {
        "label": made.label,
        "run_id": made.run.id,
        "step_number": made.step_number,
        "state_id": made.known.state_id,
        "quality": made.known.quality,
        "steps": made.reached.steps,
        "files_modified": made.reached.files_modified,
    }


def _list(ctx: typer.Context, ref: str | None, *, as_json: bool) -> None:
    opened = open_runs(ctx)
    found = checkpoints(opened.store, the_run(opened, ref) if ref is not None else None)
    opened.store.close()
    if as_json:
        print_json({"schema_version": 1, "checkpoints": [_facts(made) for made in found]})
        return
    if not found:
        say("no checkpoints")
        return
    names = [one_line(made.label) for made in found]
    width = max(map(len, names))
    for name, made in zip(names, found, strict=True):
        lacks = "" if made.known.state_id is not None else " · its files were not kept"
        far = reached_words(*made.reached)
        say(f"{name:<{width}}  step {made.step_number} of {made.run.id} · {far}{lacks}")
