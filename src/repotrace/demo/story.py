"""The demonstration from its beginning to its end, in one folder that it keeps to."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from repotrace.config import STORE_FOLDER
from repotrace.demo.project import TASK, make_project, refuse_used
from repotrace.errors import RepoTraceError
from repotrace.records.blame import Check
from repotrace.records.command import CommandRun, CommandSpec, Termination
from repotrace.records.run import Run
from repotrace.redact import Redactor
from repotrace.runs.blame import BlameOptions, OnProgress
from repotrace.runs.check import check_run
from repotrace.runs.checking.comparing import Say, quiet
from repotrace.runs.testing.options import Testing
from repotrace.storage import LATEST, Store
from repotrace.system.execution import execute
from repotrace.workcopy import remove_tree

PROJECT = "invoice"
"""Name of the repository in the folder of the demonstration."""

_FOREIGN = ("REPOTRACE_", "PYTEST_", "GIT_")
"""Beginnings of the names of variables that would change what the demonstration does."""
_AGENT_TIME = 120.0
_OUTPUT_LIMIT = 64 << 10


@dataclass(frozen=True, slots=True)
class Digests:
    """Of a repository: of its files, and of what git keeps beside the objects."""

    files: str
    index: str
    refs: str
    config: str

    @classmethod
    def of(cls, repository: Path) -> Digests:
        """Read anew, file by file."""
        git = repository / ".git"
        references = ("HEAD", "packed-refs", "refs", "reftable", "logs")
        return cls(
            files=_digest(repository, [path.name for path in repository.iterdir()], but=".git"),
            index=_digest(git, ["index"]),
            refs=_digest(git, references),
            config=_digest(git, ["config", "info", "hooks"]),
        )


@dataclass(frozen=True, slots=True)
class Story:
    """What happened in the demonstration."""

    repository: Path
    run: Run
    said: str
    """The last words of the agent."""
    check: Check
    before: Digests
    """Of the repository as the agent left it."""
    after: Digests
    """Of the repository after the check."""


type OnAgent = Callable[[Run, str], None]
"""Called with the run and the last words of the agent, before anything is checked."""


def demonstrate(
    folder: Path,
    environ: Mapping[str, str],
    *,
    say: Say = quiet,
    on_agent: OnAgent | None = None,
    on_progress: OnProgress | None = None,
) -> Story:
    """Make the project in a new or empty folder, have the agent work on it, and check the run.

    Nothing is written elsewhere, not even temporary files. Raises RepoTraceError if there is
    something in the folder, or one of the programs cannot be run; KeyboardInterrupt.
    """
    environ = {name: v for name, v in environ.items() if not name.startswith(_FOREIGN)}
    refuse_used(folder)
    repository = folder / PROJECT
    make_project(repository)
    store = Store(repository / ".git" / "repotrace", reports=repository / STORE_FOLDER)
    with _temporary_files_in(folder / "tmp") as place:
        environ = {**environ, "TMPDIR": str(place)}
        say("the agent works")
        _let_work(repository, environ)
        store.runs.ingest()
        run = store.runs.get(LATEST)
        said = str(run.attributes.get("result") or "")
        if on_agent is not None:
            on_agent(run, said)
        before = Digests.of(repository)
        try:
            check = check_run(
                store,
                run,
                folder=repository,
                testing=Testing(environ=environ),
                blame=BlameOptions(on_progress=on_progress),
                say=say,
            )
        finally:
            store.close()
    return Story(repository, run, said, check, before, Digests.of(repository))


def _let_work(repository: Path, environ: Mapping[str, str]) -> CommandRun:
    """The agent, as a program of its own."""
    spec = CommandSpec(
        argv=(sys.executable, "-m", "repotrace.demo"),
        cwd=str(repository),
        env={**environ, "PWD": str(repository)},
        timeout=_AGENT_TIME,
    )
    done = execute(spec, redactor=Redactor(key=os.urandom(32), variables={}), limit=_OUTPUT_LIMIT)
    if done.termination is Termination.INTERRUPTED:
        raise KeyboardInterrupt
    if done.failed:
        last = done.stderr.text.strip().rpartition("\n")[2]
        raise RepoTraceError(f"The agent of the demo failed ({done.ending}): {last}", hint=TASK)
    return done


@contextmanager
def _temporary_files_in(place: Path) -> Iterator[Path]:
    before = tempfile.tempdir
    place.mkdir(mode=0o700, parents=True)
    place = Path(os.path.realpath(place))
    tempfile.tempdir = str(place)
    try:
        yield place
    finally:
        tempfile.tempdir = before
        remove_tree(place)


def _digest(top: Path, names: Sequence[str], but: str = "") -> str:
    """Of names, kinds, modes and contents of what there is of `names`, and of all below."""
    digest = sha256()
    for name in sorted(set(names) - {but}):
        for path in _walk(top / name):
            status = path.lstat()
            digest.update(f"\0{path.relative_to(top)}\0{status.st_mode:o}\0".encode())
            if path.is_symlink():
                digest.update(os.fsencode(os.readlink(path)))  # noqa: PTH115
            elif path.is_file():
                digest.update(sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:8]


def _walk(path: Path) -> Iterator[Path]:
    if not os.path.lexists(path):
        return
    yield path
    if path.is_dir() and not path.is_symlink():
        for below in sorted(path.iterdir()):
            yield from _walk(below)
