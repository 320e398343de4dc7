"""Conversations, in which each call repeats the messages of one before it.

A message is kept once a run. A call names the call whose messages it repeats, how many of them,
and the ones it added. So that reading stays short, after `LONGEST` such steps a call names all
of its messages itself.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from repotrace.storage.texts import TextPool, encode, to_json

if TYPE_CHECKING:
    import sqlite3

LONGEST = 64

_CANDIDATES = 8


@dataclass(frozen=True, slots=True)
class Stored:
    """How one call's messages are kept: the columns of its row."""

    previous: int | None
    kept: int
    added: str
    depth: int


@dataclass(frozen=True, slots=True)
class _Call:
    rowid: int
    depth: int
    messages: list[int]


def message_ids(connection: sqlite3.Connection, rowid: int) -> list[int]:
    """Ids in `texts` of the messages of a call, in order."""
    tails: list[list[int]] = []
    keep: list[int] = []
    while True:
        row = connection.execute(
            "SELECT previous, kept, added FROM llm_interactions WHERE rowid = ?", (rowid,)
        ).fetchone()
        if row is None:
            break
        tails.append(json.loads(row[2]))
        keep.append(row[1])
        if row[0] is None:
            break
        rowid = row[0]
    messages: list[int] = []
    for count, added in zip(reversed(keep), reversed(tails), strict=True):
        messages = messages[:count] + added
    return messages


class Conversations:
    """The calls of runs within one transaction."""

    def __init__(self, pool: TextPool) -> None:
        self._pool = pool
        self._recent: dict[str, deque[_Call]] = {}

    def pool(self, run_id: str, messages: Sequence[Any]) -> list[int]:
        """The ids of these messages."""
        return [self._pool.pool(run_id, encode(to_json(message))) for message in messages]

    def store(self, run_id: str, messages: list[int]) -> Stored:
        """How to keep a call that was shown `messages`."""
        best, kept = None, 0
        for call in reversed(self._calls(run_id)):
            # A conversation has thousands of messages, and the call before mostly has them all.
            if call.depth >= LONGEST or len(call.messages) <= kept:
                continue
            shared = _shared(call.messages, messages)
            if shared > kept:
                best, kept = call, shared
        if best is None:
            return Stored(None, 0, _listed(messages), 0)
        return Stored(best.rowid, kept, _listed(messages[kept:]), best.depth + 1)

    def follow(self, run_id: str, previous: str, kept: int | None, added: list[int]) -> list[int]:
        """All messages of a call that added some to the first `kept` of an earlier one."""
        row = self._pool.connection.execute(
            "SELECT rowid FROM llm_interactions WHERE run_id = ? AND id = ?", (run_id, previous)
        ).fetchone()
        before = [] if row is None else self._messages(run_id, row[0])
        return before[: len(before) if kept is None else max(kept, 0)] + added

    def remember(self, run_id: str, rowid: int, depth: int, messages: list[int]) -> None:
        """Let later calls repeat this one."""
        self._calls(run_id).append(_Call(rowid, depth, messages))

    def release(self, rowid: int) -> None:
        """Make the calls that repeat this one stand alone, before it is changed."""
        connection = self._pool.connection
        rows = connection.execute("SELECT rowid FROM llm_interactions WHERE previous = ?", (rowid,))
        for (follower,) in rows.fetchall():
            connection.execute(
                "UPDATE llm_interactions SET previous = NULL, kept = 0, added = ? WHERE rowid = ?",
                (_listed(message_ids(connection, follower)), follower),
            )
        self._recent.clear()

    def _messages(self, run_id: str, rowid: int) -> list[int]:
        for call in self._calls(run_id):
            if call.rowid == rowid:
                return call.messages
        return message_ids(self._pool.connection, rowid)

    def _calls(self, run_id: str) -> deque[_Call]:
        known = self._recent.get(run_id)
        if known is None:
            rows = self._pool.connection.execute(
                "SELECT rowid, depth FROM llm_interactions WHERE run_id = ?"
                " ORDER BY rowid DESC LIMIT ?",
                (run_id, _CANDIDATES),
            ).fetchall()
            known = deque(
                (
                    _Call(rowid, depth, message_ids(self._pool.connection, rowid))
                    for rowid, depth in reversed(rows)
                ),
                maxlen=_CANDIDATES,
            )
            self._recent[run_id] = known
        return known


def _shared(one: list[int], other: list[int]) -> int:
    """How many of the first items are the same."""
    if one == other[: len(one)]:
        return len(one)
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


def _listed(messages: list[int]) -> str:
    return to_json(messages)
