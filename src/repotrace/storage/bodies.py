"""What records load when it is read: texts, conversations, commands, contents of files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from repotrace.records.command import CommandRun
from repotrace.storage.commands import load_command
from repotrace.storage.conversations import message_ids
from repotrace.storage.database import Database
from repotrace.storage.texts import Cell, read_json, read_many, read_text

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
        connection = self._connection()
        return None if connection is None else read_text(connection, value)

    def document(self, value: Cell, default: Any) -> Any:
        """The value of a *JSON* cell, `default` if there is none or it is gone."""
        connection = self._connection()
        return default if connection is None else read_json(connection, value, default)

    def messages(self, rowid: int) -> tuple[dict[str, Any], ...]:
        """The messages that a call was shown."""
        connection = self._connection()
        if connection is None:
            return ()
        found = read_many(connection, message_ids(connection, rowid))
        return tuple(json.loads(data) for data in found)

    def command(self, record: Cell, ends: Mapping[str, Cell]) -> CommandRun:
        """The command of a row."""
        connection = self._connection()
        return CommandRun() if connection is None else load_command(connection, record, ends)

    def _connection(self) -> sqlite3.Connection | None:
        # SQLite forbids using a connection in a child of the process that opened it.
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.connection = self._database.opened()
            self._local.pid = os.getpid()
        connection: sqlite3.Connection | None = self._local.connection
        return connection
