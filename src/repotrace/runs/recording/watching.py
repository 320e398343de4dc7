"""Looks at the files of a run while somebody else works on them.

Hints say when: files that have changed and are quiet again, a transcript that has grown. The look
itself is a state of the snapshot store, so a hint that is missed costs time, never truth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from repotrace.journal import Journal
from repotrace.records.events import Kind
from repotrace.runs.recording.state_taker import DEADLINE, is_worth_packing
from repotrace.system.snapshots import SnapshotStore

_QUIET = 50
"""Milliseconds without a change after which the files are looked at."""

_RESTLESS = 400
"""Milliseconds after which they are looked at although they go on changing."""

_SETTLED = 0.5
"""Seconds after which the files are looked at for the first time: it takes a moment until the
system tells of changes."""

_BLIND = 1.0
"""Seconds between looks where the system gives no hints."""

_NOT_WATCHED = frozenset(
    {".git", ".repotrace", "node_modules", ".venv", "venv", "__pycache__", ".pytest_cache"}
    | {".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"}
)


class Looker:
    """Takes looks at the files of one run, and tells the journal. Threads may share it."""

    def __init__(
        self,
        store: Path,
        workspace: Path,
        run_id: str,
        journal: Journal,
        *,
        deadline: float = DEADLINE,
    ) -> None:
        """`store` is the folder of the snapshot store."""
        self.workspace = workspace
        self.problem: str | None = None
        """Why the last look gave no state."""
        self._store = SnapshotStore(store)
        self._run_id = run_id
        self._journal = journal
        self._deadline = deadline
        self._lock = threading.Lock()
        self._last: str | None = None
        self.took = 0.0
        """Seconds that the last look took."""

    def base(self) -> str | None:
        """The state before the first step."""
        with self._lock:
            at, state_id = self._take("before the first step")
            facts = {"state_id": state_id, "state_quality": "exact"}
            if state_id is None:
                facts = {"state_quality": "missing", "state_reason": self.problem}
            self._journal.write(Kind.STATE, self._run_id, facts, now=at)
            return state_id

    def look(self, *, always: bool = True) -> str | None:
        """Look at the files; the id of their state, None if that failed.

        What is as it was is told only if `always`.
        """
        with self._lock:
            before = self._last
            at, state_id = self._take("while it was watched")
            if always or state_id != before:
                facts = {"state_id": state_id, "until": time.time_ns()}
                if state_id is None:
                    facts["reason"] = self.problem
                self._journal.write(Kind.LOOK, self._run_id, facts, now=at)
            return state_id

    def _take(self, message: str) -> tuple[int, str | None]:
        at, begun = time.time_ns(), time.monotonic()
        try:
            snapshot = self._store.take(
                self.workspace,
                ref=f"runs/{self._run_id}",
                deadline=self._deadline,
                message=message,
            )
        except Exception as error:  # of whatever kind: what is recorded goes on
            self.problem = str(error) or type(error).__name__
            return at, None
        finally:
            self.took = time.monotonic() - begun
        self.problem = snapshot.reason
        if snapshot.state_id is not None:
            self._last = snapshot.state_id
        return at, snapshot.state_id

    def close(self) -> None:
        """Pack what was taken, and copy what is still borrowed from the user's repository."""
        with self._lock, suppress(Exception):
            if is_worth_packing(self._store.path):
                self._store.finish()
            self._store.close()


class Watch:
    """A thread that calls `hint` whenever files in a folder have changed and are quiet again."""

    def __init__(self, folder: Path, hint: Callable[[], object]) -> None:
        self._folder = folder
        self._hint = hint
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="repotrace-watch", daemon=True)
        self._settled = threading.Timer(_SETTLED, hint)
        self._settled.daemon = True

    def start(self) -> None:
        """Begin to watch. Changes from now on are seen, the first ones perhaps a little later."""
        self._thread.start()
        self._ready.wait(1)
        self._settled.start()

    def stop(self) -> None:
        """End the thread, if it was started."""
        self._stop.set()
        self._settled.cancel()
        for thread in (self._settled, self._thread):
            if thread.ident is not None:
                thread.join(5)

    def _run(self) -> None:
        try:
            self._watch()
        except Exception:  # too many folders for the system to watch, for one
            self._ready.set()
            while not self._stop.wait(_BLIND):
                self._hint()

    def _watch(self) -> None:
        from watchfiles import watch

        seen = watch(
            self._folder,
            watch_filter=lambda change, path: self._counts(path),
            debounce=_RESTLESS,
            step=_QUIET,
            stop_event=self._stop,
            raise_interrupt=False,
            ignore_permission_denied=True,
        )
        self._ready.set()
        for _ in seen:
            self._hint()

    def _counts(self, path: str) -> bool:
        try:
            parts = Path(path).relative_to(self._folder).parts
        except ValueError:
            return True
        return not _NOT_WATCHED.intersection(parts)
