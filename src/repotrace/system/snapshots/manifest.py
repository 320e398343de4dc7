"""What git's trees lose: permissions beyond the executable bit, empty folders, FIFOs."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from repotrace.system.snapshots.survey import FOLDER, Memory

FILE = 0o644
EXECUTABLE = 0o755


@dataclass(slots=True)
class Manifest:
    """Permissions by path where they are not the usual ones of their kind."""

    file: int = FILE
    executable: int = EXECUTABLE
    folder: int = 0o755
    modes: dict[bytes, int] = field(default_factory=dict)
    folders: dict[bytes, int] = field(default_factory=dict)
    empty: dict[bytes, int] = field(default_factory=dict)
    fifos: dict[bytes, int] = field(default_factory=dict)

    def mode(self, path: bytes, git_mode: int) -> int:
        """`st_mode` of a tree entry."""
        if git_mode == 0o120000:
            return stat.S_IFLNK | 0o777
        usual = self.executable if git_mode & 0o100 else self.file
        return stat.S_IFREG | self.modes.get(path, usual)

    def folder_mode(self, path: bytes) -> int:
        return self.folders.get(path, self.folder)

    def dump(self) -> bytes:
        """Equal bytes for equal content."""
        value = {
            "usual": [self.file, self.executable, self.folder],
            "modes": _named(self.modes),
            "folders": _named(self.folders),
            "empty": _named(self.empty),
            "fifos": _named(self.fifos),
        }
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Manifest:
        value = json.loads(data)
        parts = (_raw(value[key]) for key in ("modes", "folders", "empty", "fifos"))
        return cls(*value["usual"], *parts)


def _named(modes: dict[bytes, int]) -> dict[str, int]:
    return {os.fsdecode(path): mode for path, mode in modes.items()}


def _raw(value: Any) -> dict[bytes, int]:
    return {os.fsencode(path): int(mode) for path, mode in value.items()}


def _commonest(counts: Iterable[tuple[int, int]], usual: int) -> int:
    """The most frequent mode; the smallest of several, so that content alone decides."""
    ranked = sorted(counts, key=lambda item: (-item[1], item[0]))
    return ranked[0][0] if ranked else usual


def manifest_of(memory: Memory, counts: Counter[Any]) -> Manifest:
    """The manifest of what `memory` knows; `counts` are its modes()."""
    files = [
        (stat.S_IMODE(mode), number)
        for mode, number in counts.items()
        if isinstance(mode, int) and stat.S_ISREG(mode)
    ]
    plain = [(mode, number) for mode, number in files if not mode & 0o100]
    executable = [(mode, number) for mode, number in files if mode & 0o100]
    folders = Counter(folder.mode for path, folder in memory.folders.items() if path)
    manifest = Manifest(
        _commonest(plain, FILE),
        _commonest(executable, EXECUTABLE),
        _commonest(folders.items(), 0o755),
    )
    odd = {
        mode
        for mode in counts
        if isinstance(mode, int)
        and not stat.S_ISLNK(mode)
        and mode != stat.S_IFREG | manifest.file
        and mode != stat.S_IFREG | manifest.executable
    }
    for path, folder in memory.folders.items():
        if path and folder.mode != manifest.folder:
            manifest.folders[path] = folder.mode
        if odd:
            _note_files(manifest, path, folder.names, odd)
        if path and not any(type(v) is int or v == FOLDER for v in folder.names.values()):
            manifest.empty[path] = folder.mode
    return manifest


def _note_files(
    manifest: Manifest, parent: bytes, names: dict[bytes, int | str], odd: set[int]
) -> None:
    for name, mode in names.items():
        if isinstance(mode, int) and mode in odd:
            path = parent + b"/" + name if parent else name
            target = manifest.fifos if stat.S_ISFIFO(mode) else manifest.modes
            target[path] = stat.S_IMODE(mode)
