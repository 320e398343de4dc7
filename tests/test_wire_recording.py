"""Agents whose model traffic is recorded while they work: real clients, real files, real states."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from proxying import SSE, Provider, Reply, chat_body, chat_pieces, provider
from running import Shell, clean_environment, plain_git

from repotrace.journal import Journal, new_run_id
from repotrace.records.events import Kind
from repotrace.records.run import Origin, StateQuality, StepType
from repotrace.runs.recording.wire_recording import ProxyRecording, WireRecording
from repotrace.storage import Store

type Record = dict[str, Any]
type Calls = list[tuple[str, str, Record]]

WRITE = "write_file"
KEY = "sk-planted-0123456789abcdefghij"


def writes(name: str, path: str, content: str) -> tuple[str, str, Record]:
    return name, WRITE, {"path": path, "content": content}


def replies(*turns: Calls, stream: bool = True) -> list[Reply]:
    """The answers of a model: each turn with its calls, and the last words."""
    found = []
    for number, calls in enumerate([*turns, []], 1):
        name, text = f"chatcmpl-{number}", "Done." if number > len(turns) else f"Turn {number}."
        if stream:
            found.append(Reply(chat_pieces(text, *calls, name=name), kind=SSE))
        else:
            found.append(Reply(chat_body(text, *calls, name=name)))
    return found


def work(
    base_url: str,
    folder: Path,
    *,
    task: str = "Write files.",
    between: Callable[[int], object] = lambda _turn: None,
    turns: int = 99,
) -> None:
    """An agent: asks, writes the files that it is told to, and asks again until nothing is left."""
    client = openai.OpenAI(base_url=base_url, api_key=KEY, max_retries=0, timeout=30)
    messages: list[Any] = [
        {"role": "system", "content": "You write files."},
        {"role": "user", "content": task},
    ]
    tools: Any = [{"type": "function", "function": {"name": WRITE, "parameters": {}}}]
    for turn in range(turns):
        ask = client.chat.completions.create
        answer: Any = None
        with ask(model="m", messages=messages, tools=tools, stream=True) as stream:
            kind = stream.response.headers["content-type"]
            if kind.startswith(SSE):
                answer = _joined(stream)
        if answer is None:
            return
        messages.append(answer)
        for call in answer.get("tool_calls") or ():
            given = json.loads(call["function"]["arguments"])
            (folder / given["path"]).write_text(given["content"])
            told = {"role": "tool", "tool_call_id": call["id"], "content": f"wrote {KEY}"}
            messages.append(told)
        if not answer.get("tool_calls"):
            return
        between(turn)


def _joined(stream: Any) -> Record:
    message: Record = {"role": "assistant", "content": ""}
    calls: dict[int, Record] = {}
    for chunk in stream:
        for choice in chunk.choices:
            message["content"] += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                empty = {"id": piece.id, "type": "function"}
                call = calls.setdefault(
                    piece.index, {**empty, "function": {"name": "", "arguments": ""}}
                )
                call["function"]["name"] += piece.function.name or ""
                call["function"]["arguments"] += piece.function.arguments or ""
    if calls:
        message["tool_calls"] = list(calls.values())
    return message


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository to work in."""
    path = tmp_path / "a project"
    path.mkdir()
    plain_git(path, "init", "-q", "-b", "main")
    (path / "a.txt").write_text("old\n")
    plain_git(path, "add", "-A")
    plain_git(path, "commit", "-q", "-m", "Begin")
    return path


@pytest.fixture
def model() -> Iterator[Provider]:
    with provider(Reply()) as found:
        yield found


def _stored(folder: Path) -> Store:
    store = Store(folder / ".git" / "repotrace")
    store.runs.ingest(wait=True)
    return store


def test_each_turn_has_the_files_that_its_calls_left(folder: Path, model: Provider) -> None:
    model.replies = replies(
        [writes("call_1", "a.txt", "new\n")],
        [writes("call_2", "b.txt", "b\n"), writes("call_3", "c.txt", "c\n")],
        [writes("call_4", "a.txt", "newer\n")],
    )
    truth: list[dict[str, str]] = []

    def note(_turn: int) -> None:
        truth.append({p.name: p.read_text() for p in folder.glob("*.txt")})

    with ProxyRecording(folder, {}, upstreams=[model.address], patience=60) as recording:
        work(recording.relay.address("openai"), folder, between=note)
    assert recording.relay.lost == 0
    (done,) = recording.recorded
    assert (done.calls, done.steps) == (4, 8)
    store = _stored(folder)
    run = store.runs.get(done.run_id)
    assert (run.status, run.task) == ("completed", "Write files.")
    assert run.workspace == str(folder)
    assert run.base_quality == StateQuality.EXACT
    steps = {step.external_id: step for step in store.runs.steps(run.id)}
    # Of two calls at a time nobody knows what was between them.
    after = {"call_1": 0, "call_2": 1, "call_3": 1, "call_4": 2}
    for name, place in after.items():
        step = steps[name]
        assert step.state_quality == StateQuality.EXACT
        assert step.state_id is not None
        entries = store.snapshots.list(step.state_id)
        found = {e.path: store.snapshots.read(step.state_id, e.path) for e in entries}
        assert {path: (data or b"").decode() for path, data in found.items()} == truth[place]
    names = {step.id: step.external_id for step in steps.values()}
    assert [
        (names[o.step_id], o.operation_type, o.file_path, o.origin)
        for o in store.runs.operations(run.id)
    ] == [
        ("call_1", "edit", "a.txt", Origin.OBSERVED),
        ("call_2", "create", "b.txt", Origin.OBSERVED),
        ("call_3", "create", "c.txt", Origin.OBSERVED),
        ("call_4", "edit", "a.txt", Origin.OBSERVED),
    ]
    answers = [i.external_id for i in store.runs.interactions(run.id)]
    assert answers == [f"chatcmpl-{number}" for number in range(1, 5)]
    assert steps["call_3"].parent_id == steps["chatcmpl-2"].id


