"""Sums over a run, worked out anew when its rows have changed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from repotrace.records.run import FAILING, RunOutcome, RunTotals, TestResult
from repotrace.storage import alerts
from repotrace.storage.texts import to_json

if TYPE_CHECKING:
    import sqlite3

_TOKENS = (
    "tokens_used",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def renew(connection: sqlite3.Connection, run_id: str) -> None:
    """Write the totals, the models and, unless a writer gave it, the outcome of a run.

    It is to be looked over for alerts again, too.
    """
    totals = _totals(connection, run_id)
    row = connection.execute("SELECT models FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        return
    called = connection.execute(
        "SELECT model FROM llm_interactions WHERE run_id = ? AND model <> ''"
        " GROUP BY model ORDER BY min(timestamp), min(rowid)",
        (run_id,),
    )
    models = dict.fromkeys([name for (name,) in called if isinstance(name, str)])
    models |= dict.fromkeys(json.loads(row[0]))
    if totals.tests_failing:
        outcome = RunOutcome.FAILED
    elif totals.tests:
        outcome = RunOutcome.PASSED
    else:
        outcome = RunOutcome.NOT_RUN
    connection.execute(
        "UPDATE runs SET totals = ?, models = ?,"
        " outcome = CASE WHEN outcome_given THEN outcome ELSE ? END WHERE id = ?",
        (totals.model_dump_json(exclude_defaults=True), to_json(list(models)), outcome, run_id),
    )
    alerts.changed(connection, run_id)


def _totals(connection: sqlite3.Connection, run_id: str) -> RunTotals:
    def one(query: str) -> tuple[Any, ...]:
        row: tuple[Any, ...] = connection.execute(query, {"run": run_id}).fetchone()
        return row

    steps, failed, retries = one(
        "SELECT count(*), total(status = 'failed'), total(attempt > 1)"
        " FROM execution_steps WHERE run_id = :run"
    )
    calls, *tokens = one(
        f"SELECT count(*), {', '.join(f'coalesce(sum({name}), 0)' for name in _TOKENS)}"
        " FROM llm_interactions WHERE run_id = :run"
    )
    costs = connection.execute(
        "SELECT cost_usd FROM llm_interactions WHERE run_id = ? AND cost_usd IS NOT NULL",
        (run_id,),
    )
    modified, added, removed = one(
        "SELECT count(DISTINCT file_path), coalesce(sum(lines_added), 0),"
        " coalesce(sum(lines_removed), 0) FROM file_operations WHERE run_id = :run"
    )
    outcomes = _last_outcomes(connection, run_id)
    return RunTotals(
        steps=steps,
        failed_steps=int(failed),
        retries=int(retries),
        llm_calls=calls,
        **dict(zip(_TOKENS, tokens, strict=True)),
        cost_usd=sum((Decimal(cost) for (cost,) in costs), Decimal(0)),
        unpriced_calls=one(
            "SELECT count(*) FROM llm_interactions WHERE run_id = :run AND cost_usd IS NULL"
        )[0],
        files_read=one(
            "SELECT count(DISTINCT file_path) FROM file_reads WHERE run_id = :run AND kind = 'read'"
        )[0],
        files_modified=modified,
        lines_added=added,
        lines_removed=removed,
        commands=one("SELECT count(*) FROM command_runs WHERE run_id = :run")[0],
        test_runs=one("SELECT count(DISTINCT step_id) FROM test_outcomes WHERE run_id = :run")[0],
        tests=len(outcomes),
        tests_failing=sum(failing for failing in outcomes.values()),
        lost=one("SELECT coalesce(sum(count), 0) FROM losses WHERE run_id = :run")[0],
    )


def _last_outcomes(connection: sqlite3.Connection, run_id: str) -> dict[Any, bool]:
    """Whether each test failed when it ran last, in any of its phases.

    Phases of one execution belong together: a new one begins with the same phase, or with an
    earlier one, or in another step or command.
    """
    rows = connection.execute(
        "SELECT node_id, phase, outcome, step_id, command_id, attempt FROM test_outcomes"
        " WHERE run_id = ? ORDER BY timestamp, rowid",
        (run_id,),
    )
    seen: dict[Any, tuple[Any, set[str]]] = {}
    failing: dict[Any, bool] = {}
    for node_id, phase, outcome, *execution in rows:
        if outcome == TestResult.RERUN:
            continue
        last, phases = seen.get(node_id, (None, set()))
        if execution != last or phase in phases:
            phases = set()
            failing[node_id] = False
        phases.add(phase)
        seen[node_id] = (execution, phases)
        failing[node_id] |= outcome in FAILING
    return failing
