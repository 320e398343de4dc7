"""The files of a work tree as they are before a command starts, kept for its report."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from repotrace.config import find_repository, workspace_for
from repotrace.errors import RepoTraceError
from repotrace.records.command import FileState, LeftOut
from repotrace.redact import Redactor
from repotrace.storage import Store

if TYPE_CHECKING:
    from repotrace.system.snapshots import NotCaptured, SnapshotStore

DEADLINE = 2.0
"""Seconds that keeping the files may take."""
LISTED = 50
"""So many of the files that were not captured are named in a report."""

_NEEDED = frozenset(
    {".venv", "node_modules", "bower_components", ".tox", ".nox", ".eggs", ".direnv", ".terraform"}
)
"""Regenerable folders that commands need; all others are caches, and nobody misses those."""
_ODD = "ID-"
_PENDING = "CAPTURING-"
_AT = "AT-"
"""Reports have no upper-case letters in their ids."""
_FOR = "for the reports in "
_A_DAY = 86400.0


def ref_of_report(report_id: str, root: Path | None = None) -> str:
    """The name under which the snapshot store keeps the state of a report.

    Work trees share their home: a report whose name is taken by one of another store has its
    `root` in it.
    """
    fits = ".." not in report_id and ".lock" not in report_id and not report_id.endswith(".")
    name = report_id if fits else _ODD + os.fsencode(report_id).hex()
    return f"reports/{name}" + (f".{_AT}{_digest(root)}" if root is not None else "")


def forget_files(store: Store, report_id: str) -> None:
    """Lets go of the files of a report, as where it is deleted or recorded anew."""
    snapshots, root = store.snapshots, _absolute(store.reports.root)
    snapshots.delete(ref_of_report(report_id, root))
    if _owner(snapshots, ref_of_report(report_id)) in (None, root):
        snapshots.delete(ref_of_report(report_id))


def abandoned(store: Store, *, now: float) -> list[str]:
    """The names of states whose report is gone, in whatever store it was, or never came.

    A capture that goes on has a day, of the moment `now` in seconds since 1970.
    """
    snapshots = store.snapshots
    found = []
    for ref in snapshots.refs():
        kind, _, name = ref.partition("/")
        if kind != "reports":
            continue
        if name.startswith(_PENDING):
            taken = [state.taken_at for state in snapshots.history(ref)]
            if not taken or now - max(taken) > _A_DAY:
                found.append(ref)
            continue
        root = _owner(snapshots, ref) or _absolute(store.reports.root)
        if not (root / f"{_report_id(name)}.json").exists():
            found.append(ref)
    return found


def _report_id(name: str) -> str:
    plain = name.partition(f".{_AT}")[0]
    if plain.startswith(_ODD):
        with suppress(ValueError):
            return os.fsdecode(bytes.fromhex(plain.removeprefix(_ODD)))
    return plain


def _owner(snapshots: SnapshotStore, ref: str) -> Path | None:
    """The store whose report the state is kept for; None if nobody said."""
    if ref not in snapshots.refs():
        return None
    import ast

    for state in reversed(snapshots.history(ref)):
        if state.message.startswith(_FOR):
            with suppress(ValueError, SyntaxError):
                return Path(str(ast.literal_eval(state.message.removeprefix(_FOR))))
    return None


def _absolute(root: Path) -> Path:
    return Path(os.path.realpath(root))


def _digest(root: Path) -> str:
    return hashlib.sha1(os.fsencode(root), usedforsecurity=False).hexdigest()[:12]


class KeptFiles:
    """The files of one capture, under a name of their own until its report has an id.

    Leaving the context forgets them, unless a report has claimed them.
    """

    def __init__(
        self,
        facts: FileState | None = None,
        snapshots: SnapshotStore | None = None,
        ref: str | None = None,
        root: Path | None = None,
        problem: str | None = None,
    ) -> None:
        self.facts = facts
        """What the report says of them; None if nobody wanted them."""
        self.problem = problem
        """Why they are missing, where one would expect them to be there."""
        self._snapshots = snapshots
        self._ref = ref
        self._root = root

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def claim(self, report_id: str) -> None:
        """Keeps them for as long as the report. Raises RepoTraceError if that fails."""
        if self._snapshots is None or self._ref is None:
            return
        try:
            found = self._snapshots.rename(self._ref, self._free(report_id))
        except OSError as error:
            raise RepoTraceError(f"The files are not kept: {error.strerror}.") from error
        if not found:
            raise RepoTraceError("The files are not kept: their state was cleaned up meanwhile.")
        self._ref = None

    def _free(self, report_id: str) -> str:
        """A name that no report of another store has."""
        plain = ref_of_report(report_id)
        owner = _owner(self._snapshots, plain) if self._snapshots is not None else None
        if owner in (None, self._root) or not (owner / f"{report_id}.json").exists():
            return plain
        return ref_of_report(report_id, self._root)

    def discard(self) -> None:
        """Forgets them if no report has claimed them."""
        if self._snapshots is not None and self._ref is not None:
            with suppress(OSError):
                self._snapshots.delete(self._ref)
            self._ref = None

    def settle(self) -> None:
        """Makes the store independent of the user's repository; slow after its first state.

        For the end, when nobody waits any more. Never raises for what goes wrong.
        """
        if self._snapshots is not None and self.facts and self.facts.quality == "exact":
            with suppress(RepoTraceError, OSError):
                self._snapshots.settle()


def keep_files(
    store: Store, cwd: Path | str, environ: Mapping[str, str], redactor: Redactor
) -> KeptFiles:
    """The files of the work tree around `cwd` as they are now.

    Whatever goes wrong is told in its facts, which are `missed` then; nothing is raised.
    """
    try:
        workspace = workspace_for(Path(cwd), environ)
        in_repository = find_repository(Path(cwd)) is not None
        shown = redactor.redact(str(workspace))
        too_open = None if in_repository else _too_open(workspace)
        if too_open is not None:
            return KeptFiles(FileState(reason=redactor.redact(too_open), workspace=shown))
        snapshots = store.snapshots
        root = _absolute(store.reports.root)
        said = f"{_FOR}{str(root)!a}"
        ref = f"reports/{_PENDING}{os.getpid()}-{os.urandom(6).hex()}"
        try:
            snapshot = snapshots.take(workspace, ref=ref, deadline=DEADLINE, message=said)
        except RepoTraceError as error:  # too wide: nobody expects it
            reason = redactor.redact(error.message).rstrip(".")
            return KeptFiles(FileState(reason=reason, workspace=shown))
    except Exception as error:  # a command must never fail for what we keep of it
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        reason = redactor.redact(said).rstrip(".") or type(error).__name__
        return KeptFiles(FileState(reason=reason), problem=reason)
    if snapshot.state_id is None:
        reason = redactor.redact(snapshot.reason or "").rstrip(".")
        facts = FileState(reason=reason, workspace=shown)
        return KeptFiles(facts, problem=reason if in_repository else None)
    count, listed = _left_out(snapshot.not_captured, redactor)
    facts = FileState(
        state_id=snapshot.state_id,
        quality="exact",
        workspace=shown,
        not_captured=listed,
        not_captured_count=count,
    )
    return KeptFiles(facts, snapshots, ref, root)


def held_files(store: Store, facts: FileState) -> KeptFiles:
    """The files of a state that the store has already, until a report claims them."""
    if facts.state_id is None:
        return KeptFiles(facts)
    root = _absolute(store.reports.root)
    ref = f"reports/{_PENDING}{os.getpid()}-{os.urandom(6).hex()}"
    store.snapshots.hold(ref, facts.state_id, f"{_FOR}{str(root)!a}")
    return KeptFiles(facts, store.snapshots, ref, root)


def _too_open(workspace: Path) -> str | None:
    """Why a folder that is no repository is no project either."""
    with suppress(OSError):
        if workspace.stat().st_mode & stat.S_IWOTH:
            return f"everybody may write in {workspace}, so it is taken for no project"
    return None


def _left_out(
    items: tuple[NotCaptured, ...], redactor: Redactor
) -> tuple[int, tuple[LeftOut, ...]]:
    """How many items are worth telling, and the first of them."""
    found = [
        item
        for item in items
        if item.reason != "regenerable" or item.path.rpartition("/")[2] in _NEEDED
    ]
    listed = (
        LeftOut(path=redactor.redact(item.path) + "/" * item.is_folder, reason=item.reason)
        for item in found[:LISTED]
    )
    return len(found), tuple(listed)
