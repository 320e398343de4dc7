"""Runs git on the private store, or read-only on the user's repository."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from repotrace.system.git import GitError, git
from repotrace.system.snapshots.model import Deadline

CONFIG = """\
[core]
\trepositoryformatversion = 0
\tbare = true
\tfileMode = true
\tsymlinks = true
\tautocrlf = false
\tsafecrlf = false
\tquotePath = false
\thooksPath = /dev/null
\tfsmonitor = false
\tattributesFile = /dev/null
\texcludesFile = /dev/null
\tlooseCompression = 1
\tlogAllRefUpdates = false
\tprotectHFS = false
\tprotectNTFS = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[index]
\tversion = 4
[commit]
\tgpgSign = false
[advice]
\taddEmbeddedRepo = false
[diff]
\trenames = false
[repack]
\twriteBitmaps = false
[fsck]
\thasDotgit = ignore
\tgitmodulesSymlink = ignore
\tgitmodulesParse = ignore
\tgitmodulesUrl = ignore
\tgitmodulesPath = ignore
\tgitmodulesName = ignore
\tgitmodulesUpdate = ignore
\tgitmodulesBlob = ignore
\tgitmodulesLarge = ignore
\tgitattributesLineLength = ignore
\tgitattributesLarge = ignore
\tgitattributesBlob = ignore
"""
ATTRIBUTES = "* -text -eol -ident -filter -working-tree-encoding\n"


AS_ARGUMENTS = 200
"""So many paths are given to git as arguments; of more it is asked about everything."""
PRIVATE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
}
"""What keeps the user's configuration away from git on our own store."""


def run_git(
    args: Sequence[str | bytes],
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    deadline: Deadline,
) -> bytes:
    """What git prints. Raises GitError, or DeadlinePassed with the process killed."""
    timeout = deadline.remaining()
    literal = {"GIT_LITERAL_PATHSPECS": "1"} if env is None else env
    try:
        return git([os.fsdecode(a) for a in args], cwd, env=literal, input=stdin, deadline=timeout)
    except GitError:
        deadline.remaining()
        raise


@contextmanager
def locked(path: Path, *, shared: bool = False, deadline: Deadline) -> Iterator[None]:
    """Holds an advisory lock on `path`; waits for it until the deadline."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        operation = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        if deadline.at is None:
            fcntl.flock(fd, operation)
        else:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(fd, operation | fcntl.LOCK_NB)
                    break
                time.sleep(min(0.01, deadline.remaining() or 0.01))
        yield
    finally:
        os.close(fd)
