"""Running git, and asking it for the state of a work tree."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repotrace.config import Repository, find_repository
from repotrace.errors import RepoTraceError

if TYPE_CHECKING:
    from repotrace.records.command import RepositoryState

_STATE_DEADLINE = 2.0
_BRANCH = "refs/heads/"
_KEPT = ("GIT_EXEC_PATH", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")


class GitError(RepoTraceError, RuntimeError):
    """git could not be run, took too long, or said no."""


def git_environment() -> dict[str, str]:
    """Our environment for a git that depends on its arguments alone and changes nothing unasked.

    Without GIT_DIR and the like, which hooks inherit, but for those that say where git and its
    configuration are; plain messages; no password prompt; the user's index is not refreshed in
    passing.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name in _KEPT
    }
    env.update(LC_ALL="C", GIT_OPTIONAL_LOCKS="0", GIT_TERMINAL_PROMPT="0", GIT_PAGER="cat")
    return env


def git(
    args: Sequence[str],
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,  # noqa: A002 - as subprocess names it
    deadline: float | None = None,
) -> bytes:
    """What `git ARGS` in `cwd` prints on stdout.

    `env`: variables beside those of `git_environment`, such as GIT_INDEX_FILE. `deadline`:
    seconds after which git is killed. Raises GitError with the line of its stderr that says why.
    """
    command = f"git {_subcommand(args)}"
    try:
        process = subprocess.Popen(
            ["git", *args],
            cwd=cwd,
            env=git_environment() | dict(env or {}),
            stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
    except OSError as error:
        if not cwd.is_dir():
            from repotrace.records.base import printable

            raise GitError(f"The folder {printable(str(cwd))} does not exist.") from error
        raise GitError("git could not be started.", hint="Is git installed?") from error
    with process:
        try:
            stdout, stderr = process.communicate(input, timeout=deadline)
        except subprocess.TimeoutExpired as error:
            raise GitError(f"{command} took longer than {deadline:g} s.") from error
        finally:
            if process.poll() is None:
                _kill(process)
    if process.returncode != 0:
        lines = stderr.decode("utf-8", "replace").strip().splitlines()
        # Of a helper that died git says so last, and why before.
        fatal = [line for line in lines if line.startswith("fatal: ")]
        reason = next(iter([*fatal, *lines[-1:]]), f"exit code {process.returncode}")
        raise GitError(f"{command} failed: {reason}")
    return stdout


def _subcommand(args: Sequence[str]) -> str:
    rest = iter(args)
    for part in rest:
        if part in ("-c", "-C"):
            next(rest, None)
        elif not part.startswith("-"):
            return part
    return ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    # With its helpers: they hold the pipes, and closing those would wait for them.
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tracks(path: Path) -> bool:
    """Whether git tracks the file at `path` in the work tree around it. Never raises."""
    repository = find_repository(path.parent)
    if repository is None:
        return False
    args = ("-c", "core.fsmonitor=false", "ls-files", "--error-unmatch", "--", path.name)
    try:
        git(args, path.parent, env={"GIT_LITERAL_PATHSPECS": "1"}, deadline=_STATE_DEADLINE)
    except GitError:
        return False
    return True


def repository_state(cwd: Path) -> RepositoryState | None:
    """Commit, branch and dirtiness of the work tree around `cwd`; None outside of any.

    Untracked files count as dirt, ignored ones and our own `.repotrace` do not. Where git is
    missing, refuses or takes too long, dirtiness is not known, and the rest is read from the
    repository's files as far as they tell. Never raises for any state of the repository;
    changes nothing in it.
    """
    repository = find_repository(cwd)
    if repository is None:
        return None
    # Taking a state needs git, and takes less time than these need to be imported.
    from repotrace.records.base import printable
    from repotrace.records.command import RepositoryState

    args = [
        # A monitor would be a daemon that stays, or a program that the repository names.
        *("-c", "core.fsmonitor=false"),
        *("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "-z"),
        *("--no-renames", "--no-ahead-behind"),
        # What we wrote ourselves makes nobody's work tree dirty.
        *("--", ".", ":(top,exclude).repotrace"),
    ]
    try:
        lines = git(args, repository.root, deadline=_STATE_DEADLINE).split(b"\0")
    except GitError:
        commit, branch = _head(repository)
        return RepositoryState(commit=commit, branch=branch, dirty=None)
    headers = dict(line[2:].split(b" ", 1) for line in lines if line.startswith(b"# branch."))
    commit = os.fsdecode(headers.get(b"branch.oid", b"(initial)"))
    branch = os.fsdecode(headers.get(b"branch.head", b"(detached)"))
    return RepositoryState(
        commit=None if commit == "(initial)" else commit,
        branch=None if branch == "(detached)" else printable(branch),
        dirty=any(line and not line.startswith(b"#") for line in lines),
    )


def _head(repository: Repository) -> tuple[str | None, str | None]:
    """Commit and branch without git; None for what the files do not tell."""
    try:
        head = (repository.git_dir / "HEAD").read_text("utf-8", "surrogateescape").strip()
    except OSError:
        return None, None
    if not head.startswith("ref:"):
        return (head if _is_id(head) else None), None
    ref = head.removeprefix("ref:").strip()
    if ref == f"{_BRANCH}.invalid":
        # So says a repository that keeps its references in another format.
        return None, None
    from repotrace.records.base import printable

    branch = printable(ref.removeprefix(_BRANCH)) if ref.startswith(_BRANCH) else None
    return _commit_of(ref, repository), branch


def _commit_of(ref: str, repository: Repository) -> str | None:
    for folder in (repository.git_dir, repository.common_dir):
        with suppress(OSError, ValueError):
            commit = (folder / ref).read_text("ascii").strip()
            if _is_id(commit):
                return commit
    with suppress(OSError):
        packed = (repository.common_dir / "packed-refs").read_text("utf-8", "surrogateescape")
        for line in packed.splitlines():
            commit, _, name = line.partition(" ")
            if name == ref and _is_id(commit):
                return commit
    return None


def _is_id(text: str) -> bool:
    return len(text) in (40, 64) and set(text) <= set("0123456789abcdef")
