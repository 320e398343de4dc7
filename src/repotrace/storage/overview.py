"""What lists and tables need of runs, in few queries and without their long texts."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from repotrace.records.run import FAILING, TestResult
from repotrace.storage.query import Query
from repotrace.storage.rows import bound
from repotrace.storage.search import Portion, search_run
from repotrace.storage.texts import POSITION_BITS, Cell, decode, head_of_block

if TYPE_CHECKING:
    import sqlite3

HEAD = 2_000
"""Bytes of a text that are read for a line of a table."""

_FAILED = ", ".join(f"'{outcome}'" for outcome in sorted(FAILING))
_MARKS = 500
"""Values that are given to one query."""


class Outline(NamedTuple):
    """A step without its texts."""

    number: int
    id: str
    parent_id: str | None
    step_type: str
    status: str
    started_at: int
    """Microseconds since 1970, as all moments here."""
    completed_at: int | None
    attempt: int
    retry_of: str | None
    state_before_id: str | None
    state_id: str | None
    state_quality: str | None
    ambiguous: int
    label: str | None


class Heads(NamedTuple):
    """The beginnings of what a step says."""

    description: str
    reason: str | None
    error: str | None
    tool: str | None


class Spent(NamedTuple):
    """What model calls used."""

    calls: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)
    unpriced: int = 0
    """Calls whose cost is not known."""

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.cost + other.cost,
            self.unpriced + other.unpriced,
        )


class Change(NamedTuple):
    """A file operation without its contents."""

    path: str
    operation_type: str
    lines_added: int
    lines_removed: int


class Ended(NamedTuple):
    """How a command of a step ended."""

    command_line: str
    exit_code: int | None
    duration: float | None


class Result(NamedTuple):
    """What came of one test in one step, over all phases of its last execution there."""

    step_id: str
    node_id: str
    outcome: str
    state_id: str | None


class StepTests(NamedTuple):
    """What came of the tests of a step."""

    outcomes: dict[str, int]
    """How many tests had which `TestResult`."""
    failing: tuple[str, ...]
    """Node ids, in order of time."""
    state_id: str | None
    """The state that they ran on, first of all those that failed; None if none was told."""


class Overview:
    """Reads within one view of the database, so that all parts fit each other."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def outline(self, run_id: str) -> list[Outline]:
        """All steps, by number."""
        rows = self._connection.execute(
            "SELECT step_number, id, parent_id, step_type, status, started_at, completed_at,"
            " attempt, retry_of, state_before_id, state_id, state_quality, ambiguous, label"
            " FROM execution_steps WHERE run_id = ? ORDER BY step_number",
            (run_id,),
        )
        return [
            Outline._make(row if bytes not in map(type, row) else map(_word, row)) for row in rows
        ]

    def heads(self, run_id: str, numbers: Sequence[int]) -> dict[int, Heads]:
        """The beginnings of the texts of steps, by number."""
        found: dict[int, Heads] = {}
        for part in _parts(numbers):
            rows = self._connection.execute(
                "SELECT step_number, description, reason, error, metadata FROM execution_steps"
                f" WHERE run_id = ? AND step_number IN ({_marks(part)})",
                (run_id, *part),
            ).fetchall()
            for number, description, reason, error, metadata in rows:
                found[number] = Heads(
                    self._head(description) or "",
                    self._head(reason),
                    self._head(error),
                    _tool(metadata),
                )
        return found

    def kinds(self, run_id: str, numbers: Sequence[int]) -> dict[int, tuple[str, str]]:
        """The type and the status of steps, by number."""
        found: dict[int, tuple[str, str]] = {}
        for part in _parts(numbers):
            rows = self._connection.execute(
                "SELECT step_number, step_type, status FROM execution_steps"
                f" WHERE run_id = ? AND step_number IN ({_marks(part)})",
                (run_id, *part),
            )
            found |= {number: (_word(kind), _word(status)) for number, kind, status in rows}
        return found

    def _head(self, value: Cell) -> str | None:
        if not isinstance(value, int):
            return decode(value) if isinstance(value, bytes) else value
        row = self._connection.execute(
            "SELECT start, length FROM texts WHERE id = ?", (value,)
        ).fetchone()
        block = self._connection.execute(
            "SELECT data FROM blocks WHERE id = ?", (value >> POSITION_BITS,)
        ).fetchone()
        if row is None or block is None:
            return None
        start, length = row
        end = start + min(length, HEAD)
        return head_of_block(block[0], end)[start:end].decode("utf-8", "replace")

    def spent(self, run_id: str, step_ids: Sequence[str] | None = None) -> dict[str, Spent]:
        """What the model calls of each step used, of all steps or of some."""
        query = "SELECT step_id, tokens_used, cost_usd FROM llm_interactions WHERE run_id = ?"
        rows = self._of_steps(query, run_id, step_ids)
        spent: dict[str, Spent] = {}
        for step_id, tokens, cost in rows:
            call = Spent(1, tokens, Decimal(cost or 0), int(cost is None))
            name = _word(step_id)
            spent[name] = spent[name].plus(call) if name in spent else call
        return spent

    def call_before(self, run_id: str, call_id: str) -> tuple[str, str] | None:
        """The step and the id of the model call before this one; None for the first."""
        row = self._connection.execute(
            "SELECT step_id, id FROM llm_interactions WHERE run_id = ? AND (timestamp, rowid) <"
            " (SELECT timestamp, rowid FROM llm_interactions WHERE run_id = ? AND id = ?)"
            " ORDER BY timestamp DESC, rowid DESC LIMIT 1",
            (run_id, run_id, bound(call_id)),
        ).fetchone()
        return None if row is None else (_word(row[0]), _word(row[1]))

    def last_call(self, run_id: str, until: int) -> tuple[str, str] | None:
        """The step and the id of the newest model call up to a moment; None if there is none."""
        row = self._connection.execute(
            "SELECT step_id, id FROM llm_interactions WHERE run_id = ? AND timestamp <= ?"
            " ORDER BY timestamp DESC, rowid DESC LIMIT 1",
            (run_id, until),
        ).fetchone()
        return None if row is None else (_word(row[0]), _word(row[1]))

    def changes(
        self, run_id: str, step_ids: Sequence[str] | None = None
    ) -> dict[str, list[Change]]:
        """The file operations of each step, of all steps or of some."""
        query = (
            "SELECT step_id, file_path, operation_type, coalesce(lines_added, 0),"
            " coalesce(lines_removed, 0) FROM file_operations WHERE run_id = ?"
        )
        rows = self._of_steps(query, run_id, step_ids, " ORDER BY timestamp, rowid")
        changes: dict[str, list[Change]] = defaultdict(list)
        for step_id, path, *rest in rows:
            changes[_word(step_id)].append(Change(_word(path), *rest))
        return changes

    def change_times(self, run_id: str) -> list[tuple[int, str]]:
        """When files were seen to have changed, and the steps that changed them, in order."""
        rows = self._connection.execute(
            "SELECT DISTINCT timestamp, step_id FROM file_operations WHERE run_id = ?"
            " ORDER BY timestamp",
            (run_id,),
        )
        return [(at, _word(step_id)) for at, step_id in rows]

    def reads(self, run_id: str, step_ids: Sequence[str] | None = None) -> dict[str, int]:
        """How many different files each step read, of all steps or of some."""
        query = (
            "SELECT step_id, count(DISTINCT file_path) FROM file_reads"
            " WHERE run_id = ? AND kind = 'read'"
        )
        rows = self._of_steps(query, run_id, step_ids, " GROUP BY step_id")
        return {_word(step_id): count for step_id, count in rows}

    def commands(
        self, run_id: str, step_ids: Sequence[str] | None = None
    ) -> dict[str, list[Ended]]:
        """How the commands of each step ended, of all steps or of some."""
        query = (
            "SELECT step_id, command_line, exit_code, duration FROM command_runs WHERE run_id = ?"
        )
        found: dict[str, list[Ended]] = defaultdict(list)
        rows = list(self._of_steps(query, run_id, step_ids, " ORDER BY timestamp, rowid"))
        for step_id, line, *rest in rows:
            found[_word(step_id)].append(Ended(self._head(line) or "", *rest))
        return found

    def _of_steps(
        self, query: str, run_id: str, step_ids: Sequence[str] | None, end: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        if step_ids is None:
            yield from self._connection.execute(query + end, (run_id,))
            return
        for part in _parts(step_ids):
            where = f" AND step_id IN ({_marks(part)})"
            yield from self._connection.execute(query + where + end, (run_id, *map(bound, part)))

    # --- Tests ------------------------------------------------------------------------------

    def tested_steps(self, run_id: str) -> set[str]:
        """The steps that have test outcomes."""
        rows = self._connection.execute(
            "SELECT DISTINCT step_id FROM test_outcomes WHERE run_id = ?", (run_id,)
        )
        return {_word(step_id) for (step_id,) in rows}

    def failed_tests(self, run_id: str) -> list[str]:
        """The tests that failed at any time, those first that failed first."""
        rows = self._connection.execute(
            f"SELECT node_id FROM test_outcomes WHERE run_id = ? AND outcome IN ({_FAILED})"
            " GROUP BY node_id ORDER BY min(timestamp), min(rowid)",
            (run_id,),
        )
        return [_word(node_id) for (node_id,) in rows]

    def failing_kinds(self, run_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
        """How many steps each tool made, and how many failed; by type where none is named."""
        found: dict[str, tuple[int, int]] = {}
        for part in _parts(run_ids):
            rows = self._connection.execute(
                "SELECT coalesce(CASE WHEN typeof(metadata) = 'text' AND json_valid(metadata)"
                " THEN json_extract(metadata, '$.tool') END, step_type) AS kind,"
                " count(*), total(status = 'failed') FROM execution_steps"
                f" WHERE run_id IN ({_marks(part)}) GROUP BY kind",
                tuple(map(bound, part)),
            )
            for kind, steps, failed in rows:
                before = found.get(str(kind), (0, 0))
                found[str(kind)] = (before[0] + steps, before[1] + int(failed))
        return found

    def red_files(self, run_id: str) -> set[str]:
        """The files that were changed between a failure of a test and its last pass before it,
        or the beginning of the run."""
        changes = [
            (at, _word(path))
            for at, path in self._connection.execute(
                "SELECT timestamp, file_path FROM file_operations WHERE run_id = ?"
                " ORDER BY timestamp, rowid",
                (run_id,),
            )
        ]
        if not changes:
            return set()
        passed: dict[str, int] = {}
        spans: set[tuple[int, int]] = set()
        for at, node_id, outcome in self._connection.execute(
            "SELECT timestamp, node_id, outcome FROM test_outcomes WHERE run_id = ?"
            " ORDER BY timestamp, rowid",
            (run_id,),
        ):
            if outcome in FAILING:
                spans.add((passed.get(node_id, -1), at))
            elif outcome == TestResult.PASSED:
                passed[node_id] = at
        return {path for at, path in changes if any(a < at <= b for a, b in spans)}

    def last_outcomes(self, run_id: str) -> dict[str, str]:
        """What came of each test when it ran last, by node id in order of their first run."""
        rows = self._connection.execute(
            "SELECT step_id FROM test_outcomes WHERE run_id = ?"
            " GROUP BY step_id ORDER BY max(timestamp), max(rowid)",
            (run_id,),
        )
        found: dict[str, str] = {}
        for part in _parts([_word(step_id) for (step_id,) in rows]):
            results = _by_step(self._results(run_id, part))
            for step in part:
                found |= {result.node_id: result.outcome for result in results.get(step, ())}
        return found

    def tests(self, run_id: str, step_ids: Sequence[str]) -> dict[str, StepTests]:
        """What came of the tests of each of these steps."""
        found: dict[str, StepTests] = {}
        for part in _parts(step_ids):
            single = self._single_tests(run_id, part)
            found |= single
            again = [name for name, tests in single.items() if not tests.outcomes]
            for name, results in _by_step(self._results(run_id, again)).items():
                failing = [result for result in results if result.outcome in FAILING]
                states = [item.state_id for item in failing or results if item.state_id]
                found[name] = StepTests(
                    Counter(result.outcome for result in results),
                    tuple(result.node_id for result in failing),
                    states[0] if states else None,
                )
        return found

    def _single_tests(self, run_id: str, step_ids: Sequence[str]) -> dict[str, StepTests]:
        """As `tests`, counted by the database; no outcomes for a step that has some test twice."""
        where = f"run_id = ? AND step_id IN ({_marks(step_ids)}) AND outcome <> 'rerun'"
        values = (run_id, *map(bound, step_ids))
        repeated = dict(
            self._connection.execute(
                "SELECT step_id, count(*) - count(DISTINCT node_id) FROM test_outcomes"
                f" WHERE {where} GROUP BY step_id",
                values,
            ).fetchall()
        )
        counts: dict[str, dict[str, int]] = {_word(name): {} for name in repeated}
        states: dict[str, str] = {}
        for step_id, outcome, number, state_id in self._connection.execute(
            "SELECT step_id, outcome, count(*), min(state_id) FROM test_outcomes"
            f" WHERE {where} GROUP BY step_id, outcome",
            values,
        ):
            if not repeated[step_id]:
                counts[_word(step_id)][outcome] = number
            if state_id is not None and (outcome in FAILING or _word(step_id) not in states):
                states[_word(step_id)] = state_id
        failing: dict[str, list[str]] = defaultdict(list)
        for step_id, node_id in self._connection.execute(
            f"SELECT step_id, node_id FROM test_outcomes WHERE {where} AND outcome IN ({_FAILED})"
            " ORDER BY timestamp, rowid",
            values,
        ):
            failing[_word(step_id)].append(_word(node_id))
        return {
            name: StepTests(outcomes, tuple(failing.get(name, ())), states.get(name))
            for name, outcomes in counts.items()
        }

    def find(self, text: str, run_id: str, *, after: int, now: datetime) -> Iterator[Portion]:
        """The steps in which a query finds something, as `search.search_run`."""
        return search_run(self._connection, Query.of(text), run_id=run_id, after=after, now=now)

    def results(
        self,
        run_id: str,
        step_ids: Sequence[str],
        node_ids: Sequence[str],
        *,
        by_name: bool = False,
    ) -> list[Result]:
        """What came of these tests in these steps; looked up by the names of the tests rather
        than by the steps if that is said to be quicker."""
        found = []
        for steps in _parts(step_ids):
            for tests in _parts(node_ids):
                found += self._results(run_id, steps, tests, by_name=by_name)
        return found

    def state_of_tests(self, run_id: str, step_id: str) -> str | None:
        """A state that tests of the step ran on; None if none was told."""
        row = self._connection.execute(
            "SELECT state_id FROM test_outcomes WHERE run_id = ? AND step_id = ?"
            " AND state_id IS NOT NULL AND outcome <> 'rerun' LIMIT 1",
            (run_id, bound(step_id)),
        ).fetchone()
        return None if row is None else str(row[0])

    def outcomes(self, run_id: str, step_id: str) -> Counter[str]:
        """How many of the step's records of tests say what."""
        rows = self._connection.execute(
            "SELECT outcome, count(*) FROM test_outcomes WHERE run_id = ? AND step_id = ?"
            " GROUP BY outcome",
            (run_id, bound(step_id)),
        )
        return Counter(dict(rows.fetchall()))

    def values(self, key: str) -> list[str]:
        """All that a filter of a search on `key` can choose by, in order."""
        query = _VALUES[key]
        return [_word(value) for (value,) in self._connection.execute(query) if value]

    def _results(
        self,
        run_id: str,
        step_ids: Sequence[str],
        node_ids: Sequence[str] | None = None,
        *,
        by_name: bool = False,
    ) -> list[Result]:
        """Phases of one execution belong together: a new one begins with a phase that was there,
        or in another command."""
        # The plus keeps SQLite from one of the two indexes: that of steps, or that of tests.
        step, node = ("+", "") if by_name else ("", "+")
        tests = "" if node_ids is None else f" AND {node}node_id IN ({_marks(node_ids)})"
        rows = self._connection.execute(
            "SELECT step_id, node_id, phase, outcome, state_id, command_id, attempt"
            f" FROM test_outcomes WHERE run_id = ? AND {step}step_id IN ({_marks(step_ids)}){tests}"
            " AND outcome <> 'rerun' ORDER BY timestamp, rowid",
            (run_id, *map(bound, step_ids), *map(bound, node_ids or ())),
        )
        last: dict[tuple[Any, Any], tuple[Any, set[str], str, str | None]] = {}
        for step_id, node_id, phase, outcome, state_id, *execution in rows:
            before = last.get((step_id, node_id))
            if before is None or execution != before[0] or phase in before[1]:
                last[step_id, node_id] = (execution, {phase}, outcome, state_id)
                continue
            before[1].add(phase)
            if _weight(phase, outcome) > _weight("", before[2]):
                last[step_id, node_id] = (execution, before[1], outcome, state_id)
        return [
            Result(_word(step_id), _word(node_id), outcome, state_id)
            for (step_id, node_id), (_, _, outcome, state_id) in last.items()
        ]


_VALUES = {
    **{
        name: f"SELECT DISTINCT {name} FROM runs ORDER BY 1"
        for name in ("status", "outcome", "agent", "source")
    },
    "model": "SELECT DISTINCT value FROM runs, json_each(runs.models) ORDER BY 1",
    "tag": "SELECT DISTINCT tag FROM run_tags ORDER BY 1",
    "type": "SELECT DISTINCT step_type FROM execution_steps ORDER BY 1",
    "step": "SELECT DISTINCT status FROM execution_steps ORDER BY 1",
}
"""What gives all values of a filter of a search."""


def _by_step(results: Iterable[Result]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        found[result.step_id].append(result)
    return found


def _weight(phase: str, outcome: str) -> int:
    """Which of the outcomes of one execution speaks for it: a failure, else the test's own."""
    if outcome in FAILING:
        return 3
    if outcome != TestResult.PASSED:
        return 2
    return phase == "call"


def _tool(metadata: Any) -> str | None:
    """The tool that short metadata name."""
    if not isinstance(metadata, str | bytes):
        return None
    try:
        name = json.loads(metadata).get("tool")
    except (ValueError, AttributeError):
        return None
    return name if isinstance(name, str) else None


def _word(value: Any) -> Any:
    return decode(value) if isinstance(value, bytes) else value


def _marks(values: Sequence[Any]) -> str:
    return ",".join("?" * len(values))


def _parts[T](values: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), _MARKS):
        yield values[start : start + _MARKS]
