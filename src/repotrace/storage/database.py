"""The home's SQLite database: opened, migrated, and its failures made readable."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from repotrace._version import __version__
from repotrace.errors import NewerSchema, RepoTraceError
from repotrace.storage import files
from repotrace.storage.runs_schema import ALERTS, GROWTHS, JOINS, RUNS, STATES

if TYPE_CHECKING:
    import sqlite3

NAME = "runs.db"
"""Of the file in the home."""

BUSY_TIMEOUT = 10.0
"""Seconds to wait for another process that writes."""

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE report_occurrences (
        store TEXT NOT NULL,  -- folder of the reports, relative to the home
        report_id TEXT NOT NULL,
        at TEXT NOT NULL,  -- UTC, always with microseconds, so that text sorts as time
        run_digest TEXT
    );
    CREATE INDEX report_occurrences_by_report ON report_occurrences (store, report_id, at);

    CREATE TABLE report_verdicts (
        id INTEGER PRIMARY KEY,
        store TEXT NOT NULL,
        report_id TEXT NOT NULL,
        verdict TEXT NOT NULL,
        detail TEXT NOT NULL,
        at TEXT NOT NULL,
        duration REAL,  -- seconds
        commit_id TEXT
    );
    CREATE INDEX report_verdicts_by_report ON report_verdicts (store, report_id, at);
    """,
    RUNS,
    STATES,
    """
    -- What check and blame executed: a test command on the files of a state. It answers the next
    -- one who asks the same.
    CREATE TABLE test_executions (
        id TEXT PRIMARY KEY,
        run_id TEXT NOT NULL,  -- the run that was looked into; empty for none
        key TEXT NOT NULL,  -- digest of the files, the command and the environment
        state_id TEXT NOT NULL,  -- the state of the run that it is about
        command TEXT NOT NULL,  -- for people
        purpose TEXT NOT NULL,
        alone INTEGER NOT NULL,  -- 1: nothing else ran at the same time
        started_at INTEGER NOT NULL,  -- microseconds since 1970, UTC
        duration REAL,  -- seconds
        record BLOB NOT NULL  -- the command run and its test outcomes: JSON, deflated
    );
    CREATE INDEX test_executions_by_key ON test_executions (key, started_at);
    CREATE INDEX test_executions_by_run ON test_executions (run_id, started_at);

    -- What blame said of a test, newest last.
    CREATE TABLE test_verdicts (
        id TEXT PRIMARY KEY,
        run_id TEXT NOT NULL,
        test TEXT NOT NULL,
        verdict TEXT NOT NULL,
        at INTEGER NOT NULL,  -- microseconds since 1970, UTC
        record BLOB NOT NULL  -- the verdict with its evidence: JSON, deflated
    );
    CREATE INDEX test_verdicts_by_run ON test_verdicts (run_id, at);
    """,
    JOINS,
    GROWTHS,
    ALERTS,
    """
    -- Words of scripts without spaces are indexed otherwise now; the next search does it.
    INSERT INTO text_index (text_index) VALUES ('delete-all');
    UPDATE documents SET indexed = 0;
    """,
)
"""Migration N makes schema N out of schema N - 1. A released one is never changed."""

_VERSION_TABLE = """
CREATE TABLE schema_version (
    version INTEGER PRIMARY KEY,
    applied_at TEXT NOT NULL,
    applied_by TEXT NOT NULL
);
"""