def test_what_nobody_called_for_is_nobodys(folder: Path, model: Provider) -> None:
    model.replies = replies([writes("call_1", "b.txt", "b\n")])
    with ProxyRecording(folder, {}, upstreams=[model.address], patience=60) as recording:
        work(recording.relay.address("openai"), folder)
        (folder / "late.txt").write_text("by hand\n")
    store = _stored(folder)
    steps = store.runs.steps(recording.recorded[0].run_id)
    (outside,) = (step for step in steps if step.step_type == StepType.EXTERNAL)
    found = [
        (operation.step_id, operation.file_path)
        for operation in store.runs.operations(recording.recorded[0].run_id)
    ]
    (call,) = (step for step in steps if step.external_id == "call_1")
    assert found == [(call.id, "b.txt"), (outside.id, "late.txt")]


def test_a_state_that_comes_too_late_is_missed(folder: Path, model: Provider) -> None:
    for number in range(2000):  # looking at them takes far longer than answering
        (folder / f"{number}.txt").write_text("x\n" * number)
    model.replies = replies([writes("call_1", "b.txt", "b\n")])
    with ProxyRecording(folder, {}, upstreams=[model.address], patience=0.0) as recording:
        work(recording.relay.address("openai"), folder, turns=1)
    store = _stored(folder)
    run = store.runs.get(recording.recorded[0].run_id)
    assert run.base_quality == StateQuality.MISSING
    answer, call = store.runs.steps(run.id)
    assert answer.state_before_id is None
    assert answer.state_reason is not None
    assert answer.state_reason.startswith("missed: ")
    # At the end there is time again.
    assert call.state_quality == StateQuality.EXACT


def test_sessions_at_the_same_time_are_runs_of_their_own(folder: Path, model: Provider) -> None:
    model.replies = [Reply(chat_body("Done."))]
    told = []
    with (
        ProxyRecording(
            folder, {}, upstreams=[model.address], on_run=lambda *run: told.append(run)
        ) as recording,
        httpx2.Client(trust_env=False, timeout=20) as client,
    ):
        address = f"{recording.relay.address('openai')}/chat/completions"
        for name in ("s-1", "s-2", "s-1"):
            headers = {"user-agent": "opencode/1.2.3", "x-session-id": name}
            tools = [{"type": "function", "function": {"name": "bash"}}]
            body = {"model": "m", "tools": tools, "messages": [{"role": "user", "content": name}]}
            client.post(address, json=body, headers=headers)
    assert [agent for _, agent in told] == ["opencode", "opencode"]
    store = _stored(folder)
    runs = [store.runs.get(run_id) for run_id, _ in told]
    assert [(run.source, run.source_id, run.task) for run in runs] == [
        ("opencode", "s-1", "s-1"),
        ("opencode", "s-2", "s-2"),
    ]


def test_no_key_comes_to_the_disk(folder: Path, model: Provider) -> None:
    model.replies = replies([writes("call_1", "b.txt", "b\n")])
    with ProxyRecording(folder, {}, upstreams=[model.address]) as recording:
        work(recording.relay.address("openai"), folder)
    assert any(KEY in value for _, value in model.asked[0].headers)
    home = folder / ".git" / "repotrace"
    kept = [path.read_bytes() for path in home.rglob("*") if path.is_file()]
    assert kept
    assert not [data for data in kept if KEY.encode() in data]
    store = _stored(folder)
    # Texts lie packed in the database.
    trace = store.runs.trace(recording.recorded[0].run_id).model_dump_json()
    assert "wrote [REDACTED" in trace
    assert KEY not in trace
    assert {path.stat().st_mode & 0o77 for path in [home, *home.iterdir()]} == {0}


def test_a_home_that_cannot_be_written_to_stops_nobody(
    folder: Path, model: Provider, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "journal").write_text("no folder")
    (home / "snapshots.git").write_text("no folder either")
    model.replies = replies([writes("call_1", "b.txt", "b\n")])
    with ProxyRecording(folder, {}, upstreams=[model.address], home=home) as recording:
        work(recording.relay.address("openai"), folder)
    assert (folder / "b.txt").read_text() == "b\n"
    assert "repotrace" in capfd.readouterr().err.lower()


