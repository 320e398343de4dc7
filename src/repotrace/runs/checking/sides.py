"""The two states that a check compares: of a run, or of a commit and the work tree."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from repotrace.blame import Candidate, candidates_of
from repotrace.errors import RepoTraceError
from repotrace.records.blame import Change, CheckedTest
from repotrace.records.run import Run, RunStatus, StateQuality
from repotrace.runs.states import StatesOfRun, required
from repotrace.runs.testing.sources import source_of
from repotrace.storage import Store
from repotrace.system.commits import resolved
from repotrace.system.snapshots.objects import Tree
from repotrace.system.snapshots.rebuild import Rebuilder


@dataclass
class Sides:
    """What was before and what is after, and the states between."""

    store: Store
    base_state: str
    base_about: str
    final_state: str
    about: str
    """Of the final state, for people."""
    candidates: tuple[Candidate, ...]
    """All states in order; just the two where nothing finer is known."""
    base_inferred: bool = False
    inferred: bool = False
    notes: tuple[str, ...] = field(default=())
    ref: str | None = None
    """Keeps the states for as long as they are needed."""

    @cached_property
    def changed(self) -> frozenset[str]:
        """The paths that differ between the two."""
        snapshots = self.store.snapshots
        trees = [snapshots.state(state).tree for state in (self.base_state, self.final_state)]
        return frozenset(os.fsdecode(path) for path, *_ in snapshots.differ.diff(*trees))

    def has(self, state_id: str, path: str) -> bool:
        """Whether a state has such a file or folder."""
        tree = Tree(self.store.snapshots.reader, self.store.snapshots.state(state_id).tree)
        return path in ("", ".") or tree.entry(os.fsencode(path.rstrip("/"))) is not None

    def read_base(self, path: str) -> bytes | None:
        """The content of a file before; None if there was none."""
        return self.store.snapshots.read(self.base_state, path)

    def read_final(self, path: str) -> bytes | None:
        """The content of a file after; None if there is none."""
        return self.store.snapshots.read(self.final_state, path)

    def step_of(self, entry: CheckedTest) -> int | None:
        """The step that last changed the source of a test; None if that is not to be told."""
        if entry.change not in _OF_SOURCE and entry.how not in _OF_SOURCE:
            return None
        path = entry.test.partition("::")[0]
        if not path.endswith(".py") or len(self.candidates) < 2:
            return None
        texts = [self._source(one.state_id, entry.test, path) for one in self.candidates]
        for index in range(len(texts) - 1, 0, -1):
            if texts[index] != texts[index - 1]:
                steps = self.candidates[index].steps
                return steps[0] if len(steps) == 1 else None
        return None

    def _source(self, state_id: str, test: str, path: str) -> str | None:
        found = source_of(self.store.snapshots.read(state_id, path), test)
        return None if found is None else found.whole

    def close(self) -> None:
        """Lets go of states that only the check needed."""
        if self.ref is not None:
            self.store.snapshots.delete(self.ref)
            self.store.snapshots.settle()


_OF_SOURCE = (Change.DELETED, Change.SKIPPED, Change.XFAILED, Change.WEAKENED)


def sides_of_run(store: Store, run: Run) -> Sides:
    """What was before the first step of a run, and what is after its last one.

    Raises RepoTraceError if one of the two was not kept.
    """
    steps = store.runs.steps(run.id)
    states = StatesOfRun(run, steps)
    first, last = states.after(0), states.last()
    base = required(first, run, "before the first step")
    final = required(last, run, "at the end")
    notes = []
    if last.quality != StateQuality.EXACT:
        notes.append(f"on inferred states: {last.reason or 'rebuilt from a transcript'}")
    if states.newest().state_id is None:
        notes.append(f"the files at the end were not kept; step {last.step_number} is the last one")
    if run.status == RunStatus.RUNNING:
        notes.append("the run has not ended; this is about what it did so far")
    told = run.attributes.get("end_state")
    if isinstance(told, dict) and told.get("equal") is False:
        names = ", ".join(map(str, list(told.get("differing") or [])[:5]))
        notes.append(f"the rebuilt end differs from the {told.get('against')} in {names}")
    candidates = candidates_of(run, steps)
    if candidates and candidates[0].state_id != base:
        later = (replace(one, index=one.index + 1) for one in candidates)
        candidates = (Candidate(0, base), *later)
    _refuse_without(store, dict.fromkeys([base, *(one.state_id for one in candidates), final]))
    return Sides(
        store,
        base,
        f"before step 1 of {run.id}",
        final,
        f"after step {last.step_number} of {run.id}",
        candidates,
        base_inferred=first.quality != StateQuality.EXACT,
        inferred=last.quality != StateQuality.EXACT,
        notes=tuple(notes),
    )


def sides_of_commit(store: Store, workspace: Path, rev: str) -> Sides:
    """A commit and the work tree as it is now.

    Raises RepoTraceError if there is no such commit, or the work tree cannot be kept.
    """
    commit = resolved(workspace, rev)
    if commit is None:
        raise RepoTraceError(
            f"{rev!r} is no commit of {workspace}.", hint="Name one that `git log` shows."
        )
    ref = f"runs/check-{os.getpid()}-{sha256(os.fsencode(workspace)).hexdigest()[:8]}"
    rebuilder = Rebuilder(store.snapshots)
    base = rebuilder.state(rebuilder.tree_of(workspace, commit))
    store.snapshots.hold(ref, base, "check")
    taken = store.snapshots.take(workspace, ref=ref)
    if taken.state_id is None:
        with suppress(RepoTraceError):
            store.snapshots.delete(ref)
        raise RepoTraceError(f"The work tree cannot be kept: {taken.reason}")
    return Sides(
        store,
        base,
        f"{rev} ({commit[:12]})" if not commit.startswith(rev) else f"commit {commit[:12]}",
        taken.state_id,
        "the work tree",
        (Candidate(0, base), Candidate(1, taken.state_id)),
        ref=ref,
    )


def _refuse_without(store: Store, state_ids: Iterable[str]) -> None:
    for state_id in state_ids:
        try:
            store.snapshots.state(state_id)
        except RepoTraceError as error:
            raise RepoTraceError(
                "The files of this run are not kept any more.",
                hint="They may have been pruned; see: repotrace runs gc --help",
            ) from error
