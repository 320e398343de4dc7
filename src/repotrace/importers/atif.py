"""Trajectories in the Agent Trajectory Interchange Format, `ATIF-v1.x`, of any agent.

The tools of an agent that we know by name mean what they mean in its own sessions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from repotrace.agents import AGENTS, Action, Agent, Tool
from repotrace.agents import agent as agent_named
from repotrace.agents.atif import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers.building import Builder, Call, Events, Result, Thread, tolerant
from repotrace.importers.claims import claimed, spoken
from repotrace.importers.effects import normalised
from repotrace.importers.lines import Progress, ignore, looks_like_object, whole_json
from repotrace.importers.programs import program
from repotrace.importers.shell import Opaque, simple_commands
from repotrace.importers.values import moment_of, number, parts_text, script_of, text_of
from repotrace.records.events import Event
from repotrace.records.run import StepType

NAME = "atif"

type Record = dict[str, Any]

_EXIT = re.compile(
    r"\A(?:Error: )?(?:\[?[Ee]xit code:? |<returncode>|Process exited with code )(-?\d+)"
)
_PREFIX = re.compile(r"\A(?:Error: )?Exit code \d+\n")
_FAILED = re.compile(r"\A(?:<tool_use_error>|Error\b|ERROR\b|\[error\])")
_CODES = ("exit_code", "exitCode", "returncode", "return_code")
_LASTING = frozenset(["bash_command", "execute_bash"])
"""Shells in which a `cd` lasts until the next command."""
_DEEPEST = 20
"""Trajectories of sub-agents within each other."""
_TICK = 1_000_000


def sniff(head: bytes, path: Path) -> bool:
    """Whether it says what it is."""
    del path
    return looks_like_object(head, b"schema_version") and b'"ATIF-v' in head


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a trajectory, those of sub-agents within it included."""
    value = whole_json(path, progress=progress)
    steps = value.get("steps") if isinstance(value, dict) else None
    if not isinstance(steps, list) or not any(isinstance(step, dict) for step in steps):
        raise ImportFailed(f"{path} holds no steps.")
    yield from _Trajectory(path, value).events()


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Record]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


