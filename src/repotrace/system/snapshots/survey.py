"""What lies in a workspace's folders: a memory of every folder, renewed where one changed.

Git tells which tracked files changed; a folder's own timestamps tell where names came or
went. So a look at an unchanged workspace reads no folder at all.
"""

from __future__ import annotations

import marshal
import os
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from repotrace.system.snapshots.exclusion import (
    RESERVED,
    is_ordinary,
    is_refused_by_git,
    is_regenerable,
    is_secret,
)
from repotrace.system.snapshots.model import Reason
from repotrace.system.snapshots.seeding import Signature

_VERSION = 1
FOLDER = "d"
"""In place of a mode: a folder that has its own entry."""
LEFT_OUT = ""
"""In place of a mode: a name that is not captured."""
_MEASURED = 500
"""Entries of a left-out folder that are looked at to tell its size."""

type Stamp = tuple[int, int, int, int]


@dataclass(slots=True)
class Folder:
    """One folder as it was last seen. `stamp` None: to be read again next time."""

    stamp: Stamp | None
    mode: int
    names: dict[bytes, int | str] = field(default_factory=dict)
    """`st_mode` of a captured name, or FOLDER, or LEFT_OUT."""


@dataclass(slots=True)
class Memory:
    """All that is remembered of a workspace between two looks at it."""

    folders: dict[bytes, Folder] = field(default_factory=dict)
    skipped: dict[bytes, dict[bytes, tuple[Reason, int | None, bool]]] = field(default_factory=dict)
    """Per folder the names that are left out: reason, size, whether a folder."""
    recent: dict[bytes, int] = field(default_factory=dict)
    """Files changed so lately that a change of mode alone would escape git, with their ctime."""
    sources: Signature = ()
    entries: int = -1
    """How many entries the index had when all this was true."""
    tree: str = ""
    state_id: str = ""
    manifest: str = ""

    def dump(self) -> bytes:
        folders = {path: (f.stamp, f.mode, f.names) for path, f in self.folders.items()}
        return marshal.dumps(
            (
                (_VERSION, folders, self.skipped, self.recent, self.sources),
                (self.entries, self.tree, self.state_id, self.manifest),
            )
        )

    @classmethod
    def load(cls, data: bytes) -> Memory | None:
        """None for anything that `dump` of this version did not write."""
        try:
            first, last = marshal.loads(data)
            version, folders, skipped, recent, sources = first
            if version != _VERSION:
                return None
            known = {path: Folder(*value) for path, value in folders.items()}
            return cls(known, skipped, recent, sources, *last)
        except (ValueError, TypeError, EOFError):
            return None

    def modes(self) -> Counter[Any]:
        """How many names there are of each mode (and of FOLDER, LEFT_OUT)."""
        return Counter(chain.from_iterable(f.names.values() for f in self.folders.values()))

    def indexed(self) -> int:
        """How many entries an index of the captured names has."""
        return sum(number for mode, number in self.modes().items() if _is_indexed(mode))

    def files(self) -> Iterator[bytes]:
        """Every captured file and link."""
        for parent, folder in self.folders.items():
            for name, mode in folder.names.items():
                if _is_indexed(mode):
                    yield parent + b"/" + name if parent else name

    def forget(self, path: bytes) -> None:
        """Drops a folder and all below it."""
        if self.folders.pop(path, None) is None:
            return
        prefix = path + b"/"
        for known in [p for p in self.folders if p.startswith(prefix)]:
            del self.folders[known]
            self.skipped.pop(known, None)
        self.skipped.pop(path, None)

    def set_mode(self, path: bytes, mode: int | str) -> bool:
        """Notes a name's mode; False if its folder is not known."""
        parent, _, name = path.rpartition(b"/")
        folder = self.folders.get(parent)
        if folder is None:
            return False
        folder.names[name] = mode
        return True

    def drop(self, path: bytes) -> None:
        parent, _, name = path.rpartition(b"/")
        folder = self.folders.get(parent)
        if folder is not None and isinstance(folder.names.get(name), int):
            del folder.names[name]

    def skip(self, path: bytes, reason: Reason, size: int | None, is_folder: bool) -> None:
        parent, _, name = path.rpartition(b"/")
        self.skipped.setdefault(parent, {})[name] = (reason, size, is_folder)
        self.set_mode(path, LEFT_OUT)

    def unskip(self, path: bytes) -> None:
        parent, _, name = path.rpartition(b"/")
        names = self.skipped.get(parent)
        if names is not None:
            names.pop(name, None)
            if not names:
                del self.skipped[parent]

    def nested(self) -> Iterator[bytes]:
        """Folders that are repositories of their own."""
        return (path for path, f in self.folders.items() if path and b".git" in f.names)


