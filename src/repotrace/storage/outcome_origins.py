"""Two accounts of the tests of one command: what pytest told beats what its output says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from repotrace.records.run import OutcomeOrigin
from repotrace.storage import documents
from repotrace.storage import run_tables as tables
from repotrace.storage.rows import bound, text

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping


class OutcomeOrigins:
    """Knows within one transaction which commands the plug-in has told of."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._told: dict[tuple[str, str], bool] = {}

    def is_superseded(self, run_id: str, data: Mapping[str, Any], *, weak: bool) -> bool:
        """Whether an outcome that is about to be taken says less than what is known.

        An outcome of the plug-in takes out what was read from the output of its command.
        """
        command, origin = text(data.get("command_id")), text(data.get("origin"))
        if not command:
            return False
        if origin in (None, OutcomeOrigin.PLUGIN):
            if not self._told.get((run_id, command)):
                self._remove_parsed(run_id, command)
                self._told[run_id, command] = True
            return False
        if origin != OutcomeOrigin.PARSED or not weak:
            return False
        if (run_id, command) not in self._told:
            self._told[run_id, command] = self._has_told(run_id, command)
        return self._told[run_id, command]

    def forget(self) -> None:
        """The transaction is over."""
        self._told.clear()

    def _has_told(self, run_id: str, command: str) -> bool:
        row = self._connection.execute(
            "SELECT 1 FROM test_outcomes WHERE run_id = ? AND command_id = ? AND origin = ?"
            " LIMIT 1",
            (run_id, bound(command), OutcomeOrigin.PLUGIN.value),
        ).fetchone()
        return row is not None

    def _remove_parsed(self, run_id: str, command: str) -> None:
        gone = self._connection.execute(
            "DELETE FROM test_outcomes WHERE run_id = ? AND command_id = ? AND origin = ?"
            " RETURNING id",
            (run_id, bound(command), OutcomeOrigin.PARSED.value),
        ).fetchall()
        for (name,) in gone:
            for field in tables.TESTS.searched:
                where = "run_id = ? AND owner = ? AND field = ?"
                documents.drop(self._connection, where, (run_id, name, field))