class Database:
    """One SQLite file. Constructing opens nothing; each use opens it and closes it again,
    so that an instance may be shared by threads and survives a fork."""

    def __init__(self, path: Path, migrations: Sequence[str] = MIGRATIONS) -> None:
        self.path = path
        self._migrations = tuple(migrations)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is committed at the end, or rolled back by an exception.

        Makes the file and migrates it where needed. Raises RepoTraceError if the database
        cannot be used, NewerSchema if a newer RepoTrace wrote it.
        """
        with self._readable_errors():
            if not self.path.exists():
                self._make()
            with closing(self._connect()) as connection:
                self._migrate(connection)
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """One consistent view of the database; None if there is none yet (none is made).

        Works on a read-only file system as well. Raises as `writing` does.
        """
        if not os.path.exists(self.path):  # noqa: PTH110 - False, too, where it may not be asked
            yield None
            return
        with self._readable_errors(), closing(self._open_to_read()) as connection:
            connection.execute("BEGIN")
            yield connection

    def opened(self) -> sqlite3.Connection | None:
        """A connection for single queries, which the caller keeps; None if there is no database.

        It holds no view: each query sees what is committed. Raises as `writing` does.
        """
        if not os.path.exists(self.path):  # noqa: PTH110 - False, too, where it may not be asked
            return None
        with self._readable_errors():
            return self._open_to_read()

    def compact(self) -> None:
        """Write the file anew without what was deleted. Raises as `writing` does."""
        with self._readable_errors(), closing(self._connect()) as connection:
            self._refuse_newer(self._version(connection))
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # --- Opening --------------------------------------------------------------------------

    def _connect(self, path: Path | None = None) -> sqlite3.Connection:
        import sqlite3

        connection = sqlite3.connect(
            path or self.path, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
        )
        # Durable at a checkpoint; a power cut may cost the last moments, never the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _open_to_read(self) -> sqlite3.Connection:
        import sqlite3
        from urllib.parse import quote

        if os.access(self.path, os.W_OK) and os.access(self.path.parent, os.W_OK):
            connection = self._connect()
            try:
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
            return connection
        # A WAL database cannot be opened where its companion files cannot be made, unless
        # it is declared to be at rest.
        uri = f"file:{quote(os.fsencode(self.path.absolute()))}?mode=ro&immutable=1"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        try:
            self._refuse_newer(self._version(connection))
        except BaseException:
            connection.close()
            raise
        return connection

    def _make(self) -> None:
        """A new database appears under its name only when it is complete, so that
        processes which start at once never see, or migrate, half of one."""
        files.make_private(self.path.parent)
        temporary = files.temporary_name(self.path)
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            with closing(self._connect(temporary)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                self._migrate(connection)
                # Closing would do it, but not say that the disk is full: the file would be half.
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with files.locked(self.path.parent), suppress(FileExistsError):
                files.publish(temporary, self.path)
        finally:
            for suffix in ("", "-wal", "-shm", "-journal"):
                with suppress(OSError):
                    Path(f"{temporary}{suffix}").unlink(missing_ok=True)

    # --- Migrating ------------------------------------------------------------------------

    def _version(self, connection: sqlite3.Connection) -> int:
        row = connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'"
        ).fetchone()
        if row is None:
            return 0
        version = connection.execute("SELECT max(version) FROM schema_version").fetchone()[0]
        return int(version or 0)

    def _refuse_newer(self, version: int) -> None:
        if version > len(self._migrations):
            raise NewerSchema(
                f"{self.path} was written by a newer RepoTrace: its schema is {version}, "
                f"this version reads up to {len(self._migrations)}",
                hint="Upgrade RepoTrace, or choose another folder with --home.",
            )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        version = self._version(connection)
        self._refuse_newer(version)
        if version == len(self._migrations):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(connection)  # another process may have been faster
            self._refuse_newer(version)
            if version:
                self._back_up(version)
            else:
                _run_script(connection, _VERSION_TABLE)
            for number in range(version + 1, len(self._migrations) + 1):
                _run_script(connection, self._migrations[number - 1])
                connection.execute(
                    "INSERT INTO schema_version VALUES (?, strftime('%Y-%m-%dT%H:%M:%fZ'), ?)",
                    (number, __version__),
                )
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _back_up(self, version: int) -> None:
        """Copy the database, as it was before the migration, beside it."""
        backup = self.path.with_name(f"{self.path.name}.schema-{version}.bak")
        temporary = files.temporary_name(backup)
        try:
            os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            # A connection of its own: it sees what is committed, not our open transaction.
            with closing(self._connect()) as source, closing(self._connect(temporary)) as target:
                source.backup(target)
            temporary.rename(backup)
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def _readable_errors(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
                problem, hint = "is damaged", f"Move it away to start anew: {self.path}"
            elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                problem, hint = "is in use by another process", "Try again in a moment."
            else:
                problem, hint = "cannot be used", "Choose another folder with --home."
            raise RepoTraceError(f"The database {self.path} {problem}: {error}", hint) from error
        except OSError as error:
            if isinstance(error, RepoTraceError):
                raise
            raise RepoTraceError(
                f"The database {self.path} cannot be used: {error.strerror or error}",
                hint="Choose another folder with --home, or REPOTRACE_HOME.",
            ) from error


def _run_script(connection: sqlite3.Connection, script: str) -> None:
    """Run each statement of `script` inside the open transaction (`executescript` ends it)."""
    import sqlite3

    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""
    if statement.strip():
        connection.execute(statement)
