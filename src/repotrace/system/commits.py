"""Commits of the user's repository, found by what their files hold. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import batched, islice
from pathlib import Path

from repotrace.system.git import GitError, git

LIMIT = 5_000
"""Commits that are looked at."""

_NEAREST = 500
"""Those that are looked at for the one that comes closest."""

_BATCH = 100
_DEADLINE = 60.0


def resolved(repository: Path, name: str) -> str | None:
    """The id of the commit that `name` means; None if it means none here."""
    if not name or name.startswith("-"):
        return None
    try:
        found = git(
            ["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"],
            repository,
            deadline=_DEADLINE,
        )
    except GitError:
        return None
    return found.decode().strip()


def matching(
    repository: Path, blobs: Mapping[str, str | None], *, before: int | None = None
) -> str | None:
    """The newest commit in which each path has the blob that is given; None means no file.

    The beginning of the id of a blob does, as patches tell it.
    Commits from after `before` (seconds since 1970) count only where no earlier one matches, and
    then the oldest. None if none of the last commits does.
    """
    paths = {path: oid for path, oid in blobs.items() if "\n" not in path}
    for batch in batched(_candidates(repository, before), _BATCH):
        found = _first(repository, batch, paths)
        if found is not None:
            return found
    return None


def closest(
    repository: Path, blobs: Mapping[str, str | None], *, before: int | None = None
) -> str | None:
    """The newest commit in which as many paths as in any other have their blob, see `matching`;
    None if there is no commit."""
    paths = {path: oid for path, oid in blobs.items() if "\n" not in path}
    best: tuple[int, str] | None = None
    for batch in batched(islice(_candidates(repository, before), _NEAREST), _BATCH):
        for commit, fits in _fitting(repository, batch, paths):
            if best is None or fits > best[0]:
                best = fits, commit
    return None if best is None else best[1]


def _candidates(repository: Path, before: int | None) -> Iterator[str]:
    try:
        listed = git(
            ["log", "--all", "--date-order", f"--max-count={LIMIT}", "--format=%H %ct"],
            repository,
            deadline=_DEADLINE,
        )
    except GitError:
        return
    commits = [line.split() for line in listed.decode().splitlines()]
    later = []
    for commit, time in commits:
        if before is None or int(time) <= before:
            yield commit
        else:
            later.append(commit)
    yield from reversed(later)


def _first(repository: Path, commits: Sequence[str], blobs: Mapping[str, str | None]) -> str | None:
    found = _fitting(repository, commits, blobs)
    return next((commit for commit, fits in found if fits == len(blobs)), None)


def _fitting(
    repository: Path, commits: Sequence[str], blobs: Mapping[str, str | None]
) -> Iterator[tuple[str, int]]:
    """Commits, with how many of the paths have their blob in each."""
    if not blobs:
        yield from ((commit, 0) for commit in commits)
        return
    questions = "".join(f"{commit}:{path}\n" for commit in commits for path in blobs)
    # A path may be no text; the question is asked in the bytes that it has.
    try:
        answered = git(
            ["cat-file", "--batch-check=%(objectname) %(objecttype)"],
            repository,
            input=questions.encode("utf-8", "surrogateescape"),
            deadline=_DEADLINE,
        )
    except GitError:
        return
    answers = answered.split(b"\n")
    for number, commit in enumerate(commits):
        part = answers[number * len(blobs) : (number + 1) * len(blobs)]
        yield commit, sum(map(_fits, part, blobs.values()))


def present(repository: Path, commit: str, paths: Sequence[str]) -> list[str]:
    """Those of the paths that are files of a commit."""
    asked = [path for path in paths if "\n" not in path]
    questions = "".join(f"{commit}:{path}\n" for path in asked)
    try:
        answered = git(
            ["cat-file", "--batch-check=%(objecttype)"],
            repository,
            input=questions.encode("utf-8", "surrogateescape"),
            deadline=_DEADLINE,
        )
    except GitError:
        return []
    answers = answered.split(b"\n")
    return [path for path, answer in zip(asked, answers, strict=False) if answer == b"blob"]


def _fits(answer: bytes, oid: str | None) -> bool:
    if oid is None:
        return answer.endswith(b" missing")
    return answer.startswith(oid.encode()) and answer.endswith(b" blob")


def differing(repository: Path, commit: str) -> list[str]:
    """The paths of the work tree that differ from a commit, untracked files included.

    Ignored files and our own `.repotrace` do not count. Raises GitError.
    """
    own = ":(top,exclude).repotrace"
    command = ["diff", "--name-only", "--no-renames", "-z", commit, "--", ".", own]
    tracked = git(["-c", "core.fsmonitor=false", *command], repository, deadline=_DEADLINE)
    command = ["ls-files", "--others", "--exclude-standard", "-z", "--", ".", own]
    others = git(["-c", "core.fsmonitor=false", *command], repository, deadline=_DEADLINE)
    names = (tracked + others).split(b"\0")
    return sorted({name.decode("utf-8", "surrogateescape") for name in names if name})
