"""Writes states into a folder, never through a symbolic link."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from repotrace.system.snapshots.manifest import Manifest
from repotrace.system.snapshots.objects import ObjectReader

type Difference = tuple[bytes, int, int, str, str]
"""(path, old mode, new mode, old id, new id), a mode of 0 where the path does not exist."""
type Written = tuple[int, int, int, int, int]
"""What lstat said of a path after it was written: mtime, ctime, size, inode, mode."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REUSE = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_GROUP = 500
"""Objects read at once: it bounds the content held in memory."""


class Checkout:
    """A folder whose files are moved from one state to another."""

    def __init__(self, folder: Path, keep: Collection[str] = ()) -> None:
        self.folder = folder
        self.keep = frozenset(os.fsencode(name) for name in keep)
        self.made: set[bytes] = set()
        """Folders that came into being and have not got their mode yet."""
        self._root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._chain: list[tuple[bytes, int]] = []

    def close(self) -> None:
        self._leave(0)
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _leave(self, depth: int) -> None:
        while len(self._chain) > depth:
            os.close(self._chain.pop()[1])

    def parent(self, path: bytes, *, make: bool) -> tuple[int, bytes] | None:
        """A descriptor of the folder that `path` lies in, and its last name.

        With `make` folders come into being, and whatever else is in their place goes;
        without, None if a folder is not there (or is a link).
        """
        *parts, name = path.split(b"/")
        depth = 0
        while depth < min(len(parts), len(self._chain)) and self._chain[depth][0] == parts[depth]:
            depth += 1
        self._leave(depth)
        at = self._chain[-1][1] if self._chain else self._root
        for number, part in enumerate(parts[depth:], depth + 1):
            try:
                inner = os.open(part, _DIRECTORY, dir_fd=at)
            except OSError:
                if not make:
                    return None
                _remove(part, at)
                os.mkdir(part, 0o755, dir_fd=at)
                self.made.add(b"/".join(parts[:number]))
                inner = os.open(part, _DIRECTORY, dir_fd=at)
            self._chain.append((part, inner))
            at = inner
        return at, name

    def remove(self, path: bytes) -> None:
        """Removes whatever is at `path`, then the folders above it that are empty now."""
        place = self.parent(path, make=False)
        if place is None:
            return
        _remove(place[1], place[0])
        self.prune(path)

    def prune(self, path: bytes) -> None:
        """Removes the folders above `path` as far as they are empty."""
        while (path := path.rpartition(b"/")[0]) and (at := self.parent(path, make=False)):
            try:
                os.rmdir(at[1], dir_fd=at[0])
            except OSError:
                return

    def write(self, path: bytes, data: bytes, mode: int) -> Written:
        """Makes a file or link of exactly this content and mode."""
        place = self.parent(path, make=True)
        assert place is not None
        at, name = place
        if stat.S_ISLNK(mode):
            try:
                os.symlink(data, name, dir_fd=at)
            except FileExistsError:
                _remove(name, at)
                os.symlink(data, name, dir_fd=at)
            return written(os.lstat(name, dir_fd=at))
        fd = _open_anew(name, at)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            info = os.fstat(fd)
            # Not before: some file systems flush a file at once that was emptied first.
            if info.st_size > len(data):
                os.ftruncate(fd, len(data))
            os.fchmod(fd, stat.S_IMODE(mode))
            return written(os.fstat(fd))
        finally:
            os.close(fd)

    def make_fifo(self, path: bytes, mode: int) -> None:
        place = self.parent(path, make=True)
        assert place is not None
        _remove(place[1], place[0])
        os.mkfifo(place[1], 0o600, dir_fd=place[0])
        os.chmod(place[1], mode, dir_fd=place[0])

    def make_folder(self, path: bytes) -> None:
        self.parent(path + b"/x", make=True)

    def set_mode(self, path: bytes, mode: int) -> Written | None:
        """The mode of a file or folder, if it is there and no link."""
        place = self.parent(path, make=False)
        if place is None:
            return None
        try:
            info = os.lstat(place[1], dir_fd=place[0])
            if stat.S_ISLNK(info.st_mode):
                return None
            if stat.S_IMODE(info.st_mode) != mode:
                os.chmod(place[1], mode, dir_fd=place[0])
                info = os.lstat(place[1], dir_fd=place[0])
        except FileNotFoundError:
            return None
        return written(info)

    def apply(
        self, differences: Iterable[Difference], reader: ObjectReader, old: Manifest, new: Manifest
    ) -> dict[bytes, Written | None]:
        """Takes the folder from one state to another; what each touched path is now."""
        self._unlock(old)
        result: dict[bytes, Written | None] = {}
        create: list[tuple[bytes, int, str]] = []
        for path, _, new_mode, _, new_id in sorted(differences, reverse=True):
            if new_mode:
                create.append((path, new_mode, new_id))
            else:
                self.remove(path)
                result[path] = None
        for path in old.fifos.keys() - new.fifos.keys():
            self.remove(path)
        for path in old.empty.keys() - new.empty.keys():
            self.prune(path + b"/x")
        create.reverse()
        for start in range(0, len(create), _GROUP):
            group = create[start : start + _GROUP]
            contents = list(reader.get_many(oid for _, _, oid in group))
            for (path, git_mode, oid), (_, found) in zip(group, contents, strict=True):
                if found is None:
                    raise OSError(f"the store has lost {oid}")
                result[path] = self.write(path, found[1], new.mode(path, git_mode))
        self._apply_manifest(old, new, result)
        self._leave(0)
        return result

    def _unlock(self, old: Manifest) -> None:
        """Lets us write in folders that the state keeps read-only."""
        if old.folder & 0o700 != 0o700:
            self.unlock_all()
        for path, mode in sorted({**old.folders, **old.empty}.items()):
            if mode & 0o700 != 0o700:
                self.set_mode(path, mode | 0o700)

    def unlock_all(self) -> None:
        """Gives the owner every right on every folder."""
        pending = [self._root]
        for _, folders, _, at in os.fwalk(b".", dir_fd=pending[0]):
            for name in folders:
                with suppress(OSError):
                    mode = os.lstat(name, dir_fd=at).st_mode
                    if stat.S_ISDIR(mode) and mode & 0o700 != 0o700:
                        os.chmod(name, stat.S_IMODE(mode) | 0o700, dir_fd=at)

    def _apply_manifest(
        self, old: Manifest, new: Manifest, result: dict[bytes, Written | None]
    ) -> None:
        for path in sorted(new.empty):
            self.make_folder(path)
        for path, mode in sorted(new.fifos.items()):
            if old.fifos.get(path) != mode:
                self.make_fifo(path, mode)
        usual_differs = (old.file, old.executable) != (new.file, new.executable)
        files = set(self._walk(folders=False)) if usual_differs else set()
        files |= {path for path, mode in old.modes.items() if new.modes.get(path) != mode}
        files |= {path for path, mode in new.modes.items() if old.modes.get(path) != mode}
        for path in sorted(files - result.keys()):
            self._set_file_mode(path, new, result)
        folders = {*self.made, *new.folders, *old.folders, *new.empty}
        if old.folder != new.folder or old.folder & 0o700 != 0o700:
            folders.update(self._walk(folders=True))
        # What was a folder may be a file now.
        files = {path for path, stamp in result.items() if stamp is not None}
        # The deepest first: a folder may take away the right to enter it.
        for path in sorted(folders - files - new.fifos.keys(), reverse=True):
            self.set_mode(path, new.folder_mode(path))
        self.made.clear()

    def _set_file_mode(
        self, path: bytes, new: Manifest, result: dict[bytes, Written | None]
    ) -> None:
        place = self.parent(path, make=False)
        if place is None:
            return
        with suppress(FileNotFoundError):
            now = os.lstat(place[1], dir_fd=place[0]).st_mode
            if stat.S_ISREG(now):
                git_mode = 0o100755 if now & 0o100 else 0o100644
                result[path] = self.set_mode(path, stat.S_IMODE(new.mode(path, git_mode)))

    def _walk(self, *, folders: bool) -> Iterator[bytes]:
        for top, below, files, _ in os.fwalk(b".", dir_fd=self._root):
            prefix = top[2:] + b"/" if len(top) > 2 else b""
            if top == b".":
                below[:] = [name for name in below if name not in self.keep]
            for name in below if folders else files:
                yield prefix + name


