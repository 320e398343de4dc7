"""Git objects in-process: written loose, read through one long-lived `git cat-file`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from repotrace.system.git import GitError, git_environment
from repotrace.system.snapshots.plumbing import PRIVATE

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_END = b"//end\n"
_SMALL = 256 * 1024
_REMEMBERED = 32 * 1024 * 1024
"""Bytes of small objects that are kept at hand: a run's states share most of theirs."""
_PER_REQUEST = 500
"""Ids asked for at once: their text must fit into a pipe while nobody reads the answers."""


def write_object(objects: Path, kind: bytes, data: bytes) -> str:
    """The id of the object, which is in the store afterwards."""
    raw = b"%s %d\0%s" % (kind, len(data), data)
    oid = hashlib.sha1(raw, usedforsecurity=False).hexdigest()
    folder = f"{objects}/{oid[:2]}"
    target = f"{folder}/{oid[2:]}"
    if os.path.exists(target):  # noqa: PTH110 - on the hot path
        return oid
    temporary = f"{folder}/tmp_obj_{os.getpid()}_{threading.get_ident()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        fd = os.open(temporary, flags, 0o444)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(folder)  # noqa: PTH102
        fd = os.open(temporary, flags, 0o444)
    try:
        with open(fd, "wb") as file:
            file.write(zlib.compress(raw, 1))
        os.rename(temporary, target)  # noqa: PTH104
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise
    return oid


def tree_data(entries: Iterable[tuple[bytes, int, str]]) -> bytes:
    """A tree object of (name, mode, object id)."""
    ordered = sorted(entries, key=lambda e: e[0] + b"/" if e[1] == 0o40000 else e[0])
    return b"".join(b"%o %s\0%s" % (mode, name, bytes.fromhex(oid)) for name, mode, oid in ordered)


def parse_tree(data: bytes) -> Iterator[tuple[bytes, int, str]]:
    """(name, mode, object id) of a tree object."""
    at = 0
    while at < len(data):
        space = data.index(b" ", at)
        end = data.index(b"\0", space)
        yield data[space + 1 : end], int(data[at:space], 8), data[end + 1 : end + 21].hex()
        at = end + 21


