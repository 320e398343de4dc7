"""Conversations of OpenHands as runs: folders of its SDK, and arrays of events before it."""

from __future__ import annotations

import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from importing import (
    FAILING,
    OPENHANDS,
    OPENHANDS_V0,
    RIGHT,
    SHARED,
    WRONG,
    calc_repository,
    check_end,
    imported_runs,
    invoice_repository,
)

from repotrace.agents import agent
from repotrace.errors import ImportFailed
from repotrace.importers import detect, importer, is_transcript
from repotrace.records.events import Event, Kind
from repotrace.runs.transcripts.sessions import sessions_of, transcripts_in
from repotrace.storage import Store


def events_of(path: Path) -> list[Event]:
    return list(importer("openhands").read(path))


def test_a_conversation_of_the_sdk(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, OPENHANDS, repository)
    assert run.task == "add() in calc.py forgets its second argument. Fix it."
    assert run.source_id == "0f0e0d0c-0b0a-4908-8070-60504030201f"
    assert (run.agent, run.status, run.outcome) == ("openhands", "completed", "passed")
    # The clock on the wall was an hour ahead; costs have moments that tell.
    assert run.started_at.isoformat() == "2026-03-01T12:20:00+00:00"
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "file_editor view calc.py"),
        ("tool", "completed", "file_editor view test_calc.py"),
        ("edit", "completed", "file_editor str_replace calc.py"),
        ("test", "failed", "python -m pytest -q"),
        ("decision", "completed", "The conversation was condensed."),
        ("edit", "completed", "file_editor str_replace calc.py"),
        ("command", "failed", "rm -r other"),
        ("decision", "completed", "The user refused the call."),
        ("edit", "failed", "file_editor create"),
        ("edit", "completed", "file_editor create NOTES"),
        ("test", "completed", "python -m pytest -q"),
        ("unknown", "completed", "Unknown record: NovelEvent"),
        ("tool", "completed", "finish add() adds."),
    ]
    assert [steps[n].reason for n in (1, 2, 5)] == [
        *("I read both files.", "I subtract.", "It must add."),
    ]
    assert (steps[7].parent_id, steps[7].input_context) == (steps[6].id, "Leave it.")
    assert steps[10].retry_of == steps[3].id
    assert [c.exit_code for c in store.runs.commands(run.id)] == [1, 0]
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode(), RIGHT.encode()),
    ]
    assert store.snapshots.read(states[-1], "NOTES") == b"fixed\n"
    assert store.snapshots.read(states[-1], "other") == b"x\n"
    assert (summary.end.quality, summary.damage) == ("inferred", {"unknown": {"NovelEvent": 1}})
    assert summary.read_first == ("calc.py", "test_calc.py")
    assert (summary.test_runs, summary.failing_test_runs, summary.retries) == (2, 1, 1)
    outcomes = [(test.node_id, test.outcome) for test in store.runs.tests(run.id)]
    assert outcomes == [(FAILING, "failed"), (FAILING, "passed")]
    # Views show files as a whole.
    assert all(read.object_id for read in store.runs.reads(run.id))


def test_calls_of_the_sdk_are_counted_once(store: Store) -> None:
    ((_, run, _),) = imported_runs(store, OPENHANDS)
    calls = {call.external_id: call for call in store.runs.interactions(run.id)}
    # By hand from base_state.json: nine answers, two of the condenser.
    assert (len(calls), run.totals.llm_calls) == (11, 11)
    assert run.totals.input_tokens == sum(range(1010, 1100, 10)) + 500 + 40
    assert run.totals.output_tokens == sum(range(21, 30)) + 30 + 4
    assert run.totals.cache_read_tokens == 8 * 900
    assert float(run.totals.cost_usd or 0) == 9 * 0.25 + 2 * 0.125
    assert [name for name, call in calls.items() if call.purpose == "condenser"] == [
        *("resp-c", "resp-x"),
    ]
    assert calls["resp-1"].duration == 1.5
    roles = {name: [message["role"] for message in call.messages] for name, call in calls.items()}
    assert roles["resp-1"] == ["system", "user"]
    assert roles["resp-2"] == ["system", "user", "assistant", "tool", "tool"]
    # The condensation left the last call and its result.
    assert roles["resp-4"] == ["system", "user", "user", "assistant", "tool"]
    assert "calc.py subtracts" in json.dumps(calls["resp-4"].messages[2])