class _Trajectory:
    def __init__(self, path: Path, told: Record) -> None:
        self._told = told
        self._agent = _object(told.get("agent"))
        times = [moment_of(step.get("timestamp")) for step in _objects(told.get("steps"))]
        first = next((time for time in times if time is not None), None)
        self._timed = first is not None
        self._builder = Builder(
            NAME, _identity(told), _agent(self._agent.get("name")), timed=self._timed
        )
        self._time = first if first is not None else _written(path)
        self._parts: dict[str, Record] = {}
        """Trajectories of sub-agents that were not told yet, by their names."""
        for part in _objects(told.get("subagent_trajectories")):
            name = part.get("trajectory_id") or part.get("session_id") or f"{len(self._parts)}"
            self._parts[str(name)] = part
        self._seen: dict[str, int] = {}
        """How often each name came."""

    def events(self) -> Events:
        builder, told = self._builder, self._told
        extra = _object(self._agent.get("extra"))
        yield builder.started(
            self._time,
            cwd=_first(extra.get("cwds")) or _first(extra.get("cwd")) or "",
            agent_version=_text(self._agent.get("version")),
            attributes=_attributes(told, extra),
        )
        yield from self._steps(told, "", "", 0)
        for name in list(self._parts):
            part = self._parts.pop(name, None)
            if part is not None:
                yield from self._steps(part, f"{name} ", "", 1)
        yield from builder.finished()

    def _steps(self, told: Record, prefix: str, parent_id: str, depth: int) -> Events:
        thread = Thread()
        model = _object(told.get("agent")).get("model_name")
        for index, step in enumerate(_objects(told.get("steps"))):
            asked_at = self._time
            time = moment_of(step.get("timestamp"))
            self._time = max(self._time, time or self._time + _TICK)
            key = self._unused(f"{prefix}step {step.get('step_id') or index + 1}")
            source = step.get("source")
            if step.get("is_copied_context") is True:
                # It was told by the trajectory that this one continues.
                thread.say({"role": _ROLES.get(str(source), "user"), "content": _said(step)})
            elif source == "agent":
                made = self._acted(key, step, asked_at, thread, model, parent_id, depth)
                yield from tolerant(self._builder, key, "agent step", step, made)
            else:
                made = self._heard(key, step, str(source), thread, parent_id)
                yield from tolerant(self._builder, key, "step", step, made)

    def _heard(self, key: str, step: Record, source: str, thread: Thread, parent_id: str) -> Events:
        """What a user or the system said."""
        builder, text = self._builder, _said(step)
        role = _ROLES.get(source)
        if role is None:
            builder.damage.count(f"source {source}")
            yield from builder.unknown(key, self._time, f"source {source}", step)
            return
        results = _objects(_object(step.get("observation")).get("results"))
        shown = "\n".join(filter(None, (parts_text(one.get("content")) for one in results)))
        thread.say({"role": role, "content": "\n".join(filter(None, (text, shown)))})
        if source == "user" and text and not parent_id:
            yield from builder.prompt(key, self._time, text)
        elif source == "system" and shown:
            yield builder.log(key, self._time, "info", shown)

    # --- What the agent did -----------------------------------------------------------------

    def _acted(
        self,
        key: str,
        step: Record,
        asked_at: int,
        thread: Thread,
        model: Any,
        parent_id: str,
        depth: int,
    ) -> Events:
        builder = self._builder
        answers = step.get("llm_call_count") != 0
        begun = builder.asking(key, asked_at, thread) if answers else {}
        text, thoughts = _said(step), _text(step.get("reasoning_content"))
        parts: list[Record] = [{"type": "thinking", "text": thoughts}] if thoughts else []
        parts += [{"type": "text", "text": text}] if text else []
        names: dict[str, str] = {}
        step_id = ""
        for place, call in enumerate(_objects(step.get("tool_calls"))):
            told = text_of(call.get("tool_call_id")) or f"{key} {place}"
            name = names[told] = self._unused(f"{key} {told}" if parent_id else told)
            given = call.get("arguments")
            tool = spoken(str(call.get("function_name")), given, builder.agent.tools)
            reason = text or thoughts or ""
            yield from builder.call(
                name, tool, given, self._time, reason=reason, parent_id=parent_id
            )
            step_id = step_id or builder.step_of(name) or ""
            shaped = {"type": "tool_call", "id": told, "name": call.get("function_name")}
            parts.append(shaped | {"arguments": given})
        answer: Record = {"role": "assistant", "content": parts}
        thread.say(answer)
        if not step_id and text and not answers:
            yield from builder.moment(
                key, self._time, StepType.NOTE, text, input_context=text, parent_id=parent_id
            )
        elif not step_id and answers:
            step_id = builder.step_named(key, asked_at)
            words = text or thoughts or ""
            yield from builder.answered(key, asked_at, self._time, words, parent_id=parent_id)
        if answers:
            yield builder.asked(
                key,
                asked_at,
                begun,
                step_id=step_id,
                model=_text(step.get("model_name")) or _text(model),
                response_message=answer,
                response=text or None,
                duration=(self._time - asked_at) / 1e9 if self._timed else None,
                **_usage(step.get("metrics")),
            )
        yield from self._observed(key, step, names, thread, step_id, depth)

    def _unused(self, name: str) -> str:
        count = self._seen[name] = self._seen.get(name, 0) + 1
        # No name of a transcript holds a line end.
        return name if count == 1 else f"{name}\n{count}"

    def _observed(
        self,
        key: str,
        step: Record,
        names: dict[str, str],
        thread: Thread,
        step_id: str,
        depth: int,
    ) -> Events:
        builder, waiting = self._builder, dict(names)
        for place, told in enumerate(_objects(_object(step.get("observation")).get("results"))):
            call_id = told.get("source_call_id")
            if call_id not in waiting:
                # Agents without calls by name answer in the order of what they did.
                call_id = next(iter(waiting), None) if call_id is None else call_id
            name = waiting.pop(str(call_id), None)
            text = parts_text(told.get("content")) or ""
            opened = builder.step_of(name) if name else None
            yield from self._handed_on(told, opened or step_id, depth)
            if name is None:
                thread.say({"role": "user", "content": text})
                if text:
                    yield builder.log(f"{key} seen {place}", self._time, "info", text, step=step_id)
                continue
            shown = {"type": "tool_result", "id": call_id, "content": text}
            thread.say({"role": "tool", "content": [shown]})
            call = builder.opened(name)
            yield from builder.result(name, self._time, _result(call, text, told))
            if call is not None and call.name in _LASTING:
                builder.cwd = _moved(call, builder.cwd)
        for name in waiting.values():
            if builder.is_open(name) and step.get("observation") is not None:
                yield from builder.result(name, self._time, Result())

    def _handed_on(self, told: Record, parent_id: str, depth: int) -> Events:
        """What the sub-agents did that a result refers to."""
        for ref in _objects(told.get("subagent_trajectory_ref")):
            name = str(ref.get("trajectory_id") or ref.get("session_id"))
            part = self._parts.pop(name, None)
            if part is not None and depth < _DEEPEST:
                yield from self._steps(part, f"{name} ", parent_id, depth + 1)
            elif part is None and ref.get("trajectory_path"):
                yield from self._builder.moment(
                    self._unused(f"elsewhere {name}"),
                    self._time,
                    StepType.DECISION,
                    f"What a sub-agent did is in {ref['trajectory_path']}",
                    parent_id=parent_id,
                )


