"""Sessions of OpenCode as runs: from its database, from files, and exported."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from importing import (
    FAILING,
    OPENCODE,
    OPENCODE_PART,
    RIGHT,
    SHARED,
    WRONG,
    calc_repository,
    check_end,
    imported_runs,
    invoice_repository,
)
from running import Shell

from repotrace.errors import ImportFailed
from repotrace.importers import detect, importer, is_transcript
from repotrace.records.events import Event, Kind
from repotrace.runs.transcripts.sessions import sessions_of, transcripts_in
from repotrace.storage import Store

FOLDER = Path("/home/somebody/calc")
SCHEMA = """
    CREATE TABLE session (
        id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, slug TEXT, directory TEXT,
        title TEXT, version TEXT, revert TEXT, time_created INTEGER, time_updated INTEGER
    );
    CREATE TABLE message (
        id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT
    );
    CREATE TABLE part (
        id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER,
        time_updated INTEGER, data TEXT
    );
"""


def events_of(path: Path) -> list[Event]:
    return list(importer("opencode").read(path))


def exports() -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in (OPENCODE, OPENCODE_PART)]


def database(path: Path, sessions: list[dict[str, Any]]) -> Path:
    """A database as OpenCode keeps it, with the sessions that were exported."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA)
        for session in sessions:
            info = session["info"]
            time = (info["time"]["created"], info["time"]["updated"])
            facts = (info["id"], "p", info.get("parentID"), info["slug"], info["directory"])
            more = (info["title"], info["version"], json.dumps(info.get("revert")), *time)
            connection.execute(f"INSERT INTO session VALUES ({'?, ' * 9}?)", facts + more)
            for message in session["messages"]:
                data = {k: v for k, v in message["info"].items() if k not in ("id", "sessionID")}
                moment = data["time"]["created"]
                row = (message["info"]["id"], info["id"], moment, moment, json.dumps(data))
                connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
                for part in message["parts"]:
                    owner = (part["id"], part["messageID"], part["sessionID"], moment, moment)
                    gone = ("id", "messageID", "sessionID")
                    told = json.dumps({k: v for k, v in part.items() if k not in gone})
                    connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", (*owner, told))
        connection.commit()
    return path


def files(folder: Path, sessions: list[dict[str, Any]]) -> Path:
    """The files in which OpenCode kept sessions before."""
    for session in sessions:
        info = session["info"]
        write(folder / "session" / info["projectID"] / f"{info['id']}.json", info)
        for message in session["messages"]:
            name = message["info"]["id"]
            write(folder / "message" / info["id"] / f"{name}.json", message["info"])
            for part in message["parts"]:
                write(folder / "part" / name / f"{part['id']}.json", part)
    return folder


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def test_an_exported_session(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, OPENCODE, repository)
    # `opencode run` puts quotes around the words.
    assert run.task == "add() in calc.py forgets its second argument. Fix it."
    assert (run.agent, run.status, run.outcome) == ("opencode", "completed", "passed")
    assert (run.agent_version, run.source_id) == ("1.18.33", exports()[0]["info"]["id"])
    assert run.started_at.isoformat() == "2026-03-01T12:20:00+00:00"
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "read calc.py"),
        ("tool", "completed", "read test_calc.py"),
        ("edit", "completed", "edit calc.py"),
        ("test", "failed", "python -m pytest -q"),
        ("edit", "completed", "edit calc.py"),
        ("command", "failed", "rm other"),
        ("decision", "completed", "The call was refused."),
        ("edit", "completed", "write NOTES"),
        ("tool", "completed", "task Look at it"),
        ("decision", "completed", "The conversation was compacted."),
        ("llm", "completed", "calc.py adds now; the tests are to be run."),
        ("unknown", "completed", "Unknown record: part novel"),
        ("test", "completed", "python -m pytest -q"),
        ("llm", "completed", "Fixed: add() adds."),
    ]
    assert [steps[n].reason for n in (0, 2, 3)] == ["I read both.", "I subtract.", "Now the tests."]
    assert steps[6].parent_id == steps[5].id
    assert steps[8].metadata["session"] == exports()[1]["info"]["id"]
    assert steps[12].retry_of == steps[3].id
    assert [c.exit_code for c in store.runs.commands(run.id)] == [1, 0]
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode(), RIGHT.encode()),
    ]
    assert store.snapshots.read(states[-1], "NOTES") == b"fixed\n"
    assert store.snapshots.read(states[-1], "other") == b"x\n"
    assert (summary.end.quality, summary.damage) == ("inferred", {"unknown": {"part novel": 1}})
    assert summary.read_first == ("calc.py", "test_calc.py")
    assert (summary.test_runs, summary.failing_test_runs, summary.retries) == (2, 1, 1)
    outcomes = [(test.node_id, test.outcome) for test in store.runs.tests(run.id)]
    assert outcomes == [(FAILING, "failed"), (FAILING, "passed")]
    reads = {read.file_path: read for read in store.runs.reads(run.id)}
    assert reads["calc.py"].object_id is not None
    assert (reads["test_calc.py"].first_line, reads["test_calc.py"].last_line) == (2, 4)


