"""What is made of model traffic: conversations, turns, attempts, side calls, sub-agents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from importing import FAILING, RIGHT, WIRE, WRONG, calc_repository, imported_runs
from proxying import SSE, anthropic_pieces, chat_body, chat_pieces, events

from repotrace.importers.wire_streams import Payloads, payloads
from repotrace.importers.wire_traffic import Got, Sent, Traffic
from repotrace.records.events import Event, Kind
from repotrace.records.run import ExecutionStep, StepType
from repotrace.runs.transcripts.importing import Options, import_session
from repotrace.storage import Store

type Record = dict[str, Any]

CHAT, GEMINI, MESSAGES, RESPONSES = WIRE
TASK = "add() in calc.py forgets its second argument. Fix it."
DONE = ["failed", "passed"]


# --- Logs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "agent", "tokens", "tools"),
    [
        (
            CHAT,
            "unknown",
            [(100, 10), (200, 20), (300, 30), (400, 40), (500, 50), (600, 60)],
            ["bash", "write_file", "bash", "write_file", "bash"],
        ),
        (
            GEMINI,
            "gemini-cli",
            # Thoughts are among the output.
            [(900, 99), (100, 11), (200, 22), (300, 33), (400, 44), (500, 55), (600, 66)],
            ["read_file"] * 2 + ["replace", "run_shell_command"] * 2,
        ),
        (
            MESSAGES,
            "claude-code",
            # What was read from the cache and written to it is among the input.
            [
                *[(7, 3), (104, 10), (124, 20), (55, 30), (64, 40)],
                *[(154, 50), (194, 60), (204, 70), (214, 80)],
            ],
            ["Read", "Read", "Task", "Bash", "Edit", "Bash", "Edit", "Bash"],
        ),
        (
            RESPONSES,
            "codex",
            [(200, 20), (300, 30), (400, 40), (500, 50), (600, 60)],
            ["exec_command", "apply_patch", "exec_command", "apply_patch", "exec_command"],
        ),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_a_log_in_the_form_of_each_provider(
    store: Store,
    tmp_path: Path,
    path: Path,
    agent: str,
    tokens: list[tuple[int, int]],
    tools: list[str],
) -> None:
    repository = calc_repository(tmp_path / "calc")
    ((summary, run, steps),) = imported_runs(store, path, repository)
    assert (run.agent, run.task, run.status) == (agent, TASK, "completed")
    interactions = store.runs.interactions(run.id)
    assert [(i.input_tokens, i.output_tokens) for i in interactions] == tokens
    assert [step.metadata["tool"] for step in steps if "tool" in step.metadata] == tools
    answers = {step.id for step in steps if step.step_type == StepType.LLM}
    assert [i.step_id for i in interactions] == [s.id for s in steps if s.id in answers]
    assert {s.parent_id for s in steps if "tool" in s.metadata} <= answers
    # The wrong change, the test that fails, the right one, the test that passes.
    assert [(t.node_id, t.outcome) for t in store.runs.tests(run.id)] == [
        (FAILING, outcome) for outcome in DONE
    ]
    assert _contents(store, steps) == [WRONG, RIGHT]
    assert (summary.unknown, summary.retries) == (0, 1)


def _contents(store: Store, steps: Iterable[ExecutionStep]) -> list[str]:
    """The contents of the file, one after another."""
    found: list[str] = []
    for step in steps:
        data = store.snapshots.read(step.state_id, "calc.py") if step.state_id else None
        if data is not None and [data.decode()] != found[-1:]:
            found.append(data.decode())
    return found


def test_a_failed_request_and_its_repetition_are_one_call(store: Store) -> None:
    for path, place in ((CHAT, 1), (MESSAGES, 0), (RESPONSES, 2)):
        ((_, run, steps),) = imported_runs(store, path)
        attempts = [i.attempts for i in store.runs.interactions(run.id) if i.purpose != "side"]
        assert attempts == [1 + (number == place) for number in range(len(attempts))]
        (log,) = store.runs.logs(run.id)
        assert log.level == "warning"
        assert log.message.startswith("Attempt 1 failed: ")
        assert log.step_id in {step.id for step in steps if step.step_type == StepType.LLM}


def test_what_is_not_the_work_is_a_side_call(store: Store) -> None:
    for path in (GEMINI, MESSAGES):
        ((_, run, _),) = imported_runs(store, path)
        first, *others = store.runs.interactions(run.id)
        assert first.purpose == "side"
        assert {call.purpose for call in others} == {"execution"}
    assert run.attributes["wire"] == {"other_requests": 1}


def test_the_steps_of_a_sub_agent_are_below_the_call_that_started_it(store: Store) -> None:
    ((_, _, steps),) = imported_runs(store, MESSAGES)
    (task,) = (step for step in steps if step.metadata.get("tool") == "Task")
    below = [step for step in steps if step.parent_id == task.id]
    assert [step.external_id for step in below] == ["msg_3", "msg_4"]
    (grep,) = (step for step in steps if step.parent_id == below[0].id)
    assert grep.metadata["arguments"] == {"command": "grep -rn 'add(' ."}
    threads = {step.metadata["thread"] for step in steps if step.step_type == StepType.LLM}
    assert len(threads) == 3  # with the title
    assert task.output_result == "Only the test calls it."


def test_a_conversation_is_kept_once(store: Store) -> None:
    """Marks for caches move, and results of parallel calls come in another order."""
    told = [e["data"] for e in _read(MESSAGES) if e["kind"] == Kind.LLM and "step_id" in e["data"]]
    work = [
        call for call in told if call["external_id"] in {f"msg_{n}" for n in (1, 2, 5, 6, 7, 8)}
    ]
    for before, call in pairwise(work):
        assert call["previous_id"] == before["id"]
    counts = [(call.get("kept", 0), len(call["messages"])) for call in work]
    assert counts == [(0, 2), (2, 3), (5, 2), (7, 4), (11, 2), (13, 2)]
    ((_, run, _),) = imported_runs(store, RESPONSES)
    last = store.runs.interactions(run.id)[-1]
    roles = [message["role"] for message in last.messages]
    # Also where the provider keeps the conversation, and requests hold the rest of it alone.
    assert roles == [
        *("system", "user", "user"),
        *("assistant", "tool"),
        *("assistant", "tool", "tool"),
        *("assistant", "tool"),
        *("assistant", "tool"),
    ]


def test_what_a_person_says_later_is_a_step(store: Store) -> None:
    ((_, _, steps),) = imported_runs(store, CHAT)
    notes = [step for step in steps if step.step_type == StepType.NOTE]
    assert [(step.description, step.input_context) for step in notes] == [
        ("User: Are you sure?", "Are you sure?")
    ]


def test_tests_that_failed_are_a_failure_where_no_exit_code_is_shown(store: Store) -> None:
    ((_, _, steps),) = imported_runs(store, CHAT)
    failed, passed = (step for step in steps if step.step_type == StepType.TEST)
    assert (failed.status, failed.error) == ("failed", "tests failed")
    assert (passed.status, passed.retry_of, passed.attempt) == ("completed", failed.id, 2)


def test_a_log_that_has_grown_extends_its_run(store: Store, tmp_path: Path) -> None:
    lines = MESSAGES.read_bytes().split(b"\n")
    path = tmp_path / "log"
    seen = set()
    for count in (3, 7, len(lines)):
        path.write_bytes(b"\n".join(lines[:count]))
        (summary,) = import_session(store, path, Options())
        seen.add(summary.run_id)
    whole = Store(tmp_path / "whole")
    ((_, run, steps),) = imported_runs(whole, MESSAGES)
    assert seen == {run.id}
    assert [s.external_id for s in store.runs.steps(run.id)] == [s.external_id for s in steps]
    assert store.runs.get(run.id).totals == run.totals


def _read(path: Path) -> list[Event]:
    from repotrace.importers import importer

    return list(importer("wire").read(path))


# --- Conversations --------------------------------------------------------------------------


class Talking:
    """An agent that asks a model, as seen by whoever records it."""

    def __init__(self, **how: Any) -> None:
        self.traffic = Traffic(**how)
        self.events: list[Event] = []
        self.time = 10**18
        self._count = 0

    def send(self, body: Record, path: str = "/v1/chat/completions", **headers: str) -> str:
        """A request begins; gives its name."""
        self._count += 1
        self.time += 10**9
        name = str(self._count)
        heads = {key.replace("_", "-"): value for key, value in headers.items()}
        self.events += self.traffic.asked(Sent(name, self.time, "POST", path, heads, body))
        return name

    def receive(self, name: str, found: Payloads, status: int | None = 200, **how: Any) -> None:
        """Its response has ended."""
        self.time += 10**9
        how = {"complete": True, "duration": 1.0, **how}
        self.events += self.traffic.answered(Got(name, self.time, status, found, **how))

    def ask(self, body: Record, answer: bytes, **how: Any) -> None:
        """Both, one after the other."""
        self.receive(self.send(body, **how), payloads(answer))

    def end(self) -> list[Record]:
        """The data of all steps that began, in order."""
        self.events += self.traffic.ended()
        return self.data(Kind.STEP_STARTED)

    def data(self, kind: str) -> list[Record]:
        """The data of the events of a kind."""
        return [event["data"] for event in self.events if event["kind"] == kind]

    @property
    def runs(self) -> list[str]:
        """The runs, in order."""
        return list(dict.fromkeys(str(event["run"]) for event in self.events))


TOOLS: list[Record] = [{"type": "function", "function": {"name": "bash"}}]


def chat(*messages: Record, system: str = "Work.", tools: bool = True) -> Record:
    told = [{"role": "system", "content": system}, *messages]
    return {"model": "m", "messages": told, **({"tools": TOOLS} if tools else {})}


def user(text: str) -> Record:
    return {"role": "user", "content": text}


def called(name: str, command: str = "ls", text: str = "") -> list[Record]:
    """An answer with a call, and its result."""
    function = {"name": "bash", "arguments": json.dumps({"command": command})}
    call = {"id": name, "type": "function", "function": function}
    result = {"role": "tool", "tool_call_id": name, "content": "out"}
    return [{"role": "assistant", "content": text, "tool_calls": [call]}, result]


def body(name: str, call: str | None = None, text: str = "") -> bytes:
    calls = [(call, "bash", {"command": "ls"})] if call else []
    return chat_body(text, *calls, name=name)


def test_two_agents_at_once_are_two_runs() -> None:
    """Also where a server gives the same ids to the calls of both."""
    talking = Talking()
    for task in ("one", "two"):
        talking.ask(chat(user(task)), body(f"{task}-1", "call_0"))
    for task in ("one", "two", "one"):
        talking.ask(chat(user(task), *called("call_0")), body(f"{task}-2", text=f"{task} is done"))
        talking.traffic.moment = None
    talking.end()
    tasks = [data["task"] for data in talking.data(Kind.RUN_UPDATED) if "task" in data]
    assert tasks == ["one", "two"]
    assert len(talking.runs) == 2


def test_all_of_it_is_one_run_where_that_is_wanted() -> None:
    talking = Talking(single=True)
    talking.ask(chat(user("one")), body("1", text="done"))
    talking.ask(chat(user("two"), system="Another."), body("2", text="done"))
    steps = talking.end()
    assert len(talking.runs) == 1
    assert [step["metadata"]["thread"] for step in steps] == ["conversation 1", "conversation 2"]


def test_a_session_is_a_run_and_joins_its_transcript() -> None:
    talking = Talking(joins=True)
    for name in ("s-1", "s-2"):
        talking.ask(
            chat(user("do")), body(name), x_claude_code_session_id=name, user_agent="claude-cli/1.0"
        )
    talking.end()
    begun = talking.data(Kind.RUN_STARTED)
    assert [(run["source"], run["source_id"]) for run in begun] == [
        ("claude-code", "s-1"),
        ("claude-code", "s-2"),
    ]


def test_an_agent_without_tools_is_told_by_its_words() -> None:
    """Aider puts words of its own before and behind; its messages for commits are beside."""
    block = "calc.py\n```python\n<<<<<<< SEARCH\na = 1\n=======\na = 2\n>>>>>>> REPLACE\n```"
    talking = Talking(agent="aider")
    first = [user("Here is a map."), {"role": "assistant", "content": "Ok."}, user("Change a.")]
    talking.ask(chat(*first, tools=False), body("1", text=f"I change it.\n\n{block}"))
    commit = chat(user("diff"), system="Write a message.", tools=False)
    talking.ask(commit, body("2", text="Change a"))
    said = {"role": "assistant", "content": f"I change it.\n\n{block}\n"}
    more = [first[2], said, user("I committed it."), {"role": "assistant", "content": "Ok."}]
    talking.ask(chat(*more, user("And b?"), tools=False), body("3", text="No."))
    steps = talking.end()
    purposes = {data["external_id"]: data.get("purpose") for data in talking.data(Kind.LLM)}
    assert purposes == {"1": None, "2": "side", "3": None}
    threads = [step["metadata"].get("thread") for step in steps]
    assert threads == ["conversation 1", "conversation 2", None, "conversation 1"]
    (operation,) = talking.data(Kind.FILE_OPERATION)
    assert (operation["file_path"], operation["step_id"]) == ("calc.py", steps[0]["id"])
    assert steps[2]["description"] == "User: And b?"


def test_a_program_without_tools_that_asks_twice_has_two_conversations() -> None:
    talking = Talking(single=True)
    for text in ("Sum up a.", "Sum up b."):
        talking.ask(chat(user(text), tools=False), body(text, text="Short."))
    talking.end()
    assert [call.get("purpose") for call in talking.data(Kind.LLM)] == [None, None]


def test_a_summary_in_the_place_of_the_history_goes_on_with_the_work() -> None:
    talking = Talking()
    how = {"x_claude_code_session_id": "s"}
    talking.ask(chat(user("do")), body("1", "call_1"), **how)
    talking.ask(chat(user("do"), *called("call_1")), body("2", text="so far"), **how)
    talking.ask(chat(user("This was done so far: …")), body("3", "call_2"), **how)
    steps = talking.end()
    assert {s["metadata"]["thread"] for s in steps if "thread" in s["metadata"]} == {
        "conversation 1"
    }
    assert talking.data(Kind.LLM)[-1]["kept"] == 1  # the words of the system


def test_what_nobody_repeats_has_failed() -> None:
    talking = Talking()
    name = talking.send(chat(user("do")))
    refusal = payloads(b'{"error": {"message": "slow down"}}')
    talking.receive(name, refusal, 429)
    again = talking.send(chat(user("do")))
    cut = payloads(b"".join(chat_pieces("Half of it")[:3]), SSE)
    talking.receive(again, cut, complete=False, error="the provider closed the connection")
    (step,) = talking.end()
    (call,) = talking.data(Kind.LLM)
    assert call["attempts"] == 2
    assert call["error"] == "the provider closed the connection"
    assert call["response"] == "Half of it"
    (ended,) = talking.data(Kind.STEP_ENDED)
    assert (ended["id"], ended["error"]) == (step["id"], "the provider closed the connection")
    assert talking.data(Kind.RUN_ENDED)[0]["status"] == "failed"
    assert [log["message"] for log in talking.data(Kind.LOG)] == [
        "Attempt 1 failed: HTTP 429: slow down",
        "Attempt 2 failed: the provider closed the connection",
    ]


def test_who_goes_on_after_a_failure_has_not_repeated_it() -> None:
    talking = Talking()
    talking.ask(chat(user("do")), body("1", "call_1"))
    name = talking.send(chat(user("do"), *called("call_1")))
    talking.receive(name, payloads(b""), None, complete=False, error="the provider is out of reach")
    more = [*called("call_1"), user("Try it another way.")]
    talking.ask(chat(user("do"), *more), body("3", text="done"))
    talking.end()
    assert [call.get("error") for call in talking.data(Kind.LLM)] == [
        None,
        "the provider is out of reach",
        None,
    ]
    assert talking.data(Kind.RUN_ENDED)[0]["status"] == "completed"


def test_an_error_within_a_stream_is_an_attempt_that_failed() -> None:
    talking = Talking()
    asked = {"model": "m", "messages": [user("do")]}
    name = talking.send(asked, "/v1/messages")
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    pieces = [*anthropic_pieces("Said.")[:4], *events(overloaded)]
    talking.receive(name, payloads(b"".join(pieces), SSE))
    whole = payloads(b"".join(anthropic_pieces("Said.")), SSE)
    talking.receive(talking.send(asked, "/v1/messages"), whole)
    talking.end()
    (call,) = talking.data(Kind.LLM)
    assert (call["attempts"], call["response"]) == (2, "Said.")
    assert "error" not in call
    assert (call["input_tokens"], call["cache_read_tokens"]) == (10, 5)


def test_a_connection_that_is_closed_behind_the_last_event_was_whole() -> None:
    talking = Talking()
    name = talking.send(chat(user("do")))
    found = payloads(b"".join(chat_pieces("Said.")), SSE)
    talking.receive(name, found, complete=False, error="the agent closed the connection")
    talking.end()
    (call,) = talking.data(Kind.LLM)
    assert "error" not in call
    assert not talking.data(Kind.LOG)


@pytest.mark.parametrize("raw", [b"<html>", b'{"object": "list"}', b"", b"data: {]\n\n"])
def test_an_answer_that_is_none_is_unknown(raw: bytes) -> None:
    talking = Talking()
    name = talking.send({"model": "m", "input": "do"}, "/v1/responses")
    talking.receive(name, payloads(raw), raw=raw.decode())
    (step,) = talking.end()
    (ended,) = talking.data(Kind.STEP_ENDED)
    assert ended["id"] == step["id"]
    assert (ended["step_type"], ended["output_result"]) == ("unknown", raw.decode())
    (call,) = talking.data(Kind.LLM)
    assert call["error"] == "the response cannot be read"
    told = [data["attributes"] for data in talking.data(Kind.RUN_UPDATED) if "attributes" in data]
    assert told[-1]["import"]["unknown"] == {"response": 1}


def test_a_request_that_is_none_is_unknown() -> None:
    talking = Talking()
    name = talking.send("no JSON", "/v1/messages")  # type: ignore[arg-type]
    talking.receive(name, payloads(b"{}"), 400)
    (step,) = talking.end()
    assert step["step_type"] == "unknown"
    assert step["output_result"] == "POST /v1/messages\nno JSON"


def test_requests_to_no_model_are_counted_alone() -> None:
    talking = Talking()
    talking.ask({}, b"{}", path="/v1/messages/count_tokens")
    assert not talking.events  # nobody is at work yet
    talking.ask(chat(user("do")), body("1", text="done"))
    talking.ask({}, b"{}", path="/v1/messages/count_tokens")
    assert len(talking.end()) == 1


def test_the_files_that_a_request_finds_are_those_after_the_calls_before_it() -> None:
    talking = Talking()
    talking.ask(chat(user("do")), body("1", "call_1"))
    first = talking.traffic.moment
    assert first is not None
    assert first.changing == ()
    talking.ask(chat(user("do"), *called("call_1")), body("2", "call_2"))
    second = talking.traffic.moment
    answer, call, _, _ = talking.data(Kind.STEP_STARTED)
    assert first.begun == answer["id"]
    assert second is not None
    assert second.changing == (call["id"],)
    # A call whose result is not there yet may be at work still.
    talking.send(chat(user("do"), *called("call_1"), user("?")))
    third = talking.traffic.moment
    assert third is not None
    assert third.changing == ()


def test_a_step_below_another_run_of_the_agent_waits_for_its_result() -> None:
    talking = Talking()
    talking.ask(chat(user("do")), body("1", "call_1"))
    talking.end()
    ended = [data for data in talking.data(Kind.STEP_ENDED) if data.get("status")]
    assert [data["status"] for data in ended] == ["interrupted"]
    assert talking.data(Kind.RUN_ENDED)[0]["status"] == "completed"
