"""What a process has started, as far as the system shows it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_MOST = 1_000
"""Processes that are looked at, at most."""


class Process(NamedTuple):
    """A process, as it was started."""

    pid: int
    argv: tuple[str, ...]
    environ: dict[str, str]
    cwd: Path | None


def descendants(pid: int) -> list[Process]:
    """`pid` and all that it has started, and these in turn; those that may not be seen are left
    out. Empty on systems without `/proc`."""
    children = _children()
    found: list[Process] = []
    waiting = [pid]
    while waiting and len(found) < _MOST:
        current = waiting.pop()
        waiting += children.pop(current, ())
        with suppress(OSError, ValueError):
            found.append(_process(current))
    return found


def _children() -> dict[int, list[int]]:
    """The processes that each process has started."""
    found: dict[int, list[int]] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - hundreds of names, several times a second
    except OSError:
        return found
    for name in names:
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", name, "stat").read_bytes()
                found.setdefault(int(stat.rpartition(b")")[2].split()[1]), []).append(int(name))
    return found


def _process(pid: int) -> Process:
    place = Path(f"/proc/{pid}")
    argv = _words(place / "cmdline")
    pairs = (word.partition("=") for word in _words(place / "environ"))
    environ = {name: value for name, _, value in pairs if name}
    cwd = None
    with suppress(OSError):
        cwd = (place / "cwd").readlink()
    return Process(pid, tuple(argv), environ, cwd)


def _words(path: Path) -> list[str]:
    return [os.fsdecode(word) for word in path.read_bytes().split(b"\0") if word]
