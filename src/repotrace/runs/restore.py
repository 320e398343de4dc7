"""Gives back the files of a state: into a new folder, or, only when asked, in place."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from repotrace.errors import RepoTraceError
from repotrace.journal import new_id
from repotrace.records.base import printable
from repotrace.records.run import Run, RunStatus
from repotrace.runs.paths import PathFilter
from repotrace.runs.states import KnownState, StatesOfRun, required
from repotrace.storage import Store
from repotrace.storage.consent import workspace_here
from repotrace.system.snapshots import Lacking, Manifest, SnapshotStore, refuse_wide
from repotrace.system.snapshots.checkout import Checkout, Difference
from repotrace.system.snapshots.objects import EMPTY_TREE

UNDO_REF = "runs/undo-"
"""What the refs of safety states begin with."""

_NEVER = frozenset({b"", b".", b"..", b".git", b".repotrace"})
"""Names that no path of a state may have: it would lead elsewhere."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was written, or with `dry_run` would be."""

    folder: Path
    state_id: str
    written: tuple[str, ...]
    """Paths that are new or changed, sorted."""
    deleted: tuple[str, ...]
    safety_state: str | None = None
    """The files as they were before, where they were changed in place."""


@dataclass(slots=True)
class _Part:
    """The selected part of a state, with the permissions of each path spelt out."""

    files: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    """Git's mode and object id."""
    manifest: Manifest = field(default_factory=Manifest)
    """Its `folders` are all that the state has."""
    above: set[bytes] = field(default_factory=set)
    """The folders that lead to selected paths."""
    empty: dict[bytes, int] = field(default_factory=dict)
    """All empty folders of the state."""

    def has(self, path: bytes) -> bool:
        return path in self.files or path in self.manifest.fifos


@dataclass(frozen=True, slots=True)
class _Plan:
    changes: list[Difference]
    old: Manifest
    new: Manifest
    written: frozenset[bytes]
    deleted: frozenset[bytes]

    @property
    def folders(self) -> frozenset[bytes]:
        """Empty folders that come into being."""
        return frozenset(self.new.empty.keys() - self.old.empty.keys())

    @property
    def nothing(self) -> bool:
        return not (self.written or self.deleted or self.folders) and self.old == self.new


def state_of_step(store: Store, run: Run, step: int) -> KnownState:
    """The files after a step, 0 for before the first.

    Raises RunNotFound for a step that is not there, RepoTraceError if its files were not kept.
    """
    known = StatesOfRun.of(store, run).after(step)
    required(known, run, f"after step {step}" if step else "before the first step")
    return known


def lacking(store: Store, run: Run, state_id: str) -> Lacking:
    """What the workspace had beside the state when the run took it."""
    found = store.snapshots.lacking(f"runs/{run.id}", state_id)
    if found == Lacking() and run.parent_run_id is not None:
        return store.snapshots.lacking(f"runs/{run.parent_run_id}", state_id)
    return found


def undo_command(state_id: str) -> str:
    """The command that puts a safety state back."""
    return f"repotrace runs restore --state {state_id} --in-place"


def folder_beside(workspace: Path, name: str) -> Path:
    """Where files go that nobody gave a place: in the work tree, its states would hold them too,
    and its tests would be found twice."""
    return workspace.with_name(f"{workspace.name}-{name}") if workspace.name else Path(name)


def restore_into(
    store: Store,
    state_id: str,
    folder: Path,
    *,
    paths: PathFilter | None = None,
    dry_run: bool = False,
) -> Restored:
    """Make `folder`, which must be new or empty, the state: bytes, links and permissions.

    Raises RepoTraceError if it is neither, or if it cannot be written; then nothing is left.
    """
    plan = _plan(_Part(), _part(store.snapshots, state_id, paths or PathFilter()), PathFilter())
    _refuse_odd(plan.written | plan.folders)
    existed = is_empty_folder(folder)
    result = Restored(folder, state_id, _texts(plan.written), ())
    if dry_run:
        return result
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _apply(store.snapshots, folder, plan)
    except BaseException as error:
        clear_folder(folder, keep=existed)
        if not isinstance(error, OSError) or isinstance(error, RepoTraceError):
            raise
        if error.errno is None:
            raise RepoTraceError(f"The state is not whole: {error}.") from error
        raise RepoTraceError(
            f"{folder} cannot be written: {error.strerror}.",
            hint="Name another folder with --into.",
        ) from error
    return result


