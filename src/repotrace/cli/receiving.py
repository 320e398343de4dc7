"""What was received from another RepoTrace, as lines and as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from repotrace.cli.options import say
from repotrace.readable import one_line

if TYPE_CHECKING:
    from repotrace.runs.receiving import Received


def print_received(got: Received, path: Path, *, dry: bool) -> None:
    """What came of a file."""
    if not got.is_new:
        noun = (
            "1 state of its files was"
            if got.states == 1
            else f"{got.states} states of its files were"
        )
        added = f"{noun} added" if got.states else "nothing was changed"
        say(f"{got.kind} {got.id} is here already; {added}")
        if got.left_out:
            say(f"  {'left out':<9} {got.left_out}")
        if got.file_has_more:
            say(f"  {'next':<9} the file has more; to take it: repotrace runs delete {got.id}")
        return
    say(f"{'would import' if dry else 'imported'} {got.kind} {got.id} from {one_line(str(path))}")
    if got.title:
        say(f"  {'title' if got.kind == 'report' else 'task':<9} {one_line(got.title, 100)}")
    if got.kind == "run":
        steps = f"{got.steps} step{'s' * (got.steps != 1)}"
        files = f", {got.states} states of its files" if got.states else ", without its files"
        say(f"  {'work':<9} {steps}{files}")
    elif got.states:
        say(f"  {'files':<9} as they were at the capture")
    if got.left_out:
        say(f"  {'left out':<9} {got.left_out}")
    if not dry:
        say(f"  {'next':<9} repotrace {_next(got)}")


def _next(got: Received) -> str:
    if got.kind == "run":
        return f"play {got.id}"
    return f"replay {got.id} --at-capture" if got.states else f"show {got.id}"


def received_facts(path: Path, got: Received) -> dict[str, Any]:
    """What came of a file, in plain values."""
    return {"path": str(path), **got._asdict()}
