"""Commands, tests and model calls of a traced agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from tracing import Project, make_project

from repotrace import record_llm, record_tests, run_command, run_tests, span, trace_agent
from repotrace.errors import RepoTraceError
from repotrace.sdk.responses import facts_of


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    return make_project(tmp_path, monkeypatch)


PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def test_a_command_is_kept_with_all_that_it_printed(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        code = (
            "import sys; print('out'); print('err', file=sys.stderr); open('new', 'w'); sys.exit(3)"
        )
        done = run_command([sys.executable, "-c", code], reason="to see")
        assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)
        assert not done.passed
        assert done.errors == "out\nerr\n"
        assert run_command("echo $((1 + 2)) && cat", input="fed", name="sum").stdout == "3\nfed"

    agent()
    failed, summed = project.steps()
    assert (failed.step_type, failed.status, failed.error) == ("command", "failed", "exit code 3")
    assert (failed.reason, failed.output_result) == ("to see", "out\nerr\n")
    assert project.changes(failed) == [("create", "new")]
    (command,) = project.store.runs.commands(failed.run_id, failed.id)
    assert (command.exit_code, command.is_test) == (3, False)
    assert command.command.stdout.data == b"out\n"
    assert command.command.argv[0] == sys.executable
    assert "REPOTRACE_RUN" not in command.command.env
    assert "repotrace" not in command.command.env.get("PYTHONPATH", "")
    assert (summed.description, summed.status) == ("sum", "completed")


def test_a_command_is_told_as_a_shell_reads_it(project: Project) -> None:
    argv = [sys.executable, "-c", "print('a  b', 1)", "", "it's", "$HOME", "two\nlines"]

    @trace_agent
    def agent() -> None:
        run_command(argv)

    agent()
    (step,) = project.steps()
    (command,) = project.store.runs.commands(step.run_id, step.id)
    for line in (command.command_line, step.description, step.input_context):
        assert line is not None
        read = ["bash", "-c", f"printf '%s\\0' {line}"]
        assert subprocess.check_output(read).decode().split("\0")[:-1] == argv


def test_a_command_works_outside_of_an_agent(project: Project) -> None:
    assert run_command(["echo", "x"]).stdout == "x\n"
    assert run_command(["no-such-program"]).returncode == 127
    assert run_command("sleep 9", timeout=0.2).returncode == 124
    with pytest.raises(RepoTraceError):
        run_command(["true"], cwd="missing")
    assert not (project.folder / ".git" / "repotrace" / "journal").exists()


def test_tests_are_tied_to_the_files_that_they_ran_on(project: Project) -> None:
    project.write("test_a.py", "import a\ndef test_a(): assert a.a == 2\ndef test_b(): pass\n")

    @trace_agent
    def agent() -> None:
        assert not run_tests(PYTEST).passed
        with span("fix", type="edit"):
            project.write("a.py", "a = 2\n")
        assert run_tests(PYTEST).passed

    agent()
    red, fix, green = project.steps()
    assert (red.step_type, red.status, fix.status, green.status) == (
        *("test", "failed", "completed", "completed"),
    )
    outcomes = project.store.runs.tests(red.run_id)
    assert [(o.node_id, o.outcome, o.origin, o.step_id == red.id) for o in outcomes] == [
        ("test_a.py::test_a", "failed", "plugin", True),
        ("test_a.py::test_b", "passed", "plugin", True),
        ("test_a.py::test_a", "passed", "plugin", False),
        ("test_a.py::test_b", "passed", "plugin", False),
    ]
    read = project.store.snapshots.read
    seen = [read(outcome.state_id or "", "a.py") for outcome in outcomes]
    assert seen == [b"a = 1\n", b"a = 1\n", b"a = 2\n", b"a = 2\n"]
    assert "assert 1 == 2" in (outcomes[0].details or "")
    commands = project.store.runs.commands(red.run_id)
    assert {outcome.command_id for outcome in outcomes} == {item.id for item in commands}
    assert project.run.outcome == "passed"


def test_tests_of_another_runner_are_read_from_its_output(project: Project) -> None:
    project.write(
        "test_u.py",
        "import unittest\nclass T(unittest.TestCase):\n"
        "    def test_ok(self): pass\n    def test_no(self): self.fail('never')\n",
    )

    @trace_agent
    def agent() -> None:
        run_tests([sys.executable, "-m", "unittest", "-v", "test_u"])
        run_command([sys.executable, "-m", "unittest", "-v", "test_u"])

    agent()
    run_id = project.run.id
    for step in project.steps():
        found = project.store.runs.tests(run_id, step.id)
        assert sorted((item.outcome, item.origin) for item in found) == [
            ("failed", "parsed"),
            ("passed", "parsed"),
        ]
        assert [item.is_test for item in project.store.runs.commands(run_id, step.id)] == [True]
    assert project.run.outcome == "failed"


def test_outcomes_from_elsewhere_are_told(project: Project) -> None:
    project.write(
        "report.xml",
        '<testsuites><testsuite name="s"><testcase classname="a.b" name="ok" time="0.1"/>'
        '<testcase classname="a.b" name="no"><failure message="m">text</failure></testcase>'
        "</testsuite></testsuites>",
    )

    @trace_agent
    def agent() -> None:
        assert len(record_tests(junit="report.xml") or ()) == 2
        with span("remote", type="test"):
            record_tests([{"node_id": "x::y", "outcome": "skipped", "message": "later"}])
        with pytest.raises(RepoTraceError):
            record_tests(junit="missing.xml")

    agent()
    found = project.store.runs.tests(project.run.id)
    assert [(item.outcome, item.origin) for item in found] == [
        ("passed", "junit"),
        ("failed", "junit"),
        ("skipped", "given"),
    ]
    assert [step.description for step in project.steps()] == ["tests", "remote"]


def test_plain_subprocesses_tell_their_tests_as_well(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # the plug-in keeps quiet within another test
    project.write("test_a.py", "def test_a(): assert True\n")

    @trace_agent
    def agent() -> None:
        with span("tests", type="tool"):
            os.spawnv(os.P_WAIT, sys.executable, PYTEST)

    agent()
    (step,) = project.steps()
    (outcome,) = project.store.runs.tests(step.run_id)
    assert (outcome.node_id, outcome.outcome, outcome.step_id) == (
        *("test_a.py::test_a", "passed", step.id),
    )


def test_secrets_of_commands_are_masked_in_the_record_alone(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "correct-horse-battery-9"
    monkeypatch.setenv("DEPLOY_PASSWORD", secret)

    @trace_agent
    def agent() -> str:
        return run_command("echo $DEPLOY_PASSWORD").stdout.strip()

    assert agent() == secret
    (step,) = project.steps()
    assert step.output_result is not None
    assert secret not in step.output_result
    (command,) = project.store.runs.commands(step.run_id)
    assert secret.encode() not in command.command.stdout.data


def test_an_interrupt_reaches_the_agent_and_ends_the_step(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with span("waits", type="command"):
            time.sleep(30)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            agent()
    finally:
        signal.signal(signal.SIGINT, before)
    assert project.run.status == "interrupted"
    assert project.named("waits").status == "interrupted"


# --- Model calls ----------------------------------------------------------------------------

# As the documentation of the providers prints them, shortened.
CHAT = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "gpt-5.4-mini",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "read", "arguments": '{"path": "a.py"}'},
                    }
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    },
}
RESPONSES = {
    "id": "resp_1",
    "object": "response",
    "model": "gpt-5.4",
    "status": "completed",
    "output": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hi"}],
        },
        {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"},
    ],
    "usage": {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 10},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 12},
    },
}
ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-5-5",
    "stop_reason": "tool_use",
    "content": [
        {"type": "thinking", "thinking": "A leap year."},
        {"type": "text", "text": "I'll add 365 days instead."},
        {"type": "tool_use", "id": "t1", "name": "edit", "input": {"path": "a.py"}},
    ],
    "usage": {
        "input_tokens": 10,
        "cache_read_input_tokens": 200,
        "cache_creation_input_tokens": 30,
        "output_tokens": 40,
    },
}
GEMINI = {
    "modelVersion": "gemini-3-pro",
    "responseId": "g1",
    "candidates": [
        {
            "finishReason": "STOP",
            "content": {"parts": [{"text": "Sure."}, {"functionCall": {"name": "ls", "args": {}}}]},
        }
    ],
    "usageMetadata": {
        "promptTokenCount": 8,
        "candidatesTokenCount": 3,
        "thoughtsTokenCount": 2,
        "cachedContentTokenCount": 4,
    },
}


class FinishReason(Enum):
    """As google-genai has them."""

    STOP = "STOP"


GEMINI_SDK = {
    "model_version": "gemini-3-pro",
    "response_id": "g1",
    "candidates": [
        {
            "finish_reason": FinishReason.STOP,
            "content": {
                "parts": [
                    {"text": "Sure.", "thought": None, "function_call": None},
                    {"text": None, "function_call": {"id": "g2", "name": "ls", "args": None}},
                ]
            },
        }
    ],
    "usage_metadata": {
        "prompt_token_count": 8,
        "candidates_token_count": 3,
        "thoughts_token_count": 2,
        "cached_content_token_count": 4,
    },
}

# input, output, cache read, cache write, reasoning; worked by hand from the above
COUNTS = [
    (CHAT, "openai", (100, 20, 60, None, 5), "Looking.", "tool_calls", "call_1"),
    (RESPONSES, "openai", (50, 30, 10, None, 12), "Hi", "completed", "c1"),
    (
        ANTHROPIC,
        "anthropic",
        (240, 40, 200, 30, None),
        "I'll add 365 days instead.",
        "tool_use",
        "t1",
    ),
    (GEMINI, "google", (8, 5, 4, None, 2), "Sure.", "STOP", ""),
    (GEMINI_SDK, "google", (8, 5, 4, None, 2), "Sure.", "STOP", "g2"),
]


class Dumps:
    """An object of a provider's package: its fields come by `model_dump`."""

    def __init__(self, plain: dict[str, Any]) -> None:
        self.plain = plain

    def model_dump(self) -> dict[str, Any]:
        return self.plain


