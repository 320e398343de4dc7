"""Full-text search, with snippets out of the stored texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repotrace.storage.documents import MESSAGE, searchable
from repotrace.storage.rows import bound

if TYPE_CHECKING:
    import sqlite3

_WORD = re.compile(r'((?:-(?!-))?)(?:"([^"]*)"?|(\S+))')
_AROUND = 60


@dataclass(frozen=True, slots=True)
class Hit:
    """A text in which something was found."""

    run_id: str
    step_id: str | None
    step_number: int | None
    """None for a text of the run itself."""
    field: str
    """The field that holds the text: `description`, `response`, `message`, `node_id`, …"""
    owner: str
    """Id of the record that has the field."""
    snippet: str
    """One line around the first word that was found."""
    marks: tuple[tuple[int, int], ...]
    """Where in the snippet the words stand that were searched for."""


@dataclass(frozen=True, slots=True)
class Query:
    """The words and phrases that must occur, and those that must not."""

    wanted: tuple[str, ...]
    unwanted: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Query:
        """`text` read as words and "quoted phrases", each with a `-` before it if unwanted.

        Any punctuation is allowed; what stands between it must occur in this order.
        """
        wanted: list[str] = []
        unwanted: list[str] = []
        for minus, phrase, word in _WORD.findall(text):
            term = phrase or word
            if any(character.isalnum() for character in term):
                (unwanted if minus else wanted).append(term)
        return cls(tuple(wanted), tuple(unwanted))

    def expression(self) -> str:
        """In the language of FTS5."""
        positive = " AND ".join(_quoted(term) for term in self.wanted)
        return " NOT ".join([f"({positive})", *(_quoted(term) for term in self.unwanted)])


def search(
    connection: sqlite3.Connection, text: str, *, run_id: str | None = None, limit: int = 50
) -> list[Hit]:
    """The texts in which all that is wanted occurs, the newest first. Nothing wanted: none."""
    query = Query.of(text)
    if not query.wanted:
        return []
    rows = connection.execute(
        "SELECT d.run_id, d.step_id, s.step_number, d.field, d.owner, d.body"
        " FROM text_index JOIN documents d ON d.id = text_index.rowid"
        " LEFT JOIN execution_steps s ON s.run_id = d.run_id AND s.id = d.step_id"
        " WHERE text_index MATCH ? AND (? IS NULL OR d.run_id = ?)"
        " ORDER BY text_index.rowid DESC LIMIT ?",
        (bound(query.expression()), run_id, run_id, limit),
    ).fetchall()
    hits = []
    for run, step_id, step_number, field, owner, body in rows:
        snippet, marks = _snippet(searchable(connection, field, body), query.wanted)
        name = field.partition(":")[0] if field.startswith(MESSAGE) else field
        hits.append(Hit(run, step_id, step_number, name, owner, snippet, marks))
    return hits


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""').replace("\0", " ") + '"'


def _snippet(text: str, terms: tuple[str, ...]) -> tuple[str, tuple[tuple[int, int], ...]]:
    words = [r"\W+".join(map(re.escape, re.findall(r"\w+", term))) for term in terms]
    pattern = re.compile("|".join(word for word in words if word) or r"(?!)", re.IGNORECASE)
    first = pattern.search(text)
    start = max(0, first.start() - _AROUND) if first else 0
    end = (first.end() if first else 0) + _AROUND
    line = " ".join(text[start:end].split())
    if start:
        line = f"…{line}"
    if end < len(text):
        line = f"{line}…"
    return line, tuple(match.span() for match in pattern.finditer(line) if match[0])
