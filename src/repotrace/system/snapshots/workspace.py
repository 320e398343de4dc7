"""One workspace's index in the store, brought up to date at every look."""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from repotrace.errors import RepoTraceError
from repotrace.system.git import GitError
from repotrace.system.snapshots.exclusion import is_regenerable
from repotrace.system.snapshots.model import Deadline, Reason
from repotrace.system.snapshots.objects import write_object
from repotrace.system.snapshots.plumbing import AS_ARGUMENTS, PRIVATE, run_git
from repotrace.system.snapshots.seeding import UserRepository, signature
from repotrace.system.snapshots.survey import FOLDER, Fresh, Memory, Surveyor

_CHECK = struct.Struct(">QL")
_CHUNK = 4000
"""Paths per update of the index: what one missed deadline can lose."""
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
    add: dict[bytes, os.stat_result] = field(default_factory=dict)
    remove: set[bytes] = field(default_factory=set)
    rules_changed: bool = False
    touched: bool = False
    """Whether anything that a state shows may be different."""

    def learn(self, paths: Iterable[bytes]) -> None:
        parents = self.parents
        for path in paths:
            self.known.add(path)
            parent = path.rstrip(b"/").rpartition(b"/")[0]
            while parent and parent not in parents:
                parents.add(parent)
                parent = parent.rpartition(b"/")[0]