@pytest.mark.parametrize(("plain", "provider", "counts", "words", "stop", "call"), COUNTS)
def test_responses_of_providers_are_read(
    project: Project,
    plain: dict[str, Any],
    provider: str,
    counts: tuple[int | None, ...],
    words: str,
    stop: str,
    call: str | None,
) -> None:
    @trace_agent
    def agent() -> None:
        record_llm(Dumps(plain), messages=[{"role": "user", "content": "go"}], purpose="planning")
        span("asks", lambda: plain, type="llm", input="go")

    agent()
    run = project.run
    first, second = project.store.runs.interactions(run.id)[:1] * 2
    (only,) = project.store.runs.interactions(run.id)  # both tell of one response
    assert first == second == only
    assert only.provider == provider
    assert (
        *(only.input_tokens, only.output_tokens, only.cache_read_tokens),
        *(only.cache_write_tokens, only.reasoning_tokens),
    ) == counts
    assert (only.response, only.stop_reason) == (words, stop)
    assert only.tokens_used == (counts[0] or 0) + (counts[1] or 0)
    assert only.response_message is not None
    calls = [part for part in only.response_message["content"] if part["type"] == "tool_call"]
    assert [item["id"] for item in calls] == [call]
    assert project.steps()[0].step_type == "llm"


