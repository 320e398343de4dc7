"""What the columns of the tables of runs take, and rows on their way into the database."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import TYPE_CHECKING, Any

from repotrace.records.base import decode_bytes
from repotrace.storage.texts import TextPool, cell, read_json, to_json

if TYPE_CHECKING:
    import sqlite3

type Convert = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LARGEST = (1 << 63) - 1


class Unusable(ValueError):
    """An event that lacks what its kind needs."""


# --- Moments ------------------------------------------------------------------------------


def to_moment(time: datetime) -> int:
    """`time` as the database has it."""
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MICROSECOND


def from_moment(moment: int) -> datetime:
    """The time that `to_moment` was given, in UTC."""
    return _EPOCH + timedelta(microseconds=moment)


def nanoseconds(time: datetime) -> int:
    """`time` as events have it."""
    return to_moment(time) * 1000


# --- Values that events give --------------------------------------------------------------


def text(value: Any) -> str | None:
    """Text as it is, anything else as JSON."""
    if value is None or isinstance(value, str):
        return value
    return to_json(value)


def integer(value: Any) -> int | None:
    """A whole number that SQLite can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return None
    return number if -_LARGEST <= number <= _LARGEST else None


def number(value: Any) -> float | None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if abs(result) < float("inf") else None


def flag(value: Any) -> int | None:
    """1 or 0."""
    return int(value) if isinstance(value, bool | int) else None


def moment(value: Any) -> int | None:
    """A moment of the database out of nanoseconds or ISO 8601 text."""
    if isinstance(value, str):
        try:
            return to_moment(datetime.fromisoformat(value))
        except (ValueError, OverflowError):
            return None
    nanos = integer(value)
    if nanos is None:
        return None
    micros = nanos // 1000
    return micros if _EARLIEST <= micros <= _LATEST else None


def path(value: Any) -> str | None:
    """A path, which need not be Unicode."""
    if value is None:
        return None
    try:
        return value if isinstance(value, str) else os.fsdecode(decode_bytes(value))
    except ValueError:
        return to_json(value)


def cost(value: Any) -> str | None:
    """A decimal number, as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return None
    return str(amount) if amount.is_finite() else None


# --- Tables -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """How facts become a row. Columns that events cannot set directly have no conversion."""

    name: str
    columns: Mapping[str, Convert | None]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What stands for a fact that is not known, in columns that cannot be NULL."""
    long: frozenset[str] = frozenset()
    """Columns marked *text* or *JSON*."""
    merged: frozenset[str] = frozenset()
    """*JSON* columns with objects to which events add keys."""
    searched: tuple[str, ...] = ()
    key: tuple[str, ...] = ("run_id", "id")

    @cached_property
    def select(self) -> str:
        """The query for a row by its key."""
        where = " AND ".join(f"{name} = ?" for name in self.key)
        return f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {where}"

    @cached_property
    def upsert(self) -> str:
        """The statement that writes a row, with its columns in order."""
        names = list(self.columns)
        sets = ", ".join(f"{name} = excluded.{name}" for name in names if name not in self.key)
        return (
            f"INSERT INTO {self.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            f" ON CONFLICT ({', '.join(self.key)}) DO UPDATE SET {sets} RETURNING rowid"
        )


class Row:
    """One row: as it was, with what events have said since."""

    __slots__ = ("changed", "is_new", "table", "values")

    def __init__(self, table: Table, values: dict[str, Any], *, is_new: bool) -> None:
        self.table = table
        self.values = values
        self.is_new = is_new
        self.changed: set[str] = set(values) if is_new else set()

    def knows(self, column: str) -> bool:
        """Whether anything but a default stands in `column`."""
        value = self.values.get(column)
        return value is not None and value != self.table.defaults.get(column)

    def set(self, column: str, value: Any, *, weak: bool = False) -> None:
        """Say a fact; a weak one only where nothing is known."""
        if value is None or (weak and self.knows(column)):
            return
        if self.values.get(column) != value:
            self.values[column] = value
            self.changed.add(column)

    def clear(self, column: str) -> None:
        """Say that there is no such fact."""
        if self.values.get(column) is not None:
            self.values[column] = None
            self.changed.add(column)

    def forget(self, *kept: str) -> None:
        """Say that nothing is known, but for the key and the columns `kept`."""
        for column in self.table.columns:
            if column not in self.table.key and column not in kept:
                self.clear(column)

    def merge(self, column: str, facts: Any, pool: TextPool, *, weak: bool) -> None:
        """Add the keys of an object to a *JSON* column."""
        if not isinstance(facts, Mapping) or not facts:
            return
        known = self.values.get(column)
        if known is not None:
            known = read_json(pool.connection, known, {})
            facts = {**facts, **known} if weak else {**known, **facts}
        if facts != known:
            self.values[column] = to_json(facts)
            self.changed.add(column)

    def take(self, data: Mapping[str, Any], pool: TextPool, *, weak: bool) -> None:
        """Say all that the data of an event say directly."""
        table = self.table
        for column, given in data.items():
            convert = table.columns.get(column)
            if given is None or convert is None:
                continue
            if column in table.merged:
                self.merge(column, given, pool, weak=weak)
            else:
                self.set(column, convert(given), weak=weak)

    def write(self, run_id: str, pool: TextPool) -> int:
        """Put the row into the database; its rowid."""
        values = self.values
        for column, default in self.table.defaults.items():
            if values.get(column) is None:
                values[column] = default
        for column, value in values.items():
            if isinstance(value, str | bytes):
                long = column in self.table.long
                values[column] = pool.put(run_id, value) if long else bound(value)
        parameters = [values.get(column) for column in self.table.columns]
        rowid = pool.connection.execute(self.table.upsert, parameters).fetchone()[0]
        return int(rowid)


def bound(value: str | bytes) -> str | bytes:
    """A word as SQLite takes it."""
    return cell(value) if isinstance(value, str) else value


def load(connection: sqlite3.Connection, table: Table, key: tuple[str, ...]) -> Row | None:
    """The row with this key; None if there is none."""
    found = connection.execute(table.select, [bound(part) for part in key]).fetchone()
    if found is None:
        return None
    return Row(table, dict(zip(table.columns, found, strict=True)), is_new=False)
