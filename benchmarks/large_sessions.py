"""Large sessions of every agent that is imported, in the shapes and sizes of real ones.

What is done in a turn, and how long its parts are, is drawn from what public sessions of Claude
Code hold (113 calls in six sessions), which trajectories of SWE-agent and sessions of Cline are
alike to: 32 % commands, 28 % reads, 27 % edits, 13 % searches. The results of a read have 3,052
characters in the median and 7,654 in the mean, those of a command 525 and 911, of an edit 472 and
478, of a search 572 and 836; the model says 108 and 206; a call has 130 and 424. A fifth of the
commands run tests, a third of these with a failure.
"""

from __future__ import annotations

import json
import random
import sqlite3
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

type Record = dict[str, Any]

ROOT = "/home/ada/calc"
BEGIN = 1772366400
EDITED = "large.txt"
BODY = "".join(f"line {number} of the file, with a few words in it\n" for number in range(120))

_KINDS = ("run", "read", "edit", "search")
_SHARES = (32, 28, 27, 13)
# Characters at 0, 5, 25, 50, 75, 90, 95 and 100 %.
_SIZES = {
    "read": (600, 1267, 1746, 3052, 6045, 22191, 28952, 41663),
    "run": (0, 21, 66, 525, 918, 1750, 3611, 8517),
    "search": (14, 16, 499, 572, 1185, 2436, 2436, 2436),
    "words": (10, 22, 63, 108, 177, 372, 645, 2418),
    "command": (10, 20, 40, 70, 110, 200, 300, 1000),
    "edit": (40, 60, 140, 280, 480, 700, 1200, 2400),
}
_AT = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)


class Turn(NamedTuple):
    """One answer of a model with one call of a tool, and its result."""

    number: int
    kind: str
    """`read`, `run`, `edit` or `search`."""
    words: str
    thought: str
    path: str
    """Of a read or an edit, in `ROOT`."""
    command: str
    """Of a run; the pattern of a search."""
    before: str
    """What an edit replaces, and by what."""
    after: str
    whole: str
    """The file before the edit."""
    result: str
    failed: bool

    @property
    def seconds(self) -> int:
        """When it was, since 1970."""
        return BEGIN + 3 * self.number

    @property
    def stamp(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.seconds))


