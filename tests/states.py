"""What the tests of states share: pictures of folders, random edits, plain git."""

# Names that are no text need the functions that take bytes.
# ruff: noqa: PTH102, PTH101, PTH104, PTH108, PTH112, PTH113, PTH114, PTH115, PTH118, PTH120, PTH211

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st

from repotrace.system.snapshots import Snapshot, SnapshotStore

REF = "runs/r1"
type Picture = dict[bytes, tuple[int, bytes]]
type Edits = list[list[tuple[str, bytes, bytes]]]
"""Step by step: kind of edit, path, and what the kind needs."""


def picture(folder: Path, *, but: tuple[bytes, ...] = (b".git",)) -> Picture:
    """Type, mode and content of everything below `folder`, by Python's own means."""
    found: Picture = {}
    root = os.fsencode(folder)
    for top, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in but]
        for name in [*folders, *files]:
            if name in but:
                continue
            path = os.path.join(top, name)
            info = os.lstat(path)
            content = b""
            if stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(info.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            found[os.path.relpath(path, root)] = (info.st_mode, content)
    return found


def git(*args: str, cwd: Path, stdin: bytes | None = None, check: bool = True) -> bytes:
    identity = ["-c", "user.name=T", "-c", "user.email=t@example.org"]
    done = subprocess.run(
        ["git", *identity, *args], cwd=cwd, input=stdin, capture_output=True, check=check
    )
    return done.stdout


def is_sound(store: SnapshotStore) -> bool:
    done = subprocess.run(
        ["git", "fsck", "--full", "--strict"], cwd=store.path, capture_output=True, check=False
    )
    return done.returncode == 0 and b"error" not in done.stderr


def fingerprint(folder: Path) -> dict[bytes, tuple[int, bytes]]:
    return picture(folder, but=())


def exact(snapshot: Snapshot) -> str:
    """The id of a snapshot that was not missed."""
    assert snapshot.quality == "exact", snapshot.reason
    assert snapshot.state_id is not None
    return snapshot.state_id


def check_exact(store: SnapshotStore, workspace: Path, into: Path) -> str:
    """Takes a state, makes it again elsewhere, and compares the two."""
    state = exact(store.take(workspace, ref=REF))
    store.materialise(state, into)
    assert picture(into) == picture(workspace)
    return state


def left_out(snapshot: Snapshot) -> dict[str, str]:
    return {item.path: item.reason for item in snapshot.not_captured}


NAMES = [b"a", b"b", b"caf\xc3\xa9", b"\xff", b"n\nl", b" s", b"-x", b"git~1", b":(glob)*"]
CONTENTS = [b"", b"x", b"a\r\nb\n", b"$Id$\n", b"\0\xff", b"line\n" * 40]
ATTRIBUTES = [b"* text=auto eol=crlf\n", b"* ident filter=x\n", b"* working-tree-encoding=UTF-16\n"]
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(b"/".join)
EDITS = st.one_of(
    st.tuples(st.just("write"), PATHS, st.sampled_from(CONTENTS)),
    st.tuples(st.just("delete"), PATHS, st.just(b"")),
    st.tuples(st.just("mkdir"), PATHS, st.just(b"")),
    st.tuples(st.just("fifo"), PATHS, st.just(b"")),
    st.tuples(st.just("link"), PATHS, st.sampled_from([b"a", b"/tmp", b"..", b"none"])),
    st.tuples(st.just("rename"), PATHS, PATHS),
    st.tuples(st.just("chmod"), PATHS, st.sampled_from([b"600", b"755", b"444", b"700", b"664"])),
    st.tuples(st.just("init"), PATHS, st.just(b"")),
    st.tuples(st.just("attributes"), PATHS, st.sampled_from(ATTRIBUTES)),
)
STEPS = st.lists(st.lists(EDITS, min_size=1, max_size=5), min_size=2, max_size=4)


def make_room(root: bytes, path: bytes) -> bytes:
    """The absolute path, with folders above it and nothing at it."""
    at = root
    for part in path.split(b"/")[:-1]:
        at += b"/" + part
        if os.path.islink(at) or (os.path.lexists(at) and not os.path.isdir(at)):
            os.unlink(at)
        if not os.path.isdir(at):
            os.mkdir(at)
    target = root + b"/" + path
    remove(target)
    return target


def remove(target: bytes) -> None:
    if os.path.isdir(target) and not os.path.islink(target):
        shutil.rmtree(target)
    elif os.path.lexists(target):
        os.unlink(target)


def edit(root: bytes, kind: str, path: bytes, extra: bytes) -> None:
    """One edit, made without git or RepoTrace."""
    target = root + b"/" + path
    above_is_real = os.path.realpath(os.path.dirname(target)) == os.path.dirname(target)
    match kind:
        case "write":
            Path(os.fsdecode(make_room(root, path))).write_bytes(extra)
        case "delete" if above_is_real:
            remove(target)
        case "mkdir":
            os.mkdir(make_room(root, path))
        case "fifo":
            os.mkfifo(make_room(root, path))
        case "link":
            os.symlink(extra, make_room(root, path))
        case "rename" if above_is_real and os.path.lexists(target):
            if path != extra and not extra.startswith(path + b"/") and not path.startswith(extra):
                destination = make_room(root, extra)
                if os.path.lexists(target):
                    os.rename(target, destination)
        case "chmod" if above_is_real and os.path.isfile(target) and not os.path.islink(target):
            os.chmod(target, int(extra, 8))
        case "init":
            folder = make_room(root, path)
            os.mkdir(folder)
            subprocess.run(["git", "init", "-q", folder], check=True)
            Path(os.fsdecode(folder + b"/inner")).write_bytes(b"in")
        case "attributes":
            target = make_room(root, os.path.join(os.path.dirname(path), b".gitattributes"))
            Path(os.fsdecode(target)).write_bytes(extra)


def play(workspace: Path, steps: Edits) -> Iterator[Picture]:
    """Makes the edits step by step; what the workspace is after each."""
    workspace.mkdir()
    for step in steps:
        for kind, path, extra in step:
            edit(os.fsencode(workspace), kind, path, extra)
        yield picture(workspace)
