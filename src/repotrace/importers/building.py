"""What all importers share: calls of tools and models become events with derived ids.

The ids depend on what was read alone, so that importing twice gives the same rows.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from repotrace.agents import OTHER, Action, Agent, Tool
from repotrace.errors import ImportFailed
from repotrace.importers import effects, programs, testing
from repotrace.importers.lines import Damage
from repotrace.importers.values import (
    Data,
    blob_id,
    moment_of,
    number,
    one_line,
    operation,
    parts_text,
    script_of,
    text_of,
)
from repotrace.records.events import Event, Kind, derived_id, derived_run_id
from repotrace.records.run import TIMES_UNTOLD, RunOutcome, RunStatus, StepStatus, StepType

__all__ = [
    "MALFORMED",
    "Builder",
    "Call",
    "Data",
    "Events",
    "Result",
    "Thread",
    "below",
    "blob_id",
    "moment_of",
    "number",
    "one_line",
    "operation",
    "parts_text",
    "script_of",
    "text_of",
    "tolerant",
]

type Events = Iterator[Event]

_STEP_TYPES = {
    Action.EDIT: StepType.EDIT,
    Action.WRITE: StepType.EDIT,
    Action.PATCH: StepType.EDIT,
    Action.RUN: StepType.COMMAND,
    Action.PLAN: StepType.PLANNING,
    Action.ASK: StepType.DECISION,
}
_READ_KINDS = {Action.READ: "read", Action.SEARCH: "search", Action.LIST: "list"}
_ARGUMENT = 2_000
"""Characters of an argument of a tool above which only their number is kept with the step; the
call is in the conversation as a whole."""


class Result(NamedTuple):
    """What came back from a tool."""

    text: str = ""
    failed: bool = False
    exit_code: int | None = None
    """None where the transcript does not tell."""
    stdout: str | None = None
    """The output of a command; None: it is in `text`."""
    stderr: str = ""
    exact: bool = False
    """The output is byte for byte what the command printed."""
    duration: float | None = None
    termination: str | None = None
    """A `Termination`, where it is not `exited`."""
    background: bool = False
    refused: bool = False
    """The tool was not carried out."""
    operations: Sequence[Data] = ()
    """See `operation`."""
    reads: Sequence[Data] = ()
    """More than the arguments of the tool tell; replaces what they tell."""
    metadata: Mapping[str, Any] = {}


@dataclass(slots=True)
class Call:
    """A call of a tool whose result is awaited."""

    step_id: str
    name: str
    tool: Tool
    arguments: Any
    time: int
    cwd: str
    key: int
    attempt: int


class _Attempt(NamedTuple):
    step_id: str
    attempt: int
    failed: bool


@dataclass(slots=True)
class Thread:
    """A conversation as it grows: what each call adds to the one before."""

    previous: str | None = None
    count: int = 0
    """Messages that the next call will have been shown."""
    kept: int = 0
    """How many of the messages of the call before it still begins with."""
    added: list[Data] = field(default_factory=list)

    def say(self, message: Data) -> None:
        """Add a message for the next call."""
        self.added.append(message)
        self.count += 1

    def rewind(self, count: int) -> None:
        """Go back to the first `count` messages."""
        if count >= self.count:
            return
        if count >= self.kept:
            del self.added[count - self.kept :]
        else:
            self.kept = count
            self.added.clear()
        self.count = count

    def asked(self, call_id: str) -> Data:
        """The messages of a call, as `LLMData` has them."""
        facts: Data = {"messages": self.added}
        if self.previous is not None:
            facts |= {"previous_id": self.previous, "kept": self.kept}
        self.previous, self.kept, self.added = call_id, self.count, []
        return facts


class Builder:
    """Makes the events of one run."""

    def __init__(
        self, source: str, source_id: str, agent: Agent, *, root_id: str = "", timed: bool = True
    ) -> None:
        """`root_id` names the run where several sessions make one. `timed` is False where the
        moments of the transcript are made up; they are no part of ids then."""
        self.source, self.source_id, self.agent = source, source_id, agent
        self.run_id = derived_run_id(source, root_id or source_id)
        self.cwd = ""
        self.damage = Damage()
        self.time = 0
        """Of the newest event."""
        self.joined: list[str] = []
        """Sessions of sub-agents that are told within this run; none has a run of its own."""
        self._timed = timed
        self._calls: dict[str, Call] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._tests = testing.Tests()
        self._has_task = False

    def id(self, time: int, *names: str) -> str:
        """The id of what is known by `names` in this run."""
        return derived_id(time if self._timed else 0, self.run_id, *names)

    def event(self, kind: Kind, time: int, data: Data, *names: str) -> Event:
        """One event. Together with the kind, `names` must be its own."""
        self.time = max(self.time, time)
        name = self.id(time, kind, *names)
        return {
            "id": name,
            "run": self.run_id,
            "kind": kind,
            "time": time,
            "data": data,
            "raw": True,
        }

    # --- The run ----------------------------------------------------------------------------

    def started(self, time: int, **facts: Any) -> Event:
        """The beginning. `facts` are those of `RunData`; `cwd` is remembered."""
        self.cwd = facts.pop("cwd", None) or self.cwd
        known = {name: fact for name, fact in facts.items() if fact is not None}
        data: Data = {
            "source": self.source,
            "source_id": self.source_id,
            "agent": self.agent.name,
            **({"workspace": self.cwd} if self.cwd else {}),
            **known,
        }
        self._has_task = self._has_task or "task" in data
        return self.event(Kind.RUN_STARTED, time, data, self.source_id)

    def updated(self, time: int, **facts: Any) -> Event:
        """More facts about the run."""
        return self.event(Kind.RUN_UPDATED, time, facts, *sorted(facts))

    def prompt(self, key: str, time: int, text: str) -> Events:
        """What a person said: the task if it is the first, a step `note` otherwise."""
        if not self._has_task:
            self._has_task = True
            yield self.updated(time, task=text)
            return
        facts: Data = {"input_context": text, "metadata": {"role": "user"}}
        yield from self.moment(key, time, StepType.NOTE, f"User: {one_line(text)}", **facts)

    def finished(self, status: str = RunStatus.COMPLETED, error: str | None = None) -> Events:
        """The end, as far as the transcript goes."""
        time = self.time
        for name, call in list(self._calls.items()):
            data = {"id": call.step_id, "status": StepStatus.INTERRUPTED}
            yield self.event(Kind.STEP_ENDED, time, data, name, "interrupted")
        self._calls.clear()
        told: Data = {"attributes": {"import": {"format": self.source, **self.damage.facts()}}}
        if not self._timed:
            told["attributes"]["import"]["times"] = TIMES_UNTOLD
        outcome = self._tests.outcome
        if outcome is not None:
            told["outcome"] = RunOutcome.PASSED if outcome else RunOutcome.FAILED
        if self.joined:
            joined: Data = {"attributes": {"sub_sessions": self.joined}}
            yield self.event(Kind.RUN_UPDATED, time, joined, self.source_id, "joined")
        if self.damage.broken:
            lost = {"count": self.damage.broken, "reason": "unreadable lines of the transcript"}
            event = self.event(Kind.LOST, time, lost)
            # One row, however far the transcript had grown when it was read.
            yield {**event, "id": derived_id(0, self.run_id, "lost lines")}
        yield self.event(Kind.RUN_UPDATED, time, told, self.source_id, "import")
        data = {"status": status, **({"error": error} if error else {})}
        yield self.event(Kind.RUN_ENDED, time, data, self.source_id)

    # --- Tools ------------------------------------------------------------------------------

    def path(self, path: str) -> str:
        """`path` as the tools of the agent mean it."""
        return effects.normalised(self.cwd, path)

    def call(
        self,
        call_id: str,
        name: str,
        arguments: Any,
        time: int,
        *,
        reason: str = "",
        parent_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Events:
        """A tool is called: a step begins."""
        tool = self.agent.tools.get(name, OTHER)
        given = arguments if isinstance(arguments, dict) else {"input": arguments}
        step_id = self.id(time, "step", call_id)
        key = hash(self._goal(name, tool, given))
        before = self._attempts.get(key)
        retried = before if before is not None and before.failed else None
        attempt = retried.attempt + 1 if retried else 1
        self._calls[call_id] = Call(step_id, name, tool, given, time, self.cwd, key, attempt)
        data: Data = {
            "id": step_id,
            "external_id": call_id,
            "step_type": self._step_type(tool, given),
            "description": self._description(name, tool, given),
            "metadata": {"tool": name, "arguments": _short_arguments(given), **(metadata or {})},
        }
        if reason.strip():
            data["reason"] = reason.strip()
        if parent_id:
            data["parent_id"] = parent_id
        if retried:
            data |= {"retry_of": retried.step_id, "attempt": attempt}
        yield self.event(Kind.STEP_STARTED, time, data, call_id)

    def is_open(self, call_id: str) -> bool:
        """Whether the result of a call is awaited."""
        return call_id in self._calls

    def step_of(self, call_id: str) -> str | None:
        """The step of a call whose result is awaited."""
        call = self._calls.get(call_id)
        return call.step_id if call else None

    def opened(self, call_id: str) -> Call | None:
        """The call whose result is awaited."""
        return self._calls.get(call_id)

    def result(self, call_id: str, time: int, result: Result) -> Events:
        """A tool has answered: its step ends. One for a call that was not heard of is unknown."""
        call = self._calls.pop(call_id, None)
        if call is None:
            self.damage.count("result without a call")
            yield from self.unknown(f"result {call_id}", time, "tool result", result.text)
            return
        failed = result.failed or (
            call.tool.action is Action.RUN and result.exit_code not in (None, 0)
        )
        self._attempts[call.key] = _Attempt(call.step_id, call.attempt, failed)
        yield from self._reads(call_id, call, time, result)
        yield from self._operations(call_id, call, time, result)
        ended: Data = {"id": call.step_id, "output_result": result.text}
        if call.tool.action is Action.RUN and not result.refused:
            yield from self._command(call_id, call, time, result)
            del ended["output_result"]
        if failed:
            ended["status"] = StepStatus.FAILED
            ended["error"] = _why(result)
        if result.metadata:
            ended["metadata"] = dict(result.metadata)
        yield self.event(Kind.STEP_ENDED, time, ended, call_id)

    def _reads(self, call_id: str, call: Call, time: int, result: Result) -> Events:
        if result.refused or (result.failed and call.tool.action is not Action.RUN):
            return
        found = list(result.reads) or self._told_reads(call, result)
        for place, read in enumerate(found):
            data = {"step_id": call.step_id, **read}
            yield self.event(Kind.FILE_READ, time, data, call_id, str(place))

    def _told_reads(self, call: Call, result: Result) -> list[Data]:
        """The reads that the arguments of the call tell of."""
        tool, given = call.tool, call.arguments
        if tool.action is Action.RUN:
            found = effects.readings(script_of(given.get(tool.command)), call.cwd)
            return [_read_of(reading, result) for reading in found]
        kind = _READ_KINDS.get(tool.action)
        path = given.get(tool.path) if tool.path else None
        if kind is None or not isinstance(path, str) or not path:
            return []
        read: Data = {"file_path": effects.normalised(call.cwd, path), "kind": kind}
        first, count = given.get(tool.first), given.get(tool.lines)
        if isinstance(first, int) and first > 0:
            read["first_line"] = first
        if isinstance(count, int) and count > 0:
            read["last_line"] = read.setdefault("first_line", 1) + count - 1
        return [read]

    def _operations(self, call_id: str, call: Call, time: int, result: Result) -> Events:
        for place, change in enumerate(result.operations):
            data = {"step_id": call.step_id, **change}
            yield self.event(Kind.FILE_OPERATION, time, data, call_id, str(place))

    def _command(self, call_id: str, call: Call, time: int, result: Result) -> Events:
        script = script_of(call.arguments.get(call.tool.command))
        command_id = self.id(call.time, "command", call_id)
        stdout = result.text if result.stdout is None else result.stdout
        command: Data = {"script": script, "cwd": call.cwd, "stdout": stdout}
        if result.stderr:
            command["stderr"] = result.stderr
        if result.duration is not None:
            command["duration"] = result.duration
        if result.termination is not None:
            command["termination"] = result.termination
        elif result.exit_code is not None:
            command["exit_code"] = result.exit_code
        output = f"{stdout}\n{result.stderr}" if result.stderr else stdout
        run = self._tests.read(script, output, result.exit_code)
        data: Data = {"id": command_id, "step_id": call.step_id, "command": command}
        data |= {"is_test": run is not None, "background": result.background}
        yield self.event(Kind.COMMAND, call.time, data, call_id)
        for outcome in run or ():
            facts = {"step_id": call.step_id, "command_id": command_id, **outcome}
            yield self.event(Kind.TEST, time, facts, call_id, str(outcome["node_id"]))

    def _goal(self, name: str, tool: Tool, given: Mapping[str, Any]) -> tuple[str, str]:
        if tool.action is Action.RUN:
            return "run", programs.command_key(script_of(given.get(tool.command)))
        if tool.path and isinstance(given.get(tool.path), str):
            return name, self.path(given[tool.path])
        return name, json.dumps(given, sort_keys=True, default=str)

    def _step_type(self, tool: Tool, given: Mapping[str, Any]) -> str:
        if tool.action is Action.RUN and programs.is_test_command(
            script_of(given.get(tool.command))
        ):
            return StepType.TEST
        return _STEP_TYPES.get(tool.action, StepType.TOOL)

    def _description(self, name: str, tool: Tool, given: Mapping[str, Any]) -> str:
        if tool.action is Action.RUN:
            return one_line(script_of(given.get(tool.command))) or name
        words = [self._shown(given.get(tool.path)) if tool.path else "", ""]
        words[1] = one_line(text_of(given.get(tool.title))) if tool.title else ""
        return one_line(" ".join([name, *(word for word in reversed(words) if word)]))

    def _shown(self, path: Any) -> str:
        if not isinstance(path, str) or not self.cwd:
            return text_of(path)
        if path == self.cwd:
            return ""
        inside = path.startswith(self.cwd.rstrip("/") + "/")
        return posixpath.relpath(path, self.cwd) if inside else path

    # --- Other steps ------------------------------------------------------------------------

    def moment(self, key: str, time: int, step_type: str, description: str, **facts: Any) -> Events:
        """A step that begins and ends at once."""
        step_id = self.id(time, "step", key)
        data = {"id": step_id, "step_type": step_type, "description": one_line(description)}
        yield self.event(Kind.STEP_STARTED, time, data | facts, key)
        yield self.event(Kind.STEP_ENDED, time, {"id": step_id}, key)

    def answered(self, key: str, time: int, end: int, text: str, *, parent_id: str = "") -> Events:
        """A step of a model call that called no tool; `step_named` tells its id."""
        step_id = self.step_named(key, time)
        data: Data = {"id": step_id, "step_type": StepType.LLM, "output_result": text}
        data["description"] = one_line(text) or "(no words)"
        if parent_id:
            data["parent_id"] = parent_id
        yield self.event(Kind.STEP_STARTED, time, data, key)
        yield self.event(Kind.STEP_ENDED, end, {"id": step_id}, key)

    def step_named(self, key: str, time: int) -> str:
        """The id of the step that `moment` and `answered` make."""
        return self.id(time, "step", key)

    def unknown(self, key: str, time: int, kind: str, raw: Any) -> Events:
        """A record that could not be read. The caller counts it in `damage`."""
        text = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, default=str)
        facts = {"output_result": text, "metadata": {"raw_type": kind}}
        yield from self.moment(key, time, StepType.UNKNOWN, f"Unknown record: {kind}", **facts)

    def log(
        self,
        key: str,
        time: int,
        level: str,
        message: str,
        data: Data | None = None,
        step: str = "",
    ) -> Event:
        """A message, of a step or of the run."""
        facts: Data = {"level": level, "message": message}
        if data:
            facts["data"] = data
        if step:
            facts["step_id"] = step
        return self.event(Kind.LOG, time, facts, key)

    def asking(self, key: str, time: int, thread: Thread) -> Data:
        """What is known of a model call when it begins: its id, and what the model is shown."""
        call_id = self.id(time, "llm", key)
        return {"id": call_id, **thread.asked(call_id)}

    def asked(self, key: str, time: int, begun: Data, **facts: Any) -> Event:
        """A model call that `asking` began, at the same time; `facts` are those of `LLMData`."""
        known = {name: fact for name, fact in facts.items() if fact is not None}
        return self.event(Kind.LLM, time, {**begun, **known}, key)


def below(step_id: str, events: Events) -> Events:
    """Events of which the steps are parts of a step, where they are not parts of another."""
    for event in events:
        if event["kind"] == Kind.STEP_STARTED:
            event["data"].setdefault("parent_id", step_id)
        yield event


MALFORMED = (TypeError, AttributeError, KeyError, IndexError, ValueError, OverflowError)
"""What a record raises that has not the shape of its kind."""


def tolerant(builder: Builder | None, key: str, kind: str, record: Any, events: Events) -> Events:
    """`events`, which are made of a record; if it has not the shape of its kind, an unknown step
    takes the place of what is left of them."""
    try:
        yield from events
    except ImportFailed:
        raise
    except (*MALFORMED, RecursionError):
        if builder is None:
            raise ImportFailed("The first records are malformed.") from None
        builder.damage.count(f"malformed {kind}")
        yield from builder.unknown(f"malformed {key}", builder.time, f"malformed {kind}", record)


def _read_of(reading: effects.Reading, result: Result) -> Data:
    read: Data = {"file_path": reading.path, "kind": "read"}
    if reading.first_line is not None:
        read["first_line"] = reading.first_line
    if reading.last_line is not None:
        read["last_line"] = reading.last_line
    output = result.stdout
    exact = reading.whole and result.exact and result.exit_code == 0
    if exact and output is not None and "\ufffd" not in output:
        read["object_id"] = blob_id(output.encode("utf-8", "surrogatepass"))
    return read


def _short_arguments(given: Mapping[str, Any]) -> Data:
    return {
        str(name): f"[{len(value)} characters]"
        if isinstance(value, str) and len(value) > _ARGUMENT
        else value
        for name, value in given.items()
    }


def _why(result: Result) -> str:
    if result.exit_code not in (None, 0):
        return f"exit code {result.exit_code}"
    return one_line(result.text) or "it failed"
