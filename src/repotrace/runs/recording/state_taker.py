"""Takes the state of the files whenever a step needs one, and tells the journal of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from repotrace.journal import Journal, new_id
from repotrace.records.events import STEP_VARIABLE, Kind

if TYPE_CHECKING:
    from repotrace.system.snapshots import SnapshotStore

DEADLINE = 10.0
"""Seconds that a state may take; a later one is `missing`."""

_LOOSE_IN_ONE_FOLDER = 4
"""Objects in one of git's 256 folders from which on it is worth while to pack them."""


class StateTaker:
    """The states of one run, as one process takes them. Nothing here raises.

    What a state shows that no step of this process was there to make becomes a step `external`.
    """

    def __init__(
        self, path: Path, workspace: Path, run_id: str, journal: Journal, *, deadline: float
    ) -> None:
        self.workspace = workspace
        self._path = path
        self._run_id = run_id
        self._journal = journal
        self._deadline = deadline
        self._lock = threading.RLock()
        self._store: SnapshotStore | None = None
        self._pid = 0
        self._working: set[str] = set()
        """Steps that may be changing files just now."""
        self._any = False
        self._problem: str | None = None
        _takers.add(self)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()

    def base(self) -> str | None:
        """The state before the first step."""
        with self._lock:
            return self._tell(self._take("before the first step"), {})

    def begin(self, step_id: str, started: Callable[[], None]) -> str | None:
        """The state before a step, which `started` tells the journal of.

        An `external` step for what has changed since the last state comes before it.
        """
        with self._lock:
            facts = self._take(f"before {step_id}")
            if facts.pop("changed") and self._any and not self._working:
                self._tell_of_outsiders(facts)
            started()
            self._working.add(step_id)
            return self._tell(facts, {"step_id": step_id, "when": "start"})

    def end(self, step_id: str) -> str | None:
        """The state after a step."""
        with self._lock:
            self._working.discard(step_id)
            return self._tell(self._take(f"after {step_id}"), {"step_id": step_id})

    def last(self) -> None:
        """Look once more at the end of a run: what changed since the last step is nobody's."""
        with self._lock:
            facts = self._take("at the end")
            if facts.pop("changed") and self._any and not self._working:
                self._tell_of_outsiders(facts)

    def keep(self, *contents: bytes) -> list[str] | None:
        """Object ids of contents that a program told of; None if they cannot be kept."""
        try:
            with self._lock:
                return self._open().keep(f"runs/{self._run_id}", *contents)
        except Exception as error:
            self._lost(error)
            return None

    def close(self) -> None:
        """Pack what was taken, and copy what is still borrowed from the user's repository."""
        with self._lock:
            store, self._store = self._store, None
            if store is None or self._pid != os.getpid():
                return
            try:
                if is_worth_packing(self._path):
                    store.finish()
                store.close()
            except Exception as error:
                self._lost(error)

    # --- One state --------------------------------------------------------------------------

    def _take(self, message: str) -> dict[str, Any]:
        """The facts of a `state` event, and whether it differs from the last one of the run."""
        try:
            snapshot = self._open().take(
                self.workspace,
                ref=f"runs/{self._run_id}",
                deadline=self._deadline,
                message=message,
            )
        except Exception as error:  # of whatever kind: the program that is recorded goes on
            self._lost(error)
            return {"state_quality": "missing", "state_reason": self._problem, "changed": False}
        if snapshot.state_id is None:
            return {
                "state_quality": "missing",
                "state_reason": snapshot.reason,
                "duration": snapshot.duration,
                "changed": False,
            }
        return {
            "state_id": snapshot.state_id,
            "state_quality": "exact",
            "duration": snapshot.duration,
            "changed": snapshot.changed,
        }

    def _tell(self, facts: dict[str, Any], about: dict[str, Any]) -> str | None:
        facts.pop("changed", None)
        self._journal.write(Kind.STATE, self._run_id, about | facts)
        state_id: str | None = facts.get("state_id")
        self._any = self._any or state_id is not None
        return state_id

    def _tell_of_outsiders(self, facts: dict[str, Any]) -> None:
        if STEP_VARIABLE in os.environ:
            return  # a step of the process that started this one is at work
        name, run = new_id(), self._run_id
        step = {
            "id": name,
            "step_type": "external",
            "description": "Files changed between two steps",
        }
        self._journal.write(Kind.STEP_STARTED, run, step)
        self._journal.write(Kind.STATE, run, {"step_id": name} | facts)
        self._journal.write(Kind.STEP_ENDED, run, {"id": name})

    def _open(self) -> SnapshotStore:
        if self._store is None or self._pid != os.getpid():
            # What a parent process had opened cannot be used after a fork.
            from repotrace.system.snapshots import SnapshotStore

            self._store, self._pid = SnapshotStore(self._path), os.getpid()
        return self._store

    def _lost(self, error: Exception) -> None:
        self._problem = str(error) or type(error).__name__


_takers: WeakSet[StateTaker] = WeakSet()


def _after_fork() -> None:
    for taker in list(_takers):
        taker._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def is_worth_packing(store: Path) -> bool:
    """Whether a store has many loose objects, or borrows those of the user."""
    if (store / "objects" / "info" / "alternates").exists():
        return True
    try:
        return len(list((store / "objects" / "17").iterdir())) >= _LOOSE_IN_ONE_FOLDER
    except OSError:
        return False
