"""Looks at a work tree: what changed, what is new, what is left out."""

from __future__ import annotations

import os
import stat
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from repotrace.errors import RepoTraceError
from repotrace.system.git import GitError
from repotrace.system.snapshots.exclusion import is_regenerable
from repotrace.system.snapshots.index import Index
from repotrace.system.snapshots.model import Deadline, Reason
from repotrace.system.snapshots.plumbing import AS_ARGUMENTS
from repotrace.system.snapshots.seeding import signature
from repotrace.system.snapshots.survey import FOLDER, Fresh, Memory, Surveyor

_CHECK = struct.Struct(">QL")
_RECENT = 2
"""Seconds in which git, which may compare whole seconds, cannot see a change of mode."""


class StartOver(Exception):
    """What is remembered does not fit what is there: read everything again."""


@dataclass(slots=True)
class Work:
    """What one look found out."""

    thorough: bool
    changed: dict[bytes, str]
    tracked: set[bytes] = field(default_factory=set)
    known: set[bytes] = field(default_factory=set)
    """Paths that may be captured: tracked, or untracked and not ignored."""
    parents: set[bytes] = field(default_factory=set)
    covered: set[bytes] = field(default_factory=set)
    """Paths of which `known` tells all that is at and below them."""
    whole: set[bytes] = field(default_factory=set)
    """Repositories, nested or the workspace's own, of which `known` tells everything."""
    add: dict[bytes, os.stat_result] = field(default_factory=dict)
    remove: set[bytes] = field(default_factory=set)
    rules_changed: bool = False
    now: float = field(default_factory=time.time)
    touched: bool = False
    """Whether anything that a state shows may be different."""

    def learn(self, paths: Iterable[bytes]) -> None:
        """Adds paths that may be captured, and every folder above them."""
        paths = list(paths)
        self.known.update(paths)
        parents = self.parents
        last = b""
        for path in paths:
            parent = path.rstrip(b"/").rpartition(b"/")[0]
            if parent == last:
                continue
            last = parent
            while parent and parent not in parents:
                parents.add(parent)
                parent = parent.rpartition(b"/")[0]