class _Texts:
    """Text like code, cut out of a long one."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        names = [f"name{number}" for number in range(2000)]
        lines = []
        for _ in range(20_000):
            some = [chance.choice(names) for _ in range(chance.randint(1, 8))]
            indent = "    " * chance.randint(0, 4)
            lines.append(f"{indent}{some[0]} = '{' '.join(some[1:])}'  # {some[-1]}(\"{some[0]}\")")
        self._pool = "\n".join(lines)

    def size(self, kind: str) -> int:
        sizes, at = _SIZES[kind], self._chance.random()
        place = max(index for index, share in enumerate(_AT) if share <= at)
        place = min(place, len(_AT) - 2)
        part = (at - _AT[place]) / (_AT[place + 1] - _AT[place])
        return int(sizes[place] + part * (sizes[place + 1] - sizes[place]))

    def of(self, size: int) -> str:
        start = self._chance.randrange(len(self._pool) - size - 1)
        return self._pool[start : start + size]

    def line(self, size: int) -> str:
        return self.of(size).replace("\n", " ").strip()


def turns(size: int) -> Iterator[Turn]:
    """Turns of about so many characters together."""
    chance = random.Random(1)
    texts = _Texts(chance)
    written, number, body = 0, 0, BODY
    while written < size:
        number += 1
        (kind,) = chance.choices(_KINDS, _SHARES)
        words = texts.of(texts.size("words"))
        thought = texts.of(texts.size("words"))
        path, command, before, after, failed, whole = "", "", "", "", False, body
        if kind == "edit":
            path = EDITED
            begin = chance.randrange(len(body) // 2)
            before = body[begin : begin + texts.size("edit")]
            after = texts.of(texts.size("edit"))
            if body.count(before) != 1:
                begin = body.index(before)
            body = body[:begin] + after + body[begin + len(before) :]
            body = body if len(body) < 3 * len(BODY) else BODY
            result = f"The file {ROOT}/{path} has been updated.\n{after[:400]}"
        elif kind == "read":
            path = f"src/f{chance.randrange(400)}.py"
            result = texts.of(texts.size("read"))
        elif kind == "search":
            command = texts.line(20).replace("'", "").replace('"', "")
            result = texts.of(texts.size("search"))
        elif chance.random() < 0.2:
            command = "python -m pytest -q"
            failed = chance.random() < 0.33
            result = _tests(texts.of(texts.size("run")), number, failed=failed)
        else:
            command = "echo " + texts.line(texts.size("command")).replace("'", "")
            result = texts.of(texts.size("run"))
        turn = Turn(
            number, kind, words, thought, path, command, before, after, whole, result, failed
        )
        written += len(words) + len(thought) + len(before) + len(after) + len(result) + 200
        yield turn


def _tests(text: str, number: int, *, failed: bool) -> str:
    if not failed:
        return f"{text}\n{'.' * 72} [100%]\n72 passed in 1.02s\n"
    name = f"tests/test_f{number % 50}.py::test_{number % 7}"
    mark = " FAILURES ".center(80, "=")
    return f"{text}\n{mark}\nE  assert 1 == 2\nFAILED {name} - assert 1 == 2\n1 failed, 71 passed\n"


def _usage(turn: Turn) -> tuple[int, int, int]:
    """Tokens sent, of those cached, and received."""
    return 1000 + turn.number, 900 + turn.number, 20 + len(turn.words) // 4


# --- Lines ----------------------------------------------------------------------------------


def _lines(path: Path, records: Iterator[Any]) -> Path:
    with path.open("w") as stream:
        for record in records:
            stream.write(json.dumps(record, separators=(",", ":")) + "\n")
    return path


def claude_code(folder: Path, size: int) -> Path:
    """Three records a turn; an edit repeats the whole file, a read its content."""
    return _lines(folder / "large.jsonl", _claude_code(size))


def _claude_code(size: int) -> Iterator[Any]:
    chance, last = random.Random(2), None
    for turn in turns(size * 45 // 100):
        common: Record = {
            "isSidechain": False,
            "cwd": ROOT,
            "sessionId": "large",
            "version": "2.1.0",
        }
        common |= {"userType": "external", "gitBranch": "main", "timestamp": turn.stamp}
        sent, cached, received = _usage(turn)
        usage: Record = {"input_tokens": sent - cached, "cache_read_input_tokens": cached}
        usage |= {"cache_creation_input_tokens": 0, "output_tokens": received}
        message: Record = {
            "id": f"msg_{turn.number}",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
        }
        message |= {"type": "message", "stop_reason": None, "usage": usage}
        path = f"{ROOT}/{turn.path}"
        given, told = _claude_call(turn, path)
        names = {"read": "Read", "run": "Bash", "edit": "Edit", "search": "Grep"}
        use = {"type": "tool_use", "id": f"toolu_{turn.number}", "name": names[turn.kind]}
        result: Record = {"type": "tool_result", "tool_use_id": f"toolu_{turn.number}"}
        result |= {"content": turn.result, **({"is_error": True} if turn.failed else {})}
        thought = {"type": "thinking", "thinking": turn.thought, "signature": "x" * 200}
        records: list[dict[str, Any]] = [
            {"type": "assistant", "message": {**message, "content": [thought]}},
            {
                "type": "assistant",
                "message": {
                    **message,
                    "content": [{"type": "text", "text": turn.words}, {**use, "input": given}],
                },
            },
            {
                "type": "user",
                "message": {"role": "user", "content": [result]},
                "toolUseResult": told,
            },
        ]
        if turn.number == 1:
            first = {"type": "user", "message": {"role": "user", "content": "Do a lot"}}
            records.insert(0, first)
        for record in records:
            name = str(uuid.UUID(int=chance.getrandbits(128)))
            yield {"parentUuid": last, **common, **record, "uuid": name, "requestId": "req"}
            last = name


def _claude_call(turn: Turn, path: str) -> tuple[dict[str, Any], Any]:
    """What a tool is given, and what the program keeps of its result."""
    if turn.kind == "read":
        file = {"filePath": path, "content": turn.result, "numLines": 5, "startLine": 1}
        return {"file_path": path}, {"type": "text", "file": {**file, "totalLines": 9}}
    if turn.kind == "run":
        told: Record = {"stdout": turn.result, "stderr": "", "interrupted": False}
        text = f"Error: Exit code 1\n{turn.result}"
        return {"command": turn.command, "description": "x"}, text if turn.failed else told
    if turn.kind == "search":
        given = {"pattern": turn.command, "path": ROOT, "output_mode": "content"}
        return given, {"mode": "content", "numFiles": 0, "filenames": [], "content": turn.result}
    changed = {"oldString": turn.before, "newString": turn.after}
    given = {"file_path": path, "old_string": turn.before, "new_string": turn.after}
    hunk: Record = {"oldStart": 1, "oldLines": 9, "newStart": 1, "newLines": 9}
    hunk["lines"] = [f"-{line}" for line in turn.before.split("\n")]
    told = {
        "filePath": path,
        **changed,
        "originalFile": turn.whole,
        "structuredPatch": [hunk],
    }
    return given, {**told, "userModified": False, "replaceAll": False}


def codex(folder: Path, size: int) -> Path:
    """What version 0.171 writes: items, their completion, and tokens twice."""
    name = "rollout-2026-03-01T12-00-00-01900000-0000-7000-8000-00000000abcd.jsonl"
    return _lines(folder / name, _codex(size))


def _codex(size: int) -> Iterator[Any]:
    ordinal = 0

    def record(turn: Turn, kind: str, **payload: Any) -> Any:
        nonlocal ordinal
        ordinal += 1
        place = {"timestamp": turn.stamp, "ordinal": ordinal - 1, "type": kind}
        return {**place, "payload": payload}

    total = 0
    for turn in turns(size * 40 // 100):
        if turn.number == 1:
            meta = {"id": "01900000-0000-7000-8000-00000000abcd", "cwd": ROOT, "source": "cli"}
            meta |= {"timestamp": turn.stamp, "cli_version": "0.171.0", "history_mode": "paginated"}
            yield record(turn, "session_meta", **meta)
            yield record(turn, "turn_context", turn_id="t1", cwd=ROOT, model="gpt-test")
            asked = [{"type": "input_text", "text": "Do a lot"}]
            yield record(turn, "response_item", type="message", role="user", content=asked)
        about = {"turn_id": "01900000-0000-7000-8000-00000000abce"}
        call = f"call_{turn.number:024d}"
        yield record(
            turn, "response_item", type="reasoning", id=f"rs_{turn.number}", content=None,
            summary=[{"type": "summary_text", "text": turn.thought}], encrypted_content="x" * 400,
        )  # fmt: skip
        said = [{"type": "output_text", "text": turn.words}]
        item: Record = {"type": "message", "id": f"msg_{turn.number}", "role": "assistant"}
        yield record(turn, "response_item", **item, content=said, metadata=about)
        path = f"{ROOT}/{turn.path}"
        if turn.kind == "edit":
            patch = _patch(turn)
            item = {"type": "custom_tool_call", "name": "apply_patch", "call_id": call}
            yield record(turn, "response_item", **item, input=patch, status="completed")
        else:
            shell = turn.command if turn.kind == "run" else f"cat {turn.path or 'x'}"
            shell = f"rg '{turn.command}'" if turn.kind == "search" else shell
            item = {"type": "function_call", "name": "exec_command", "call_id": call}
            given = json.dumps({"cmd": shell, "yield_time_ms": 1000})
            yield record(turn, "response_item", **item, arguments=given, metadata=about)
        sent, cached, received = _usage(turn)
        usage: Record = {
            "input_tokens": sent,
            "cached_input_tokens": cached,
            "output_tokens": received,
        }
        usage |= {"reasoning_output_tokens": 0, "total_tokens": sent + received}
        total += sent + received
        named = {"response_id": f"resp_{turn.number}", "turn_token_usage": usage}
        yield record(turn, "token_usage_record", **about, usage=usage, **named)
        if turn.kind == "edit":
            diff = f"@@ -1,9 +1,9 @@\n{_signed(turn)}"
            changes = {path: {"type": "update", "unified_diff": diff, "move_path": None}}
            done: Record = {
                "type": "FileChange",
                "id": call,
                "status": "completed",
                "changes": changes,
            }
            shown = "Exit code: 0\nWall time: 0 seconds\nOutput:\nSuccess.\n"
            kind = "custom_tool_call_output"
        else:
            done = {"type": "CommandExecution", "id": call, "command": ["bash", "-lc", shell]}
            done |= {"cwd": f"file://{ROOT}", "status": "completed", "exit_code": int(turn.failed)}
            done |= {"aggregated_output": turn.result, "duration": {"secs": 0, "nanos": 5000}}
            head = "Chunk ID: 1\nWall time: 0.1000 seconds\nProcess exited with code 0\n"
            shown = f"{head}Output:\n{turn.result}"
            kind = "function_call_output"
        yield record(turn, "event_msg", type="item_completed", thread_id="t", **about, item=done)
        yield record(turn, "response_item", type=kind, call_id=call, output=shown)
        info: Record = {
            "total_token_usage": {**usage, "total_tokens": total},
            "last_token_usage": usage,
        }
        yield record(turn, "event_msg", type="token_count", info=info, rate_limits=None)


def _signed(turn: Turn) -> str:
    lines = [f"-{line}" for line in turn.before.split("\n")]
    return "\n".join([*lines, *(f"+{line}" for line in turn.after.split("\n"))]) + "\n"


def _patch(turn: Turn) -> str:
    head = f"*** Begin Patch\n*** Update File: {turn.path}\n@@\n"
    return f"{head}{_signed(turn)}*** End Patch"


def gemini_cli(folder: Path, size: int) -> Path:
    """A message is written, and written again with the results of its calls."""
    return _lines(folder / "session-2026-03-01T12-00-11111111.jsonl", _gemini_cli(size))


def _gemini_cli(size: int) -> Iterator[Any]:
    session = "11111111-2222-4333-8444-666666666666"
    header: Record = {
        "sessionId": session,
        "projectHash": "0" * 64,
        "startTime": "2026-03-01T12:00:00Z",
    }
    yield {**header, "kind": "main", "directories": [ROOT]}
    for turn in turns(size * 45 // 100):
        if turn.number == 1:
            asked = [{"text": "Do a lot"}]
            yield {"id": "u1", "timestamp": turn.stamp, "type": "user", "content": asked}
        sent, cached, received = _usage(turn)
        tokens: Record = {
            "input": sent,
            "output": received,
            "cached": cached,
            "thoughts": 5,
            "tool": 0,
        }
        thoughts = [{"subject": "S", "description": turn.thought, "timestamp": turn.stamp}]
        message: Record = {"id": f"g{turn.number}", "timestamp": turn.stamp, "type": "gemini"}
        message |= {"content": turn.words, "thoughts": thoughts, "model": "gemini-test"}
        message |= {"tokens": {**tokens, "total": sent + received + 5}}
        yield message
        path = f"{ROOT}/{turn.path}"
        name, given = {
            "read": ("read_file", {"file_path": path}),
            "run": ("run_shell_command", {"command": turn.command, "description": "x"}),
            "search": ("grep_search", {"pattern": turn.command, "dir_path": ROOT}),
            "edit": (
                "replace",
                {"file_path": path, "old_string": turn.before, "new_string": turn.after},
            ),
        }[turn.kind]
        shown: Any = turn.result if turn.kind == "run" else ""
        if turn.kind == "edit":
            new = turn.whole.replace(turn.before, turn.after, 1)
            shown = {"fileDiff": _signed(turn), "fileName": turn.path, "filePath": path}
            shown |= {"originalContent": turn.whole, "newContent": new, "isNewFile": False}
        key = f"{name}-{turn.number}"
        response: Record = {"id": key, "name": name, "response": {"output": turn.result}}
        call: Record = {"id": key, "name": name, "args": given, "status": "success"}
        call |= {"result": [{"functionResponse": response}], "timestamp": turn.stamp}
        call |= {"resultDisplay": shown, "description": "x", "displayName": name}
        yield {**message, "toolCalls": [call]}
        yield {"$set": {"lastUpdated": turn.stamp}}


# --- One value ------------------------------------------------------------------------------


def _whole(path: Path, value: Any, indent: int | None = None) -> Path:
    path.write_text(json.dumps(value, indent=indent))
    return path


def mini_swe_agent(folder: Path, size: int) -> Path:
    """Version 2: outputs stand in the message and beside it, all is indented."""
    messages: list[Any] = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Please solve this issue: Do a lot"},
    ]
    for turn in turns(size * 42 // 100):
        command = _shell(turn)
        key = f"call_{turn.number}"
        sent, cached, received = _usage(turn)
        usage: Record = {"prompt_tokens": sent, "completion_tokens": received}
        usage |= {"prompt_tokens_details": {"cached_tokens": cached}}
        response: Record = {"id": f"chat-{turn.number}", "model": "gpt-test", "usage": usage}
        function = {"name": "bash", "arguments": json.dumps({"command": command})}
        extra: Record = {"actions": [{"command": command, "tool_call_id": key}], "cost": 0.01}
        extra |= {"timestamp": float(turn.seconds), "response": response}
        said = {"role": "assistant", "content": turn.words, "extra": extra}
        messages.append(
            {**said, "tool_calls": [{"id": key, "type": "function", "function": function}]}
        )
        told: Record = {"returncode": int(turn.failed), "output": turn.result}
        extra = {"raw_output": turn.result, "returncode": int(turn.failed)}
        extra |= {"timestamp": turn.seconds + 1.0, "exception_info": ""}
        messages.append(
            {"role": "tool", "tool_call_id": key, "content": json.dumps(told), "extra": extra}
        )
    info: Record = {"model_stats": {"instance_cost": 1.5, "api_calls": 6}, "mini_version": "2.4.6"}
    info |= {"config": {"environment": {"cwd": ROOT}}, "exit_status": "Submitted"}
    value = {"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}
    return _whole(folder / "large.traj.json", value, 2)


def _shell(turn: Turn) -> str:
    if turn.kind == "edit":
        return f"cat > {turn.path} <<'EOF'\n{turn.after}\nEOF"
    known = {"read": f"cat {turn.path}", "search": f"grep -rn '{turn.command}' ."}
    return known.get(turn.kind, turn.command)


def swe_agent(folder: Path, size: int) -> Path:
    """Version 1: what the model is shown stands beside each step, the history at the end."""
    system: Record = {"role": "system", "content": "SETTING: You are an autonomous programmer."}
    system |= {"agent": "main", "message_type": "system_prompt"}
    task = {"role": "user", "content": "ISSUE:\nDo a lot\n\nINSTRUCTIONS:\nNow.", "agent": "main"}
    history: list[Any] = [system, {**task, "message_type": "observation"}]
    trajectory = []
    for turn in turns(size * 27 // 100):
        edit = f"edit '{turn.before[:200]}' '{turn.after}'".replace("\n", " ")
        known = {"read": f'open "{turn.path}"', "edit": edit}
        action = known.get(turn.kind) or _shell(turn)
        said = {"role": "assistant", "content": turn.words, "action": action, "agent": "main"}
        said |= {"thought": turn.thought, "message_type": "action"}
        shown = {"role": "user", "content": turn.result, "agent": "main"}
        state: Record = {"open_file": f"{ROOT}/{turn.path}", "working_dir": ROOT}
        trajectory.append(
            {
                "action": action,
                "observation": turn.result,
                "response": turn.words,
                "thought": turn.thought,
                "execution_time": 0.25,
                "state": state,
                # Ever more of it in truth, up to megabytes a step; a window is kept here.
                "query": history[-2:],
                "extra_info": {},
            }
        )
        history += [said, {**shown, "message_type": "observation"}]
    stats = {"instance_cost": 1.0, "tokens_sent": 1, "tokens_received": 1, "api_calls": 1}
    info: Record = {"model_stats": stats, "exit_status": "submitted", "submission": ""}
    value = {"environment": "main", "trajectory": trajectory, "history": history, "info": info}
    return _whole(folder / "large.traj", value, 2)


def cline(folder: Path, size: int) -> Path:
    """A session of its core."""
    messages: list[Any] = []
    asked = [{"type": "text", "text": "Do a lot"}]
    messages.append({"id": "u0", "role": "user", "content": asked, "ts": BEGIN * 1000})
    for turn in turns(size * 80 // 100):
        path, key = f"{ROOT}/{turn.path}", f"t{turn.number}"
        name, given = {
            "read": ("read_files", {"files": [{"path": path}]}),
            "run": ("run_commands", {"commands": [turn.command]}),
            "search": ("search_codebase", {"queries": [turn.command]}),
            "edit": ("editor", {"path": path, "old_text": turn.before, "new_text": turn.after}),
        }[turn.kind]
        sent, cached, received = _usage(turn)
        metrics: Record = {"inputTokens": sent, "outputTokens": received, "cacheReadTokens": cached}
        use = {"type": "tool_use", "id": key, "name": name, "input": given}
        thought = {"type": "thinking", "thinking": turn.thought}
        parts = [thought, {"type": "text", "text": turn.words}, use]
        said = {"id": f"a{key}", "role": "assistant", "content": parts, "ts": turn.seconds * 1000}
        said |= {"modelInfo": {"id": "maker/large", "provider": "maker"}}
        messages.append({**said, "metrics": {**metrics, "cacheWriteTokens": 0, "cost": 0.01}})
        query = turn.command if turn.kind in ("run", "search") else path
        answer = {"query": query, "result": turn.result, "success": not turn.failed}
        if turn.failed:
            answer |= {"error": f"Command exited with code 1\n{turn.result}", "result": ""}
        shown: Any = json.dumps(answer) if turn.kind == "edit" else [answer]
        result = {"type": "tool_result", "tool_use_id": key, "name": name, "content": shown}
        place = {"id": f"u{key}", "role": "user", "ts": turn.seconds * 1000 + 500}
        messages.append({**place, "content": [result]})
    value = {"version": 1, "updated_at": "2026-03-01T12:10:00.000Z", "agent": "lead"}
    value |= {"sessionId": "1772366700000_abcde", "messages": messages}
    return _whole(folder / "large.messages.json", value)


def atif(folder: Path, size: int) -> Path:
    """A trajectory of Claude Code as Harbor writes it."""
    steps: list[Any] = [{"step_id": 1, "timestamp": "2026-03-01T12:00:00Z", "source": "user"}]
    steps[0]["message"] = "Do a lot"
    for turn in turns(size * 80 // 100):
        path, key = f"{ROOT}/{turn.path}", f"t{turn.number}"
        given, _ = _claude_call(turn, path)
        names = {"read": "Read", "run": "Bash", "edit": "Edit", "search": "Grep"}
        sent, cached, received = _usage(turn)
        metrics: Record = {
            "prompt_tokens": sent,
            "completion_tokens": received,
            "cached_tokens": cached,
        }
        step: Record = {"step_id": turn.number + 1, "timestamp": turn.stamp, "source": "agent"}
        step |= {"model_name": "maker/large", "message": turn.words, "metrics": metrics}
        call: Record = {"tool_call_id": key, "function_name": names[turn.kind], "arguments": given}
        shown = f"Exit code 1\n{turn.result}" if turn.failed else turn.result
        step |= {"reasoning_content": turn.thought, "tool_calls": [call]}
        step |= {"observation": {"results": [{"source_call_id": key, "content": shown}]}}
        steps.append(step)
    agent = {"name": "claude-code", "version": "2.1.0", "model_name": "maker/large"}
    value = {"schema_version": "ATIF-v1.7", "session_id": "large", "steps": steps}
    return _whole(folder / "trajectory.json", {**value, "agent": {**agent, "extra": {}}}, 2)


def inspect(folder: Path, size: int) -> Path:
    """A log packed as `.eval`, of samples of 40 turns each, which refer to their messages."""
    path = folder / "large.eval"
    log: Record = {"version": 2, "status": "success"}
    log["eval"] = {"run_id": "run1", "task": "calc", "model": "maker/large", "eval_id": "ev1"}
    log["eval"] |= {"created": "2026-03-01T12:00:00+00:00", "dataset": {}, "config": {}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as stream:
        stream.writestr("header.json", json.dumps(log))
        sample: list[Turn] = []
        number = 0
        for turn in turns(size * 28 // 100):
            sample.append(turn)
            if len(sample) == 40:
                number += 1
                told = json.dumps(_sample(number, sample), indent=2)
                stream.writestr(f"samples/{number}_epoch_1.json", told)
                sample = []
    return path


def _sample(number: int, told: list[Turn]) -> dict[str, Any]:
    messages: list[Any] = [{"id": "m0", "role": "user", "content": "Do a lot", "source": "input"}]
    events: list[Any] = []
    for turn in told:
        key = f"c{turn.number}"
        command = "text_editor" if turn.kind == "edit" else "bash"
        given: dict[str, Any] = {"command": f"cd {ROOT} && {_shell(turn)}"}
        if turn.kind == "edit":
            given = {"command": "str_replace", "path": f"{ROOT}/{turn.path}"}
            given |= {"old_str": turn.before, "new_str": turn.after}
        call: Record = {"id": key, "function": command, "arguments": given, "type": "function"}
        content = [
            {"type": "reasoning", "reasoning": turn.thought}, {"type": "text", "text": turn.words}
        ]  # fmt: skip
        said = {"id": f"a{key}", "role": "assistant", "content": content, "source": "generate"}
        said |= {"model": "large", "tool_calls": [call]}
        shown = {"id": f"t{key}", "role": "tool", "content": turn.result, "tool_call_id": key}
        sent, cached, received = _usage(turn)
        usage: Record = {
            "input_tokens": sent,
            "output_tokens": received,
            "total_tokens": sent + received,
        }
        usage |= {"input_tokens_cache_read": cached}
        stamp = turn.stamp.replace("Z", "+00:00")
        place = {"span_id": "agent", "timestamp": stamp, "completed": stamp}
        output = {"model": "large", "usage": usage, "time": 1.0}
        output["choices"] = [{"message": said, "stop_reason": "tool_calls"}]
        seen: Record = {"input": list(messages[-2:]), "tools": [], "config": {}, "output": output}
        events.append({"uuid": f"e{key}", **place, "event": "model", "model": "large", **seen})
        if turn.kind != "edit":
            script = given["command"]
            run: Record = {
                "action": "exec",
                "cmd": f"bash --login -c '{script}'",
                "output": turn.result,
            }
            run |= {"result": int(turn.failed)}
            events.append({"uuid": f"s{key}", **place, "event": "sandbox", **run})
        done: Record = {**call, "result": turn.result, "events": [], "message_id": f"t{key}"}
        events.append({"uuid": f"t{key}", **place, "event": "tool", **done})
        messages += [said, {**shown, "function": command}]
    facts = {"id": number, "epoch": 1, "input": "Do a lot", "target": "", "messages": messages}
    return {**facts, "events": events, "output": {}, "scores": {}, "metadata": {}, "store": {}}


# --- Others ---------------------------------------------------------------------------------


def opencode(folder: Path, size: int) -> Path:
    """A session in the database."""
    path = folder / "opencode.db"
    database = sqlite3.connect(path)
    columns = "session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT"
    database.execute(f"CREATE TABLE message (id TEXT PRIMARY KEY, {columns})")
    database.execute(f"CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, {columns})")
    database.execute(
        "CREATE TABLE session (id TEXT PRIMARY KEY, project_id TEXT, parent_id TEXT, slug TEXT,"
        " directory TEXT, title TEXT, version TEXT, time_created INTEGER, time_updated INTEGER,"
        " revert TEXT)"
    )
    begin = BEGIN * 1000
    facts = ("ses_1", "p", None, "s", ROOT, "Large", "1.18.33", begin, begin, None)
    database.execute("INSERT INTO session VALUES (?,?,?,?,?,?,?,?,?,?)", facts)
    count = 0

    def add(time_: int, message: Any, *parts: Any) -> None:
        nonlocal count
        count += 1
        name = f"msg_{count:08d}"
        row = (name, "ses_1", time_, time_, json.dumps(message))
        database.execute("INSERT INTO message VALUES (?,?,?,?,?)", row)
        for number, part in enumerate(parts):
            place = (f"prt_{count:08d}{number}", name, "ses_1", time_, time_, json.dumps(part))
            database.execute("INSERT INTO part VALUES (?,?,?,?,?,?)", place)

    add(begin, {"role": "user", "time": {"created": begin}}, {"type": "text", "text": "Do a lot"})
    for turn in turns(size * 45 // 100):
        moment, path_ = turn.seconds * 1000, f"{ROOT}/{turn.path}"
        sent, cached, received = _usage(turn)
        tokens: Record = {"input": sent - cached, "output": received, "reasoning": 0}
        tokens |= {"cache": {"read": cached, "write": 0}, "total": sent + received}
        message: Record = {
            "role": "assistant",
            "parentID": "msg_1",
            "modelID": "large",
            "mode": "build",
        }
        message |= {"providerID": "maker", "path": {"cwd": ROOT, "root": ROOT}, "tokens": tokens}
        message |= {"time": {"created": moment, "completed": moment + 900}, "cost": 0.01}
        tool, given, told = _opencode_call(turn, path_)
        times = {"start": moment, "end": moment + 500}
        state: Record = {
            "status": "completed",
            "input": given,
            "output": turn.result,
            "title": tool,
        }
        state |= {"metadata": told, "time": times}
        add(
            moment,
            message,
            {"type": "step-start", "snapshot": "0" * 40},
            {"type": "reasoning", "text": turn.thought, "time": times},
            {"type": "text", "text": turn.words, "time": times},
            {"type": "tool", "tool": tool, "callID": f"c{turn.number}", "state": state},
            {"type": "step-finish", "reason": "tool-calls", "tokens": tokens, "cost": 0.01},
        )
    database.commit()
    database.close()
    return path


def _opencode_call(turn: Turn, path: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    if turn.kind == "read":
        display = {"type": "file", "path": path, "text": turn.result, "lineStart": 1}
        display |= {"lineEnd": 9, "totalLines": 9, "truncated": False}
        return "read", {"filePath": path}, {"display": display, "truncated": False}
    if turn.kind == "run":
        told: Record = {"output": turn.result, "exit": int(turn.failed), "truncated": False}
        return "bash", {"command": turn.command, "description": "x"}, told
    if turn.kind == "search":
        return "grep", {"pattern": turn.command}, {"matches": 3, "truncated": False}
    diff = f"--- {path}\n+++ {path}\n@@ -1,9 +1,9 @@\n{_signed(turn)}"
    file = {"file": path, "before": turn.whole, "after": turn.whole, "additions": 1}
    given = {"filePath": path, "oldString": turn.before, "newString": turn.after}
    return "edit", given, {"diff": diff, "filediff": {**file, "deletions": 1}}


def openhands(folder: Path, size: int) -> Path:
    """A conversation of the SDK: a file for each event."""
    conversation = folder / "0f0e0d0c0b0a4908807060504030201f"
    (conversation / "events").mkdir(parents=True)
    state: Record = {
        "id": "0f0e0d0c-0b0a-4908-8070-60504030201f",
        "workspace": {"working_dir": ROOT},
    }
    state |= {"agent": {"llm": {"model": "maker/large", "usage_id": "agent"}, "kind": "Agent"}}
    _whole(conversation / "base_state.json", {**state, "execution_status": "finished"})
    count = 0

    def add(turn: Turn | None, kind: str, **facts: Any) -> str:
        nonlocal count
        name = f"{count:08x}-1111-4222-8333-444455556666"
        stamp = "2026-03-01T12:00:00.000000" if turn is None else turn.stamp.replace("Z", "000")
        event = {"id": name, "timestamp": stamp, **facts, "kind": kind}
        _whole(conversation / "events" / f"event-{count:05d}-{name}.json", event)
        count += 1
        return name

    asked = {"role": "user", "content": [{"type": "text", "text": "Do a lot"}]}
    add(None, "MessageEvent", source="user", llm_message=asked)
    for turn in turns(size * 55 // 100):
        path, key = f"{ROOT}/{turn.path}", f"c{turn.number}"
        edits = turn.kind in ("edit", "read")
        tool = "file_editor" if edits else "terminal"
        action: dict[str, Any] = {"command": _shell(turn), "kind": "TerminalAction"}
        if edits:
            action = {"command": "view", "path": path, "kind": "FileEditorAction"}
        if turn.kind == "edit":
            action |= {"command": "str_replace", "old_str": turn.before, "new_str": turn.after}
        call: Record = {
            "id": key,
            "name": tool,
            "arguments": json.dumps(action),
            "origin": "completion",
        }
        about = {"tool_name": tool, "tool_call_id": key}
        thought = [{"cache_prompt": False, "type": "text", "text": turn.words}]
        asked_for: Record = {
            "source": "agent",
            "thought": thought,
            "reasoning_content": turn.thought,
        }
        asked_for |= {"thinking_blocks": [], "action": action, "tool_call": call}
        name = add(turn, "ActionEvent", **asked_for, **about, llm_response_id=f"r{turn.number}")
        content = [{"cache_prompt": False, "type": "text", "text": turn.result}]
        seen: dict[str, Any] = {"content": content, "is_error": False}
        seen |= {"command": action["command"]}
        if edits:
            seen |= {"path": path, "prev_exist": True, "kind": "FileEditorObservation"}
        else:
            seen |= {"exit_code": int(turn.failed), "kind": "TerminalObservation"}
        if turn.kind == "edit":
            new = turn.whole.replace(turn.before, turn.after, 1)
            seen |= {"old_content": turn.whole, "new_content": new}
        told: Record = {"source": "environment", "observation": seen, "action_id": name}
        add(turn, "ObservationEvent", **told, **about)
    return conversation


def aider(folder: Path, size: int) -> Path:
    """Chats of 40 turns each. Answers are longer where there are no tools: 2,080 characters in the
    mean, with what is read in them; what commands print stands quoted."""
    path = folder / ".aider.chat.history.md"
    with path.open("w") as stream:
        for turn in turns(size * 80 // 100):
            if turn.number % 40 == 1:
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(turn.seconds))
                stream.write(f"\n# aider chat started at {when}\n\n> Aider v0.86.2  \n")
                stream.write("> Main model: maker/large with diff edit format  \n")
            asked = turn.words.replace("\n", "\n#### ")
            code = turn.result if turn.kind == "read" else turn.whole[:800]
            stream.write(f"\n#### {asked}  \n\n{turn.thought}\n\n```python\n{code}\n```\n\n")
            if turn.kind == "edit":
                old, new = f"{turn.before}\n=======\n{turn.after}\n", ">>>>>>> REPLACE\n```"
                stream.write(f"{turn.path}\n```\n<<<<<<< SEARCH\n{old}{new}\n\n")
            cost = "Cost: $0.0081 message, $0.01 session."
            stream.write(f"> Tokens: 2.9k sent, 70 received. {cost}  \n")
            if turn.kind == "edit":
                stream.write(f"> Applied edit to {turn.path}  \n")
            elif turn.kind != "read":
                stream.writelines(f"> {line}  \n" for line in turn.result.split("\n"))
    return path


SESSIONS: dict[str, Callable[[Path, int], Path]] = {
    "claude-code": claude_code,
    "codex": codex,
    "mini-swe-agent": mini_swe_agent,
    "swe-agent": swe_agent,
    "gemini-cli": gemini_cli,
    "aider": aider,
    "opencode": opencode,
    "cline": cline,
    "inspect": inspect,
    "atif": atif,
    "openhands": openhands,
}
"""Makes a session of about so many bytes in a folder."""
