"""The processes that a command started, as far as the system lets us see them.

Each command leads a process group of its own. On Linux we also become the process to which
its orphans are given ("child subreaper"), so that daemons which left the group are seen. Other
systems, and a Linux without `/proc/…/children`, know the group only.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


class Member(NamedTuple):
    """A process that a command started and that outlived it."""

    pid: int
    group: int
    session: int
    detached: bool
    """It moved to a session of its own, as daemons do: it means to stay."""


class Family:
    """The processes of one command. Made by `watched`."""

    def __init__(self) -> None:
        self.leader = 0
        """Pid of the command itself; 0 before it was started."""
        self.ended = False
        """Whether the command itself was waited for, so that its pid means nothing any more."""
        self.pipes: frozenset[str] = frozenset()
        """The pipes that the command writes to, named as the links in `/proc/PID/fd` are."""
        self._alone = threading.active_count() == 1
        self._earlier: frozenset[int] = frozenset()

    def left(self) -> list[Member]:
        """The processes that still run, other than the command itself.

        Empty where the system does not show them. Orphans that ended are waited for here.
        """
        if not _sees_children():
            return []
        with _LOCK:
            others = {family.leader for family in _ACTIVE}
        found: dict[int, Member] = {}
        for pid in _children(os.getpid(), os.getpid()):
            if pid not in self._earlier and pid not in others:
                self._adopt(pid, found)
        if not self.ended:
            for pid in _descendants(self.leader):
                self._include(pid, found)
        return list(found.values())

    def lives(self) -> bool:
        """Whether processes are left that have to end with the command."""
        if _sees_children():
            return any(not member.detached for member in self.left())
        try:
            os.killpg(self.leader, 0)
        except OSError:
            return False
        return True

    def signal(self, number: int, *, detached: bool = False) -> None:
        """Send a signal to the command and all that is left of it; daemons only if `detached`."""
        members = self.left()
        in_group = any(member.group == self.leader for member in members)
        # A group's number is free for others once its last process is gone.
        if self.leader and (not self.ended or in_group or not _sees_children()):
            with suppress(OSError):
                os.killpg(self.leader, number)
        for member in members:
            if member.group != self.leader and (detached or not member.detached):
                with suppress(OSError):
                    os.kill(member.pid, number)

    def _adopt(self, pid: int, found: dict[int, Member]) -> None:
        """Include a child of ours and its descendants if it is an orphan of this command."""
        status = _status(pid)
        if status is None or not self._is_ours(pid, status):
            return
        if status.dead:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            return
        self._include(pid, found)
        for descendant in _descendants(pid):
            self._include(descendant, found)

    def _is_ours(self, pid: int, status: _Status) -> bool:
        """Orphans look like any child of ours. What the caller itself started must be spared.

        Sure are the group, the session and the pipes. The rest counts only if nobody else can
        have started it: with no other thread about, and so no other command.
        """
        if self.leader in (status.group, status.session):
            return True
        if status.group == os.getpgrp():
            return False
        return self._alone or bool(self.pipes & _open_pipes(pid))

    def _include(self, pid: int, found: dict[int, Member]) -> None:
        status = _status(pid)
        if status is not None and not status.dead:
            detached = status.session not in (self.leader, os.getsid(0))
            found[pid] = Member(pid, status.group, status.session, detached)


_LOCK = threading.Lock()
_ACTIVE: set[Family] = set()
_EARLIER_SETTING = [0]


@contextmanager
def watched() -> Iterator[Family]:
    """A new family, whose orphans are given to us for as long as the context lasts."""
    family = Family()
    with _LOCK:
        if not _ACTIVE:
            _EARLIER_SETTING[0] = _become_reaper()
        for other in _ACTIVE:
            other._alone = False
        _ACTIVE.add(family)
    if _sees_children():
        family._earlier = frozenset(_children(os.getpid(), os.getpid()))
    try:
        yield family
    finally:
        with _LOCK:
            _ACTIVE.discard(family)
            if not _ACTIVE:
                _set_reaper(_EARLIER_SETTING[0])


# --- What the system shows ----------------------------------------------------------------


class _Status(NamedTuple):
    dead: bool
    group: int
    session: int


def _status(pid: int) -> _Status | None:
    try:
        # The name before the last parenthesis may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return _Status(fields[0] in (b"Z", b"X"), int(fields[2]), int(fields[3]))
    except (OSError, IndexError, ValueError):
        return None


@cache
def _sees_children() -> bool:
    return Path(f"/proc/self/task/{os.getpid()}/children").exists() and _prctl() is not None


def _children(pid: int, thread: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _descendants(pid: int) -> Iterator[int]:
    try:
        threads = [int(entry.name) for entry in os.scandir(f"/proc/{pid}/task")]
    except OSError:
        return
    for thread in threads:
        for child in _children(pid, thread):
            yield child
            yield from _descendants(child)


def _open_pipes(pid: int) -> set[str]:
    names = set()
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                names.add(str(Path(entry.path).readlink()))
    return names


@cache
def _prctl() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    # Imported here since it costs more than all the rest of starting a command.
    import ctypes

    try:
        function = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None
    number = ctypes.c_ulong

    def prctl(option: int, value: int = 0) -> int:
        """The setting if it was asked for, else 0."""
        answer = ctypes.c_int(0)
        if option == _PR_GET_CHILD_SUBREAPER:
            function(option, ctypes.byref(answer), number(0), number(0), number(0))
        else:
            function(option, number(value), number(0), number(0), number(0))
        return answer.value

    return prctl


def _become_reaper() -> int:
    """Returns what was set before."""
    prctl = _prctl()
    if prctl is None:
        return 0
    before = prctl(_PR_GET_CHILD_SUBREAPER)
    if not before:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
    return before


def _set_reaper(value: int) -> None:
    prctl = _prctl()
    if prctl is not None and not value:
        prctl(_PR_SET_CHILD_SUBREAPER, 0)
