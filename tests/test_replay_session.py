"""Stepping through a trace: by program, and on a plain console."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import specified
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import clean_environment, plain_git

from repotrace.records.run import LogEntry
from repotrace.runs import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    LLMInteraction,
    ReplaySession,
)

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = "run-1"


def step(number: int, **fields: Any) -> ExecutionStep:
    known: dict[str, Any] = {
        "id": f"s{number}",
        "run_id": RUN,
        "step_number": number,
        "step_type": "tool_call",
        "description": f"Do thing {number}",
        "started_at": NOON + timedelta(seconds=number),
        "completed_at": NOON + timedelta(seconds=number, milliseconds=250),
        "status": "completed",
    }
    return ExecutionStep(**known | fields)


def change(name: str, step_id: str, path: str, before: str | None, after: str | None,
           **fields: Any) -> FileOperation:  # fmt: skip
    kind = "create" if before is None else "delete" if after is None else "edit"
    known: dict[str, Any] = {"operation_type": kind, "timestamp": NOON}
    return FileOperation(
        **{
            "id": name,
            "run_id": RUN,
            "step_id": step_id,
            "file_path": path,
            "content_before": before,
            "content_after": after,
            **known,
            **fields,
        }
    )


def call(name: str, step_id: str, **fields: Any) -> LLMInteraction:
    known: dict[str, Any] = {
        "model": "some-model",
        "tokens_used": 12,
        "timestamp": NOON,
        "purpose": "planning",
    }
    return LLMInteraction(id=name, run_id=RUN, step_id=step_id, **known | fields)


def trace_of(steps: list[ExecutionStep], **parts: Any) -> ExecutionTrace:
    return ExecutionTrace(
        run_id=RUN, task_id="t", started_at=NOON, status="COMPLETED", steps=steps, **parts
    )


@pytest.fixture
def session() -> ReplaySession:
    """Three steps, numbered 2, 3 and 7."""
    return ReplaySession(
        trace_of(
            [
                step(2, input_context="first line\nsecond line", reason="to begin"),
                step(3, output_result="x" * 400, status="failed", error="it broke", attempt=2),
                step(7, completed_at=None, status="started"),
            ],
            llm_interactions=[
                call("l1", "s2", prompt="What now?", response="This!"),
                call("l2", "s3", messages=({"role": "user", "content": "Fix it"},), response="No"),
                call("l3", "s3", cost_usd=Decimal("0.25"), error="overloaded"),
            ],
            file_operations=[
                change("o1", "s2", "a.py", None, "x = 1\n", lines_added=1, lines_removed=0),
                change("o2", "s2", "b.py", "old\n", None),
                change("o3", "s3", "a.py", "x = 1\n", "x = 2"),
            ],
            logs=[
                LogEntry(
                    id="e",
                    run_id=RUN,
                    step_id="s3",
                    level="warning",
                    message="slow",
                    timestamp=NOON,
                ),
                LogEntry(id="f", run_id=RUN, message="of the run", timestamp=NOON),
            ],
        )
    )


# --- Navigation -----------------------------------------------------------------------------


def test_it_begins_at_the_first_step(session: ReplaySession) -> None:
    assert session.current_step is session.list_steps()[0]
    assert (session.current_position, session.total_steps) == (1, 3)


def test_it_stays_at_either_end(session: ReplaySession) -> None:
    numbers = [found.step_number for _ in range(4) if (found := session.next())]
    assert numbers == [3, 7, 7, 7]
    assert session.current_position == 3
    numbers = [found.step_number for _ in range(4) if (found := session.previous())]
    assert numbers == [3, 2, 2, 2]
    assert session.current_position == 1


def test_it_jumps_to_numbers_not_to_positions(session: ReplaySession) -> None:
    found = session.jump(7)
    assert found is not None
    assert (found.step_number, session.current_position) == (7, 3)
    for number in (1, 4, 8, 0, -1):
        assert session.jump(number) is None
        assert session.current_step is found


def test_it_finds_what_belongs_to_a_step(session: ReplaySession) -> None:
    first, second, third = session.list_steps()
    assert [op.id for op in session.get_step_file_ops(first)] == ["o1", "o2"]
    assert [found.id for found in session.get_step_llm_calls(second)] == ["l2", "l3"]
    assert [entry.message for entry in session.get_step_logs(second)] == ["slow"]
    assert session.get_step_file_ops(third) == session.get_step_llm_calls(third) == []
    assert {name: len(found) for name, found in session.ops_by_step.items()} == {"s2": 2, "s3": 1}
    assert set(session.llm_by_step) == {"s2", "s3"}
    assert session.trace.run_id == RUN


def test_a_list_of_steps_is_the_callers_own(session: ReplaySession) -> None:
    session.list_steps().clear()
    assert session.total_steps == 3


def test_a_trace_without_steps() -> None:
    session = ReplaySession(trace_of([]))
    assert session.current_step is None
    assert (session.next(), session.previous(), session.jump(1)) == (None, None, None)
    assert (session.total_steps, session.list_steps()) == (0, [])
    assert typed(session, "n") == "the run has no steps\n"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    numbers=st.lists(st.integers(1, 6), unique=True).map(sorted),
    moves=st.lists(st.sampled_from(["next", "previous"]) | st.integers(0, 7), max_size=12),
)
def test_it_moves_like_the_specified_session(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], moves: list[str | int]
) -> None:
    theirs = specified.module(tmp_path_factory.mktemp("beside") / "unused.db")
    trace = trace_of([step(number) for number in numbers])
    ours, other = ReplaySession(trace), theirs.ReplaySession(specified.as_specified(theirs, trace))
    for move in moves:
        if isinstance(move, int):
            found, expected = ours.jump(move), other.jump(move)
        else:
            found, expected = getattr(ours, move)(), getattr(other, move)()
        assert found == expected
        assert ours.current_step == other.current_step
        if numbers:
            assert ours.current_position == other.current_position
    assert ours.total_steps == other.total_steps
    assert ours.list_steps() == other.list_steps()


# --- What is shown --------------------------------------------------------------------------


def shown(show: Any, *args: Any) -> list[str]:
    out = io.StringIO()
    show(*args, out)
    return out.getvalue().splitlines()


def test_context_is_shown_whole(session: ReplaySession) -> None:
    first, second, _ = session.list_steps()
    assert shown(session.show_step_context, first) == [
        *("input:", "  first line", "  second line", "reason:", "  to begin"),
    ]
    assert shown(session.show_step_context, second) == ["no context was recorded"]


def test_prompts_and_responses_are_shown(session: ReplaySession) -> None:
    first, second, third = session.list_steps()
    assert shown(session.show_llm_prompt, first) == ["prompt:", "  What now?"]
    assert shown(session.show_llm_response, first) == ["response:", "  This!"]
    assert shown(session.show_llm_prompt, second) == [
        "call 1 of 2: some-model, 12 tokens, planning",
        "user:",
        "  Fix it",
        "call 2 of 2: some-model, 12 tokens, planning, $0.25, failed: overloaded",
        "prompt: not recorded",
    ]
    assert "response: none" in shown(session.show_llm_response, second)
    assert shown(session.show_llm_prompt, third) == ["step 7 called no model"]


def test_messages_of_all_kinds_are_shown() -> None:
    parts = [
        {"type": "thinking", "text": "hm"},
        {"type": "text", "text": "I look"},
        {"type": "tool_call", "id": "t", "name": "read", "arguments": {"path": "a"}},
        {"type": "image", "media_type": "image/png"},
        "odd",
    ]
    result = {"type": "tool_result", "id": "t", "content": [{"type": "text", "text": "found"}]}
    messages: tuple[dict[str, Any], ...] = (
        {"role": "assistant", "content": parts},
        {"role": "tool", "content": [result]},
        {"content": None},
    )
    answer = {"role": "assistant", "content": [{"type": "text", "text": "all"}, parts[2]]}
    only = step(1)
    session = ReplaySession(
        trace_of(
            [only],
            llm_interactions=[
                call("l", "s1", messages=messages, response="all", response_message=answer)
            ],
        )
    )
    assert shown(session.show_llm_prompt, only) == [
        "assistant:",
        "  [thinking] hm",
        "  I look",
        '  [tool call] read {"path": "a"}',
        '  [image] {"media_type": "image/png"}',
        "  odd",
        "tool:",
        "  [tool result] found",
    ]
    assert shown(session.show_llm_response, only) == [
        "response:",
        "  all",
        '  [tool call] read {"path": "a"}',
    ]


def test_diffs_are_those_of_plain_git(session: ReplaySession, tmp_path: Path) -> None:
    first, second, third = session.list_steps()
    assert shown(session.show_file_diff, first, "a.py") == [
        *("--- /dev/null", "+++ b/a.py", "@@ -0,0 +1 @@", "+x = 1"),
    ]
    assert shown(session.show_file_diff, first, "b.py") == [
        *("--- a/b.py", "+++ /dev/null", "@@ -1 +0,0 @@", "-old"),
    ]
    assert shown(session.show_file_diff, third, "a.py") == ["step 7 did not change a.py"]

    plain_git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("x = 1\n")
    plain_git(tmp_path, "add", "a.py")
    (tmp_path / "a.py").write_text("x = 2")
    expected = plain_git(tmp_path, "diff").splitlines()[2:]
    assert shown(session.show_file_diff, second, "a.py") == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a\rb\nc\x0cd\u2028e\n", "a\rb\nC\x0cd\u2028e\n"),
        ("a\n" * 20, "a\n" * 9 + "b\n" + "a\n" * 10),
        ("one\ntwo", "one\ntwo\n"),
        ("crlf\r\nx\r\n", "crlf\r\ny\r\n"),
    ],
)
def test_lines_of_a_diff_end_where_git_ends_them(before: str, after: str, tmp_path: Path) -> None:
    only = step(1)
    session = ReplaySession(
        trace_of([only], file_operations=[change("o", "s1", "f", before, after)])
    )
    plain_git(tmp_path, "init", "-q")
    (tmp_path / "f").write_bytes(before.encode())
    plain_git(tmp_path, "-c", "core.autocrlf=false", "add", "f")
    (tmp_path / "f").write_bytes(after.encode())
    raw = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "diff"], cwd=tmp_path, capture_output=True, check=True
    ).stdout.decode()
    # git names the function after the second @@.
    expected = [re.sub("^(@@.*@@).*", r"\1", line) for line in raw.removesuffix("\n").split("\n")]
    out = io.StringIO()
    session.show_file_diff(only, "f", out)
    found = out.getvalue().removesuffix("\n").split("\n")
    visible: dict[str, str | int | None] = {"\r": "\u240d", "\x0c": "\u240c", "\u2028": "\\u2028"}
    assert found == [line.translate(str.maketrans(visible)) for line in expected[2:]]


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(before=st.text("ab\n", max_size=40), after=st.text("ab\n", max_size=40))
def test_git_applies_the_diff(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    folder = tmp_path_factory.mktemp("apply")
    only = step(1)
    session = ReplaySession(
        trace_of([only], file_operations=[change("o", "s1", "f", before, after)])
    )
    (folder / "f").write_text(before)
    out = io.StringIO()
    session.show_file_diff(only, "f", out)
    if before != after:
        (folder / "patch").write_text(out.getvalue())
        plain_git(folder, "apply", "patch")
    assert (folder / "f").read_text() == after


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (change("o", "s1", "f", "a\0", "bb\0"), "f: binary, 2 bytes before, 3 bytes after"),
        (change("o", "s1", "f", None, "é", is_binary=True), "f: binary, nothing before, 2 bytes"),
        (
            change("o", "s1", "f", None, None, operation_type="edit"),
            "f: the contents were not kept",
        ),
        (
            change("o", "s1", "f", None, "x\n", operation_type="edit"),
            "f: the contents were not kept",
        ),
        (change("o", "s1", "f", "x\n" * 6_000, "y\n" * 6_000), "f: too long to be compared here"),
        (change("o", "s1", "n\n\x1bl", "a\0", ""), "n\\n\u241bl: binary, 2 bytes before, 0 bytes"),
    ],
)
def test_what_cannot_be_shown_as_a_diff_is_said(operation: FileOperation, expected: str) -> None:
    only = step(1)
    session = ReplaySession(trace_of([only], file_operations=[operation]))
    (line,) = shown(session.show_file_diff, only, operation.file_path)
    assert line.startswith(expected)


# --- The console ----------------------------------------------------------------------------


def typed(session: ReplaySession, *lines: str, **how: Any) -> str:
    out = io.StringIO()
    session.interactive_mode(io.StringIO("".join(f"{line}\n" for line in lines)), out, **how)
    return out.getvalue()


def test_a_step_is_shown_with_all_that_belongs_to_it(session: ReplaySession) -> None:
    page = typed(session, "n", "q")
    first, second = page.split("[1/3] n p j l f c m h q> ")
    assert first.splitlines() == [
        "Step 2: tool_call, completed, 2026-03-01 12:00:02+00:00, 0.25 s",
        "  Do thing 2",
        "  reason: to begin",
        "  input: first line second line",
        "  create a.py  +1 -0",
        "    --- /dev/null",
        "    +++ b/a.py",
        "    @@ -0,0 +1 @@",
        "    +x = 1",
        "  delete b.py",
        "    --- a/b.py",
        "    +++ /dev/null",
        "    @@ -1 +0,0 @@",
        "    -old",
        "  model call: some-model, 12 tokens, planning",
    ]
    lines = second.splitlines()
    assert lines[0] == ("Step 3: tool_call, failed, 2026-03-01 12:00:03+00:00, 0.25 s, attempt 2")
    assert f"  output: {'x' * 159}…  [400 characters]" in lines
    assert "  error: it broke" in lines
    assert "  warning: slow" in lines
    assert lines[-1] == "[2/3] n p j l f c m h q> "


def test_commands_move_as_they_say(session: ReplaySession) -> None:
    def numbers(*lines: str) -> list[str]:
        session.jump(2)
        page = typed(session, *lines, show_files=False)
        return [
            line.rpartition("> ")[2] if "q> " in line else line
            for line in page.splitlines()
            if "Step " in line or "this is" in line or "there is" in line or "say a" in line
        ]

    def heads(*lines: str) -> list[str]:
        return [line.partition(":")[0] for line in numbers(*lines)]

    assert heads("n", "", "n", "q") == ["Step 2", "Step 3", "Step 7", "this is the last step"]
    assert heads("p", "next", "prev", "q") == [
        "Step 2",
        "this is the first step",
        "Step 3",
        "Step 2",
    ]
    assert heads("j 7", "jump 3", "J 2", "quit") == ["Step 2", "Step 7", "Step 3", "Step 2"]
    assert numbers("j 4")[1] == "there is no step 4; they go from 2 to 7"
    assert numbers("j")[1] == numbers("j x")[1] == numbers("j -1")[1] == "say a number: j 3"
    assert session.current_position == 1


def test_q_and_the_end_of_the_input_end_it(session: ReplaySession) -> None:
    assert typed(session, "q", "n").count("Step ") == 1
    assert typed(session).endswith("q> \n")


def test_steps_are_listed_with_a_mark(session: ReplaySession) -> None:
    page = typed(session, "n", "l", "q", show_files=False)
    listed = [line.rpartition("q> ")[2] for line in page.splitlines() if "Do thing" in line][-3:]
    assert [(line[0], line.split()[-1]) for line in listed] == [(" ", "2"), (">", "3"), (" ", "7")]


def test_files_are_shown_whole_or_one(session: ReplaySession) -> None:
    page = typed(session, "f", "q", show_files=False)
    assert "\n-old\n" in page
    assert "\n+x = 1\n" in page
    one = typed(session, "f b.py", "q", show_files=False)
    assert "-old" in one
    assert "+x = 1" not in one
    session.jump(7)
    assert "step 7 changed no files" in typed(session, "f", "q")
    assert "step 7 did not change a.py" in typed(session, "f a.py", "q")


def test_a_long_diff_is_cut_until_asked_for() -> None:
    content = "".join(f"line {number}\n" for number in range(100))
    session = ReplaySession(
        trace_of([step(1)], file_operations=[change("o", "s1", "f", None, content)])
    )
    page = typed(session, "f", "q")
    before, _, whole = page.partition("q> ")
    assert "    … 63 more; f shows all" in before.splitlines()
    assert "line 99" not in before
    assert "\n+line 99\n" in whole


def test_the_model_is_shown_when_asked_for(session: ReplaySession) -> None:
    assert "What now?" not in typed(session, "q")
    assert "prompt:\n  What now?\nresponse:\n  This!\n" in typed(session, "q", show_llm=True)
    assert "  What now?\n" in typed(session, "m", "q")
    session.jump(7)
    assert typed(session, "m", "q").count("called no model") == 1


def test_context_and_output_are_shown_whole(session: ReplaySession) -> None:
    assert "  second line\n" in typed(session, "c", "q")
    session.jump(3)
    assert f"output:\n  {'x' * 400}\nerror:\n  it broke\n" in typed(session, "c", "q")


def test_any_other_word_brings_up_the_help(session: ReplaySession) -> None:
    for word in ("h", "?", "help", "xyz", "n2"):
        page = typed(session, word, "q")
        assert "  j N       jump to step N\n" in page
        assert ("is none of these" in page) is (word in ("xyz", "n2"))
    assert "there is no step 9999" in typed(session, "j " + "9" * 5_000, "q")
    assert session.current_position == 1


def test_texts_do_not_act_on_the_terminal() -> None:
    evil = "\x1b[2Jgone\x07 \x9b1m \u202etrap"
    session = ReplaySession(
        trace_of(
            [step(1, description=evil, step_type=evil, status=evil, input_context=evil)],
            llm_interactions=[call("l", "s1", prompt=evil, response=evil, model=evil)],
            file_operations=[change("o", "s1", f"a{evil}", evil, evil + "x")],
            logs=[
                LogEntry(id="e", run_id=RUN, step_id="s1", level=evil, message=evil, timestamp=NOON)
            ],
        )
    )
    page = typed(session, "l", "f", "c", "m", f"f {evil}", "q", show_llm=True)
    assert not set(page) & set("\x1b\x07\x9b\u202e")


def test_a_stream_that_cannot_encode_gets_escapes(session: ReplaySession) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    session = ReplaySession(trace_of([step(1, description="caf\u00e9 \u4e2d \udcff")]))
    session.interactive_mode(io.StringIO("q\n"), out)
    out.seek(0)
    assert "  caf\\xe9 \\u4e2d \\xff" in out.read()


SCRIPT = """
from datetime import datetime, UTC
from repotrace.runs import ExecutionStep, ExecutionTrace, ReplaySession
steps = [ExecutionStep(id=str(n), run_id="r", step_number=n, started_at=datetime.now(UTC))
         for n in (1, 2)]
trace = ExecutionTrace(run_id="r", task_id="t", started_at=steps[0].started_at, status="x",
                       steps=steps)
ReplaySession(trace).interactive_mode()
print("over")
"""


def test_it_talks_to_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean_environment(tmp_path),
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""

    def until(text: bytes) -> None:
        nonlocal seen
        while text not in seen:
            seen += os.read(ours, 4096)

    until(b"[1/2] n p j l f c m h q> ")
    os.write(ours, b"n\n")
    until(b"[2/2] n p j l f c m h q> ")
    os.write(ours, b"\x04")
    until(b"over")
    child.wait()
    os.close(ours)
    assert child.returncode == 0
    assert b"Step 2: unknown, started" in seen
