"""The store of runs on real SQLite."""

from __future__ import annotations

import contextlib
import random
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from recording import RUN, at, event, step
from run_store_contract import RunStoreContract, a_run
from storing import in_processes

from repotrace.errors import NewerSchema
from repotrace.journal import new_id
from repotrace.records.events import Event
from repotrace.storage import Store
from repotrace.storage.runs import RunStore
from repotrace.storage.texts import compress, to_json


class TestSqlite(RunStoreContract):
    @pytest.fixture
    def runs(self, tmp_path: Path) -> RunStore:
        return RunStore(tmp_path / "home")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def rows(store: Store, query: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(store.home / "runs.db")) as connection:
        return connection.execute(query).fetchall()


def test_tables_have_the_specified_names_and_columns(store: Store) -> None:
    store.runs.add_events(a_run())
    columns = {
        table: {row[1] for row in rows(store, f"PRAGMA table_info({table})")}
        for table in ("execution_steps", "llm_interactions", "file_operations", "runs")
    }
    assert columns["execution_steps"] >= {
        *("id", "run_id", "step_number", "step_type", "description", "started_at"),
        *("completed_at", "status", "input_context", "output_result", "metadata"),
    }
    assert columns["llm_interactions"] >= {
        *("id", "run_id", "step_id", "prompt", "response", "model", "tokens_used", "timestamp"),
        "purpose",
    }
    assert columns["file_operations"] >= {
        *("id", "run_id", "step_id", "operation_type", "file_path", "timestamp"),
    }
    assert {"id", "task_id", "status", "started_at", "completed_at"} <= columns["runs"]
    plan = rows(
        store,
        "EXPLAIN QUERY PLAN SELECT * FROM execution_steps"
        " WHERE run_id = 'r' AND step_number BETWEEN 3 AND 5",
    )
    assert "execution_steps_by_number (run_id=? AND step_number>? AND step_number<?)" in str(plan)


def test_long_texts_are_kept_once_and_compressed(store: Store) -> None:
    text = "the same long text " * 2000
    store.runs.add_events(
        item for n in range(20) for item in step(f"s{n}", n, n + 1, input_context=text)
    )
    ((length,),) = rows(store, "SELECT length FROM texts")
    ((data,),) = rows(store, "SELECT data FROM blocks")
    assert length == len(text)
    assert isinstance(data, bytes)
    assert len(data) < 200
    assert {item.input_context for item in store.runs.steps(RUN)} == {text}


def test_a_growing_conversation_takes_three_times_its_last_call(store: Store) -> None:
    """200 calls up to 100,000 tokens, of which one is about four letters."""
    words = (Path(sys.prefix) / "lib").rglob("*.py")
    source = "".join(
        path.read_text(errors="replace") for path, _ in zip(sorted(words), range(80), strict=False)
    )
    pick = random.Random(7)
    talk: list[dict[str, object]] = [{"role": "system", "content": source[:8000]}]
    events: list[Event] = [event("run_started", 0)]
    for call in range(200):
        talk.append(
            {"role": "user", "content": source[pick.randrange(len(source) - 1500) :][:1500]}
        )
        step_id = new_id(at(call))
        events += step(step_id, call, call + 0.5, step_type="llm", description="chat")
        call_id = new_id(at(call))
        events.append(
            event("llm", call, id=call_id, step_id=step_id, model="m", messages=list(talk),
                  input_tokens=500 * call, output_tokens=100, response="next")
        )  # fmt: skip
        talk.append({"role": "assistant", "content": f"next, number {call}"})
    store.runs.add_events(events)
    last = store.runs.interactions(RUN)[-1].messages
    assert last == tuple(talk[:-1])
    assert 280_000 < sum(len(str(message["content"])) for message in last) < 400_000
    empty = Store(store.home / "empty")
    empty.runs.add_events([event("run_started", 0)])
    taken = size_without_index(store) - size_without_index(empty)
    whole = len(compress(to_json(list(last)).encode()))
    assert taken <= 3 * whole, (taken, whole)


def test_a_record_loads_its_texts_when_they_are_read(store: Store) -> None:
    store.runs.add_events(step("s1", 1, 2, input_context="x" * 9000, output_result="short"))
    found = store.runs.step(RUN, 1)
    assert "input_context" not in repr(found)
    store.runs.delete(RUN)
    assert found.output_result == "short"
    assert found.input_context is None


def test_records_are_usable_in_a_child(store: Store) -> None:
    store.runs.add_events(step("s1", 1, 2, input_context="x" * 9000))
    assert store.runs.step(RUN, 1).input_context == "x" * 9000
    found = store.runs.step(RUN, 1)
    assert in_processes(3, lambda _: len(found.input_context or "")) == [9000] * 3


def test_a_newer_database_is_refused(store: Store) -> None:
    store.runs.add_events(a_run())
    connection = sqlite3.connect(store.home / "runs.db")
    connection.execute("INSERT INTO schema_version VALUES (99, 'now', '9.9')")
    connection.commit()
    connection.close()
    with pytest.raises(NewerSchema):
        store.runs.list()
    with pytest.raises(NewerSchema):
        store.runs.add_events(a_run())


def test_what_an_exception_of_the_source_left_is_whole(store: Store) -> None:
    def broken() -> list[Event]:
        raise KeyError("source")

    def source() -> object:
        yield from (item for n in range(3000) for item in step(f"s{n}", n, n + 1))
        yield broken()

    with pytest.raises(KeyError):
        store.runs.add_events(source())  # type: ignore[arg-type]
    assert store.runs.get(RUN).totals.steps == len(store.runs.steps(RUN)) > 0


def test_the_store_imports_the_records_of_runs_only_when_asked(tmp_path: Path) -> None:
    script = (
        "import sys; from repotrace.storage import Store; s = Store(sys.argv[1]); s.history;"
        "print('repotrace.records.run' in sys.modules); s.runs;"
        "print('repotrace.records.run' in sys.modules, 'sqlite3' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\nTrue False\n"


def spent() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def size_without_index(store: Store) -> int:
    copy = store.home / "copy.db"
    with contextlib.closing(sqlite3.connect(store.home / "runs.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    with contextlib.closing(sqlite3.connect(copy)) as connection:
        for table in ("documents", "text_index"):
            connection.execute(f"DROP TABLE {table}")
        connection.commit()
        connection.execute("VACUUM")
    return copy.stat().st_size


@pytest.mark.slow
def test_a_gigabyte_of_texts_does_not_slow_reading(store: Store) -> None:
    """10,000 steps. Twice the wanted times are allowed for, on a busy machine."""
    pick = random.Random(3)
    noise = pick.randbytes(2_000_000).hex()

    def story() -> object:
        for number in range(10_000):
            begin = pick.randrange(len(noise) - 50_010)
            yield from step(
                f"s{number}",
                number,
                number + 1,
                input_context=noise[begin : begin + 50_000],
                output_result=noise[begin + 9 : begin + 50_009],
            )

    store.runs.add_events(story())  # type: ignore[arg-type]
    assert sum(row[0] for row in rows(store, "SELECT sum(length) FROM texts")) > 950_000_000  # type: ignore[misc]
    start = spent()
    assert store.runs.list()[0].totals.steps == 10_000
    listed = spent() - start
    start = spent()
    assert len(store.runs.step(RUN, 7777).input_context or "") == 50_000
    read = spent() - start
    start = spent()
    assert len(store.runs.steps(RUN)) == 10_000
    paged = spent() - start
    assert listed < 0.1
    assert read < 0.1
    assert paged < 0.6
