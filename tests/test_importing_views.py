"""Real runs that were watched from several sides: what is imported agrees with each of them.

The session that an agent wrote is imported. What went over the wire, what its hooks or plugin
heard, what it told by OpenTelemetry and what it printed are read here, straight from the raw files.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from importing import SHARED, imported_runs
from running import plain_git

from repotrace.runs.transcripts.importing import Options, import_session
from repotrace.storage import Store

FIXTURES = SHARED / "agents" / "fixtures"
_SESSIONS = {
    "aider": ["session/*/.aider.chat.history.md"],
    "claude-code": ["session/.claude/projects/*/*.jsonl"],
    "codex": ["session/.codex/sessions/*/*/*/*.jsonl"],
    "gemini-cli": ["session/.gemini/tmp/*/chats/session-*.jsonl"],
    "inspect-ai": ["session/logs/*"],
    "mini-swe-agent": ["session/*.traj.json"],
    "opencode": ["session-export.json", "session/.local/share/opencode/opencode.db"],
    "openhands": ["session/.openhands/conversations/*"],
}
REAL = [
    path
    for agent, patterns in _SESSIONS.items()
    for pattern in patterns
    for path in sorted(FIXTURES.glob(f"{agent}/*/{pattern}"))
]
MINI = SHARED / "samples" / "mini-swe-agent" / "github_issue.traj.json"

type Record = dict[str, Any]
type Call = tuple[str, str]
"""The id of a call of a tool, and the tool's name."""


class View(NamedTuple):
    """A run from one side; None is what cannot be seen from there."""

    number: int | None = None
    """How often the model answered."""
    answers: list[int] | None = None
    """Output tokens of each answer, in order."""
    output: int | None = None
    calls: list[Call] | None = None
    tools: list[str] | None = None
    """Names of the tools in order, where calls have no ids."""
    exits: dict[str, int] | None = None
    """Exit codes of the commands for which one is told."""
    codes: list[int] | None = None
    """Exit codes of all commands in order, where calls have no ids."""
    failed: set[str] | None = None
    ids: list[str] | None = None
    """The ids of the answers."""


def _run_of(path: Path) -> Path:
    return FIXTURES.joinpath(*path.relative_to(FIXTURES).parts[:2])


def _name(path: Path) -> str:
    return "-".join((*_run_of(path).parts[-2:], path.suffix.lstrip(".") or "folder"))


def records(folder: Path, name: str) -> list[Record]:
    """The lines of a file that may be compressed; none where there is no such file."""
    found = [*folder.glob(name), *folder.glob(f"{name}.gz")]
    if not found:
        return []
    data = found[0].read_bytes()
    text = gzip.decompress(data) if found[0].suffix == ".gz" else data
    return [json.loads(line) for line in text.split(b"\n") if line]


# --- Over the wire --------------------------------------------------------------------------


class Answer(NamedTuple):
    """An answer of the model as the provider sent it."""

    id: str
    output: int | None
    calls: list[Call]


_OWN_IDS = ("aider", "gemini-cli", "opencode", "openhands")
"""Agents that do not keep the provider's id of an answer."""


def _wire(folder: Path) -> View:
    answers: list[Answer] = []
    for exchange in records(folder, "llm.jsonl"):
        if exchange.get("turn") is None or exchange["status"] not in (101, 200):
            continue  # a side call (titles, routing, commit messages), or a refusal
        if exchange.get("complete") is False:
            continue  # the connection broke
        sent = [e[1] if isinstance(e, list) else e for e in exchange.get("events", ())]
        whole = [exchange["response"]] if "response" in exchange else []
        parts = whole + [event for event in sent if isinstance(event, dict)]
        answers.append(_WIRES[exchange["wire"]](parts))
    used = [answer.output for answer in answers if answer.output is not None]
    return View(
        number=len(answers),
        # Aider does not ask for the tokens of a stream; it counts for itself.
        answers=None if folder.parent.name == "aider" else used,
        calls=[call for answer in answers for call in answer.calls],
        ids=None if folder.parent.name in _OWN_IDS else [answer.id for answer in answers],
    )


def _chat(parts: list[Record]) -> Answer:
    asked: list[Call] = []
    for choice in (choice for part in parts for choice in part.get("choices", ())):
        message = choice.get("message") or choice["delta"]
        tools = message.get("tool_calls") or ()
        asked += [(tool["id"], tool["function"]["name"]) for tool in tools if tool.get("id")]
    used = [part["usage"]["completion_tokens"] for part in parts if part.get("usage")]
    return Answer(parts[0]["id"], used[-1] if used else None, asked)


