"""`repotrace runs restore`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from repotrace.cli.options import (
    Globals,
    JsonOption,
    Opened,
    PathsOption,
    note,
    open_runs,
    print_json,
    say,
    the_run,
)
from repotrace.config import workspace_for
from repotrace.errors import RepoTraceError
from repotrace.records.base import encode_bytes
from repotrace.records.run import Run
from repotrace.runs.checkpoints import find_checkpoint
from repotrace.runs.paths import PathFilter, shown_path
from repotrace.runs.restore import (
    Restored,
    folder_beside,
    lacking,
    refuse_busy,
    restore_in_place,
    restore_into,
    state_of_step,
    undo_command,
)
from repotrace.runs.states import KnownState
from repotrace.storage import LATEST
from repotrace.system.snapshots import Lacking

_SHOWN = 5


class _Wanted(NamedTuple):
    """What is to be restored."""

    state_id: str
    name: str
    """For people."""
    folder: str
    """The name of a new folder for it."""
    run: Run | None = None
    known: KnownState | None = None
    lacking: Lacking = Lacking()


def runs_restore(
    ctx: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Id of a run, a unique prefix, or latest"),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="N", min=0, help="The files after this step; 0: before all"),
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="ID", help="This state instead of a step's")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="NAME", help="The files of this checkpoint"),
    ] = None,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="A folder, new or empty")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Change the work tree; says how to undo it")
    ] = False,
    paths: PathsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be written, and write nothing")
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="In place: into another work tree, or while a run goes on"),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write the files of a step into a new folder, or in place"""
    if sum(given is not None for given in (step, state, checkpoint)) != 1:
        raise typer.BadParameter("say one of --step N, --checkpoint NAME, and --state ID")
    if into is not None and in_place:
        raise typer.BadParameter("--into and --in-place exclude each other")
    opened = open_runs(ctx)
    if checkpoint is not None:
        made = find_checkpoint(
            opened.store,
            checkpoint,
            run=the_run(opened, run) if run is not None else None,
            workspace=workspace_for(Path.cwd(), os.environ),
        )
        run, step = made.run.id, made.step_number
    wanted = _wanted(opened, run or LATEST, step, state)
    chosen = PathFilter(paths or (), root=wanted.run.workspace if wanted.run else None)
    undo: list[str] = []
    if in_place:
        workspace = _workspace(opened, wanted.run, force=force)

        def tell(safety: str) -> None:
            undo.append(_undo(ctx, safety))
            note(f"the present files are kept as state {safety}; to undo this:\n  {undo[0]}")

        done = restore_in_place(
            opened.store,
            wanted.state_id,
            workspace,
            paths=chosen,
            dry_run=dry_run,
            on_safety=tell,
        )
    else:
        folder = into if into is not None else _beside(wanted.folder)
        done = restore_into(opened.store, wanted.state_id, folder, paths=chosen, dry_run=dry_run)
    opened.store.close()
    if as_json:
        print_json(_view(wanted, done, dry_run=dry_run, undo=undo[0] if undo else None))
        return
    _print(wanted, done, in_place=in_place, dry_run=dry_run)
    _tell_of_doubts(wanted, in_place=in_place)


def _wanted(opened: Opened, ref: str, step: int | None, state: str | None) -> _Wanted:
    if state is not None:
        return _Wanted(state, f"state {state[:12]}", f"state-{state[:12]}")
    assert step is not None
    run = the_run(opened, ref)
    known = state_of_step(opened.store, run, step)
    assert known.state_id is not None
    return _Wanted(
        known.state_id,
        f"step {step} of {run.id}" if step else f"the beginning of {run.id}",
        f"{run.id}-step-{step}",
        run,
        known,
        lacking(opened.store, run, known.state_id),
    )


def _beside(name: str) -> Path:
    """The usual folder, as it is called from here."""
    usual = folder_beside(workspace_for(Path.cwd(), os.environ), name)
    return Path(os.path.relpath(usual))


def _workspace(opened: Opened, run: Run | None, *, force: bool) -> Path:
    """The work tree that we stand in, if it may be changed."""
    here = workspace_for(Path.cwd(), os.environ)
    if force:
        return here
    if run is not None and run.workspace is not None:
        recorded = Path(os.path.realpath(run.workspace))
        if recorded != here:
            raise RepoTraceError(
                f"Run {run.id} was recorded in {recorded}, and this is {here}.",
                hint=f"Work there: repotrace -C {shlex.quote(str(recorded))} …, or say --force.",
            )
    refuse_busy(opened.store, here)
    return here


def _undo(ctx: typer.Context, safety: str) -> str:
    """The command that undoes it, for the same home."""
    home = (ctx.find_object(Globals) or Globals()).home
    command = undo_command(safety)
    if home is None:
        return command
    return command.replace("repotrace ", f"repotrace --home {shlex.quote(str(home))} ", 1)


def _print(wanted: _Wanted, done: Restored, *, in_place: bool, dry_run: bool) -> None:
    if dry_run:
        for path in done.written:
            say(f"write   {shown_path(path)}")
        for path in done.deleted:
            say(f"delete  {shown_path(path)}")
        where = "here" if in_place else f"into {done.folder}"
        deleting = f", and delete {len(done.deleted)}" if done.deleted else ""
        note(f"{wanted.name}: would write {_files(done.written)} {where}{deleting}")
    elif not in_place:
        say(f"wrote {done.folder}")
        note(f"{wanted.name}: {_files(done.written)}")
    elif done.safety_state is None:
        note(f"{wanted.name}: the files are like that already")
    else:
        note(f"{wanted.name}: wrote {_files(done.written)}, deleted {len(done.deleted)}")


def _files(paths: tuple[str, ...]) -> str:
    return "1 file" if len(paths) == 1 else f"{len(paths)} files"


def _tell_of_doubts(wanted: _Wanted, *, in_place: bool) -> None:
    """What the state does not hold, and how far it can be relied on."""
    known = wanted.known
    if known is not None and not known.exact:
        why = f": {known.reason}" if known.reason else ""
        note(f"these files are {known.quality}{why}")
    found = wanted.lacking
    if found.not_captured:
        count = len(found.not_captured) + found.more
        names = ", ".join(
            f"{shown_path(item.path)}{'/' if item.is_folder else ''} ({item.reason})"
            for item in found.not_captured[:_SHOWN]
        )
        more = ", …" if count > _SHOWN else ""
        left = "; such files stay as they are" if in_place else ""
        note(f"not in the state: {names}{more}{left}")
    for repository in found.nested:
        at = f" (it stood on {repository.head[:12]})" if repository.head else ""
        note(f"without its history: the repository in {shown_path(repository.path)}{at}")


def _view(wanted: _Wanted, done: Restored, *, dry_run: bool, undo: str | None) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "run_id": wanted.run.id if wanted.run else None,
        "state_id": done.state_id,
        "quality": wanted.known.quality if wanted.known else None,
        "folder": str(done.folder),
        "dry_run": dry_run,
        "written": [encode_bytes(os.fsencode(path)) for path in done.written],
        "deleted": [encode_bytes(os.fsencode(path)) for path in done.deleted],
        "safety_state": done.safety_state,
        "undo": undo,
        "not_captured": [
            {"path": encode_bytes(os.fsencode(item.path)), "reason": item.reason}
            for item in wanted.lacking.not_captured
        ],
        "nested_repositories": [
            {"path": encode_bytes(os.fsencode(item.path)), "head": item.head}
            for item in wanted.lacking.nested
        ],
    }
