"""The history of a commit as one file of git's own, and a repository made of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from repotrace.config import Repository
from repotrace.errors import ImportFailed, RepoTraceError
from repotrace.system.git import GitError, git

_PRIVATE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
_REF = "refs/repotrace/captured"
_TAGS = "refs/tags/"
_AT_ONCE = 500
MOST_BYTES = 8 << 30
"""Bytes of all objects, unpacked."""


def write_history(repository: Repository, commit: str) -> bytes:
    """The commit with all before it, and the tags on the way. Raises RepoTraceError."""
    objects = os.fsencode(repository.common_dir / "objects")
    if objects[:1] in (b'"', b"#") or b"\n" in objects:
        raise RepoTraceError(f"Objects cannot be borrowed from {repository.common_dir}.")
    listed = git(
        ["for-each-ref", "--merged", commit, "--format=%(objectname) %(refname)", _TAGS],
        repository.root,
    )
    with TemporaryDirectory(prefix="repotrace-history-") as folder:
        inner = Path(folder)
        _git(inner, "init", "-q", "--bare", ".")
        (inner / "objects" / "info" / "alternates").write_bytes(objects + b"\n")
        updates = b"".join(b"create %s %s\n" % (name, oid) for oid, name in _pairs(listed))
        updates += f"create {_REF} {commit}\n".encode()
        try:
            git(["update-ref", "--stdin"], inner, env=_PRIVATE, input=updates)
            _git(inner, "bundle", "create", "-q", "history.bundle", "--all")
        except GitError as error:
            raise RepoTraceError(
                f"The history of commit {commit[:12]} is not whole here.",
                hint="A shallow clone has only the end of it: git fetch --unshallow",
            ) from error
        return (inner / "history.bundle").read_bytes()


def contents_of_history(repository: Repository, commit: str) -> Iterator[tuple[str, bytes]]:
    """Each different content of the history with one of its paths."""
    raw = git(["rev-list", "--objects", commit], repository.root)
    named = [line.partition(b" ")[::2] for line in raw.splitlines()]
    named = [(oid, path) for oid, path in named if path]
    for start in range(0, len(named), _AT_ONCE):
        part = named[start : start + _AT_ONCE]
        asked = b"".join(oid + b"\n" for oid, _ in part)
        answer = git(["cat-file", "--batch"], repository.root, input=asked)
        at = 0
        for _, path in part:
            end = answer.index(b"\n", at)
            _, kind, size = answer[at:end].split(b" ")
            data = answer[end + 1 : end + 1 + int(size)]
            at = end + 1 + int(size) + 1
            if kind == b"blob":
                yield os.fsdecode(path), data


def take_history(data: bytes, commit: str, folder: Path) -> None:
    """Make `folder` a repository, without a work tree, that has the commit and all before it.

    Raises ImportFailed if the file is damaged or lacks some of it; then the folder stays empty.
    """
    with TemporaryDirectory(prefix="repotrace-history-") as temporary:
        inner = Path(temporary) / "history"
        inner.mkdir()
        file = Path(temporary) / "history.bundle"
        file.write_bytes(data)
        try:
            _git(inner, "init", "-q", ".")
            _git(inner, "bundle", "unbundle", str(file))
            listing = ("--batch-all-objects", "--unordered", "--batch-check=%(objectsize)")
            sizes = _git(inner, "cat-file", *listing)
            if sum(map(int, sizes.split())) > MOST_BYTES:
                raise ImportFailed("The history in the bundle is too large unpacked.")
            _git(inner, "rev-list", "--objects", "--quiet", commit)
            heads = _git(inner, "bundle", "list-heads", str(file))
            tags = [(oid, name) for oid, name in _pairs(heads) if name.startswith(_TAGS.encode())]
            updates = b"".join(b"create %s %s\n" % (name, oid) for oid, name in tags)
            updates += f"create {_REF} {commit}\n".encode()
            git(["update-ref", "--stdin"], inner, env=_PRIVATE, input=updates)
        except GitError as error:
            raise ImportFailed("The history in the bundle is damaged.") from error
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not folder.exists():
            shutil.copytree(inner, folder, symlinks=True)
            folder.chmod(0o700)


def _pairs(lines: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in lines.splitlines():
        oid, _, name = line.partition(b" ")
        yield oid, name


def _git(folder: Path, *arguments: str) -> bytes:
    return git(list(arguments), folder, env=_PRIVATE)