def restore_in_place(
    store: Store,
    state_id: str,
    workspace: Path,
    *,
    paths: PathFilter | None = None,
    dry_run: bool = False,
    on_safety: Callable[[str], None] | None = None,
) -> Restored:
    """Give the files of `workspace` the state; only what differs is written.

    First the present files are kept as a safety state, whose id `on_safety` gets before
    anything is written. What is not captured (ignored files, secrets, `.git`) stays as it is;
    where such a file is in the way, or where the present files cannot be kept, RepoTraceError
    is raised and nothing is written. `undo_command` puts the safety state back.
    """
    root = refuse_wide(workspace)
    store.snapshots.state(state_id)
    ref = f"{UNDO_REF}{new_id()}"
    taken = store.snapshots.take(root, ref=ref, message=f"before restoring {state_id}")
    if taken.state_id is None:
        raise RepoTraceError(
            f"The present files could not be kept, so nothing was restored: {taken.reason}",
            hint="Restore into a new folder with --into.",
        )
    kept = False
    try:
        selected = paths or PathFilter()
        now, then = (_part(store.snapshots, name, selected) for name in (taken.state_id, state_id))
        plan = _plan(now, then, selected)
        _refuse_odd(plan.written | plan.deleted | plan.folders)
        _refuse_conflicts(root, now, plan, {os.fsencode(path) for path in taken.unsettled})
        _spare_used_folders(root, plan)
        result = Restored(root, state_id, _texts(plan.written), _texts(plan.deleted))
        if dry_run or plan.nothing:
            return result
        kept = True
    finally:
        if not kept:
            store.snapshots.delete(ref)
    if on_safety is not None:
        on_safety(taken.state_id)
    try:
        _apply(store.snapshots, root, plan)
    except OSError as error:
        raise RepoTraceError(
            f"Restoring stopped half-way: {error.strerror or error}.",
            hint=f"Undo it with: {undo_command(taken.state_id)}",
        ) from error
    return Restored(root, state_id, result.written, result.deleted, taken.state_id)


def refuse_busy(store: Store, workspace: Path) -> None:
    """Raises RepoTraceError while a run is being recorded in `workspace`."""
    root = workspace.resolve()
    for run in store.runs.list(status=RunStatus.RUNNING):
        here = workspace_here(store, run)
        if here is not None and Path(os.path.realpath(here)) == root:
            raise RepoTraceError(
                f"Run {run.id} is being recorded in {root}.",
                hint="Wait for its end, or say --force.",
            )


# --- What is to be done -----------------------------------------------------------------


def _part(snapshots: SnapshotStore, state_id: str, selected: PathFilter) -> _Part:
    state = snapshots.state(state_id)
    part = _Part(empty=state.manifest.empty)
    part.manifest.fifos = _selected(state.manifest.fifos, selected)
    part.manifest.empty = _selected(state.manifest.empty, selected)
    everything = [*state.manifest.fifos, *(path + b"/x" for path in state.manifest.empty)]
    for path, _, mode, _, oid in snapshots.differ.diff(EMPTY_TREE, state.tree):
        everything.append(path)
        if selected(os.fsdecode(path)):
            part.files[path] = (mode, oid)
            if stat.S_ISREG(mode):
                part.manifest.modes[path] = stat.S_IMODE(state.manifest.mode(path, mode))
    for folder in _parents(everything):
        part.manifest.folders[folder] = state.manifest.folder_mode(folder)
    part.above = _parents(
        [*part.files, *part.manifest.fifos, *(path + b"/x" for path in part.manifest.empty)]
    )
    return part


def _selected(modes: dict[bytes, int], selected: PathFilter) -> dict[bytes, int]:
    return {path: mode for path, mode in modes.items() if selected(os.fsdecode(path))}


def _plan(now: _Part, then: _Part, selected: PathFilter) -> _Plan:
    """How to come from the one to the other."""
    changes: list[Difference] = []
    for path in sorted(now.files.keys() | then.files.keys()):
        before, after = now.files.get(path, (0, "")), then.files.get(path, (0, ""))
        if before != after:
            changes.append((path, before[0], after[0], before[1], after[1]))
    old, new = now.manifest, then.manifest
    new_modes = {path for path, mode in new.modes.items() if old.modes.get(path) != mode}
    written = {path for path, _, mode, _, _ in changes if mode} | new_modes
    written |= {path for path, mode in new.fifos.items() if old.fifos.get(path) != mode}
    deleted = {path for path, _, mode, _, _ in changes if not mode}
    deleted |= old.fifos.keys()
    deleted -= then.files.keys() | new.fifos.keys()
    # A folder that is not meant keeps its permissions, and so does one that only keeps what no
    # state holds.
    folders = {
        path: new.folders[path]
        for path in then.above
        if path not in old.folders or selected(os.fsdecode(path))
    }
    left = _parents(deleted)
    goal = Manifest(modes=new.modes, folders={**old.folders, **folders}, fifos=new.fifos)
    goal.empty = new.empty | {path: mode for path, mode in then.empty.items() if path in left}
    return _Plan(changes, old, goal, frozenset(written), frozenset(deleted))