def test_an_array_of_events(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, OPENHANDS_V0, repository)
    assert (run.status, run.outcome) == ("completed", "passed")
    assert run.started_at.isoformat() == "2026-03-01T12:20:00+00:00"
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "str_replace_editor view calc.py"),
        ("edit", "completed", "str_replace_editor str_replace calc.py"),
        ("test", "failed", "python -m pytest -q"),
        ("edit", "failed", "str_replace_editor str_replace calc.py"),
        ("edit", "completed", "str_replace_editor str_replace calc.py"),
        ("command", "completed", "python3 - <<'EOF'"),
        ("command", "completed", "sleep 100"),
        ("tool", "completed", "terminal input C-c"),
        ("test", "completed", "python -m pytest -q"),
        ("llm", "completed", "Fixed. Is there more?"),
        ("note", "completed", "User: No."),
        ("tool", "completed", "finish Done."),
    ]
    assert steps[3].error == "No replacement was performed."
    assert [step.retry_of for step in (steps[4], steps[8])] == [steps[3].id, steps[2].id]
    # -1 says that the command went on.
    assert [c.exit_code for c in store.runs.commands(run.id)] == [1, None, None, 0]
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode(), RIGHT.encode()),
    ]
    assert store.snapshots.read(states[-1], "NOTES") == b"fixed"
    assert run.totals.input_tokens == sum(range(1000, 2000, 100))
    assert run.totals.cache_read_tokens == sum(range(900, 1800, 100))
    assert float(run.totals.cost_usd or 0) == 2.75
    assert summary.read_first == ("calc.py",)


def test_any_file_of_a_conversation_stands_for_it(tmp_path: Path) -> None:
    whole = events_of(OPENHANDS)
    event = sorted((OPENHANDS / "events").iterdir())[3]
    for path in (OPENHANDS / "base_state.json", event):
        assert detect(path).NAME == "openhands"
        assert events_of(path) == whole
    assert is_transcript(OPENHANDS)
    assert sorted(transcripts_in(OPENHANDS.parent)) == [OPENHANDS, OPENHANDS_V0]
    alone = tmp_path / "base_state.json"
    alone.write_bytes((OPENHANDS / "base_state.json").read_bytes())
    assert not is_transcript(alone)


def test_sessions_are_found_where_the_agent_keeps_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(OPENHANDS, home / ".openhands" / "conversations" / OPENHANDS.name)
    shutil.copytree(OPENHANDS, tmp_path / "kept" / "conversations" / "one")
    shutil.copytree(OPENHANDS, tmp_path / "named" / "two")
    for variable, value, name in (
        ("HOME", home, OPENHANDS.name),
        ("OPENHANDS_PERSISTENCE_DIR", tmp_path / "kept", "one"),
        ("OPENHANDS_CONVERSATIONS_DIR", tmp_path / "named", "two"),
    ):
        environ = {variable: str(value)}
        folder = Path("/home/somebody/calc")
        (found,) = sessions_of(folder, environ, agents=["openhands"])
        assert (found.path.name, found.summary.workspace) == (name, str(folder))
        assert found.size == sum(p.stat().st_size for p in OPENHANDS.rglob("*.json"))
        assert list(agent("openhands").sessions(environ, folder)) == [found.path]
    assert sessions_of(Path("/elsewhere"), {"HOME": str(home)}, agents=["openhands"]) == []


def test_events_without_a_state_are_read_in_order(tmp_path: Path) -> None:
    """The server before the SDK kept an event a file, named by its number."""
    folder = tmp_path / "session"
    (folder / "events").mkdir(parents=True)
    records = json.loads(OPENHANDS_V0.read_bytes())
    for record in records:
        (folder / "events" / f"{record['id']}.json").write_text(json.dumps(record))
    (folder / "events" / "12.json").write_text("{")
    assert detect(folder).NAME == "openhands"
    begun, *_, damage, _ = events = events_of(folder)
    assert begun["data"]["source_id"] == "session"
    assert damage["data"]["attributes"]["import"]["broken"] == 1
    used = [e["data"].get("input_tokens") for e in events if e["kind"] == Kind.LLM]
    assert used[:4] == [1000, 1100, 1200, 1300]


