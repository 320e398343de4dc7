"""How much room the database takes, and how it gives it back."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from repotrace.storage.database import NAME, Database

_COMPACTED_FROM = 1 << 20
"""Bytes that must be free in the file before it is written anew."""


def size_of(home: Path) -> int:
    """Bytes of the database on disk."""
    total = 0
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            total += (home / f"{NAME}{suffix}").stat().st_blocks * 512
    return total


def used_of(home: Path) -> int:
    """Bytes of the database that hold something: what is left of it after `compact`."""
    with Database(home / NAME).reading() as connection:
        if connection is None:
            return 0
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size


def texts_of(home: Path, run_id: str) -> int:
    """Bytes of the texts of a run, which are most of what it takes."""
    with Database(home / NAME).reading() as connection:
        if connection is None:
            return 0
        row = connection.execute(
            "SELECT coalesce(sum(length(data)), 0) FROM blocks WHERE run_id = ?", (run_id,)
        ).fetchone()
        return int(row[0])


def compact(home: Path) -> bool:
    """Give what is free in the file back to the file system; False if that is not worth it.

    Raises RepoTraceError if another process uses the database.
    """
    database = Database(home / NAME)
    with database.reading() as connection:
        if connection is None:
            return False
        free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("freelist_count", "page_size")
        )
    if free * size < _COMPACTED_FROM:
        return False
    database.compact()
    return True
