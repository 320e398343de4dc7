"""States as one file of git's own, on their way from one store to another.

What comes in is believed nothing: it is unpacked beside the store, every tree and every path is
looked at, and only what the states need goes on into the store.
"""

from __future__ import annotations

import errno
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from repotrace.errors import ImportFailed, RepoTraceError
from repotrace.system.snapshots.lacking import Lacking, trailers
from repotrace.system.snapshots.manifest import Manifest
from repotrace.system.snapshots.objects import parse_tree
from repotrace.system.snapshots.store import SnapshotStore
from repotrace.system.snapshots.upkeep import sweep_broken

MOST_FILES = 1_000_000
"""Files of one state, and different trees of all."""
LARGEST = 1 << 30
"""Bytes of one object."""
MOST_BYTES = 8 << 30
"""Bytes of all objects, unpacked."""

_NO_STATE = (RepoTraceError, ValueError, KeyError, TypeError, AttributeError, AssertionError)
_ALL_OBJECTS = ("cat-file", "--batch-all-objects", "--unordered")
_REF = "runs/bundle"
_TREE, _LINK, _FILES = 0o40000, 0o120000, (0o100644, 0o100755)
_MODES = 0o1777
"""Bits that a mode may have: nothing from elsewhere runs as somebody else."""


def present(store: SnapshotStore, states: Iterable[str]) -> list[str]:
    """Those states that the store has, each once."""
    found = []
    for state_id in dict.fromkeys(states):
        try:
            store.state(state_id)
        except _NO_STATE:
            continue
        found.append(state_id)
    return found


def write_bundle(
    store: SnapshotStore, states: Sequence[tuple[str, Lacking]], contents: Iterable[bytes]
) -> bytes:
    """The states, with what the workspace had beside each, and contents that no state may hold."""
    with TemporaryDirectory(prefix="repotrace-bundle-") as folder:
        made = SnapshotStore(Path(folder) / "states.git")
        made.create()
        _borrow(made, store)
        return _bundled(made, states, contents, Path(folder))


def _bundled(
    made: SnapshotStore,
    states: Sequence[tuple[str, Lacking]],
    contents: Iterable[bytes],
    folder: Path,
) -> bytes:
    for state_id, lacking in states:
        made.hold(_REF, state_id, "state" + trailers(lacking.not_captured, lacking.nested))
    made.keep(_REF, *contents)
    file = folder / "states.bundle"
    made.git(["bundle", "create", "-q", str(file), "--all"])
    made.close()
    return file.read_bytes()


@contextmanager
def read_bundle(data: bytes) -> Iterator[SnapshotStore]:
    """A store of its own with what is in a bundle; nothing in it has been looked at.

    Raises ImportFailed for what is no bundle, or too large unpacked.
    """
    with TemporaryDirectory(prefix="repotrace-bundle-") as folder:
        file = Path(folder) / "states.bundle"
        file.write_bytes(data)
        found = SnapshotStore(Path(folder) / "states.git")
        found.create()
        try:
            found.git(["-c", "fetch.fsckObjects=false", "bundle", "unbundle", str(file)])
            _refuse_large(found)
        except ImportFailed:
            raise
        except RepoTraceError as error:
            if os.strerror(errno.ENOSPC) in error.message:
                raise
            raise ImportFailed("The states in the bundle are damaged.") from error
        try:
            yield found
        finally:
            found.close()


def take_states(
    found: SnapshotStore,
    states: Sequence[tuple[str, Lacking]],
    objects: Iterable[str],
    store: SnapshotStore,
    ref: str,
) -> None:
    """Keep states of a read bundle in the store, under `ref`.

    With them those contents, named by object ids, that none of the states holds. Raises
    ImportFailed if one of the states is not what a state may be; then nothing is kept.
    """
    look = _Look(found)
    for state_id, _ in states:
        look.state(state_id)
    contents = list(_others(found, [state_id for state_id, _ in states], objects))
    with TemporaryDirectory(prefix="repotrace-bundle-") as folder:
        clean = SnapshotStore(Path(folder) / "clean.git")
        clean.create()
        _borrow(clean, found)
        file = Path(folder) / "clean.bundle"
        file.write_bytes(_bundled(clean, states, contents, Path(folder)))
        store.create()
        try:
            store.git(["bundle", "unbundle", str(file)])
        except RepoTraceError:
            sweep_broken(store.path)
            raise
    for state_id, lacking in states:
        said = "received" + trailers(lacking.not_captured, lacking.nested)
        store.hold(ref, state_id, said)
    if contents:
        store.keep(ref, *contents)


