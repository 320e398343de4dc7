"""The SDK: what a traced program does becomes a run, and the program stays what it is."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from running import plain_git
from tracing import Project, make_project

import repotrace
from repotrace import (
    TraceHandler,
    TracingExecutor,
    checkpoint,
    child_environment,
    current_span,
    propagate,
    record_decision,
    record_edit,
    record_log,
    record_read,
    span,
    trace_agent,
)
from repotrace.runs.checkpoints import checkpoints, find_checkpoint


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path, monkeypatch)


# --- Agents ---------------------------------------------------------------------------------


def test_an_agent_becomes_a_run(project: Project) -> None:
    @trace_agent(environment="production", task_id="T-1", version="2", tags=["b", "a"], budget=3)
    def fix_bug(task: str) -> str:
        return task.upper()

    assert fix_bug("the date bug") == "THE DATE BUG"
    run = project.run
    assert (run.agent, run.agent_version, run.task) == ("fix_bug", "2", "the date bug")
    assert (run.status, run.environment, run.task_id) == ("completed", "production", "T-1")
    assert (run.tags, run.source) == (("a", "b"), "sdk")
    assert run.attributes == {"budget": 3, "result": "THE DATE BUG"}
    assert run.workspace == str(project.folder)
    assert run.base_commit == plain_git(project.folder, "rev-parse", "HEAD")
    assert run.base_state is not None
    assert project.store.snapshots.read(run.base_state, "a.py") == b"a = 1\n"
    assert fix_bug.__name__ == "fix_bug"


def test_it_can_be_called_on_any_callable(project: Project) -> None:
    class Agent:
        def __init__(self) -> None:
            self.seen = 0

        @trace_agent
        def method(self, task: str) -> int:
            self.seen += 1
            return self.seen

        @classmethod
        def made(cls, task: str) -> str:
            return cls.__name__ + task

        def __call__(self, task: str) -> str:
            return f"called {task}"

    assert Agent().method("m") == 1
    assert project.run.task == "m"
    assert trace_agent(Agent.made)("!") == "Agent!"
    assert project.run.agent == "made"
    assert trace_agent(Agent())("x") == "called x"
    assert project.run.agent == "Agent"
    assert trace_agent(partial(pow, 2), name="power")(5) == 32
    assert project.run.agent == "power"
    assert len(project.store.runs.list()) == 4


def test_results_and_errors_pass_unchanged(project: Project) -> None:
    error = ValueError("no such date")
    sentinel = object()

    @trace_agent
    def fails() -> None:
        raise error

    @trace_agent
    def works() -> object:
        return span("inner", lambda: sentinel)

    with pytest.raises(ValueError, match="no such date") as caught:
        fails()
    assert caught.value is error
    run = project.run
    assert (run.status, run.error) == ("failed", "ValueError: no such date")
    assert works() is sentinel


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(0), "completed"),
        (SystemExit(3), "failed"),
        (asyncio.CancelledError(), "interrupted"),
    ],
)
def test_how_a_program_ends_is_how_its_run_ends(
    project: Project, error: BaseException, status: str
) -> None:
    @trace_agent
    def agent() -> None:
        raise error

    with pytest.raises(type(error)):
        agent()
    assert project.run.status == status


def test_coroutines(project: Project) -> None:
    @trace_agent
    async def agent(task: str) -> str:
        first = await span("first", lambda: step("a"), type="llm", input=task)
        async with span("second") as s:
            s.output = await step("b")
        return first

    async def step(text: str) -> str:
        await asyncio.sleep(0)
        return text

    assert asyncio.run(agent("t")) == "a"
    assert project.tree() == {"first": {}, "second": {}}
    assert [item.output_result for item in project.steps()] == ["a", "b"]
    assert project.named("first").input_context == "t"


def test_a_cancelled_agent_ends_its_steps(project: Project) -> None:
    @trace_agent
    async def agent() -> None:
        async with span("waits", type="tool"):
            await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(agent())
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert project.run.status == "interrupted"
    assert project.named("waits").status == "interrupted"
    assert project.named("waits").completed_at is not None


def test_generators_run_in_a_context_of_their_own(project: Project) -> None:
    @trace_agent(name="inner")
    def numbers() -> Iterator[int]:
        with span("one"):
            yield 1
        with span("two"):
            got = yield 2
            assert got is None

    @trace_agent(name="outer")
    def agent() -> list[int]:
        found = []
        for number in numbers():
            assert current_span() is not None
            assert current_span().name == "outer"  # type: ignore[union-attr]
            span(f"between {number}", lambda: None)
            found.append(number)
        return found

    assert agent() == [1, 2]
    assert project.tree() == {
        "inner": {"one": {}, "two": {}},
        "between 1": {},
        "between 2": {},
    }


def test_a_generator_that_is_left_early_has_ended(project: Project) -> None:
    @trace_agent
    def numbers() -> Iterator[int]:
        with span("endless"):
            n = 0
            while True:
                yield n
                n += 1

    for number in numbers():
        if number == 3:
            break
    assert project.run.status == "completed"
    assert project.named("endless").status == "completed"


def test_generators_take_what_is_sent_and_give_what_they_return(project: Project) -> None:
    @trace_agent
    def adder() -> Any:
        total = 0
        try:
            while True:
                total += yield total
        except RuntimeError:
            return total

    running = adder()
    assert next(running) == 0
    assert running.send(2) == 2
    assert running.send(3) == 5
    with pytest.raises(StopIteration) as stop:
        running.throw(RuntimeError())
    assert stop.value.value == 5
    assert project.run.attributes["result"] == "5"


def test_async_generators(project: Project) -> None:
    @trace_agent
    async def stream() -> AsyncIterator[str]:
        for word in ("a", "b"):
            async with span(word):
                await asyncio.sleep(0)
            yield word

    async def main() -> list[str]:
        found = []
        async for word in stream():
            assert current_span() is None
            found.append(word)
        return found

    assert asyncio.run(main()) == ["a", "b"]
    assert project.tree() == {"a": {}, "b": {}}
    assert project.run.status == "completed"


def test_an_async_generator_that_fails_fails_its_run(project: Project) -> None:
    @trace_agent
    async def stream() -> AsyncIterator[int]:
        yield 1
        raise LookupError("gone")

    async def main() -> None:
        async for _ in stream():
            pass

    with pytest.raises(LookupError):
        asyncio.run(main())
    assert project.run.error == "LookupError: gone"


def test_an_agent_within_an_agent_is_a_step(project: Project) -> None:
    @trace_agent
    def helper(question: str) -> str:
        return span("look", lambda: question)

    @trace_agent
    def lead() -> str:
        return span("plan", lambda: helper("where?"), type="planning")

    assert lead() == "where?"
    assert project.tree() == {"plan": {"helper": {"look": {}}}}
    assert project.named("helper").step_type == "agent"
    assert len(project.store.runs.list()) == 1


# --- Spans ----------------------------------------------------------------------------------


def test_a_span_is_a_call_a_context_or_a_decorator(project: Project) -> None:
    @span("decorated", type="tool", kind="x")
    def tool(path: str, *, deep: bool = False) -> str:
        return f"read {path}"

    @span("async decorated")
    async def atool(n: int) -> int:
        return n + 1

    @trace_agent
    def agent() -> None:
        assert span("called", lambda: 5) == 5
        with span("with", input={"a": [1]}, reason="because") as s:
            s.output = {"found": None}
            s.set(lines=3)
        assert tool("a.py", deep=True) == "read a.py"
        assert tool("b.py") == "read b.py"
        assert asyncio.run(atool(1)) == 2

    agent()
    steps = project.steps()
    assert [item.description for item in steps] == [
        *("called", "with", "decorated", "decorated", "async decorated"),
    ]
    called, within, first, second, last = steps
    assert called.output_result == "5"
    assert (within.input_context, within.output_result) == ('{"a": [1]}', '{"found": null}')
    assert (within.reason, within.metadata["attributes"]) == ("because", {"lines": 3})
    assert first.input_context == '{"path": "a.py", "deep": true}'
    assert second.input_context == "b.py"
    assert (first.step_type, first.metadata["attributes"]) == ("tool", {"kind": "x"})
    assert (last.output_result, last.status) == ("2", "completed")


def test_a_failed_span(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        with pytest.raises(ZeroDivisionError), span("raises"):
            print(1 / 0)
        with span("says so") as s:
            s.error("half of it is missing")
        span("red", lambda: SimpleNamespace(passed=False), type="tool")
        span("code", lambda: subprocess.run(["false"], check=False), type="command")
        span("fine", lambda: SimpleNamespace(passed=True), type="tool")

    agent()
    assert {item.description: (item.status, item.error) for item in project.steps()} == {
        "raises": ("failed", "ZeroDivisionError: division by zero"),
        "says so": ("failed", "half of it is missing"),
        "red": ("failed", "not passed"),
        "code": ("failed", "exit code 1"),
        "fine": ("completed", None),
    }
    assert project.run.status == "completed"
    assert project.run.totals.failed_steps == 4


def test_outside_of_an_agent_a_span_only_calls_through(project: Project) -> None:
    error = KeyError("x")

    def fails() -> None:
        raise error

    assert span("a", lambda: 7) == 7
    with span("b") as s:
        s.output = 1
        s.set(tokens=3).error("no")
        assert s.id is None
    with pytest.raises(KeyError) as caught:
        span("c", fails)
    assert caught.value is error

    async def coroutine() -> int:
        async with span("d"):
            return await span("e", lambda: asyncio.sleep(0, 8))

    assert asyncio.run(coroutine()) == 8
    assert record_edit("a.py", "x", "y") is None
    assert record_read("a.py") is None
    assert record_decision("d") is None
    assert checkpoint("c") is None
    assert record_log("l") is None
    assert not (project.folder / ".git" / "repotrace").exists()


def test_what_cannot_be_shown_is_named(project: Project) -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    class Circular(list[Any]):
        pass

    loop = Circular()
    loop.append(loop)

    @trace_agent
    def agent() -> object:
        span("a", lambda: Hostile(), input=b"bytes \xff")
        span("b", lambda: loop)
        span("c", lambda: object, input={"set": {1}, 2: Hostile()})
        return None

    agent()
    first, second, third = project.steps()
    assert first.output_result == "<Hostile, unprintable: RuntimeError>"
    assert first.input_context == "bytes \ufffd"
    assert second.output_result is not None
    assert third.input_context is not None


def test_secrets_do_not_reach_the_journal(project: Project) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4

    @trace_agent
    def agent(task: str) -> str:
        with span("s", input={"token": secret}, note=secret) as s:
            s.output = f"Authorization: Bearer {secret}"
        record_log(f"using {secret}")
        return secret

    agent(f"use {secret}")
    journal = project.folder / ".git" / "repotrace" / "journal"
    written = b"".join(path.read_bytes() for path in journal.glob("*.jsonl"))
    assert b'"step_started"' in written
    assert secret.encode() not in written
    assert "[REDACTED:" in (project.run.task or "")


# --- Context --------------------------------------------------------------------------------


def test_tasks_that_run_at_once_keep_their_parents(project: Project) -> None:
    async def work(name: str) -> None:
        async with span(name):
            await asyncio.sleep(0.01)
            async with span(f"{name} inner"):
                await asyncio.sleep(0.01)

    @trace_agent
    async def agent() -> None:
        async with span("all"):
            await asyncio.gather(*(work(f"w{n}") for n in range(5)))

    asyncio.run(agent())
    assert project.tree() == {"all": {f"w{n}": {f"w{n} inner": {}} for n in range(5)}}


def test_threads_and_executors(project: Project) -> None:
    def work(name: str) -> None:
        with span(name):
            pass

    @trace_agent
    def agent() -> None:
        with span("pool"), TracingExecutor(2) as pool:
            list(pool.map(work, ["p1", "p2"]))
            pool.submit(work, "p3").result()
        with span("plain"):
            thread = threading.Thread(target=propagate(work), args=("t1",), name="worker-7")
            thread.start()
            thread.join()
            with ThreadPoolExecutor(2) as other:
                list(other.map(propagate(work), ["e1", "e2"]))
            lost = threading.Thread(target=work, args=("not told",))
            lost.start()
            lost.join()

    agent()
    assert project.tree() == {
        "pool": {"p1": {}, "p2": {}, "p3": {}},
        "plain": {"t1": {}, "e1": {}, "e2": {}},
    }
    assert project.named("t1").metadata["thread"] == "worker-7"


def test_a_forked_child_goes_on_with_the_run(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        with span("forks"):
            child = os.fork()
            if child == 0:
                try:
                    with span("in the child", type="edit"):
                        project.write("b.py", "b = 1\n")
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
        span("after", lambda: None)

    agent()
    assert project.tree() == {"forks": {"in the child": {}}, "after": {}}
    assert project.changes(project.named("in the child")) == [("create", "b.py")]


CHILD = """
import sys
from repotrace import span, trace_agent
with span("child span", type="edit"):
    open(sys.argv[1], "w").write("x")
