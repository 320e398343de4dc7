"""Full-text search, with snippets out of the stored texts, and filters on runs and steps."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import batched, islice
from typing import TYPE_CHECKING, Any, NamedTuple

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
from repotrace.storage.scan import PORTION, Document, scan
from repotrace.storage.texts import decode
from repotrace.storage.words import excerpt

if TYPE_CHECKING:
    import sqlite3

_BATCH = 100
_NARROW = 50
"""Runs up to which it pays to look where in the index their texts lie."""

_SORTED = 2_000
"""Texts up to which all that were found are sorted; of more, run by run is asked for."""

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
    """One line around the words that were found."""
    marks: tuple[tuple[int, int], ...]
    """Where in the snippet the words stand that were searched for."""


class Portion(NamedTuple):
    """What was found by looking through some steps of a run."""

    found: dict[str, set[str]]
    """The fields that hold it, by the ids of steps; `messages` is the conversation of a call."""
    until: int | None
    """The number of the last step that was looked through whole; None where all have been."""


def search_run(
    connection: sqlite3.Connection, query: Query, *, run_id: str, after: int, now: datetime
) -> Iterator[Portion]:
    """The steps of a run that the query chooses, by and by, from the one after a number on and
    then from the first.

    Nothing needs to be indexed for it, unless there are only words that must not occur.
    """
    runs = _runs(connection, query, run_id, now)
    found: dict[str, set[str]] = defaultdict(set)
    if runs and not query.wanted:
        for hit in search(connection, query, now=now, run_id=run_id, limit=-1):
            if hit.step_id is not None:
                found[hit.step_id].add(hit.field)
    elif runs:
        for numbers in batched(_matches(connection, query, runs), _BATCH):
            which = f"d.id IN ({','.join('?' * len(numbers))})"
            for _, step_id, document in _documents(connection, query, run_id, which, numbers):
                found[step_id].add(_part(document.field))
        pending = sorted(
            _documents(connection, query, run_id, "d.indexed = 0"),
            key=lambda row: (row[0] <= after, row[0], row[2].id),
        )
        rows = {document.id: (step_id, document.field) for _, step_id, document in pending}
        at = 0
        for ids in scan(connection, query, [document for _, _, document in pending]):
            for number in ids:
                step_id, field = rows[number]
                found[step_id].add(_part(field))
            at += PORTION
            if at < len(pending):
                yield Portion(found, pending[at - 1][0] - 1)
                found = defaultdict(set)
    yield Portion(found, None)


def _documents(
    connection: sqlite3.Connection,
    query: Query,
    run_id: str,
    which: str,
    values: Sequence[int] = (),
) -> Iterator[tuple[int, str, Document]]:
    """The number and the id of its step, and the document, for those of a run's steps."""
    clauses, given = _step_clauses(query)
    where = "".join(f" AND {clause}" for clause in clauses)
    rows = connection.execute(
        "SELECT s.step_number, s.id, d.id, d.field, d.body FROM documents d"
        " JOIN execution_steps s ON s.run_id = d.run_id AND s.id = d.step_id"
        f" WHERE d.run_id = ? AND {which}{where}",
        (bound(run_id), *values, *given),
    )
    for number, step_id, *document in rows:
        yield number, _word(step_id), Document(*document)


def _field(field: str) -> str:
    return field.partition(":")[0] if field.startswith(MESSAGE) else field


def _part(field: str) -> str:
    return "messages" if field.startswith(MESSAGE) else field


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
    those on steps, files or tests; else the runs. An empty query: nothing. A `limit` below 0: all.
    Raises RepoTraceError for a filter whose value makes no sense.
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
    return list(found if limit < 0 else islice(found, limit))


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
        " ORDER BY started_at DESC, rowid DESC",
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
            "SELECT d.id, d.run_id, d.step_id, s.step_number, d.field, d.owner, d.body"
            " FROM documents d"
            " LEFT JOIN execution_steps s ON s.run_id = d.run_id AND s.id = d.step_id"
            f" WHERE d.id IN ({','.join('?' * len(numbers))}){where}",
            (*numbers, *values),
        )
        texts = {number: row for number, *row in rows}
        for number in filter(texts.__contains__, numbers):
            run, step_id, step_number, field, owner, body = texts[number]
            if runs is not None and _word(run) not in runs:
                continue
            snippet, marks = excerpt(searchable(connection, field, body), query.wanted)
            step = None if step_id is None else _word(step_id)
            yield Hit(_word(run), step, step_number, _field(field), _word(owner), snippet, marks)


def _matches(
    connection: sqlite3.Connection, query: Query, runs: dict[str, None] | None
) -> Iterator[int]:
    """Rows of the index in which all that is wanted occurs, those of the newest run first."""
    where = "text_index MATCH ?"
    values: list[Any] = [bound(query.expression())]
    if runs is not None and len(runs) <= _NARROW:
        where += " AND rowid BETWEEN ? AND ?"
        values += _extent(connection, list(runs))
    rows = connection.execute(
        f"SELECT rowid FROM text_index WHERE {where} LIMIT ?", [*values, _SORTED + 1]
    ).fetchall()
    if len(rows) <= _SORTED:
        return _newest_first(connection, [number for (number,) in rows])
    return _run_by_run(connection, query, _by_age(connection) if runs is None else runs)


def _newest_first(connection: sqlite3.Connection, numbers: Sequence[int]) -> Iterator[int]:
    """Documents in the order of their runs, and within a run the last noted first."""
    found: list[tuple[int, int, int]] = []
    for some in batched(numbers, _BATCH):
        found += connection.execute(
            "SELECT r.started_at, r.rowid, d.id FROM documents d JOIN runs r ON r.id = d.run_id"
            f" WHERE d.id IN ({','.join('?' * len(some))})",
            some,
        ).fetchall()
    return (number for _, _, number in sorted(found, reverse=True))


def _run_by_run(connection: sqlite3.Connection, query: Query, runs: Iterable[str]) -> Iterator[int]:
    for run in runs:
        rows = connection.execute(
            "SELECT d.id FROM text_index t CROSS JOIN documents d ON d.id = t.rowid"
            " WHERE t.text_index MATCH ? AND t.rowid BETWEEN ? AND ? AND d.run_id = ?"
            " ORDER BY t.rowid DESC",
            (bound(query.expression()), *_extent(connection, [run]), bound(run)),
        )
        yield from (number for (number,) in rows)


def _by_age(connection: sqlite3.Connection) -> list[str]:
    """All runs, the newest first."""
    rows = connection.execute("SELECT id FROM runs ORDER BY started_at DESC, rowid DESC")
    return [_word(name) for (name,) in rows]


def _extent(connection: sqlite3.Connection, runs: Sequence[str]) -> tuple[int, int]:
    """The first and the last document of these runs."""
    row = connection.execute(
        "SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM documents"
        f" WHERE run_id IN ({','.join('?' * len(runs))})",
        tuple(map(bound, runs)),
    ).fetchone()
    return int(row[0]), int(row[1])


def _word(value: Any) -> str:
    return decode(value) if isinstance(value, bytes) else str(value)