_ROLES = {"user": "user", "system": "system", "agent": "assistant"}


def _agent(name: Any) -> Agent:
    """The agent with the tools that it has, as far as they are known."""
    if not isinstance(name, str) or not name:
        return AGENT
    tools: Mapping[str, Tool] = AGENT.tools
    if name in AGENTS:
        tools = {**AGENT.tools, **agent_named(name).tools}
    return AGENT._replace(name=name, tools=tools)


def _written(path: Path) -> int:
    """When the file was written, for trajectories that tell no times."""
    try:
        return path.stat().st_mtime_ns // _TICK * _TICK
    except OSError:
        return 0


def _moved(call: Call, cwd: str) -> str:
    """The folder of a shell that lives on, after a command."""
    try:
        commands = simple_commands(script_of(call.arguments.get(call.tool.command)))
    except Opaque:
        return cwd
    for command in commands:
        argv = command.argv
        if program(argv) == "cd" and len(argv) == 2 and not command.dynamic and argv[1] != "-":
            cwd = normalised(cwd, argv[1])
    return cwd


def _identity(told: Record) -> str:
    for name in ("session_id", "trajectory_id"):
        if isinstance(told.get(name), str) and told[name]:
            return str(told[name])
    begin = json.dumps([told.get("agent"), told.get("steps", [])[:2]], sort_keys=True, default=str)
    return hashlib.sha256(begin.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _attributes(told: Record, extra: Record) -> Record:
    found: Record = {}
    if isinstance(told.get("notes"), str):
        found["notes"] = told["notes"]
    branch = _first(extra.get("git_branches"))
    if branch:
        found["git_branch"] = branch
    totals = _object(told.get("final_metrics"))
    if isinstance(totals.get("total_cost_usd"), int | float):
        found["session_cost_usd"] = str(totals["total_cost_usd"])
    for name in ("total_prompt_tokens", "total_completion_tokens"):
        if number(totals.get(name)) is not None:
            found[name] = number(totals.get(name))
    return found


def _first(value: Any) -> str | None:
    if isinstance(value, list):
        value = value[0] if value else None
    return _text(value)


def _said(step: Record) -> str:
    return parts_text(step.get("message"))


def _result(call: Call | None, text: str, told: Record) -> Result:
    """What came back from a call; its exit code where the text or the extras tell one."""
    extra = _object(told.get("extra"))
    facts = {**_object(extra.get("metadata")), **extra}
    failed = facts.get("is_error") is True or facts.get("success") is False
    code = next((facts[name] for name in _CODES if isinstance(facts.get(name), int)), None)
    if call is not None and call.tool.action is Action.RUN:
        match = _EXIT.search(text)
        code = int(match[1]) if code is None and match else code
        return Result(text, failed=failed, exit_code=code, stdout=_PREFIX.sub("", text))
    failed = failed or _FAILED.search(text) is not None
    operations = [] if failed or call is None else claimed(call.tool, call.arguments, call.cwd)
    return Result(text, failed=failed, operations=operations)


def _usage(metrics: Any) -> dict[str, Any]:
    """The tokens of a step; cached ones are among those of the prompt."""
    told = _object(metrics)
    extra = _object(told.get("extra"))
    cost = told.get("cost_usd")
    return {
        "input_tokens": number(told.get("prompt_tokens")),
        "output_tokens": number(told.get("completion_tokens")),
        "cache_read_tokens": number(told.get("cached_tokens")),
        "cache_write_tokens": number(extra.get("cache_creation_input_tokens")),
        "reasoning_tokens": number(extra.get("reasoning_tokens")),
        "cost_usd": str(cost) if isinstance(cost, int | float) else None,
    }
