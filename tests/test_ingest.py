"""The journal is read into the store: real processes, killed at any moment."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from recording import RUN, event, step
from storing import in_processes

from repotrace.journal import Journal, new_id
from repotrace.records.events import Event
from repotrace.redact import Redactor
from repotrace.storage import Store
from repotrace.storage.runs import RunStore

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    return Store(tmp_path / "home").runs


def put(runs: RunStore, name: str, *events: Event | bytes, writer: object = None) -> Path:
    """A journal file of a writer that is not a process of this test."""
    runs.journal.mkdir(parents=True, exist_ok=True)
    path = runs.journal / f"{name}.jsonl"
    if not path.exists():
        path.write_text(
            json.dumps({"id": name, "kind": "writer", "time": 0, "data": writer or {}}) + "\n"
        )
    with path.open("ab") as file:
        for item in events:
            file.write(item if isinstance(item, bytes) else json.dumps(item).encode() + b"\n")
    return path


def files(runs: RunStore) -> list[str]:
    return sorted(path.name for path in runs.journal.iterdir())


LIVING = {"pid": os.getpid()}

# --- Lines ----------------------------------------------------------------------------------


def test_what_a_living_writer_wrote_is_there_and_its_file_stays(runs: RunStore) -> None:
    assert runs.ingest().events == 0
    assert not runs.home.exists()
    journal = Journal(runs.journal)
    journal.write("run_started", RUN, {"task": "Fix it"})
    assert runs.ingest().events == 1
    journal.write("step_started", RUN, {"id": "s1", "description": "edit"})
    assert runs.ingest().events == 1
    assert runs.ingest().events == 0
    assert runs.step(RUN, 1).status == "started"
    assert runs.get().status == "running"
    assert len(files(runs)) == 1
    journal.write("step_ended", RUN, {"id": "s1"})
    journal.write("run_ended", RUN, {})
    journal.close()
    done = runs.ingest()
    assert (done.events, done.interrupted, files(runs)) == (2, 0, [])
    assert (runs.step(RUN, 1).status, runs.get().status) == ("completed", "completed")


def test_the_order_of_files_does_not_matter(runs: RunStore) -> None:
    put(runs, "a", event("step_started", 3, id="third"), event("step_started", 4, id="fourth"))
    put(runs, "b", event("step_started", 1, id="first"), event("step_started", 5, id="fifth"))
    put(runs, "c", event("step_started", 2, id="second"))
    runs.ingest()
    assert [item.id for item in runs.steps(RUN)] == ["first", "second", "third", "fourth", "fifth"]


def test_a_torn_last_line_waits(runs: RunStore) -> None:
    whole = json.dumps(event("log", message="whole")).encode() + b"\n"
    put(runs, "a", whole[:40], writer=LIVING)
    done = runs.ingest()
    assert (done.events, done.unusable) == (0, 0)
    put(runs, "a", whole[40:])
    assert runs.ingest().events == 1
    assert [entry.message for entry in runs.logs(RUN)] == ["whole"]


def test_a_torn_last_line_of_a_dead_writer_is_counted(runs: RunStore) -> None:
    put(runs, "a", event("run_started"), b'{"id": "x", "kind')
    done = runs.ingest()
    assert (done.events, done.unusable, files(runs)) == (1, 1, [])
    assert runs.losses() == 1


def test_garbage_is_counted_and_passed_over(runs: RunStore) -> None:
    garbage = [
        b"garbage\n",
        b'{"run": "r0123456789ab", "kind": "log", "data"\n',
        b"\n",
        b"[1, 2]\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        json.dumps(event("test", outcome="passed")).encode() + b"\n",
    ]
    put(runs, "a", event("run_started"), *garbage, event("log", message="after"), event("odd"))
    done = runs.ingest()
    assert (done.events, done.unusable, done.unknown) == (2, 6, 1)
    assert [entry.message for entry in runs.logs(RUN)] == ["after"]
    assert runs.losses(RUN) == runs.get(RUN).totals.lost == 2
    assert runs.losses() == 4


def test_losses_that_a_writer_tells_of_belong_to_the_run(runs: RunStore) -> None:
    put(runs, "a", event("run_started"), event("lost", count=7, reason="disk full"))
    runs.ingest()
    assert runs.get(RUN).totals.lost == 7


def test_a_line_of_a_megabyte_and_lines_across_chunks(runs: RunStore) -> None:
    texts = [str(number) * (300_000 + number) for number in range(1, 9)]
    put(runs, "a", *(event("log", number, message=text) for number, text in enumerate(texts)))
    assert runs.ingest().events == 8
    assert [entry.message for entry in runs.logs(RUN)] == texts


def test_reading_twice_is_reading_once(runs: RunStore) -> None:
    path = put(runs, "a", event("run_started"), *step("s1", 1, 2), event("log", message="m"))
    copied = path.read_bytes()
    runs.ingest()
    before = runs.trace(RUN).model_dump()
    (runs.journal / "copy.jsonl").write_bytes(copied)
    assert runs.ingest().events == 4
    assert runs.trace(RUN).model_dump() == before


def test_a_file_that_could_not_be_removed_is_not_read_again(runs: RunStore) -> None:
    put(runs, "a", event("run_started"), event("log", message="m"))
    content = (runs.journal / "a.jsonl").read_bytes()
    runs.ingest()
    runs.delete(RUN)
    (runs.journal / "a.jsonl").write_bytes(content)
    assert runs.ingest().events == 0
    assert (runs.list(), files(runs)) == ([], [])


def test_another_folder_is_read_when_asked(runs: RunStore, tmp_path: Path) -> None:
    Journal(tmp_path / "sandbox").write("run_started", RUN, {})
    assert runs.ingest().events == 0
    assert runs.ingest(tmp_path / "sandbox").events == 1


def test_what_its_writer_could_not_redact_is_redacted(runs: RunStore) -> None:
    raw = event("test", node_id="t", outcome="failed", details=f"token {SECRET}")
    raw["raw"] = True
    put(runs, "a", raw)
    runs.ingest()
    assert (runs.tests(RUN)[0].details or "").startswith("token [REDACTED:")
    assert SECRET.encode() not in (runs.home / "runs.db").read_bytes()


def test_a_broken_database_is_told_of_and_loses_nothing(runs: RunStore) -> None:
    put(runs, "a", event("run_started"))
    (runs.home / "runs.db").write_bytes(b"not a database" * 100)
    assert "is damaged" in (runs.ingest().problem or "")
    (runs.home / "runs.db").unlink()
    assert runs.ingest().events == 1


# --- Several readers ------------------------------------------------------------------------


def test_readers_do_not_wait_for_each_other_and_nothing_comes_twice(runs: RunStore) -> None:
    for name in "abcd":
        events = [item for n in range(200) for item in step(f"{name}{n}", n, n + 1)]
        put(runs, name, event("run_started"), *events)

    def read(number: int) -> tuple[int, bool]:
        done = runs.ingest()
        return done.events, done.busy

    results = in_processes(6, read)
    assert sum(events for events, _ in results) == 4 * 401
    numbers = [item.step_number for item in runs.steps(RUN)]
    assert numbers == list(range(1, 801))


def test_a_reader_that_died_halfway_is_made_good(runs: RunStore, tmp_path: Path) -> None:
    events = [item for n in range(6000) for item in step(f"s{n}", n, n + 0.5)]
    put(runs, "a", event("run_started"), *events)
    code = (
        "import sys; from pathlib import Path; from repotrace.storage.runs import RunStore;"
        "RunStore(Path(sys.argv[1])).ingest()"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(runs.home)])
    deadline = time.monotonic() + 30
    while not (runs.home / "runs.db").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.15)
    process.kill()
    process.wait()
    runs.ingest(wait=True)
    found = runs.steps(RUN)
    assert [item.id for item in found] == [f"s{n}" for n in range(6000)]
    assert runs.get(RUN).totals.steps == 6000


# --- Processes that die ---------------------------------------------------------------------

PROGRAM = textwrap.dedent("""
    import itertools, os, sys
    from repotrace.journal import Journal, new_id
    journal = Journal(sys.argv[1])
    run = sys.argv[2]
    journal.write("run_started", run, {"source": "test"})
    for number in itertools.count():
        name = new_id()
        journal.write("step_started", run, {"id": name, "description": str(number)})
        os.write(1, b"s")
        journal.write("step_ended", run, {"id": name, "output_result": "x" * 300})
        os.write(1, b"e")
    """)


def kill_at_random(home: Path, seed: int) -> None:
    """Start a program, kill it at a random moment, and see that nothing is missing."""
    runs = RunStore(home)
    run = f"r{seed:012x}"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(runs.journal), run], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    said = process.stdout.read(1)
    time.sleep(random.Random(seed).random() * 0.05)
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read()
    process.wait()
    process.stdout.close()
    done = runs.ingest(wait=True)
    assert done.problem is None
    statuses = [item.status for item in runs.steps(run)]
    started, ended = said.count(b"s"), said.count(b"e")
    # The kill may fall between a write and the program's word of it.
    assert statuses.count("completed") in (ended, ended + 1)
    assert len(statuses) in (started, started + 1)
    assert set(statuses[:-1]) <= {"completed"}
    assert statuses[-1] in ("completed", "interrupted")
    assert runs.get(run).status == "interrupted"
    assert list(runs.journal.iterdir()) == []


def test_a_killed_program_keeps_all_that_it_did(tmp_path: Path) -> None:
    for seed in range(15):
        kill_at_random(tmp_path / "home", seed)


@pytest.mark.slow
def test_a_program_killed_at_200_moments_keeps_all_that_it_did(tmp_path: Path) -> None:
    for seed in range(200):
        kill_at_random(tmp_path / f"home{seed // 20}", 1000 + seed)


def write_steps(folder: Path, process: int, count: int) -> int:
    journal = Journal(folder)
    with ThreadPoolExecutor(4) as pool:

        def work(number: int) -> None:
            name = new_id()
            data = {"id": name, "description": f"{process}-{number}"}
            journal.write("step_started", RUN, data)
            journal.write("log", RUN, {"step_id": name, "message": "working"})
            journal.write("step_ended", RUN, {"id": name})

        list(pool.map(work, range(count)))
    return journal.lost


def several_processes(runs: RunStore, processes: int, count: int) -> None:
    """Processes write into one run; it is read while they do."""
    assert in_processes(
        processes + 1,
        lambda number: (
            write_steps(runs.journal, number, count)
            if number < processes
            else sum(runs.ingest().events * 0 for _ in range(10))
        ),
    ) == [0] * (processes + 1)
    done = runs.ingest(wait=True)
    assert (done.unusable, done.problem) == (0, None)
    found = runs.steps(RUN)
    assert [item.step_number for item in found] == list(range(1, processes * count + 1))
    assert {item.description for item in found} == {
        f"{process}-{number}" for process in range(processes) for number in range(count)
    }
    assert {item.status for item in found} == {"completed"}
    assert len(runs.logs(RUN)) == processes * count
    assert files(runs) == []


def test_four_processes_write_into_one_run(runs: RunStore) -> None:
    several_processes(runs, 4, 100)


@pytest.mark.slow
def test_eight_processes_write_500_steps_each_into_one_run(runs: RunStore) -> None:
    several_processes(runs, 8, 500)


def test_a_step_ended_by_another_process_is_not_interrupted(runs: RunStore) -> None:
    put(runs, "a", event("run_started"), event("step_started", 1, id="s1"))
    put(runs, "b", event("step_ended", 2, id="s1"), event("run_ended", 3))
    assert runs.ingest().interrupted == 0
    assert runs.step(RUN, 1).status == "completed"
    put(runs, "c", event("step_started", 4, id="s2"))
    assert runs.ingest().interrupted == 1
    assert runs.step(RUN, 2).status == "interrupted"
    put(runs, "d", event("step_ended", 5, id="s2"))
    runs.ingest()
    assert runs.step(RUN, 2).status == "completed"


@pytest.mark.parametrize(
    ("writer", "is_over"),
    [
        (LIVING, False),
        ({"pid": os.getpid(), "pid_started": 1}, True),
        ({"pid": os.getpid(), "boot": "another"}, True),
        ({"pid": 4_194_303}, True),
        ({"pid": os.getpid(), "pid_namespace": "pid:[1]"}, True),
        ({"pid": "odd"}, True),
    ],
)
def test_a_writer_lives_by_its_lock_or_its_process(
    runs: RunStore, writer: dict[str, object], is_over: bool
) -> None:
    path = put(runs, "a", event("step_started", id="s1"), writer=writer)
    with path.open("rb") as held:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_SH)
        assert runs.ingest().interrupted == 0
    done = runs.ingest()
    assert (done.interrupted, files(runs)) == ((1, []) if is_over else (0, ["a.jsonl"]))


def test_a_nameless_file_is_over_after_a_while(runs: RunStore) -> None:
    path = put(runs, "a")
    path.write_text(json.dumps(event("step_started", id="s1")) + "\n")
    assert runs.ingest().interrupted == 0
    os.utime(path, (time.time() - 120, time.time() - 120))
    assert runs.ingest().interrupted == 1
    assert files(runs) == []


def test_no_secret_reaches_the_database(runs: RunStore) -> None:
    redactor = Redactor(key=b"k" * 32, variables={"MY_API_KEY": "correct-horse-battery-staple"})
    journal = Journal(runs.journal, redact=redactor.redact)
    planted = f"{SECRET} and correct-horse-battery-staple\n"
    journal.write("run_started", RUN, {"task": planted, "attributes": {"env": planted}})
    journal.write("step_started", RUN, {"id": "s1", "input_context": planted * 100})
    journal.write("llm", RUN, {"step_id": "s1", "messages": [{"role": "user", "content": planted}],
                               "response": planted})  # fmt: skip
    journal.write("command", RUN, {"step_id": "s1", "command": {"argv": ["x", planted],
                                                                "stdout": planted}})  # fmt: skip
    journal.write("log", RUN, {"step_id": "s1", "message": planted, "data": {"x": [planted]}})
    raw = b"".join(path.read_bytes() for path in runs.journal.iterdir())
    runs.ingest()
    shown = runs.trace(RUN).model_dump_json()
    for secret in (SECRET, "correct-horse-battery-staple"):
        assert secret.encode() not in raw
        assert secret not in shown
        for path in runs.home.glob("runs.db*"):
            assert secret.encode() not in path.read_bytes()
    assert shown.count("[REDACTED:") > 200