def _responses(parts: list[Record]) -> Answer:
    answers = [part.get("response", part) for part in parts]
    (answer,) = (a for a in answers if a.get("object") == "response" and a["usage"])
    tools = [item for item in answer["output"] if "call_id" in item]
    calls = [(tool["call_id"], tool["name"]) for tool in tools]
    return Answer(answer["id"], answer["usage"]["output_tokens"], calls)


def _anthropic(parts: list[Record]) -> Answer:
    blocks = [block for part in parts for block in part.get("content", ())]
    blocks += [part["content_block"] for part in parts if part["type"] == "content_block_start"]
    used = [part["usage"]["output_tokens"] for part in parts if part.get("usage")]
    calls = [(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"]
    (begin,) = (part for part in parts if "message" in part or part["type"] == "message")
    return Answer(begin.get("message", begin)["id"], used[-1], calls)


def _gemini(parts: list[Record]) -> Answer:
    told = [p for part in parts for c in part["candidates"] for p in c["content"]["parts"]]
    tools = [part["functionCall"] for part in told if "functionCall" in part]
    used = parts[-1]["usageMetadata"]
    made = used["candidatesTokenCount"] + used["thoughtsTokenCount"]
    # Gemini CLI puts the tool before the id that the model gave.
    calls = [(f"{tool['name']}__{tool['id']}", tool["name"]) for tool in tools]
    return Answer(parts[-1]["responseId"], made, calls)


_WIRES: dict[str, Callable[[list[Record]], Answer]] = {
    "openai-chat": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}

# --- Hooks and plugins ----------------------------------------------------------------------


def _claude_hooks(folder: Path) -> View:
    heard = records(folder, "hooks.jsonl")
    return View(
        calls=[
            (hook["tool_use_id"], hook["tool_name"])
            for hook in heard
            if hook["hook_event_name"] == "PreToolUse"
        ],
        failed={
            hook["tool_use_id"] for hook in heard if hook["hook_event_name"] == "PostToolUseFailure"
        },
    )


def _codex_hooks(folder: Path) -> View:
    heard = records(folder, "hooks.jsonl")
    # To hooks it calls the tool Bash that it offers the model as exec_command.
    names = {"Bash": "exec_command"}
    used = [hook for hook in heard if hook["hook_event_name"] == "PreToolUse"]
    calls = [(h["tool_use_id"], str(names.get(h["tool_name"], h["tool_name"]))) for h in used]
    return View(calls=calls)


def _gemini_hooks(folder: Path) -> View:
    heard = records(folder, "hooks.jsonl")
    ends = [
        hook["llm_response"]["usageMetadata"]
        for hook in heard
        if hook["hook_event_name"] == "AfterModel"
        and any(c.get("finishReason") for c in hook["llm_response"]["candidates"])
    ]
    return View(
        # Thoughts are told in the total only.
        answers=[used["totalTokenCount"] - used["promptTokenCount"] for used in ends],
        tools=[hook["tool_name"] for hook in heard if hook["hook_event_name"] == "BeforeTool"],
        codes=[
            # A command that did well is told without a code.
            int(code[1]) if (code := re.search(r"\nExit Code: (\d+)", _said(hook))) else 0
            for hook in heard
            if hook["hook_event_name"] == "AfterTool" and hook["tool_name"] == "run_shell_command"
        ],
    )


def _said(hook: Record) -> str:
    return str(hook["tool_response"]["llmContent"])


def _opencode_plugin(folder: Path) -> View:
    heard = records(folder, "plugin-events.jsonl")
    before = [r["input"] for r in heard if r["hook"] == "tool.execute.before"]
    after = [r for r in heard if r["hook"] == "tool.execute.after"]
    events = [record["event"] for record in heard if record["hook"] == "event"]
    messages = [e["properties"]["info"] for e in events if e["type"] == "message.updated"]
    answered = {m["id"]: m["tokens"] for m in messages if m["role"] == "assistant"}
    return View(
        answers=[used["output"] + used["reasoning"] for used in answered.values()],
        ids=list(answered),
        calls=[(called["callID"], called["tool"]) for called in before],
        exits={
            record["input"]["callID"]: record["output"]["metadata"]["exit"]
            for record in after
            if record["input"]["tool"] == "bash"
        },
    )


# --- OpenTelemetry --------------------------------------------------------------------------


def _told(folder: Path) -> list[Record]:
    """The attributes of each record of a log, as texts."""
    found = []
    for sent in records(folder, "otlp.jsonl"):
        for resource in sent["body"].get("resourceLogs", ()):
            for record in (r for scope in resource["scopeLogs"] for r in scope["logRecords"]):
                pairs = ((a["key"], a["value"]) for a in record["attributes"])
                found.append({key: str(*value.values()) for key, value in pairs if value})
    return [record for record in found if "event.name" in record]


def _claude_telemetry(folder: Path) -> View:
    told = _told(folder)
    results = [record for record in told if record["event.name"] == "tool_result"]
    return View(
        answers=[int(r["output_tokens"]) for r in told if r["event.name"] == "api_request"],
        calls=[
            (record["tool_use_id"], record["tool_name"])
            for record in told
            if record["event.name"] == "tool_decision"
        ],
        failed={record["tool_use_id"] for record in results if record["success"] != "true"},
    )


def _codex_telemetry(folder: Path) -> View:
    told = _told(folder)
    results = [record for record in told if record["event.name"] == "codex.tool_result"]
    codes = {
        record["call_id"]: re.search(r"\nProcess exited with code (\d+)\n", record["output"])
        for record in results
    }
    return View(
        answers=[
            int(record["output_token_count"])
            for record in told
            if record["event.name"] == "codex.sse_event" and "output_token_count" in record
        ],
        calls=[(record["call_id"], record["tool_name"]) for record in results],
        exits={call: int(code[1]) for call, code in codes.items() if code},
    )


def _gemini_telemetry(folder: Path) -> View:
    told = _told(folder)
    answers = [
        int(record["output_token_count"]) + int(record["thoughts_token_count"])
        for record in told
        # The router is no part of the conversation.
        if record["event.name"] == "gemini_cli.api_response" and record["role"] == "main"
    ]
    called = [record for record in told if record["event.name"] == "gemini_cli.tool_call"]
    return View(answers=answers, tools=[record["function_name"] for record in called])


# --- What was printed -----------------------------------------------------------------------


def _claude_print(folder: Path) -> View:
    printed = records(folder, "stdout.jsonl")
    messages = [r["message"] for r in printed if r["type"] in ("assistant", "user")]
    blocks = [b for m in messages for b in m["content"] if isinstance(b, dict)]
    results = [block for block in blocks if block["type"] == "tool_result"]
    codes = {b["tool_use_id"]: re.match(r"Exit code (\d+)\n", str(b["content"])) for b in results}
    return View(
        output=printed[-1]["usage"]["output_tokens"] - _begun(folder),
        ids=list(dict.fromkeys(message["id"] for message in messages if "id" in message)),
        calls=[(block["id"], block["name"]) for block in blocks if block["type"] == "tool_use"],
        exits={call: int(code[1]) for call, code in codes.items() if code},
        failed={block["tool_use_id"] for block in results if block.get("is_error")},
    )


def _begun(folder: Path) -> int:
    """Output tokens that broken streams began with: Claude Code's sum holds them, and no answer."""
    broken = [e for e in records(folder, "llm.jsonl") if e.get("complete") is False]
    events = [event for exchange in broken for _, event in exchange["events"]]
    starts = [event["message"] for event in events if event["type"] == "message_start"]
    return sum(message["usage"]["output_tokens"] for message in starts)


def _codex_print(folder: Path) -> View:
    printed = records(folder, "stdout.jsonl")
    items = [record["item"] for record in printed if record["type"] == "item.completed"]
    used = [record["usage"] for record in printed if record["type"] == "turn.completed"]
    names = {"command_execution": "exec_command", "file_change": "apply_patch"}
    return View(
        output=sum(turn["output_tokens"] for turn in used),
        tools=[names[item["type"]] for item in items if item["type"] in names],
        codes=[item["exit_code"] for item in items if item["type"] == "command_execution"],
    )


def _gemini_print(folder: Path) -> View:
    printed = records(folder, "stdout.jsonl")
    used = [record for record in printed if record["type"] == "tool_use"]
    return View(calls=[(record["tool_id"], record["tool_name"]) for record in used])


def _opencode_print(folder: Path) -> View:
    printed = records(folder, "stdout.jsonl")
    ends = [record["part"] for record in printed if record["type"] == "step_finish"]
    used = [record["part"] for record in printed if record["type"] == "tool_use"]
    return View(
        answers=[part["tokens"]["output"] + part["tokens"]["reasoning"] for part in ends],
        ids=[part["messageID"] for part in ends],
        # Each is printed when it is done: of two at a time, the second may come first.
        calls=sorted((part["callID"], part["tool"]) for part in used),
        exits={p["callID"]: p["state"]["metadata"]["exit"] for p in used if p["tool"] == "bash"},
    )


_VIEWS: dict[str, dict[str, Callable[[Path], View]]] = {
    "claude-code": {
        "hooks": _claude_hooks,
        "otlp": _claude_telemetry,
        "stdout": _claude_print,
    },
    "codex": {"hooks": _codex_hooks, "otlp": _codex_telemetry, "stdout": _codex_print},
    "gemini-cli": {"hooks": _gemini_hooks, "otlp": _gemini_telemetry, "stdout": _gemini_print},
    "opencode": {"plugin-events": _opencode_plugin, "stdout": _opencode_print},
}
SIDES = [
    pytest.param(path, view, id=f"{_name(path)}-{side}")
    for path in REAL
    for side, view in ({"llm": _wire} | _VIEWS.get(_run_of(path).parent.name, {})).items()
    if [*_run_of(path).glob(f"{side}.jsonl*")]
]


def _imported(store: Store, path: Path) -> View:
    """The run as it was taken in, without what is no call of the model's."""
    ((_, run, steps),) = imported_runs(store, path)
    interactions = store.runs.interactions(run.id)
    tools = [step for step in steps if step.metadata.get("tool")]
    if run.agent == "inspect":
        tools = [step for step in tools if step.metadata["tool"] != "sandbox"]  # the scorer's
    if run.agent == "aider":
        tools = []  # it has none: edits are text, and it runs the tests itself
    # OpenHands' editor is one tool for several commands; the command is named with it.
    calls = [(str(step.external_id), step.metadata["tool"].split(" ")[0]) for step in tools]
    numbers = {step.id: step.step_number for step in steps}
    commands = sorted(store.runs.commands(run.id), key=lambda c: numbers[str(c.step_id)])
    names = {step.id: str(step.external_id) for step in steps}
    told = [(names[str(c.step_id)], c.exit_code) for c in commands]
    exits = {name: code for name, code in told if code is not None}
    answers = [interaction.output_tokens or 0 for interaction in interactions]
    return View(
        number=len(answers),
        answers=answers,
        output=sum(answers),
        calls=calls,
        tools=[name for _, name in calls],
        exits=exits,
        codes=list(exits.values()),
        failed={str(step.external_id) for step in tools if step.status == "failed"},
        ids=[str(interaction.external_id) for interaction in interactions],
    )


@pytest.mark.skipif(not SIDES, reason="no runs of real agents beside the checkout")
@pytest.mark.parametrize(("path", "view"), SIDES)
def test_a_real_session_agrees_with_what_was_seen_from_another_side(
    store: Store, path: Path, view: Callable[[Path], View]
) -> None:
    ours, seen = _imported(store, path), view(_run_of(path))
    assert seen.calls or seen.tools or seen.number
    assert seen.exits != {}
    assert seen.exits is None or seen.exits.items() <= (ours.exits or {}).items()
    for name in ("number", "answers", "output", "calls", "tools", "codes", "failed", "ids"):
        told = getattr(seen, name)
        assert told in (None, getattr(ours, name)), name


@pytest.mark.skipif(not MINI.exists(), reason="no trajectories of real agents beside the checkout")
def test_a_real_trajectory_of_mini_swe_agent_ends_with_the_patch_that_was_submitted(
    store: Store, tmp_path: Path
) -> None:
    messages = [message["content"] for message in json.loads(MINI.read_bytes())]
    patch = next(text for text in messages if text.startswith("diff --git"))
    (name,) = re.findall(r"^--- a/(.+)$", patch, re.MULTILINE)
    ((before, after),) = re.findall(r"^index (\w+)\.\.(\w+)", patch, re.MULTILINE)
    asked = next(i for i, text in enumerate(messages) if f"\ncat {name}\n" in text)
    shown = re.search(r"<output>\n(.*)</output>", messages[asked + 1], re.DOTALL)
    assert shown is not None
    repository = tmp_path / "repository"
    (repository / name).parent.mkdir(parents=True)
    plain_git(repository, "init", "-q", "-b", "main")
    (repository / name).write_text(shown[1])
    (repository / name).chmod(0o755)
    plain_git(repository, "add", "-A")
    plain_git(repository, "commit", "-q", "-m", "Begin")
    assert plain_git(repository, "rev-parse", f"HEAD:{name}").startswith(before)
    (summary,) = import_session(store, MINI, Options(repository=repository, base="HEAD"))
    states = [step.state_id for step in store.runs.steps(summary.run_id) if step.state_id]
    assert states[-1] is not None
    (tmp_path / "submitted.diff").write_text(patch.rstrip("\n") + "\n")
    plain_git(repository, "apply", "--recount", str(tmp_path / "submitted.diff"))
    assert store.snapshots.read(states[-1], name) == (repository / name).read_bytes()
    assert plain_git(repository, "hash-object", name).startswith(after)
    assert [entry.path for entry in store.snapshots.list(states[-1])] == [name]
    assert (summary.end.against, summary.end.equal) == ("submitted patch", True)