class WorkspaceIndex:
    """The index of one work tree. Its caller holds the lock `self.lock`."""

    def __init__(self, store: Path, root: Path, size_limit: int) -> None:
        self.root = root
        self.store = store
        self.key = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
        self.folder = store / "workspaces" / self.key
        self.lock = self.folder / "lock"
        self.index = self.folder / "index"
        self._memory_file = self.folder / "memory"
        self._excludes = self.folder / "excludes"
        self._size_limit = size_limit
        self._env = {
            **PRIVATE,
            "GIT_DIR": str(store),
            "GIT_WORK_TREE": str(root),
            "GIT_INDEX_FILE": str(self.index),
        }
        self._memory: Memory | None = None
        self._memory_stamp: tuple[int, int] | None = None
        self._user: UserRepository | None = None
        self._discovered = False
        self.added: dict[bytes, os.stat_result] = {}
        """What the last look read, as lstat saw it before."""
        self.looked = False
        """Whether the last look found anything touched."""

    # -- what is remembered --------------------------------------------------------------

    def prepare(self) -> None:
        """Makes the folder of this workspace."""
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / "path").write_bytes(os.fsencode(self.root))

    def look(self, deadline: Deadline) -> Memory:
        """What is in the work tree now, with `tree` as the object id of its files.

        Raises DeadlinePassed, or GitError where git could not be brought to do it.
        """
        # A killed git leaves its lock behind; ours keeps every other one away.
        with suppress(FileNotFoundError):
            os.unlink(f"{self.index}.lock")  # noqa: PTH108
        memory, self._memory = self._recall(deadline), None
        try:
            done = self._look(memory, deadline)
        except (StartOver, GitError):
            self.discard()
            with suppress(OSError):
                self.index.unlink()
            try:
                done = self._look(self._recall(deadline, seed=False), deadline)
            except StartOver as again:
                raise RepoTraceError("The work tree kept changing while it was read.") from again
        self._memory = done
        return done

    def unsettled(self) -> list[bytes]:
        """Paths that changed while the last look read them."""
        base = os.fsencode(self.root) + b"/"
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
        entries = self.entries()
        if memory is None or memory.entries != entries or entries is None:
            memory = Memory()
        if not memory.sources or signature(path for path, _ in memory.sources) != memory.sources:
            memory = Memory(sources=self._discover(deadline))
        if entries is None and seed:
            # A seed that fails is no loss: everything is then added from the work tree.
            try:
                self._seed(deadline)
            except (GitError, OSError):
                with suppress(OSError):
                    self.index.unlink()
        return memory

    def entries(self) -> int | None:
        """How many entries the index has, None if there is no index."""
        try:
            with open(self.index, "rb") as file:
                head = file.read(12)
        except OSError:
            return None
        return int(struct.unpack(">4sLL", head)[2]) if len(head) == 12 else None

    def _discover(self, deadline: Deadline) -> tuple[tuple[str, tuple[int, int, int] | None], ...]:
        user = self._user = UserRepository.discover(self.root, deadline)
        self._discovered = True
        texts = []
        for path in user.exclude_files if user else ():
            with suppress(OSError):
                texts.append(path.read_bytes())
        self._excludes.write_bytes(b"\n".join(texts) + b"\n")
        paths = [str(self.root / ".git"), *(str(path) for path in (user.sources if user else ()))]
        return signature(paths)

    def _seed(self, deadline: Deadline) -> None:
        user = self._user
        if user is None or user.top != self.root or not user.seedable():
            return
        source = user.git_dir / "index"
        with open(source, "rb") as file:
            info = os.fstat(file.fileno())
            data = file.read()
        self.index.write_bytes(data)
        # Git compares a file's time with the index's to know which entries may be stale.
        os.utime(self.index, ns=(info.st_mtime_ns, info.st_mtime_ns))
        self._borrow(user.objects)
        listing = self._git(["ls-files", "-z", "-v", "-s"], deadline)
        entries, unfit = [], []
        for line in listing.split(b"\0"):
            info_part, _, path = line.partition(b"\t")
            if not path:
                continue
            entries.append(path)
            # H: an ordinary entry; others are hidden from git, unmerged, or not files.
            if not info_part.startswith((b"H 100644", b"H 100755", b"H 120000")):
                unfit.append(path)
        attributes = [p for p in entries if p.rpartition(b"/")[2] == b".gitattributes"]
        drop = {*unfit, *user.converted(entries, attributes, deadline)}
        if drop:
            self._git(
                ["update-index", "-z", "--force-remove", "--stdin"],
                deadline,
                stdin=b"".join(path + b"\0" for path in drop),
            )

    def _borrow(self, objects: Path) -> None:
        """Lets the store read the user's objects, until they are copied."""
        alternates = self.store / "objects" / "info" / "alternates"
        line = os.fsencode(objects) + b"\n"
        known = alternates.read_bytes() if alternates.exists() else b""
        if line not in known.splitlines(keepends=True):
            alternates.write_bytes(known + line)

    # -- one look ------------------------------------------------------------------------

    def _look(self, memory: Memory, deadline: Deadline) -> Memory:
        work = Work(thorough=not memory.folders, changed=self._changed(deadline))
        surveyor = Surveyor(self.root, memory, self.store)
        fresh = [] if work.thorough else self._news(surveyor, work)
        if work.rules_changed:
            memory = Memory(sources=memory.sources)
            surveyor = Surveyor(self.root, memory, self.store)
            work = Work(thorough=True, changed=work.changed)
        if work.thorough:
            work.tracked = set(self._git(["ls-files", "-z"], deadline).split(b"\0")) - {b""}
            work.learn(path for path in work.tracked if work.changed.get(path) != "D")
            work.learn(self._others(b"", None, deadline))
            fresh = surveyor.read(b"") or []
        self._resolve(surveyor, work, fresh, deadline)
        self._take_changes(surveyor, work)
        self._recheck_recent(surveyor, work)
        if work.add or work.remove or work.changed or work.thorough:
            work.touched = True
            self._write(memory, work, deadline)
            self._reconcile(surveyor, deadline)
        if work.touched or not memory.tree:
            memory.tree = self._git(["write-tree"], deadline).strip().decode()
            memory.state_id = ""
        self.added = work.add
        self.looked = work.touched
        return memory

    def _changed(self, deadline: Deadline) -> dict[bytes, str]:
        if not self.index.exists():
            return {}
        fields = self._git(["diff-files", "-z", "--no-renames"], deadline).split(b"\0")
        return {
            path: info[-1:].decode() for info, path in zip(fields[::2], fields[1::2], strict=False)
        }

    def _news(self, surveyor: Surveyor, work: Work) -> list[Fresh]:
        memory = surveyor.memory
        fresh: list[Fresh] = []
        before = len(memory.folders)
        nested = set(memory.nested())
        stale = list(surveyor.stale())
        for path, info in stale:
            fresh += surveyor.read(path, info) or []
        work.touched = bool(stale) or len(memory.folders) != before
        # What is ignored may be different where a rule changed, or a repository came or went.
        lost = {path for path in nested - set(memory.nested()) if path in memory.folders}
        work.rules_changed = bool(lost) or any(
            path.rpartition(b"/")[2] in {b".gitignore", b".git"}
            for path in (*work.changed, *(item.path for item in fresh))
        )
        for parent, names in list(memory.skipped.items()):
            for name, (reason, _, _) in list(names.items()):
                if reason in {"too-large", "unreadable"}:
                    path = parent + b"/" + name if parent else name
                    if self._acceptable(surveyor, path) is not None:
                        memory.unskip(path)
                        fresh.append(Fresh(path, "f"))
        return fresh

    def _resolve(
        self, surveyor: Surveyor, work: Work, fresh: list[Fresh], deadline: Deadline
    ) -> None:
        """Decides on every new name, and walks into new folders."""
        if not work.thorough:
            self._ask_about(surveyor, work, fresh, deadline)
        while fresh:
            deadline.remaining()
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
        name = item.path.rpartition(b"/")[2]
        return item.kind == "d" and is_regenerable(name) and item.path in work.parents

    def _ask_about(
        self, surveyor: Surveyor, work: Work, fresh: list[Fresh], deadline: Deadline
    ) -> None:
        work.learn(path for path, status in work.changed.items() if status != "D")
        scopes: dict[bytes, list[bytes]] = {}
        nested = set(surveyor.memory.nested())
        for item in fresh:
            if item.kind in "fld" and item.path.rpartition(b"/")[2] != b".git":
                scopes.setdefault(_scope(item.path, nested), []).append(item.path)
        for scope, paths in scopes.items():
            work.learn(self._others(scope, paths, deadline))

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
        if info.st_ctime >= time.time() - _RECENT:
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
                work.learn(self._others(path, None, deadline))
            fresh += inside
        return fresh

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
            work.remove |= {p for p in work.tracked if not self._is_captured(surveyor, p)}

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

    # -- git -----------------------------------------------------------------------------

    def _git(
        self,
        args: list[str | bytes] | list[str],
        deadline: Deadline,
        *,
        stdin: bytes | None = None,
        scope: bytes = b"",
    ) -> bytes:
        env, root = self._scoped(scope)
        return run_git(args, root, env=env, stdin=stdin, deadline=deadline)

    def _scoped(self, scope: bytes) -> tuple[Mapping[str, str], Path]:
        """Environment and folder for git to look at a nested repository as a whole."""
        if not scope:
            return self._env, self.root
        root = Path(os.fsdecode(os.fsencode(self.root) + b"/" + scope))
        # No path of the workspace's index lies there under the same name.
        nowhere = str(self.folder / "none")
        return {**self._env, "GIT_WORK_TREE": str(root), "GIT_INDEX_FILE": nowhere}, root

    def _rules(self, scope: bytes) -> str:
        if not scope:
            return f"core.excludesFile={self._excludes}"
        return f"core.excludesFile={self.root / os.fsdecode(scope) / '.git/info/exclude'}"

    def _others(self, scope: bytes, paths: list[bytes] | None, deadline: Deadline) -> set[bytes]:
        """Untracked files at or below `paths` (None: anywhere) that no rule ignores."""
        prefix = scope + b"/" if scope else b""
        command: list[str | bytes] = ["-c", self._rules(scope), "ls-files", "-z", "--others"]
        command.append("--exclude-standard")
        if paths is not None and len(paths) <= AS_ARGUMENTS:
            command += [b"--", *(path[len(prefix) :] for path in paths)]
        out = self._git(command, deadline, scope=scope)
        found = {prefix + path for path in out.split(b"\0") if path}
        outer = None if scope else self._outer(deadline)
        return found - outer.ignored(self.root, found, deadline) if outer else found

    def _outer(self, deadline: Deadline) -> UserRepository | None:
        """The repository whose subfolder the workspace is; git cannot see its rules from here."""
        if (self.root / ".git").exists():
            return None
        if not self._discovered:
            self._discover(deadline)
        return self._user

    def _ignored(self, surveyor: Surveyor, folders: list[bytes], deadline: Deadline) -> set[bytes]:
        nested = set(surveyor.memory.nested())
        scopes: dict[bytes, list[bytes]] = {}
        for path in folders:
            with suppress(OSError):
                if os.listdir(surveyor.absolute(path)):  # noqa: PTH208
                    scopes.setdefault(_scope(path, nested), []).append(path)
        found: set[bytes] = set()
        for scope, paths in scopes.items():
            prefix = scope + b"/" if scope else b""
            command: list[str | bytes] = ["-c", self._rules(scope), "ls-files", "-z", "--others"]
            command += ["--ignored", "--directory", "--exclude-standard", "--"]
            if len(paths) <= AS_ARGUMENTS:
                command += [path[len(prefix) :] for path in paths]
            hits = self._git(command, deadline, scope=scope).split(b"\0")
            found |= {prefix + path.rstrip(b"/") for path in hits if path}
        return found

    def _write(self, memory: Memory, work: Work, deadline: Deadline) -> None:
        """Brings the index to what was found; the fallback reads each file by itself."""
        self.discard()
        vanished = {p for p in work.remove if work.changed.get(p) == "D"}
        forced = [p for p in work.remove if p not in vanished and p not in work.add]
        vanished = {p for p in vanished if p not in work.add}
        if len(forced) > AS_ARGUMENTS:
            text = b"".join(path + b"\0" for path in forced)
            self._git(["update-index", "-z", "--force-remove", "--stdin"], deadline, stdin=text)
            forced = []
        paths = sorted(vanished) + sorted(work.add)
        for start in range(0, len(paths) or (1 if forced else 0), _CHUNK):
            chunk = paths[start : start + _CHUNK]
            command: list[str | bytes] = ["update-index", "-z", "--add", "--remove", "--replace"]
            if forced and start == 0:
                command += ["--force-remove", *(b"./" + p for p in forced), "--no-force-remove"]
            text = b"".join(path + b"\0" for path in chunk)
            try:
                self._git([*command, "--stdin"], deadline, stdin=text)
            except GitError:
                self._write_singly(memory, [*(forced if start == 0 else ()), *chunk], deadline)

    def _reconcile(self, surveyor: Surveyor, deadline: Deadline) -> None:
        """Notes what did not get into the index: names that git passes over, files that went."""
        memory = surveyor.memory
        memory.entries = self.entries() or 0
        if memory.indexed() == memory.entries:
            return
        indexed = set(self._git(["ls-files", "-z"], deadline).split(b"\0"))
        for path in [path for path in memory.files() if path not in indexed]:
            memory.drop(path)
            if os.path.lexists(surveyor.absolute(path)):
                surveyor.leave_out(path, "reserved-name", is_folder=False)
        if memory.indexed() != memory.entries:
            raise StartOver

    def _write_singly(self, memory: Memory, paths: list[bytes], deadline: Deadline) -> None:
        surveyor = Surveyor(self.root, memory, self.store)
        lines = {}
        for path in paths:
            deadline.remaining()
            line = self._entry_line(surveyor, path) if self._is_captured(surveyor, path) else None
            lines[path] = line or b"0 %s\t%s\0" % (b"0" * 40, path)
        self._write_lines(surveyor, lines, deadline)

    def _write_lines(
        self, surveyor: Surveyor, lines: dict[bytes, bytes], deadline: Deadline
    ) -> None:
        command = ["update-index", "-z", "--replace", "--add", "--index-info"]
        try:
            self._git(command, deadline, stdin=b"".join(lines.values()))
        except GitError:
            if len(lines) == 1:
                surveyor.leave_out(next(iter(lines)), "reserved-name", is_folder=False)
                return
            items = list(lines.items())
            half = len(items) // 2
            self._write_lines(surveyor, dict(items[:half]), deadline)
            self._write_lines(surveyor, dict(items[half:]), deadline)

    def _entry_line(self, surveyor: Surveyor, path: bytes) -> bytes | None:
        absolute = surveyor.absolute(path)
        try:
            info = os.lstat(absolute)
            if stat.S_ISLNK(info.st_mode):
                data, mode = os.readlink(absolute), 0o120000  # noqa: PTH115
            else:
                fd = os.open(absolute, os.O_RDONLY | os.O_NOFOLLOW)
                with open(fd, "rb") as file:
                    data = file.read()
                mode = 0o100755 if info.st_mode & 0o100 else 0o100644
        except FileNotFoundError:
            surveyor.memory.drop(path)
            return None
        except OSError:
            surveyor.leave_out(path, "unreadable", is_folder=False)
            return None
        oid = write_object(self.store / "objects", b"blob", data)
        return b"%o %s\t%s\0" % (mode, oid.encode(), path)


def _scope(path: bytes, nested: set[bytes]) -> bytes:
    """The innermost nested repository that `path` lies in; empty for the workspace's own."""
    parent = path.rpartition(b"/")[0]
    while parent and parent not in nested:
        parent = parent.rpartition(b"/")[0]
    return parent
