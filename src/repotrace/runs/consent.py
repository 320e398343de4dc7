"""Whether something may be executed unasked: what came from elsewhere may not.

Where a run or report came from stands in the home, see `storage.received`. A report whose file git
tracks here is as trusted as the code beside it.
"""

from __future__ import annotations

from repotrace.errors import RepoTraceError
from repotrace.storage import Store
from repotrace.storage.received import Kind, Origin
from repotrace.system.git import tracks


def foreign_run(store: Store, run_id: str) -> Origin | None:
    """Where a run came from that nobody recorded here; None for one of ours."""
    return store.received.origin("run", run_id)


def foreign_report(store: Store, report_id: str) -> Origin | None:
    """Where a report came from that is not as trusted as the code here; None for one of ours."""
    origin = store.received.origin("report", report_id)
    if origin is None or tracks(store.reports.path(report_id)):
        return None
    return origin


def inherit(store: Store, run_id: str, report_id: str) -> None:
    """A report that was made of a run is from where the run is."""
    origin = foreign_run(store, run_id)
    if origin is not None:
        store.received.note("report", report_id, origin)


def refusal(kind: Kind, name: str, origin: Origin, command: str) -> RepoTraceError:
    """Why nothing is executed."""
    return RepoTraceError(
        f"{kind.capitalize()} {name} came from elsewhere ({origin.file}) and is not executed"
        f" unasked. It would run: {command}",
        hint="Look at it first. If you trust it, say --yes",
    )
