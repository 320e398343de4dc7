"""States that are put together from a commit and known contents, without a work tree."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from repotrace.errors import RepoTraceError
from repotrace.system.snapshots.manifest import Manifest
from repotrace.system.snapshots.model import Deadline
from repotrace.system.snapshots.objects import EMPTY_TREE, Tree, tree_data, write_object
from repotrace.system.snapshots.plumbing import locked
from repotrace.system.snapshots.seeding import UserRepository
from repotrace.system.snapshots.store import SnapshotStore

type Entries = Mapping[bytes, tuple[int, str] | None]
"""(git's mode, object id) by path; None for a path that is gone."""

FILE = 0o100644
_FOLDER = 0o40000
_SUBMODULE = 0o160000


class Rebuilder:
    """Writes states into a store that are those of no folder."""

    def __init__(self, store: SnapshotStore) -> None:
        self.store = store
        store.create()
        self._objects = store.path / "objects"
        self._manifest: str | None = None

    def tree_of(self, repository: Path, commit: str) -> str:
        """The tree of a commit, readable in the store; without its submodules.

        The store borrows the objects of the repository until it is finished. Raises
        RepoTraceError where it cannot, or if there is no such commit.
        """
        user = UserRepository.discover(repository, Deadline())
        if user is None or not user.seedable():
            raise RepoTraceError(f"The objects of {repository} cannot be used.")
        with locked(self.store.path / "lock", shared=True, deadline=Deadline()):
            self._borrow(user.objects)
        self.store.close()  # what runs already does not know of the objects
        listed = self.store.git(["ls-tree", "-r", "-z", "--full-tree", commit])
        tree = self.store.git(["rev-parse", "--verify", f"{commit}^{{tree}}"]).decode().strip()
        submodules = [
            line.partition(b"\t")[2]
            for line in listed.split(b"\0")
            if line.startswith(b"%o " % _SUBMODULE)
        ]
        return self.changed(tree, dict.fromkeys(submodules)) if submodules else tree

    def _borrow(self, objects: Path) -> None:
        alternates = self.store.path / "objects" / "info" / "alternates"
        line = os.fsencode(objects) + b"\n"
        known = alternates.read_bytes() if alternates.exists() else b""
        if line not in known.splitlines(keepends=True):
            alternates.write_bytes(known + line)

    @property
    def borrows(self) -> bool:
        """Whether `finish` of the store is needed for it to stand alone."""
        return (self.store.path / "objects" / "info" / "alternates").exists()

    def blob(self, data: bytes) -> str:
        """The object id of a content, which is in the store afterwards."""
        return write_object(self._objects, b"blob", data)

    def entry(self, tree: str, path: bytes) -> tuple[int, str] | None:
        """Mode and object id of a file or link in a tree; None if there is none."""
        found = Tree(self.store.reader, tree).entry(path)
        return None if found is None or found[0] == _FOLDER else found

    def changed(self, tree: str, entries: Entries) -> str:
        """The tree with these paths as they are given. A folder without files goes.

        A path in the place of a folder replaces it, and the other way round.
        """
        below: dict[bytes, dict[bytes, tuple[int, str] | None]] = {}
        here = {name: (mode, oid) for name, mode, oid in self.store.reader.tree(tree)}
        for path, entry in entries.items():
            name, slash, rest = path.partition(b"/")
            if slash:
                below.setdefault(name, {})[rest] = entry
            elif entry is not None:
                here[name] = entry
            elif name in here and here[name][0] != _FOLDER:
                del here[name]
        for name, inner in below.items():
            mode, oid = here.get(name, (0, EMPTY_TREE))
            made = self.changed(oid if mode == _FOLDER else EMPTY_TREE, inner)
            if made != EMPTY_TREE:
                here[name] = (_FOLDER, made)
            elif mode == _FOLDER:
                del here[name]
        if not here:
            return write_object(self._objects, b"tree", b"")
        data = tree_data((name, mode, oid) for name, (mode, oid) in here.items())
        return write_object(self._objects, b"tree", data)

    def state(self, tree: str) -> str:
        """The id of the state that has the files of a tree, with the usual permissions."""
        if self._manifest is None:
            self._manifest = write_object(self._objects, b"blob", Manifest().dump())
        entries = [(b"manifest", FILE, self._manifest), (b"root", _FOLDER, tree)]
        return write_object(self._objects, b"tree", tree_data(entries))

    def keep(self, ref: str, states: Iterable[str], message: str) -> None:
        """Keep states under `ref`, in this order; those that are kept there already stay."""
        known = {record.state_id for record in self.store.history(ref)}
        new = [state for state in dict.fromkeys(states) if state not in known]
        self.store.hold_all(ref, new, message)
