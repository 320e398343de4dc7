"""The runs that this process records, and the one that it was started in."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

# What threads would import while they record: a child that is forked meanwhile waits for ever for
# the lock of a module that another thread was importing.
import repotrace.sdk.responses  # noqa: F401
from repotrace.records.events import (
    JOURNAL_VARIABLE,
    RUN_VARIABLE,
    STEP_VARIABLE,
    WORKSPACE_VARIABLE,
)
from repotrace.sdk.conversations import Conversations
from repotrace.sdk.retries import Retries
from repotrace.sdk.told import ToldCalls

if TYPE_CHECKING:
    from repotrace.runs.recording.recorder import ExecutionRecorder
    from repotrace.sdk.environment import ChildEnvironment

OFF_VARIABLE = "REPOTRACE_RECORD"
"""Environment variable: 0 has traced agents run as if they were not traced."""

may_inherit = True
"""False once it is known that no other process records this one."""


class ActiveRun:
    """A run as far as this process records it."""

    __slots__ = ("__weakref__", "children", "conversations", "id", "recorder", "retries", "told")

    def __init__(self, recorder: ExecutionRecorder, children: ChildEnvironment) -> None:
        self.recorder = recorder
        self.children = children
        self.id = recorder.run_id
        self.retries = Retries()
        self.conversations = Conversations()
        self.told = ToldCalls()
        _runs.add(self)


_lock = threading.Lock()
_own: set[str] = set()
"""Ids of runs that this process began; its own environment may name them."""
_inherited: tuple[ActiveRun, str | None] | None = None
_inherited_pid = 0


def begin_run(workspace: str | None, options: dict[str, Any], facts: dict[str, Any]) -> ActiveRun:
    """A new run in `workspace` (default: here). Raises whatever keeps it from being recorded."""
    from repotrace.runs.recording.recorder import ExecutionRecorder
    from repotrace.sdk.environment import ChildEnvironment

    recorder = ExecutionRecorder(workspace or os.getcwd(), **options)  # noqa: PTH109 - may be odd
    with _lock:
        _own.add(recorder.run_id)
    recorder.begin(**facts)
    return ActiveRun(recorder, ChildEnvironment(recorder))


def inherited() -> tuple[ActiveRun, str | None] | None:
    """The run of another process that started this one, and the id of its step; None if it is on
    its own. The same object each time."""
    global _inherited, _inherited_pid, may_inherit
    if not may_inherit:
        return None
    with _lock:
        if _inherited is not None and _inherited_pid == os.getpid():
            return _inherited
        environ = os.environ
        run_id, journal = environ.get(RUN_VARIABLE), environ.get(JOURNAL_VARIABLE)
        if run_id in _own:
            return None
        may_inherit = bool(run_id and journal)
        if not run_id or not journal:
            return None
        try:
            _inherited = (_joined(run_id, journal), environ.get(STEP_VARIABLE))
        except Exception:  # the program runs on, unrecorded
            may_inherit = False
            return None
        _inherited_pid = os.getpid()
        return _inherited


def _joined(run_id: str, journal: str) -> ActiveRun:
    from pathlib import Path

    from repotrace.config import workspace_for
    from repotrace.runs.recording.recorder import ExecutionRecorder
    from repotrace.sdk.environment import ChildEnvironment

    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder was removed below us
        here = Path(os.environ.get(WORKSPACE_VARIABLE) or "/")
    # The states of one run are those of one folder.
    same = os.environ.get(WORKSPACE_VARIABLE) == os.fspath(workspace_for(here, os.environ))
    recorder = ExecutionRecorder(here, run_id, journal=journal, states=same)
    recorder.join()
    return ActiveRun(recorder, ChildEnvironment(recorder))


_runs: WeakSet[ActiveRun] = WeakSet()


def _after_fork() -> None:
    """Another thread may have held a lock that nobody in this process will let go."""
    global _lock
    _lock = threading.Lock()
    for run in list(_runs):
        run.retries.renew_lock()
        run.conversations.renew_lock()
        run.told.renew_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def is_off() -> bool:
    """Whether the user has turned recording off."""
    return os.environ.get(OFF_VARIABLE) == "0"
