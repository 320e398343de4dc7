"""One work tree's git index in the store, and what git tells by it."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from repotrace.system.git import GitError
from repotrace.system.snapshots.model import Deadline
from repotrace.system.snapshots.objects import write_object
from repotrace.system.snapshots.plumbing import AS_ARGUMENTS, PRIVATE, run_git
from repotrace.system.snapshots.seeding import Signature, UserRepository, signature

_ENTRY = len(f"H 100644 {'0' * 40} 0\t")
_CHUNK = 4000
"""Paths per update of the index: what one missed deadline can lose."""


def _pattern_of_home(home: Path, root: Path) -> list[bytes]:
    """What excludes the folder of the store, if it lies in the workspace: it changes each time."""
    if root not in home.parents:
        return []
    name = os.fsencode(home.relative_to(root))
    return [b"/" + re.sub(rb"([\\*?\[ !#])", rb"\\\1", name) + b"/"]


class Index:
    """The index of one workspace. Its user holds the lock `self.lock`."""

    def __init__(self, store: Path, root: Path) -> None:
        self.root = root
        self.store = store
        self.key = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
        self.folder = store / "workspaces" / self.key
        self.lock = self.folder / "lock"
        self.path = self.folder / "index"
        self._excludes = self.folder / "excludes"
        self._env = {
            **PRIVATE,
            "GIT_DIR": str(store),
            "GIT_WORK_TREE": str(root),
            "GIT_INDEX_FILE": str(self.path),
        }
        self._user: UserRepository | None = None
        self._discovered = False
        self._seeded: set[bytes] | None = None

    def prepare(self) -> None:
        """Makes the folder of this workspace, and removes a lock that a killed git left."""
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.folder / "path").exists():
            (self.folder / "path").write_bytes(os.fsencode(self.root))

    def unlock(self) -> None:
        """Removes the lock that a killed git left; `self.lock` keeps every living one away."""
        with suppress(FileNotFoundError):
            os.unlink(f"{self.path}.lock")  # noqa: PTH108

    def remove(self) -> None:
        """Starts from nothing at the next update."""
        self._seeded = None
        with suppress(OSError):
            self.path.unlink()

    def entries(self) -> int | None:
        """How many entries the index has, None if there is no index."""
        try:
            with open(self.path, "rb") as file:
                head = file.read(12)
        except OSError:
            return None
        return int(struct.unpack(">4sLL", head)[2]) if len(head) == 12 else None

    def write_tree(self, deadline: Deadline) -> str:
        """The object id of the tree that the index holds."""
        return self._git(["write-tree"], deadline).strip().decode()

    def tracked(self, deadline: Deadline) -> set[bytes]:
        """Every path that the index has."""
        seeded, self._seeded = self._seeded, None
        if seeded is not None:
            return seeded
        return set(self._git(["ls-files", "-z"], deadline).split(b"\0")) - {b""}

    # -- the user's repository -----------------------------------------------------------

    def discover(self, deadline: Deadline) -> Signature:
        """Learns the user's ignore rules; what tells whether they changed."""
        user = self._user = UserRepository.discover(self.root, deadline)
        self._discovered = True
        texts = []
        for path in user.exclude_files if user else ():
            with suppress(OSError):
                texts.append(path.read_bytes())
        texts += _pattern_of_home(self.store.parent, self.root)
        self._excludes.write_bytes(b"\n".join(texts) + b"\n")
        paths = [str(self.root / ".git"), *(str(path) for path in (user.sources if user else ()))]
        return signature(paths)

    def seed(self, deadline: Deadline) -> None:
        """Starts from the index of the user's repository, where that is the same."""
        user = self._user
        if user is None or user.top != self.root or not user.seedable():
            return
        source = user.git_dir / "index"
        with open(source, "rb") as file:
            info = os.fstat(file.fileno())
            data = file.read()
        self.path.write_bytes(data)
        # Git compares a file's time with the index's to know which entries may be stale.
        os.utime(self.path, ns=(info.st_mtime_ns, info.st_mtime_ns))
        self._borrow(user.objects)
        listing = self._git(["ls-files", "-z", "-v", "-s"], deadline)
        lines = listing.split(b"\0")[:-1]
        entries = [line[_ENTRY:] for line in lines]
        # H: an ordinary entry; others are hidden from git, unmerged, or not files.
        ordinary = {b"H 100644", b"H 100755", b"H 120000"}
        unfit = [line[_ENTRY:] for line in lines if line[:8] not in ordinary]
        attributes = [p for p in entries if p.rpartition(b"/")[2] == b".gitattributes"]
        drop = {*unfit, *user.converted(entries, attributes, deadline)}
        if drop:
            self._git(
                ["update-index", "-z", "--force-remove", "--stdin"],
                deadline,
                stdin=b"".join(path + b"\0" for path in drop),
            )
        self._seeded = set(entries) - drop

    def _borrow(self, objects: Path) -> None:
        """Lets the store read the user's objects, until they are copied."""
        alternates = self.store / "objects" / "info" / "alternates"
        line = os.fsencode(objects) + b"\n"
        known = alternates.read_bytes() if alternates.exists() else b""
        if line not in known.splitlines(keepends=True):
            alternates.write_bytes(known + line)

    def changed(self, deadline: Deadline) -> dict[bytes, str]:
        """Paths that differ from the index, with git's letter for how."""
        if not self.path.exists():
            return {}
        fields = self._git(["diff-files", "-z", "--no-renames"], deadline).split(b"\0")
        return {
            path: info[-1:].decode() for info, path in zip(fields[::2], fields[1::2], strict=False)
        }

    # -- git -----------------------------------------------------------------------------

    def _git(
        self,
        args: Sequence[str | bytes],
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

    def others(self, scope: bytes, paths: Sequence[bytes] | None, deadline: Deadline) -> set[bytes]:
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
            self.discover(deadline)
        return self._user

    def ignored(self, scope: bytes, paths: Sequence[bytes], deadline: Deadline) -> set[bytes]:
        """Those of `paths` that are ignored as a whole."""
        prefix = scope + b"/" if scope else b""
        command: list[str | bytes] = ["-c", self._rules(scope), "ls-files", "-z", "--others"]
        command += ["--ignored", "--directory", "--exclude-standard", "--"]
        if len(paths) <= AS_ARGUMENTS:
            command += [path[len(prefix) :] for path in paths]
        hits = self._git(command, deadline, scope=scope).split(b"\0")
        return {prefix + path.rstrip(b"/") for path in hits if path}

    # -- writing -------------------------------------------------------------------------

    def update(
        self,
        add: Iterable[bytes],
        vanished: Iterable[bytes],
        drop: Iterable[bytes],
        deadline: Deadline,
    ) -> None:
        """Takes in `add` as they are, and removes `vanished` files and whatever `drop` names.

        A path that cannot be read, or that git refuses, is left out without a word.
        """
        forced = sorted(drop)
        if len(forced) > AS_ARGUMENTS:
            text = b"".join(path + b"\0" for path in forced)
            self._git(["update-index", "-z", "--force-remove", "--stdin"], deadline, stdin=text)
            forced = []
        paths = sorted(vanished) + sorted(add)
        for start in range(0, len(paths) or (1 if forced else 0), _CHUNK):
            chunk = paths[start : start + _CHUNK]
            command: list[str | bytes] = ["update-index", "-z", "--add", "--remove", "--replace"]
            if forced and start == 0:
                command += ["--force-remove", *(b"./" + p for p in forced), "--no-force-remove"]
            text = b"".join(path + b"\0" for path in chunk)
            try:
                self._git([*command, "--stdin"], deadline, stdin=text)
            except GitError:
                self._update_by_reading(chunk, forced if start == 0 else (), deadline)

    def _update_by_reading(
        self, paths: Sequence[bytes], drop: Sequence[bytes], deadline: Deadline
    ) -> None:
        lines = {path: _removal(path) for path in drop}
        for path in paths:
            deadline.remaining()
            lines[path] = self._entry(path) or _removal(path)
        self._update_entries(list(lines.values()), deadline)

    def _update_entries(self, lines: Sequence[bytes], deadline: Deadline) -> None:
        command = ["update-index", "-z", "--replace", "--add", "--index-info"]
        try:
            self._git(command, deadline, stdin=b"".join(lines))
        except GitError:
            if len(lines) == 1:
                return
            half = len(lines) // 2
            self._update_entries(lines[:half], deadline)
            self._update_entries(lines[half:], deadline)

    def _entry(self, path: bytes) -> bytes | None:
        """The line that puts `path` as it is now into an index; None if it cannot be read."""
        absolute = os.fsencode(self.root) + b"/" + path
        try:
            info = os.lstat(absolute)
            if stat.S_ISLNK(info.st_mode):
                data, mode = os.readlink(absolute), 0o120000  # noqa: PTH115
            elif stat.S_ISREG(info.st_mode):
                fd = os.open(absolute, os.O_RDONLY | os.O_NOFOLLOW)
                with open(fd, "rb") as file:
                    data = file.read()
                mode = 0o100755 if info.st_mode & 0o100 else 0o100644
            else:
                return None
        except OSError:
            return None
        oid = write_object(self.store / "objects", b"blob", data)
        return b"%o %s\t%s\0" % (mode, oid.encode(), path)


def _removal(path: bytes) -> bytes:
    return b"0 %s\t%s\0" % (b"0" * 40, path)
