"""Programs that do to their recording what nobody foresaw: it may not hurt them, nor lie."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from running import clean_environment, plain_git
from tracing import Project, make_project

from repotrace import (
    current_span,
    propagate,
    record_edit,
    record_llm,
    record_log,
    run_command,
    span,
    trace_agent,
)
from repotrace.journal import Journal
from repotrace.runs.recording.recorder import ExecutionRecorder
from repotrace.storage import Store
from repotrace.system.snapshots import SnapshotStore


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path, monkeypatch)


def run_program(project: Project, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A program in the project; its output."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.folder,
        env=clean_environment(project.folder.parent, env),
        capture_output=True,
        text=True,
        check=False,
    )


# --- Forks ----------------------------------------------------------------------------------


def test_a_forked_child_ends_neither_the_step_nor_the_run(project: Project) -> None:
    done = run_program(
        project,
        """if True:
        import os, sys
        from repotrace import span, trace_agent

        @trace_agent
        def agent():
            with span("outer", type="tool"):
                child = os.fork()
                if child == 0:
                    with span("in the child"):
                        pass
                    sys.exit(5)
                status = os.waitpid(child, 0)[1]
                open("made", "w").close()
            return os.waitstatus_to_exitcode(status)

        print(agent())
        """,
    )
    assert (done.stdout, done.stderr) == ("5\n", "")
    run = project.run
    assert (run.status, run.error, run.attributes["result"]) == ("completed", None, "5")
    outer, inner = project.steps()
    assert (outer.status, outer.error, inner.status) == ("completed", None, "completed")
    assert inner.parent_id == outer.id
    assert project.changes(outer) == [("create", "made")]


def test_a_run_whose_parent_is_killed_is_not_completed_by_its_child(project: Project) -> None:
    done = run_program(
        project,
        """if True:
        import os, signal
        from repotrace import span, trace_agent

        @trace_agent(states=False)
        def agent():
            with span("outer"):
                child = os.fork()
                if child == 0:
                    return "in the child"
                os.waitpid(child, 0)
                os.kill(os.getpid(), signal.SIGKILL)

        agent()
        """,
    )
    assert done.returncode == -signal.SIGKILL
    assert project.run.status == "interrupted"
    assert [step.status for step in project.steps()] == ["interrupted"]


def test_a_recorder_is_ended_by_the_process_that_began_it(project: Project) -> None:
    done = run_program(
        project,
        """if True:
        import os, sys
        from repotrace.runs.recording.recorder import ExecutionRecorder
        from repotrace.storage import Store

        recorder = ExecutionRecorder(".", states=False)
        step = recorder.start_step("tool", "one")
        child = os.fork()
        if child == 0:
            recorder.record_log("from the child", step_id=step)
            sys.exit(0)
        os.waitpid(child, 0)
        store = Store(recorder.home)
        store.runs.ingest(wait=True)
        said = [entry.message for entry in store.runs.logs(recorder.run_id)]
        print(store.runs.get().status, said)
        """,
    )
    assert (done.stdout, done.stderr) == ("running ['from the child']\n", "")
    assert project.run.status == "completed"


def test_a_fork_while_other_threads_record_does_not_hang(project: Project) -> None:
    done = run_program(
        project,
        """if True:
        import os, threading
        from repotrace import propagate, record_llm, span, trace_agent

        @trace_agent(states=False)
        def agent():
            over = threading.Event()
            def work():
                while not over.is_set():
                    with span("in a thread"):
                        record_llm("x", messages=[{"role": "user", "content": "y"}])
            threads = [threading.Thread(target=propagate(work)) for _ in range(3)]
            for thread in threads:
                thread.start()
            for number in range(30):
                child = os.fork()
                if child == 0:
                    with span(f"child {number}"):
                        record_llm("x", messages=[{"role": "user", "content": "y"}])
                    os._exit(0)
                os.waitpid(child, 0)
            over.set()
            for thread in threads:
                thread.join()

        agent()
        """,
    )
    assert done.returncode == 0, done.stderr
    names = Counter(step.description for step in project.steps())
    assert all(names[f"child {number}"] == 1 for number in range(30))


# --- Tasks and threads ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_are_cancelled_at_any_moment_end_their_steps(
    project: Project, seed: int
) -> None:
    chance = random.Random(seed)

    @trace_agent
    async def agent() -> None:
        async def work(number: int) -> None:
            async with span(f"task {number}", type=chance.choice(["tool", "llm", "edit"])):
                await span(
                    f"in {number}",
                    lambda: asyncio.sleep(chance.random() * 0.02),
                    type=chance.choice(["tool", "planning"]),
                )

        tasks = [asyncio.create_task(work(number)) for number in range(8)]
        for _ in range(8):
            await asyncio.sleep(chance.random() * 0.03)
            chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        outermost = current_span()
        assert outermost is not None
        assert outermost.name == "agent"

    asyncio.run(agent())
    assert current_span() is None
    statuses = {step.status for step in project.steps()}
    assert statuses <= {"completed", "interrupted"}


def test_a_span_may_be_shared_by_threads_and_entered_again(project: Project) -> None:
    shared = span("shared", type="planning")

    @trace_agent(states=False)
    def agent() -> None:
        def work() -> None:
            for _ in range(10):
                with shared, span("within"):
                    pass

        threads = [threading.Thread(target=propagate(work)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        again = span("again")
        with again, again as second, span("innermost"):
            assert second is not again
        with span("after"):
            pass

    agent()
    steps = project.steps()
    names = {step.id: step.description for step in steps}
    assert Counter((step.description, names.get(step.parent_id or "")) for step in steps) == {
        ("shared", None): 40,
        ("within", "shared"): 40,
        ("again", None): 1,
        ("again", "again"): 1,
        ("innermost", "again"): 1,
        ("after", None): 1,
    }
    assert {step.status for step in steps} == {"completed"}
    assert not any(step.parent_id == step.id for step in steps)


def test_a_span_that_another_thread_ends_can_be_left(project: Project) -> None:
    @trace_agent(states=False)
    def agent() -> None:
        crossing = span("crossing").__enter__()
        thread = threading.Thread(target=lambda: crossing.__exit__(None, None, None))
        thread.start()
        thread.join()
        crossing.__exit__(None, None, None)
        with span("after"):
            pass

    agent()
    assert project.tree() == {"crossing": {}, "after": {}}


def test_a_span_that_is_used_twice_does_not_keep_the_first_failure(project: Project) -> None:
    twice = span("twice")

    @trace_agent(states=False)
    def agent() -> None:
        with pytest.raises(ValueError, match="once"), twice:
            raise ValueError("once")
        with twice:
            pass

    agent()
    assert [step.error for step in project.steps()] == ["ValueError: once", None]


def test_generators_that_are_dropped_end_their_steps(project: Project) -> None:
    @trace_agent
    def numbers() -> Any:
        with span("numbers"):
            for number in range(5):
                with span(f"number {number}", type="tool"):
                    yield number

    @trace_agent
    def agent() -> None:
        one, other = numbers(), numbers()
        next(one), next(other), next(other)
        del one
        gc.collect()
        with span("between"):
            pass
        del other
        gc.collect()
        outermost = current_span()
        assert outermost is not None
        assert outermost.name == "agent"

    agent()
    assert {step.status for step in project.steps()} == {"completed"}
    assert project.named("between").parent_id is None


def test_a_generator_that_is_open_when_the_program_ends_says_nothing(project: Project) -> None:
    done = run_program(
        project,
        """if True:
        from repotrace import span, trace_agent

        @trace_agent(states=False)
        def numbers():
            with span("step"):
                yield 1

        kept = numbers()
        print(next(kept))
        """,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
    assert [step.description for step in project.steps()] == ["step"]


# --- Values ---------------------------------------------------------------------------------


class Hostile:
    """Raises whatever is asked of it, as a proxy does that is bound to nothing."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __bool__(self) -> bool:
        raise RuntimeError("no bool")

    __hash__ = None  # type: ignore[assignment]


