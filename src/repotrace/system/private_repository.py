"""A git repository of a copy's own: it borrows the user's objects and never writes to them."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path

from repotrace.config import Repository
from repotrace.errors import RepoTraceError
from repotrace.system.git import GitError, git

# No hook of the user's global configuration, no monitor that would stay.
_QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
_COPIED_FILES = ("info/exclude", "info/attributes", "shallow")
_COPIED = re.compile(
    r"core\.(autocrlf|eol|filemode|symlinks|ignorecase|precomposeunicode|attributesfile"
    r"|excludesfile)|(filter|diff|merge|remote|branch|user|submodule)\..*|extensions\.objectformat"
)
_PLAIN_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")


def has_commit(repository: Repository, commit: str) -> bool:
    """Whether the commit is in the repository."""
    try:
        git(["cat-file", "-e", f"{commit}^{{commit}}"], repository.root, deadline=5)
    except GitError:
        return False
    return True


def make_repository(folder: Path, source: Repository, commit: str, branch: str | None) -> None:
    """Makes `folder/.git`, which must not be there: on `commit`, with the references of `source`.

    Objects are read from `source`, whose configuration is taken over as far as it says how
    files look. Raises RepoTraceError if git says no.
    """
    objects = source.common_dir / "objects"
    if os.fsencode(objects)[:1] in (b'"', b"#") or b"\n" in os.fsencode(objects):
        raise RepoTraceError(f"Objects cannot be borrowed from {str(objects)!r}.")
    git_dir = folder / ".git"
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info", "hooks"):
        (git_dir / name).mkdir(parents=True, exist_ok=True)
    (git_dir / "objects/info/alternates").write_bytes(os.fsencode(objects) + b"\n")
    (git_dir / "config").write_text(_config(source), encoding="utf-8", errors="surrogateescape")
    for name in _COPIED_FILES:
        with suppress(FileNotFoundError):
            shutil.copyfile(source.common_dir / name, git_dir / name)
    refs = git(["for-each-ref", "--format=%(objectname) %(refname)"], source.root, deadline=30)
    lines = [line for line in refs.splitlines() if not line.endswith(b" refs/stash")]
    (git_dir / "packed-refs").write_bytes(
        b"".join(line + b"\n" for line in sorted(lines, key=_ref))
    )
    head = commit
    if branch and _PLAIN_BRANCH.fullmatch(branch) and ".." not in branch and ".lock" not in branch:
        own = git_dir / "refs" / "heads" / branch
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(commit + "\n")
        head = f"ref: refs/heads/{branch}"
    (git_dir / "HEAD").write_text(head + "\n")
    git([*_QUIET, "read-tree", "--no-recurse-submodules", commit], folder)


def check_out(folder: Path) -> list[str]:
    """Writes the files of HEAD into `folder`, whose `.git` `make_repository` made.

    Returns the paths of submodules, whose files are not among them.
    """
    git([*_QUIET, "read-tree", "--reset", "-u", "--no-recurse-submodules", "HEAD"], folder)
    entries = git(["ls-files", "-s", "-z"], folder).split(b"\0")
    return [os.fsdecode(e.partition(b"\t")[2]) for e in entries if e.startswith(b"160000 ")]


def _ref(line: bytes) -> bytes:
    return line.partition(b" ")[2]


def _config(source: Repository) -> str:
    """The configuration that decides how files look, and what tools ask for."""
    listed = git(["config", "--list", "--local", "-z", "--no-includes"], source.root, deadline=5)
    lines = ["[core]", "\trepositoryformatversion = 1", "\tbare = false"]
    for item in os.fsdecode(listed).split("\0"):
        key, _, value = item.partition("\n")
        if not _COPIED.fullmatch(key) or "\n" in key:
            continue
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        inner = f' "{_escaped(subsection)}"' if subsection else ""
        lines += [f"[{section}{inner}]", f'\t{name} = "{_escaped(value)}"']
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
