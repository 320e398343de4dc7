"""Sessions of Cline as runs: of its core, and of the older extension."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from importing import (
    BEFORE,
    CLINE,
    CLINE_TASK,
    FAILING,
    RIGHT,
    SHARED,
    WRONG,
    calc_repository,
    imported_runs,
)

from repotrace.agents.tools import EDITOR, editor_tools
from repotrace.importers import detect, is_transcript
from repotrace.importers.claims import claimed, spoken
from repotrace.importers.patches import apply_diff
from repotrace.runs.transcripts.sessions import transcripts_in
from repotrace.storage import Store


def test_a_session_of_the_core(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, CLINE, repository)
    assert run.task == "add() in @calc.py forgets its second argument. Fix it."
    assert (run.agent, run.source_id, run.outcome) == ("cline", "1772366700000_abcde", "passed")
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "read_file calc.py"),
        ("tool", "completed", "read_files"),
        ("edit", "completed", "editor calc.py"),
        ("test", "failed", "python -m pytest"),
        ("command", "completed", "git status --short"),
        ("edit", "completed", "editor calc.py"),
        ("edit", "completed", "editor NOTES"),
        ("edit", "failed", "editor missing"),
        ("test", "completed", "python -m pytest"),
        ("llm", "completed", "Fixed: add() adds."),
    ]
    # Cached tokens are among those of the input.
    assert run.totals.input_tokens == 1000 + 1200 + 1300 + 1500 + 1600 + 1700
    assert run.totals.output_tokens == 40 + 60 + 30 + 50 + 20 + 15
    assert run.totals.cache_read_tokens == 900 + 1000 + 1300 + 1500 + 1600
    assert run.totals.cache_write_tokens == 900 + 100
    assert str(run.totals.cost_usd) == "0.032"
    assert [c.exit_code for c in store.runs.commands(run.id)] == [1, 0, 0]
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode(), RIGHT.encode()),
    ]
    assert store.snapshots.read(states[-1], "NOTES") == b"fixed\n"
    assert summary.end.quality == "inferred"
    assert summary.read_first == ("calc.py", "test_calc.py", "other")
    assert (summary.test_runs, summary.failing_test_runs, summary.retries) == (2, 1, 1)
    reads = {read.file_path: read for read in store.runs.reads(run.id)}
    assert (reads["test_calc.py"].first_line, reads["test_calc.py"].last_line) == (1, 5)
    # The prompt held the file as a whole.
    assert reads["calc.py"].object_id is not None


def test_a_task_of_the_extension(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, CLINE_TASK, repository)
    assert run.task == "add() in calc.py forgets its second argument. Fix it."
    assert run.source_id == "1772366800000"
    assert [(step.step_type, step.status) for step in steps] == [
        ("tool", "completed"),  # read_file
        ("edit", "completed"),
        ("test", "failed"),
        ("edit", "completed"),
        ("test", "completed"),
        ("command", "failed"),  # refused
        ("decision", "completed"),
        ("tool", "completed"),  # attempt_completion
        ("note", "completed"),  # the feedback
        ("llm", "completed"),
    ]
    assert steps[8].input_context == "Thank you. Is there more?"
    assert steps[1].reason == "I subtract."
    # By hand from ui_messages.json; its request without tokens broke off.
    assert run.totals.input_tokens == 1000 + 1010 + 1020 + 1030 + 1030 + 1020 + 1015 + 1010
    assert run.totals.output_tokens == 20 + 40 + 15 + 50 + 10 + 8 + 12 + 5
    assert str(run.totals.cost_usd) == "2.00"
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode()),
    ]
    outcomes = [(t.node_id, t.outcome) for t in store.runs.tests(run.id)]
    assert outcomes == [(FAILING, "failed"), (FAILING, "passed")]
    assert [c.exit_code for c in store.runs.commands(run.id)] == [1, None]
    assert summary.end.quality == "inferred"
    assert run.base_state is not None
    assert store.snapshots.read(run.base_state, "calc.py") == BEFORE.encode()


def test_the_folder_of_a_task_stands_for_it(store: Store) -> None:
    folder = CLINE_TASK.parent
    assert is_transcript(folder)
    assert detect(CLINE_TASK.with_name("ui_messages.json")).NAME == "cline"
    assert list(transcripts_in(folder)) == [folder]
    assert sorted(transcripts_in(folder.parent)) == [CLINE, folder]
    names = {
        run.id
        for path in (folder, CLINE_TASK, CLINE_TASK.with_name("ui_messages.json"))
        for _, run, _ in imported_runs(store, path)
    }
    assert len(names) == 1


def test_claims_of_text_editors() -> None:
    tools = editor_tools("text_editor")
    given = {"command": "insert", "path": "a.py", "insert_line": 1, "new_str": "two\nthree"}
    name = spoken("text_editor", given, tools)
    assert name == "text_editor insert"
    (change,) = claimed(tools[name], given, "/work")
    assert change["file_path"] == "/work/a.py"
    assert apply_diff("one\nfour\n", change["patch"]) == "one\ntwo\nthree\nfour\n"
    given = {"command": "create", "path": "/work/b.py", "file_text": "x\n"}
    (change,) = claimed(EDITOR["create"], given, "/work")
    assert (change["file_path"], change["content_after"]) == ("/work/b.py", "x\n")
    # How a change was undone is not told: the operation has no content.
    (change,) = claimed(EDITOR["undo_edit"], {"path": "a"}, "/work")
    assert set(change) == {"file_path", "operation_type"}
    assert claimed(EDITOR["view"], {"path": "a"}, "/work") == []
    assert spoken("bash", {"command": "ls"}, tools) == "bash"


REAL = sorted((SHARED / "samples" / "cline").glob("*.messages.json"))


@pytest.mark.skipif(not REAL, reason="no sessions of real people beside the checkout")
def test_tokens_of_real_sessions_are_those_of_the_raw_file(store: Store) -> None:
    for path in REAL:
        messages = json.loads(path.read_bytes())["messages"]
        metrics = [m["metrics"] for m in messages if "metrics" in m]
        ((_, run, _),) = imported_runs(store, path)
        assert run.totals.input_tokens == sum(m["inputTokens"] for m in metrics), path
        assert run.totals.output_tokens == sum(m["outputTokens"] for m in metrics), path
        assert run.totals.llm_calls == sum(m["role"] == "assistant" for m in messages), path
        assert float(run.totals.cost_usd or 0) == pytest.approx(sum(m["cost"] for m in metrics))
        edits = [p for m in messages for p in m["content"] if p.get("name") == "editor"]
        edited = sum(part["type"] == "tool_use" for part in edits)
        assert len(store.runs.operations(run.id)) == edited, path