def _others(found: SnapshotStore, states: Iterable[str], objects: Iterable[str]) -> Iterator[bytes]:
    inside = {entry.object_id for state_id in states for entry in found.list(state_id)}
    for object_id in dict.fromkeys(objects):
        data = None if object_id in inside else found.read_object(object_id)
        if data is not None:
            yield data


def _borrow(store: SnapshotStore, other: SnapshotStore) -> None:
    """Lets a store read the objects of another one."""
    objects = os.fsencode(other.path / "objects")
    if objects[:1] in (b'"', b"#") or b"\n" in objects:
        raise RepoTraceError(f"Objects cannot be borrowed from {str(other.path)!r}.")
    if (other.path / "objects").is_dir():
        (store.path / "objects" / "info" / "alternates").write_bytes(objects + b"\n")


def _refuse_large(store: SnapshotStore) -> None:
    listed = store.git([*_ALL_OBJECTS, "--batch-check=%(objectsize)"])
    sizes = [int(line) for line in listed.split()]
    if max(sizes, default=0) > LARGEST or sum(sizes) > MOST_BYTES:
        raise ImportFailed("The files in the bundle are too large unpacked.")


class _Look:
    """Looks at states from elsewhere, at each tree once."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._counts: dict[str, int] = {}
        listed = store.git([*_ALL_OBJECTS, "--batch-check=%(objectname) %(objecttype)"])
        self._blobs = {
            line[:40].decode() for line in listed.splitlines() if line.endswith(b" blob")
        }

    def state(self, state_id: str) -> None:
        """Raises ImportFailed unless this is a state that can be written into a folder."""
        try:
            parts = self._store.state(state_id)
        except _NO_STATE as error:
            raise ImportFailed(f"The bundle lacks the state {state_id[:12]}.") from error
        self._manifest(parts.manifest)
        if self._count(parts.tree, 0) > MOST_FILES:
            raise ImportFailed("A state in the bundle has too many files.")

    def _count(self, tree: str, depth: int) -> int:
        """How many files are below a tree, however often it is used."""
        known = self._counts.get(tree)
        if known is not None:
            return known
        if depth > 200 or len(self._counts) > MOST_FILES:
            raise ImportFailed("The folders in the bundle are nested too deeply.")
        total = 0
        names = set()
        for name, mode, object_id in self._entries(tree):
            _refuse_name(name)
            if name in names:
                raise ImportFailed("A folder in the bundle has a name twice.")
            names.add(name)
            if mode == _TREE:
                total += self._count(object_id, depth + 1)
            elif mode in _FILES or mode == _LINK:
                total += 1
                if object_id not in self._blobs:
                    raise ImportFailed("A file in the bundle is missing.")
            else:
                raise ImportFailed("The bundle holds what is neither file, link nor folder.")
        self._counts[tree] = total
        return total

    def _entries(self, tree: str) -> list[tuple[bytes, int, str]]:
        found = self._store.reader.get(tree)
        try:
            if found is None or found[0] != "tree":
                raise ValueError(tree)
            return list(parse_tree(found[1]))
        except (ValueError, IndexError) as error:
            raise ImportFailed("A folder in the bundle is damaged.") from error

    def _manifest(self, manifest: Manifest) -> None:
        usual = (manifest.file, manifest.executable, manifest.folder)
        named = (manifest.modes, manifest.folders, manifest.empty, manifest.fifos)
        modes = [*usual, *(mode for one in named for mode in one.values())]
        if not all(isinstance(mode, int) and 0 <= mode & ~0o170000 <= _MODES for mode in modes):
            raise ImportFailed("The bundle holds permissions that nothing from elsewhere gets.")
        for path in (path for one in named for path in one):
            for name in path.split(b"/") if path else ():
                _refuse_name(name)


def _refuse_name(name: bytes) -> None:
    """Raises ImportFailed for what leads out of a folder, or into a repository."""
    if name in (b"", b".", b"..") or b"/" in name or b"\0" in name or _is_git(name):
        raise ImportFailed(f"The bundle holds a path that is not allowed: {name!r}.")


def _is_git(name: bytes) -> bool:
    text = name.decode("utf-8", "replace")
    seen = "".join(c for c in unicodedata.normalize("NFC", text) if unicodedata.category(c) != "Cf")
    return seen.rstrip(" .").casefold() in (".git", "git~1")
