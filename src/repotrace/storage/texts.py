"""Texts in the database: short ones in their rows, long ones once in `texts`, compressed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3

INLINE = 512
"""Bytes up to which a text stays in its row."""

type Cell = str | bytes | int | None
"""What a column marked *text* or *JSON* holds."""

_REMEMBERED = 50_000


def compress(data: bytes) -> bytes:
    """`data` as `texts.data` holds it."""
    return bytes(_zstd().compress(data, 6))


def decompress(data: bytes) -> bytes:
    """What `compress` was given."""
    return bytes(_zstd().decompress(data))


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def encode(text: str) -> bytes:
    """Any `str` as bytes, lone surrogates too; `decode` gives it back."""
    return text.encode("utf-8", "surrogatepass")


def decode(data: bytes) -> str:
    """The text of `encode`; other bytes that are no UTF-8 come as surrogate escapes."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "surrogateescape")


def cell(text: str) -> str | bytes:
    """`text` as SQLite takes it, in its row whatever its length."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return encode(text)
    return text


def to_json(value: object) -> str:
    """`value` in the one form that columns marked *JSON* hold."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class TextPool:
    """The texts of runs, written within one transaction. Each text of a run is kept once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._known: dict[tuple[str, bytes], int] = {}
        self.added: list[int] = []
        """Ids of the texts that were not there before, in order."""

    def put(self, run_id: str, text: str | bytes | None) -> Cell:
        """What to store for a text: itself, or the id of its row."""
        if text is None:
            return None
        if isinstance(text, str):
            if len(text) <= INLINE // 4 or len(data := encode(text)) <= INLINE:
                return cell(text)
            return self.pool(run_id, data)
        return text if len(text) <= INLINE else self.pool(run_id, text)

    def pool(self, run_id: str, data: bytes) -> int:
        """The id of the row in `texts` that holds `data`, whatever its length."""
        digest = blake2b(data, digest_size=16).digest()
        known = self._known.get((run_id, digest))
        if known is not None:
            return known
        row = self.connection.execute(
            "SELECT id FROM texts WHERE run_id = ? AND digest = ?", (run_id, digest)
        ).fetchone()
        if row is None:
            row = self.connection.execute(
                "INSERT INTO texts (run_id, digest, length, data) VALUES (?, ?, ?, ?) RETURNING id",
                (run_id, digest, len(data), compress(data)),
            ).fetchone()
            self.added.append(int(row[0]))
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[run_id, digest] = int(row[0])
        return int(row[0])


def read(connection: sqlite3.Connection, value: Cell) -> bytes | None:
    """The bytes of a *text* cell. A text whose row is gone is None."""
    if isinstance(value, int):
        row = connection.execute("SELECT data FROM texts WHERE id = ?", (value,)).fetchone()
        return None if row is None else decompress(row[0])
    return encode(value) if isinstance(value, str) else value


def read_text(connection: sqlite3.Connection, value: Cell) -> str | None:
    """The text of a *text* cell."""
    if isinstance(value, str):
        return value
    data = read(connection, value)
    return None if data is None else decode(data)


def read_json(connection: sqlite3.Connection, value: Cell, default: Any) -> Any:
    """The value of a *JSON* cell, `default` if there is none."""
    text = read_text(connection, value)
    return default if text is None else json.loads(text)


def read_many(connection: sqlite3.Connection, ids: Sequence[int]) -> list[bytes]:
    """The texts of these rows, in this order; those that are gone are left out."""
    found: dict[int, bytes] = {}
    for start in range(0, len(ids), 500):
        part = ids[start : start + 500]
        marks = ",".join("?" * len(part))
        rows: Iterable[tuple[int, bytes]] = connection.execute(
            f"SELECT id, data FROM texts WHERE id IN ({marks})", part
        )
        found |= {number: decompress(data) for number, data in rows}
    return [found[number] for number in ids if number in found]
