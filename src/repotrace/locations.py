"""Where things lie on disk: the repository, the workspace, the store, the home.

Nothing here runs a process, makes a folder or prints, and little is imported: a hook has a few
milliseconds.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

STORE_FOLDER = Path(".repotrace", "reports")
"""The store, relative to the project it belongs to."""


class Repository(NamedTuple):
    """A git work tree and its folders, all absolute and free of symbolic links."""

    root: Path
    git_dir: Path
    """Of this work tree; differs from `common_dir` in a linked one."""
    common_dir: Path
    """Shared by all work trees of the repository."""


def find_repository(start: Path) -> Repository | None:
    """The git work tree that `start` lies in, `start` need not exist; None outside of any.

    Reads files only, and knows linked work trees and submodules. A bare repository has no
    work tree, and a `.git` that is no repository is passed over.
    """
    for folder in _upward(start):
        git_dir = _git_dir_at(folder)
        if git_dir is not None:
            return Repository(root=folder, git_dir=git_dir, common_dir=_common_dir(git_dir))
    return None


def find_store(cwd: Path, environ: Mapping[str, str], explicit: Path | str | None = None) -> Path:
    """The folder of reports that a command started in `cwd` uses; it may not exist yet.

    In this order: `explicit`, `REPOTRACE_STORE`, the nearest `.repotrace/reports` upward as
    far as the git root or the home directory, `.repotrace/reports` in the git root, or in
    `cwd` outside of git.
    """
    given = explicit or environ.get("REPOTRACE_STORE")
    if given:
        return cwd / given
    for folder in project_folders(cwd, environ):
        if (folder / STORE_FOLDER).is_dir():
            return folder / STORE_FOLDER
    repository = find_repository(cwd)
    return (repository.root if repository else Path(os.path.realpath(cwd))) / STORE_FOLDER


def workspace_for(cwd: Path, environ: Mapping[str, str]) -> Path:
    """The folder whose files a run in `cwd` keeps, absolute and free of symbolic links.

    The root of the git work tree; outside of git the nearest folder upward that has a
    `.repotrace`, else `cwd`.
    """
    repository = find_repository(cwd)
    if repository:
        return repository.root
    for folder in project_folders(cwd, environ):
        if (folder / ".repotrace").is_dir():
            return folder
    return Path(os.path.realpath(cwd))


def home_for(
    store_root: Path,
    cwd: Path,
    environ: Mapping[str, str],
    explicit: Path | str | None = None,
) -> Path:
    """The home, which holds what belongs to a store and is not to be committed.

    In this order: `explicit`, `REPOTRACE_HOME`, `repotrace` in the common git folder of the
    store, `.repotrace` if the store is `.repotrace/reports`, `repotrace` in the common git
    folder of `cwd`, `.repotrace` in `cwd`.
    """
    given = explicit or environ.get("REPOTRACE_HOME")
    if given:
        return cwd / given
    store = Path(os.path.realpath(cwd / store_root))
    repository = find_repository(store)
    if repository:
        return repository.common_dir / "repotrace"
    if store.parts[-2:] == STORE_FOLDER.parts:
        return store.parent
    repository = find_repository(cwd)
    if repository:
        return repository.common_dir / "repotrace"
    return Path(os.path.realpath(cwd)) / ".repotrace"


def head_of(git: Path) -> str | None:
    """The commit that a repository (its `.git` folder or file) stands on."""
    with suppress(OSError, ValueError):
        if git.is_file():
            pointer = git.read_text().strip().removeprefix("gitdir: ")
            git = (git.parent / pointer).resolve()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head or None
        common = git
        with suppress(OSError):
            common = (git / (git / "commondir").read_text().strip()).resolve()
        name = head.removeprefix("ref: ")
        for place in (git / name, common / name):
            with suppress(OSError):
                return place.read_text().strip()
        for line in (common / "packed-refs").read_text().splitlines():
            if line.endswith(" " + name):
                return line.split(" ")[0]
    return None


def _upward(start: Path) -> Iterator[Path]:
    folder = Path(os.path.realpath(start))
    yield folder
    yield from folder.parents


def project_folders(cwd: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    """`cwd` and the folders above it that may belong to the same project.

    Ends with the git root or the home directory. A folder in which everybody may create
    files, as `/tmp`, ends it too: what lies there may be a stranger's.
    """
    home = environ.get("HOME")
    last = Path(os.path.realpath(home)) if home else None
    for number, folder in enumerate(_upward(cwd)):
        if number and _open_to_everybody(folder):
            return
        yield folder
        if folder == last or _git_dir_at(folder) is not None:
            return


def _open_to_everybody(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def _git_dir_at(folder: Path) -> Path | None:
    dot_git = folder / ".git"
    try:
        mode = dot_git.stat().st_mode
        if stat.S_ISDIR(mode):
            git_dir = dot_git
        elif stat.S_ISREG(mode):
            link = _first_line(dot_git)
            if not link.startswith("gitdir:"):
                return None
            git_dir = folder / link.removeprefix("gitdir:").strip()
        else:
            return None
        git_dir = Path(os.path.realpath(git_dir))
        is_repository = (git_dir / "HEAD").exists() or (git_dir / "HEAD").is_symlink()
        return git_dir if is_repository and (_common_dir(git_dir) / "objects").is_dir() else None
    except (OSError, ValueError):
        return None


def _common_dir(git_dir: Path) -> Path:
    try:
        return Path(os.path.realpath(git_dir / _first_line(git_dir / "commondir")))
    except (OSError, ValueError):
        return git_dir


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        return os.fsdecode(file.readline(65536).rstrip(b"\r\n"))
