"""Imported runs as the store shows them: steps, tokens, tests, and the files of each step."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from importing import (
    ALL,
    BEFORE,
    CLAUDE,
    CODEX,
    FAILING,
    MINI,
    MINI_BARE,
    MINI_V1,
    PAGINATED,
    RIGHT,
    SHARED,
    WRONG,
    calc_repository,
    imported_runs,
)
from running import plain_git

from repotrace.errors import RepoTraceError
from repotrace.records.run import ExecutionStep, Run
from repotrace.runs.transcripts.importing import Options, Summary, import_session
from repotrace.storage import Store


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return calc_repository(tmp_path / "calc")


def imported(
    store: Store, path: Path, repository: Path | None = None, **options: object
) -> tuple[Summary, Run, list[ExecutionStep]]:
    (summary,) = import_session(store, path, Options(repository=repository, **options))  # type: ignore[arg-type]
    run = store.runs.get(summary.run_id)
    return summary, run, store.runs.steps(run.id)


def contents(store: Store, steps: list[ExecutionStep], path: str = "calc.py") -> list[str | None]:
    """The content of a path in each state that a step has."""
    states = [step.state_id for step in steps if step.state_id]
    found = [store.snapshots.read(state, path) for state in states]
    return [None if data is None else data.decode() for data in found]


def test_a_session_of_claude_code(store: Store, repository: Path) -> None:
    summary, run, steps = imported(store, CLAUDE, repository)
    assert run.task == "add() in calc.py forgets its second argument. Fix it."
    assert (run.agent, run.agent_version, run.status) == ("claude-code", "2.1.0", "completed")
    assert run.outcome == "passed"
    assert run.workspace == str(repository)
    kinds = [(step.step_number, step.step_type, step.status) for step in steps]
    assert kinds == [
        (1, "tool", "completed"),  # Read
        (2, "tool", "completed"),  # Grep
        (3, "edit", "completed"),
        (4, "test", "failed"),
        (5, "edit", "completed"),
        (6, "tool", "completed"),  # Task
        (7, "tool", "completed"),  # Grep of the sub-agent
        (8, "llm", "completed"),  # its answer
        (9, "decision", "completed"),  # compaction
        (10, "command", "failed"),  # refused
        (11, "decision", "completed"),  # the refusal
        (12, "test", "completed"),
        (13, "command", "completed"),
        (14, "llm", "completed"),  # asked before the record that is not known
        (15, "unknown", "completed"),
    ]
    assert [step.parent_id for step in steps[6:8]] == [steps[5].id] * 2
    assert steps[10].parent_id == steps[9].id
    assert steps[2].reason == "It returns only a. I subtract."
    assert steps[11].retry_of == steps[3].id
    # By hand: the last record of each answer, cached input included.
    assert run.totals.input_tokens == 110 + 135 + 145 + 155 + 110 + 120 + 130 + 20 + 32
    assert run.totals.output_tokens == 40 + 30 + 20 + 60 + 25 + 20 + 12 + 8 + 6
    assert run.totals.cache_read_tokens == 110 + 130 + 140 + 110 + 120 + 28
    assert run.totals.cache_write_tokens == 100 + 20 + 10 + 10 + 60 + 5 + 5
    assert (run.totals.llm_calls, run.totals.retries) == (9, 1)
    assert summary.damage == {"broken": 1, "torn": 1, "duplicate": 1, "unknown": {"telepathy": 1}}
    assert run.totals.lost == 1
    assert summary.read_first == ("calc.py",)


def test_the_conversation_of_a_session_is_what_the_model_was_shown(store: Store) -> None:
    _, run, _ = imported(store, CLAUDE)
    calls = [call for call in store.runs.interactions(run.id) if call.messages]
    roles = [[message["role"] for message in call.messages] for call in calls]
    assert roles[0] == ["user"]
    # Two tools answered the first call; the failed request in between is no message.
    assert roles[1] == ["user", "assistant", "tool", "tool"]
    assert calls[1].attempts == 2
    after = next(call for call in calls if call.external_id == "msg_5")
    assert [message["role"] for message in after.messages] == ["user"]
    assert "Summary" in after.messages[0]["content"]
    parts = calls[0].response_message
    assert parts is not None
    assert [part["type"] for part in parts["content"]] == [
        *("thinking", "text", "tool_call", "tool_call"),
    ]


def test_an_output_beside_the_session_is_read(store: Store) -> None:
    _, run, steps = imported(store, CLAUDE)
    (command,) = store.runs.commands(run.id, step_id=steps[12].id)
    assert command.command.stdout.text == "".join(f"{n}\n" for n in range(1, 9001))
    assert command.exit_code == 0


@pytest.mark.parametrize("path", [CLAUDE, CODEX, MINI], ids=["claude", "codex", "mini"])
def test_the_files_of_each_step_are_rebuilt(store: Store, repository: Path, path: Path) -> None:
    summary, run, steps = imported(store, path, repository)
    assert run.base_quality == "inferred"
    assert run.base_commit == plain_git(repository, "rev-parse", "main")
    assert run.base_state is not None
    assert store.snapshots.read(run.base_state, "calc.py") == BEFORE.encode()
    assert store.snapshots.read(run.base_state, "other") == b"x\n"
    assert contents(store, steps) == [WRONG, RIGHT]
    assert {step.state_quality for step in steps if step.state_id} == {"inferred"}
    operations = store.runs.operations(run.id)
    assert [(o.operation_type, o.file_path, o.origin) for o in operations] == [
        ("edit", "calc.py", "claimed")
    ] * 2
    assert [(o.content_before, o.content_after) for o in operations] == [
        (BEFORE, WRONG),
        (WRONG, RIGHT),
    ]
    assert [(o.lines_added, o.lines_removed) for o in operations] == [(1, 1)] * 2
    failed, passed = (t for t in store.runs.tests(run.id) if t.node_id == FAILING)
    assert (failed.outcome, passed.outcome) == ("failed", "passed")
    first_edit, second_edit = (step for step in steps if step.state_id)
    by_id = {step.id: step for step in steps}
    assert first_edit.step_number < by_id[failed.step_id].step_number < second_edit.step_number
    assert (summary.test_runs, summary.failing_test_runs, summary.retries) == (2, 1, 1)
    assert summary.end.quality == "inferred"


def test_the_state_of_a_step_can_be_written_out(
    store: Store, repository: Path, tmp_path: Path
) -> None:
    _, _, steps = imported(store, PAGINATED, repository)
    state = next(step.state_id for step in steps if step.state_id)
    store.snapshots.materialise(state, tmp_path / "out")
    assert (tmp_path / "out" / "NOTES").read_text() == "fixed\n"
    assert (tmp_path / "out" / "calc.py").read_text() == RIGHT
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("NOTES", "calc.py", "other", "test_calc.py"),
    ]


def test_states_outlive_the_repository(store: Store, repository: Path) -> None:
    _, _, steps = imported(store, CLAUDE, repository)
    shutil.rmtree(repository)
    store.close()
    assert contents(Store(store.home), steps) == [WRONG, RIGHT]
    checked = subprocess.run(
        ["git", f"--git-dir={store.home / 'snapshots.git'}", "fsck", "--full", "--strict"],
        capture_output=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_tokens_of_codex_count_each_answer_once(store: Store) -> None:
    _, run, _ = imported(store, CODEX)
    assert run.totals.input_tokens == 100 + 130 + 160 + 190 + 220 + 240
    assert run.totals.output_tokens == 20 + 25 + 15 + 30 + 15 + 10
    assert run.totals.reasoning_tokens == 5
    _, other, steps = imported(store, PAGINATED)
    assert other.totals.input_tokens == 100 + 130 + 150
    # The end of the last command alone tells that it ran.
    assert [step.description for step in steps if step.step_type == "test"] == [
        "python -m pytest -q"
    ]


def test_what_mini_swe_agent_tells(store: Store, repository: Path) -> None:
    summary, run, steps = imported(store, MINI, repository)
    assert str(run.totals.cost_usd) == "1.50"
    assert run.totals.input_tokens == 900
    assert summary.end.against == "submitted patch"
    assert summary.end.equal is True
    assert steps[-1].status == "completed"
    summary, run, steps = imported(store, MINI_BARE, repository)
    assert contents(store, steps) == [RIGHT]
    assert summary.end.equal is True
    summary, run, steps = imported(store, MINI_V1, repository)
    assert (run.status, run.error) == ("failed", "LimitsExceeded")
    assert (summary.end.quality, summary.end.reason) == (
        "unverified",
        "make all may have changed files",
    )
    assert steps[1].state_quality == "unverified"
    assert "make all" in (steps[1].state_reason or "")


def test_the_end_is_compared_with_the_work_tree(store: Store, repository: Path) -> None:
    summary, _, _ = imported(store, CLAUDE, repository)
    assert (summary.end.against, summary.end.differing) == ("work tree", ("calc.py",))
    (repository / "calc.py").write_text(RIGHT)
    summary, _, _ = imported(store, CLAUDE, repository)
    assert summary.end.equal is True
    (repository / "new").write_text("")
    summary, run, _ = imported(store, CLAUDE, repository)
    assert summary.end.differing == ("new",)
    assert run.attributes["end_state"]["differing"] == ["new"]


def test_without_a_repository_changes_are_kept_and_states_are_missing(store: Store) -> None:
    summary, run, steps = imported(store, CLAUDE)
    assert run.base_quality == "missing"
    assert summary.end.quality == "missing"
    assert summary.end.reason is not None
    assert "--repo" in summary.end.reason
    edits = [step for step in steps if step.step_type == "edit"]
    assert {step.state_quality for step in edits} == {"missing"}
    store.snapshots.prune(grace=0)
    assert [o.content_after for o in store.runs.operations(run.id)] == [WRONG, RIGHT]


def test_a_history_without_the_files_gives_no_base(store: Store, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    plain_git(other, "init", "-q")
    (other / "calc.py").write_text("something else\n")
    plain_git(other, "add", "-A")
    plain_git(other, "commit", "-q", "-m", "Begin")
    summary, run, _ = imported(store, CLAUDE, other)
    assert run.base_quality == "missing"
    assert "no commit" in (summary.end.reason or "")
    summary, run, _ = imported(store, CLAUDE, other, base="HEAD")
    assert run.base_quality == "inferred"
    assert summary.end.quality == "unverified"
    with pytest.raises(RepoTraceError, match="no commit"):
        imported(store, CLAUDE, other, base="nothing")


def test_what_was_not_committed_when_a_session_began_is_part_of_its_base(
    store: Store, repository: Path, tmp_path: Path
) -> None:
    """Nothing is more usual, and no commit has it."""
    session = tmp_path / "session.jsonl"
    text = CLAUDE.read_text().replace("/home/ada/calc", str(repository))
    session.write_text(text.replace("def add(a, b):", "# mine\\ndef add(a, b):"))
    (repository / "calc.py").write_text("# mine\n" + RIGHT)
    (summary,) = import_session(store, session)
    run = store.runs.get(summary.run_id)
    assert run.base_commit == plain_git(repository, "rev-parse", "HEAD").strip()
    assert (run.base_quality, summary.end.quality) == ("unverified", "unverified")
    assert "began with changes that no commit has" in (summary.end.reason or "")
    assert summary.end.equal is True
    before = store.snapshots.read(run.base_state or "", "calc.py")
    committed = plain_git(repository, "show", "HEAD:calc.py")
    assert before is not None
    assert before.decode().replace("# mine\n", "").strip() == committed.strip()
    operations = [store.runs.operations(run.id, step.id) for step in store.runs.steps(run.id)]
    first = next(own[0] for own in operations if own)
    assert (first.lines_added, first.lines_removed) == (1, 1), "the agent's change alone"


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name[:20])
def test_importing_again_changes_nothing(store: Store, repository: Path, path: Path) -> None:
    first = imported_runs(store, path, repository)
    before = [store.runs.trace(run.id).model_dump_json() for _, run, _ in first]
    refs = [store.snapshots.history(f"runs/{run.id}") for _, run, _ in first]
    second = imported_runs(store, path, repository)
    assert {summary.is_new for summary, _, _ in first} == {True}
    assert {summary.is_new for summary, _, _ in second} == {False}
    assert [store.runs.trace(run.id).model_dump_json() for _, run, _ in second] == before
    assert [store.snapshots.history(f"runs/{run.id}") for _, run, _ in second] == refs
    assert len(store.runs.list()) == len(first)


@pytest.mark.parametrize("path", [CLAUDE, CODEX], ids=["claude", "codex"])
def test_a_session_that_has_grown_extends_its_run(
    store: Store, repository: Path, tmp_path: Path, path: Path
) -> None:
    lines = path.read_bytes().split(b"\n")
    growing = tmp_path / path.name
    for count in (len(lines) // 3, len(lines) // 2, len(lines)):
        growing.write_bytes(b"\n".join(lines[:count]))
        _, grown, _ = imported(store, growing, repository)
    whole = Store(tmp_path / "whole")
    shutil.copy(path, growing)
    _, run, _ = imported(whole, growing, repository)
    assert grown.id == run.id
    assert (
        json.loads(store.runs.trace(run.id).model_dump_json())["steps"]
        == (json.loads(whole.runs.trace(run.id).model_dump_json())["steps"])
    )
    assert grown.totals == run.totals


def test_a_resumed_session_joins_its_run(store: Store, repository: Path, tmp_path: Path) -> None:
    records = [json.loads(line) for line in CLAUDE.read_bytes().split(b"\n")[:9]]
    resumed = []
    for record in records:
        resumed.append(record | ({"sessionId": "another"} if "sessionId" in record else {}))
    more = {**resumed[-1], "uuid": "later", "timestamp": "2026-03-02T09:00:00.000Z"}
    more |= {"type": "user", "message": {"role": "user", "content": "And subtract()?"}}
    path = tmp_path / "another.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in [*resumed, more]))
    _, run, steps = imported(store, CLAUDE, repository)
    _, joined, more_steps = imported(store, path, repository)
    assert joined.id == run.id
    assert len(more_steps) == len(steps) + 1
    assert more_steps[-1].input_context == "And subtract()?"
    assert joined.totals.input_tokens == run.totals.input_tokens


def test_secrets_do_not_reach_the_database(store: Store, tmp_path: Path) -> None:
    secret = "ghp_" + "Ab3dE6gH" * 4 + "Zz9x"
    path = tmp_path / "s.jsonl"
    path.write_bytes(CLAUDE.read_bytes().replace(b"It returns only a.", secret.encode()))
    imported(store, path)
    trace = store.runs.trace(store.runs.list()[0].id).model_dump_json()
    assert "I subtract." in trace
    assert secret not in trace


FIXTURES = SHARED / "agents" / "fixtures"
REAL = [
    *FIXTURES.glob("claude-code/*/session/.claude/projects/*/*.jsonl"),
    *FIXTURES.glob("codex/*/session/.codex/sessions/*/*/*/*.jsonl"),
    *FIXTURES.glob("mini-swe-agent/*/session/*.traj.json"),
]


@pytest.mark.skipif(not REAL, reason="no sessions of real agents beside the checkout")
def test_real_sessions_end_with_the_real_diff(store: Store, tmp_path: Path) -> None:
    repository = tmp_path / "invoice"
    shutil.copytree(SHARED / "agents" / "invoice-template", repository)
    for path in [repository, *repository.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    plain_git(repository, "init", "-q", "-b", "main")
    plain_git(repository, "add", "-A")
    plain_git(repository, "commit", "-q", "-m", "Begin")
    for path in REAL:
        summary, run, steps = imported(store, path, repository)
        final = next(parent for parent in path.parents if parent.name == "session").parent
        plain_git(repository, "apply", str(final / "final.diff"))
        state = [step.state_id for step in steps if step.state_id][-1]
        assert state is not None
        for entry in store.snapshots.list(state):
            data = store.snapshots.read(state, entry.path)
            assert data == (repository / entry.path).read_bytes(), (path, entry.path)
        plain_git(repository, "checkout", "-q", ".")
        assert (summary.failing_test_runs, run.totals.retries) == (1, 1)
        assert sorted(summary.read_first) == [
            *("src/invoice_export/duedate.py", "tests/test_duedate.py"),
        ]
        assert run.totals.input_tokens == summary.input_tokens == _tokens_in(path)


def _tokens_in(path: Path) -> int:
    """Input tokens by counting in the raw file, in the simplest way."""
    if path.suffix == ".json":
        messages = json.loads(path.read_bytes())["messages"]
        responses = [m["extra"]["response"] for m in messages if "response" in m.get("extra", {})]
        return sum(response["usage"]["prompt_tokens"] for response in responses)
    records = [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
    if "codex" in path.parts:
        last = [r for r in records if r["payload"].get("type") == "token_count"][-1]
        return int(last["payload"]["info"]["total_token_usage"]["input_tokens"])
    answers = {
        r["message"]["id"]: r["message"]["usage"] for r in records if r["type"] == "assistant"
    }
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(usage[name] for usage in answers.values() for name in names)


def test_what_others_did_meanwhile_is_told(store: Store, repository: Path, tmp_path: Path) -> None:
    lines = CLAUDE.read_bytes().split(b"\n")
    common = {key: json.loads(lines[1])[key] for key in ("sessionId", "cwd", "version")}
    changed = {"type": "edited_text_file", "filename": "/home/ada/calc/calc.py", "snippet": "1"}
    queued = {"type": "queued_command", "prompt": "Hurry up"}
    said = {"role": "user", "content": "<bash-input>rm other</bash-input>"}
    output = "<bash-stdout>gone</bash-stdout><bash-stderr></bash-stderr>"
    more = [
        {"type": "attachment", "attachment": changed},
        {"type": "attachment", "attachment": queued},
        {"type": "user", "message": said},
        {"type": "user", "message": {"role": "user", "content": output}},
    ]
    found = []
    for number, record in enumerate(more):
        stamp = {"uuid": f"more-{number}", "timestamp": f"2026-03-01T13:00:0{number}Z"}
        found.append(json.dumps({**common, **stamp, **record}).encode())
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"\n".join([*lines[:-1], *found]) + b"\n")
    _, run, steps = imported(store, path, repository)
    external, note, typed = steps[-3:]
    assert (external.step_type, external.state_quality) == ("external", "unverified")
    assert external.state_reason == "calc.py was changed by somebody else"
    assert (note.step_type, note.input_context) == ("note", "Hurry up")
    (command,) = store.runs.commands(run.id, step_id=typed.id)
    assert command.command.stdout.text == "gone"
    assert command.exit_code is None
    assert typed.state_id is not None
    assert store.snapshots.read(typed.state_id, "other") is None
