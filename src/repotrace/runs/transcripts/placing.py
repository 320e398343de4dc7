"""Where an imported run worked: its folder, its repository here, the commit it began with."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.config import find_repository
from repotrace.errors import RepoTraceError
from repotrace.importers.building import blob_id
from repotrace.importers.effects import effects, normalised
from repotrace.records.events import Event, Kind
from repotrace.runs.transcripts.rebuilding import NOWHERE as UNKNOWN_FOLDER
from repotrace.system.commits import closest, matching, present, resolved

_PATHS = 500
"""Paths of a run that are looked at; more would not make it surer."""

_CONTENTS = 16 << 20
"""Characters of files that are kept in memory while a run is placed."""

_BEFORE = re.compile(
    r"^index ([0-9a-f]{7,64})\.\.[0-9a-f]{7,64}(?: \d+)?\n--- a/(.+)$", re.MULTILINE
)


class Place(NamedTuple):
    """Where a run worked, as far as it is known here."""

    root: str
    """The folder, in the words of the transcript, that is the root of the repository."""
    repository: Path | None = None
    commit: str | None = None
    """The commit that it began with."""
    reason: str | None = None
    """Why there is none."""
    doubt: str | None = None
    """Why the files may have been others than those of the commit."""
    seen: Mapping[str, str] = {}
    """What files of it held when they were seen first, by paths below the root."""


NOWHERE = Place(UNKNOWN_FOLDER, reason="the session does not tell where it worked")


@dataclass(slots=True)
class _Sightings:
    """What the first reading of a run tells."""

    cwd: str = ""
    commit: str | None = None
    started: int = 0
    edited: dict[str, str | None] = field(default_factory=dict)
    """The object id of the first content of each file that was edited; None: there was none."""
    before: dict[str, str] = field(default_factory=dict)
    """The first contents of those, as far as they are told and not too long together."""
    read: dict[str, str] = field(default_factory=dict)
    """The same of files that were read as a whole, before anything else may have changed them."""
    submitted: dict[str, str] = field(default_factory=dict)
    """How the ids of files begin before the patch that was submitted, by their paths in it."""
    seen: dict[str, None] = field(default_factory=dict)
    """Paths that the run named."""
    room: int = _CONTENTS
    """Characters of contents that may still be kept."""
    muddy: bool = False
    """A command may have changed files."""
    changing: set[str] = field(default_factory=set)


def places(
    events: Iterable[Event], repository: Path | None, fallback: Path | None
) -> dict[str, Place]:
    """The place of each run, by its id.

    `repository` is where all of them worked; `fallback` is tried for those whose folder is not
    here, and counts only if its history has what the run saw.
    """
    found: dict[str, _Sightings] = {}
    for event in events:
        sightings = found.setdefault(str(event.get("run")), _Sightings())
        _look(sightings, event)
    return {name: _place(sight, repository, fallback) for name, sight in found.items()}


def commit_named(repository: Path, name: str) -> str:
    """The commit that a person named. Raises RepoTraceError."""
    found = resolved(repository, name)
    if found is None:
        raise RepoTraceError(
            f"{name!r} is no commit of {repository}.", hint="Name one that `git log` shows."
        )
    return found


def _look(sight: _Sightings, event: Event) -> None:
    data, kind = event["data"], event["kind"]
    if kind == Kind.RUN_STARTED:
        sight.cwd = sight.cwd or str(data.get("workspace") or "")
        commit = data.get("base_commit")
        sight.commit = commit if isinstance(commit, str) else None
        sight.started = event["time"]
    elif kind == Kind.RUN_UPDATED:
        attributes = data.get("attributes")
        patch = attributes.get("submission") if isinstance(attributes, dict) else None
        if isinstance(patch, str):
            sight.submitted = {path: oid for oid, path in _BEFORE.findall(patch)[:_PATHS]}
    elif kind == Kind.FILE_READ:
        _look_at_read(sight, data)
    elif kind == Kind.FILE_OPERATION:
        _look_at_change(sight, data)
    elif kind == Kind.COMMAND and not sight.muddy and data.get("step_id") not in sight.changing:
        command = data.get("command")
        script = command.get("script") if isinstance(command, dict) else None
        if isinstance(script, str):
            told = effects(script, sight.cwd or UNKNOWN_FOLDER, lambda _path: None)
            sight.muddy = bool(told.contents or told.doubts)
            sight.seen.update(dict.fromkeys(list(told.contents)[:_PATHS]))


def _look_at_read(sight: _Sightings, data: Mapping[str, Any]) -> None:
    path = data.get("file_path")
    if not isinstance(path, str) or len(sight.seen) >= _PATHS:
        return
    sight.seen[path] = None
    oid = data.get("object_id")
    if isinstance(oid, str) and not sight.muddy and path not in sight.edited:
        sight.read.setdefault(path, oid)


def _look_at_change(sight: _Sightings, data: Mapping[str, Any]) -> None:
    path, kind = data.get("file_path"), data.get("operation_type")
    sight.changing.add(str(data.get("step_id")))
    if not isinstance(path, str) or path in sight.edited or len(sight.edited) >= _PATHS:
        return
    before = data.get("content_before")
    if isinstance(before, str):
        sight.edited[path] = blob_id(before.encode("utf-8", "surrogatepass"))
        sight.room -= len(before)
        if sight.room > 0:
            sight.before[path] = before
    elif kind == "create" and "content_after" in data and not data.get("renamed_from"):
        sight.edited[path] = None
        return
    elif path in sight.read:
        sight.edited[path] = sight.read[path]
    sight.seen[path] = None


def _place(sight: _Sightings, repository: Path | None, fallback: Path | None) -> Place:
    local = _local(sight.cwd)
    chosen = find_repository(repository) if repository is not None else local
    if repository is not None and chosen is None:
        raise RepoTraceError(f"{repository} is in no git repository.")
    if chosen is not None:
        given = local is not None and chosen.root == local.root
        roots = [str(chosen.root)] if given else list(_roots(sight))
        found = _search(sight, chosen.root, roots, sure=True)
        if found is not None:
            return found
        if given:
            found = _closest(sight, chosen.root, roots[0])
            if found is not None:
                return found
        reason = f"no commit of {chosen.root} has the files that the session saw"
        return Place(roots[0] if roots else UNKNOWN_FOLDER, chosen.root, None, reason)
    other = find_repository(fallback) if fallback is not None else None
    if other is not None:
        found = _search(sight, other.root, list(_roots(sight)), sure=False)
        if found is not None:
            return found
    root = sight.cwd or UNKNOWN_FOLDER
    where = sight.cwd or "the folder of the session"
    reason = f"{where} is in no git repository here"
    if sight.cwd and not Path(sight.cwd).is_dir():
        reason = f"{where} is not here; name the repository with --repo"
    if not sight.cwd:
        reason = "the session does not tell where it worked; name the repository with --repo"
    return Place(root, None, sight.commit, reason)


def _local(cwd: str) -> Any:
    """The repository at the folder of the session, if that is here."""
    folder = Path(cwd) if cwd.startswith("/") else None
    return find_repository(folder) if folder is not None and folder.is_dir() else None


def _roots(sight: _Sightings) -> Iterator[str]:
    """Folders of the transcript that may be the root of its repository, the likelier first."""
    start = sight.cwd
    if not start:
        yield UNKNOWN_FOLDER
        absolute = next((path for path in sight.seen if path.startswith("/")), None)
        start = posixpath.dirname(absolute) if absolute else ""
    while len(start) > 1:
        yield start
        start = posixpath.dirname(start)


def _search(sight: _Sightings, repository: Path, roots: list[str], *, sure: bool) -> Place | None:
    """The place with the commit that fits; where the repository is not sure, by evidence only."""
    if sight.commit is not None:
        commit = resolved(repository, sight.commit)
        if commit is not None:
            root = _best_root(sight, repository, commit, roots)
            return Place(root, repository, commit)
    before = sight.started // 10**9 + 1
    wishes = [sight.read | sight.edited, sight.edited]
    for submitted in (sight.submitted, {}) if sight.submitted else ({},):
        for wanted in wishes if wishes[0] != wishes[1] else wishes[:1]:
            for root in roots:
                inside = _inside(wanted, root)
                if not any(oid is not None for oid in inside.values()):
                    continue
                commit = matching(repository, inside | submitted, before=before)
                if commit is not None:
                    return Place(root, repository, commit)
        commit = matching(repository, submitted, before=before) if submitted else None
        if commit is not None and roots:
            return Place(_best_root(sight, repository, commit, roots), repository, commit)
    if sure and roots and not any(wishes[0].values()):
        commit = matching(repository, {}, before=before)
        if commit is not None:
            return Place(_best_root(sight, repository, commit, roots), repository, commit)
    return None


def _closest(sight: _Sightings, repository: Path, root: str) -> Place | None:
    """The place in the repository that the session surely worked in, where changes that were in
    no commit lay in it."""
    wanted = _inside(sight.read | sight.edited, root)
    commit = closest(repository, wanted, before=sight.started // 10**9 + 1)
    if commit is None:
        return None
    seen = {path: text for path, text in _inside(sight.before, root).items() if text is not None}
    doubt = (
        f"it began with changes that no commit has: the files are those of {commit[:7]}, and what"
        " it edited as it saw that first"
    )
    return Place(root, repository, commit, doubt=doubt, seen=seen)


def _inside(paths: Mapping[str, str | None], root: str) -> dict[str, str | None]:
    """Those below `root`, relative to it."""
    found = {}
    for path, oid in paths.items():
        whole = normalised(root, path)
        if whole.startswith(root.rstrip("/") + "/"):
            found[posixpath.relpath(whole, root)] = oid
    return found


def _best_root(sight: _Sightings, repository: Path, commit: str, roots: list[str]) -> str:
    """The root under which most of the paths that were seen are files of the commit."""
    if len(roots) < 2:
        return roots[0] if roots else UNKNOWN_FOLDER
    counts = []
    for root in roots:
        seen = list(_inside(dict.fromkeys(sight.seen), root))[:_PATHS]
        counts.append(len(present(repository, commit, seen)))
    return roots[counts.index(max(counts))]