# --- Within a run that somebody else records ------------------------------------------------


def test_traffic_is_part_of_the_run_that_it_belongs_to(
    folder: Path, model: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    model.replies = replies([writes("call_1", "b.txt", "b\n")])
    home = folder / ".git" / "repotrace"
    run_id, looks = new_run_id(), []
    with Journal(home / "journal") as journal:
        journal.write(Kind.RUN_STARTED, run_id, {"agent": "mine", "task": "As I said."})
        wire = WireRecording(
            run_id=run_id,
            journal=journal,
            environ={},
            agent="codex",
            upstream=model.address,
            look=lambda: looks.append((folder / "b.txt").exists()),
        )
        with wire:
            env, argv = wire.for_child({"HOME": "/h"}, ["codex", "exec"])
            work(env["OPENAI_BASE_URL"], folder)
        assert argv == ["codex", "-c", f'openai_base_url="{env["OPENAI_BASE_URL"]}"', "exec"]
        assert "OPENAI_BASE_URL" in wire.added
        assert not [word for word in wire.added if env["OPENAI_BASE_URL"] in word]
        assert wire.problem is None
    assert looks == [False, True]
    store = _stored(folder)
    (run,) = (store.runs.get(entry.id) for entry in store.runs.list())
    assert (run.id, run.agent, run.task) == (run_id, "mine", "As I said.")
    assert run.status != "completed"  # whoever began it ends it
    steps = store.runs.steps(run_id)
    assert [step.external_id for step in steps] == ["chatcmpl-1", "call_1", "chatcmpl-2"]
    (claimed,) = store.runs.operations(run_id)
    assert (claimed.file_path, claimed.origin) == ("b.txt", Origin.CLAIMED)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", wire.relay.port), 5)


# --- The command ----------------------------------------------------------------------------


class Proxy:
    """`repotrace proxy` in a process."""

    def __init__(self, folder: Path, shell: Shell, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "repotrace", "proxy", *options],
            cwd=folder,
            env=clean_environment(shell.home),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.variables: dict[str, str] = {}
        self.lines: list[str] = []
        for line in self.process.stdout:
            self.lines.append(line)
            if line.startswith("export "):
                name, _, value = line.removeprefix("export ").strip().partition("=")
                self.variables[name] = value
            if line.startswith("#"):
                break

    def end(self, how: signal.Signals) -> tuple[int, str]:
        """End it; gives its code and what it said."""
        self.process.send_signal(how)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_what_leads_agents_there_and_what_was_recorded(
    folder: Path, model: Provider, tmp_path: Path, how: signal.Signals
) -> None:
    model.replies = replies([writes("call_1", "b.txt", "b\n")])
    proxy = Proxy(folder, Shell(tmp_path / "s"), "--upstream", model.address, "--task", "Mine.")
    base = proxy.variables["OPENAI_BASE_URL"]
    assert f"""openai_base_url="{base}\"""" in proxy.lines[-1]
    assert set(proxy.variables) == {
        *("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "OPENAI_API_BASE"),
        *("GOOGLE_GEMINI_BASE_URL", "LLM_BASE_URL"),
    }
    work(base, folder)
    code, said = proxy.end(how)
    assert code == 0
    store = _stored(folder)
    (run,) = (store.runs.get(entry.id) for entry in store.runs.list())
    assert (run.task, run.status) == ("Mine.", "completed")
    assert f"recorded {run.id} · 3 steps · 2 model calls" in said
    port = int(base.split(":")[2].split("/")[0])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)


def test_what_was_recorded_is_there_when_the_recorder_is_killed(
    folder: Path, model: Provider, tmp_path: Path
) -> None:
    model.replies = replies([writes("call_1", "b.txt", "b\n")], [writes("call_2", "c.txt", "c\n")])
    proxy = Proxy(folder, Shell(tmp_path / "s"), "--upstream", model.address)
    work(proxy.variables["OPENAI_BASE_URL"], folder, turns=2)
    proxy.end(signal.SIGKILL)
    store = _stored(folder)
    (run,) = (store.runs.get(entry.id) for entry in store.runs.list())
    assert run.status == "interrupted"
    # The second answer could be acted upon only when what its request had found was recorded.
    steps = {step.external_id: step for step in store.runs.steps(run.id)}
    assert {"chatcmpl-1", "call_1"} <= steps.keys()
    assert steps["call_1"].status == "completed"
    state_id = steps["call_1"].state_id
    if state_id is None:  # a machine so busy that two seconds were too few
        assert (steps["call_1"].state_reason or "").startswith("missed: ")
    else:
        assert store.snapshots.read(state_id, "b.txt") == b"b\n"
    assert plain_git(folder, "status", "--porcelain") == "?? b.txt\n?? c.txt"
    assert plain_git(folder, "for-each-ref") == plain_git(folder, "for-each-ref", "refs/heads")