def test_each_answer_counts_once(store: Store) -> None:
    ((_, run, _),) = imported_runs(store, OPENCODE)
    calls = store.runs.interactions(run.id)
    # By hand; the second message holds two answers. Reasoning is not among the output.
    assert len(calls) == 9
    cached = 1000 + 1100 + 1200 + 1300 + 1400 + 700
    sent = 1000 + 100 + 200 + 300 + 400 + 500 + 600 + 700 + 50
    assert run.totals.input_tokens == sent + cached
    assert run.totals.output_tokens == 20 + 5 + 30 + 10 + 30 + 15 + 40 + 50 + 10 + 5
    assert (run.totals.cache_read_tokens, run.totals.reasoning_tokens) == (cached, 5)
    assert float(run.totals.cost_usd or 0) == 9 * 0.25
    assert [call.attempts for call in calls] == [1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert calls[6].purpose == "compaction"
    roles = [[message["role"] for message in call.messages] for call in calls]
    assert roles[0] == ["user"]
    assert roles[1] == ["user", "assistant", "tool", "tool"]
    assert roles[2] == [*roles[1], "assistant", "tool"]
    # After the conversation was compacted, its summary is all that is left.
    assert roles[7] == ["assistant"]
    (retry,) = store.runs.logs(run.id)
    assert (retry.level, retry.message) == ("warning", "Overloaded")


def test_the_database_the_files_and_the_export_tell_the_same(tmp_path: Path) -> None:
    exported = events_of(OPENCODE)
    kept = database(tmp_path / "opencode.db", exports())
    stored = files(tmp_path / "storage", exports())
    for path in (kept, stored):
        assert detect(path).NAME == "opencode"
        found = events_of(path)
        # An export holds no other session; what the sub-agent did is all that it lacks.
        assert [event for event in found if event in exported] == exported
        told = [e["data"].get("description") for e in found if e not in exported]
        assert [words for words in told if words] == ["read NOTES", "It is fine."]
    assert events_of(kept) == events_of(stored)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["opencode.db", "storage"]
    assert list(transcripts_in(tmp_path)) == [kept, stored]


def test_what_a_sub_agent_did_is_part_of_the_step_that_started_it(
    store: Store, tmp_path: Path
) -> None:
    kept = database(tmp_path / "opencode.db", exports())
    whole, part = exports()
    ((_, run, steps),) = imported_runs(store, kept / whole["info"]["id"])
    task = next(step for step in steps if step.description == "task Look at it")
    below = [step for step in steps if step.parent_id == task.id]
    assert [step.description for step in below] == ["read NOTES", "It is fine."]
    assert [step.step_number for step in below] == [task.step_number + 1, task.step_number + 2]
    assert not [step for step in steps if step.description.startswith("User:")]
    alone = Store(tmp_path / "alone")
    (_, parent, _), (_, child, _) = (
        imported_runs(alone, path)[0] for path in (OPENCODE, OPENCODE_PART)
    )
    for name in ("llm_calls", "input_tokens", "output_tokens"):
        both = getattr(parent.totals, name) + getattr(child.totals, name)
        assert getattr(run.totals, name) == both
    asked = [call for call in store.runs.interactions(run.id) if call.step_id == below[0].id]
    assert [message["role"] for message in asked[0].messages] == ["user"]
    # Named by itself it comes with the session that it belongs to, and again is no more.
    found = imported_runs(store, kept / part["info"]["id"])
    assert [(r.id, len(s)) for _, r, s in found] == [(run.id, len(steps))]
    stored = files(tmp_path / "storage", exports())
    for session in (whole, part):
        (path,) = (stored / "session").glob(f"*/{session['info']['id']}.json")
        assert detect(path).NAME == "opencode"
        assert [r.id for _, r, _ in imported_runs(store, path)] == [run.id]
    assert len(store.runs.list()) == 1
    with pytest.raises(ImportFailed, match="holds no session"):
        events_of(kept / "ses_other")


def test_a_sub_agent_that_no_step_tells_of_is_a_run_of_its_own(
    store: Store, tmp_path: Path
) -> None:
    whole, part = exports()
    for message in whole["messages"]:
        for told in message["parts"]:
            if told.get("tool") == "task":
                del told["state"]["metadata"]
    kept = database(tmp_path / "opencode.db", [whole, part])
    (_, run, _), (_, child, steps) = imported_runs(store, kept)
    assert (child.parent_run_id, child.task) == (run.id, "Look at NOTES")
    assert [step.description for step in steps] == ["read NOTES", "It is fine."]
    assert {step.parent_id for step in steps} == {None}
    # So is one whose parent is not there, and those that name each other.
    ((_, child, _),) = imported_runs(Store(tmp_path / "alone"), OPENCODE_PART)
    assert child.parent_run_id == run.id
    whole["info"]["parentID"] = part["info"]["id"]
    kept = database(tmp_path / "circle.db", [whole, part])
    assert len(imported_runs(Store(tmp_path / "circle"), kept)) == 2


def test_a_sub_agent_that_is_asked_again_goes_on_in_the_later_step(
    store: Store, tmp_path: Path
) -> None:
    whole, part = exports()
    (message,) = (m for m in whole["messages"] if any(p.get("tool") == "task" for p in m["parts"]))
    (place,) = (n for n, p in enumerate(message["parts"]) if p.get("tool") == "task")
    again = json.loads(json.dumps(message["parts"][place]))
    again |= {"id": again["id"] + "z", "callID": "c8z"}
    first, second = part["messages"][0], json.loads(json.dumps(part["messages"][-1]))
    end = again["state"]["time"]["end"]
    again["state"]["time"] = {"start": end + 100, "end": end + 900}
    message["parts"].insert(place + 1, again)
    more = []
    for number, told in enumerate((json.loads(json.dumps(first)), second)):
        told["info"]["id"] += "z"
        told["info"]["time"] = {"created": end + 200 + number, "completed": end + 300 + number}
        for one in told["parts"]:
            one["id"] += "z"
            one["messageID"] = told["info"]["id"]
        more.append(told)
    part["messages"] += more
    ((_, _, steps),) = imported_runs(store, database(tmp_path / "opencode.db", [whole, part]))
    tasks = [step for step in steps if step.description == "task Look at it"]
    told = [[s.description for s in steps if s.parent_id == task.id] for task in tasks]
    assert told == [["read NOTES", "It is fine."], ["It is fine."]]


def test_sessions_of_a_folder_are_found_in_the_database(tmp_path: Path) -> None:
    newer, elsewhere = exports()[0], exports()[0]
    older, part = exports()
    for number, session in enumerate((newer, elsewhere)):
        text = json.dumps(session).replace(older["info"]["id"], f"ses_{number}")
        session.update(
            json.loads(text.replace("msg_", f"msg_{number}").replace("prt_", f"p{number}"))
        )
    newer["info"]["time"]["updated"] += 60_000
    elsewhere["info"]["directory"] = "/home/somebody/other"
    data = tmp_path / "data"
    kept = database(data / "opencode" / "opencode.db", [older, part, newer, elsewhere])
    environ = {"XDG_DATA_HOME": str(data)}
    found = sessions_of(FOLDER, environ, agents=["opencode"])
    assert [session.path for session in found] == [kept / "ses_0", kept / older["info"]["id"]]
    assert found[0].summary.task == "add() in calc.py forgets its second argument. Fix it."
    sizes = [len(json.dumps(part)) for message in older["messages"] for part in message["parts"]]
    assert 0.5 * sum(sizes) < found[1].size <= sum(sizes)
    home = tmp_path / "home"
    named = database(home / ".local/share/opencode/opencode-beta.db", [older])
    files(home / ".local/share/opencode/storage", [newer])
    names = [s.path for s in sessions_of(FOLDER, {"HOME": str(home)}, agents=["opencode"])]
    assert len(names) == 2
    assert named / older["info"]["id"] in names
    environ = {"HOME": str(tmp_path), "OPENCODE_DB": str(named)}
    (alone,) = sessions_of(FOLDER, environ, agents=["opencode"])
    assert alone.path == named / older["info"]["id"]


def test_what_is_not_yet_in_the_file_is_read(tmp_path: Path) -> None:
    """While OpenCode runs, its newest messages are in the log beside the database."""
    kept = database(tmp_path / "opencode.db", exports()[:1])
    with closing(sqlite3.connect(kept)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        data = {"role": "user", "time": {"created": 1772367700000}}
        session = exports()[0]["info"]["id"]
        row = ("msg_z", session, 1772367700000, 1772367700000, json.dumps(data))
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
        told = json.dumps({"type": "text", "text": "Thank you."})
        owner = ("prt_z", "msg_z", session, 1, 1)
        connection.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", (*owner, told))
        connection.commit()
        texts = [event["data"].get("input_context") for event in events_of(kept)]
    assert "Thank you." in texts


def test_a_session_that_was_taken_back_is_not_trusted(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (session,) = exports()[:1]
    first = session["messages"][1]["info"]["id"]
    diff = "diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n"
    session["info"]["revert"] = {"messageID": first, "diff": diff}
    kept = database(tmp_path / "opencode.db", [session])
    ((_, _, steps),) = imported_runs(store, kept, repository)
    assert (steps[-1].step_type, steps[-1].state_quality) == ("external", "unverified")
    assert steps[-1].state_reason == "calc.py was changed by somebody else"


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("MessageAbortedError", "interrupted", None),
        ("ProviderAuthError", "failed", "ProviderAuthError: No key."),
    ],
)
def test_how_a_session_ended(
    store: Store, tmp_path: Path, name: str, status: str, error: str | None
) -> None:
    session = exports()[0]
    session["messages"][-1]["info"]["error"] = {"name": name, "data": {"message": "No key."}}
    path = tmp_path / "session.json"
    path.write_text(json.dumps(session))
    ((_, run, _),) = imported_runs(store, path)
    assert (run.status, run.error) == (status, error)


def test_the_command_line_lists_and_imports_sessions_in_a_database(tmp_path: Path) -> None:
    repotrace = Shell(tmp_path)
    session = exports()[0]
    name = session["info"]["id"]
    session["info"]["directory"] = str(repotrace.cwd)
    kept = database(repotrace.home / ".local/share/opencode/opencode.db", [session])
    listed = repotrace("import").stdout.decode()
    assert f"{kept}/{name}" in listed.replace("\n", "")
    taken = repotrace("import", f"{kept}/{name}")
    assert taken.returncode == 0
    assert f"from opencode session {name}" in taken.stdout.decode()
    refused = repotrace("import", f"{kept}/ses_other")
    assert refused.returncode != 0
    assert "ses_other holds no session of OpenCode" in refused.stderr.decode().replace("\n", " ")
    assert repotrace("import", f"{kept}-other/{name}").returncode != 0


def test_damaged_databases_give_events_or_import_failed(tmp_path: Path) -> None:
    data = database(tmp_path / "opencode.db", exports()).read_bytes()
    path = tmp_path / "damaged.db"
    for seed in range(80):
        chance = random.Random(seed)
        found = bytearray(data)
        for _ in range(chance.randint(1, 6)):
            start = chance.randrange(100, len(found))
            end = start + chance.choice([1, 8, 200, 3000])
            found[start:end] = chance.choice([b"", b"\0", chance.randbytes(end - start)])
        path.write_bytes(found)
        with suppress(ImportFailed):
            json.dumps(events_of(path))


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_odd_values_give_events_or_import_failed(data: st.DataObject, tmp_path: Path) -> None:
    session = exports()[0]
    records = [session["info"]]
    for message in session["messages"]:
        records += [message["info"], *message["parts"]]
        records += [part["state"] for part in message["parts"] if "state" in part]
    for record in data.draw(st.lists(st.sampled_from(records), min_size=1, max_size=4)):
        record[data.draw(st.sampled_from(sorted(record)))] = data.draw(_ODD)
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(session))
    with suppress(ImportFailed):
        json.dumps(events_of(path))


