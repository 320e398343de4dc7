"""The journal is read into the database: each line once, in the order of time.

The rows of some lines and the offset behind them are committed together, so a reader that dies
leaves nothing half done. One process reads at a time; others don't wait for it. A file whose
writer is gone and which was read to its end is removed.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from repotrace.errors import NewerSchema, RepoTraceError
from repotrace.records.events import JOURNAL_SUFFIX, Kind
from repotrace.storage import attribution, totals
from repotrace.storage.attribution import OperationsOf
from repotrace.storage.database import Database
from repotrace.storage.files import held_alone
from repotrace.storage.intake import Intake
from repotrace.storage.rows import Unusable, integer, moment
from repotrace.storage.texts import to_json
from repotrace.system.liveness import lives

if TYPE_CHECKING:
    import sqlite3

BATCH = 2_000
"""Events that are committed together, at most."""

BATCH_BYTES = 16 << 20

LINE_LIMIT = 512 << 20
"""Bytes of a line above which it is counted as lost rather than read."""

NAMELESS_AGE = 60.0
"""Seconds after which a file that does not name its writer, and that nobody holds, is over."""

_CHUNK = 1 << 20
_RUN = re.compile(rb'"run" ?: ?"(r[0-9A-Za-z_-]{1,64})"')

type Redact = Callable[[str], str]


@dataclass(slots=True)
class Ingested:
    """What came of reading the journal."""

    events: int = 0
    unknown: int = 0
    """Events of kinds that this version does not know."""
    unusable: int = 0
    """Lines that are no events, or lack what their kind needs. They count as lost."""
    interrupted: int = 0
    """Steps and runs that had not ended when their process did."""
    busy: bool = False
    """Another process was at it, so nothing was read here."""
    problem: str | None = None
    """Why not all could be read; what was read before is kept."""
    runs: set[str] = field(default_factory=set)
    """Ids of the runs that have changed."""


@dataclass(slots=True)
class _File:
    """A journal file as far as it was read."""

    path: Path
    offset: int = 0
    writer: dict[str, Any] | None = None
    closed: bool = False
    changed: bool = False
    at_end: bool = False
    torn: int = 0
    """Bytes after the last complete line."""

    @property
    def name(self) -> str:
        return os.fspath(self.path)


@dataclass(frozen=True, slots=True)
class _Line:
    file: _File
    end: int
    event: dict[str, Any] | None
    """None for a line that is no event."""
    run_id: str | None
    size: int


# --- Reading ------------------------------------------------------------------------------


def ingest(
    database: Database,
    folders: Iterable[Path],
    redact: Redact | None,
    *,
    operations_of: OperationsOf | None = None,
    wait: bool = False,
) -> Ingested:
    """Read what is new in the journal files of `folders`.

    `operations_of` says what differs between states; without it that is left for later.
    Raises RepoTraceError if the database cannot be used.
    """
    done = Ingested()
    present = [folder for folder in dict.fromkeys(folders) if _has_files(folder)]
    if not present:
        return done
    with ExitStack() as locks:
        for folder in present:
            if not locks.enter_context(_reading_lock(folder, wait=wait)):
                done.busy = True
                return done
        found = _known_files(database, present)
        lines = heapq.merge(*(_lines(file) for file in found), key=_time_of)
        for batch in _batches(lines):
            _take(database, batch, redact, done)
        if operations_of is not None:
            try:
                derive_operations(database, done.runs, operations_of)
            except NewerSchema:
                raise
            except RepoTraceError as error:  # what was read counts all the same
                done.problem = str(error)
        _finish(database, found, done)
    return done


def derive_operations(
    database: Database, run_ids: Iterable[str], operations_of: OperationsOf
) -> None:
    """Add the file operations that the new states of runs show."""
    for run_id in sorted(run_ids):
        more = True
        while more:
            with database.reading() as connection:
                if connection is None or not attribution.pending(connection, run_id):
                    break
            with database.writing() as connection:
                more = attribution.derive(connection, Intake(connection), run_id, operations_of)


def _has_files(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(JOURNAL_SUFFIX) for entry in entries)
    except OSError:
        return False


def _reading_lock(folder: Path, *, wait: bool) -> AbstractContextManager[bool]:
    """Whether this process may read the folder, alone."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return held_alone(os.open(folder, flags), wait=wait)


def _known_files(database: Database, folders: Iterable[Path]) -> list[_File]:
    present = {
        os.path.realpath(path): path
        for folder in folders
        for path in sorted(folder.glob(f"*{JOURNAL_SUFFIX}"))
        if path.is_file() and not path.is_symlink()
    }
    known: dict[str, tuple[int, str | None, int]] = {}
    with database.reading() as connection:
        if connection is not None:
            rows = connection.execute("SELECT path, offset, writer, closed FROM journal_files")
            known = {path: (offset, writer, closed) for path, offset, writer, closed in rows}
    result = []
    for name in present:
        offset, writer, closed = known.get(name, (0, None, 0))
        facts = json.loads(writer) if writer else None
        result.append(_File(Path(name), offset, facts, bool(closed)))
    return result


def _time_of(line: _Line) -> int:
    when = moment(line.event.get("time")) if line.event is not None else None
    return 0 if when is None else when


def _lines(file: _File) -> Iterator[_Line]:
    """The complete lines behind what was read of a file."""
    try:
        stream = file.path.open("rb")
    except OSError:
        return
    with stream:
        stream.seek(file.offset)
        start, pending, too_long = file.offset, bytearray(), 0
        while chunk := stream.read(_CHUNK):
            searched = len(pending)
            pending += chunk
            begin = 0
            while (end := pending.find(b"\n", max(begin, searched))) >= 0:
                line = bytes(pending[begin:end])
                start += too_long + end + 1 - begin
                yield _parsed(file, start, line, too_long)
                begin, too_long = end + 1, 0
            del pending[:begin]
            if len(pending) > LINE_LIMIT:
                too_long += len(pending)
                pending.clear()
        file.torn = too_long + len(pending)
        file.at_end = True


