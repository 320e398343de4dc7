"""Turns git's raw output into entries and operations."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from repotrace.system.snapshots.manifest import Manifest
from repotrace.system.snapshots.model import Entry, Operation, text

COMMAND = (
    *("diff-tree", "--stdin", "-r", "-z", "-M", "--raw", "--numstat", "--no-abbrev"),
    *("--no-ext-diff", "--no-textconv"),
)


class Tree(Protocol):
    """The files of a state."""

    def entry(self, path: bytes) -> tuple[int, str] | None:
        """(git's mode, object id) of a path."""

    def paths(self) -> Iterator[bytes]:
        """Every file and link."""


_HEADER = 82
"""Two object ids, a space, a line end."""


def entries(raw: bytes, manifest: Manifest) -> list[Entry]:
    """The entries of `ls-tree -r -z` output, with what the manifest adds."""
    found = []
    for line in raw.split(b"\0"):
        info, _, path = line.partition(b"\t")
        if path:
            mode, _, oid = info.split(b" ")
            found.append(Entry(text(path), manifest.mode(path, int(mode, 8)), oid.decode()))
    found += [Entry(text(p), stat.S_IFIFO | m, None) for p, m in manifest.fifos.items()]
    found += [Entry(text(p), stat.S_IFDIR | m, None) for p, m in manifest.empty.items()]
    return sorted(found, key=lambda entry: entry.path)


def split(raw: bytes) -> Iterator[bytes]:
    """The output of `COMMAND`, pair by pair."""
    at = 0
    while at < len(raw):
        start = at + _HEADER
        end = _end_of_pair(raw, start)
        yield raw[start:end]
        at = end


def _end_of_pair(raw: bytes, at: int) -> int:
    count = 0
    while raw[at : at + 1] == b":":
        info_end = raw.index(b"\0", at)
        moved = raw[at:info_end].rpartition(b" ")[2][:1] in (b"R", b"C")
        at = raw.index(b"\0", info_end + 1) + 1
        if moved:
            at = raw.index(b"\0", at) + 1
        count += 1
    for _ in range(count):
        end = raw.index(b"\0", at)
        if raw[at:end].endswith(b"\t"):  # a rename: its two names follow
            end = raw.index(b"\0", raw.index(b"\0", end + 1) + 1)
        at = end + 1
    return at


def operations(records: bytes, old: Manifest, new: Manifest, tree: Tree) -> list[Operation]:
    """The operations that raw and numstat records of one pair tell, by path."""
    fields = iter(records.split(b"\0")[:-1])
    raw: list[tuple[str, bytes, bytes, list[bytes]]] = []
    numbers: dict[bytes, tuple[int, int, bool]] = {}
    for item in fields:
        if item.startswith(b":"):
            info = item[1:].split(b" ")
            source = next(fields)
            target = next(fields) if info[4][:1] in (b"R", b"C") else source
            raw.append((info[4][:1].decode(), source, target, info))
        else:
            added, removed, path = item.split(b"\t", 2)
            if not path:
                next(fields)
                path = next(fields)
            binary = added == b"-"
            numbers[path] = (0, 0, True) if binary else (int(added), int(removed), False)
    found = [_operation(item, numbers.get(item[2], (0, 0, False)), old, new) for item in raw]
    touched = {item[2] for item in raw} | {item[1] for item in raw}
    found += _mode_changes(old, new, touched, tree)
    return sorted(found, key=lambda operation: operation.path)


def _operation(
    item: tuple[str, bytes, bytes, list[bytes]],
    numbers: tuple[int, int, bool],
    old: Manifest,
    new: Manifest,
) -> Operation:
    status, source, target, info = item
    old_mode, new_mode = int(info[0], 8), int(info[1], 8)
    added, removed, binary = numbers
    return Operation(
        {"A": "create", "D": "delete", "R": "rename"}.get(status, "edit"),  # type: ignore[arg-type]
        text(target),
        info[2].decode() if old_mode else None,
        info[3].decode() if new_mode else None,
        old.mode(source, old_mode) if old_mode else None,
        new.mode(target, new_mode) if new_mode else None,
        binary,
        added,
        removed,
        text(source) if status == "R" else None,
    )


def _mode_changes(
    old: Manifest, new: Manifest, touched: set[bytes], tree: Tree
) -> Iterator[Operation]:
    """Edits of nothing but permissions that git has no name for."""
    same_usual = (old.file, old.executable) == (new.file, new.executable)
    paths = old.modes.keys() | new.modes.keys() if same_usual else set(tree.paths())
    for path in sorted(paths - touched):
        entry = tree.entry(path)
        if entry is None:
            continue
        before, after = old.mode(path, entry[0]), new.mode(path, entry[0])
        if before != after:
            yield Operation("edit", text(path), entry[1], entry[1], before, after, False, 0, 0)


def patch(
    git: Callable[[Sequence[str]], bytes], before: str, after: str, paths: Sequence[str]
) -> bytes:
    """A unified diff of two trees that `git apply` takes, of `paths` only if given."""
    trees = (before, after, "--", *paths)
    command = ["diff-tree", "-r", "-p", "--binary", "--full-index", "--no-ext-diff"]
    found = git([*command, "--no-textconv", "-M", *trees])
    if b"\nrename from " in found:
        names = git(["diff-tree", "-r", "-z", "--name-only", "--no-renames", *trees])
        if _folders_replace_files(names):  # of a link that becomes a folder it applies no rename
            return git([*command, "--no-textconv", "--no-renames", *trees])
    return found


def _folders_replace_files(names: bytes) -> bool:
    """Whether one of these paths, which are ended by zeros, lies below another one."""
    known = set(names.split(b"\0"))
    return any(
        path[:end] in known for path in known for end, byte in enumerate(path) if byte == 0x2F
    )
