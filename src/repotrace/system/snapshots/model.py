"""The facts that a snapshot store hands out."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Literal

type Quality = Literal["exact", "missed"]
type Op = Literal["create", "edit", "delete", "rename"]
type Reason = Literal[
    "ignored", "secret", "regenerable", "too-large", "unreadable", "special", "reserved-name"
]


@dataclass(frozen=True, slots=True)
class NotCaptured:
    """A file or folder of the workspace that no state contains."""

    path: str
    reason: Reason
    size: int | None
    """Bytes; None for a folder too large to measure in passing."""
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class NestedRepository:
    """Another repository inside the workspace; its files are part of the state."""

    path: str
    head: str | None
    """The commit it stood on, None before its first one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a workspace."""

    quality: Quality
    state_id: str | None
    """Equal for equal content (files, links, modes, empty folders); None if missed."""
    tree: str | None
    """Object id of the git tree of all files; None if missed."""
    changed: bool
    """Whether the state differs from the last one of the same ref."""
    duration: float
    not_captured: tuple[NotCaptured, ...] = ()
    nested: tuple[NestedRepository, ...] = ()
    unsettled: tuple[str, ...] = ()
    """Paths that were being written while they were read."""
    reason: str | None = None
    """Why it was missed, for people."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What happened to one path between two states."""

    op: Op
    path: str
    old_id: str | None
    new_id: str | None
    old_mode: int | None
    """`st_mode` of before (type and permissions), None if it did not exist."""
    new_mode: int | None
    is_binary: bool
    lines_added: int
    lines_removed: int
    renamed_from: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One path of a state."""

    path: str
    mode: int
    """`st_mode`: type and permissions. Folders are listed only where they are empty."""
    object_id: str | None


@dataclass(frozen=True, slots=True)
class StateRecord:
    """One commit of a ref: a state with the moment it was taken at."""

    commit: str
    state_id: str
    taken_at: float
    message: str


class DeadlinePassed(Exception):
    """The time allowed for a snapshot is over."""


@dataclass(slots=True)
class Deadline:
    """A moment of the monotonic clock, or never."""

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        return cls(None if seconds is None else time.monotonic() + seconds)

    def remaining(self) -> float | None:
        """Seconds left, None for no limit. Raises DeadlinePassed when there are none."""
        if self.at is None:
            return None
        left = self.at - time.monotonic()
        if left <= 0:
            raise DeadlinePassed
        return left


def text(path: bytes) -> str:
    """The path as Python's file functions take it, whatever its bytes."""
    return os.fsdecode(path)