class _Companion:
    """A git process that stays, started at first use and again if it died."""

    def __init__(self, git_dir: Path, command: Sequence[str]) -> None:
        self._command = ["git", f"--git-dir={git_dir}", *command]
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self.lock = threading.RLock()

    def running(self) -> subprocess.Popen[bytes]:
        process = self._process
        # After a fork the pipes are shared with the parent; a child starts its own.
        if process is not None and process.poll() is None and self._owner == os.getpid():
            return process
        try:
            self._process = subprocess.Popen(
                self._command,
                env={**git_environment(), **PRIVATE},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise GitError("git could not be started.", hint="Is git installed?") from error
        self._owner = os.getpid()
        return self._process

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        try:
            process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ObjectReader(_Companion):
    """Objects by id. Safe to use from several threads."""

    def __init__(self, git_dir: Path) -> None:
        super().__init__(git_dir, ["cat-file", "--batch"])
        self._recent: dict[str, tuple[str, bytes]] = {}
        self._recent_size = 0
        self._trees: dict[str, tuple[tuple[bytes, int, str], ...]] = {}

    def get(self, oid: str) -> tuple[str, bytes] | None:
        """(type, content), or None if the store has no such object."""
        ((_, found),) = self.get_many((oid,))
        return found

    def get_many(self, oids: Iterable[str]) -> Iterator[tuple[str, tuple[str, bytes] | None]]:
        """Each id with its (type, content), in order. Consume it to the end."""
        wanted = list(oids)
        with self.lock:
            for start in range(0, len(wanted), _PER_REQUEST):
                part = wanted[start : start + _PER_REQUEST]
                found: dict[str, tuple[str, bytes] | None] = {}
                for oid in part:
                    if oid in self._recent:
                        found[oid] = self._recent[oid]
                unknown = [oid for oid in dict.fromkeys(part) if oid not in found]
                if unknown:
                    found.update(self._ask(unknown))
                    self._remember({oid: found[oid] for oid in unknown})
                yield from ((oid, found[oid]) for oid in part)

    def _remember(self, answers: Mapping[str, tuple[str, bytes] | None]) -> None:
        for oid, found in answers.items():
            if found is not None and len(found[1]) <= _SMALL:
                self._recent_size += len(found[1])
                if self._recent_size > _REMEMBERED:
                    self._recent_size = len(found[1])
                    self._recent.clear()
                self._recent[oid] = found

    def _ask(self, oids: list[str]) -> Iterator[tuple[str, tuple[str, bytes] | None]]:
        process = self.running()
        assert process.stdin is not None
        assert process.stdout is not None
        finished = False
        try:
            process.stdin.write(("\n".join(oids) + "\n").encode())
            process.stdin.flush()
            out = process.stdout
            for oid in oids:
                header = out.readline().split()
                if len(header) != 3:
                    if header[1:] != [b"missing"]:
                        raise OSError(f"git cat-file ended while reading {oid}")
                    yield oid, None
                    continue
                data = out.read(int(header[2]) + 1)
                yield oid, (header[1].decode(), data[:-1])
            finished = True
        finally:
            # Unread answers would be taken for those of the next question.
            if not finished:
                process.kill()
                self.close()

    def tree(self, oid: str) -> tuple[tuple[bytes, int, str], ...]:
        """The entries of a tree; none if there is no such tree."""
        entries = self._trees.get(oid)
        if entries is None:
            found = self.get(oid)
            entries = tuple(parse_tree(found[1])) if found and found[0] == "tree" else ()
            if len(self._trees) > 4096:
                self._trees.clear()
            self._trees[oid] = entries
        return entries


@dataclass(frozen=True, slots=True)
class Tree:
    """The files below one tree object."""

    reader: ObjectReader
    oid: str

    def entry(self, path: bytes) -> tuple[int, str] | None:
        """(mode, object id) of what is at `path`."""
        mode, oid = 0o40000, self.oid
        for part in path.split(b"/"):
            found = next((e for e in self.reader.tree(oid) if e[0] == part), None)
            if mode != 0o40000 or found is None:
                return None
            _, mode, oid = found
        return mode, oid

    def paths(self, prefix: bytes = b"") -> Iterator[bytes]:
        """Every file and link."""
        for name, mode, oid in self.reader.tree(self.oid):
            if mode == 0o40000:
                yield from Tree(self.reader, oid).paths(prefix + name + b"/")
            else:
                yield prefix + name


class TreeDiffer(_Companion):
    """Raw differences of two trees through one long-lived `git diff-tree --stdin`."""

    def __init__(self, git_dir: Path) -> None:
        options = ["--stdin", "-r", "-z", "--raw", "--no-renames", "--no-abbrev"]
        super().__init__(git_dir, ["diff-tree", *options])

    def diff(self, old: str, new: str) -> list[tuple[bytes, int, int, str, str]]:
        """(path, old mode, new mode, old id, new id) of each path that differs."""
        if old == new:
            return []
        with self.lock:
            process = self.running()
            assert process.stdin is not None
            assert process.stdout is not None
            # A line that names no object is echoed and flushed, and no path starts with a slash.
            process.stdin.write(f"{old} {new}\n".encode() + _END)
            process.stdin.flush()
            out = process.stdout
            chunks = bytearray()
            fd = out.fileno()
            header = f"{old} {new}\n".encode()
            while not (chunks.endswith((b"\0" + _END, b"\n" + _END)) or chunks == _END):
                data = os.read(fd, 1 << 20)
                if not data:
                    self.close()
                    raise OSError(f"git diff-tree cannot compare {old} and {new}")
                chunks += data
        body = bytes(chunks).removesuffix(_END).removeprefix(header)
        return list(raw_records(body))


def raw_records(body: bytes) -> Iterator[tuple[bytes, int, int, str, str]]:
    """(path, old mode, new mode, old id, new id) out of raw, NUL-separated output."""
    fields = body.split(b"\0")
    for info, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old_id, new_id, _ = info[1:].split(b" ")
        yield path, int(old_mode, 8), int(new_mode, 8), old_id.decode(), new_id.decode()
