"""Writing the files after a step into a folder that somebody named."""

from __future__ import annotations

import os
from pathlib import Path

from repotrace.config import workspace_for
from repotrace.readable import one_line
from repotrace.records.run import Run
from repotrace.render.diffs import Line, Span
from repotrace.runs.restore import folder_beside, lacking, restore_into
from repotrace.storage import Store
from repotrace.storage.consent import workspace_here


def proposed(store: Store, run: Run, number: int) -> Path:
    """Where the files after a step would go."""
    beside = workspace_here(store, run) or workspace_for(Path.cwd(), os.environ)
    return folder_beside(beside, f"{run.id}-step-{number}")


def restored(store: Store, run: Run, state_id: str, quality: str, text: str) -> Line:
    """Write them, and say what was written. Raises RepoTraceError where that cannot be."""
    folder = Path(text).expanduser()
    done = restore_into(store, state_id, folder)
    left_out = lacking(store, run, state_id).not_captured
    count = "1 file" if len(done.written) == 1 else f"{len(done.written)} files"
    doubts = "" if quality == "exact" else f", which are {quality}"
    without = f", without {len(left_out)} paths that no state holds" if left_out else ""
    return [Span(f"wrote {one_line(str(folder))}", "green"), Span(f"  {count}{doubts}{without}")]