@trace_agent
def helper(): span("deep", lambda: None)
helper()
"""


def test_a_child_process_belongs_to_the_step_that_started_it(project: Project) -> None:
    seen: dict[str, str] = {}

    @trace_agent
    def agent() -> None:
        with span("runs it", type="tool") as s:
            seen["parent"] = os.environ["TRACEPARENT"]
            seen["id"] = s.id or ""
            subprocess.run([sys.executable, "-c", CHILD, "c.py"], check=True)
        with span("elsewhere"):
            env = child_environment({"PATH": os.environ["PATH"]})
            code = "from repotrace import span\nwith span('far'): pass"
            subprocess.run([sys.executable, "-c", code], check=True, env=env, cwd="/")

    before = dict(os.environ)
    agent()
    assert dict(os.environ) == before
    assert project.tree() == {
        "runs it": {"child span": {}, "helper": {"deep": {}}},
        "elsewhere": {"far": {}},
    }
    assert project.changes(project.named("child span")) == [("create", "c.py")]
    assert project.changes(project.named("runs it")) == []
    assert not [step for step in project.steps() if step.step_type == "external"]
    version, trace, parent, flags = seen["parent"].split("-")
    assert (version, len(trace), flags) == ("00", 32, "01")
    assert trace.endswith(project.run.id[1:])
    assert parent == seen["id"][-16:]
    assert len(project.store.runs.list()) == 1


def test_with_two_runs_at_once_children_belong_to_neither(project: Project) -> None:
    def environment() -> str | None:
        return os.environ.get("REPOTRACE_RUN")

    both = threading.Barrier(2)

    @trace_agent(states=False)
    def agent() -> tuple[str | None, str]:
        both.wait()
        found = environment()
        explicit = child_environment()["REPOTRACE_RUN"]
        both.wait()
        return found, explicit

    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: agent(), range(2))
    assert one[0] is None
    assert two[0] is None
    assert {one[1], two[1]} == {run.id for run in (project.run, *project.store.runs.list())}


# --- Retries --------------------------------------------------------------------------------


def attempts(project: Project) -> dict[str, list[tuple[int, str | None]]]:
    steps = project.steps()
    names = {step.id: f"{step.step_number}" for step in steps}
    found: dict[str, list[tuple[int, str | None]]] = {}
    for step in steps:
        retried = names[step.retry_of] if step.retry_of else None
        found.setdefault(step.description, []).append((step.attempt, retried))
    return found


def red() -> SimpleNamespace:
    return SimpleNamespace(passed=False)


def test_the_same_again_after_it_failed_is_a_retry(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        for outcome in (red, red, lambda: None):
            span("build", outcome, type="command")
        span("build", lambda: None, type="command")

    agent()
    assert attempts(project) == {"build": [(1, None), (2, "1"), (3, "2"), (1, None)]}
    assert project.run.totals.retries == 2


def test_one_red_test_is_answered_once(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        span("write-patch", lambda: None, type="llm")
        span("run-tests", red, type="test")
        span("read", lambda: None, type="tool")
        span("write-patch", lambda: None, type="llm")
        span("write-patch", lambda: None, type="llm")
        span("run-tests", lambda: None, type="test")
        span("write-patch", lambda: None, type="llm")

    agent()
    assert attempts(project) == {
        "write-patch": [(1, None), (2, "1"), (1, None), (1, None)],
        "run-tests": [(1, None), (1, None)],
        "read": [(1, None)],
    }


@pytest.mark.parametrize(
    "name",
    ["retry", "retry-write-patch", "Retry: write-patch", "write-patch (retry)", "write-patch-2"],
)
def test_a_name_can_say_that_it_is_a_retry(project: Project, name: str) -> None:
    @trace_agent
    def agent() -> None:
        span("write-patch", lambda: None, type="llm")
        span("run-tests", red, type="tool")
        span(name, lambda: None, type="llm")

    agent()
    assert attempts(project)[name] == [(2, "1")]


def test_a_span_can_name_what_it_retries(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        with span("one") as first:
            pass
        with span("two", retry_of=first) as second:
            pass
        span("three", lambda: None, retry_of=second.id)
        span("four", lambda: None, retry_of="three")

    agent()
    assert attempts(project) == {
        "one": [(1, None)],
        "two": [(2, "1")],
        "three": [(3, "2")],
        "four": [(4, "3")],
    }


# --- Files ----------------------------------------------------------------------------------


def test_each_span_has_the_files_before_and_after_it(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        with span("edits", type="edit", reason="it is too small"):
            project.write("a.py", "a = 2\n")
        with span("thinks", type="llm"):
            pass
        with span("formats", type="command"):
            project.write("b.py", "b = 1\n")
            (project.folder / "a.py").unlink()

    agent()
    edits, thinks, formats = project.steps()
    read = project.store.snapshots.read
    assert project.changes(edits) == [("edit", "a.py")]
    assert project.changes(formats) == [("create", "b.py"), ("delete", "a.py")]
    assert thinks.state_id is None
    assert edits.state_before_id
    assert edits.state_id
    assert formats.state_id
    assert read(edits.state_before_id, "a.py") == b"a = 1\n"
    assert read(edits.state_id, "a.py") == b"a = 2\n"
    assert read(formats.state_id, "a.py") is None
    assert {step.state_quality for step in (edits, formats)} == {"exact"}


def test_a_change_between_two_spans_is_external(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        with span("one", type="edit"):
            project.write("a.py", "a = 2\n")
        project.write("theirs.py", "t = 1\n")
        with span("two", type="edit"):
            project.write("b.py", "b = 1\n")
        project.write("last.py", "l = 1\n")

    agent()
    steps = project.steps()
    assert [(s.step_type, project.changes(s)) for s in steps] == [
        ("edit", [("edit", "a.py")]),
        ("external", [("create", "theirs.py")]),
        ("edit", [("create", "b.py")]),
        ("external", [("create", "last.py")]),
    ]
    assert not any(step.ambiguous for step in steps)


def test_spans_that_overlap_are_ambiguous(project: Project) -> None:
    async def tool(name: str, wait: float) -> None:
        async with span(name, type="tool"):
            await asyncio.sleep(wait)
            project.write(f"{name}.py", name)

    @trace_agent
    async def agent() -> None:
        await asyncio.gather(tool("quick", 0.3), tool("slow", 0.6))
        await tool("alone", 0)

    asyncio.run(agent())
    assert {step.description: step.ambiguous for step in project.steps()} == {
        "quick": True,
        "slow": True,
        "alone": False,
    }
    assert project.changes(project.named("quick")) == [("create", "quick.py")]
    assert project.changes(project.named("slow")) == [("create", "slow.py")]
    assert project.changes(project.named("alone")) == [("create", "alone.py")]


def test_states_of_async_spans_are_taken_beside_the_event_loop(project: Project) -> None:
    for number in range(400):
        project.write(f"many/{number}.txt", "x" * number)
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0)
            beats += 1

    @trace_agent
    async def agent() -> list[int]:
        seen = []
        for make in (tool, lambda: tool()):
            before = beats
            await span("tool", make, type="tool")
            seen.append(beats - before)
        return seen

    async def tool() -> None:
        project.write("new.py", "n")

    async def main() -> list[int]:
        beating = asyncio.create_task(heart())
        found = await agent()
        beating.cancel()
        return found

    # The tool itself gives the loop one or two turns; taking a state lasts for many more.
    assert min(asyncio.run(main())) > 5


def test_edits_told_of_are_steps_beside_their_reasons(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        record_read("a.py", first_line=1, last_line=1)
        project.write("a.py", "a = 2\n")
        record_edit("a.py", "a = 1\n", "a = 2\n", reason="one is not enough")
        with span("second", type="edit"):
            project.write("b.py", "b\n")
            record_edit(project.folder / "b.py", None, "b\n", reason="b was missing")
        record_edit("/elsewhere/c.py", "x\ny\n", None)
        record_decision("leave the rest", "out of scope", kind="choice")

    agent()
    steps = project.steps()
    assert [(s.step_type, s.description, s.reason) for s in steps] == [
        ("tool", "read a.py", None),
        ("edit", "edit a.py", "one is not enough"),
        ("edit", "second", "b was missing"),
        ("edit", "delete /elsewhere/c.py", None),
        ("decision", "leave the rest", "out of scope"),
    ]
    runs, run_id = project.store.runs, project.run.id
    (read,) = runs.reads(run_id)
    assert (read.file_path, read.first_line, read.last_line) == ("a.py", 1, 1)
    found = {item.file_path: item for item in runs.operations(run_id)}
    assert {name: item.origin for name, item in found.items()} == {
        "a.py": "observed",
        "b.py": "observed",
        "/elsewhere/c.py": "claimed",
    }
    assert found["a.py"].content_before == "a = 1\n"
    assert found["/elsewhere/c.py"].content_before == "x\ny\n"
    assert found["/elsewhere/c.py"].lines_removed == 2


# --- Messages, and what goes wrong ----------------------------------------------------------


def test_log_messages_belong_to_their_step(project: Project) -> None:
    logger = logging.getLogger("agent.tools")
    handler = TraceHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:

        @trace_agent
        def agent() -> None:
            with span("works"):
                logger.warning("%d files", 3)
                record_log("by hand", level="debug", count=3)
                try:
                    print(1 / 0)
                except ZeroDivisionError:
                    logger.exception("broke")
            logger.info("at the root")

        logger.info("outside")
        agent()
    finally:
        logger.removeHandler(handler)
    step = project.named("works")
    logs = project.store.runs.logs(project.run.id)
    assert [(item.level, item.message, item.logger) for item in logs] == [
        ("warning", "3 files", "agent.tools"),
        ("debug", "by hand", None),
        ("error", "broke", "agent.tools"),
        ("info", "at the root", "agent.tools"),
    ]
    assert [item.step_id == step.id for item in logs] == [True, True, True, False]
    assert logs[1].data == {"count": 3}
    assert "ZeroDivisionError" in logs[2].data["exception"]


def test_recording_can_be_turned_off(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOTRACE_RECORD", "0")

    @trace_agent
    def agent() -> int:
        return span("a", lambda: 4)

    assert agent() == 4
    assert not (project.folder / ".git" / "repotrace").exists()


@pytest.mark.skipif(os.getuid() == 0 and sys.platform != "linux", reason="root writes anywhere")
def test_a_broken_home_never_breaks_the_program(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPOTRACE_HOME", "/dev/null/nowhere")

    @trace_agent
    def agent() -> int:
        with span("edit", type="edit"):
            project.write("a.py", "a = 3\n")
        for _ in range(20):
            span("a", lambda: 4)
        return 5

    assert agent() == 5
    said = capsys.readouterr().err
    assert said.count("repotrace:") == 1
    assert "The program goes on" in said


@pytest.mark.parametrize("wide", ["/", "HOME"])
def test_a_folder_that_is_too_wide_keeps_no_files(
    project: Project, tmp_path: Path, wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPOTRACE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path if wide == "HOME" else wide)

    @trace_agent
    def agent() -> None:
        span("edit", lambda: None, type="edit")

    agent()
    store = type(project.store)(tmp_path / "home")
    store.runs.ingest()
    run = store.runs.get()
    (step,) = store.runs.steps(run.id)
    assert (run.base_quality, step.state_quality) == ("missing", "missing")
    assert "too wide" in (step.state_reason or "")


def test_the_names_are_loaded_when_they_are_used(tmp_path: Path) -> None:
    code = (
        "import sys, repotrace\n"
        "ours = [n for n in sys.modules if n.startswith('repotrace.')]\n"
        "print([n for n in ours if n != 'repotrace._version'])\n"
        "from repotrace import trace_agent, span\n"
        "heavy = ['asyncio', 'pydantic', 'sqlite3', 'inspect', 'logging']\n"
        "print([n for n in heavy if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
    assert set(repotrace.__all__) <= set(dir(repotrace)) | {
        name for name in repotrace.__all__ if getattr(repotrace, name)
    }
    with pytest.raises(AttributeError):
        print(repotrace.nothing)


def test_types_of_what_is_wrapped_are_kept() -> None:
    """Checked by mypy: a wrong type here fails the type check of the tests."""

    @trace_agent
    def agent(task: str) -> int:
        return len(task)

    wrapped: Callable[[str], int] = agent
    number: int = span("x", lambda: 3)
    assert (wrapped("abc"), number) == (3, 3)


def test_a_checkpoint_keeps_the_files_as_they_are(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        project.write("a.py", "one")
        with span("think", type="planning"):
            checkpoint("first draft")
        project.write("a.py", "two")

    agent()
    found = find_checkpoint(project.store, "first draft", run=project.run)
    step = project.named("checkpoint first draft")
    assert (found.step_number, step.step_type, step.label) == (
        step.step_number,
        "note",
        "first draft",
    )
    assert found.known.state_id is not None
    assert project.store.snapshots.read(found.known.state_id, "a.py") == b"one"
    # As far as the program had come then: it was planning, and had written one file.
    assert found.reached == (1, 1)
    assert checkpoints(project.store, project.run) == [found]
