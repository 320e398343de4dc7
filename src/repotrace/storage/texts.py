"""Texts in the database: short ones in their rows, long ones once a run in `texts`.

The long ones are compressed in blocks of texts that came one after another, since a conversation
is full of repetition. A text's id says its block: `id >> POSITION_BITS`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3

INLINE = 512
"""Bytes up to which a text stays in its row."""

type Cell = str | bytes | int | None
"""What a column marked *text* or *JSON* holds."""

POSITION_BITS = 12

BLOCK = 65_536
"""Bytes of texts after which a block is closed."""

_REMEMBERED = 50_000
_LEVEL = 6


def compress(data: bytes) -> bytes:
    """`data` as `blocks.data` holds it."""
    return bytes(_zstd().compress(data, _LEVEL))


def decompress(data: bytes) -> bytes:
    """What `compress` was given."""
    return bytes(_zstd().decompress(data))


def head_of_block(data: bytes, length: int) -> bytes:
    """The first `length` bytes of what `compress` was given."""
    return bytes(_zstd().ZstdDecompressor().decompress(data, length))


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
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return encode(text)
    return text


def to_json(value: object) -> str:
    """`value` in the one form that columns marked *JSON* hold; what JSON lacks as its text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


@dataclass(slots=True)
class _Block:
    """The block that takes the next texts of a run."""

    number: int
    data: bytearray
    count: int
    changed: bool = False


class TextPool:
    """The texts of runs, written within one transaction. Each text of a run is kept once.

    `flush` must be called before the transaction is committed.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._known: dict[bytes, int] = {}
        self._open: dict[str, _Block] = {}
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
        key = blake2b(encode(run_id), digest_size=16).digest()
        digest = blake2b(data, digest_size=16, key=key).digest()
        known = self._known.get(digest)
        if known is not None:
            return known
        row = self.connection.execute("SELECT id FROM texts WHERE digest = ?", (digest,)).fetchone()
        number = self._append(run_id, digest, data) if row is None else int(row[0])
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[digest] = number
        return number

    def flush(self) -> None:
        """Write the blocks that have grown."""
        for block in self._open.values():
            self._write(block)

    def _append(self, run_id: str, digest: bytes, data: bytes) -> int:
        is_long = len(data) >= BLOCK // 2
        block = self._new_block(run_id) if is_long else self._block(run_id)
        number = (block.number << POSITION_BITS) + block.count
        self.connection.execute(
            "INSERT INTO texts (id, digest, start, length) VALUES (?, ?, ?, ?)",
            (number, digest, len(block.data), len(data)),
        )
        block.data += data
        block.count += 1
        block.changed = True
        self.added.append(number)
        if is_long:
            self._write(block)
        return number

    def _block(self, run_id: str) -> _Block:
        block = self._open.get(run_id) or self._last_block(run_id)
        if block is not None and _is_full(block):
            self._write(block)
            block = None
        block = block or self._new_block(run_id)
        self._open[run_id] = block
        return block

    def _last_block(self, run_id: str) -> _Block | None:
        """The newest block of the run, if there is room in it."""
        row = self.connection.execute(
            "SELECT b.id, b.data FROM blocks b WHERE b.run_id = ? AND b.is_open", (run_id,)
        ).fetchone()
        if row is None:
            return None
        count = self.connection.execute(
            "SELECT count(*) FROM texts WHERE id >= ? AND id < ?",
            (row[0] << POSITION_BITS, (row[0] + 1) << POSITION_BITS),
        ).fetchone()[0]
        return _Block(row[0], bytearray(decompress(row[1])), count)

    def _new_block(self, run_id: str) -> _Block:
        row = self.connection.execute(
            "INSERT INTO blocks (run_id, data) VALUES (?, x'') RETURNING id", (run_id,)
        ).fetchone()
        return _Block(row[0], bytearray(), 0)

    def _write(self, block: _Block) -> None:
        if block.changed:
            self.connection.execute(
                "UPDATE blocks SET data = ?, is_open = ? WHERE id = ?",
                (compress(bytes(block.data)), not _is_full(block), block.number),
            )
            block.changed = False


def _is_full(block: _Block) -> bool:
    is_one_long = block.count == 1 and len(block.data) >= BLOCK // 2
    return is_one_long or len(block.data) >= BLOCK or block.count >= (1 << POSITION_BITS)


def delete(connection: sqlite3.Connection, run_id: str) -> None:
    """Remove all texts of a run."""
    rows = connection.execute("SELECT id FROM blocks WHERE run_id = ?", (run_id,)).fetchall()
    connection.executemany(
        "DELETE FROM texts WHERE id >= ? AND id < ?",
        [(block << POSITION_BITS, (block + 1) << POSITION_BITS) for (block,) in rows],
    )
    connection.execute("DELETE FROM blocks WHERE run_id = ?", (run_id,))


# --- Reading ------------------------------------------------------------------------------


class Blocks:
    """The decompressed blocks that were read last."""

    def __init__(self) -> None:
        self._data: dict[int, bytes] = {}

    def read(self, connection: sqlite3.Connection, ids: Sequence[int]) -> list[bytes]:
        """The texts of these rows, in this order; those that are gone are left out."""
        found: dict[int, tuple[int, int]] = {}
        for start in range(0, len(ids), 500):
            part = ids[start : start + 500]
            marks = ",".join("?" * len(part))
            rows: Iterable[tuple[int, int, int]] = connection.execute(
                f"SELECT id, start, length FROM texts WHERE id IN ({marks})", part
            )
            found |= {number: (begin, length) for number, begin, length in rows}
        return [
            self._slice(connection, number, *found[number]) for number in ids if number in found
        ]

    def _slice(self, connection: sqlite3.Connection, number: int, start: int, length: int) -> bytes:
        block = number >> POSITION_BITS
        data = self._data.get(block, b"")
        if len(data) < start + length:  # not read yet, or it has grown since
            row = connection.execute("SELECT data FROM blocks WHERE id = ?", (block,)).fetchone()
            data = decompress(row[0]) if row is not None else b""
            self._data.pop(block, None)
            self._data[block] = data
            if len(self._data) > 16:
                del self._data[next(iter(self._data))]
        return data[start : start + length]


def read(connection: sqlite3.Connection, value: Cell) -> bytes | None:
    """The bytes of a *text* cell. A text whose row is gone is None."""
    if isinstance(value, int):
        return next(iter(Blocks().read(connection, [value])), None)
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