def _spare_used_folders(root: Path, plan: _Plan) -> None:
    """Lets folders be that are empty but for what no state holds."""
    for path in plan.old.empty.keys() - plan.new.empty.keys():
        with suppress(OSError):
            if os.listdir(os.fsencode(root) + b"/" + path):  # noqa: PTH208 - any name
                plan.new.empty[path] = plan.old.empty[path]


def _parents(paths: Iterable[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for path in paths:
        while (path := path.rpartition(b"/")[0]) and path not in found:
            found.add(path)
    return found


def _texts(paths: Iterable[bytes]) -> tuple[str, ...]:
    return tuple(os.fsdecode(path) for path in sorted(paths))


# --- What must not be done --------------------------------------------------------------


def _refuse_odd(paths: Iterable[bytes]) -> None:
    """States of our own hold no such path; one that came from elsewhere may."""
    for path in paths:
        if any(part.lower() in _NEVER for part in path.split(b"/")):
            raise RepoTraceError(f"The state holds {_shown(path)}, which may not be written.")


def is_empty_folder(folder: Path) -> bool:
    """Whether the folder exists. Raises RepoTraceError if something is there or in it."""
    try:
        if next(folder.iterdir(), None) is not None:
            raise RepoTraceError(f"{folder} is not empty.", hint="Name a new folder with --into.")
    except FileNotFoundError:
        return False
    except OSError as error:
        if isinstance(error, RepoTraceError):
            raise
        raise RepoTraceError(
            f"{folder} cannot be used: {error.strerror}.", hint="Name a new folder with --into."
        ) from error
    return True


def _refuse_conflicts(root: Path, now: _Part, plan: _Plan, unsettled: set[bytes]) -> None:
    """Raises RepoTraceError where a file that no state holds would have to go."""
    look = _Looking(root)
    found = {path for path in unsettled if path in plan.written or path in plan.deleted}
    for path in plan.written | plan.folders:
        blocking = look.blocking(path)
        if blocking is not None and blocking not in plan.deleted:
            found.add(blocking)
        mode = look.mode(path)
        if mode is None or now.has(path):
            continue
        if not stat.S_ISDIR(mode):
            found.add(path)
        elif path not in plan.folders:
            found.update(look.below(path) - plan.deleted)
    for path in plan.deleted:
        mode = look.mode(path)
        if mode is not None and stat.S_ISDIR(mode):
            found.add(path)
    if found:
        names = ", ".join(_shown(path) for path in sorted(found)[:5])
        more = f" and {len(found) - 5} more" if len(found) > 5 else ""
        raise RepoTraceError(
            f"In the way are files that no state holds or that change right now: {names}{more}",
            hint="Move them away, or restore into a new folder with --into.",
        )


class _Looking:
    """What is at a path now, through real folders only."""

    def __init__(self, root: Path) -> None:
        self._base = os.fsencode(root)
        self._modes: dict[bytes, int | None] = {b"": stat.S_IFDIR}

    def mode(self, path: bytes) -> int | None:
        """`st_mode`; None if nothing is there, or if a link leads there."""
        if path not in self._modes:
            above = self.mode(path.rpartition(b"/")[0])
            found = None
            if above is not None and stat.S_ISDIR(above):
                with suppress(OSError):
                    found = os.lstat(self._base + b"/" + path).st_mode
            self._modes[path] = found
        return self._modes[path]

    def blocking(self, path: bytes) -> bytes | None:
        """What is no folder above the path."""
        while path := path.rpartition(b"/")[0]:
            mode = self.mode(path)
            if mode is not None and not stat.S_ISDIR(mode):
                return path
        return None

    def below(self, folder: bytes) -> set[bytes]:
        """All that is in a folder but for folders."""
        found: set[bytes] = set()
        for top, folders, files in os.walk(self._base + b"/" + folder):
            links = [name for name in folders if os.path.islink(os.path.join(top, name))]  # noqa: PTH114, PTH118
            inside = os.path.relpath(top, self._base)
            found.update(inside + b"/" + name for name in (*files, *links))
        return found


def _shown(path: bytes) -> str:
    return printable(repr(os.fsdecode(path)))


# --- Doing it ---------------------------------------------------------------------------


def _apply(snapshots: SnapshotStore, folder: Path, plan: _Plan) -> None:
    checkout = Checkout(folder)
    try:
        checkout.apply(plan.changes, snapshots.reader, plan.old, plan.new)
    finally:
        checkout.close()


def clear_folder(folder: Path, *, keep: bool) -> None:
    """Removes what was written into a folder that was new or empty."""
    if not folder.is_dir():
        return
    with suppress(OSError):
        checkout = Checkout(folder)
        try:
            checkout.unlock_all()
        finally:
            checkout.close()
        for path in folder.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        if not keep:
            folder.rmdir()
