"""Keeps a store small and clean."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from repotrace.errors import RepoTraceError
from repotrace.system.snapshots.model import Deadline, DeadlinePassed, StateRecord
from repotrace.system.snapshots.plumbing import locked

_ABANDONED = 6 * 3600
"""Age in seconds from which a temporary file belongs to no living process."""
_REFS = "refs/repotrace"
_WORKSPACE_GONE = 14 * 86400


class Repository(Protocol):
    """What upkeep needs of a store."""

    path: Path

    def git(self, args: Sequence[str], stdin: bytes | None = None) -> bytes: ...
    def refs(self) -> list[str]: ...
    def history(self, ref: str) -> list[StateRecord]: ...
    def delete(self, ref: str) -> bool: ...
    def close(self) -> None: ...


def size_of(path: Path) -> int:
    """Bytes on disk below `path`."""
    total = 0
    pending = [str(path)]
    while pending:
        with suppress(FileNotFoundError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    with suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total


def needed(store: Repository) -> int:
    """Bytes of all that some ref needs: about what `prune` leaves."""
    return int(store.git(["rev-list", "--objects", "--disk-usage", f"--glob={_REFS}"]) or 0)


def own_size(store: Repository, ref: str, gone: Collection[str]) -> int:
    """Bytes of what only `ref` needs, where the refs `gone` are not there any more."""
    own = [name for name in _places(ref) if (store.path / name).exists()]
    if not own:
        return 0
    left_out = [name for other in (ref, *gone) for name in _places(other)]
    command = ["rev-list", "--objects", "--disk-usage", *own, "--not"]
    command += [f"--exclude={name}" for name in left_out]
    return int(store.git([*command, f"--glob={_REFS}"]) or 0)


def _places(ref: str) -> tuple[str, str]:
    """Where the states of a ref are, and the contents that are kept for it."""
    return f"{_REFS}/{ref}", f"{_REFS}/contents/{ref.replace('/', '.', 1)}"


def sweep(store: Path) -> None:
    """Removes temporaries and locks that killed processes left, once they are old."""
    horizon = time.time() - _ABANDONED
    for pattern in (
        "objects/pack/tmp_*",
        "objects/pack/.tmp-*",
        "objects/tmp_*",
        "objects/??/tmp_obj_*",
        "refs/repotrace/*/*.lock",
        "*.lock",
        "workspaces/*/memory.*",
    ):
        for path in store.glob(pattern):
            with suppress(OSError):
                if path.lstat().st_mtime < horizon:
                    path.unlink()


def sweep_broken(store: Path) -> None:
    """Removes what a git process left that failed or was killed, unless others are at work.

    On a full disk it is the very room that is missing; and what a deadline stops again and again
    would fill the disk.
    """
    # The names that git gives; files that we write ourselves have longer ones.
    patterns = ("objects/??/tmp_obj_??????", "objects/tmp_obj_??????", "objects/pack/tmp_*")
    with (
        suppress(DeadlinePassed, OSError),
        locked(store / "lock", deadline=Deadline.after(0.05)),
    ):
        for path in (path for pattern in patterns for path in store.glob(pattern)):
            path.unlink(missing_ok=True)


def repack(store: Repository) -> None:
    """Packs what is loose, and copies what is borrowed, so that no foreign object is needed."""
    alternates = store.path / "objects" / "info" / "alternates"
    with locked(store.path / "lock", deadline=Deadline()):
        if alternates.exists():
            # Without -l: objects borrowed from the user's repository are copied, so that its
            # own clean-up cannot take them away from us.
            store.git(["repack", "-a", "-d", "-q"])
            alternates.unlink()
        else:
            _pack_loose(store)
    store.close()


def _pack_loose(store: Repository) -> None:
    """Packs without writing large packs anew at every run's end."""
    try:
        store.git(["repack", "-d", "-q", "--geometric=2"])
    except RepoTraceError:  # git before 2.32
        store.git(["repack", "-d", "-q"])


def settle(store: Repository) -> None:
    """Repacks a store that borrows objects, unless another process does it now."""
    if not (store.path / "objects" / "info" / "alternates").exists():
        return
    with suppress(DeadlinePassed), locked(store.path / "settling", deadline=Deadline.after(0.001)):
        repack(store)


def prune(store: Repository, grace: float) -> None:
    """Removes unreachable objects that are older than the grace period."""
    _forget_workspaces(store.path)
    with locked(store.path / "lock", deadline=Deadline()):
        when = str(int(time.time() - grace))
        store.git(["repack", "-A", "-d", "-q", f"--unpack-unreachable={when}"])
        with suppress(FileNotFoundError):
            (store.path / "objects" / "info" / "alternates").unlink()
        store.git(["prune", f"--expire={when}"])
    store.close()


def _forget_workspaces(store: Path) -> None:
    """Drops the indexes of work trees that are gone for good."""
    for folder in (store / "workspaces").iterdir():
        with suppress(OSError):
            root = Path(os.fsdecode((folder / "path").read_bytes()))
            if not root.exists() and folder.stat().st_mtime < time.time() - _WORKSPACE_GONE:
                (store / "refs/repotrace/workspaces" / folder.name).unlink(missing_ok=True)
                shutil.rmtree(folder)


def shrink(store: Repository, max_bytes: int, keep: Collection[str]) -> list[str]:
    """Deletes the oldest refs until the store is at most `max_bytes`; which ones."""
    if size_of(store.path) <= max_bytes:
        return []
    prune(store, 7200.0)
    ages = []
    for ref in store.refs():
        history = store.history(ref)
        if ref not in keep:
            ages.append((history[-1].taken_at if history else 0.0, ref))
    deleted = []
    for _, ref in sorted(ages):
        if size_of(store.path) <= max_bytes:
            break
        store.delete(ref)
        deleted.append(ref)
        prune(store, 0.0)
    return deleted