class HostileDict(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("no items")


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def itself() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


VALUES: dict[str, Any] = {
    "hostile": Hostile(),
    "hostile dict": HostileDict(a=1),
    "holds itself": itself(),
    "other keys": {(1, 2): "a pair", None: 0},
    "large number": 10**5000,
    "half a character": "\ud800",
    "nul": "a\0b",
    "bytes": b"\xff",
    "not a number": float("nan"),
}


@pytest.mark.parametrize("name", VALUES)
def test_no_value_hurts_the_program_or_its_record(
    project: Project, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    value = VALUES[name]

    @trace_agent(states=False)
    def agent(task: Any) -> Any:
        with span("with", type="llm", input=value, given=value) as step:
            step.output = value
            step.set(tokens=3, other=value)
            record_log("message", value=value)
            record_llm(value, messages=[value, {"role": "user", "content": value}], model="m")
        assert span("function", lambda: value, type="tool") is value
        with span("told", type="llm", retry_of=value) as told:
            told.output = value
        return value

    assert agent(value) is value
    assert capfd.readouterr().err == ""
    run = project.run
    assert (run.status, run.totals.lost, run.totals.steps) == ("completed", 0, 3)
    assert {step.status for step in project.steps()} == {"completed"}
    assert len(project.store.runs.interactions(run.id)) == 2
    assert len(project.store.runs.logs(run.id)) == 1
    if name == "other keys":
        assert project.named("with").output_result == "{(1, 2): 'a pair', None: 0}"


def test_names_and_errors_of_every_kind(project: Project) -> None:
    @trace_agent(states=False)
    def agent() -> None:
        for name in (None, 7, Hostile()):
            with span(name):  # type: ignore[call-overload]
                pass
        with span("raises"):
            raise HostileError

    with pytest.raises(HostileError):
        agent()
    assert project.run.status == "failed"
    names = [step.description for step in project.steps()]
    assert names == ["span", "7", "<Hostile, unprintable: RuntimeError>", "raises"]


# --- Secrets --------------------------------------------------------------------------------

PASSWORD = "Tr0ub4dor-" + "3xKq9vLm"


@pytest.mark.parametrize(
    "data",
    [
        {"password": PASSWORD},
        {"password": [PASSWORD]},
        {"password": {"value": PASSWORD}},
        {"name": "DB_PASSWORD", "value": PASSWORD},
        {"env": [{"key": "DB_PASSWORD", "value": PASSWORD}]},
        {"env": {"DB_PASSWORD": PASSWORD}},
        {"pairs": [("password", PASSWORD), ["api_key", PASSWORD]]},
        {"argv": ["mysql", "--password", PASSWORD, "database"]},
        {"argv": ["mysql", f"--password={PASSWORD}"]},
        {"password": PASSWORD.encode()},
    ],
    ids=str,
)
def test_a_secret_is_told_by_the_name_it_goes_by(project: Project, data: dict[str, Any]) -> None:
    @trace_agent(states=False)
    def agent() -> None:
        record_log("message", **data)

    agent()
    inbox = b"".join(path.read_bytes() for path in project.store.runs.journal.glob("*.jsonl"))
    assert PASSWORD.encode() not in inbox
    (entry,) = project.store.runs.logs(project.run.id)
    assert "[REDACTED:" in str(entry.data)


@pytest.mark.parametrize(
    "data",
    [
        {"name": "the date bug", "value": PASSWORD},
        {"argv": ["pytest", "-k", "test_password_is_checked"]},
        {"pairs": [("password", "reset"), ["first", "second"]]},
        {"messages": ["--", PASSWORD]},
    ],
    ids=str,
)
def test_names_that_are_none_of_secrets_hide_nothing(
    project: Project, data: dict[str, Any]
) -> None:
    @trace_agent(states=False)
    def agent() -> None:
        record_log("message", **data)

    agent()
    (entry,) = project.store.runs.logs(project.run.id)
    assert entry.data == json.loads(json.dumps(data))


def test_secrets_that_come_and_go_while_the_agent_runs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings are loaded when the program is at work; a careful one takes them away again."""

    @trace_agent(states=False)
    def agent() -> None:
        with span("before"):
            pass
        monkeypatch.setenv("DEPLOY_PASSWORD", PASSWORD)
        with span("loaded", input=f"with {PASSWORD}"):
            record_log(f"using {PASSWORD}")
        monkeypatch.delenv("DEPLOY_PASSWORD")
        record_log(f"used {PASSWORD}")

    agent()
    agent()
    for run in (project.run, *project.store.runs.list()):
        assert PASSWORD not in project.store.runs.trace(run.id).model_dump_json()
    data = b"".join(path.read_bytes() for path in project.store.home.glob("runs.db*"))
    assert PASSWORD.encode() not in data
    messages = [entry.message for entry in project.store.runs.logs(project.run.id)]
    assert [message.partition(":")[0] for message in messages] == [
        "using [REDACTED",
        "used [REDACTED",
    ]


# --- Long texts -----------------------------------------------------------------------------


def test_a_command_that_prints_bytes_is_kept_whatever_their_number(project: Project) -> None:
    """Base64 is longer than the bytes; cut as text it could not be read."""

    @trace_agent(states=False)
    def agent() -> None:
        run_command("head -c 1000000 /dev/urandom", name="one megabyte")
        run_command("head -c 3000000 /dev/urandom", name="three megabytes")
        run_command("yes 0123456789 | head -c 3000000", name="text")

    agent()
    commands = [item.command.stdout for item in project.store.runs.commands(project.run.id)]
    assert [output.length for output in commands] == [1_000_000, 3_000_000, 3_000_000]
    assert all(len(output.data) > 900_000 for output in commands)
    # What was left out is counted once, from what the command printed.
    text = project.named("text").output_result or ""
    assert text.count("omitted ...]") == 1
    assert f"[... {3_000_000 - (1 << 20) + 128} bytes omitted ...]" in text


def test_the_size_of_texts_can_be_set(project: Project) -> None:
    prompt, output = "p" * 5_000, "o" * 30_000

    @trace_agent(states=False, text_limit=1_000)
    def agent() -> None:
        with span("call", type="llm", input=prompt) as step:
            step.output = output
        run_command("yes | head -c 5000", name="command")

    agent()
    call = project.named("call")
    assert call.input_context is not None
    assert call.input_context.startswith("p" * 500 + "\n[... 4000 of 5000 characters omitted")
    (interaction,) = project.store.runs.interactions(call.run_id)
    assert "29000 of 30000 characters" in (interaction.response or "")
    assert "4128 bytes omitted" in (project.named("command").output_result or "")


def test_a_text_limit_leaves_ids_alone(project: Project) -> None:
    @trace_agent(text_limit=1)
    def agent() -> None:
        with span("step", type="edit"):
            project.write("b.py", "b")

    agent()
    (step,) = project.steps()
    assert (step.description, step.state_quality) == ("step", "exact")


def test_bytes_in_base64_are_cut_as_bytes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    with Journal(tmp_path, text_limit=1_000) as journal:
        journal.write("log", "r1", {"data": {"base64": base64.b64encode(data).decode()}})
    (path,) = tmp_path.glob("*.jsonl")
    event = json.loads(path.read_text().splitlines()[1])
    kept = base64.b64decode(event["data"]["data"]["base64"], validate=True)
    assert kept.startswith(data[:500] + b"\n[... 9240 of 10240 characters omitted")
    assert kept.endswith(data[-500:])


def test_a_cut_text_is_shown_with_its_length(project: Project) -> None:
    prompt = "the beginning " + "lorem ipsum\n" * 420_000 + " the end"
    output = "0123456789\n" * 2_800_000

    @trace_agent(states=False)
    def agent() -> None:
        with span("large", type="llm", input=prompt) as step:
            step.output = output

    agent()
    shown = subprocess.run(
        [sys.executable, "-m", "repotrace", "play", "--step", "1", "--show-llm"],
        cwd=project.folder,
        env=clean_environment(project.folder),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"of {len(prompt)} characters omitted, sha256 " in shown
    assert f"of {len(output)} characters omitted, sha256 " in shown
    assert "the beginning" in shown
    assert " the end" in shown


# --- Places ---------------------------------------------------------------------------------


def test_a_work_tree_that_is_deleted_below_the_program(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("REPOTRACE_HOME", str(home))

    @trace_agent
    def agent() -> str:
        with span("before", type="edit"):
            project.write("b.py", "b")
        shutil.rmtree(project.folder)
        with span("after", type="edit"):
            pass
        record_edit("gone.py", None, "x")
        return run_command("echo fine").stdout

    assert agent() == "fine\n"
    os.chdir(tmp_path)
    store = Store(home)
    done = store.runs.ingest(wait=True)
    assert (done.problem, done.unusable) == (None, 0)
    run = store.runs.get()
    assert (run.status, run.totals.steps) == ("completed", 4)
    qualities = [step.state_quality for step in store.runs.steps(run.id)]
    assert qualities == ["exact", "missing", "missing", "missing"]


def test_a_child_in_a_deleted_folder_runs_on(project: Project) -> None:
    code = (
        "import os; os.rmdir(os.getcwd()); from repotrace import span; print(span('x', lambda: 5))"
    )
    (project.folder / "gone").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.folder / "gone",
        env=clean_environment(
            project.folder,
            {"REPOTRACE_RUN": "r0123456789ab", "REPOTRACE_JOURNAL": str(project.folder / "inbox")},
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("5\n", "")


def test_a_relative_home_stays_where_it_was(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = ExecutionRecorder(Store("inside"), folder=".")
    recorder.begin()
    (project.folder / "sub").mkdir()
    monkeypatch.chdir(project.folder / "sub")
    with span("outside of any run"):
        pass
    step = recorder.log_execution_step(1, "edit", "one")
    project.write("b.py", "b")
    recorder.complete_execution_step(1)
    recorder.end()
    assert not (project.folder / "sub" / "inside").exists()
    store = Store(project.folder / "inside")
    store.runs.ingest(wait=True)
    # A home within the work tree is no part of its states.
    paths = [item.file_path for item in store.runs.operations(recorder.run_id)]
    assert paths == ["b.py"]
    assert store.runs.step(recorder.run_id, step).state_quality == "exact"


def test_objects_that_were_borrowed_and_are_gone_stop_nothing(project: Project) -> None:
    """What is staged and never committed, the user may unstage and prune at any moment."""
    for number in range(20):
        project.write(f"staged{number}.txt", f"staged {number}\n" * 20)
    plain_git(project.folder, "add", ".")

    @trace_agent
    def agent() -> None:
        with span("one", type="edit"):
            project.write("n.txt", "n")
        plain_git(project.folder, "reset", "-q")
        plain_git(project.folder, "clean", "-fdq")
        plain_git(project.folder, "gc", "-q", "--prune=now")
        with span("two", type="edit"):
            project.write("m.txt", "m")

    agent()
    assert project.run.status == "completed"
    two = project.named("two")
    assert project.changes(two) == [("create", "m.txt")]
    assert project.store.snapshots.read(two.state_id or "", "m.txt") == b"m"
    assert project.store.runs.ingest(wait=True).problem is None


def test_a_run_that_is_deleted_while_it_goes_on(project: Project) -> None:
    code = (
        "import sys; from repotrace.storage import Store; store = Store(sys.argv[1]);"
        "store.runs.ingest(wait=True); run = store.runs.get(); store.runs.delete(run.id);"
        "store.snapshots.delete(f'runs/{run.id}'); store.snapshots.prune(grace=0)"
    )

    @trace_agent
    def agent() -> None:
        with span("one", type="edit"):
            project.write("n.txt", "n")
        command = [sys.executable, "-c", code, str(project.store.home)]
        subprocess.run(command, check=True, env=clean_environment(project.folder))
        with span("two", type="edit"):
            project.write("m.txt", "m")

    agent()
    two = project.named("two")
    assert (project.run.status, two.status) == ("completed", "completed")
    assert project.store.snapshots.read(two.state_id or "", "n.txt") == b"n"
    assert "missing" not in project.store.snapshots.git(["fsck", "--full"]).decode()


def test_a_thousand_runs_of_one_process_leave_no_files_open(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    if not os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        pytest.skip("open files are counted in /proc")

    @trace_agent(states=False)
    def agent(started: threading.Event, end: threading.Event) -> None:
        started.set()
        with span("step"):
            end.wait()

    before = open_files()
    previous: list[tuple[threading.Event, threading.Thread]] = []
    for number in range(1_000):  # each begins while the one before goes on
        if number % 10 == 0:
            monkeypatch.setenv("DEPLOY_TOKEN", f"a-new-secret-{number:06}")
        started, end = threading.Event(), threading.Event()
        thread = threading.Thread(target=agent, args=(started, end))
        thread.start()
        started.wait()
        for event, other in previous:
            event.set()
            other.join()
        previous = [(end, thread)]
    previous[0][0].set()
    previous[0][1].join()
    assert open_files() - before < 20
    done = project.store.runs.ingest(wait=True)
    assert (done.problem, done.unusable) == (None, 0)
    assert project.store.runs.count() == 1_000
    assert {run.status for run in project.store.runs.list()} == {"completed"}


def test_what_a_failed_git_leaves_is_swept(project: Project, tmp_path: Path) -> None:
    store = SnapshotStore(tmp_path / "store.git")
    assert store.take(project.folder, ref="runs/r1").state_id is not None
    left = store.path / "objects" / "17" / "tmp_obj_aB3xYz"
    ours = store.path / "objects" / "17" / f"tmp_obj_{os.getpid()}_{threading.get_ident()}"
    for path in (left, ours):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"half of an object")
    project.write("large.bin", "x" * 1_000_000)
    assert store.take(project.folder, ref="runs/r1", deadline=0.0).quality == "missed"
    assert not left.exists()
    assert ours.exists()
