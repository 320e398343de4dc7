"""A folder that moves from state to state by difference, for running things in."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Self

from repotrace.errors import RepoTraceError
from repotrace.system.snapshots import Manifest, SnapshotStore
from repotrace.system.snapshots.checkout import Checkout, Difference, Written, written
from repotrace.system.snapshots.objects import EMPTY_TREE


class Scratch:
    """One folder per worker. Nothing outside of it is written, whatever a test left in it.

    `keep` are names at its top (a `.venv`, say) that are the caller's own: neither written
    nor removed, unless a state has a file of that name.
    A file `<folder>.scratch` beside the folder says that it is ours to empty.
    """

    def __init__(self, store: SnapshotStore, folder: Path, *, keep: Collection[str] = ()) -> None:
        self.folder = Path(os.path.abspath(folder))  # noqa: PTH100 - keeps links as they are
        self.state_id: str | None = None
        """The state that the folder holds; None while it holds none."""
        self._store = store
        self._keep = frozenset(os.fsencode(name) for name in keep)
        self._marker = Path(f"{self.folder}.scratch")
        if self.folder.is_symlink():
            raise RepoTraceError(f"{self.folder} is a link.", hint="Name a new folder.")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._marker.exists() and any(self.folder.iterdir()):
            raise RepoTraceError(f"{self.folder} is not empty.", hint="Name a new folder.")
        self._marker.touch(mode=0o600)
        self._checkout = Checkout(self.folder, keep)
        self._manifest = Manifest()
        self._tree = EMPTY_TREE
        self._files: dict[bytes, tuple[int, str]] = {}
        """Git's mode and object id of every path that the state has."""
        self._written: dict[bytes, Written] = {}
        self._empty()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the folder; it stays as it is."""
        self._checkout.close()

    def goto(self, state_id: str) -> None:
        """Makes the folder the state, given that it is as the last call left it.

        After something else wrote in it, call `restore()` first. If it fails half-way, the
        next call starts from an empty folder.
        """
        state = self._store.state(state_id)
        if self.state_id == state_id:
            return
        if self.state_id is None:
            self._empty()
        self.state_id = None
        changes = self._store.differ.diff(self._tree, state.tree)
        self._apply(changes, state.manifest)
        self._tree = state.tree
        self.state_id = state_id

    def _apply(self, changes: list[Difference], manifest: Manifest) -> None:
        for path, _, mode, _, oid in changes:
            if mode:
                self._files[path] = (mode, oid)
            else:
                self._files.pop(path, None)
        done = self._checkout.apply(changes, self._store.reader, self._manifest, manifest)
        for path, stamp in done.items():
            if stamp is None:
                self._written.pop(path, None)
            else:
                self._written[path] = stamp
        self._manifest = manifest

    def dirty(self) -> bool:
        """Whether anything in the folder differs from the state it should hold."""
        return bool(self._extra()) or bool(self._damaged()) or self._folders_differ()

    def restore(self) -> int:
        """Puts the folder back to its state after a test ran in it; how many paths it took."""
        if self.state_id is None:
            self._empty()
            return 0
        self._checkout.unlock_all()
        extra = self._extra()
        for path in extra:
            self._checkout.remove(path)
        damaged = self._damaged()
        if damaged or self._folders_differ():
            changes: list[Difference] = []
            for path in sorted(damaged):
                mode, oid = self._files[path]
                changes.append((path, 0, mode, "", oid))
            self._repair(changes)
        return len(extra) + len(damaged)

    def _repair(self, changes: list[Difference]) -> None:
        """Writes these paths anew, then every folder, FIFO and mode of the state."""
        # A state that resembles no other: everything of the manifest is applied.
        bare = Manifest(-1, -1, -1)
        done = self._checkout.apply(changes, self._store.reader, bare, self._manifest)
        self._written.update({path: stamp for path, stamp in done.items() if stamp is not None})

    def clean(self) -> int:
        """Removes what the state does not have, leaving changed files; how many paths went."""
        extra = self._extra()
        for path in extra:
            self._checkout.remove(path)
        return len(extra)

    def _damaged(self) -> set[bytes]:
        """Files of the state that are gone or not as they were written."""
        base = os.fsencode(self.folder) + b"/"
        found = set()
        for path in self._files:
            known = self._written.get(path)
            try:
                now = written(os.lstat(base + path))
            except OSError:
                now = None
            if now is None or now != known:
                found.add(path)
        return found

    def _extra(self) -> list[bytes]:
        """The topmost paths that the state does not have."""
        parents = _parents(self._files)
        parents |= _parents(self._manifest.fifos)
        parents |= _parents(path + b"/x" for path in self._manifest.empty)
        found = []
        for path, is_folder in self._walk(parents):
            if is_folder:
                if path not in parents:
                    found.append(path)
            elif path not in self._files and path not in self._manifest.fifos:
                found.append(path)
        return found

    def _walk(self, parents: set[bytes]) -> Iterator[tuple[bytes, bool]]:
        base = os.fsencode(self.folder)
        pending = [b""]
        while pending:
            top = pending.pop()
            with suppress(OSError), os.scandir(base + b"/" + top) as entries:
                for entry in entries:
                    if not top and entry.name in self._keep:
                        continue
                    path = top + b"/" + entry.name if top else entry.name
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if is_folder and path in parents:
                        pending.append(path)
                    yield path, is_folder

    def _folders_differ(self) -> bool:
        """Whether a folder or FIFO is missing or has another mode."""
        base = os.fsencode(self.folder) + b"/"
        wanted = {p: stat.S_IFIFO | m for p, m in self._manifest.fifos.items()}
        folders = _parents([*self._files, *self._manifest.fifos])
        folders |= _parents(path + b"/x" for path in self._manifest.empty)
        wanted |= {p: stat.S_IFDIR | self._manifest.folder_mode(p) for p in folders}
        for path, mode in wanted.items():
            try:
                if os.lstat(base + path).st_mode != mode:
                    return True
            except OSError:
                return True
        return False

    def _empty(self) -> None:
        """Removes everything but what is kept, and knows nothing any more."""
        self._checkout.unlock_all()
        for name in os.listdir(os.fsencode(self.folder)):  # noqa: PTH208
            if name not in self._keep:
                self._checkout.remove(name)
        self._tree, self._manifest, self.state_id = EMPTY_TREE, Manifest(), None
        self._files.clear()
        self._written.clear()


def _parents(paths: Iterable[bytes]) -> set[bytes]:
    """Every folder above any of the paths."""
    found: set[bytes] = set()
    for path in paths:
        parent = path.rpartition(b"/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition(b"/")[0]
    return found
