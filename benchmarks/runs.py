"""What it takes to read a very long run back, and to take it in.

    .venv/bin/python benchmarks/runs.py [--steps 10000] [--bytes 1000000000] [--rounds 5]

A temporary home (some GB, removed afterwards) gets one run: model calls, reads, edits, commands
and test runs in turn, with texts of which no two are alike, written to the journal as a recording
process does and taken in as it grows. Then whole processes of the command line are measured.

To reach, at 10,000 steps and 1 GB of texts: `runs list` and `runs show` under 0.5 s of CPU,
`play --step` under 0.3 s. And a conversation of 200 calls that grows to 100,000 tokens takes at
most three times what its last call takes when compressed, the text index apart.
"""

from __future__ import annotations

import argparse
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measure import in_turn

from repotrace.journal import Journal, new_id
from repotrace.records.events import Kind
from repotrace.storage import Store
from repotrace.storage.texts import compress, to_json

RUN = "rbe7c4a9d0001"
TESTS = 40
"""Outcomes of each test run."""
PORTION = 500
"""Steps that are written between two times that the journal is read."""
CYCLE = ("llm", "tool", "tool", "edit", "command", "llm", "edit", "test")


class Prose:
    """Texts that compress about as well as code and output do, no two alike."""

    def __init__(self) -> None:
        self._chance = random.Random(11)
        letters = "etaoinshrdlcumwfgypbvk"
        words = ["".join(self._chance.choices(letters, k=n % 9 + 2)) for n in range(30_000)]
        self._lines = [
            " " * self._chance.choice((0, 4, 8)) + " ".join(self._chance.choices(words, k=9)) + "\n"
            for _ in range(60_000)
        ]
        self._count = 0

    def text(self, size: int) -> str:
        """About `size` characters."""
        self._count += 1
        lines = self._chance.choices(self._lines, k=max(size // 65, 1))
        return f"text {self._count}\n" + "".join(lines)


# --- The long run -------------------------------------------------------------------------


def step(journal: Journal, prose: Prose, number: int, size: int) -> None:
    """One step with `size` characters of text in all."""
    kind = CYCLE[number % len(CYCLE)]
    name = new_id()
    begun: dict[str, Any] = {"id": name, "step_type": kind, "description": f"{kind} {number}"}
    ended: dict[str, Any] = {"id": name}
    if kind == "llm":
        call = {"step_id": name, "model": "a-model", "input_tokens": 900, "output_tokens": 100}
        call |= {"prompt": prose.text(size // 2), "response": prose.text(size // 2)}
        journal.write(Kind.STEP_STARTED, RUN, begun)
        journal.write(Kind.LLM, RUN, call)
    elif kind in ("command", "test"):
        journal.write(Kind.STEP_STARTED, RUN, begun)
        command = {"argv": ["pytest", "-q", f"tests/test_{number % 90}.py"]}
        command |= {"stdout": prose.text(size)}
        journal.write(Kind.COMMAND, RUN, {"step_id": name, "command": command, "exit_code": 0})
        for test in range(TESTS if kind == "test" else 0):
            failed = (number // 8 + test) % 17 == 0
            journal.write(
                Kind.TEST,
                RUN,
                {
                    "step_id": name,
                    "node_id": f"tests/test_{test % 10}.py::test_{test}",
                    "outcome": "failed" if failed else "passed",
                    "message": "AssertionError: assert 1 == 2" if failed else None,
                },
            )
    else:
        begun["input_context"] = prose.text(size // 2)
        ended["output_result"] = prose.text(size // 2)
        journal.write(Kind.STEP_STARTED, RUN, begun)
        path = f"src/package/module_{number % 300}.py"
        if kind == "edit":
            change = {"operation_type": "edit", "lines_added": 3, "lines_removed": 1}
            journal.write(Kind.FILE_OPERATION, RUN, {"step_id": name, "file_path": path} | change)
        else:
            journal.write(Kind.FILE_READ, RUN, {"step_id": name, "file_path": path})
    journal.write(Kind.STEP_ENDED, RUN, ended)


def fill(store: Store, workspace: Path, steps: int, size: int) -> None:
    """Make the run; print how fast it was taken in, and what it takes."""
    prose = Prose()
    reading = 0.0
    with Journal(store.home / "journal") as journal:
        facts = {"task": "Repair what is broken", "agent": "bench", "workspace": str(workspace)}
        journal.write(Kind.RUN_STARTED, RUN, facts)
        for first in range(0, steps, PORTION):
            for number in range(first, min(first + PORTION, steps)):
                step(journal, prose, number, size // steps)
            started = time.process_time()
            store.runs.ingest(wait=True)
            reading += time.process_time() - started
        journal.write(Kind.RUN_ENDED, RUN, {"status": "completed", "outcome": "passed"})
    store.runs.ingest(wait=True)
    disk = sum(path.stat().st_size for path in store.home.glob("runs.db*"))
    found = store.runs.get(RUN).totals
    print(f"{found.steps} steps, {size / 1e6:.0f} MB of texts: {disk / 1e6:.0f} MB on disk")
    print(f"taken in with {reading:.1f} s of CPU: {reading / steps * 1e6:.0f} µs a step, "
          f"{size / 1e6 / reading:.0f} MB/s")  # fmt: skip


def measure(home: Path, workspace: Path, steps: int, rounds: int) -> None:
    python = [sys.executable, "-m", "repotrace", "--home", str(home)]
    commands = {
        "--version": [sys.executable, "-m", "repotrace", "--version"],
        "runs list": [*python, "runs", "list"],
        "runs list --json": [*python, "runs", "list", "--json"],
        "runs show": [*python, "runs", "show"],
        "runs show --json": [*python, "runs", "show", "--json"],
        "runs show --all": [*python, "runs", "show", "--all"],
    }
    for number in (1, steps // 2, steps - steps % len(CYCLE)):
        commands[f"play --step {number}"] = [*python, "play", "--step", str(number)]
    shown = steps // len(CYCLE) * len(CYCLE) - 2
    commands[f"play --step {shown} --show-llm"] = [
        *python, "play", "--step", str(shown), "--show-llm",
    ]  # fmt: skip
    limits = {"runs list": 0.5, "runs show": 0.5, "play": 0.3}
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    figures = in_turn(commands, workspace, env, rounds)
    print(f"{'':30} {'least CPU':>10} {'median CPU':>11} {'median wall':>12}")
    for name, taken in figures.items():
        limit = next((limits[key] for key in limits if name.startswith(key)), None)
        if limit is None or name == "runs show --all":
            said = ""
        else:
            said = f"  < {limit} s: {'met' if taken.least_cpu < limit else 'MISSED'}"
        print(f"{name:30} {taken.least_cpu * 1000:7.0f} ms "
              f"{statistics.median(taken.cpu) * 1000:8.0f} ms "
              f"{taken.median_wall * 1000:9.0f} ms{said}")  # fmt: skip


# --- A conversation -----------------------------------------------------------------------


def talk(calls: int, characters: int) -> Iterator[list[dict[str, str]]]:
    """The messages of each call: all that was said so far."""
    prose = Prose()
    messages = [{"role": "system", "content": prose.text(8000)}]
    each = (characters - 8000) // calls
    for number in range(calls):
        messages.append({"role": "user", "content": prose.text(each - 200)})
        yield list(messages)
        messages.append({"role": "assistant", "content": f"{number}: {prose.text(150)}"})


def conversation(store: Store) -> None:
    """What 200 calls that grow to 100,000 tokens (of four letters) take."""
    messages: list[dict[str, str]] = []
    events: list[dict[str, Any]] = [event("run_started", {})]
    store.runs.add_events(events)
    before = size_without_index(store)
    events = []
    for messages in talk(200, 400_000):
        name = new_id()
        events.append(event("step_started", {"id": name, "step_type": "llm"}))
        events.append(event("llm", {"step_id": name, "model": "m", "messages": messages}))
        events.append(event("step_ended", {"id": name}))
    store.runs.add_events(events)
    taken = size_without_index(store) - before
    last = len(compress(to_json(messages).encode()))
    said = "met" if taken <= 3 * last else "MISSED"
    print(f"200 calls take {taken / 1000:.0f} kB, the last one compressed {last / 1000:.0f} kB: "
          f"{taken / last:.2f}, to reach 3: {said}")  # fmt: skip


def event(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    return {"id": new_id(), "run": RUN, "kind": kind, "time": time.time_ns(), "data": data}


def size_without_index(store: Store) -> int:
    with sqlite3.connect(store.home / "runs.db") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        query = "SELECT sum(pgsize) FROM dbstat WHERE name NOT LIKE 'text_index%'"
        return int(database.execute(query).fetchone()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="of all texts together")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        conversation(Store(Path(folder) / "other"))
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        home = Path(folder) / "home"
        fill(Store(home), workspace, options.steps, options.bytes)
        measure(home, workspace, options.steps, options.rounds)


if __name__ == "__main__":
    main()
