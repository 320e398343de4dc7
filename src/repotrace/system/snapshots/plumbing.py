"""Runs git on the private store, or read-only on the user's repository."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from repotrace.errors import RepoTraceError
from repotrace.system.snapshots.model import Deadline, DeadlinePassed

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


class GitFailed(RepoTraceError):
    """Git ended with an error; `returncode` and `stderr` say which."""

    def __init__(self, args: Sequence[str], returncode: int, stderr: bytes) -> None:
        self.returncode = returncode
        self.stderr = stderr.decode("utf-8", "replace").strip()
        command = next((arg for arg in args if not arg.startswith("-")), "git")
        detail = self.stderr.splitlines()[-1] if self.stderr else f"exit code {returncode}"
        super().__init__(f"git {command} failed: {detail}")


def private_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of git on our own store: nothing of the user's configuration."""
    env = {key: value for key, value in environ.items() if not key.startswith("GIT_")}
    env.update(
        GIT_CONFIG_NOSYSTEM="1",
        GIT_CONFIG_GLOBAL=os.devnull,
        GIT_TERMINAL_PROMPT="0",
        GIT_LITERAL_PATHSPECS="1",
        LC_ALL="C",
    )
    return env


def reading_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of git on the user's repository: their settings, and no lock taken."""
    kept = {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}
    env = {k: v for k, v in environ.items() if not k.startswith("GIT_") or k in kept}
    env.update(
        GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0", GIT_LITERAL_PATHSPECS="1", LC_ALL="C"
    )
    return env


def run_git(
    args: Sequence[str | bytes],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    stdin: bytes | None = None,
    deadline: Deadline,
    accept: Sequence[int] = (0,),
) -> bytes:
    """The standard output. Raises GitFailed, or DeadlinePassed with the process killed."""
    timeout = deadline.remaining()
    try:
        process = subprocess.Popen(
            ["git", *args],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError as error:
        raise RepoTraceError(
            "git was not found.", hint="Install git 2.25 or newer, or pass --no-snapshot."
        ) from error
    try:
        out, err = process.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        raise DeadlinePassed from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode not in accept:
        raise GitFailed([str(arg) for arg in args], process.returncode, err)
    return out


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
