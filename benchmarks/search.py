"""What a search costs among 100,000 steps.

    .venv/bin/python benchmarks/search.py [--runs 100] [--steps 1000] [--rounds 5]

A temporary home gets so many runs of so many steps each: model calls, reads, edits, commands and
test runs in turn. Then whole processes of `runs search` are measured beside `runs list --limit 1`,
which starts and opens the same database.

To reach: every query within 50 ms of CPU of that peer.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import in_turn
from runs import CYCLE, Prose

from repotrace.journal import new_id
from repotrace.storage import Store

AGENTS = ("codex", "claude-code", "aider")
QUERIES = (
    "needle",
    "text",
    "text agent:nobody",
    "needle agent:codex",
    "text status:failed",
    '"text 77" -needle',
    "text type:edit",
    "type:edit",
    "type:edit file:src/package/module_7.py",
    "read:module_7.py agent:aider",
    "test:test_11 step:failed",
    "cost:>0.5 tokens:>10000 retries:>2",
    "-outcome:passed since:7d",
)


def events(run: str, steps: int, prose: Prose, chance: random.Random) -> Iterator[dict[str, Any]]:
    start = time.time_ns() - chance.randrange(30 * 86_400) * 1_000_000_000

    def event(kind: str, **data: Any) -> dict[str, Any]:
        return {"id": new_id(), "run": run, "kind": kind, "time": start, "data": data}

    yield event("run_started", task="Repair what is broken", agent=chance.choice(AGENTS))
    for number in range(steps):
        start += 1_000_000_000
        kind = CYCLE[number % len(CYCLE)]
        name = f"{run}-{number}"
        needle = " needle" if chance.random() < 0.001 else ""
        said = f"{kind} {number}"
        yield event("step_started", id=name, step_type=kind, description=said)
        if kind == "llm":
            used = {"input_tokens": 900, "output_tokens": 100, "cost_usd": "0.004"}
            answer = prose.text(400) + needle
            yield event("llm", step_id=name, model="a-model", response=answer, **used)
        elif kind in ("command", "test"):
            command = {"argv": ["pytest", "-q"], "stdout": prose.text(600) + needle}
            yield event("command", step_id=name, command=command, exit_code=0)
            for test in range(5 if kind == "test" else 0):
                outcome = "failed" if chance.random() < 0.1 else "passed"
                node = f"tests/test_{test}.py::test_{number % 40}"
                yield event("test", step_id=name, node_id=node, outcome=outcome)
        else:
            path = f"src/package/module_{number % 300}.py"
            what = "file_operation" if kind == "edit" else "file_read"
            more = {"operation_type": "edit"} if kind == "edit" else {}
            yield event(what, step_id=name, file_path=path, **more)
        status = "failed" if chance.random() < 0.05 else "completed"
        yield event("step_ended", id=name, status=status, output_result=prose.text(200))
    yield event("run_ended", status=chance.choice(["completed", "completed", "failed"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    prose, chance = Prose(), random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "home")
        for number in range(options.runs):
            store.runs.add_events(events(f"r{number:012x}", options.steps, prose, chance))
        store.runs.index()
        store.close()
        python = [sys.executable, "-m", "repotrace", "--home", str(store.home), "runs"]
        peer = [*python, "list", "--all-worktrees", "--limit", "1"]
        commands = {"runs list": peer} | {q: [*python, "search", q] for q in QUERIES}
        env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        figures = in_turn(commands, Path(folder), env, options.rounds)
    least = figures["runs list"].least_cpu
    print(f"{options.runs * options.steps} steps; runs list {least * 1000:.0f} ms of CPU")
    print(f"{'query':42} {'least CPU':>10} {'median':>8} {'above the peer':>15}")
    for query in QUERIES:
        taken = figures[query]
        above = (taken.least_cpu - least) * 1000
        said = "met" if above < 50 else "MISSED"
        median = statistics.median(taken.cpu) * 1000
        least_of = taken.least_cpu * 1000
        print(f"{query:42} {least_of:7.0f} ms {median:5.0f} ms {above:9.0f} ms {said}")


if __name__ == "__main__":
    main()