FIXTURES = SHARED / "agents" / "fixtures" / "opencode"
REAL = [*FIXTURES.glob("*/session-export.json"), *FIXTURES.rglob("opencode.db")]


def _run_of(path: Path) -> Path:
    return FIXTURES / path.relative_to(FIXTURES).parts[0]


@pytest.mark.skipif(not REAL, reason="no sessions of real agents beside the checkout")
@pytest.mark.parametrize("path", REAL, ids=lambda path: f"{_run_of(path).name}{path.suffix}")
def test_a_real_session_ends_with_the_real_diff(store: Store, path: Path, tmp_path: Path) -> None:
    repository = invoice_repository(tmp_path / "invoice")
    kept = shutil.copy(path, tmp_path / path.name)
    ((summary, run, steps),) = imported_runs(store, Path(kept), repository)
    check_end(store, steps, repository, _run_of(path) / "final.diff")
    assert sorted(summary.read_first) == [
        *("src/invoice_export/duedate.py", "tests/test_duedate.py"),
    ]
    assert (summary.failing_test_runs, run.totals.retries, summary.unknown) == (1, 1, 0)
    edit = next(step for step in steps if step.step_type == "edit")
    test = next(step for step in steps if step.step_type == "test")
    assert (test.status, test.state_before_id or edit.state_id) == ("failed", edit.state_id)
    tokens = _tokens_in(path)
    assert run.totals.input_tokens == tokens["input"] + sum(tokens["cache"].values())
    assert run.totals.output_tokens == tokens["output"] + tokens["reasoning"]
    assert run.totals.output_tokens == _answered_on_the_wire(_run_of(path))


