"""Sessions of Gemini CLI as runs: the log of updates, the one JSON file of old versions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from importing import (
    BEFORE,
    FAILING,
    GEMINI,
    GEMINI_OLD,
    RIGHT,
    SHARED,
    WRONG,
    calc_repository,
    check_end,
    imported_runs,
    invoice_repository,
)
from running import plain_git

from repotrace.agents import agent
from repotrace.errors import ImportFailed
from repotrace.importers import detect, importer, is_transcript
from repotrace.importers.gemini_cli_results import response_text
from repotrace.records.events import Kind
from repotrace.storage import Store


def test_a_session(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (summary, run, steps), (_, child, _) = imported_runs(store, GEMINI, repository)
    assert run.task == "add() in calc.py forgets its second argument. Fix it."
    assert (run.agent, run.status, run.outcome) == ("gemini-cli", "completed", "passed")
    assert run.source_id == "11111111-2222-4333-8444-666666666666"
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "read_file calc.py"),
        ("tool", "completed", "grep_search add ."),
        ("edit", "completed", "replace calc.py"),
        ("test", "failed", "python -m pytest -q"),
        ("edit", "failed", "replace calc.py"),
        ("edit", "completed", "replace calc.py"),
        ("edit", "completed", "write_file NOTES"),
        ("test", "completed", "python -m pytest -q"),
        ("command", "failed", "rm -rf build"),
        ("decision", "completed", "The user cancelled the call."),
        ("llm", "completed", "Fixed."),
        ("note", "completed", "User: And remove the notes."),
        ("command", "completed", "rm NOTES"),
        ("llm", "completed", "Removed."),
        ("decision", "completed", "The user rewound the conversation."),
        ("note", "completed", "User: Is it done?"),
        ("llm", "completed", "Yes."),
        ("decision", "completed", "The conversation was compacted."),
        ("note", "completed", "User: Good."),
        ("llm", "completed", "Bye."),
        ("unknown", "completed", "Unknown record: message telepathy"),
    ]
    assert steps[2].reason == "It returns only a. I subtract."
    assert steps[9].parent_id == steps[8].id
    assert [step.retry_of for step in steps if step.retry_of] == [steps[4].id, steps[3].id]
    # By hand: each answer once, though most are written twice; thoughts are apart from `output`.
    spent = [100, 130, 150, 180, 200, 220, 240, 260, 270, 280, 50]
    assert run.totals.input_tokens == sum(spent)
    assert run.totals.output_tokens == 20 + 5 + 30 + 15 + 25 + 10 + 25 + 15 + 5 + 9 + 3 + 2 + 2
    assert run.totals.cache_read_tokens == 100 + 130 + 150 + 180 + 200 + 220 + 240 + 260 + 240
    assert run.totals.reasoning_tokens == 5 + 10
    assert (run.totals.llm_calls, run.totals.retries) == (11, 2)
    assert summary.damage == {"broken": 1, "torn": 1, "unknown": {"message telepathy": 1}}
    assert run.attributes["summary"] == "Fix add()"
    assert (child.parent_run_id, child.source_id) == (run.id, "sub-1")
    assert child.task == "Where is add() used?"


def test_the_files_of_each_step_are_rebuilt(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (summary, run, steps), _ = imported_runs(store, GEMINI, repository)
    assert run.base_commit == plain_git(repository, "rev-parse", "main")
    assert run.base_state is not None
    assert store.snapshots.read(run.base_state, "calc.py") == BEFORE.encode()
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode(), RIGHT.encode(), RIGHT.encode()),
    ]
    assert [store.snapshots.read(state, "NOTES") for state in states] == [
        *(None, None, b"fixed\n", None),
    ]
    assert summary.end.quality == "inferred"
    operations = [(o.operation_type, o.file_path) for o in store.runs.operations(run.id)]
    assert operations == [
        *(("edit", "calc.py"), ("edit", "calc.py"), ("create", "NOTES"), ("delete", "NOTES")),
    ]
    assert summary.read_first == ("calc.py",)
    read = next(read for read in store.runs.reads(run.id) if read.file_path == "calc.py")
    assert read.object_id == plain_git(repository, "rev-parse", "main:calc.py")


def test_commands_and_tests(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (_, run, steps), _ = imported_runs(store, GEMINI, repository)
    commands = store.runs.commands(run.id)
    # The one that was cancelled did not run. Success is told by the absence of a code.
    assert [(c.command.script, c.exit_code) for c in commands] == [
        *(("python -m pytest -q", 1), ("python -m pytest -q", 0), ("rm NOTES", 0)),
    ]
    assert commands[0].command.stdout.text.endswith("\n1 failed in 0.01s")
    assert [c.command.stdout.text for c in commands[2:]] == [""]
    outcomes = store.runs.tests(run.id)
    assert [(t.node_id, t.outcome) for t in outcomes] == [(FAILING, "failed"), (FAILING, "passed")]
    numbers = {step.id: step.step_number for step in steps}
    first, second, *_ = [step.step_number for step in steps if step.state_id]
    assert first < numbers[str(outcomes[0].step_id)] < second


def test_the_conversation_is_what_the_model_was_shown(store: Store) -> None:
    (_, run, _), _ = imported_runs(store, GEMINI)
    calls = store.runs.interactions(run.id)
    roles = [[message["role"][0] for message in call.messages] for call in calls]
    assert roles[:3] == [list("uu"), list("uuatt"), list("uuattat")]
    # The call after the user went back was not shown what had been said since.
    said = [json.dumps(call.messages) for call in calls]
    assert "remove the notes" in said[8]
    assert "remove the notes" not in said[9]
    assert "Is it done?" in said[9]
    # After compaction there are a summary and its answer alone.
    assert roles[10] == list("uau")
    assert "state_snapshot" in said[10]
    assert calls[0].response_message is not None
    kinds = [part["type"] for part in calls[0].response_message["content"]]
    assert kinds == ["thinking", "text", "tool_call", "tool_call"]
    assert calls[0].model == "gemini-test"
    logs = [(log.level, log.message) for log in store.runs.logs(run.id)]
    assert ("error", "API Error: 503") in logs


def test_an_old_session(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, GEMINI_OLD, repository)
    assert run.task == "Fix add() in @calc.py"
    # The folder has the hash of the project.
    assert run.attributes["session_folder"] == "/home/ada/calc"
    assert [(step.step_type, step.status) for step in steps] == [
        ("edit", "completed"),
        ("test", "failed"),
        ("edit", "completed"),
        ("test", "completed"),
        ("tool", "interrupted"),
    ]
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode()),
    ]
    assert run.totals.input_tokens == 90 + 120 + 4
    assert run.totals.output_tokens == 12 + 3 + 8
    failed, passed = store.runs.commands(run.id)
    assert (failed.exit_code, passed.exit_code) == (1, 0)
    assert failed.command.stdout.text.endswith("1 failed in 0.01s")
    assert (failed.command.stderr.text, passed.command.stderr.text) == ("", "a warning")
    assert steps[2].reason == "Sum\nIt has to be a sum."
    assert (summary.test_runs, summary.failing_test_runs, summary.retries) == (2, 1, 1)


def test_a_sub_agent_comes_with_its_session() -> None:
    part = next(GEMINI.parent.glob("*/sub-1.jsonl"))
    gemini = importer("gemini-cli")
    assert list(gemini.read(part)) == list(gemini.read(GEMINI))
    assert is_transcript(part)


def test_what_a_sub_agent_did_is_part_of_the_step_that_started_it(
    store: Store, tmp_path: Path
) -> None:
    repository = calc_repository(tmp_path / "calc")
    (path,) = (GEMINI.parent / "joined").glob("session-*")
    (_, run, steps), (_, other, others) = imported_runs(store, path, repository)
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "invoke_agent generalist"),
        ("edit", "completed", "write_file NOTES"),
        ("tool", "completed", "complete_task"),
        ("edit", "completed", "write_file NOTES"),
        ("llm", "completed", "Done."),
    ]
    assert [step.parent_id for step in steps] == [None, steps[0].id, steps[0].id, None, None]
    assert run.task == "Keep notes on add()."
    assert "summary" not in run.attributes
    # By hand: three answers of the one, two of the other.
    assert run.totals.llm_calls == 5
    assert (run.totals.input_tokens, run.totals.output_tokens) == (
        100 + 120 + 140 + 40 + 50,
        10 + 12 + 14 + 4 + 5,
    )
    calls = {call.step_id: call for call in store.runs.interactions(run.id)}
    assert [message["role"] for message in calls[steps[1].id].messages] == ["user"]
    roles = [message["role"] for message in calls[steps[4].id].messages]
    assert roles == ["user", "user", "assistant", "tool", "assistant", "tool"]
    states = [steps[place].state_id for place in (1, 3)]
    assert [store.snapshots.read(str(state), "NOTES") for state in states] == [
        *(b"to be fixed\n", b"fixed soon\n"),
    ]
    # One that no step tells of is a run of its own.
    assert (other.parent_run_id, other.source_id) == (run.id, "p7q2zz")
    assert (other.task, len(others)) == ("Is it done?", 1)
    for part in path.parent.glob("*/*.jsonl"):
        assert [r.id for _, r, _ in imported_runs(store, part, repository)] == [run.id, other.id]
    assert len(store.runs.steps(run.id)) == len(steps)


def test_a_sub_agent_that_was_imported_alone_joins_the_session_that_comes_later(
    store: Store, tmp_path: Path
) -> None:
    (path,) = (GEMINI.parent / "joined").glob("session-*")
    (part,) = path.parent.glob("*/k3x9qa.jsonl")
    copy = tmp_path / "alone" / part.parent.name / part.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(part.read_bytes())
    ((_, alone, _),) = imported_runs(store, copy)
    (_, run, _), (_, other, _) = imported_runs(store, path)
    assert alone.parent_run_id == run.id
    assert {known.id for known in store.runs.list()} == {run.id, other.id}


def test_a_sub_agent_whose_file_is_broken_or_gone_leaves_its_step(tmp_path: Path) -> None:
    (path,) = (GEMINI.parent / "joined").glob("session-*")
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    alone = list(importer("gemini-cli").read(copy))
    folder = tmp_path / "22222222-3333-4444-8555-777777777777"
    folder.mkdir()
    header = b'{"sessionId": "other", "projectHash": "h", "kind": "subagent"}'
    for data in (b"", b"\0\xff{", b"[]\n1\n", b'{"id": "x"}\n', header):
        (folder / "k3x9qa.jsonl").write_bytes(data)
        found = list(importer("gemini-cli").read(copy))
        assert [event for event in found if event["run"] == alone[0]["run"]] == alone


def test_a_result_that_comes_late_ends_its_step(tmp_path: Path) -> None:
    """Another message may come between a call and its result."""
    common = {"timestamp": "2026-03-01T12:00:00Z", "content": ""}
    call: dict[str, Any] = {"id": "c", "name": "read_file", "args": {"file_path": "/a"}}
    records = [
        {"sessionId": "s", "projectHash": "h"},
        {"id": "1", "type": "gemini", **common, "toolCalls": [{**call, "status": "executing"}]},
        {"id": "2", "type": "info", **common},
        {"id": "1", "type": "gemini", **common, "toolCalls": [{**call, "status": "success"}]},
        {"id": "2", "type": "info", **common},
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    events = list(detect(path).read(path))
    ends = [e["data"] for e in events if e["kind"] == Kind.STEP_ENDED]
    assert [end.get("status") for end in ends] == [None]
    assert sum(e["kind"] == Kind.LLM for e in events) == 1
    assert sum(e["kind"] == Kind.LOG for e in events) == 1


def test_files_may_be_others_after_the_user_went_back(store: Store, tmp_path: Path) -> None:
    """Gemini CLI offers to take changes back with the conversation, and does not tell of it."""
    repository = calc_repository(tmp_path / "calc")
    path = tmp_path / "session-1.jsonl"
    lines = GEMINI.read_bytes().split(b"\n")
    begin = next(n for n, line in enumerate(lines) if line.startswith(b'{"$rewindTo"'))
    path.write_bytes(b"\n".join([*lines[:begin], b'{"$rewindTo": "g4"}', b""]))
    ((summary, _, steps),) = imported_runs(store, path, repository)
    assert [(step.step_type, step.description) for step in steps[-3:]] == [
        ("decision", "The user rewound the conversation."),
        ("external", "/home/ada/calc/NOTES may have been taken back"),
        ("external", "/home/ada/calc/calc.py may have been taken back"),
    ]
    assert [step.state_quality for step in steps[-2:]] == ["unverified", "unverified"]
    assert summary.end.quality == "unverified"
    # Where nothing was changed since, nothing is doubted.
    path.write_bytes(b"\n".join([*lines[:begin], b'{"$rewindTo": "g7"}', b""]))
    ((summary, _, _),) = imported_runs(Store(tmp_path / "other"), path, repository)
    assert summary.end.quality == "inferred"


def test_texts_of_results() -> None:
    assert response_text([{"functionResponse": {"response": {"error": "no"}}}]) == "no"
    assert response_text([{"text": "a"}, {"inlineData": {}}, {"text": "b"}]) == "a\nb"
    assert response_text(None) == ""


def test_sessions_are_looked_for_in_all_projects(tmp_path: Path) -> None:
    find = agent("gemini-cli").sessions
    chats = tmp_path / ".gemini" / "tmp" / "calc" / "chats"
    (chats / "1234").mkdir(parents=True)
    for name in ("session-1.json", "session-2.jsonl", "1234/sub.jsonl", "other"):
        (chats / name).write_text("")
    for environ in ({"HOME": str(tmp_path)}, {"GEMINI_CLI_HOME": str(tmp_path), "HOME": "/none"}):
        found = [path.name for path in find(environ, tmp_path)]
        assert found == ["session-1.json", "session-2.jsonl"]


# --- Real sessions --------------------------------------------------------------------------

SAMPLES = sorted((SHARED / "samples" / "gemini-cli").glob("*.json*"))
FIXTURES = sorted(
    (SHARED / "agents" / "fixtures" / "gemini-cli").glob(
        "*/session/.gemini/tmp/*/chats/session-*.jsonl"
    )
)
needs_real = pytest.mark.skipif(not SAMPLES, reason="no sessions of real agents here")


def _messages(path: Path) -> dict[str, dict[str, Any]]:
    """The newest record of each message of the raw file."""
    text = path.read_text()
    if path.suffix == ".json":
        return {message["id"]: message for message in json.loads(text)["messages"]}
    records = [json.loads(line) for line in text.split("\n") if line]
    return {record["id"]: record for record in records if "id" in record}


@needs_real
def test_tokens_of_real_sessions_are_those_of_the_raw_file(store: Store) -> None:
    imported = 0
    for path in [*SAMPLES, *FIXTURES]:
        if not is_transcript(path):
            # What is printed with --output-format stream-json is no session.
            assert path.read_text().startswith('{"type":"init"')
            with pytest.raises(ImportFailed):
                imported_runs(store, path)
            continue
        messages = _messages(path)
        answers = [m for m in messages.values() if m["type"] in ("gemini", "model")]
        tokens = [message.get("tokens") or {} for message in answers]
        ((summary, run, steps),) = imported_runs(store, path)
        assert run.totals.llm_calls == len(answers), path
        assert (run.totals.input_tokens or 0) == sum(t.get("input", 0) for t in tokens)
        # All that is not of the input was made by the model.
        made = sum(t.get("total", 0) - t.get("input", 0) for t in tokens)
        assert (run.totals.output_tokens or 0) == made
        calls = {c["id"] for message in answers for c in message.get("toolCalls", ())}
        assert calls == {step.external_id for step in steps if step.external_id}
        assert summary.unknown == 0
        imported += 1
    assert imported >= len(FIXTURES)


def _wire(folder: Path) -> list[int]:
    """What the model made in each answer that was streamed, as the provider counted it."""
    path = next(folder.glob("llm.jsonl*"))
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
        exchanges = [json.loads(line) for line in stream]
    found = []
    for exchange in exchanges:
        if exchange.get("turn") is None or exchange.get("status") != 200:
            continue  # a side call chooses the model
        events = [e[1] if isinstance(e, list) else e for e in exchange.get("events", ())]
        used = [event["usageMetadata"] for event in events if "usageMetadata" in event]
        if used and exchange.get("complete") is not False:
            found.append(used[-1]["candidatesTokenCount"] + used[-1]["thoughtsTokenCount"])
    return found


@needs_real
@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.parts[-7])
def test_real_sessions_end_with_the_real_diff(store: Store, tmp_path: Path, path: Path) -> None:
    folder = next(parent for parent in path.parents if parent.name == "session").parent
    repository = invoice_repository(tmp_path / "invoice")
    ((summary, run, steps),) = imported_runs(store, path, repository)
    check_end(store, steps, repository, folder / "final.diff")
    assert sorted(summary.read_first) == [
        *("src/invoice_export/duedate.py", "tests/test_duedate.py"),
    ]
    # With faults it gave up after the first failure.
    whole = (folder / "exit-status").read_text().strip() == "0"
    assert (summary.failing_test_runs, run.totals.retries) == (1, int(whole))
    failed = next(t for t in store.runs.tests(run.id) if t.outcome == "failed")
    numbers = {step.id: step.step_number for step in steps}
    edits = [step.step_number for step in steps if step.step_type == "edit"]
    assert edits[0] < numbers[str(failed.step_id)]
    assert edits[1:] == [number for number in edits if number > numbers[str(failed.step_id)]]
    calls = store.runs.interactions(run.id)
    assert [call.output_tokens for call in calls] == _wire(folder)
