"""Sub-agents of Codex: threads with rollouts of their own, which belong to the run of another."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from importing import CODEX, CODEX_THREADS, RIGHT, TRANSCRIPTS, calc_repository, imported_runs

from repotrace.importers import importer
from repotrace.records.events import Event, Kind, derived_run_id
from repotrace.runs.transcripts.sessions import sessions_of, transcripts_in
from repotrace.storage import Store

TREE = TRANSCRIPTS / "codex" / "sessions"
SESSION, NOTES, LOOK, REVIEW, OLDER, WORKER = CODEX_THREADS
"""A session with a sub-agent that has one itself, and a reviewer; one of an older version."""


def name_of(path: Path) -> str:
    return path.stem[-36:]


def events_of(path: Path) -> list[Event]:
    return list(importer("codex").read(path))


def tree(home: Path, *paths: Path) -> Iterator[Path]:
    """Copies of the rollouts, in the folders that Codex puts them in."""
    for path in paths:
        copy = home / "sessions" / path.relative_to(TREE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
        yield copy


def edited(path: Path, copy: Path, **meta: Any) -> Path:
    """A copy of a rollout whose first record tells something else."""
    first, *rest = path.read_text().splitlines(keepends=True)
    record = json.loads(first)
    record["payload"] |= meta
    copy.write_text(json.dumps(record) + "\n" + "".join(rest))
    return copy


# --- One session ----------------------------------------------------------------------------


def test_what_a_sub_agent_did_is_part_of_the_step_that_started_it(
    store: Store, tmp_path: Path
) -> None:
    repository = calc_repository(tmp_path / "calc")
    (summary, run, steps), (_, review, reviewed) = imported_runs(store, SESSION, repository)
    numbers = {step.id: step.step_number for step in steps}
    assert [
        (step.step_type, step.description, numbers.get(step.parent_id or "")) for step in steps
    ] == [
        ("tool", "spawn_agent Write NOTES.", None),
        ("tool", "wait_agent", None),
        ("edit", "apply_patch", 1),
        ("tool", "spawn_agent Look at calc.py.", 1),
        ("command", "cat calc.py", 4),
        ("llm", "It returns a.", 4),
        ("llm", "Written.", 1),
        ("tool", "followup_task Say when.", None),
        ("tool", "wait_agent", None),
        ("edit", "apply_patch", 8),
        ("llm", "Said.", 8),
        ("llm", "Done.", None),
    ]
    assert {step.status for step in steps} == {"completed"}
    assert run.task == "Keep notes on add()."
    # Three threads call their calls the same.
    names = [step.external_id or "" for step in steps]
    assert [name for name in names if name.startswith("call_")] == [
        *("call_1", "call_2", "call_3", "call_4"),
    ]
    assert len({name for name in names if name.endswith("call_1")}) == 3
    # By hand: each answer of the three threads once.
    calls = store.runs.interactions(run.id)
    assert run.totals.llm_calls == len(calls) == 12
    assert run.totals.input_tokens == (100 + 120 + 140 + 150 + 160) + (10 + 30 + 40 + 50 + 60) + 16
    assert run.totals.output_tokens == (10 + 12 + 14 + 15 + 16) + (1 + 3 + 4 + 5 + 6) + 3
    models = {call.step_id: call.model for call in calls}
    assert [models[steps[place].id] for place in (0, 2, 4)] == [
        *("gpt-test-2", "gpt-test-2", "gpt-test-3"),
    ]
    assert summary.read_first == ()
    assert (summary.unknown, summary.commands, summary.edits) == (0, 1, 2)
    states = [steps[place].state_id for place in (2, 9)]
    assert [store.snapshots.read(str(state), "NOTES") for state in states] == [
        *(b"to be fixed\n", b"fixed soon\n"),
    ]
    # One that no step tells of is a run of its own.
    assert (review.parent_run_id, review.source_id) == (run.id, name_of(REVIEW))
    assert (review.task, len(reviewed)) == ("May it write NOTES?", 1)
    assert run.attributes["sub_sessions"] == [name_of(NOTES), name_of(LOOK)]


def test_each_thread_has_its_own_conversation(store: Store) -> None:
    (_, run, steps), _ = imported_runs(store, SESSION)
    calls = {call.step_id: call for call in store.runs.interactions(run.id)}
    said = [json.dumps(calls[steps[place].id].messages) for place in (2, 4, 11)]
    # What was copied of the session is not told again.
    assert "Keep notes" not in said[0]
    assert "Sender: /root\\nPayload:\\nWrite NOTES." in said[0]
    assert "Sender: /root/notes\\nPayload:\\nLook at calc.py." in said[1]
    assert "Write NOTES." not in said[1]
    # Answers of sub-agents come as messages of others, not of the model.
    last = calls[steps[11].id].messages
    (told,) = [m for m in last if "FINAL_ANSWER" in json.dumps(m)]
    assert told["role"] == "user"


def test_a_copy_without_a_mark_is_told_by_the_turns_in_it(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((_, run, steps),) = imported_runs(store, OLDER, repository)
    assert [(step.description, step.parent_id) for step in steps] == [
        ("spawn_agent Fix it.", None),
        ("wait", None),
        ("apply_patch", steps[0].id),
        ("Fixed.", steps[0].id),
        # The call was written after the turn had begun that it started.
        ("So.", steps[5].id),
        ("send_input Say so.", None),
        ("Done.", None),
    ]
    # The total of what was copied is told again, and is no answer.
    assert run.totals.llm_calls == 7
    assert (run.totals.input_tokens, run.totals.output_tokens) == (
        100 + 110 + 120 + 130 + 20 + 30 + 40,
        10 + 11 + 12 + 13 + 2 + 3 + 4,
    )
    assert store.snapshots.read(str(steps[2].state_id), "calc.py") == RIGHT.encode()


# --- Which belong together ------------------------------------------------------------------


def test_each_rollout_of_a_session_stands_for_all(store: Store) -> None:
    whole = events_of(SESSION)
    for part in (NOTES, LOOK, REVIEW):
        assert events_of(part) == whole
    known = [[run.id for _, run, _ in imported_runs(store, path)] for path in (SESSION, NOTES)]
    assert known[0] == known[1]
    assert len(store.runs.steps(known[0][0])) == 12
    assert list(transcripts_in(TREE)) == [SESSION, OLDER]


def test_a_sub_agent_joins_the_session_that_comes_later(store: Store, tmp_path: Path) -> None:
    notes, look = tree(tmp_path, NOTES, LOOK)
    ((_, alone, steps),) = imported_runs(store, look)
    assert alone.source_id == name_of(NOTES)
    assert alone.parent_run_id == derived_run_id("codex", name_of(SESSION))
    assert alone.task == "Write NOTES."
    assert {step.description for step in steps} >= {"cat calc.py", "Written."}
    tokens = alone.totals.input_tokens
    (session,) = tree(tmp_path, SESSION)
    ((_, run, _),) = imported_runs(store, notes)
    assert run.source_id == name_of(session)
    assert [known.id for known in store.runs.list()] == [run.id]
    assert run.totals.input_tokens == 670 + (tokens or 0)
    # Another time changes nothing; neither does it where the sub-agents are gone.
    assert [r.id for _, r, _ in imported_runs(store, look)] == [run.id]
    notes.unlink()
    look.unlink()
    imported_runs(store, session)
    assert len(store.runs.steps(run.id)) == 12


def test_a_sub_agent_that_was_watched_live_stays(store: Store) -> None:
    """Its states are exact, which those of a transcript are not."""
    started: Event = {
        "id": "live",
        "run": derived_run_id("codex", name_of(LOOK)),
        "kind": Kind.RUN_STARTED,
        "time": 1_772_400_000_000_000_000,
        "data": {"source": "codex", "source_id": name_of(LOOK), "base_quality": "exact"},
        "raw": True,
    }
    store.runs.add_events([started])
    imported_runs(store, SESSION)
    assert store.runs.get(started["run"]).base_quality == "exact"


def test_a_call_inside_a_script_is_known_by_its_event(tmp_path: Path) -> None:
    """The newest tools are called by code; the event of a call is all that tells of it."""
    session, _ = tree(tmp_path, OLDER, WORKER)
    text = session.read_text()
    inner = {"timestamp": "2026-03-03T09:00:06.000Z", "type": "event_msg"}
    inner["payload"] = {  # type: ignore[assignment]
        "type": "sub_agent_activity",
        "event_id": "exec-1",
        "agent_thread_id": name_of(WORKER),
        "agent_path": "/root/worker",
        "kind": "started",
    }
    lines = [line for line in text.splitlines() if name_of(WORKER) not in line]
    session.write_text("\n".join([*lines, json.dumps(inner)]) + "\n")
    events = events_of(session)
    assert {event["run"] for event in events} == {events[0]["run"]}
    started = [e["data"] for e in events if e["kind"] == Kind.STEP_STARTED]
    (step,) = [data for data in started if data["description"] == "spawn_agent Fix it."]
    assert [d["description"] for d in started if d.get("parent_id") == step["id"]] == [
        *("apply_patch", "Fixed.", "So."),
    ]


def test_a_packed_or_archived_rollout_is_found(tmp_path: Path) -> None:
    compress = pytest.importorskip("backports.zstd").compress
    session, worker = tree(tmp_path, OLDER, WORKER)
    packed = worker.with_name(worker.name + ".zst")
    packed.write_bytes(compress(worker.read_bytes()))
    worker.unlink()
    assert events_of(session) == events_of(OLDER)
    assert events_of(packed) == events_of(OLDER)
    archive = tmp_path / "archived_sessions"
    archive.mkdir()
    session.rename(archive / session.name)
    assert events_of(packed)[0]["data"]["source_id"] == name_of(OLDER)


def test_threads_that_name_each_other_end(tmp_path: Path) -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "b"}}}
    first = edited(CODEX, tmp_path / "rollout-1-a.jsonl", id="a", source=spawn)
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "a"}}}
    edited(CODEX, tmp_path / "rollout-1-b.jsonl", id="b", source=spawn)
    runs = {event["run"] for event in events_of(first)}
    assert runs == {derived_run_id("codex", name) for name in ("a", "b")}


@pytest.mark.parametrize(
    "meta",
    [
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "../../etc"}}}},
        {"source": {"subagent": {"thread_spawn": 5}}, "parent_thread_id": 5},
        {"source": {"subagent": ["x"]}, "id": "../x"},
        {"source": {"subagent": "review"}, "id": 7},
        {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "*"}}}, "timestamp": {}},
    ],
)
def test_a_beginning_that_makes_no_sense_is_no_sub_agent(tmp_path: Path, meta: Any) -> None:
    path = edited(CODEX, tmp_path / "rollout-1-x.jsonl", **meta)
    events = events_of(path)
    assert sum(event["kind"] == Kind.RUN_STARTED for event in events) == 1
    assert sum(event["kind"] == Kind.LLM for event in events) == 6


def test_a_session_is_listed_once_and_is_as_new_as_its_sub_agents(tmp_path: Path) -> None:
    session, notes, older = tree(tmp_path, SESSION, NOTES, OLDER)
    for number, path in enumerate((session, older, notes)):
        os.utime(path, (1_772_500_000 + number, 1_772_500_000 + number))
    environ = {"CODEX_HOME": str(tmp_path)}
    found = sessions_of(Path("/home/ada/calc"), environ, agents=["codex"])
    assert [known.path for known in found] == [session, older]
    assert found[0].modified.timestamp() == 1_772_500_002
    assert found[0].summary.task == "Keep notes on add()."
    (newest,) = sessions_of(Path("/home/ada/calc"), environ, agents=["codex"], limit=1)
    assert newest.path == session
