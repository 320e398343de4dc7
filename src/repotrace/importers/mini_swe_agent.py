"""Trajectories of mini-swe-agent: `*.traj.json`, the bare list of messages of old ones included.

An action is a command; there are no other tools. Old trajectories tell no times: their steps
follow each other from the moment the file was written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repotrace.agents.mini_swe_agent import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers.building import (
    Builder,
    Result,
    Thread,
    moment_of,
    number,
    one_line,
    parts_text,
    text_of,
    tolerant,
)
from repotrace.importers.lines import Progress, ignore, whole_json
from repotrace.records.events import Event
from repotrace.records.run import RunStatus

NAME = "mini-swe-agent"

type Record = dict[str, Any]

_COMMAND = re.compile(r"```(?:mswea_bash_command|bash|sh)\s*\n(.*?)\n?```", re.DOTALL)
_RETURNED = re.compile(
    r"<returncode>(-?\d+)</returncode>\s*<output>\n?(.*?)\n?</output>", re.DOTALL
)
_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
_OLD_SUBMIT = "MICRO_SWE_AGENT_FINAL_OUTPUT"
_TICK = 1_000_000
"""Nanoseconds between steps whose moments are not known."""


def sniff(head: bytes, path: Path) -> bool:
    """Whether it is a trajectory by its marks, or a list of messages with commands in them."""
    start = head.lstrip()
    if b'"mini_version"' in head or b'"mini-swe-agent-1' in head:
        return start.startswith(b"{")
    if start.startswith(b"{"):
        return path.name.endswith(".traj.json") and b'"instance_cost"' in head
    return start.startswith(b"[") and b'"role"' in head and b"```" in head and _has_marks(head)


def _has_marks(head: bytes) -> bool:
    marks = (b"mswea_bash_command", b"<returncode>", b"SUBMIT_FINAL_OUTPUT", b"SWE_AGENT_FINAL")
    return any(mark in head for mark in marks)


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a trajectory."""
    value = whole_json(path, progress=progress)
    info: Record = {}
    messages = value
    if isinstance(value, dict):
        messages = value.get("messages")
        info = _object(value.get("info"))
    listed = messages if isinstance(messages, list) else []
    found = [message for message in listed if isinstance(message, dict)]
    if not any(message.get("role") == "assistant" for message in found):
        raise ImportFailed(f"{path} holds no answers of a model.")
    yield from _Trajectory(path, info, found).events()


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


