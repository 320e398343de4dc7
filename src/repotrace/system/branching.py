"""Repositories and work trees for files that are gone on with elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from repotrace.config import Repository
from repotrace.errors import RepoTraceError
from repotrace.system.git import GitError, git
from repotrace.system.private_repository import has_commit, make_repository


def repository_of(folder: Path, source: Repository | None, commit: str | None) -> None:
    """Make `folder`, which has files, a git repository of its own.

    On `commit` with the history of `source` where both are there, else empty: so git and what
    asks git take the folder for a project, and not for a part of what lies above it.
    """
    if source is not None and commit is not None and has_commit(source, commit):
        make_repository(folder, source, commit, None)
        return
    git(["init", "-q"], folder, deadline=30)


_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")


@contextmanager
def worktree_without_files(
    source: Repository, folder: Path, branch: str, commit: str
) -> Iterator[None]:
    """A new work tree of `source` in `folder`, on the new branch `branch` at `commit`.

    Meanwhile the folder is empty, for its files to be written; then git knows it. No hooks run.
    Raises RepoTraceError if git says no: the branch or the folder is there.
    """
    add = [*_NO_HOOKS, "worktree", "add", "-q", "--no-checkout", "-b", branch]
    try:
        git([*add, str(folder), commit], source.root, deadline=60)
        try:
            git(["read-tree", "HEAD"], folder, deadline=60)
        except GitError:
            remove_worktree(source, folder, branch)
            raise
    except GitError as error:
        raise RepoTraceError(
            f"Git makes no work tree in {folder}: {error.message}",
            hint="Choose another folder with --into, or delete the branch.",
        ) from error
    link = folder / ".git"
    pointer = link.read_bytes()
    link.unlink()
    try:
        yield
    finally:
        folder.mkdir(exist_ok=True)
        link.write_bytes(pointer)


def remove_worktree(source: Repository, folder: Path, branch: str) -> None:
    """Take back a work tree that `worktree_without_files` made, and its branch, as far as git
    says yes."""
    with suppress(GitError):
        git([*_NO_HOOKS, "worktree", "remove", "--force", str(folder)], source.root, deadline=60)
        git([*_NO_HOOKS, "branch", "-q", "-D", branch], source.root, deadline=60)


def branches_of(source: Repository) -> frozenset[str]:
    """The names of all local branches; none where git cannot tell."""
    try:
        listed = git(
            ["for-each-ref", "--format=%(refname)", "refs/heads"], source.root, deadline=60
        )
    except GitError:
        return frozenset()
    names = listed.decode("utf-8", "surrogateescape").splitlines()
    return frozenset(name.removeprefix("refs/heads/") for name in names)


def free_branch(name: str, taken: frozenset[str]) -> str:
    """`name` as a branch can be called, with a number behind it if it is taken."""
    parts = (re.sub(r"[^\w.-]+|\.\.+|@\{", "-", part).strip(".-") for part in name.split("/"))
    usual = "/".join(part.removesuffix(".lock") or "branch" for part in parts)
    found, number = usual, 2
    while found in taken:
        found, number = f"{usual}-{number}", number + 1
    return found
