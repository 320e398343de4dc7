"""Where a recording process writes, found once: a service may begin a run every millisecond."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from repotrace import config
from repotrace.journal import Journal
from repotrace.storage.keys import key

if TYPE_CHECKING:
    from repotrace.redact import Redactor
    from repotrace.storage import Store

_REMEMBERED = 50
"""Secrets that are masked still when they are no more in the environment."""

_VALID_FOR = 2.0
"""Seconds after which it is looked again where a folder belongs: `git init` may come late."""

_VARIABLES = ("REPOTRACE_HOME", "REPOTRACE_STORE", "HOME")


class Place(NamedTuple):
    """Where a program that works in a folder records."""

    home: Path
    workspace: Path


class _Known(NamedTuple):
    """A redactor, and the environment that it knows the secrets of."""

    environ: object
    secrets: dict[str, str]
    """The names of variables by their values, those that are gone as well."""
    redactor: Redactor


_lock = threading.Lock()
_places: dict[tuple[str | None, ...], tuple[float, Place]] = {}
_journals: dict[tuple[str, int, int | None], Journal] = {}
_users: Counter[int] = Counter()
"""How many recorders use a journal, by its identity."""
_redactors: dict[Path, _Known] = {}


def place_of(start: Path | str, folder: Path | str | None) -> Place:
    """The home for a program in `start`, and the workspace of `folder` (default: `start`)."""
    environ = os.environ
    name = os.path.abspath(start)  # noqa: PTH100 - keeps links as they are
    known_by = (name, None if folder is None else os.fspath(folder), *map(environ.get, _VARIABLES))
    now = time.monotonic()
    known = _places.get(known_by)
    if known is not None and now - known[0] < _VALID_FOR:
        return known[1]
    path = Path(name)
    place = Place(
        config.home_for(config.find_store(path, environ), path, environ),
        config.workspace_for(path if folder is None else Path(folder), environ),
    )
    if len(_places) > 1000:
        _places.clear()
    _places[known_by] = (now, place)
    return place


def places_of(workspace: Path | str | Store, folder: Path | str | None) -> tuple[Path, Path | None]:
    """The home for a run in a folder, or that of a store, and the folder whose files are kept."""
    if isinstance(workspace, Path | str):
        return place_of(workspace, folder)
    home = Path(os.path.abspath(workspace.home))  # noqa: PTH100 - keeps links as they are
    return home, None if folder is None else Path(os.path.realpath(folder))


def commit_of(folder: Path) -> str | None:
    """The commit that is checked out in a folder; None outside of git."""
    repository = config.find_repository(folder)
    return config.head_of(repository.git_dir) if repository else None


def shared_redactor(home: Path) -> Redactor:
    """The redactor of this process for a home; it knows the secrets of our environment as it is,
    and those that it had before: a careful program takes them out of it."""
    seen = dict(getattr(os.environ, "_data", os.environ))
    known = _redactors.get(home)
    if known is not None and known.environ == seen:
        return known.redactor
    from repotrace.redact import Redactor
    from repotrace.secret_words import is_secret_variable

    # Each run that begins or ends changes the environment, but not the secrets in it.
    present = {value: name for name, value in os.environ.items() if is_secret_variable(name, value)}
    if known is not None and present.keys() <= known.secrets.keys():
        secrets, redactor = known.secrets, known.redactor
    else:
        gone = {} if known is None else {v: n for v, n in known.secrets.items() if v not in present}
        secrets = dict(list(gone.items())[-_REMEMBERED:]) | present
        before = {v: f"env-{name}" for v, name in gone.items()}
        redactor = Redactor(key=key(home), variables=os.environ, known=before)
    _redactors[home] = _Known(seen, secrets, redactor)
    return redactor


def shared_journal(folder: Path, redactor: Redactor | None, text_limit: int) -> Journal:
    """The journal of this process in `folder`, for one user more; see `release_journal`."""
    known_by = (os.fspath(folder), text_limit, None if redactor is None else id(redactor))
    with _lock:
        journal = _journals.get(known_by)
        if journal is None:
            journal = Journal(
                folder,
                redact=None if redactor is None else redactor.redact,
                text_limit=text_limit,
            )
            if not _journals:
                atexit.register(_close_all)
            _journals[known_by] = journal
        _users[id(journal)] += 1
        return journal


def release_journal(journal: Journal) -> None:
    """One user less. A journal without any is closed if the secrets are others by now.

    The present one stays open for the next run, until the process ends.
    """
    with _lock:
        _users[id(journal)] -= 1
        present = {id(known.redactor) for known in _redactors.values()}
        over = [
            known_by
            for known_by, each in _journals.items()
            if _users[id(each)] <= 0 and known_by[2] is not None and known_by[2] not in present
        ]
        for known_by in over:
            closed = _journals.pop(known_by)
            del _users[id(closed)]
            closed.close()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _close_all() -> None:
    for journal in list(_journals.values()):
        journal.close()
