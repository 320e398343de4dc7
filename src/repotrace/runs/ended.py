"""What is left to do when a run has ended and nobody waits is done by a process of its own.

It is started where the alerts of a run are to be posted, and after sessions that hooks recorded;
see `follow_up`. This module is loaded into recorded programs, so it finds out no more than whether
to start one.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from repotrace.locations import project_folders

ADDRESS_VARIABLE = "REPOTRACE_WEBHOOK"
"""Environment variable: where the alerts of runs are posted when they end."""

LOCK = "ended.lock"
"""The file in the home that a process holds as long as it gathers runs that have ended."""

_NAMED = re.compile(rb"""notify["']?\s*=\s*["']env:(\w+)["']""", re.ASCII)
_SETTINGS = ("repotrace.toml", "pyproject.toml")
_VALID_FOR = 2.0
"""Seconds after which settings are read again."""

_known: dict[Path, tuple[float, list[str]]] = {}


def is_posting_wanted(folder: Path | None, environ: Mapping[str, str]) -> bool:
    """Whether the project of `folder` seems to want its alerts posted, and an address is there.

    The process that is started reads the settings for sure.
    """
    if environ.get(ADDRESS_VARIABLE):
        return True
    return folder is not None and any(map(environ.get, _variables(folder, environ)))


def _variables(folder: Path, environ: Mapping[str, str]) -> list[str]:
    """The variables that settings name; a service may end a run every millisecond."""
    now = time.monotonic()
    known = _known.get(folder)
    if known is not None and now - known[0] < _VALID_FOR:
        return known[1]
    found: list[str] = []
    for each in project_folders(folder, environ):
        for name in _SETTINGS:
            path = each / name
            with suppress(OSError):
                text = path.read_bytes() if path.is_file() else b""
                found += [variable.decode() for variable in _NAMED.findall(text)]
    if len(_known) > 1000:
        _known.clear()
    _known[folder] = (now, found)
    return found


def follow_up(home: Path, run_id: str, environ: Mapping[str, str]) -> None:
    """Start the process for a run of a program that lives on and may end more of them.

    None is started where one waits that has not looked yet: it will find the run.
    """
    with suppress(OSError):
        descriptor = os.open(home / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Those who only ask hold it together.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        finally:
            os.close(descriptor)
    start(home, [run_id], environ, orphaned=True)


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