def test_a_span_of_a_model_is_a_model_call(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        with span("asks", type="llm", input="why?") as s:
            s.output = "because"
            s.set(model="some-model", tokens=30, cost_usd="0.25", tries=2)
        with span("counts", input="x") as s:
            s.set(model="m", input_tokens=3, output_tokens=4)
        with span("both", type="llm"):
            record_llm("told", model="n", tokens=5)

    agent()
    run = project.run
    asks, counts, both = project.store.runs.interactions(run.id)
    assert (asks.prompt, asks.response, asks.model) == ("why?", "because", "some-model")
    assert (asks.tokens_used, asks.cost_usd, asks.cost_source) == (30, Decimal("0.25"), "given")
    assert (counts.tokens_used, counts.input_tokens) == (7, 3)
    assert (both.response, both.tokens_used) == ("told", 5)
    assert project.steps()[0].metadata["attributes"] == {"tries": 2}
    assert run.models == ("some-model", "m", "n")


def test_a_growing_conversation_is_written_once(project: Project) -> None:
    turns = [{"role": "user", "content": f"turn {n} " + "word " * 400} for n in range(30)]

    @trace_agent(states=False)
    def agent() -> None:
        for number in range(1, 31):
            record_llm(f"answer {number}", messages=turns[:number], model="m")
        record_llm("other", messages=[{"role": "user", "content": "a side call"}], model="m")
        record_llm("more", messages=[*turns, {"role": "user", "content": "last"}], model="m")

    agent()
    journal = project.folder / ".git" / "repotrace" / "journal"
    size = sum(path.stat().st_size for path in journal.glob("*.jsonl"))
    assert size < 3 * sum(len(turn["content"]) for turn in turns)
    calls = project.store.runs.interactions(project.run.id)
    assert [len(call.messages) for call in calls] == [*range(1, 31), 1, 31]
    assert [dict(message) for message in calls[29].messages] == turns


def test_answers_are_read_as_on_the_wire() -> None:
    """What only one of two readers knew when there were two."""
    message: dict[str, Any] = {
        "content": None,
        "refusal": "I won't.",
        "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "sh", "input": "ls"}}],
    }
    chat = facts_of({"choices": [{"message": message, "finish_reason": "stop"}]})
    assert chat["response"] == "I won't."
    call = {"type": "tool_call", "id": "c", "name": "sh", "arguments": "ls"}
    assert chat["response_message"]["content"][1:] == [call]

    cut = facts_of(
        {
            "status": "incomplete",
            "incomplete_details": {"reason": "max_output_tokens"},
            "output": [{"type": "web_search_call", "id": "w", "action": {"query": "leap year"}}],
            "usage": {
                "input_tokens": 9,
                "output_tokens": 2,
                "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
            },
        }
    )
    assert (cut["stop_reason"], cut["cache_write_tokens"]) == ("max_output_tokens", 5)
    (search,) = cut["response_message"]["content"]
    assert (search["name"], search["arguments"]) == ("web_search", {"query": "leap year"})

    words = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    assert facts_of({"type": "message", "content": words})["response"] == "One.\n\nTwo."


def test_an_answer_that_says_it_failed_is_a_failed_step(project: Project) -> None:
    @trace_agent
    def agent() -> None:
        error = {"code": "server_error", "message": "The server had an error."}
        record_llm({"id": "resp_9", "status": "failed", "error": error, "output": []})

    agent()
    (call,) = project.store.runs.interactions(project.run.id)
    (step,) = project.steps()
    assert call.error == step.error == "The server had an error."
    assert step.status == "failed"


ODD: list[Any] = [
    *({}, {"choices": []}, {"choices": None}, {"output": [3]}, {"candidates": [{}]}),
    {"type": "message", "content": [None]},
    {"choices": [{"message": {"tool_calls": [7]}}]},
    *(5, "text", [], object()),
]


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_response_says_nothing(odd: Any) -> None:
    found = facts_of(odd)
    assert isinstance(found, dict)
    assert not found.get("response")
