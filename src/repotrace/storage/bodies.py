"""What records load when it is read: texts, conversations, commands, contents of files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from repotrace.records.command import CommandRun
from repotrace.storage.commands import load_command
from repotrace.storage.conversations import message_ids
from repotrace.storage.database import Database
from repotrace.storage.texts import Blocks, Cell, decode

if TYPE_CHECKING:
    import sqlite3

type Contents = Callable[[str], bytes | None]
"""Reads the content of an object of the snapshot store; None if it has none."""


class Bodies:
    """Reads single texts over one connection a thread, which it keeps open."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._local = threading.local()

    def text(self, value: Cell) -> str | None:
        """The text of a cell; None if it is gone."""
        if isinstance(value, str) or value is None:
            return value
        data = value if isinstance(value, bytes) else next(iter(self._read([value])), None)
        return None if data is None else decode(data)

    def document(self, value: Cell, default: Any) -> Any:
        """The value of a *JSON* cell, `default` if there is none or it is gone."""
        text = self.text(value)
        return default if text is None else json.loads(text)

    def messages(self, rowid: int) -> tuple[dict[str, Any], ...]:
        """The messages that a call was shown."""
        connection = self._connection()
        ids = [] if connection is None else message_ids(connection, rowid)
        return tuple(json.loads(data) for data in self._read(ids))

    def _read(self, ids: Sequence[int]) -> list[bytes]:
        connection = self._connection()
        blocks: Blocks = self._local.blocks
        return [] if connection is None else blocks.read(connection, ids)

    def command(self, record: Cell, ends: Mapping[str, Cell]) -> CommandRun:
        """The command of a row."""
        connection = self._connection()
        return CommandRun() if connection is None else load_command(connection, record, ends)

    def _connection(self) -> sqlite3.Connection | None:
        # SQLite forbids using a connection in a child of the process that opened it.
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.connection = self._database.opened()
            self._local.blocks = Blocks()
            self._local.pid = os.getpid()
        connection: sqlite3.Connection | None = self._local.connection
        return connection
