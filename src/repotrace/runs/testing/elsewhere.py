"""A project for the tests of a run that was recorded elsewhere."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from repotrace.config import find_repository
from repotrace.records.run import Run
from repotrace.runs.states import StatesOfRun, required
from repotrace.storage import Store
from repotrace.system.private_repository import has_commit

_PREFIX = "repotrace-project-"


def is_temporary(workspace: Path) -> bool:
    """Whether `project_of_received` made the folder; whoever uses it removes it."""
    return workspace.name.startswith(_PREFIX) and workspace.parent == _temporary()


def _temporary() -> Path:
    return Path(os.path.realpath(tempfile.gettempdir()))


def project_of_received(store: Store, run: Run, here: Path) -> Path:
    """The work tree at `here` if it is a clone of the run's project, which then lends its
    environment; else the last files of the run in a new temporary folder.

    Raises RepoTraceError if the run came without its files.
    """
    repository = find_repository(here)
    if repository is not None and run.base_commit and has_commit(repository, run.base_commit):
        return repository.root
    known = StatesOfRun.of(store, run).last()
    state_id = required(known, run, "at the end")
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_temporary()))
    store.snapshots.materialise(state_id, folder)
    return folder
