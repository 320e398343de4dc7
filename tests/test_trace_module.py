"""Reading and saving traces by program, as the specified trace module does."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import specified
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording import event
from running import clean_environment, plain_git

from repotrace import runs
from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.records.run import LogEntry, Run, TestOutcome
from repotrace.runs import (
    ExecutionSnapshot,
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    LLMInteraction,
    compare_steps,
    export_trace_json,
    export_trace_markdown,
    get_execution_steps,
    get_file_operations,
    get_file_state_at_step,
    get_llm_interactions,
    get_step_snapshot,
    load_execution_trace,
    prepare_rerun,
    restore_to_step,
    save_execution_step,
    save_file_operation,
    save_llm_interaction,
)
from repotrace.storage import Store

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = "run-1"
GITHUB_TOKEN = "ghp_" + "x9Yb2Kq7Lw4Rt8Vn1Zc5Md3Fj6Hg0PsA4uEi"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("REPOTRACE_HOME", "REPOTRACE_STORE", "REPOTRACE_RUN"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    plain_git(folder, "init", "-q")
    return folder


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def step(number: int, name: str | None = None, **fields: Any) -> ExecutionStep:
    known: dict[str, Any] = {
        "id": name or f"s{number}",
        "run_id": RUN,
        "step_number": number,
        "step_type": "tool_call",
        "description": f"Tools: tool_{number}",
        "started_at": after(number),
        "completed_at": after(number + 0.5),
        "status": "completed",
    }
    return ExecutionStep(**known | fields)


def call(name: str, step_id: str, seconds: float, **fields: Any) -> LLMInteraction:
    known: dict[str, Any] = {
        "id": name,
        "run_id": RUN,
        "step_id": step_id,
        "prompt": f"prompt of {name}",
        "response": f"response of {name}",
        "model": "some-model",
        "tokens_used": 10,
        "timestamp": after(seconds),
        "purpose": "execution",
    }
    return LLMInteraction(**known | fields)


def change(
    name: str,
    step_id: str,
    seconds: float,
    path: str,
    before: str | None,
    content: str | None,
    **fields: Any,
) -> FileOperation:
    kind = "create" if before is None else "delete" if content is None else "edit"
    known: dict[str, Any] = {
        "id": name,
        "run_id": RUN,
        "step_id": step_id,
        "operation_type": kind,
        "file_path": path,
        "content_before": before,
        "content_after": content,
        "timestamp": after(seconds),
    }
    return FileOperation(**known | fields)


def save_three_steps(workspace: Path | Store) -> None:
    """A file is created, edited, deleted; another is created beside it."""
    for number in (1, 2, 3):
        save_execution_step(workspace, step(number))
    for operation in (
        change("o1", "s1", 1.1, "a.py", None, "x = 1\n"),
        change("o2", "s2", 2.1, "a.py", "x = 1\n", "x = 2\n"),
        change("o3", "s2", 2.2, "b.py", None, "y = 1"),
        change("o4", "s3", 3.1, "a.py", "x = 2\n", None),
    ):
        save_file_operation(workspace, operation)
    save_llm_interaction(workspace, call("l1", "s1", 1.05))
    save_llm_interaction(workspace, call("l2", "s2", 2.05, tokens_used=32))


# --- Names ----------------------------------------------------------------------------------


def test_names_signatures_and_fields_are_the_specified_ones() -> None:
    ours = {}
    for node in ast.parse(specified.source()).body:
        name = getattr(node, "name", "_")
        if name.startswith("_") or isinstance(node, ast.Assign):
            continue
        if isinstance(node, ast.FunctionDef):
            check_signature(node, getattr(runs, name), name)
        elif isinstance(node, ast.ClassDef):
            check_class(node, getattr(runs, name))
        ours[name] = getattr(runs, name)
    assert len(ours) >= 18


def check_signature(node: ast.FunctionDef, function: Any, name: str) -> None:
    """Positional parameters as specified; whatever else we take is optional."""
    given = {
        parameter.name: parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    }
    wanted = [argument.arg for argument in node.args.args if argument.arg != "self"]
    assert list(given)[: len(wanted)] == wanted, name
    required = len(wanted) - len(node.args.defaults)
    for parameter in list(given.values())[required:]:
        optional = parameter.default is not inspect.Parameter.empty
        assert optional or parameter.kind is inspect.Parameter.VAR_KEYWORD, (name, parameter)


def check_class(node: ast.ClassDef, cls: Any) -> None:
    for part in node.body:
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            assert part.target.id in cls.model_fields, (node.name, part.target.id)
        elif isinstance(part, ast.FunctionDef) and part.name == "__init__":
            check_signature(part, cls, node.name)
        elif isinstance(part, ast.FunctionDef) and not part.name.startswith("_"):
            if part.decorator_list:
                assert isinstance(getattr(cls, part.name), property), part.name
            else:
                check_signature(part, getattr(cls, part.name), part.name)


def test_no_name_hides_a_module_of_the_package() -> None:
    modules = {path.stem for path in Path(runs.__file__).parent.iterdir()}
    assert modules.isdisjoint(runs.__all__)
    assert set(runs.__all__) <= set(dir(runs))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = runs.no_such_name


def test_the_package_alone_imports_no_records() -> None:
    code = (
        "import sys, repotrace.runs; print('pydantic' in sys.modules);"
        "from repotrace.runs import ExecutionStep; print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


# --- Saving and reading ---------------------------------------------------------------------


def test_a_saved_step_is_given_back_equal(workspace: Path) -> None:
    full = step(
        3,
        input_context="context " * 500,
        output_result="result\x00\x1b[31m",
        metadata={"tool_names": ["a", "b"], "nested": {"x": None, "y": [1.5, True]}},
        status="failed",
    )
    bare = step(7, completed_at=None, status="started")
    for told in (bare, full):
        save_execution_step(workspace, told)
    assert get_execution_steps(workspace, RUN) == [full, bare]


def test_a_workspace_is_a_folder_or_a_store(workspace: Path) -> None:
    save_execution_step(workspace, step(1))
    below = workspace / "src"
    below.mkdir()
    home = workspace / ".git" / "repotrace"
    for same in (str(workspace), below, Store(home)):
        assert [item.id for item in get_execution_steps(same, RUN)] == ["s1"]
    assert plain_git(workspace, "status", "--porcelain") == ""
    with pytest.raises(RepoTraceError, match="not a folder"):
        get_execution_steps(workspace / "missing", RUN)


def test_a_saved_run_belongs_to_the_work_tree(workspace: Path, tmp_path: Path) -> None:
    below = workspace / "src"
    below.mkdir()
    save_execution_step(below, step(1))
    linked = tmp_path / "linked"
    plain_git(workspace, "commit", "--allow-empty", "-qm", "c")
    plain_git(workspace, "worktree", "add", "-q", str(linked))
    save_execution_step(linked, step(1, run_id="run-2", started_at=after(99)))
    store = Store(workspace / ".git" / "repotrace")
    save_execution_step(store, step(1, run_id="run-3", started_at=after(999)))
    found = {run.id: run.workspace for run in store.runs.list()}
    assert found == {RUN: str(workspace), "run-2": str(linked), "run-3": None}
    save_execution_step(linked, step(2))
    assert store.runs.get(RUN).workspace == str(workspace)
    for place, newest in ((workspace, RUN), (linked, "run-2"), (store, "run-3")):
        (only, *_) = get_execution_steps(place, "latest")
        assert only.run_id == newest


@pytest.mark.parametrize("run_id", [str(uuid.UUID(int=7)), "42", "task_1.2-x", "ab12cd34ef56"])
def test_a_run_may_be_called_anything_usual(workspace: Path, run_id: str) -> None:
    save_execution_step(workspace, step(1, run_id=run_id))
    save_file_operation(workspace, change("o", "s1", 1, "a", None, "x", run_id=run_id))
    trace = load_execution_trace(workspace, run_id)
    assert trace is not None
    assert trace.run_id == run_id
    assert get_step_snapshot(workspace, run_id, 1) == {"a": "x"}


@pytest.mark.parametrize("run_id", ["a/b", "..", "-x", "with space", "latest", "a.lock", "\u00e9"])
def test_a_run_id_that_cannot_name_contents_is_refused(workspace: Path, run_id: str) -> None:
    refused = pytest.raises(RepoTraceError, match="cannot be the id of a run")
    with refused:
        save_execution_step(workspace, step(1, run_id=run_id))
    with refused:
        save_file_operation(workspace, change("o", "s1", 1, "a", None, "x", run_id=run_id))
    assert not (workspace / ".git" / "repotrace").exists()


def test_saving_again_replaces(workspace: Path) -> None:
    save_three_steps(workspace)
    save_execution_step(
        workspace,
        step(1, metadata={"a": 1}, output_result="once", description="first"),
    )
    save_execution_step(workspace, step(1, completed_at=None, status="started"))
    assert get_execution_steps(workspace, RUN)[0] == step(1, completed_at=None, status="started")

    save_llm_interaction(workspace, call("l1", "s3", 9, response="", tokens_used=0))
    assert get_llm_interactions(workspace, RUN)[1] == call(
        "l1", "s3", 9, response="", tokens_used=0
    )
    save_file_operation(workspace, change("o2", "s3", 9, "c.py", "old", None))
    (again,) = (item for item in get_file_operations(workspace, RUN) if item.id == "o2")
    assert (again.operation_type, again.file_path) == ("delete", "c.py")
    assert (again.content_before, again.content_after, again.after_id) == ("old", None, None)
    assert len(get_file_operations(workspace, RUN)) == 4


def test_everything_comes_in_order(workspace: Path) -> None:
    for number in (3, 1, 10, 2):
        save_execution_step(workspace, step(number, started_at=after(-number)))
    for seconds in (5, 1, 3):
        save_llm_interaction(workspace, call(f"l{seconds}", "s1", seconds))
        save_file_operation(workspace, change(f"o{seconds}", "s2", seconds, "a", None, "x"))
    assert [item.step_number for item in get_execution_steps(workspace, RUN)] == [1, 2, 3, 10]
    assert [item.id for item in get_llm_interactions(workspace, RUN)] == ["l1", "l3", "l5"]
    assert [item.id for item in get_file_operations(workspace, RUN)] == ["o1", "o3", "o5"]


def test_a_step_selects_what_hangs_on_it(workspace: Path) -> None:
    save_three_steps(workspace)
    assert [item.id for item in get_llm_interactions(workspace, RUN, "s2")] == ["l2"]
    assert [item.id for item in get_file_operations(workspace, RUN, step_id="s2")] == ["o2", "o3"]
    assert get_llm_interactions(workspace, RUN, step_id="s3") == []
    assert len(get_llm_interactions(workspace, RUN, None)) == 2
    assert len(get_file_operations(workspace, RUN, "")) == 4


def test_unknown_runs_have_nothing(workspace: Path) -> None:
    assert get_execution_steps(workspace, RUN) == []
    assert load_execution_trace(workspace, RUN) is None
    assert not (workspace / ".git" / "repotrace").exists()
    save_three_steps(workspace)
    for name in ("run-2", "run", "run-11", ""):
        assert get_execution_steps(workspace, name) == []
        assert get_llm_interactions(workspace, name) == []
        assert get_file_operations(workspace, name) == []
        assert load_execution_trace(workspace, name) is None
        assert get_step_snapshot(workspace, name, 3) == {}
        assert get_file_state_at_step(workspace, name, 3, "a.py") is None
        assert compare_steps(workspace, name, 1, 2) == {}


def test_times_are_moments_whatever_their_zone(workspace: Path) -> None:
    naive, elsewhere = datetime(2026, 3, 1, 12, 0), timezone(timedelta(hours=5, minutes=30))
    save_execution_step(workspace, step(1, started_at=naive, completed_at=None))
    save_execution_step(workspace, step(2, started_at=NOON.astimezone(elsewhere)))
    found = [item.started_at for item in get_execution_steps(workspace, RUN)]
    assert found == [NOON, NOON]
    assert [time.utcoffset() for time in found] == [timedelta(0)] * 2


def test_a_number_that_is_taken_stays_in_the_metadata(workspace: Path) -> None:
    for name, number in (("a", 1), ("b", 1), ("c", 0)):
        save_execution_step(workspace, step(number, name, metadata={"k": name}))
    assert [
        (item.id, item.step_number, item.metadata) for item in get_execution_steps(workspace, RUN)
    ] == [
        ("a", 1, {"k": "a"}),
        ("b", 2, {"k": "b", "step_number": 1}),
        ("c", 3, {"k": "c", "step_number": 0}),
    ]


def test_records_without_an_id_are_refused(workspace: Path) -> None:
    for record in (step(1, run_id=""), ExecutionStep(id="", run_id=RUN, step_number=1,
                                                     started_at=NOON)):  # fmt: skip
        with pytest.raises(RepoTraceError, match=r"needs an id|cannot be the id"):
            save_execution_step(workspace, record)
    assert get_execution_steps(workspace, RUN) == []


def test_metadata_that_json_does_not_know_becomes_text(workspace: Path) -> None:
    save_execution_step(workspace, step(1, metadata={"path": Path("a/b"), "tuple": (1, 2)}))
    assert get_execution_steps(workspace, RUN)[0].metadata == {"path": "a/b", "tuple": [1, 2]}


def test_secrets_in_texts_are_masked_and_contents_are_exact(workspace: Path) -> None:
    save_execution_step(workspace, step(1, output_result=f"use {GITHUB_TOKEN}"))
    save_llm_interaction(workspace, call("l", "s1", 1, prompt=f"my key is {GITHUB_TOKEN}"))
    save_file_operation(workspace, change("o", "s1", 1, "a", None, GITHUB_TOKEN))
    home = workspace / ".git" / "repotrace"
    assert GITHUB_TOKEN not in (get_execution_steps(workspace, RUN)[0].output_result or "")
    assert GITHUB_TOKEN not in get_llm_interactions(workspace, RUN)[0].prompt
    for file in home.glob("runs.db*"):
        assert GITHUB_TOKEN.encode() not in file.read_bytes()
    assert get_file_operations(workspace, RUN)[0].content_after == GITHUB_TOKEN


# --- File operations ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ["", "\n", "no newline", "crlf\r\n", "caf\xe9 \u4e2d\n", "\0binary", "\udcff\udc80", "\ud800"],
)
def test_contents_are_kept_as_they_are(workspace: Path, content: str) -> None:
    save_execution_step(workspace, step(1))
    save_file_operation(workspace, change("o", "s1", 1, "a", "", content))
    (found,) = get_file_operations(workspace, RUN)
    assert found.content_before == ""
    data = content.encode("utf-8", "surrogateescape" if content != "\ud800" else "surrogatepass")
    assert found.content_after == data.decode("utf-8", "surrogateescape")


def test_contents_are_objects_that_plain_git_reads(workspace: Path) -> None:
    save_file_operation(workspace, change("o", "s1", 1, "a", "one\n", "two\nthree\n"))
    (found,) = get_file_operations(workspace, RUN)
    store = workspace / ".git" / "repotrace" / "snapshots.git"
    (workspace / "a").write_text("one\n")
    assert found.before_id == plain_git(workspace, "hash-object", "a")
    shown = plain_git(workspace, "--git-dir", str(store), "cat-file", "blob", found.after_id or "")
    assert shown == "two\nthree"
    plain_git(workspace, "--git-dir", str(store), "fsck", "--strict")


def test_contents_stay_for_as_long_as_the_run(workspace: Path) -> None:
    save_file_operation(workspace, change("o", "s1", 1, "a", "before", "after"))
    store = Store(workspace / ".git" / "repotrace")
    store.snapshots.prune(grace=0)
    store.close()
    (found,) = get_file_operations(workspace, RUN)
    assert (found.content_before, found.content_after) == ("before", "after")
    assert store.snapshots.delete(f"runs/{RUN}")
    store.snapshots.prune(grace=0)
    store.close()
    (gone,) = get_file_operations(workspace, RUN)
    assert (gone.content_before, gone.content_after) == (None, None)


@pytest.mark.parametrize(
    ("before", "content", "counts"),
    [
        (None, "a\nb\n", (2, 0)),
        ("a\nb\n", None, (0, 2)),
        ("a\nb\n", "a\nc\nd\n", (2, 1)),
        ("a\n", "a\n", (0, 0)),
        (None, "", (0, 0)),
        ("a\0", "b\0", (None, None)),
    ],
)
def test_changed_lines_are_counted(
    workspace: Path, before: str | None, content: str | None, counts: tuple[int | None, ...]
) -> None:
    save_file_operation(workspace, change("o", "s1", 1, "a", before, content))
    (found,) = get_file_operations(workspace, RUN)
    assert (found.lines_added, found.lines_removed) == counts
    assert found.is_binary == (counts[0] is None)
    assert found.origin == "claimed"


def test_what_an_operation_says_itself_stays(workspace: Path) -> None:
    told = change("o", "s1", 1, "a", "x", "y", origin="observed", lines_added=7, lines_removed=0)
    save_file_operation(workspace, told)
    (found,) = get_file_operations(workspace, RUN)
    assert (found.origin, found.lines_added, found.lines_removed) == ("observed", 7, 0)
    edit_of_unknown = change("p", "s1", 2, "b", None, "y", operation_type="edit")
    save_file_operation(workspace, edit_of_unknown)
    assert get_file_operations(workspace, RUN)[1].lines_added is None


# --- Traces ---------------------------------------------------------------------------------


def test_a_trace_of_steps_alone(workspace: Path) -> None:
    save_three_steps(workspace)
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    assert (trace.run_id, trace.task_id, trace.status) == (RUN, "unknown", "UNKNOWN")
    assert (trace.started_at, trace.completed_at) == (after(1), None)
    assert [item.id for item in trace.steps] == ["s1", "s2", "s3"]
    assert [item.id for item in trace.llm_interactions] == ["l1", "l2"]
    assert [item.id for item in trace.file_operations] == ["o1", "o2", "o3", "o4"]
    assert trace.summary() == {
        "total_steps": 3,
        "llm_calls": 2,
        "total_tokens": 42,
        "files_modified": 2,
    }


def test_a_trace_of_a_run_says_what_is_known_of_it(workspace: Path) -> None:
    store = Store(workspace / ".git" / "repotrace")
    store.runs.add_events(
        [
            event("run_started", 0, run=RUN, task_id="T-7", task="Fix it"),
            event("run_ended", 60, run=RUN, status="failed"),
        ]
    )
    assert load_execution_trace(workspace, RUN) is None
    save_execution_step(workspace, step(1))
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    assert (trace.task_id, trace.status) == ("T-7", "failed")
    assert (trace.started_at, trace.completed_at) == (NOON, after(60))
    latest = load_execution_trace(store, "latest")
    assert latest is not None
    assert latest.run_id == RUN


def test_a_trace_by_hand_has_a_summary() -> None:
    trace = ExecutionTrace(
        run_id=RUN,
        task_id="t",
        started_at=NOON,
        status="COMPLETED",
        steps=[step(1)],
        llm_interactions=[],
        file_operations=[
            change("a", "s1", 1, "x", None, "1"),
            change("b", "s1", 2, "x", "1", "2"),
        ],
    )
    assert trace.summary() == {
        "total_steps": 1,
        "llm_calls": 0,
        "total_tokens": 0,
        "files_modified": 1,
    }


# --- Files at a step ------------------------------------------------------------------------


def test_snapshots_are_the_changed_files_up_to_a_step(workspace: Path) -> None:
    save_three_steps(workspace)
    assert [get_step_snapshot(workspace, RUN, number) for number in range(5)] == [
        {},
        {"a.py": "x = 1\n"},
        {"a.py": "x = 2\n", "b.py": "y = 1"},
        {"b.py": "y = 1"},
        {"b.py": "y = 1"},
    ]


def test_operations_of_no_step_are_no_part_of_a_snapshot(workspace: Path) -> None:
    save_execution_step(workspace, step(1))
    save_file_operation(workspace, change("o", "elsewhere", 1, "a", None, "x"))
    assert get_step_snapshot(workspace, RUN, 1) == {}
    assert len(get_file_operations(workspace, RUN)) == 1


def test_one_file_at_a_step(workspace: Path) -> None:
    save_three_steps(workspace)
    save_file_operation(workspace, change("o5", "s3", 3.2, "old.py", "was here\n", "changed\n"))
    contents = [get_file_state_at_step(workspace, RUN, number, "a.py") for number in range(5)]
    assert contents == [None, "x = 1\n", "x = 2\n", None, None]
    contents = [get_file_state_at_step(workspace, RUN, number, "./old.py") for number in range(4)]
    assert contents == ["was here\n", "was here\n", "was here\n", "changed\n"]
    assert get_file_state_at_step(workspace, RUN, 3, Path("never.py")) is None


def test_two_steps_compared(workspace: Path) -> None:
    save_three_steps(workspace)
    save_file_operation(workspace, change("o5", "s3", 3.2, "old.py", "was here\n", "changed\n"))
    assert compare_steps(workspace, RUN, 1, 2) == {
        "a.py": {"before": "x = 1\n", "after": "x = 2\n"},
        "b.py": {"before": None, "after": "y = 1"},
    }
    assert compare_steps(workspace, RUN, 2, 1) == {
        "a.py": {"before": "x = 2\n", "after": "x = 1\n"},
        "b.py": {"before": "y = 1", "after": None},
    }
    assert list(compare_steps(workspace, RUN, 2, 3)) == ["a.py", "old.py"]
    assert compare_steps(workspace, RUN, 2, 3)["old.py"] == {
        "before": "was here\n",
        "after": "changed\n",
    }
    assert compare_steps(workspace, RUN, 2, 2) == {}


def test_a_snapshot_with_context_and_logs(workspace: Path) -> None:
    save_three_steps(workspace)
    save_execution_step(workspace, step(2, input_context="the context"))
    store = Store(workspace / ".git" / "repotrace")
    store.runs.add_events(
        [event("log", 2, run=RUN, step_id=name, message=name) for name in ("s1", "s2")]
    )
    found = ExecutionSnapshot.at(workspace, RUN, 2)
    assert found.files == {"a.py": "x = 2\n", "b.py": "y = 1"}
    assert (found.run_id, found.step_number, found.context) == (RUN, 2, "the context")
    assert [entry.message for entry in found.logs] == ["s2"]
    for run_id, number in ((RUN, 9), ("run-9", 1)):
        with pytest.raises(RunNotFound):
            ExecutionSnapshot.at(workspace, run_id, number)


def test_a_rerun_is_prepared(workspace: Path) -> None:
    save_three_steps(workspace)
    assert prepare_rerun(workspace, RUN, 1) == {
        "file_state": {"a.py": "x = 1\n"},
        "original_run_id": RUN,
        "from_step": 1,
        "remaining_steps": [
            {"step_number": 2, "description": "Tools: tool_2"},
            {"step_number": 3, "description": "Tools: tool_3"},
        ],
        "task_id": "unknown",
    }
    assert prepare_rerun(workspace, RUN, 3)["remaining_steps"] == []
    with pytest.raises(ValueError, match=re.escape("No trace found for run 'run-9'")):
        prepare_rerun(workspace, "run-9", 1)


# --- Files where the states are known -------------------------------------------------------


@pytest.fixture
def exact(workspace: Path) -> Iterator[tuple[Path, Store]]:
    """Three steps of real edits with a state after each; the last by a shell command."""
    (workspace / "kept.py").write_text("kept\n")
    (workspace / ".gitignore").write_text("*.log\n")
    (workspace / "a.py").write_text("0\n")
    plain_git(workspace, "add", "-A")
    store = Store(workspace / ".git" / "repotrace")
    take = store.snapshots.take
    ref = f"runs/{RUN}"
    events = [
        event("run_started", 0, run=RUN, workspace=str(workspace)),
        event("state", 0, run=RUN, state_id=take(workspace, ref=ref).state_id),
    ]
    edits: dict[int, list[tuple[str, str | None]]] = {
        1: [("a.py", "1\n")],
        2: [("a.py", "2\n"), ("out.log", "ignored\n")],
        3: [("a.py", None), ("raw", "\udcff\0")],
    }
    for number, changes in edits.items():
        events.append(event("step_started", number, run=RUN, id=f"s{number}", step_type="edit"))
        for path, content in changes:
            file = workspace / path
            if content is None:
                file.unlink()
            else:
                file.write_bytes(content.encode("utf-8", "surrogateescape"))
        state = take(workspace, ref=ref).state_id
        events.append(event("state", number + 0.5, run=RUN, step_id=f"s{number}", state_id=state))
        events.append(event("step_ended", number + 0.6, run=RUN, id=f"s{number}"))
    store.runs.add_events(events)
    save_file_operation(store, change("lie", "s1", 1.1, "a.py", "0\n", "not what was written\n"))
    save_file_operation(store, change("log", "s2", 2.1, "out.log", None, "ignored\n"))
    yield workspace, store
    store.close()


def test_exact_states_decide_and_what_they_lack_is_told(exact: tuple[Path, Store]) -> None:
    workspace, _ = exact
    assert [get_step_snapshot(workspace, RUN, number) for number in range(4)] == [
        {},
        {"a.py": "1\n"},
        {"a.py": "2\n", "out.log": "ignored\n"},
        {"out.log": "ignored\n", "raw": "\udcff\0"},
    ]
    contents = [get_file_state_at_step(workspace, RUN, number, "a.py") for number in range(4)]
    assert contents == ["0\n", "1\n", "2\n", None]
    for path in ("kept.py", workspace / "kept.py", str(workspace / "." / "kept.py")):
        assert get_file_state_at_step(workspace, RUN, 2, path) == "kept\n"
    assert get_file_state_at_step(workspace, RUN, 2, "/etc/hostname") is None
    assert get_file_state_at_step(workspace, RUN, 2, "..") is None
    assert compare_steps(workspace, RUN, 0, 3) == {
        "a.py": {"before": "0\n", "after": None},
        "out.log": {"before": None, "after": "ignored\n"},
        "raw": {"before": None, "after": "\udcff\0"},
    }


def test_restoring_gives_all_files_of_a_step(exact: tuple[Path, Store], tmp_path: Path) -> None:
    workspace, store = exact
    done = restore_to_step(workspace, RUN, 1, into=tmp_path / "there")
    assert done.folder == tmp_path / "there"
    found = {path.name: path.read_text() for path in (tmp_path / "there").iterdir()}
    assert found == {"a.py": "1\n", "kept.py": "kept\n", ".gitignore": "*.log\n"}
    assert not (workspace / "a.py").exists()

    store.runs.add_events([event("run_ended", 9, run=RUN)])
    undone = restore_to_step(workspace, RUN, 2, in_place=True)
    assert (workspace / "a.py").read_text() == "2\n"
    assert not (workspace / "raw").exists()
    assert (workspace / "out.log").read_text() == "ignored\n"
    assert undone.safety_state is not None
    assert store.snapshots.read(undone.safety_state, "raw") == b"\xff\0"


def test_restoring_writes_beside_the_work_tree(
    exact: tuple[Path, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, store = exact
    beside = workspace.with_name(f"{workspace.name}-{RUN}-step-1")
    assert restore_to_step(workspace, RUN, 1).folder == beside
    assert (beside / "a.py").read_text() == "1\n"
    shutil.rmtree(beside)
    monkeypatch.chdir(workspace)
    before = sorted(workspace.rglob("*"))
    assert restore_to_step(store, RUN, 1).folder == beside
    assert sorted(workspace.rglob("*")) == before


def test_restoring_is_refused_where_it_cannot_be_done(
    exact: tuple[Path, Store], tmp_path: Path
) -> None:
    workspace, _ = exact
    with pytest.raises(RunNotFound):
        restore_to_step(workspace, RUN, 9, into=tmp_path / "x")
    with pytest.raises(RunNotFound):
        restore_to_step(workspace, "run-9", 1, into=tmp_path / "x")
    with pytest.raises(ValueError, match="exclude"):
        restore_to_step(workspace, RUN, 1, into=tmp_path / "x", in_place=True)
    with pytest.raises(RepoTraceError, match="being recorded"):
        restore_to_step(workspace, RUN, 1, in_place=True)
    save_execution_step(workspace, step(1, "t1", run_id="run-2"))
    with pytest.raises(RepoTraceError, match="not kept"):
        restore_to_step(workspace, "run-2", 1, into=tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_files_are_told_by_operations_where_states_are_gone(workspace: Path) -> None:
    store = Store(workspace / ".git" / "repotrace")
    save_three_steps(store)
    gone = "0123456789" * 4
    store.runs.add_events([event("state", 2.5, run=RUN, step_id="s2", state_id=gone)])
    assert get_step_snapshot(store, RUN, 2) == {"a.py": "x = 2\n", "b.py": "y = 1"}
    assert get_file_state_at_step(store, RUN, 2, "never.py") is None
    with pytest.raises(RepoTraceError):
        restore_to_step(store, RUN, 2, into=workspace / "there")


# --- Exports --------------------------------------------------------------------------------


def full_trace(workspace: Path) -> ExecutionTrace:
    save_three_steps(workspace)
    store = Store(workspace / ".git" / "repotrace")
    store.runs.add_events(
        [
            event("log", 2, run=RUN, step_id="s2", level="warning", message="slow"),
            event("log", 2, run=RUN, message="of the run"),
            event("test", 3, run=RUN, step_id="s3", node_id="t::one", outcome="failed"),
        ]
    )
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    return trace


def test_json_has_the_specified_structure(workspace: Path) -> None:
    exported = export_trace_json(full_trace(workspace))
    assert json.loads(json.dumps(exported)) == exported
    assert list(exported)[:7] == [
        *("run_id", "task_id", "started_at", "completed_at", "status", "steps", "summary"),
    ]
    assert exported["started_at"] == after(1).isoformat()
    assert exported["completed_at"] is None
    assert exported["summary"] == full_trace(workspace).summary()
    assert [entry["message"] for entry in exported["logs"]] == ["of the run"]
    first, second, third = exported["steps"]
    for found in (first, second, third):
        assert found["type"] == found["step_type"] == "tool_call"
        assert {"step_number", "description", "status", "started_at", "completed_at"} <= set(found)
        assert {"llm_interactions", "file_operations", "logs"} <= set(found)
    assert (second["step_number"], second["started_at"]) == (2, after(2).isoformat())
    assert second["file_changes"] == [
        {"operation": "edit", "file_path": "a.py"},
        {"operation": "create", "file_path": "b.py"},
    ]
    assert [
        (item["content_before"], item["content_after"]) for item in second["file_operations"]
    ] == [("x = 1\n", "x = 2\n"), (None, "y = 1")]
    assert [item["prompt"] for item in second["llm_interactions"]] == ["prompt of l2"]
    assert [entry["message"] for entry in second["logs"]] == ["slow"]
    assert [item["node_id"] for item in third["test_outcomes"]] == ["t::one"]
    assert (third["llm_interactions"], third["logs"]) == ([], [])
    save_execution_step(workspace, step(4))
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    assert "file_changes" not in export_trace_json(trace)["steps"][3]


def test_json_gives_each_message_once() -> None:
    said = tuple({"role": "user", "content": f"m{number}"} for number in range(3))
    calls = [
        call("l1", "s1", 1, messages=said[:2]),
        call("l2", "s1", 2, messages=said),
        call("l3", "s1", 3, messages=said[1:]),
        call("l4", "s1", 4),
    ]
    trace = ExecutionTrace(run_id=RUN, task_id="t", started_at=NOON, status="x", steps=[step(1)],
                           llm_interactions=calls)  # fmt: skip
    (exported,) = export_trace_json(trace)["steps"]
    found = [(item["kept"], item["messages"]) for item in exported["llm_interactions"]]
    assert found == [(0, [*said[:2]]), (2, [said[2]]), (0, [*said[1:]]), (0, [])]


def test_exports_mask_secrets(workspace: Path) -> None:
    save_execution_step(workspace, step(1))
    save_file_operation(workspace, change("o", "s1", 1, "a", None, f"token = {GITHUB_TOKEN}\n"))
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    assert GITHUB_TOKEN not in json.dumps(export_trace_json(trace))
    assert GITHUB_TOKEN in json.dumps(export_trace_json(trace, allow_secrets=True))
    by_hand = ExecutionTrace(
        run_id=RUN,
        task_id="t",
        started_at=NOON,
        status="x",
        steps=[step(1, description=f"use {GITHUB_TOKEN}")],
    )
    assert GITHUB_TOKEN not in export_trace_markdown(by_hand)


def test_what_is_innocent_is_exported_as_it_is(workspace: Path) -> None:
    trace = full_trace(workspace)
    assert export_trace_json(trace) == export_trace_json(trace, allow_secrets=True)


def test_markdown_has_the_specified_lines(workspace: Path) -> None:
    save_execution_step(workspace, step(4, status="started", completed_at=None))
    save_execution_step(workspace, step(5, status="failed"))
    page = export_trace_markdown(full_trace(workspace))
    lines = page.splitlines()
    for line in (
        f"# Execution Trace: {RUN}",
        "- **Task**: unknown",
        "- **Status**: UNKNOWN",
        f"- **Started**: {after(1).isoformat()}",
        "## Summary",
        "| Total steps | 5 |",
        "| LLM calls | 2 |",
        "| Total tokens | 42 |",
        "| Files modified | 2 |",
        "## Steps",
        "### Step 1: Tools: tool_1",
        "- **Type**: tool_call",
        "- **Status**: [OK] completed",
        "- **Status**: [...] started",
        "- **Status**: [FAIL] failed",
        "- **File changes**:",
        "  - edit: `a.py`",
        "  - delete: `a.py`",
        "- **Tests**: 1 failed",
    ):
        assert line in lines, line
    assert not any(line.startswith("- **Completed**") for line in lines)


def test_markdown_tells_of_the_run_and_keeps_texts_texts() -> None:
    trace = ExecutionTrace(
        run_id=RUN,
        task_id="t",
        started_at=NOON,
        completed_at=after(9),
        status="COMPLETED",
        steps=[
            step(
                1,
                description="<b>@everybody</b>\n# no heading",
                reason="because *it* failed",
                error="boom",
                attempt=2,
                status="odd`word",
            )
        ],
        file_operations=[change("o", "s1", 1, "we`ird\n.py", None, "x")],
        test_outcomes=[
            TestOutcome(
                id=str(number), run_id=RUN, step_id="s1", node_id="t", outcome=word, timestamp=NOON
            )
            for number, word in enumerate(("passed", "failed", "passed"))
        ],
        logs=[LogEntry(id="l", run_id=RUN, step_id="s1", message="m", timestamp=NOON)],
        run=Run(id=RUN, task="Repair it", agent="demo", outcome="passed", started_at=NOON),
    )
    lines = export_trace_markdown(trace).splitlines()
    for line in (
        f"- **Completed**: {after(9).isoformat()}",
        "- **Asked**: Repair it",
        "- **Agent**: demo",
        "- **Outcome**: passed",
        "### Step 1: `<b>@everybody</b> # no heading`",
        "- **Duration**: 0.50 s",
        "- **Attempt**: 2",
        "- **Reason**: `because *it* failed`",
        "- **Error**: boom",
        "- **Tests**: 2 passed, 1 failed",
    ):
        assert line in lines, line
    assert sum(line.startswith("#") for line in lines) == 4


# --- Beside the specified module ------------------------------------------------------------

_paths = st.sampled_from(["a.py", "b/c.txt", "d"])
_contents = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_edits = st.lists(st.tuples(_paths, st.none() | _contents), max_size=3)


@st.composite
def histories(draw: st.DrawFn) -> list[Any]:
    """Steps, calls and consistent file operations in the order in which a program tells them."""
    told: list[Any] = []
    files: dict[str, str] = {}
    moment = 0
    numbers = draw(st.lists(st.integers(1, 9), unique=True, min_size=1, max_size=4))
    for number in sorted(numbers):
        words = st.none() | _contents
        told.append(
            step(
                number,
                status=draw(st.sampled_from(["started", "completed", "failed", "odd"])),
                completed_at=draw(st.none() | st.just(after(number + 100))),
                input_context=draw(words),
                output_result=draw(words),
                description=draw(_contents),
                metadata=draw(st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9))),
            )
        )
        for path, content in draw(_edits):
            if content is None and path not in files:
                continue
            moment += 1
            before = files.get(path)
            told.append(change(f"o{moment}", f"s{number}", moment, path, before, content))
            files.pop(path, None) if content is None else files.update({path: content})
        for _ in range(draw(st.integers(0, 2))):
            moment += 1
            tokens = draw(st.integers(0, 999))
            told.append(call(f"l{moment}", f"s{number}", moment, tokens_used=tokens))
    again = draw(st.lists(st.sampled_from(told), max_size=3))
    return draw(st.permutations(told)) + again


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories())
def test_results_are_those_of_the_specified_module(
    tmp_path_factory: pytest.TempPathFactory, history: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("beside")
    theirs, home = specified.module(folder / "theirs.db"), Store(folder / "home")
    save: dict[str, tuple[Any, Any]] = {
        "ExecutionStep": (save_execution_step, theirs.save_execution_step),
        "LLMInteraction": (save_llm_interaction, theirs.save_llm_interaction),
        "FileOperation": (save_file_operation, theirs.save_file_operation),
    }
    for record in history:
        ours_saves, theirs_saves = save[type(record).__name__]
        ours_saves(home, record)
        theirs_saves(folder, specified.as_specified(theirs, record))

    def same(ours: list[Any], others: list[Any]) -> None:
        assert [specified.as_specified(theirs, record) for record in ours] == others

    same(get_execution_steps(home, RUN), theirs.get_execution_steps(folder, RUN))
    same(get_llm_interactions(home, RUN), theirs.get_llm_interactions(folder, RUN))
    same(get_file_operations(home, RUN), theirs.get_file_operations(folder, RUN))
    for number in range(11):
        one = get_step_snapshot(home, RUN, number)
        assert one == theirs.get_step_snapshot(folder, RUN, number)
        assert {p: get_file_state_at_step(home, RUN, number, p) for p in one} == one
        for other in (1, 5, 9):
            compared = theirs.compare_steps(folder, RUN, number, other)
            assert compare_steps(home, RUN, number, other) == compared
    assert prepare_rerun(home, RUN, 3) == theirs.prepare_rerun(folder, RUN, 3)
    trace, expected = load_execution_trace(home, RUN), theirs.load_execution_trace(folder, RUN)
    assert trace is not None
    assert trace.summary() == expected.summary()
    assert contains(export_trace_json(trace), theirs.export_trace_json(expected))
    home.close()


def contains(ours: Any, expected: Any) -> bool:
    """Whether all of `expected` is there; dicts may have more keys."""
    if isinstance(expected, dict):
        return all(key in ours and contains(ours[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(ours) == len(expected) and all(map(contains, ours, expected))
    return bool(ours == expected)


def test_a_run_of_the_specified_module_is_read_alike(workspace: Path, tmp_path: Path) -> None:
    """With a row of the run itself, which the specified module reads but never writes."""
    theirs = specified.module(tmp_path / "theirs.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "theirs.db")) as connection, connection:
        row = (RUN, "T-7", "COMPLETED", NOON.isoformat(), after(60).isoformat())
        connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?)", row)
    run = Run(id=RUN, task_id="T-7", status="COMPLETED", started_at=NOON, completed_at=after(60))
    store = Store(workspace / ".git" / "repotrace")
    trace = ExecutionTrace(
        run_id=RUN, task_id="T-7", started_at=NOON, status="COMPLETED", run=run, steps=[step(1)]
    )
    store.runs.save(trace)
    theirs.save_execution_step(tmp_path, specified.as_specified(theirs, step(1)))
    loaded, expected = load_execution_trace(store, RUN), theirs.load_execution_trace(tmp_path, RUN)
    assert loaded is not None
    assert specified.as_specified(theirs, loaded).summary() == expected.summary()
    assert contains(export_trace_json(loaded), theirs.export_trace_json(expected))


# --- The page -------------------------------------------------------------------------------


def test_the_example_of_the_page_runs(workspace: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "runs-api.md").read_text()
    code, expected = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)[:2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=workspace,
        env=clean_environment(workspace.parent),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == expected
