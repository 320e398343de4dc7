"""`repotrace runs diff`."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from repotrace.cli.boundary import complain
from repotrace.cli.options import (
    JsonOption,
    PathsOption,
    RunArgument,
    note,
    open_runs,
    print_json,
    say,
    step_named,
    the_run,
)
from repotrace.readable import one_line
from repotrace.records.base import encode_bytes
from repotrace.runs.diff import DiffSummary, RunDiff, diff_run
from repotrace.runs.paths import shown_path
from repotrace.system.snapshots import Operation

_WORDS = {"create": "created", "edit": "modified", "delete": "deleted", "rename": "renamed"}
_BAR = 40
"""Columns for the bar of the file that changed most."""


def runs_diff(
    ctx: typer.Context,
    run: RunArgument = "latest",
    step: Annotated[
        int | None, typer.Option("--step", metavar="N", min=1, help="What this step changed")
    ] = None,
    from_step: Annotated[
        str | None,
        typer.Option(
            "--from-step",
            "--step-from",
            metavar="N",
            help="Compare the files after N (0: start), or of a checkpoint,",
        ),
    ] = None,
    to_step: Annotated[
        str | None,
        typer.Option(
            "--to-step",
            "--step-to",
            metavar="N",
            help="with those after N, or of a checkpoint (default: the last)",
        ),
    ] = None,
    paths: PathsOption = None,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Print which files changed, and how")
    ] = False,
    stat: Annotated[
        bool, typer.Option("--stat", help="Print how many lines changed in each file")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what changed in a run, between two steps, or in one

    A pipe or file gets the diff alone, byte for byte; git apply takes it.
    """
    if step is not None and (from_step is not None or to_step is not None):
        raise typer.BadParameter("--step excludes --from-step and --to-step")
    if files_only and stat:
        raise typer.BadParameter("--files-only and --stat exclude each other")
    opened = open_runs(ctx)
    chosen = the_run(opened, run)
    found = diff_run(
        opened.store,
        chosen,
        step=step,
        from_step=None if from_step is None else step_named(opened, chosen, from_step),
        to_step=None if to_step is None else step_named(opened, chosen, to_step),
        paths=paths or (),
    )
    _tell_of_doubts(found)
    if as_json:
        print_json(_view(found, with_patch=not (files_only or stat)))
    elif files_only:
        for operation in found.operations:
            say(f"{_WORDS[operation.op]:8}  {_name(operation)}")
    elif stat:
        _print_stat(found)
    else:
        _print_patch(found, opened.color)
    if paths and not found.operations and not as_json:
        note(f"looked at what fits {' or '.join(map(one_line, paths))} only")
    opened.store.close()


def _tell_of_doubts(found: RunDiff) -> None:
    """What a reader must know before relying on the diff, on stderr."""
    if found.cut_short is not None:
        why = f": {found.cut_short.reason}" if found.cut_short.reason else ""
        note(f"the files at the end of the run were not kept{why}; compared up to {found.names[1]}")
    for known, name in zip((found.before, found.after), found.names, strict=True):
        if not known.exact:
            why = f": {known.reason}" if known.reason else ""
            note(f"the files {name} are {known.quality}{why}")
    if not found.complete:
        complain(
            "permissions, empty folders or pipes differ in a way that a diff cannot say",
            "Get the files themselves with: repotrace runs restore --step N",
        )


def _print_patch(found: RunDiff, color: str) -> None:
    colored = color == "always" or (color == "auto" and sys.stdout.isatty())
    if colored:
        from repotrace.render.console import console
        from repotrace.render.diffs import diff_view

        out = console(color=color)
        for piece in found.patch():
            out.print(diff_view(piece), soft_wrap=True)
    else:
        sys.stdout.flush()
        for piece in found.patch():
            sys.stdout.buffer.write(piece)
    sys.stdout.flush()
    if colored or not found.operations:
        note(f"{found.names[0]} → {found.names[1]}: {_sentence(found.summary)}")


def _print_stat(found: RunDiff) -> None:
    names = [_name(operation) for operation in found.operations]
    width = max(map(len, names), default=0)
    most = max((op.lines_added + op.lines_removed for op in found.operations), default=0)
    for name, operation in zip(names, found.operations, strict=True):
        say(f"{name:{width}}  {_lines(operation, most)}")
    say(_sentence(found.summary))


def _lines(operation: Operation, most: int) -> str:
    if operation.is_binary:
        return "binary" if operation.op == "edit" else f"binary, {_WORDS[operation.op]}"
    added, removed = operation.lines_added, operation.lines_removed
    if not added and not removed:
        both = (operation.old_mode, operation.new_mode)
        if None not in both and both[0] != both[1]:
            return "mode {:o} → {:o}".format(*(mode & 0o7777 for mode in both if mode is not None))
        return _WORDS[operation.op]
    scale = 1.0 if most <= _BAR else _BAR / most
    plus, minus = (max(1, round(count * scale)) if count else 0 for count in (added, removed))
    return f"+{added} -{removed} ".ljust(14) + "+" * plus + "-" * minus


def _name(operation: Operation) -> str:
    path = shown_path(operation.path)
    source = operation.renamed_from
    return path if source is None else f"{shown_path(source)} → {path}"


def _sentence(summary: DiffSummary) -> str:
    """`3 files changed: 1 created, 2 modified, +10 -4 lines`."""
    if not summary.files:
        return "no file changed"
    counts = [
        f"{count} {word}"
        for count, word in zip(
            summary[:4], ("created", "modified", "deleted", "renamed"), strict=True
        )
        if count
    ]
    files = "1 file" if summary.files == 1 else f"{summary.files} files"
    lines = f"+{summary.lines_added} -{summary.lines_removed} lines"
    return f"{files} changed: {', '.join(counts)}, {lines}"


def _view(found: RunDiff, *, with_patch: bool) -> dict[str, Any]:
    view: dict[str, Any] = {"schema_version": 1, "run_id": found.run.id}
    for key, known in (("before", found.before), ("after", found.after)):
        view[key] = {
            "state_id": known.state_id,
            "quality": known.quality,
            "step_number": known.step_number,
        }
    view["summary"] = {"files": found.summary.files, **found.summary._asdict()}
    view["complete"] = found.complete
    view["files"] = [
        {
            "operation": operation.op,
            "path": _as_json(operation.path),
            "renamed_from": _as_json(operation.renamed_from),
            "mode_before": operation.old_mode,
            "mode_after": operation.new_mode,
            "is_binary": operation.is_binary,
            "lines_added": operation.lines_added,
            "lines_removed": operation.lines_removed,
        }
        for operation in found.operations
    ]
    if with_patch:
        view["diff"] = encode_bytes(b"".join(found.patch()))
    return view


def _as_json(path: str | None) -> Any:
    return None if path is None else encode_bytes(os.fsencode(path))
