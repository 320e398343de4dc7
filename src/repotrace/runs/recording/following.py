"""Which agent is at work in a recorded command, and where it writes down what it does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from repotrace.agents import AGENTS, PROGRAMS, agent
from repotrace.errors import RepoTraceError
from repotrace.importers import detect, importer
from repotrace.records.events import Kind
from repotrace.runs.transcripts.sessions import written
from repotrace.system.descendants import Process

_ROUNDED = 0.05
"""Seconds by which the moments of files and transcripts may be rounded down."""

_RESUMING = frozenset(
    {"resume", "continue", "--resume", "-r", "--continue", "-c", "--session", "-s"}
)
"""Words of a command line that have an agent go on with an earlier session."""

_WORDS = 3
"""Words at the beginning of a command line that may name the agent: `npx -y codex`."""

_GROWING = frozenset({"aider", "mini-swe-agent"})
"""Formats that are written to the same file in every session; the time of change tells enough."""

_NAMED_SUFFIXES = frozenset({".json", ".jsonl", ".md", ".traj"})


class Found(NamedTuple):
    """A transcript of the recorded command."""

    path: Path
    format: str


def agent_of(argv: Sequence[str]) -> str | None:
    """The agent that a command line starts; None if it is none that we know."""
    words = [word for word in argv if not word.startswith("-")][:_WORDS]
    for word in words:
        # `npx @openai/codex@latest`, `python -m minisweagent.run.mini`
        name = os.path.basename(word.rstrip("/")).partition("@")[0]  # noqa: PTH119
        for candidate in (name.removesuffix(".exe"), name.partition(".")[0]):
            if candidate in PROGRAMS:
                return PROGRAMS[candidate]
    return None


@dataclass(slots=True)
class Sessions:
    """The sessions that the agents of one recorded command write."""

    folder: Path
    """Where they work."""
    argv: Sequence[str]
    environ: Mapping[str, str]
    since: float
    """When the command was started, in seconds since 1970."""
    agent: str | None = None
    """Which agent it is, where somebody says so, or once it is known."""
    found: dict[Path, Found] = field(default_factory=dict)
    _before: set[Path] = field(default_factory=set)
    """Sessions that were there before."""
    _refused: dict[Path, tuple[float, int]] = field(default_factory=dict)
    """Those that were looked into and are not ours, as they were then."""

    def __post_init__(self) -> None:
        self.agent = self.agent or agent_of(self.argv)
        if self.agent is not None:
            self._before = {path for path, _ in self._listed([(self.environ, self.folder)])}

    def look(self, processes: Iterable[Process], *, last: bool = False) -> list[Found]:
        """Sessions that were not found before. `processes` are those of the command; `last` is
        when it has ended, and what was there before counts if it has grown."""
        places: list[tuple[Mapping[str, str], Path]] = [(self.environ, self.folder)]
        words = list(self.argv)
        for process in processes:
            name = agent_of(process.argv)
            if name is None or (self.agent is not None and name != self.agent):
                continue
            self.agent = name
            place = (process.environ or self.environ, process.cwd or self.folder)
            if place not in places:
                places.append(place)
            words += process.argv[1:]
        if self.agent is None:
            return []
        resuming = last or not _RESUMING.isdisjoint(words)
        fresh = []
        for path, form in (*self._listed(places), *self._named(words, places)):
            if path in self.found:
                continue
            facts = written(form, path)
            if (
                facts is None
                or facts[0] < self.since - _ROUNDED
                or self._refused.get(path) == facts
            ):
                continue
            if self._is_ours(path, form, resuming=resuming and not self.found):
                found = self.found[path] = Found(path, form)
                fresh.append(found)
            else:
                self._refused[path] = facts
        return fresh

    def _listed(
        self, places: Iterable[tuple[Mapping[str, str], Path]]
    ) -> Iterator[tuple[Path, str]]:
        """The sessions that the agent keeps."""
        assert self.agent is not None
        known = agent(self.agent)
        for environ, folder in places:
            folders = dict.fromkeys([self.folder, Path(os.path.realpath(folder)), folder])
            for place in folders:
                with suppress(OSError, RepoTraceError):
                    for path in known.sessions(environ, place):
                        yield path, known.format

    def _named(
        self, words: Iterable[str], places: Sequence[tuple[Mapping[str, str], Path]]
    ) -> Iterator[tuple[Path, str]]:
        """Files that the command line names and that are transcripts by now."""
        for word in words:
            name = word.partition("=")[2] if word.startswith("-") else word
            if Path(name).suffix not in _NAMED_SUFFIXES:
                continue
            for _, folder in places:
                path = folder / name
                with suppress(OSError, RepoTraceError):
                    if path.is_file() and path.stat().st_mtime >= self.since - _ROUNDED:
                        yield path, detect(path).NAME

    def _is_ours(self, path: Path, form: str, *, resuming: bool) -> bool:
        is_new = path not in self._before
        begun, worked_in, known = None, "", False
        try:
            for number, event in enumerate(importer(form).read(path)):
                if event["kind"] in (Kind.RUN_STARTED, Kind.RUN_UPDATED):
                    told = event["data"].get("workspace")
                    worked_in = told if isinstance(told, str) and told else worked_in
                    known = True
                    if event["kind"] == Kind.RUN_STARTED:
                        begun = max(begun or 0.0, event["time"] / 1e9)
                if number > 40 and form not in _GROWING:
                    break
        except (RepoTraceError, OSError):
            if not known:
                return False
        began_after = begun is not None and begun >= self.since - _ROUNDED
        if not (is_new or began_after or resuming or form in _GROWING):
            return False
        if not began_after and not self._before and not resuming and form not in _GROWING:
            return False
        return not worked_in or self._is_here(worked_in)

    def _is_here(self, name: str) -> bool:
        folder = Path(os.path.realpath(name))
        here = Path(os.path.realpath(self.folder))
        return folder == here or here in folder.parents


def is_agent(name: str) -> bool:
    """Whether an agent of this name is known."""
    return name in AGENTS
