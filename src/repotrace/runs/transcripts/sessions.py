"""The sessions that installed agents keep of the work in a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from repotrace.agents import AGENTS, agent
from repotrace.errors import ImportFailed, RepoTraceError
from repotrace.importers import detect, importer, is_transcript
from repotrace.runs.transcripts.importing import Summary, peek

LOOKED_AT = 2_000
"""Transcripts of one agent that are looked into, the newest."""


class Session(NamedTuple):
    """A transcript that an agent has written."""

    path: Path
    agent: str
    modified: datetime
    size: int
    """Bytes."""
    summary: Summary
    """What its beginning tells."""


def sessions_of(
    folder: Path,
    environ: Mapping[str, str],
    *,
    agents: Iterable[str] = (),
    since: datetime | None = None,
    limit: int | None = None,
) -> list[Session]:
    """The sessions of work in `folder` or below it, the newest first; at most `limit`.

    Those that do not tell where they worked count if they lie in the folder. Raises RepoTraceError
    for an agent that is not known.
    """
    found: list[Session] = []
    for name in agents or AGENTS:
        if name not in AGENTS:
            known = ", ".join(AGENTS)
            raise RepoTraceError(f"No agent is called {name!r}.", hint=f"There are: {known}")
        found += _of_agent(name, folder, environ, since, limit)
    found.sort(key=lambda session: session.modified, reverse=True)
    return found[:limit]


def _of_agent(
    name: str,
    folder: Path,
    environ: Mapping[str, str],
    since: datetime | None,
    limit: int | None,
) -> Iterator[Session]:
    known = agent(name)
    dated: list[tuple[float, int, Path]] = []
    for path in dict.fromkeys(known.sessions(environ, folder)):
        facts = written(known.format, path)
        if facts is not None:
            dated.append((*facts, path))
    count = 0
    main = getattr(importer(known.format), "main", None)
    seen: set[Path] = set()
    for seconds, size, part in sorted(dated, reverse=True)[:LOOKED_AT]:
        modified = datetime.fromtimestamp(seconds, UTC)
        if (since is not None and modified < since) or (limit is not None and count >= limit):
            return
        # What a sub-agent wrote last is news of its session.
        path = main(part) if main is not None else part
        if path in seen:
            continue
        seen.add(path)
        summary = peek(path, known.format)
        if summary is not None and _is_of(folder, summary, path):
            count += 1
            yield Session(path, name, modified, size, summary)


def written(form: str, path: Path) -> tuple[float, int] | None:
    """When a session was changed last, in seconds since 1970, and its bytes; None if it is gone."""
    told = getattr(importer(form), "written", None)
    try:
        found: tuple[float, int] | None = told(path) if told is not None else None
        if found is None:
            facts = path.stat()
            found = facts.st_mtime, facts.st_size
    except (OSError, ImportFailed):
        return None
    return found


def _is_of(folder: Path, summary: Summary, path: Path) -> bool:
    if not summary.workspace:
        return folder in path.parents
    worked_in = Path(os.path.normpath(summary.workspace))
    return worked_in == folder or folder in worked_in.parents


def transcripts_in(path: Path) -> Iterator[Path]:
    """`path` itself if it is a file or a transcript of several files, else the files below it.

    Files that belong to another's session come with that one.
    """
    if not path.is_dir() or is_transcript(path):
        yield path
        return
    seen: set[Path] = set()
    for top, folders, files in os.walk(path):
        folders.sort()
        here = Path(top)
        if here != path and is_transcript(here):
            folders.clear()
            yield here
            continue
        for name in sorted(files):
            main = _main(here / name)
            if main is not None and main not in seen:
                seen.add(main)
                yield main


def _main(path: Path) -> Path | None:
    """The file that stands for the session of `path`; None if it is no transcript."""
    try:
        found = detect(path)
    except ImportFailed:
        return None
    main = getattr(found, "main", None)
    return main(path) if main is not None else path