class _Trajectory:
    def __init__(self, path: Path, info: Record, messages: list[Record]) -> None:
        self._info, self._messages = info, messages
        self._config = _object(info.get("config"))
        times = [_time(message) for message in messages]
        first = next((time for time in times if time is not None), None)
        self._timed = first is not None
        self._builder = Builder(
            NAME, _identity(path, messages, timed=self._timed), AGENT, timed=self._timed
        )
        self._time = first if first is not None else _written(path)
        self._thread = Thread()
        self._pending: deque[tuple[str, str]] = deque()
        """Calls that wait for their observation, with their commands."""
        self._submission = text_of(info.get("submission"))
        self._exit_status = text_of(info.get("exit_status"))

    def events(self) -> Iterator[Event]:
        builder = self._builder
        environment = _object(self._config.get("environment"))
        cwd = environment.get("cwd")
        version = self._info.get("mini_version")
        yield builder.started(
            self._time,
            cwd=cwd if isinstance(cwd, str) else "",
            agent_version=version if isinstance(version, str) else None,
        )
        for index, message in enumerate(self._messages):
            asked_at = self._time
            time = _time(message)
            self._time = max(self._time + (0 if self._timed else _TICK), time or 0)
            role = message.get("role")
            if role == "assistant":
                answer = self._answer(index, message, asked_at)
                yield from tolerant(builder, str(index), "answer", message, answer)
            elif role == "exit":
                extra = _object(message.get("extra"))
                self._exit_status = text_of(extra.get("exit_status")) or self._exit_status
                self._submission = text_of(extra.get("submission")) or self._submission
            else:
                told = self._told(index, message)
                yield from tolerant(builder, str(index), str(role), message, told)
        yield from self._end()

    def _answer(self, index: int, message: Record, asked_at: int) -> Iterator[Event]:
        builder, extra = self._builder, _object(message.get("extra"))
        text = parts_text(message.get("content"))
        key = f"answer {index}"
        begun = builder.asking(key, asked_at, self._thread)
        parts: list[Record] = [{"type": "text", "text": text}] if text else []
        step_id = ""
        for place, (call_id, command) in enumerate(_actions(message, extra, index)):
            arguments = {"command": command}
            parts.append(
                {"type": "tool_call", "id": call_id, "name": "bash", "arguments": arguments}
            )
            words = _COMMAND.sub("", text).strip()
            time = self._time + place * (_TICK // 1000)
            yield from builder.call(call_id, "bash", arguments, time, reason=words)
            step_id = step_id or builder.step_of(call_id) or ""
            self._pending.append((call_id, command))
        if not step_id:
            step_id = builder.step_named(key, asked_at)
            yield from builder.answered(key, asked_at, self._time, text)
        answer = {"role": "assistant", "content": parts}
        self._thread.say(answer)
        response = _object(extra.get("response"))
        cost = extra.get("cost")
        model = response.get("model") or _object(self._config.get("model")).get("model_name")
        yield builder.asked(
            key,
            asked_at,
            begun,
            step_id=step_id,
            external_id=response.get("id") if isinstance(response.get("id"), str) else None,
            model=model if isinstance(model, str) else None,
            response_message=answer,
            response=text or None,
            cost_usd=str(cost) if isinstance(cost, int | float) else None,
            duration=(self._time - asked_at) / 1e9 if self._timed else None,
            **_tokens(_object(response.get("usage"))),
        )

    def _told(self, index: int, message: Record) -> Iterator[Event]:
        builder, extra = self._builder, _object(message.get("extra"))
        text = parts_text(message.get("content"))
        role = str(message.get("role") or "user")
        call_id = message.get("tool_call_id")
        if self._pending and role != "system":
            pending = dict(self._pending)
            known = call_id if isinstance(call_id, str) and call_id in pending else None
            name = known or self._pending[0][0]
            self._pending = deque(item for item in self._pending if item[0] != name)
            shown = {"type": "tool_result", "id": name, "content": text}
            self._thread.say({"role": "tool", "content": [shown]})
            yield from builder.result(name, self._time, self._observed(text, extra, pending[name]))
            return
        self._thread.say({"role": role, "content": text})
        if role != "user":
            return
        if index <= 1:
            yield builder.updated(self._time, task=self._task(text))
        elif extra.get("interrupt_type") or "format" in one_line(text).lower()[:60]:
            yield builder.log(f"told {index}", self._time, "warning", text)
        else:
            yield from builder.prompt(f"told {index}", self._time, text)

    def _observed(self, text: str, extra: Record, command: str) -> Result:
        code, output = _code(extra.get("returncode")), extra.get("raw_output")
        match = _RETURNED.search(text)
        if code is None and match is not None:
            code = int(match[1])
        submits = _SUBMIT in command or _OLD_SUBMIT in command
        if submits and code is None and text.startswith("diff --git"):
            self._submission = self._submission or text
        problem = text_of(extra.get("exception_info"))
        if submits and (code in (None, -1)):
            return Result(text, refused=True)  # it ends the run and is not carried out
        shown = output if isinstance(output, str) else match[2] if match else text
        timed_out = "timed out" in problem.lower() or "timed out" in text.lower()[:200]
        return Result(
            text,
            failed=bool(problem) or (code is None and timed_out),
            exit_code=None if problem and code == -1 else code,
            stdout=shown,
            exact=isinstance(output, str),
            termination="timeout" if timed_out and code in (None, -1) else None,
        )

    def _task(self, text: str) -> str:
        """The task within the prompt, where the template tells what is around it."""
        template = text_of(_object(self._config.get("agent")).get("instance_template"))
        if not template:
            template = "Please solve this issue: {{task}}\n\nYou can execute bash commands"
        before, found, after = re.sub(r"\{\{\s*task\s*\}\}", "{{task}}", template).partition(
            "{{task}}"
        )
        if found and text.startswith(before):
            end = text.find(re.split(r"\{[{%]", after)[0].rstrip() or "\0", len(before))
            if end >= 0:
                return text[len(before) : end].strip()
        return text

    def _end(self) -> Iterator[Event]:
        builder = self._builder
        for call_id, command in self._pending:
            if _SUBMIT in command or _OLD_SUBMIT in command:
                yield from builder.result(
                    call_id, self._time, Result(self._submission, refused=True)
                )
        stats = _object(self._info.get("model_stats"))
        told: Record = {}
        if self._submission.strip():
            told["submission"] = self._submission
        if self._exit_status:
            told["exit_status"] = self._exit_status
        if isinstance(stats.get("instance_cost"), int | float):
            told["session_cost_usd"] = str(stats["instance_cost"])
        if told:
            yield builder.updated(self._time, attributes=told)
        good = self._exit_status in ("Submitted", "")
        status = RunStatus.COMPLETED if good else RunStatus.FAILED
        yield from builder.finished(status, None if good else self._exit_status)


def _code(value: Any) -> int | None:
    """An exit code, which may be negative."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(message: Record) -> int | None:
    return moment_of(_object(message.get("extra")).get("timestamp"))


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // _TICK * _TICK
    except OSError:
        return 0


def _identity(path: Path, messages: list[Record], *, timed: bool) -> str:
    """A name for the run: the file has none. It depends on how the run began."""
    begin = json.dumps(messages[:3], sort_keys=True, default=str)
    name = "" if timed else path.name
    return hashlib.sha256(f"{name}\0{begin}".encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _actions(message: Record, extra: Record, index: int) -> Iterator[tuple[str, str]]:
    """The commands of an answer, with the ids of their calls."""
    actions = extra.get("actions")
    if isinstance(actions, list):
        for place, action in enumerate(actions):
            if isinstance(action, dict) and isinstance(action.get("command"), str):
                name = action.get("tool_call_id")
                yield name if isinstance(name, str) else f"{index}.{place}", action["command"]
        return
    calls = message.get("tool_calls")
    for place, call in enumerate(calls if isinstance(calls, list) else ()):
        function = _object(_object(call).get("function"))
        try:
            given = json.loads(text_of(function.get("arguments")))
        except (ValueError, RecursionError):
            given = None
        if isinstance(given, dict) and isinstance(given.get("command"), str):
            yield text_of(call.get("id")) or f"{index}.{place}", given["command"]
    if not calls:
        found = _COMMAND.findall(parts_text(message.get("content")))
        if len(found) == 1:
            yield f"{index}.0", found[0]


def _tokens(usage: Record) -> dict[str, int | None]:
    told = _object(usage.get("prompt_tokens_details"))
    detail = _object(usage.get("completion_tokens_details"))
    return {
        "input_tokens": number(usage.get("prompt_tokens", usage.get("input_tokens"))),
        "output_tokens": number(usage.get("completion_tokens", usage.get("output_tokens"))),
        "cache_read_tokens": number(told.get("cached_tokens")),
        "reasoning_tokens": number(detail.get("reasoning_tokens")),
    }
