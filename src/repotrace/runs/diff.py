"""What changed in a run: between its beginning and its end, between two steps, or in one."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from repotrace.records.run import Run
from repotrace.runs.paths import PathFilter
from repotrace.runs.states import KnownState, StatesOfRun, required
from repotrace.storage import Store
from repotrace.system.snapshots import Operation, SnapshotStore

_AT_ONCE = 200
"""Paths that are given to git in one call; renamed ones count twice."""


class DiffSummary(NamedTuple):
    """How much changed."""

    created: int = 0
    modified: int = 0
    deleted: int = 0
    renamed: int = 0
    lines_added: int = 0
    lines_removed: int = 0

    @property
    def files(self) -> int:
        return self.created + self.modified + self.deleted + self.renamed


_COUNTED = {"create": "created", "edit": "modified", "delete": "deleted", "rename": "renamed"}


@dataclass(frozen=True, slots=True)
class RunDiff:
    """The difference of two states of a run."""

    run: Run
    before: KnownState
    after: KnownState
    operations: tuple[Operation, ...]
    """By path."""
    summary: DiffSummary
    complete: bool
    """Whether `patch` makes all of it; git cannot say that permissions but for the executable
    bit, empty folders or pipes differ."""
    snapshots: SnapshotStore
    paths: PathFilter
    names: tuple[str, str]
    """The two moments for people, as `after step 3`."""
    cut_short: KnownState | None = None
    """Where `after` was to be the end of the run and its files were not kept: what is known."""

    def patch(self) -> Iterator[bytes]:
        """A unified diff that `git apply` takes, in pieces, byte for byte."""
        if self.before.state_id is None or self.after.state_id is None or not self.operations:
            return
        if not self.paths.patterns:
            yield self.snapshots.diff(self.before.state_id, self.after.state_id)
            return
        for names in _batches(self.operations):
            yield self.snapshots.diff(self.before.state_id, self.after.state_id, names)


def diff_run(
    store: Store,
    run: Run,
    *,
    step: int | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    paths: Sequence[str] = (),
) -> RunDiff:
    """What `step` changed; or what is different after `to_step` from after `from_step`.

    `from_step` 0, the default, is before the first step; `to_step` defaults to the last state
    that is known. `paths`: patterns as `PathFilter` takes them. Raises RunNotFound for a step
    that is not there, RepoTraceError if one of the two states was not kept.
    """
    states = StatesOfRun.of(store, run)
    newest = states.newest()
    at_end = step is None and to_step is None
    if step is not None:
        before, after = states.before(step), states.after(step)
        names = (f"before step {step}", moment_name(step))
    else:
        before = states.after(from_step or 0)
        after = states.last() if to_step is None else states.after(to_step)
        end = after.step_number if to_step is None else to_step
        names = (moment_name(from_step or 0), moment_name(end))
    selected = PathFilter(paths, root=run.workspace)
    old, new = (
        required(known, run, name) for known, name in zip((before, after), names, strict=True)
    )
    found = store.snapshots.operations(old, new)
    chosen = tuple(
        operation
        for operation in found
        if selected(operation.path)
        or (operation.renamed_from is not None and selected(operation.renamed_from))
    )
    return RunDiff(
        run=run,
        before=before,
        after=after,
        operations=chosen,
        summary=summary_of(chosen),
        complete=(old == new or bool(found)) and not any(map(_is_inexpressible, chosen)),
        snapshots=store.snapshots,
        paths=selected,
        names=names,
        cut_short=newest if at_end and newest.state_id is None else None,
    )


def moment_name(step: int) -> str:
    """A moment of a run for people."""
    return f"after step {step}" if step else "before the first step"


def summary_of(operations: Sequence[Operation]) -> DiffSummary:
    """How much these operations change."""
    counts = dict.fromkeys(_COUNTED.values(), 0)
    for operation in operations:
        counts[_COUNTED[operation.op]] += 1
    return DiffSummary(
        **counts,
        lines_added=sum(operation.lines_added for operation in operations),
        lines_removed=sum(operation.lines_removed for operation in operations),
    )


def _is_inexpressible(operation: Operation) -> bool:
    """Whether permissions differ in a way that git has no name for."""
    one, other = operation.old_mode, operation.new_mode
    if one is None or other is None or not (stat.S_ISREG(one) and stat.S_ISREG(other)):
        return False
    return one != other and one & 0o100 == other & 0o100


def _batches(operations: Sequence[Operation]) -> Iterator[list[str]]:
    """Paths in order, both names of a rename together."""
    names: list[str] = []
    for operation in operations:
        names.append(operation.path)
        if operation.renamed_from is not None:
            names.append(operation.renamed_from)
        if len(names) >= _AT_ONCE:
            yield names
            names = []
    if names:
        yield names
