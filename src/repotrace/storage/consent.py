"""Whether something may be executed unasked: what came from elsewhere may not.

Where a run or report came from stands in the home, see `storage.received`. A report whose file git
tracks here is as trusted as the code beside it. Whatever executes what was recorded, or files that
were, passes `permit_run` or `permit_report` first.
"""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

from repotrace.config import find_repository, home_for
from repotrace.errors import NotTrusted
from repotrace.readable import one_line, truncate, visible
from repotrace.records.bug import Kept
from repotrace.storage.received import Kind, Origin, ReceivedStore
from repotrace.storage.store import Store
from repotrace.system.git import tracks

if TYPE_CHECKING:
    from repotrace.records.run import Run

_SHOWN = 300


def permit_run(store: Store, run_id: str, command: str, *, trusted: bool = False) -> None:
    """Raises NotTrusted if the run came from elsewhere, unless it is `trusted`."""
    origin = None if trusted else foreign_run(store, run_id)
    if origin is not None:
        raise _refused("run", run_id, origin, command)


def permit_report(
    kept: Kept | None, command: str, *, trusted: bool | Container[str] = False
) -> None:
    """Raises NotTrusted if the report that is kept there came from elsewhere, unless all are
    `trusted`, or its id is among those that are.

    None: it is kept nowhere, and so it is the program's own.
    """
    if kept is None or trusted is True or (trusted is not False and kept.id in trusted):
        return
    home = kept.home or home_for(kept.reports, Path.cwd(), os.environ)
    origin = foreign_report(Store(home, reports=kept.reports), kept.id)
    if origin is not None:
        raise _refused("report", kept.id, origin, command)


def foreign_run(store: Store, run_id: str) -> Origin | None:
    """Where a run came from that nobody recorded here; None for one of ours."""
    return store.received.origin("run", run_id)


def workspace_here(store: Store, run: Run) -> Path | None:
    """The folder that a run worked in, if that was here; what one from elsewhere says is not
    believed."""
    origin = foreign_run(store, run.id)
    if run.workspace is None or (origin is not None and not origin.worked_on):
        return None
    return Path(run.workspace)


def is_being_recorded(store: Store, run: Run) -> bool:
    """Whether a run goes on here; one that was exported while it did goes on elsewhere."""
    origin = foreign_run(store, run.id)
    return run.status == "running" and (origin is None or origin.worked_on)


def foreign_report(store: Store, report_id: str) -> Origin | None:
    """Where a report came from that is not as trusted as the code here; None for one of ours."""
    origin = store.received.origin("report", report_id)
    if origin is None and store.reports.root.parent != store.home:
        # What was the home before there was a git repository.
        origin = ReceivedStore(store.reports.root.parent).origin("report", report_id)
    if origin is None or tracks(store.reports.path(report_id)):
        return None
    return origin


def is_code_here(store: Store, path: Path) -> bool:
    """Whether git tracks the file in the repository that the reports of `store` belong to."""
    real = Path(os.path.realpath(path))
    here, there = find_repository(store.reports.root), find_repository(real.parent)
    if here is None or there is None or here.root != there.root:
        return False
    return tracks(real)


def _refused(kind: Kind, name: str, origin: Origin, command: str) -> NotTrusted:
    # All of it, where a terminal would show something else, or nothing.
    shown = truncate(" ␊ ".join(visible(command).splitlines()), _SHOWN)
    return NotTrusted(kind, name, file=one_line(origin.file), at=origin.at, command=shown)
