"""Trajectories of SWE-agent as runs: its editor with a window, tools called by text, attempts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from importing import (
    BEFORE,
    FAILING,
    RIGHT,
    SHARED,
    SWE_ATTEMPTS,
    SWE_V0,
    SWE_V1,
    WRONG,
    calc_repository,
    commit_at,
    imported_runs,
)
from running import plain_git

from repotrace.agents import agent
from repotrace.errors import ImportFailed
from repotrace.importers import detect, importer
from repotrace.importers.swe_agent_tools import asked_of, result_of, windows_of
from repotrace.records.run import ExecutionStep
from repotrace.runs.transcripts.importing import Options, import_session
from repotrace.runs.transcripts.rebuilding import Base, Rebuilding
from repotrace.storage import Store
from repotrace.system.snapshots.rebuild import Rebuilder


def contents(store: Store, steps: list[ExecutionStep], path: str) -> list[str | None]:
    """The content of a path in each state that a step has."""
    found = [store.snapshots.read(step.state_id, path) for step in steps if step.state_id]
    return [None if data is None else data.decode() for data in found]


@pytest.mark.parametrize("path", [SWE_V1, SWE_V0], ids=["v1", "v0"])
def test_the_files_of_each_step_are_rebuilt(store: Store, tmp_path: Path, path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, path, repository)
    assert run.task == "add() in calc.py forgets its second argument. Fix it."
    assert (run.agent, run.status, run.outcome) == ("swe-agent", "completed", "passed")
    assert run.base_commit == plain_git(repository, "rev-parse", "main")
    assert run.base_state is not None
    assert store.snapshots.read(run.base_state, "calc.py") == BEFORE.encode()
    changed = [text for text in contents(store, steps, "calc.py") if text is not None]
    assert list(dict.fromkeys(changed)) == [WRONG, RIGHT]
    assert (summary.end.quality, summary.end.against, summary.end.equal) == (
        *("inferred", "submitted patch", True),
    )
    failed, passed = store.runs.tests(run.id)
    assert (failed.node_id, failed.outcome) == (FAILING, "failed")
    assert (passed.node_id, passed.outcome) == (FAILING, "passed")
    numbers = {step.id: step.step_number for step in steps}
    first, *_, last = [step for step in steps if step.step_type == "edit" and step.state_id]
    assert first.step_number < numbers[str(failed.step_id)] < last.step_number
    assert summary.read_first == ("calc.py",)
    assert (summary.test_runs, summary.failing_test_runs) == (2, 1)


def test_calls_of_a_model_are_steps(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, SWE_V1, repository)
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "find_file calc.py"),
        ("tool", "completed", "open calc.py"),
        ("edit", "completed", "edit calc.py"),
        ("test", "failed", "python -m pytest -q"),
        ("edit", "failed", "edit calc.py"),
        ("edit", "completed", "edit calc.py"),
        ("test", "completed", "python -m pytest -q"),
        ("tool", "completed", "submit"),
    ]
    assert steps[2].reason == "It returns only a. I subtract."
    # The edit that was not accepted, and the tests that failed, were tried again.
    assert [(s.step_number, s.attempt) for s in steps if s.retry_of] == [(6, 2), (7, 2)]
    assert steps[5].retry_of == steps[4].id
    # A name that two calls have does not make them one.
    assert [step.external_id for step in steps[-2:]] == ["call_6", "call_6 7"]
    assert run.agent_version == "1.1.0"
    commands = store.runs.commands(run.id)
    assert [command.exit_code for command in commands] == [None, None]
    assert [command.command.duration for command in commands] == [1.5, 1.5]
    assert "\r" not in commands[0].command.stdout.text
    # By hand: what the trajectory tells of the session as a whole.
    told = {name: run.attributes[name] for name in ("total_prompt_tokens", "api_calls")}
    assert told == {"total_prompt_tokens": 4200, "api_calls": 8}
    assert run.attributes["total_completion_tokens"] == 310
    assert run.attributes["session_cost_usd"] == "0.25"
    assert (run.totals.llm_calls, summary.llm_calls) == (8, 8)


def test_what_was_asked_again_leaves_the_conversation(store: Store) -> None:
    """SWE-agent shows the model an edit that was not accepted once, and forgets it then."""
    ((_, run, _),) = imported_runs(store, SWE_V1)
    calls = store.runs.interactions(run.id)
    assert [len(call.messages) for call in calls] == [2, 4, 6, 8, 10, 12, 12, 14]
    assert calls[5].messages[-1]["role"] == "tool"
    assert "syntax error" in json.dumps(calls[5].messages[-1])
    assert "syntax error" not in json.dumps(calls[6].messages)
    assert calls[0].model == "a-model"


def test_commands_of_the_oldest_are_text(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((_, run, steps),) = imported_runs(store, SWE_V0, repository)
    assert [(step.step_type, step.status, step.description) for step in steps] == [
        ("tool", "completed", "open calc.py"),
        ("edit", "completed", "edit calc.py"),
        ("test", "failed", "python -m pytest -q"),
        ("edit", "failed", "edit calc.py"),
        ("edit", "completed", "edit calc.py"),
        ("edit", "completed", "create NOTES"),
        ("edit", "completed", "edit NOTES"),
        ("test", "completed", "python -m pytest -q"),
        ("command", "completed", "rm NOTES"),
        ("tool", "completed", "submit"),
    ]
    assert contents(store, steps, "NOTES") == [
        *(None, None, "\n", "fixed\nand tested\n", None),
    ]
    assert run.attributes["api_calls"] == 10
    # The demonstration is shown to the model, but is not its task.
    first = store.runs.interactions(run.id)[0]
    assert [message["role"] for message in first.messages] == ["system", "user", "user"]


def test_each_attempt_is_a_run(store: Store, tmp_path: Path) -> None:
    repository = calc_repository(tmp_path / "calc")
    (one, run, steps), (two, better, more) = imported_runs(store, SWE_ATTEMPTS, repository)
    assert run.id != better.id
    assert (run.status, run.error, run.attributes["attempt"]) == (
        *("failed", "submitted (exit_cost)", 1),
    )
    assert (better.status, better.attributes["attempt"]) == ("completed", 2)
    assert (better.attributes["best_attempt"], "best_attempt" in run.attributes) == (True, False)
    # A command that was given up, and the end that SWE-agent made.
    assert [(step.step_type, step.status) for step in steps[-2:]] == [
        *(("command", "failed"), ("decision", "completed")),
    ]
    (command,) = store.runs.commands(run.id)
    assert command.command.termination == "timeout"
    assert contents(store, steps, "calc.py") == [WRONG]
    assert contents(store, more, "calc.py")[-1] == RIGHT
    commented = "def add(a, b):\n    # Both.\n    return a\n"
    assert contents(store, more, "calc.py")[0] == commented
    assert [step.status for step in more[1:3]] == ["failed", "completed"]
    assert (one.end.equal, two.end.equal) == (True, True)
    spent = [r.attributes["total_prompt_tokens"] for r in (run, better)]
    assert spent == [900, 1900]


def test_the_submitted_patch_tells_the_commit(store: Store, tmp_path: Path) -> None:
    """It names the files before it, though the trajectory shows none of them as a whole."""
    repository = calc_repository(tmp_path / "calc")
    base = plain_git(repository, "rev-parse", "main")
    (repository / "calc.py").write_text("def add(a, b):\n    return 0\n")
    plain_git(repository, "add", "-A")
    tree = plain_git(repository, "write-tree")
    later = commit_at(repository, "2026-02-28T13:00:00Z", tree, "-p", "HEAD")
    plain_git(repository, "reset", "-q", "--hard", later)
    for summary, run, _ in imported_runs(store, SWE_ATTEMPTS, repository):
        assert run.base_commit == base
        assert (summary.end.against, summary.end.equal) == ("submitted patch", True)


def test_trajectories_are_found_where_the_agent_leaves_them(tmp_path: Path) -> None:
    place = tmp_path / "trajectories" / "ada" / "run" / "calc"
    place.mkdir(parents=True)
    (place / "calc.traj").write_bytes(SWE_V0.read_bytes())
    find = agent("swe-agent").sessions
    assert list(find({}, tmp_path)) == [place / "calc.traj"]
    assert list(find({}, place)) == [place / "calc.traj"]
    elsewhere = {"SWE_AGENT_TRAJECTORY_DIR": str(tmp_path / "trajectories")}
    assert list(find(elsewhere, tmp_path / "other")) == [place / "calc.traj"]


ACTIONS = [
    ("find_file 'a b.py' src", "find_file", {"file_name": "a b.py", "dir": "src"}),
    ('search_file "x"', "search_file", {"search_term": "x", "file": "/w/open.py"}),
    ("goto 12", "goto", {"line_number": 12, "path": "/w/open.py"}),
    ("scroll_down\n", "scroll_down", {"path": "/w/open.py"}),
    (
        "edit 3:4\nx = 1\n\nend_of_edit\n",
        "edit",
        {"start_line": 3, "end_line": 4, "replacement_text": "x = 1\n", "path": "/w/open.py"},
    ),
    ("edit 3:4\nend_of_edit", "edit", {"replacement_text": "", "start_line": 3, "end_line": 4}),
    ("edit 'a' 'b' True", "edit", {"search": "a", "replace": "b", "replace-all": "True"}),
    ("edit 'all of it'", "edit", {"text": "all of it"}),
    ("insert 'x' 3", "insert", {"text": "x", "line": 3, "path": "/w/open.py"}),
    (
        "str_replace_editor view /w/a.py --view_range 1 20",
        "str_replace_editor view",
        {"command": "view", "path": "/w/a.py", "view_range": [1, 20]},
    ),
    # These are commands of the shell, though some begin like tools.
    ("ls -F", "bash", {"command": "ls -F"}),
    ("open a.py | head", "bash", {"command": "open a.py | head"}),
    ("edit 'a", "bash", {"command": "edit 'a"}),
    ("openssl version", "bash", {"command": "openssl version"}),
    ("str_replace_editor frobnicate /w/a.py", "bash", None),
]


@pytest.mark.parametrize(
    ("action", "name", "arguments"), ACTIONS, ids=lambda value: str(value)[:20]
)
def test_what_an_action_calls(action: str, name: str, arguments: dict[str, object] | None) -> None:
    asked = asked_of(action, None, "/w/open.py")
    assert asked.name == name
    if arguments is not None:
        assert arguments.items() <= asked.arguments.items()


def test_windows_of_files() -> None:
    text = (
        "[File: /w/a.py (12 lines total)]\n(2 more lines above)\n3:def f():\n4:\n5:    1:2\n"
        "(7 more lines below)\n\n[File: b (0 lines total)]\n"
    )
    one, other = windows_of(text)
    assert (one.path, one.total, one.first, one.last, one.whole) == ("/w/a.py", 12, 3, 5, False)
    assert one.lines == ("def f():", "", "    1:2")
    assert (other.path, other.lines, other.whole) == ("b", (), True)


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        # What the tools of SWE-agent make of these files, worked out by hand from their code.
        ("edit 2:2\nB\nend_of_edit", "a\nb\nc\n", "a\nB\nc\n"),
        ("edit 2:3\nend_of_edit", "a\nb\nc\n", "a\n"),
        ("edit 'x' 'y'", "x\nb\nx\n", "x\nb\ny\n"),  # lines 2 and 3 are shown
        ("edit 'x' 'y' True", "x\nb\nx\n", "y\nb\ny\n"),
        ("edit 'B\nC'", "a\nb\nc\nd\n", "a\nB\nC\nd\n"),
        ("insert 'new'", "a\nb\n", "a\nb\nnew"),
        ("insert 'new'", "a", "a\nnew"),
        ("insert 'new' 1", "a\nb\n", "a\nnew\nb\n"),
        ("insert 'new' 0", "a\nb\n", "new\na\nb\n"),
        ("edit 7:8\nB\nend_of_edit", "a\nb\n", "a\nb\nB"),
        ("edit 2:8\nB\nend_of_edit", "a\nb\n", "a\nB"),
        ("edit 0:1\nB\nend_of_edit", "a\nb\n", None),
        ("edit 'z' 'y'", "x\nb\nx\n", None),
        (
            "str_replace_editor str_replace /w/f --old_str 'a\tb' --new_str c",
            "a\tb\n\tx\n",
            "c\n        x\n",
        ),
        ("str_replace_editor insert /w/f --insert_line 1 --new_str n", "a\nb\n", "a\nn\nb\n"),
    ],
)
def test_edits_do_what_the_tools_do(
    store: Store, action: str, before: str, after: str | None
) -> None:
    asked = asked_of(action, None, "/w/f")
    (window,) = windows_of("[File: /w/f (9 lines total)]\n(1 more lines above)\n2:b\n3:x")
    result, _ = result_of(asked, "File updated.", "/w", window)
    (change,) = result.operations
    files = Rebuilding(Rebuilder(store.snapshots), "runs/r1", Base(None), "/w")
    created = {"file_path": "/w/f", "operation_type": "create", "content_after": before}
    files.operation({"step_id": "s", **created})
    files.operation({"step_id": "s", **change})
    found = files.read("f")
    assert (found is not None and found.decode()) == (before if after is None else after)
    assert bool(files.doubts) is (after is None)


# --- Real trajectories ----------------------------------------------------------------------

REAL = sorted((SHARED / "samples" / "swe-agent").glob("*.traj"))
needs_real = pytest.mark.skipif(not REAL, reason="no trajectories of real agents here")


def _submitted(told: dict[str, object]) -> str:
    """The patch that was handed in, by the simplest way to it."""
    info = told.get("info")
    text = info["submission"] if isinstance(info, dict) else told["history"][-1]["content"]  # type: ignore[index]
    return str(text).replace("\r\n", "\n").split("\n(Open file: ")[0]


def _before(text: str, patch: str) -> dict[str, str]:
    """The file that the patch changes, as far as the raw trajectory and the patch show its lines.

    The rest of it is filled up: no step looked at it.
    """
    name = re.findall(r"^--- a/(.+)$", patch, re.MULTILINE)[0]
    head = rf"\[File: \S*{name} \((\d+) lines total\)\]\n(?:\(.*above\)\n)?((?:\d+:.*\n?)+)"
    window = re.search(head, text)
    assert window is not None
    lines = {number: f"# line {number}" for number in range(1, int(window[1]) + 1)}
    for number, line in re.findall(r"^(\d+):(.*)$", window[2], re.MULTILINE):
        lines[int(number)] = line
    start = int(re.findall(r"^@@ -(\d+)", patch, re.MULTILINE)[0])
    hunk = patch[patch.index("\n", patch.index("\n@@ ") + 1) + 1 :].split("\n")
    for number, line in enumerate((line[1:] for line in hunk if line[:1] in (" ", "-")), start):
        assert lines[number] in (line, f"# line {number}")
        lines[number] = line
    return {name: "".join(f"{lines[number]}\n" for number in sorted(lines))}


@needs_real
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name[:24])
def test_a_real_trajectory_ends_with_the_patch_that_was_submitted(
    store: Store, tmp_path: Path, path: Path
) -> None:
    told = json.loads(path.read_bytes())
    patch = _submitted(told)
    observations = [m["content"] for m in told["history"] if m["role"] in ("tool", "user")]
    text = "\n".join(o for o in observations if not o.startswith("Here is a demonstration"))
    repository = tmp_path / "repository"
    repository.mkdir()
    plain_git(repository, "init", "-q", "-b", "main")
    for name, content in _before(text.replace("\r\n", "\n"), patch).items():
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text(content)
    plain_git(repository, "add", "-A")
    plain_git(repository, "commit", "-q", "-m", "Begin")
    (summary,) = import_session(store, path, Options(repository=repository, base="HEAD"))
    steps = store.runs.steps(summary.run_id)
    state = [step.state_id for step in steps if step.state_id][-1]
    assert state is not None
    (tmp_path / "submitted.diff").write_text(patch.strip("\n") + "\n")
    plain_git(repository, "apply", "--recount", str(tmp_path / "submitted.diff"))
    (name,) = re.findall(r"^--- a/(.+)$", patch, re.MULTILINE)
    assert store.snapshots.read(state, name) == (repository / name).read_bytes()
    assert [entry.path for entry in store.snapshots.list(state)] == [name]
    if "info" in told:
        assert (summary.end.against, summary.end.equal) == ("submitted patch", True)


@needs_real
def test_what_real_trajectories_spent_is_as_in_the_raw_file(store: Store) -> None:
    for path in REAL:
        told = json.loads(path.read_bytes())
        ((summary, run, steps),) = imported_runs(store, path)
        stats = told.get("info", {}).get("model_stats", {})
        spent = [run.attributes.get(f"total_{kind}_tokens") for kind in ("prompt", "completion")]
        assert spent == [stats.get("tokens_sent"), stats.get("tokens_received")], path
        assert [summary.input_tokens, summary.output_tokens] == [count or 0 for count in spent]
        answers = [
            message
            for message in told["history"]
            if message["role"] == "assistant" and not message.get("is_demo")
        ]
        assert run.totals.llm_calls == len(told.get("trajectory", answers)), path
        if stats.get("api_calls"):
            assert stats["api_calls"] == run.totals.llm_calls == run.attributes["api_calls"]
        assert len(steps) == summary.steps == run.totals.llm_calls
        assert summary.unknown == 0


def test_other_json_is_no_trajectory(tmp_path: Path) -> None:
    path = tmp_path / "x.traj"
    for text in ('{"trajectory": []}', '{"history": [{"role": "user"}]}', '{"attempts": [{}]}'):
        path.write_text(text)
        with pytest.raises(ImportFailed):
            detect(path)
        with pytest.raises(ImportFailed):
            list(importer("swe-agent").read(path))
