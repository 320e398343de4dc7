"""Full-text search, with snippets out of the stored texts, and filters on runs and steps."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import batched, islice
from typing import TYPE_CHECKING, Any

from repotrace.storage.documents import MESSAGE, searchable
from repotrace.storage.query import (
    FIGURES,
    TIMES,
    TRACES,
    Filter,
    Number,
    Query,
    compared,
    moment,
    path_patterns,
)
from repotrace.storage.rows import bound, to_moment
from repotrace.storage.texts import decode

if TYPE_CHECKING:
    import sqlite3

_AROUND = 60
_BATCH = 400
_NARROW = 50
"""Runs up to which it pays to look where in the index their texts lie."""

_TABLES = {
    "file": ("file_operations", "file_path"),
    "read": ("file_reads", "file_path"),
    "test": ("test_outcomes", "node_id"),
}
_RUN_CLAUSES = {
    "run": "id GLOB ? || '*'",
    "status": "status = ? COLLATE NOCASE",
    "outcome": "outcome = ? COLLATE NOCASE",
    "agent": "agent = ? COLLATE NOCASE",
    "source": "source = ? COLLATE NOCASE",
    "model": "instr(lower(models), lower(?))",
    "tag": "id IN (SELECT run_id FROM run_tags WHERE tag = ?)",
    "since": "started_at >= ?",
    "until": "started_at < ?",
}


@dataclass(frozen=True, slots=True)
class Hit:
    """A text in which something was found, or a step or run that the filters chose."""

    run_id: str
    step_id: str | None
    step_number: int | None
    """None for a text of the run itself."""
    field: str
    """The field that holds the text: `description`, `response`, `message`, `node_id`, …; `step`
    or `run` where only filters were given."""
    owner: str
    """Id of the record that has the field."""
    snippet: str
    """One line around the first word that was found."""
    marks: tuple[tuple[int, int], ...]
    """Where in the snippet the words stand that were searched for."""


def search(
    connection: sqlite3.Connection,
    query: Query,
    *,
    now: datetime,
    run_id: str | None = None,
    limit: int = 50,
) -> list[Hit]:
    """What the query chooses, the newest first.

    With words, the texts in which all of them occur. With filters alone, the steps that fit
    those on steps, files or tests; else the runs. An empty query: nothing. Raises RepoTraceError
    for a filter whose value makes no sense.
    """
    runs = _runs(connection, query, run_id, now)
    if runs is not None and not runs:
        return []
    if query.wanted:
        found = _texts(connection, query, runs)
    elif query.named(*TRACES, "type", "step"):
        found = _steps(connection, query, runs)
    elif query.filters:
        found = _whole_runs(connection, query, runs or {})
    else:
        return []
    return list(islice(found, limit))


# --- Runs -----------------------------------------------------------------------------------


def _runs(
    connection: sqlite3.Connection, query: Query, run_id: str | None, now: datetime
) -> dict[str, None] | None:
    """The ids of the runs that fit, the newest first; None where all do."""
    clauses: list[str] = []
    values: list[Any] = []
    if run_id is not None:
        clauses.append("id = ?")
        values.append(bound(run_id))
    for item in query.filters:
        clause, given = _run_clause(item, now)
        if clause:
            clauses.append(f"NOT coalesce(({clause}), 0)" if item.negated else f"({clause})")
            values += given
    figures = [
        (FIGURES[item.key], compared(item.value, item.key), item.negated)
        for item in query.named(*FIGURES)
    ]
    if not clauses and not figures:
        return None
    rows = connection.execute(
        f"SELECT id, totals FROM runs WHERE {' AND '.join(clauses) or '1'}"
        " ORDER BY started_at DESC, id DESC",
        values,
    )
    return {
        _word(name): None
        for name, totals in rows
        if all(_fits(totals, *figure) for figure in figures)
    }


def _fits(totals: str | None, field: str, test: Number, negated: bool) -> bool:
    figure = Decimal(str(json.loads(totals or "{}").get(field, 0)))
    return test(figure) is not negated


def _run_clause(item: Filter, now: datetime) -> tuple[str, list[Any]]:
    """SQL of a filter on runs with its values; empty for those on figures and on steps."""
    if item.key in _RUN_CLAUSES:
        value = to_moment(moment(item.value, now)) if item.key in TIMES else bound(item.value)
        return _RUN_CLAUSES[item.key], [value]
    if item.key in TRACES:
        clause, values = _trace(item)
        table, _ = _TABLES[item.key]
        return f"id IN (SELECT run_id FROM {table} WHERE {clause})", values
    return "", []


def _trace(item: Filter) -> tuple[str, list[Any]]:
    """SQL of the rows that a `file:`, `read:` or `test:` means, with its values."""
    _, column = _TABLES[item.key]
    if item.key != "test":
        patterns = path_patterns(item.value)
    elif any(mark in item.value for mark in "*?"):
        patterns = [item.value.replace("[", "[[]")]
    else:
        return f"instr({column}, ?)", [bound(item.value)]
    return " OR ".join(f"{column} GLOB ?" for _ in patterns), list(map(bound, patterns))


def _whole_runs(
    connection: sqlite3.Connection, query: Query, runs: dict[str, None]
) -> Iterator[Hit]:
    hidden = {run for run, _ in _unwanted(connection, query)}
    for name in runs:
        if name not in hidden:
            yield Hit(name, None, None, "run", name, "", ())


def _unwanted(connection: sqlite3.Connection, query: Query) -> Iterator[tuple[str, str | None]]:
    """The runs and steps that have an unwanted word."""
    for term in query.unwanted:
        rows = connection.execute(
            "SELECT d.run_id, d.step_id FROM text_index"
            " JOIN documents d ON d.id = text_index.rowid WHERE text_index MATCH ?",
            (bound(Query((term,)).expression()),),
        )
        for run, step in rows:
            yield _word(run), None if step is None else _word(step)


# --- Steps ----------------------------------------------------------------------------------


def _steps(
    connection: sqlite3.Connection, query: Query, runs: dict[str, None] | None
) -> Iterator[Hit]:
    """The steps that fit the filters on steps; with some on files or tests, those that did so."""
    hidden = set(_unwanted(connection, query))
    clauses, values = _step_clauses(query)
    traces = []
    for item in query.named(*TRACES):
        if not item.negated:
            clause, given = _trace(item)
            table, _ = _TABLES[item.key]
            done = f"SELECT run_id, step_id FROM {table} WHERE {clause}"
            traces.append(f"(s.run_id, s.id) IN ({done})")
            values += given
    if traces:
        clauses.append(f"({' OR '.join(traces)})")
    rows = connection.execute(
        "SELECT s.run_id, s.id, s.step_number FROM runs r"
        " CROSS JOIN execution_steps s ON s.run_id = r.id"
        f" WHERE {' AND '.join(clauses) or '1'}"
        " ORDER BY r.started_at DESC, r.rowid DESC, s.step_number DESC",
        values,
    )
    for run, step, number in rows:
        name, step_id = _word(run), _word(step)
        if (runs is None or name in runs) and (name, step_id) not in hidden:
            yield Hit(name, step_id, number, "step", step_id, "", ())


def _step_clauses(query: Query) -> tuple[list[str], list[Any]]:
    """SQL of `type:` and `step:`. Several of one kind: any of them."""
    clauses: list[str] = []
    values: list[Any] = []
    for key, column in (("type", "step_type"), ("step", "status")):
        for negated in (False, True):
            given = [item.value.lower() for item in query.named(key) if item.negated is negated]
            if given:
                word = "NOT IN" if negated else "IN"
                clauses.append(f"s.{column} {word} ({','.join('?' * len(given))})")
                values += map(bound, given)
    return clauses, values


# --- Texts ----------------------------------------------------------------------------------


def _texts(
    connection: sqlite3.Connection, query: Query, runs: dict[str, None] | None
) -> Iterator[Hit]:
    clauses, values = _step_clauses(query)
    where = "".join(f" AND {clause}" for clause in clauses)
    for numbers in batched(_matches(connection, query, runs), _BATCH):
        rows = connection.execute(
            "SELECT d.run_id, d.step_id, s.step_number, d.field, d.owner, d.body"
            " FROM documents d"
            " LEFT JOIN execution_steps s ON s.run_id = d.run_id AND s.id = d.step_id"
            f" WHERE d.id IN ({','.join('?' * len(numbers))}){where} ORDER BY d.id DESC",
            (*numbers, *values),
        )
        for run, step_id, step_number, field, owner, body in rows:
            if runs is not None and _word(run) not in runs:
                continue
            snippet, marks = _snippet(searchable(connection, field, body), query.wanted)
            name = field.partition(":")[0] if field.startswith(MESSAGE) else field
            step = None if step_id is None else _word(step_id)
            yield Hit(_word(run), step, step_number, name, _word(owner), snippet, marks)


def _matches(
    connection: sqlite3.Connection, query: Query, runs: dict[str, None] | None
) -> Iterator[int]:
    """Rows of the index in which all that is wanted occurs, the newest first."""
    where = "text_index MATCH ?"
    values: list[Any] = [bound(query.expression())]
    if runs is not None and len(runs) <= _NARROW:
        first, last = _extent(connection, list(runs))
        where += " AND rowid BETWEEN ? AND ?"
        values += [first, last]
    rows = connection.execute(
        f"SELECT rowid FROM text_index WHERE {where} ORDER BY rowid DESC", values
    )
    return (number for (number,) in rows)


def _extent(connection: sqlite3.Connection, runs: Sequence[str]) -> tuple[int, int]:
    """The first and the last document of these runs."""
    row = connection.execute(
        "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM documents"
        f" WHERE run_id IN ({','.join('?' * len(runs))})",
        tuple(map(bound, runs)),
    ).fetchone()
    return int(row[0]), int(row[1])


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


def _word(value: Any) -> str:
    return decode(value) if isinstance(value, bytes) else str(value)