def _open_anew(name: bytes, at: int) -> int:
    """A descriptor of a file of this name that is nobody else's, perhaps with old content."""
    with suppress(OSError):
        # Much cheaper than a new file, where it is one and has no second name.
        fd = os.open(name, _REUSE, dir_fd=at)
        info = os.fstat(fd)
        if stat.S_ISREG(info.st_mode) and info.st_nlink == 1:
            return fd
        os.close(fd)
    try:
        return os.open(name, _CREATE, 0o600, dir_fd=at)
    except FileExistsError:
        _remove(name, at)
        return os.open(name, _CREATE, 0o600, dir_fd=at)


def written(info: os.stat_result) -> Written:
    """What tells that a path is still as it was written."""
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size, info.st_ino, info.st_mode


def _remove(name: bytes, at: int) -> None:
    """Removes a file, link or whole folder; nothing if there is nothing."""
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=at).st_mode):
            raise
        try:
            os.rmdir(name, dir_fd=at)
        except OSError:
            remove_tree(name, at)


def remove_tree(name: bytes, at: int) -> None:
    """Removes a folder with all in it, read-only folders too; follows no link."""
    for top, _, _, inner in os.fwalk(name, dir_fd=at):
        del top
        with suppress(OSError):
            mode = os.fstat(inner).st_mode
            if mode & 0o700 != 0o700:
                os.fchmod(inner, stat.S_IMODE(mode) | 0o700)
    shutil.rmtree(name, dir_fd=at)
