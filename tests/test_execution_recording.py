"""Recording a run by program, and reading it back by the names of `repotrace.runs`."""

from __future__ import annotations

import inspect
import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import specified
from running import clean_environment, plain_git

from repotrace.runs import (
    ExecutionRecorder,
    ReplaySession,
    compare_steps,
    export_trace_json,
    export_trace_markdown,
    get_execution_steps,
    get_file_operations,
    get_file_state_at_step,
    get_llm_interactions,
    get_step_snapshot,
    load_execution_trace,
    restore_to_step,
)
from repotrace.storage import Store

RUN = "run-1"


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("REPOTRACE_HOME", "REPOTRACE_STORE", "REPOTRACE_RUN"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    plain_git(folder, "init", "-q")
    return folder


def test_the_signature_is_the_specified_one() -> None:
    parameters = list(inspect.signature(ExecutionRecorder).parameters.values())
    assert [found.name for found in parameters[:3]] == ["workspace", "run_id", "flush_interval"]
    assert parameters[2].default == 10
    for name, wanted in {
        "record_iteration": ["step_number", "tool_names", "llm_response_summary"],
        "record_llm_call": [
            *("step_id", "prompt_summary", "response_summary", "model", "tokens_used", "purpose"),
        ],
        "record_file_operation": ["step_id", "op_type", "path", "before", "after"],
        "flush": [],
        "log_execution_step": ["step_number", "step_type", "description", "input_context"],
        "complete_execution_step": ["step_number", "status", "output_result"],
        "log_llm_interaction": ["step_id", "prompt", "response", "model", "tokens", "purpose"],
        "log_file_operation": ["step_id", "operation", "path", "before", "after"],
    }.items():
        given = list(inspect.signature(getattr(ExecutionRecorder, name)).parameters)[1:]
        assert given[: len(wanted)] == wanted, name


def test_an_iteration_is_a_step(workspace: Path) -> None:
    recorder = ExecutionRecorder(workspace, RUN)
    answer = "I read the file. " * 100
    first = recorder.record_iteration(1, ["read_file", "grep"], answer)
    second = recorder.record_iteration(2, [], "Done.")
    recorder.close()
    one, two = get_execution_steps(workspace, RUN)
    assert (one.id, two.id) == (first, second)
    assert (one.run_id, one.step_number, one.step_type) == (RUN, 1, "tool_call")
    assert (one.description, one.status) == ("Tools: read_file, grep", "completed")
    assert one.output_result == answer, "texts are not cut"
    assert one.metadata["tool_names"] == ["read_file", "grep"]
    assert one.completed_at is not None
    assert one.started_at <= one.completed_at <= two.started_at
    assert (two.step_number, two.description) == (2, "Done.")


def test_a_model_call_is_kept_whole(workspace: Path) -> None:
    recorder = ExecutionRecorder(workspace, RUN, flush_interval=1000)
    step = recorder.record_iteration(1, [], "x")
    prompt, response = "Why? " * 1000, "Because. " * 1000
    name = recorder.record_llm_call(step, prompt, response, "some-model", 1234, "planning")
    recorder.close()
    (found,) = get_llm_interactions(workspace, RUN, step)
    assert (found.id, found.step_id, found.run_id) == (name, step, RUN)
    assert (found.prompt, found.response) == (prompt, response)
    assert (found.model, found.tokens_used, found.purpose) == ("some-model", 1234, "planning")


def test_file_operations_have_their_contents(workspace: Path) -> None:
    recorder = ExecutionRecorder(workspace, RUN)
    step = recorder.record_iteration(1, ["edit"], "x")
    told: list[tuple[str, str, str | None, str | None]] = [
        ("create", "new.py", None, "a = 1\n"),
        ("edit", "src/old.py", "b = 1\n", "b = 2\nc = 3\n"),
        ("delete", "gone.py", "d\n", None),
        ("create", "empty", None, ""),
    ]
    names = [recorder.record_file_operation(step, *each) for each in told]
    recorder.close()
    found = get_file_operations(workspace, RUN)
    assert [item.id for item in found] == names
    assert [
        (item.operation_type, item.file_path, item.content_before, item.content_after)
        for item in found
    ] == told
    assert [(item.lines_added, item.lines_removed) for item in found] == [
        *((1, 0), (2, 1), (0, 1), (0, 0)),
    ]
    assert get_step_snapshot(workspace, RUN, 1) == {
        "new.py": "a = 1\n",
        "src/old.py": "b = 2\nc = 3\n",
        "empty": "",
    }


def test_steps_are_logged_when_they_begin_and_when_they_end(workspace: Path) -> None:
    recorder = ExecutionRecorder(workspace, RUN)
    recorder.log_execution_step(1, "planning", "Make a plan", "the task")
    recorder.log_execution_step(2, "gate", "Run the linter")
    recorder.complete_execution_step(1, "completed", "the plan")
    recorder.complete_execution_step(2, "failed", "E501")
    third = recorder.log_execution_step(3, "verification", "Look again")
    recorder.log_llm_interaction(third, "p", "r", "m", 5, "review")
    recorder.log_file_operation(third, "edit", "a.py", "1", "2")
    one, two, three = get_execution_steps(workspace, RUN)
    assert (one.step_type, one.description, one.input_context) == (
        *("planning", "Make a plan", "the task"),
    )
    assert (one.status, one.output_result) == ("completed", "the plan")
    assert (two.status, two.output_result) == ("failed", "E501")
    assert (three.status, three.completed_at, three.id) == ("started", None, third)
    assert [item.purpose for item in get_llm_interactions(workspace, RUN, third)] == ["review"]
    assert [item.file_path for item in get_file_operations(workspace, RUN, third)] == ["a.py"]
    recorder.end()
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    assert trace.status == "completed"


def test_decisions_are_steps_with_a_reason(workspace: Path) -> None:
    with ExecutionRecorder(workspace, RUN) as recorder:
        recorder.record_decision("Try another way", "the test still fails", kind="retry")
        recorder.record_log("a hint", level="warning")
    (found,) = get_execution_steps(workspace, RUN)
    assert (found.step_type, found.description) == ("decision", "Try another way")
    assert (found.reason, found.metadata["kind"]) == ("the test still fails", "retry")
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    assert [(entry.level, entry.message) for entry in trace.logs] == [("warning", "a hint")]


def test_what_was_told_is_there_before_any_flush(workspace: Path) -> None:
    """The specified recorder holds records back until there are `flush_interval` of them."""
    code = (
        "import os, signal\n"
        "from repotrace.runs import ExecutionRecorder\n"
        f"recorder = ExecutionRecorder('.', {RUN!r}, flush_interval=10)\n"
        "step = recorder.record_iteration(1, ['edit'], 'x')\n"
        "recorder.record_llm_call(step, 'p', 'r', 'm', 1, 'execution')\n"
        "recorder.record_file_operation(step, 'create', 'a', None, 'content')\n"
        "recorder.log_execution_step(2, 'planning', 'not ended')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=workspace,
        env=clean_environment(workspace.parent),
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    assert [item.status for item in trace.steps] == ["completed", "interrupted"]
    assert trace.status == "interrupted"
    assert trace.summary() == {
        "total_steps": 2,
        "llm_calls": 1,
        "total_tokens": 1,
        "files_modified": 1,
    }
    assert trace.file_operations[0].content_after == "content"


def test_flush_takes_it_into_the_database_and_may_be_repeated(workspace: Path) -> None:
    recorder = ExecutionRecorder(workspace, RUN)
    store = Store(workspace / ".git" / "repotrace")
    recorder.record_iteration(1, [], "x")
    assert store.runs.steps(RUN) == []
    recorder.flush()
    recorder.flush()
    assert len(store.runs.steps(RUN)) == 1
    recorder.record_iteration(2, [], "y")
    assert len(get_execution_steps(store, RUN)) == 2
    recorder.end()


def test_a_broken_store_never_breaks_the_program(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / ".git" / "repotrace").write_text("in the way")
    recorder = ExecutionRecorder(workspace, RUN)
    step = recorder.record_iteration(1, ["edit"], "x")
    recorder.record_llm_call(step, "p", "r", "m", 1, "execution")
    recorder.record_file_operation(step, "create", "a", None, "content")
    recorder.log_execution_step(2, "planning", "x")
    recorder.complete_execution_step(2)
    recorder.flush()
    recorder.end()
    assert recorder.lost > 0
    assert "repotrace" in capsys.readouterr().err


def test_threads_may_share_a_recorder(workspace: Path) -> None:
    recorder = ExecutionRecorder(workspace, RUN, states=False)

    def work(number: int) -> None:
        for turn in range(10):
            step = recorder.record_iteration(number * 10 + turn, [f"tool{number}"], "x")
            recorder.record_llm_call(step, "p", "r", "m", 1, "execution")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.end()
    steps = get_execution_steps(workspace, RUN)
    assert [item.step_number for item in steps] == list(range(1, 41))
    assert sorted(item.metadata["step_number"] for item in steps) == list(range(40))
    calls = get_llm_interactions(workspace, RUN)
    assert sorted(call.step_id for call in calls) == sorted(item.id for item in steps)


def test_a_run_may_be_taken_up_again(workspace: Path) -> None:
    for number in (1, 2):
        recorder = ExecutionRecorder(workspace, RUN)
        recorder.record_iteration(number, [], f"turn {number}")
        recorder.end()
    assert [item.description for item in get_execution_steps(workspace, RUN)] == [
        *("turn 1", "turn 2"),
    ]


# --- Beside the specified recorder ----------------------------------------------------------


def tell(recorder: Any) -> None:
    """The calls of a small run."""
    for number, tools in enumerate((["read_file"], ["edit_file", "run_tests"], []), start=1):
        step = recorder.record_iteration(number, tools, f"answer {number}")
        recorder.record_llm_call(step, f"prompt {number}", "response", "m", number, "execution")
        before = f"version {number - 1}\n" if number > 1 else None
        kind = "edit" if before else "create"
        recorder.record_file_operation(step, kind, "a.py", before, f"version {number}\n")
    recorder.record_llm_call(step, "", None, None, 0, "review")
    recorder.flush()


def test_it_records_what_the_specified_recorder_does(workspace: Path, tmp_path: Path) -> None:
    theirs = specified.module(tmp_path / "theirs.db")
    recorder = ExecutionRecorder(workspace, RUN)
    tell(recorder)
    tell(theirs.ExecutionRecorder(tmp_path, RUN))

    def alike(name: str, fields: list[str]) -> None:
        readers: list[tuple[Callable[..., Any], Path]] = [
            (globals()[name], workspace),
            (getattr(theirs, name), tmp_path),
        ]
        ours, others = (
            [[getattr(item, field) for field in fields] for item in read(place, RUN)]
            for read, place in readers
        )
        assert ours == others

    alike(
        "get_execution_steps",
        ["run_id", "step_number", "step_type", "description", "status", "output_result"],
    )
    alike(
        "get_llm_interactions",
        ["run_id", "prompt", "response", "model", "tokens_used", "purpose"],
    )
    alike(
        "get_file_operations",
        ["run_id", "operation_type", "file_path", "content_before", "content_after"],
    )
    ours, expected = (
        load_execution_trace(workspace, RUN),
        theirs.load_execution_trace(tmp_path, RUN),
    )
    assert ours is not None
    assert ours.summary() == expected.summary()
    for number in range(5):
        files = theirs.get_step_snapshot(tmp_path, RUN, number)
        assert get_step_snapshot(workspace, RUN, number) == files
    recorder.end()


# --- A whole agent --------------------------------------------------------------------------

FIX: list[tuple[str, list[tuple[str, str, str | None]]]] = [
    ("I look at the module.", [("read_file", "src/dates.py", None)]),
    (
        "365 is wrong in leap years.",
        [
            (
                "edit_file",
                "src/dates.py",
                "def days(year):\n    return 366 if year % 4 == 0 else 365\n",
            ),
            ("write_file", "notes.md", "leap years\n"),
        ],
    ),
    ("The notes are not needed.", [("delete_file", "notes.md", None)]),
    ("All is well.", []),
]
"""What the model says in each turn, and the tools that it calls."""


class ReactAgent:
    """The loop of a coding agent, with a model that always says the same."""

    def __init__(self, workspace: Path, recorder: ExecutionRecorder) -> None:
        self.workspace = workspace
        self.recorder = recorder
        self.seen: list[dict[str, str]] = []
        """The files after each iteration, as they lie there."""

    def run(self, task: str) -> None:
        conversation = [f"system: repair it\nuser: {task}"]
        for number, (answer, calls) in enumerate(FIX, start=1):
            step = self.recorder.record_iteration(number, [name for name, *_ in calls], answer)
            self.recorder.record_llm_call(
                step, "\n".join(conversation), answer, "scripted", 100 * number, "execution"
            )
            conversation.append(answer)
            for name, path, content in calls:
                self.use(name, self.workspace / path, content)
            self.seen.append(self.files())

    def use(self, name: str, path: Path, content: str | None) -> None:
        if name == "read_file":
            path.read_text()
        elif name == "delete_file":
            path.unlink()
        else:
            assert content is not None
            path.write_text(content)

    def files(self) -> dict[str, str]:
        found = (path for path in self.workspace.rglob("*") if ".git" not in path.parts)
        return {
            str(path.relative_to(self.workspace)): path.read_text()
            for path in found
            if path.is_file()
        }


@pytest.fixture
def agent(workspace: Path) -> ReactAgent:
    """An agent that has done its work. It told its recorder nothing of the files."""
    (workspace / "src").mkdir()
    (workspace / "src" / "dates.py").write_text("def days(year):\n    return 365\n")
    (workspace / "README.md").write_text("dates\n")
    plain_git(workspace, "add", "-A")
    plain_git(workspace, "commit", "-qm", "start")
    recorder = ExecutionRecorder(workspace, RUN, task="Repair the leap years", task_id="T-1")
    agent = ReactAgent(workspace, recorder)
    with recorder:
        agent.run("Repair the leap years")
    return agent


def test_an_agent_is_recorded_and_read_back(agent: ReactAgent) -> None:
    workspace = agent.workspace
    trace = load_execution_trace(workspace, RUN)
    assert trace is not None
    assert (trace.task_id, trace.status) == ("T-1", "completed")
    assert [item.description for item in trace.steps] == [
        *("Tools: read_file", "Tools: edit_file, write_file", "Tools: delete_file"),
        "All is well.",
    ]
    assert trace.summary() == {
        "total_steps": 4,
        "llm_calls": 4,
        "total_tokens": 1000,
        "files_modified": 2,
    }
    assert [
        (item.operation_type, item.file_path, item.origin) for item in trace.file_operations
    ] == [
        ("create", "notes.md", "observed"),
        ("edit", "src/dates.py", "observed"),
        ("delete", "notes.md", "observed"),
    ]
    assert plain_git(workspace, "status", "--porcelain") == "M src/dates.py"


def test_its_files_are_those_that_lay_there(agent: ReactAgent, tmp_path: Path) -> None:
    workspace = agent.workspace
    for number, files in enumerate(agent.seen, start=1):
        snapshot = get_step_snapshot(workspace, RUN, number)
        assert snapshot.items() <= files.items()
        for path in ("src/dates.py", "README.md", "notes.md"):
            assert get_file_state_at_step(workspace, RUN, number, path) == files.get(path)
        folder = tmp_path / f"step-{number}"
        restore_to_step(workspace, RUN, number, into=folder)
        assert ReactAgent(folder, agent.recorder).files() == files
    assert compare_steps(workspace, RUN, 1, 2) == {
        path: {"before": agent.seen[0].get(path), "after": agent.seen[1][path]}
        for path in ("notes.md", "src/dates.py")
    }
    assert list(compare_steps(workspace, RUN, 1, 4)) == ["src/dates.py"]


def test_it_is_played_and_exported(agent: ReactAgent) -> None:
    trace = load_execution_trace(agent.workspace, RUN)
    assert trace is not None
    session, out = ReplaySession(trace), io.StringIO()
    session.interactive_mode(io.StringIO("n\nn\nq\n"), out, show_llm=True)
    page = out.getvalue()
    for text in (
        "    -    return 365\n",
        "    +    return 366 if year % 4 == 0 else 365\n",
        "  create notes.md  +1 -0\n",
        "  delete notes.md  +0 -1\n",
        "  user: Repair the leap years\n",
    ):
        assert text in page
    step = session.current_step
    assert step is not None
    assert [item.file_path for item in session.get_step_file_ops(step)] == ["notes.md"]

    exported = json.loads(json.dumps(export_trace_json(trace)))
    assert exported["steps"][1]["file_changes"] == [
        {"operation": "create", "file_path": "notes.md"},
        {"operation": "edit", "file_path": "src/dates.py"},
    ]
    assert exported["run"]["task"] == "Repair the leap years"
    assert exported["steps"][1]["file_operations"][1]["content_after"] == FIX[1][1][0][2]
    assert "### Step 4: All is well." in export_trace_markdown(trace).splitlines()
