"""What is left to do when a run has ended and nobody waits is done by a process of its own.

It is started where the alerts of a run are to be posted, and after sessions that hooks recorded;
see `follow_up`. This module is loaded into recorded programs, so it finds out no more than whether
to start one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from repotrace.locations import project_folders

ADDRESS_VARIABLE = "REPOTRACE_WEBHOOK"
"""Environment variable: where the alerts of runs are posted when they end."""

_OWN, _SHARED = "repotrace.toml", "pyproject.toml"


def is_posting_wanted(folder: Path | None, environ: Mapping[str, str]) -> bool:
    """Whether the project of `folder` seems to want its alerts posted; settings say it for sure."""
    if environ.get(ADDRESS_VARIABLE):
        return True
    if folder is None:
        return False
    for each in project_folders(folder, environ):
        for name in (_OWN, _SHARED):
            path = each / name
            with suppress(OSError):
                text = path.read_bytes() if path.is_file() else b""
                if b"notify" in text and (name == _OWN or b"repotrace" in text):
                    return True
    return False


def start(
    home: Path,
    run_ids: Sequence[str],
    environ: Mapping[str, str],
    *,
    speaker: str = "",
    orphaned: bool = False,
) -> None:
    """Start the process. `speaker` is the JSON of the process that is waited for first, if any.

    `orphaned` is for programs that live on: it becomes no child of theirs. Nothing is raised where
    it cannot be started; whoever reads the run does what is left.
    """
    from repotrace.system.ourselves import start_detached, start_orphaned

    arguments = ["hook", "--ended", os.fspath(home), speaker, *run_ids]
    with suppress(OSError, ValueError):
        (start_orphaned if orphaned else start_detached)(arguments, environ)
