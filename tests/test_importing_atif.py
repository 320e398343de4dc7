"""Trajectories in the Agent Trajectory Interchange Format as runs."""

from __future__ import annotations

import json
from pathlib import Path

from importing import ATIF, ATIF_OTHER, FAILING, RIGHT, WRONG, calc_repository, imported_runs

from repotrace.agents.claude_code import TOOLS
from repotrace.importers.claims import claimed
from repotrace.storage import Store


def test_a_trajectory_of_an_agent_that_is_known(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, ATIF, repository)
    assert run.task == "add() in calc.py forgets its second argument. Fix it."
    assert (run.source, run.agent, run.agent_version) == ("atif", "claude-code", "2.1.0")
    assert run.attributes["git_branch"] == "main"
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "Read test_calc.py"),
        ("tool", "completed", "Agent Look for callers"),
        ("tool", "completed", "Grep add"),
        ("llm", "completed", "Nobody."),
        ("edit", "completed", "Edit calc.py"),
        ("test", "failed", "python -m pytest -q"),
        ("edit", "failed", "Edit calc.py"),
        ("edit", "completed", "MultiEdit calc.py"),
        ("edit", "completed", "Write NOTES"),
        ("test", "completed", "python -m pytest -q"),
        ("unknown", "completed", "Unknown record: source telepath"),
        ("note", "completed", "Compacting."),
        ("llm", "completed", "Fixed: add() adds."),
    ]
    assert [step.parent_id for step in steps[2:4]] == [steps[1].id] * 2
    assert steps[9].retry_of == steps[5].id
    # By hand; those of the sub-agent are in the last two.
    assert run.totals.input_tokens == 100 + 150 + 180 + 220 + 260 + 280 + 40 + 50
    assert run.totals.output_tokens == 20 + 30 + 10 + 40 + 10 + 8 + 5 + 4
    assert run.totals.cache_read_tokens == 100 + 150 + 180 + 220 + 260
    assert run.totals.llm_calls == 8
    states = [step.state_id for step in steps if step.state_id]
    assert [store.snapshots.read(state, "calc.py") for state in states] == [
        *(WRONG.encode(), RIGHT.encode(), RIGHT.encode()),
    ]
    assert store.snapshots.read(states[-1], "NOTES") == b"fixed\n"
    assert summary.end.quality == "inferred"
    assert summary.damage == {"unknown": {"source telepath": 1}}
    commands = store.runs.commands(run.id)
    assert [c.exit_code for c in commands] == [1, 0]
    assert commands[0].command.stdout.text.startswith("F ")
    outcomes = [(t.node_id, t.outcome) for t in store.runs.tests(run.id)]
    assert outcomes == [(FAILING, "failed"), (FAILING, "passed")]


def test_a_trajectory_without_times_and_names(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, ATIF_OTHER, repository)
    assert run.task == "add() in calc.py forgets its second argument."
    assert (run.agent, run.outcome) == ("terminus-2", "passed")
    kinds = [(step.step_type, step.description) for step in steps]
    assert kinds == [
        ("command", "cd /home/somebody/calc"),
        ("test", "echo fixed > NOTES; python -m pytest -q"),
        ("tool", "mark_task_complete"),
        ("decision", "What a sub-agent did is in trajectory.summary.json"),
    ]
    calls = store.runs.interactions(run.id)
    # What an earlier trajectory told already is shown to the model, and is no step.
    assert calls[0].messages[0]["content"] == "Earlier words."
    assert (run.totals.input_tokens, run.totals.output_tokens) == (160, 35)
    states = [step.state_id for step in steps if step.state_id]
    # The shell stays where the command before went.
    assert store.snapshots.read(states[-1], "calc.py") == RIGHT.encode()
    assert store.snapshots.read(states[-1], "NOTES") == b"fixed\n"
    assert run.started_at is not None
    assert run.started_at.year > 2000
    assert summary.end.quality == "inferred"


def test_edits_that_are_claimed_together() -> None:
    edits = [{"old_string": "a", "new_string": "b", "replace_all": True}, {"old_string": "c"}]
    (change,) = claimed(TOOLS["MultiEdit"], {"file_path": "/x", "edits": edits}, "")
    assert change["edits"] == [
        {"old": "a", "new": "b", "all": True},
        {"old": "c", "new": "", "all": False},
    ]
    (change,) = claimed(TOOLS["MultiEdit"], {"file_path": "/x", "edits": [{}]}, "")
    assert "edits" not in change


def test_a_session_id_names_the_run(store: Store, tmp_path: Path) -> None:
    value = json.loads(ATIF.read_bytes())
    path = tmp_path / "later.json"
    value["steps"].append({"step_id": 11, "source": "user", "message": "And now?"})
    path.write_text(json.dumps(value))
    ((_, first, steps),) = imported_runs(store, ATIF)
    ((_, second, more),) = imported_runs(store, path)
    assert first.id == second.id
    assert [step.id for step in more[:-1]] == [step.id for step in steps]
    assert more[-1].input_context == "And now?"