class Workspace:
    """A work tree, looked at again and again. The caller holds the lock of its index."""

    def __init__(self, store: Path, root: Path, size_limit: int) -> None:
        self.index = Index(store, root)
        self.added: dict[bytes, os.stat_result] = {}
        """What the last look read, as lstat saw it before."""
        self.touched = False
        """Whether the last look found anything touched."""
        self._root = root
        self._store = store
        self._size_limit = size_limit
        self._memory_file = self.index.folder / "memory"
        self._memory: Memory | None = None
        self._memory_stamp: tuple[int, int] | None = None

    def look(self, deadline: Deadline) -> Memory:
        """What is in the work tree now, with `tree` as the object id of its files.

        Raises DeadlinePassed, or RepoTraceError where it cannot be read as a whole.
        """
        self.index.unlock()
        memory, self._memory = self._recall(deadline), None
        try:
            done = self._look(memory, deadline)
        except (StartOver, GitError):
            self.discard()
            self.index.remove()
            try:
                done = self._look(self._recall(deadline, seed=False), deadline)
            except StartOver as again:
                raise RepoTraceError("The work tree kept changing while it was read.") from again
        self._memory = done
        return done

    # -- what is remembered --------------------------------------------------------------

    def unsettled(self) -> list[bytes]:
        """Paths that changed while the last look read them."""
        base = os.fsencode(self._root) + b"/"
        found = []
        for path, before in self.added.items():
            try:
                now = os.lstat(base + path)
            except OSError:
                found.append(path)
                continue
            if (now.st_mtime_ns, now.st_size, now.st_ino) != (
                before.st_mtime_ns,
                before.st_size,
                before.st_ino,
            ):
                found.append(path)
        return found

    def discard(self) -> None:
        """Forgets what is remembered: the next look reads everything."""
        self._memory = self._memory_stamp = None
        with suppress(FileNotFoundError):
            fd = os.open(self._memory_file, os.O_WRONLY)
            with open(fd, "wb") as file:
                file.write(bytes(_CHECK.size))

    def save(self, memory: Memory) -> None:
        """Keeps the memory for the next look, of whatever process."""
        data = memory.dump()
        # Into the same file: a new one would cost more than all of the rest. Its first bytes
        # are valid only once everything is there.
        fd = os.open(self._memory_file, os.O_WRONLY | os.O_CREAT, 0o600)
        with open(fd, "wb") as file:
            file.write(bytes(_CHECK.size) + data)
            file.truncate()
            file.seek(0)
            file.write(_CHECK.pack(len(data), zlib.crc32(data)))
        self._memory, self._memory_stamp = memory, self._stamp()

    def _load(self) -> Memory | None:
        with suppress(OSError, struct.error):
            raw = self._memory_file.read_bytes()
            data = raw[_CHECK.size :]
            if _CHECK.unpack_from(raw) == (len(data), zlib.crc32(data)):
                return Memory.load(data)
        return None

    def _stamp(self) -> tuple[int, int] | None:
        try:
            info = os.stat(self._memory_file)  # noqa: PTH116
        except OSError:
            return None
        return info.st_mtime_ns, info.st_size

    def _recall(self, deadline: Deadline, *, seed: bool = True) -> Memory:
        memory = self._memory
        stamp = self._stamp()
        if memory is None or stamp != self._memory_stamp or stamp is None:
            memory = self._load()
            self._memory_stamp = stamp
        entries = self.index.entries()
        if memory is None or memory.entries != entries or entries is None:
            memory = Memory()
        if not memory.sources or signature(path for path, _ in memory.sources) != memory.sources:
            memory = Memory(sources=self.index.discover(deadline))
        if entries is None and seed:
            # A seed that fails is no loss: everything is then added from the work tree.
            try:
                self.index.seed(deadline)
            except (GitError, OSError):
                self.index.remove()
        return memory

    # -- one look ------------------------------------------------------------------------

    def _look(self, memory: Memory, deadline: Deadline) -> Memory:
        work = Work(thorough=not memory.folders, changed=self.index.changed(deadline))
        surveyor = Surveyor(self._root, memory, self._store)
        fresh = [] if work.thorough else self._news(surveyor, work, deadline)
        if work.rules_changed:
            memory = Memory(sources=memory.sources)
            surveyor = Surveyor(self._root, memory, self._store)
            work = Work(thorough=True, changed=work.changed)
        if work.thorough:
            work.tracked = self.index.tracked(deadline)
            work.learn(path for path in work.tracked if work.changed.get(path) != "D")
            surveyor.unchanged = work.tracked - work.changed.keys()
            surveyor.limit, surveyor.since = self._size_limit, work.now - _RECENT
            fresh = surveyor.read(b"") or []
        self._resolve(surveyor, work, fresh, deadline)
        self._take_changes(surveyor, work)
        self._recheck_recent(surveyor, work)
        if work.add or work.remove or work.changed or work.thorough:
            work.touched = True
            self._update(work, deadline)
            self._reconcile(surveyor, deadline)
        if work.touched or not memory.tree:
            memory.tree = self.index.write_tree(deadline)
            memory.state_id = ""
        self.added = work.add
        self.touched = work.touched
        return memory

    def _news(self, surveyor: Surveyor, work: Work, deadline: Deadline) -> list[Fresh]:
        memory = surveyor.memory
        fresh: list[Fresh] = []
        before = len(memory.folders)
        nested = set(memory.nested())
        stale = list(surveyor.stale())
        for path, info in stale:
            # Not those that were reached through a link in place of a folder above them.
            if path in memory.folders:
                deadline.remaining()
                fresh += self._reread(surveyor, path, info)
        work.touched = bool(stale) or len(memory.folders) != before
        # What is ignored may be different where a rule changed, or a repository came or went.
        lost = {path for path in nested - set(memory.nested()) if path in memory.folders}
        work.rules_changed = bool(lost) or any(
            path.rpartition(b"/")[2] in {b".gitignore", b".git"}
            for path in (*work.changed, *(item.path for item in fresh))
        )
        return fresh + list(self._acceptable_now(surveyor))

    def _reread(self, surveyor: Surveyor, path: bytes, info: os.stat_result) -> list[Fresh]:
        inside = surveyor.read(path, info)
        if inside is None and os.path.lexists(surveyor.absolute(path)):
            surveyor.memory.skip(path, "unreadable", None, True)
        return inside or []

    def _acceptable_now(self, surveyor: Surveyor) -> Iterator[Fresh]:
        """What was left out for its size or its permissions, and need not be any more."""
        memory = surveyor.memory
        for parent, names in list(memory.skipped.items()):
            for name, (reason, _, is_folder) in list(names.items()):
                path = parent + b"/" + name if parent else name
                if reason not in {"too-large", "unreadable"}:
                    continue
                if is_folder:
                    accepted = os.access(surveyor.absolute(path), os.R_OK | os.X_OK)
                else:
                    accepted = self._acceptable(surveyor, path) is not None
                if accepted:
                    memory.unskip(path)
                    known = memory.folders[parent].names
                    yield Fresh(path, "d" if is_folder else "f", name, known)

    def _resolve(
        self, surveyor: Surveyor, work: Work, fresh: list[Fresh], deadline: Deadline
    ) -> None:
        """Decides on every new name, and walks into new folders."""
        if not work.thorough:
            work.learn(path for path, status in work.changed.items() if status != "D")
        while fresh:
            deadline.remaining()
            self._ask_about(surveyor, work, fresh, deadline)
            folders = []
            for item in fresh:
                if self._is_kept_folder(work, item) or not surveyor.rejects(item):
                    if item.kind == "d":
                        folders.append(item.path)
                    else:
                        self._place(surveyor, work, item)
            fresh = self._enter(surveyor, work, folders, deadline)

    def _is_kept_folder(self, work: Work, item: Fresh) -> bool:
        """A folder that tools could make again, but of which the user tracks files."""
        if item.kind != "d" or item.path not in work.parents:
            return False
        return is_regenerable(item.name)

    def _ask_about(
        self, surveyor: Surveyor, work: Work, fresh: list[Fresh], deadline: Deadline
    ) -> None:
        """Asks git which of the names that are not tracked are to be captured."""
        scopes: dict[bytes, list[bytes]] = {}
        nested = set(surveyor.memory.nested())
        for item in fresh:
            path = item.path
            if path in work.known or path in work.parents or item.kind not in "fld":
                continue
            if item.name == b".git" or path.rpartition(b"/")[0] in work.covered:
                continue
            scope = _scope(path, nested)
            if scope not in work.whole:
                scopes.setdefault(scope, []).append(path)
        for scope, paths in scopes.items():
            work.learn(self.index.others(scope, paths, deadline))
            work.covered.update(paths)
            if len(paths) > AS_ARGUMENTS:
                work.whole.add(scope)

    def _place(self, surveyor: Surveyor, work: Work, item: Fresh) -> None:
        path = item.path
        if item.kind == "p":
            with suppress(OSError):
                surveyor.memory.set_mode(path, os.lstat(surveyor.absolute(path)).st_mode)
            work.touched = True
        elif path not in work.known:
            surveyor.leave_out(path, "ignored", is_folder=False)
        elif (info := self._acceptable(surveyor, path, note=True)) is not None:
            self._capture(surveyor, work, path, info)

    def _capture(self, surveyor: Surveyor, work: Work, path: bytes, info: os.stat_result) -> None:
        if not surveyor.memory.set_mode(path, info.st_mode):
            raise StartOver
        if path not in work.tracked or path in work.changed:
            work.add[path] = info
        if info.st_ctime >= work.now - _RECENT:
            surveyor.memory.recent[path] = info.st_ctime_ns

    def _acceptable(
        self, surveyor: Surveyor, path: bytes, *, note: bool = False
    ) -> os.stat_result | None:
        """What lstat says of a file or link that can be captured; None for others."""
        absolute = surveyor.absolute(path)
        try:
            info = os.lstat(absolute)
        except OSError:
            return None
        if stat.S_ISLNK(info.st_mode):
            return info
        if not stat.S_ISREG(info.st_mode):
            return None
        too_large = info.st_size > self._size_limit
        if too_large or (info.st_mode & 0o444 != 0o444 and not os.access(absolute, os.R_OK)):
            if note:
                reason: Reason = "too-large" if too_large else "unreadable"
                surveyor.memory.skip(path, reason, info.st_size, False)
            return None
        return info

    def _enter(
        self, surveyor: Surveyor, work: Work, folders: list[bytes], deadline: Deadline
    ) -> list[Fresh]:
        """The new names inside of those folders that are not ignored."""
        unexplained = [p for p in folders if p not in work.parents and p + b"/" not in work.known]
        ignored = self._ignored(surveyor, unexplained, deadline)
        fresh = []
        for path in folders:
            deadline.remaining()
            if path in ignored:
                surveyor.leave_out(path, "ignored", is_folder=True)
                continue
            surveyor.memory.set_mode(path, FOLDER)
            work.touched = True
            inside = surveyor.read(path)
            if inside is None:
                surveyor.memory.skip(path, "unreadable", None, True)
                continue
            if any(item.path == path + b"/.git" for item in inside):
                work.learn(self.index.others(path, None, deadline))
                work.covered.add(path)
            elif path.rpartition(b"/")[0] in work.covered:
                work.covered.add(path)
            fresh += inside
        return fresh

    def _ignored(self, surveyor: Surveyor, folders: list[bytes], deadline: Deadline) -> set[bytes]:
        nested = set(surveyor.memory.nested())
        scopes: dict[bytes, list[bytes]] = {}
        for path in folders:
            with suppress(OSError):
                if os.listdir(surveyor.absolute(path)):  # noqa: PTH208
                    scopes.setdefault(_scope(path, nested), []).append(path)
        found: set[bytes] = set()
        for scope, paths in scopes.items():
            found |= self.index.ignored(scope, paths, deadline)
        return found

    def _take_changes(self, surveyor: Surveyor, work: Work) -> None:
        for path, status in work.changed.items():
            if path in work.add:
                continue
            info = None if status == "D" else self._acceptable(surveyor, path, note=True)
            if info is None or (work.thorough and not self._is_captured(surveyor, path)):
                if self._is_captured(surveyor, path):
                    surveyor.memory.drop(path)
                work.remove.add(path)
            else:
                self._capture(surveyor, work, path, info)
        if work.thorough:
            work.remove |= work.tracked.difference(surveyor.memory.files())

    def _is_captured(self, surveyor: Surveyor, path: bytes) -> bool:
        parent, _, name = path.rpartition(b"/")
        folder = surveyor.memory.folders.get(parent)
        mode = folder.names.get(name) if folder else None
        return isinstance(mode, int) and not stat.S_ISFIFO(mode)

    def _recheck_recent(self, surveyor: Surveyor, work: Work) -> None:
        """Sees a change of mode in the very second of the last look."""
        memory = surveyor.memory
        horizon = time.time_ns() - _RECENT * 1_000_000_000
        for path, ctime in list(memory.recent.items()):
            if path in work.add:
                continue
            if ctime < horizon:
                del memory.recent[path]
            try:
                info = os.lstat(surveyor.absolute(path))
            except OSError:
                memory.recent.pop(path, None)
                continue
            if info.st_ctime_ns != ctime and self._is_captured(surveyor, path):
                work.touched = True
                accepted = self._acceptable(surveyor, path, note=True)
                if accepted is None:
                    work.remove.add(path)
                else:
                    self._capture(surveyor, work, path, accepted)
                    work.add[path] = accepted

    def _update(self, work: Work, deadline: Deadline) -> None:
        """Brings the index to what was found."""
        self.discard()
        vanished = {p for p in work.remove if work.changed.get(p) == "D" and p not in work.add}
        drop = work.remove - vanished - work.add.keys()
        self.index.update(work.add, vanished, drop, deadline)

    def _reconcile(self, surveyor: Surveyor, deadline: Deadline) -> None:
        """Notes what did not get into the index: names that git passes over, files that went."""
        memory = surveyor.memory
        memory.entries = self.index.entries() or 0
        if memory.indexed() == memory.entries:
            return
        indexed = self.index.tracked(deadline)
        for path in [path for path in memory.files() if path not in indexed]:
            memory.drop(path)
            if os.path.lexists(surveyor.absolute(path)):
                readable = os.access(surveyor.absolute(path), os.R_OK, follow_symlinks=False)
                reason: Reason = "reserved-name" if readable else "unreadable"
                surveyor.leave_out(path, reason, is_folder=False)
        if memory.indexed() != memory.entries:
            raise StartOver


def _scope(path: bytes, nested: set[bytes]) -> bytes:
    """The innermost nested repository that `path` lies in; empty for the workspace's own."""
    parent = path.rpartition(b"/")[0]
    while parent and parent not in nested:
        parent = parent.rpartition(b"/")[0]
    return parent
