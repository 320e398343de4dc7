"""Runs are deleted: those that somebody names, or the old ones to make room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from repotrace.errors import RepoTraceError
from repotrace.filestate import abandoned
from repotrace.records.run import Run
from repotrace.runs.restore import UNDO_REF
from repotrace.storage import Store
from repotrace.storage.consent import is_being_recorded
from repotrace.storage.space import compact, size_of, texts_of, used_of

CAP = 5 * 1000**3
"""Bytes that the runs of a home may take."""

UNDO_KEPT = timedelta(days=14)
"""For so long the states from before a restore in place are kept."""
REPORT_GONE = timedelta(days=14)
"""A report that is not there may be on another branch; its files are kept for so long."""
RUN_UNKNOWN = timedelta(days=1)
"""States may come before the run itself is known."""

_GRACE = 60.0
"""Seconds in which what no ref needs may belong to somebody who writes it right now."""
_ROUNDS = 4
"""The room that a run takes is an estimate, so it may take more than one look."""


class Expendable(NamedTuple):
    """A run that goes, and why."""

    run: Run
    reason: str
    """`old`, or `size`."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What was freed, or with `dry_run` would be."""

    runs: tuple[Expendable, ...]
    refs: tuple[str, ...]
    """Names of states that belong to nothing any more."""
    before: int
    """Bytes of database and states."""
    after: int
    """The same afterwards; an estimate where nothing was done."""
    max_size: int
    problem: str | None = None
    """Why the database could not give its room back."""


def last_sign(run: Run) -> datetime:
    """When the run was last heard of."""
    return max(filter(None, (run.started_at, run.completed_at, run.last_event_at)))


def delete_run(store: Store, run: Run, *, force: bool = False) -> bool:
    """Delete a run with its states; False if it is gone already.

    A program that still records it makes a new run of what follows, so a running one is
    deleted with `force` only: otherwise RepoTraceError is raised.
    """
    if is_being_recorded(store, run) and not force:
        raise RepoTraceError(
            f"Run {run.id} is still being recorded.", hint="Wait for its end, or say --force."
        )
    found = store.runs.delete(run.id)
    found = store.snapshots.delete(_ref(run)) or found
    store.received.forget("run", run.id)
    return found


def clean(
    store: Store,
    *,
    now: datetime,
    before: datetime | None = None,
    max_size: int = CAP,
    dry_run: bool = False,
) -> Cleaned:
    """Delete runs that were last heard of before the moment `before`, then the oldest ones until
    all is at most `max_size` bytes; and states that belong to nothing.

    Runs that are running or pinned are never deleted. Others may record meanwhile.
    """
    size = _size(store)
    refs = tuple(_ownerless(store, now))
    chosen = list(_chosen(store, refs, before, max_size))
    if dry_run:
        gone = [*refs, *(_ref(item.run) for item in chosen)]
        after = _needed(store) - sum(_weights(store, refs, [item.run for item in chosen]))
        after -= sum(store.snapshots.own_size(ref, gone=gone[:n]) for n, ref in enumerate(refs))
        return Cleaned(tuple(chosen), refs, size, min(size, max(after, 0)), max_size)
    for ref in refs:
        store.snapshots.delete(ref)
    deleted: list[Expendable] = []
    for _ in range(_ROUNDS):
        deleted += [item for item in chosen if delete_run(store, item.run)]
        store.snapshots.prune(grace=_GRACE)
        chosen = list(_chosen(store, (), None, max_size)) if chosen else []
        if not chosen:
            break
    problem = None
    try:
        compact(store.home)
    except RepoTraceError as error:
        problem = error.message
    return Cleaned(tuple(deleted), refs, size, _size(store), max_size, problem)


def _ref(run: Run) -> str:
    return f"runs/{run.id}"


def _size(store: Store) -> int:
    return store.snapshots.size() + size_of(store.home)


def _needed(store: Store) -> int:
    return store.snapshots.needed_size() + used_of(store.home)


def _weights(store: Store, gone: Sequence[str], runs: Sequence[Run]) -> Iterator[int]:
    """Bytes that each of the runs takes, given that those before it are deleted."""
    deleted = list(gone)
    for run in runs:
        yield texts_of(store.home, run.id) + store.snapshots.own_size(_ref(run), gone=deleted)
        deleted.append(_ref(run))


def _chosen(
    store: Store, gone: Sequence[str], before: datetime | None, max_size: int
) -> Iterator[Expendable]:
    """The runs to delete, the oldest first."""
    runs = [one for one in store.runs.list() if not is_being_recorded(store, one)]
    runs = [run for run in runs if not run.pinned]
    runs.sort(key=last_sign)
    old = [run for run in runs if before is not None and last_sign(run) < before]
    yield from (Expendable(run, "old") for run in old)
    if _size(store) <= max_size:  # quick to know, and never less than what is needed
        return
    room = _needed(store) - max_size
    for number, (run, weight) in enumerate(zip(runs, _weights(store, gone, runs), strict=True)):
        if number >= len(old):
            if room <= 0:
                return
            yield Expendable(run, "size")
        room -= weight


def _ownerless(store: Store, now: datetime) -> Iterator[str]:
    """The refs that belong to no run and no report, and whose time is over."""
    known = {_ref(run) for run in store.runs.list()}
    without_report = set(abandoned(store, now=now.timestamp()))
    for ref in store.snapshots.refs():
        if ref.startswith(UNDO_REF):
            kept = UNDO_KEPT
        elif ref.startswith("runs/") and ref not in known:
            kept = RUN_UNKNOWN
        elif ref in without_report:
            kept = REPORT_GONE
        else:
            continue
        history = store.snapshots.history(ref)
        newest = history[-1].taken_at if history else 0.0
        if newest < (now - kept).timestamp():
            yield ref