def _parsed(file: _File, end: int, line: bytes, too_long: int) -> _Line:
    size = len(line) + too_long
    event = None
    if not too_long:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
    if isinstance(event, dict):
        return _Line(file, end, event, None, size)
    match = _RUN.search(line[:4096])
    return _Line(file, end, None, match[1].decode() if match else None, size)


def _batches(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    batch: list[_Line] = []
    size = 0
    for line in lines:
        batch.append(line)
        size += line.size
        if len(batch) >= BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _take(database: Database, batch: list[_Line], redact: Redact | None, done: Ingested) -> None:
    with database.writing() as connection:
        intake = Intake(connection, redact)
        for line in batch:
            line.file.offset, line.file.changed = line.end, True
            _take_line(intake, line, done)
        intake.flush()
        for file in {id(line.file): line.file for line in batch}.values():
            _save_file(connection, file)
        done.runs |= intake.touched


def _take_line(intake: Intake, line: _Line, done: Ingested) -> None:
    event, file = line.event, line.file
    if event is None:
        if line.size:
            done.unusable += 1
            _lose(intake, file, line.end, "unreadable line", line.run_id)
        return
    kind = event.get("kind")
    if kind == Kind.WRITER:
        facts = event.get("data")
        file.writer = facts if isinstance(facts, dict) else {}
        return
    if kind == Kind.CLOSED:
        file.closed = True
        return
    try:
        if intake.apply(event, file.name):
            done.events += 1
        else:
            done.unknown += 1
    except Unusable as problem:
        run_id = event.get("run")
        done.unusable += 1
        named = run_id if isinstance(run_id, str) and run_id else None
        _lose(intake, file, line.end, f"unusable event: {problem}", named)


def _lose(intake: Intake, file: _File, end: int, reason: str, run_id: str | None) -> None:
    intake.lose(f"{file.path.name}:{end}", 1, reason, int(time() * 1_000_000), run_id)


def _save_file(connection: sqlite3.Connection, file: _File) -> None:
    writer = None if file.writer is None else to_json(file.writer)
    connection.execute(
        "INSERT OR REPLACE INTO journal_files (path, offset, writer, closed) VALUES (?, ?, ?, ?)",
        (file.name, file.offset, writer, file.closed),
    )


# --- After reading ------------------------------------------------------------------------


def _finish(database: Database, found: list[_File], done: Ingested) -> None:
    """Mark what will never end, renew the totals, remove what is not needed any more."""
    over = []
    with ExitStack() as held:
        for file in found:
            if file.at_end and _is_over(file, held):
                over.append(file)
        if not over and not done.runs:
            return
        with database.writing() as connection:
            intake = Intake(connection)
            for file in over:
                if file.torn:
                    done.unusable += 1
                    _lose(intake, file, file.offset + file.torn, "torn last line", None)
                done.runs |= _interrupt(connection, file.name, done)
                file.offset += file.torn
                _save_file(connection, file)
            _forget_removed(connection, found)
            for run_id in done.runs:
                totals.renew(connection, run_id)
        for file in over:
            with suppress(OSError):
                file.path.unlink()


def _forget_removed(connection: sqlite3.Connection, found: Iterable[_File]) -> None:
    """Forget the files that earlier calls removed. A file is remembered until it is gone, so
    that nothing is read twice if it cannot be removed."""
    folders = {os.fspath(file.path.parent) for file in found}
    present = {file.name for file in found}
    rows = connection.execute("SELECT path FROM journal_files").fetchall()
    gone = [
        row
        for row in rows
        if row[0] not in present and os.path.dirname(row[0]) in folders  # noqa: PTH120
    ]
    connection.executemany("DELETE FROM journal_files WHERE path = ?", gone)


def _is_over(file: _File, held: ExitStack) -> bool:
    """Whether nothing more will be written. Then its lock is held, so that nothing can be."""
    try:
        descriptor = os.open(file.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    held.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locks = True
    except BlockingIOError:
        return False
    except OSError:
        locks = False
    found = os.fstat(descriptor)
    if found.st_size != file.offset + file.torn:
        return False
    if file.closed:
        return True
    if file.writer is None:
        return locks and time() - found.st_mtime > NAMELESS_AGE
    return not _lives(file.writer, locks=locks)


def _lives(writer: dict[str, Any], *, locks: bool) -> bool:
    """Whether the process may still be there. Its lock is gone if there are `locks`."""
    pid = integer(writer.get("pid"))
    if pid is None or pid <= 0:
        return not locks
    boot, namespace = (writer.get(name) for name in ("boot", "pid_namespace"))
    found = lives(
        pid,
        started=integer(writer.get("pid_started")),
        boot=boot if isinstance(boot, str) else None,
        pid_namespace=namespace if isinstance(namespace, str) else None,
    )
    return not locks if found is None else found


def _interrupt(connection: sqlite3.Connection, writer: str, done: Ingested) -> set[str]:
    """Mark the steps and runs that a process had begun; the ids of their runs."""
    changed = set()
    for table, status in (("execution_steps", "started"), ("runs", "running")):
        key = "run_id" if table == "execution_steps" else "id"
        rows = connection.execute(
            f"UPDATE {table} SET status = 'interrupted' WHERE writer = ? AND status = ?"
            f" RETURNING {key}",
            (writer, status),
        ).fetchall()
        done.interrupted += len(rows)
        changed |= {str(row[0]) for row in rows}
    return changed


def journal_folder(home: Path) -> Path:
    """Where the processes that record for `home` write."""
    return home / "journal"