@dataclass(slots=True)
class Fresh:
    """A name that was not there at the last look, or was something else."""

    path: bytes
    kind: str
    """'f' file, 'l' link, 'd' folder, 'p' FIFO, 'o' socket or device."""
    name: bytes
    names: dict[bytes, int | str]
    """Those of the folder it is in."""


class Surveyor:
    """Reads folders of one workspace into its memory."""

    def __init__(self, root: Path, memory: Memory, store: Path) -> None:
        self.root = os.fsencode(root)
        self.memory = memory
        self._store = os.fsencode(store)
        self.unchanged: Collection[bytes] = frozenset()
        """Files that git has as they are."""
        self.limit = 0
        """Size of the largest of them that needs no closer look."""
        self.since = 0.0
        """Those changed after this are to be remembered as recent."""

    def absolute(self, path: bytes) -> bytes:
        return self.root + b"/" + path if path else self.root

    def stale(self) -> Iterator[tuple[bytes, os.stat_result]]:
        """Known folders that changed since; those that are gone are forgotten."""
        memory = self.memory
        prefix = self.root + b"/"
        gone = []
        for path, folder in memory.folders.items():
            try:
                info = os.lstat(prefix + path)
            except OSError:
                gone.append(path)
                continue
            if not stat.S_ISDIR(info.st_mode):
                gone.append(path)
            elif _stamp(info) != folder.stamp:
                yield path, info
        for path in gone:
            memory.forget(path)

    def read(self, path: bytes, info: os.stat_result | None = None) -> list[Fresh] | None:
        """Reads one folder; the names that are new in it. None if it cannot be read."""
        memory = self.memory
        started = time.time_ns()
        if path not in memory.folders:
            return self._read_first(path, started)
        try:
            info = info or os.lstat(self.absolute(path))
            with os.scandir(self.absolute(path)) as entries:
                found = {entry.name: _kind(entry) for entry in entries}
        except OSError:
            memory.forget(path)
            return None
        before = memory.folders[path].names
        folder = Folder(_settled(info, started), stat.S_IMODE(info.st_mode))
        memory.folders[path] = folder
        fresh = []
        prefix = path + b"/" if path else b""
        for name, kind in found.items():
            old = before.get(name)
            if old is not None and self._is_as_before(path, name, old, kind):
                folder.names[name] = old
            else:
                fresh.append(Fresh(prefix + name, kind, name, folder.names))
        self._forget_names(path, before, folder, found)
        return fresh

    def _read_first(self, path: bytes, started: int) -> list[Fresh] | None:
        """Reads an unknown folder; notes the files that git knows as they are at once."""
        fresh = []
        prefix = path + b"/" if path else b""
        unchanged, limit, since, recent = self.unchanged, self.limit, self.since, self.memory.recent
        names: dict[bytes, int | str] = {}
        try:
            info = os.lstat(self.absolute(path))
            with os.scandir(self.absolute(path)) as entries:
                for entry in entries:
                    name = entry.name
                    if prefix + name in unchanged and is_ordinary(name):
                        now = entry.stat(follow_symlinks=False)
                        kind = stat.S_IFMT(now.st_mode)
                        if kind in (stat.S_IFREG, stat.S_IFLNK) and now.st_size <= limit:
                            names[name] = now.st_mode
                            if now.st_ctime >= since:
                                recent[prefix + name] = now.st_ctime_ns
                            continue
                    fresh.append(Fresh(prefix + name, _kind(entry), name, names))
        except OSError:
            return None
        stamp = _settled(info, started)
        self.memory.folders[path] = Folder(stamp, stat.S_IMODE(info.st_mode), names)
        return fresh

    def _is_as_before(self, parent: bytes, name: bytes, old: int | str, kind: str) -> bool:
        if old != LEFT_OUT:
            return _kind_of(old) == kind
        known = self.memory.skipped.get(parent, {}).get(name)
        return known is None or known[2] == (kind == "d")

    def _forget_names(
        self, path: bytes, before: dict[bytes, int | str], folder: Folder, found: dict[bytes, str]
    ) -> None:
        prefix = path + b"/" if path else b""
        for name, old in before.items():
            if name in folder.names:
                continue
            if old == FOLDER:
                self.memory.forget(prefix + name)
            elif old == LEFT_OUT:
                self.memory.unskip(prefix + name)

    def rejects(self, fresh: Fresh) -> bool:
        """Whether the name alone rules it out; if so it is noted."""
        name = fresh.name
        if fresh.kind in "fl" and is_ordinary(name):
            return False
        is_folder = fresh.kind == "d"
        reason: Reason
        if name in RESERVED or (is_folder and self.absolute(fresh.path) == self._store):
            self.memory.set_mode(fresh.path, LEFT_OUT)
            return True
        if is_folder and (is_regenerable(name) or self._is_environment(fresh.path)):
            reason = "regenerable"
        elif is_secret(name):
            reason = "secret"
        elif is_refused_by_git(name):
            reason = "reserved-name"
        elif fresh.kind == "o":
            reason = "special"
        else:
            return False
        self.leave_out(fresh.path, reason, is_folder=is_folder)
        return True

    def leave_out(self, path: bytes, reason: Reason, *, is_folder: bool) -> None:
        size = self.measure(path) if is_folder else _size(self.absolute(path))
        self.memory.skip(path, reason, size, is_folder)

    def _is_environment(self, path: bytes) -> bool:
        return os.path.lexists(self.absolute(path) + b"/pyvenv.cfg")

    def measure(self, path: bytes) -> int | None:
        """Bytes in a folder, None if it holds too much to count in passing."""
        total = 0
        budget = _MEASURED
        pending = [self.absolute(path)]
        while pending:
            with suppress(OSError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    budget -= 1
                    if budget < 0:
                        return None
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        with suppress(OSError):
                            total += entry.stat(follow_symlinks=False).st_size
        return total


def _is_indexed(mode: int | str) -> bool:
    return isinstance(mode, int) and not stat.S_ISFIFO(mode)


def _stamp(info: os.stat_result) -> Stamp:
    return (info.st_mtime_ns, info.st_ctime_ns, info.st_ino, info.st_dev)


def _settled(info: os.stat_result, now: int) -> Stamp | None:
    """The stamp, or None if a later change could leave it as it is."""
    # Clocks of file systems tick coarsely: a few ms where they show fractions, else up to 2 s.
    tick = 2_100_000_000 if info.st_mtime_ns % 1_000_000_000 == 0 else 100_000_000
    latest = max(info.st_mtime_ns, info.st_ctime_ns)
    return _stamp(info) if latest + tick < now else None


def _kind(entry: os.DirEntry[bytes]) -> str:
    if entry.is_file(follow_symlinks=False):
        return "f"
    if entry.is_dir(follow_symlinks=False):
        return "d"
    if entry.is_symlink():
        return "l"
    try:
        return "p" if stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode) else "o"
    except OSError:
        return "o"


def _kind_of(mode: int | str) -> str:
    if isinstance(mode, str):
        return mode
    kind = stat.S_IFMT(mode)
    return "l" if kind == stat.S_IFLNK else "p" if kind == stat.S_IFIFO else "f"


def _size(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_size
    except OSError:
        return None