def _tokens_in(path: Path) -> dict[str, Any]:
    """The totals that OpenCode keeps itself."""
    if path.suffix == ".json":
        found: dict[str, Any] = json.loads(path.read_bytes())["info"]["tokens"]
        return found
    names = ("input", "output", "reasoning", "cache_read", "cache_write")
    columns = ", ".join(f"tokens_{name}" for name in names)
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        row = connection.execute(f"SELECT {columns} FROM session").fetchone()
    told = dict(zip(names, row, strict=True))
    return {**told, "cache": {"read": told["cache_read"], "write": told["cache_write"]}}


def _answered_on_the_wire(folder: Path) -> int:
    """Output tokens of the answers to the agent itself; titles are asked for beside."""
    (path,) = folder.glob("llm.jsonl*")
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
        exchanges = [json.loads(line) for line in stream]
    total = 0
    for exchange in exchanges:
        if exchange.get("status") != 200 or exchange.get("turn") is None:
            continue
        if exchange.get("complete") is False:
            continue
        total += _output_tokens(exchange)
    return total


def _output_tokens(exchange: dict[str, Any]) -> int:
    sent = [e[1] if isinstance(e, list) else e for e in exchange.get("events", ())]
    events: list[dict[str, Any]] = [event for event in sent if isinstance(event, dict)]
    usages = [event.get("usage") or (event.get("response") or {}).get("usage") for event in events]
    last = [usage for usage in usages if usage]
    return int(last[-1].get("output_tokens") or last[-1].get("completion_tokens")) if last else 0


SAMPLES = SHARED / "samples" / "opencode"


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no transcripts of real agents here")
def test_samples_are_read() -> None:
    for name, tokens, calls in (
        ("sqlite/opencode.db", 10, 1),
        ("json_storage", 0, 1),
        ("json_storage_v2", 120, 1),
    ):
        assert is_transcript(SAMPLES / name)
        told = [e["data"] for e in events_of(SAMPLES / name) if e["kind"] == Kind.LLM]
        assert len(told) == calls
        assert sum(call.get("input_tokens") or 0 for call in told) == tokens
