"""`repotrace runs gc`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

import typer

from repotrace.cli.boundary import complain
from repotrace.cli.options import JsonOption, moment_given, note, open_runs, print_json, say
from repotrace.readable import one_line, size
from repotrace.runs.cleaning import Cleaned, clean, last_sign

_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY = {"ki": 1024, "mi": 1024**2, "gi": 1024**3, "ti": 1024**4}
_WHY = {"old": "older than was asked for", "size": "to make room"}


def runs_gc(
    ctx: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing")
    ] = False,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Delete runs that ended before: 30d, 2w"),
    ] = None,
    max_size: Annotated[
        str,
        typer.Option("--max-size", metavar="SIZE", help="Delete the oldest until all fits: 500MB"),
    ] = "5GB",
    as_json: JsonOption = False,
) -> None:
    """Delete what is old or too much, and give its room back

    Runs that are running or pinned stay.
    """
    now = datetime.now(UTC)
    before = moment_given(older_than, now) if older_than is not None else None
    limit = _bytes(max_size)
    opened = open_runs(ctx, tell=False)
    done = clean(opened.store, now=now, before=before, max_size=limit, dry_run=dry_run)
    opened.store.close()
    if done.problem is not None:
        complain(f"the database keeps its size: {done.problem}")
    if as_json:
        print_json(_view(done, dry_run=dry_run))
        return
    word = "would delete" if dry_run else "deleted"
    for run, reason in done.runs:
        task = f"  {one_line(run.task, 60)}" if run.task else ""
        say(f"{word} {run.id}  {last_sign(run):%Y-%m-%d}  {_WHY[reason]}{task}")
    if done.refs:
        states = f"{len(done.refs)} states that belong" if done.refs[1:] else "a state that belongs"
        say(f"{word} {states} to nothing")
    freed = size(max(0, done.before - done.after))
    about = "about " if dry_run else ""
    say(
        f"{size(done.before)} → {about}{size(done.after)}: {freed} {'less' if dry_run else 'freed'}"
    )
    if done.after > limit:
        note(
            f"this is more than {size(limit)}: what is left is running, pinned, new, or a report's"
        )


def _bytes(text: str) -> int:
    """The number of bytes. Raises BadParameter for what is none."""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,3})?) ?([kmgt]i?)?b?", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size: write 500MB, 5GB or 2GiB")
    return int(float(match[1]) * (_UNITS | _BINARY)[match[2] or ""])


def _view(done: Cleaned, *, dry_run: bool) -> dict[str, object]:
    return {
        "schema_version": 1,
        "dry_run": dry_run,
        "runs": [{"run_id": run.id, "reason": reason} for run, reason in done.runs],
        "states": list(done.refs),
        "bytes_before": done.before,
        "bytes_after": done.after,
        "max_size": done.max_size,
    }