def test_totals_are_parted_where_only_they_are_told(tmp_path: Path) -> None:
    """A remote conversation tells its tokens by totals among the events."""
    events = [json.loads(p.read_bytes()) for p in sorted((OPENHANDS / "events").iterdir())]
    records: list[dict[str, Any]] = []
    total = 0
    for number, event in enumerate(events):
        if event.get("llm_response_id") and event["id"].startswith(("00000002", "00000006")):
            total += 100 + number
            tokens = {"prompt_tokens": total, "completion_tokens": number}
            metrics = {"model_name": "m", "accumulated_token_usage": tokens}
            value = {"usage_to_metrics": {"agent": metrics}}
            stats = {**event, "id": f"stats {number}", "key": "stats", "value": value}
            records.append({**stats, "kind": "ConversationStateUpdateEvent"})
        records.append(event)
    path = tmp_path / "events.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert detect(path).NAME == "openhands"
    calls = [e["data"] for e in events_of(path) if e["kind"] == Kind.LLM]
    assert [call["input_tokens"] for call in calls[:2]] == [102, 106]
    assert [call["output_tokens"] for call in calls[:2]] == [2, 4]


def test_damaged_conversations_give_events_or_import_failed(tmp_path: Path) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        shutil.copytree(OPENHANDS, folder)
        for path in chance.sample(sorted(folder.rglob("*.json")), 4):
            data = bytearray(path.read_bytes())
            start = chance.randrange(len(data))
            end = start + chance.choice([1, 20, 500])
            data[start:end] = chance.choice([b"", b"null", b"[]", b"\xff", data[start:end] * 2])
            path.write_bytes(data)
        with suppress(ImportFailed):
            json.dumps(events_of(folder))


_ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_odd_values_give_events_or_import_failed(data: st.DataObject, tmp_path: Path) -> None:
    events = [json.loads(p.read_bytes()) for p in sorted((OPENHANDS / "events").iterdir())]
    for event in data.draw(st.lists(st.sampled_from(events), min_size=1, max_size=4)):
        event[data.draw(st.sampled_from(sorted(event)))] = data.draw(_ODD)
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(events))
    with suppress(ImportFailed):
        json.dumps(events_of(path))


FIXTURES = sorted(
    (SHARED / "agents" / "fixtures" / "openhands").glob("*/session/.openhands/conversations/*")
)
SAMPLES = sorted((SHARED / "samples" / "openhands").glob("v0_*.json"))


@pytest.mark.skipif(not FIXTURES, reason="no sessions of real agents beside the checkout")
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.parents[3].name)
def test_a_real_conversation_ends_with_the_real_diff(
    store: Store, path: Path, tmp_path: Path
) -> None:
    repository = invoice_repository(tmp_path / "invoice")
    ((summary, run, steps),) = imported_runs(store, path, repository)
    check_end(store, steps, repository, path.parents[3] / "final.diff")
    assert sorted(summary.read_first) == [
        *("src/invoice_export/duedate.py", "tests/test_duedate.py"),
    ]
    texts = [event.read_text() for event in (path / "events").iterdir()]
    failing = sum('"kind":"TerminalObservation"' in t and '"exit_code":1,' in t for t in texts)
    # In one of them, tests failed at the end too: old byte code was in the way.
    assert summary.failing_test_runs == failing
    assert run.totals.retries == 1
    edit = next(step for step in steps if step.step_type == "edit")
    test = next(step for step in steps if step.step_type == "test")
    assert (test.status, test.state_before_id or edit.state_id) == ("failed", edit.state_id)
    stats = json.loads((path / "base_state.json").read_bytes())["stats"]["usage_to_metrics"]
    totals = [metrics["accumulated_token_usage"] for metrics in stats.values()]
    assert run.totals.input_tokens == sum(total["prompt_tokens"] for total in totals)
    assert run.totals.output_tokens == sum(total["completion_tokens"] for total in totals)
    cost = sum(metrics["accumulated_cost"] for metrics in stats.values())
    assert float(run.totals.cost_usd or 0) == pytest.approx(cost)


@pytest.mark.skipif(not SAMPLES, reason="no transcripts of real agents beside the checkout")
def test_tokens_of_real_arrays_are_those_of_the_raw_file(store: Store) -> None:
    for path in SAMPLES:
        answers: dict[str, dict[str, int]] = {}
        edits = 0
        for record in json.loads(path.read_bytes()):
            edits += record.get("observation") == "edit"
            response = record.get("tool_call_metadata", {}).get("model_response")
            if response:
                answers[response["id"]] = response["usage"]
        ((_, run, _),) = imported_runs(store, path)
        told = [
            sum(a[f"{name}_tokens"] for a in answers.values()) for name in ("prompt", "completion")
        ]
        assert [run.totals.input_tokens or 0, run.totals.output_tokens or 0] == told, path
        assert len(store.runs.operations(run.id)) >= edits, path
