"""A journal file that several short processes share, as the hooks of one agent do."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from repotrace.journal import Journal, writer_facts
from repotrace.storage import Store


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_one_file_takes_what_several_write(tmp_path: Path) -> None:
    speaker = writer_facts()
    for number in range(3):
        with Journal(tmp_path, name="shared", writer=speaker) as journal:
            journal.open()
            assert journal.began == (number == 0)
            journal.write("log", "r1", {"message": str(number)})
    (path,) = tmp_path.iterdir()
    assert path.name == "shared.jsonl"
    assert [line["kind"] for line in lines(path)] == ["writer", "log", "log", "log"]
    assert lines(path)[0]["data"] == speaker
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_by_a_kill_costs_that_line_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Journal(home / "journal", name="shared") as journal:
        journal.write("log", "r1", {"message": "one"})
    (path,) = (home / "journal").iterdir()
    with path.open("ab") as file:
        file.write(b'{"id": "torn", "kind": "lo')
    with Journal(home / "journal", name="shared") as journal:
        journal.write("log", "r1", {"message": "two"})
    store = Store(home)
    done = store.runs.ingest(wait=True)
    assert done.unusable == 1
    assert [log.message for log in store.runs.logs("r1")] == ["one", "two"]
    store.close()


def test_nobody_waits_for_a_reader(tmp_path: Path) -> None:
    """A reader holds the file while it looks whether it is over; then there is another file."""
    with Journal(tmp_path, name="shared") as journal:
        journal.write("log", "r1", {"message": "one"})
    with (tmp_path / "shared.jsonl").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with Journal(tmp_path, name="shared", writer=writer_facts()) as journal:
            journal.write("log", "r1", {"message": "two"})
            assert not journal.began
    found = sorted(tmp_path.iterdir(), key=lambda path: path.name == "shared.jsonl")
    assert [line["kind"] for line in lines(found[0])] == ["writer", "log"]


def test_the_file_is_over_when_the_one_that_was_spoken_for_is_gone(tmp_path: Path) -> None:
    home, code = tmp_path / "home", "import sys; sys.stdin.read()"
    store = Store(home)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as agent:
        with Journal(home / "journal", name="shared", writer=writer_facts(agent.pid)) as journal:
            journal.write("run_started", "r1", {"source": "x"})
            journal.write("step_started", "r1", {"id": "s1", "step_type": "tool"})
        store.runs.ingest(wait=True)
        assert store.runs.get("r1").status == "running"
        agent.communicate()
    store.runs.ingest(wait=True)
    assert store.runs.get("r1").status == "interrupted"
    (step,) = store.runs.steps("r1")
    assert step.status == "interrupted"
    assert os.listdir(home / "journal") == []  # noqa: PTH208
    store.close()
