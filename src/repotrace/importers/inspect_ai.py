"""Logs of Inspect: each sample, that is each try of an agent at a task, is a run."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repotrace.agents import Action
from repotrace.agents.inspect_ai import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers.building import (
    Builder,
    Events,
    Result,
    Thread,
    moment_of,
    number,
    parts_text,
    script_of,
    text_of,
    tolerant,
)
from repotrace.importers.claims import claimed, spoken
from repotrace.importers.inspect_ai_log import events_of, is_archive, logged, shown_to
from repotrace.importers.inspect_ai_messages import (
    arguments_of,
    calls_of,
    name_of,
    shaped_message,
    tokens_of,
    words_of,
)
from repotrace.importers.lines import Damage, Progress, ignore, looks_like_object
from repotrace.records.events import Event
from repotrace.records.run import RunStatus, StepType

NAME = "inspect"

type Record = dict[str, Any]

_SILENT = frozenset(
    [
        *("sample_init", "span_begin", "span_end", "state", "store", "step", "subtask"),
        *("score_edit", "anchor", "branch", "checkpoint", "sandbox"),
    ]
)
_LEVELS = {"warning": "warning", "error": "error", "critical": "error", "debug": "debug"}
_CUT = re.compile(r"\n\n\w+ truncated \(\d+ additional lines\)\Z")
"""Ends what Inspect logs of long outputs of the sandbox, and of files written there."""
_TICK = 1_000_000


def sniff(head: bytes, path: Path) -> bool:
    """Whether it is a log, of either kind."""
    del path
    return is_archive(head) or looks_like_object(head, b"eval", b"task_id", b"run_id")


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of all samples of a log."""
    damage = Damage()
    found = False
    try:
        for head, sample in logged(path, damage, progress):
            found = True
            yield from _Sample(head, sample, damage).events()
            damage = Damage()
    except OSError as error:
        raise ImportFailed(f"{path} cannot be read: {error.strerror}.") from error
    if not found:
        raise ImportFailed(f"{path} holds no samples.")


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


class _Sample:
    def __init__(self, head: Record, sample: Record, damage: Damage) -> None:
        self._eval, self._sample = _object(head.get("eval")), sample
        self._builder = Builder(NAME, self._identity(), AGENT)
        self._builder.damage = damage
        self._events = list(events_of(sample))
        begun = sample.get("started_at"), *(event.get("timestamp") for event in self._events[:1])
        moments = [moment_of(value) for value in (*begun, self._eval.get("created"))]
        self._time = next((moment for moment in moments if moment), 0)
        self._threads: dict[str, Thread] = defaultdict(Thread)
        self._shown: dict[str, list[str]] = defaultdict(list)
        """The messages of each conversation, as far as they were shown."""
        self._names: dict[str, str] = {}
        """Calls by the names that Inspect gives them, which may come again."""
        self._executed: dict[str, deque[Record]] = defaultdict(deque)
        """What ran in the sandbox, by its command."""
        self._spans = {
            text_of(event.get("id")): event
            for event in self._events
            if event.get("event") == "span_begin"
        }
        self._agents: dict[str, str] = {}
        """The steps that handed work to an agent, by the agent's span."""
        self._tooled = {
            text_of(event.get("id")) for event in self._events if event.get("event") == "tool"
        }
        self._error: str | None = None

    def _identity(self) -> str:
        name = self._sample.get("uuid")
        if isinstance(name, str) and name:
            return name
        of_eval = [self._eval.get(name) for name in ("eval_id", "run_id", "task_id")]
        parts = [*of_eval, self._sample.get("id"), self._sample.get("epoch")]
        return "/".join(str(part) for part in parts if part is not None)

    def events(self) -> Events:
        builder, sample = self._builder, self._sample
        for event in self._events:
            if event.get("event") == "sandbox" and event.get("action") == "exec":
                self._executed[_command(event.get("cmd"))].append(event)
        yield builder.started(
            self._time,
            task=_asked(sample.get("input")) or None,
            task_id=f"{self._eval.get('task')}/{sample.get('id')}",
            agent_version=_text(_object(self._eval.get("packages")).get("inspect_ai")),
            attributes=self._attributes(),
        )
        for index, event in enumerate(self._events):
            kind = str(event.get("event"))
            self._time = max(self._time, moment_of(event.get("timestamp")) or 0)
            taken = self._take(index, kind, event)
            yield from tolerant(builder, str(index), kind, event, taken)
        if not any(event.get("event") == "model" for event in self._events):
            yield from tolerant(builder, "messages", "messages", {}, self._from_messages())
        yield from self._end()

    def _attributes(self) -> Record:
        told: Record = {"epoch": self._sample.get("epoch"), "eval": self._eval.get("task")}
        told["model"] = self._eval.get("model")
        revision = _object(self._eval.get("revision"))
        if revision.get("commit"):
            # Of the repository of the task itself, not of the files that the agent works on.
            told["task_commit"] = revision["commit"]
        return {name: value for name, value in told.items() if value is not None}

    def _take(self, index: int, kind: str, event: Record) -> Events:
        key = text_of(event.get("uuid")) or f"event {index}"
        act = {
            "model": self._model_event,
            "tool": self._tool_event,
            "sandbox": self._sandbox,
            "approval": self._approval,
            "input": self._input,
            "logger": self._logged,
            "info": self._informed,
            "error": self._failed,
            "sample_limit": self._limited,
            "score": self._scored,
            "compaction": self._compacted,
        }.get(kind)
        if act is not None:
            yield from act(key, event)
        elif kind not in _SILENT:
            self._builder.damage.count(kind)
            yield from self._builder.unknown(key, self._time, kind, event)

    # --- Model calls ------------------------------------------------------------------------

    def _model_event(self, key: str, event: Record) -> Events:
        builder = self._builder
        asked_at = moment_of(event.get("timestamp")) or self._time
        span = text_of(event.get("span_id"))
        thread = self._threads[span]
        yield from self._caught_up(span, shown_to(event, self._sample), asked_at)
        begun = builder.asking(key, asked_at, thread)
        output = _object(event.get("output"))
        choices = output.get("choices")
        choice = _object(choices[0]) if isinstance(choices, list) and choices else {}
        message = _object(choice.get("message"))
        time = moment_of(event.get("completed")) or asked_at + round(
            float(number(output.get("time")) or 0) * 1e9
        )
        shaped = shaped_message(message) if message else None
        if shaped is not None:
            thread.say(shaped)
            self._shown[span].append(name_of(message))
        words, step_id = words_of(message), ""
        parent = self._parent(span)
        for place, call in enumerate(calls_of(message)):
            name = self._called(call, f"{key} {place}")
            given = arguments_of(call)
            tool = spoken(str(call.get("function")), given, AGENT.tools)
            yield from builder.call(name, tool, given, time, reason=words, parent_id=parent)
            step_id = step_id or builder.step_of(name) or ""
        error = _text(event.get("error"))
        if not step_id:
            step_id = builder.step_named(key, asked_at)
            yield from builder.answered(key, asked_at, time, words or error or "", parent_id=parent)
        retries = number(event.get("retries"))
        yield builder.asked(
            key,
            asked_at,
            begun,
            step_id=step_id,
            external_id=_text(output.get("response_id")),
            model=_text(output.get("model")) or _text(event.get("model")),
            purpose=_text(event.get("role")) or self._purpose(span),
            response_message=shaped,
            response=words or None,
            stop_reason=_text(choice.get("stop_reason")),
            attempts=retries + 1 if retries else None,
            error=error,
            duration=max(time - asked_at, 0) / 1e9,
            **({} if event.get("cache") == "read" else tokens_of(output.get("usage"))),
        )

    def _caught_up(self, span: str, messages: list[Record], time: int) -> Events:
        """Tells the conversation what the model is shown; results of calls may be in it."""
        thread, shown = self._threads[span], self._shown[span]
        names = [name_of(message) for message in messages]
        same = 0
        while same < min(len(names), len(shown)) and names[same] == shown[same]:
            same += 1
        thread.rewind(same)
        del shown[same:]
        for message, name in zip(messages[same:], names[same:], strict=True):
            thread.say(shaped_message(message))
            shown.append(name)
            if message.get("role") == "tool":
                yield from self._told(message, time)

    def _told(self, message: Record, time: int) -> Events:
        """The result of a call that no event told of, as those of agents of others."""
        name = self._names.get(text_of(message.get("tool_call_id")))
        call = self._builder.opened(name) if name else None
        if call is None or name is None or text_of(message.get("tool_call_id")) in self._tooled:
            return
        text, error = parts_text(message.get("content")), _object(message.get("error"))
        yield from self._builder.result(name, time, self._result(name, text, error, None))

    def _called(self, call: Record, otherwise: str) -> str:
        """A name for a call that no other of the sample has."""
        told = text_of(call.get("id")) or otherwise
        name = told
        if told in self._names:
            name = f"{told} {len(self._names)} {otherwise}"
        self._names[told] = name
        return name

    def _purpose(self, span: str) -> str | None:
        return "scorer" if self._within(span, "scorer") else None

    def _within(self, span: str, kind: str) -> bool:
        for _ in range(100):
            found = self._spans.get(span)
            if found is None:
                return False
            if found.get("type") == kind:
                return True
            span = text_of(found.get("parent_id"))
        return False

    def _parent(self, span: str) -> str:
        """The step of the call that handed the work to the agent whose span this is."""
        for _ in range(100):
            if span in self._agents:
                return self._agents[span]
            span = text_of(_object(self._spans.get(span)).get("parent_id"))
            if not span:
                break
        return ""

    # --- Tools ------------------------------------------------------------------------------

    def _tool_event(self, key: str, event: Record) -> Events:
        builder = self._builder
        time = moment_of(event.get("timestamp")) or self._time
        told = text_of(event.get("id"))
        name = self._names.get(told, "")
        if not name or not builder.is_open(name):
            name = self._called({"id": told}, key)
            given = arguments_of(event)
            tool = spoken(str(event.get("function")), given, AGENT.tools)
            yield from builder.call(name, tool, given, time)
        agent = _text(event.get("agent_span_id"))
        if agent:
            self._agents[agent] = builder.step_of(name) or ""
        end = moment_of(event.get("completed")) or time
        text = parts_text(event.get("result")) or text_of(event.get("result"))
        ran = self._ran(name)
        result = self._result(name, text, _object(event.get("error")), ran)
        yield from builder.result(name, end, result)

    def _ran(self, name: str) -> Record | None:
        """What ran in the sandbox for the call of a command."""
        call = self._builder.opened(name)
        if call is None or call.tool.action is not Action.RUN:
            return None
        script = script_of(call.arguments.get(call.tool.command))
        found = self._executed.get(script) or self._executed.get(_code(script))
        return found.popleft() if found else None

    def _result(self, name: str, text: str, error: Record, ran: Record | None) -> Result:
        call = self._builder.opened(name)
        kind = str(error.get("type"))
        failed, refused = bool(error), kind == "approval"
        if error:
            text = "\n".join(filter(None, (text, text_of(error.get("message")))))
        if call is None:
            return Result(text, failed=failed)
        if call.tool.action is Action.RUN:
            code = ran.get("result") if ran else None
            output = ran.get("output") if ran else None
            stdout = output if isinstance(output, str) and output else text
            cut = _CUT.search(stdout)
            if cut is not None and text.startswith(stdout[: cut.start()]):
                # What the agent was shown is longer.
                stdout, cut = text, None
            began, ended = (moment_of((ran or {}).get(key)) for key in ("timestamp", "completed"))
            return Result(
                text,
                failed=failed,
                exit_code=code if isinstance(code, int) else None,
                stdout=stdout,
                exact=isinstance(output, str) and cut is None,
                duration=(ended - began) / 1e9 if began and ended and ended >= began else None,
                termination="timeout" if kind == "timeout" else None,
                refused=refused,
            )
        operations = [] if failed else claimed(call.tool, call.arguments, call.cwd)
        return Result(text, failed=failed, refused=refused, operations=operations)

    def _sandbox(self, key: str, event: Record) -> Events:
        """What was done in the sandbox without the agent: by a setup or a scorer."""
        span = text_of(event.get("span_id"))
        if self._within(span, "tool") or self._within(span, "init") or not span:
            return
        builder = self._builder
        time = moment_of(event.get("timestamp")) or self._time
        end = moment_of(event.get("completed")) or time
        name = _object(self._spans.get(span)).get("name")
        by = {"by": str(name)} if name else {}
        options = _object(event.get("options"))
        given: Record
        if event.get("action") == "exec":
            known = builder.cwd
            builder.cwd = text_of(options.get("cwd")) or known
            given = {"command": _command(event.get("cmd"))}
            yield from builder.call(key, "sandbox", given, time, metadata=by)
            yield from builder.result(key, end, self._result(key, "", {}, event))
            builder.cwd = known
        elif event.get("action") == "write_file":
            told = event.get("input")
            whole = isinstance(told, str) and _CUT.search(told) is None
            given = {"file": event.get("file"), **({"input": told} if whole else {})}
            yield from builder.call(key, "sandbox write_file", given, time, metadata=by)
            call = builder.opened(key)
            changes = claimed(call.tool, given, call.cwd) if call else []
            yield from builder.result(key, end, Result(operations=changes))

    # --- Other events -----------------------------------------------------------------------

    def _approval(self, key: str, event: Record) -> Events:
        decision = text_of(event.get("decision"))
        if decision in ("", "approve"):
            return
        name = self._names.get(text_of(_object(event.get("call")).get("id")), "")
        facts: Record = {"metadata": {"approver": event.get("approver")}}
        if event.get("explanation"):
            facts["input_context"] = text_of(event.get("explanation"))
        step_id = self._builder.step_of(name) if name else None
        if step_id:
            facts["parent_id"] = step_id
        yield from self._builder.moment(
            key, self._time, StepType.DECISION, f"Approval: {decision}", **facts
        )

    def _input(self, key: str, event: Record) -> Events:
        text = text_of(event.get("input"))
        if text:
            yield from self._builder.prompt(key, self._time, text)

    def _logged(self, key: str, event: Record) -> Events:
        message = _object(event.get("message"))
        level = _LEVELS.get(str(message.get("level")), "info")
        yield self._builder.log(key, self._time, level, text_of(message.get("message")))

    def _informed(self, key: str, event: Record) -> Events:
        yield self._builder.log(key, self._time, "info", text_of(event.get("data")))

    def _failed(self, key: str, event: Record) -> Events:
        error = _object(event.get("error"))
        self._error = text_of(error.get("message")) or "error"
        yield self._builder.log(key, self._time, "error", self._error)

    def _limited(self, key: str, event: Record) -> Events:
        text = text_of(event.get("message")) or f"Limit: {text_of(event.get('type'))}"
        yield from self._builder.moment(key, self._time, StepType.DECISION, text)

    def _scored(self, key: str, event: Record) -> Events:
        score = _object(event.get("score"))
        told = f"{text_of(event.get('scorer')) or 'score'}: {text_of(score.get('value'))}"
        explained = score.get("explanation")
        data = {"explanation": explained} if isinstance(explained, str) and explained else None
        yield self._builder.log(key, self._time, "info", told, data)

    def _compacted(self, key: str, event: Record) -> Events:
        del event
        yield from self._builder.moment(
            key, self._time, StepType.DECISION, "The conversation was compacted."
        )

    # --- The end, and samples without events ------------------------------------------------

    def _from_messages(self) -> Events:
        """The conversation alone, where a log has no events."""
        listed = self._sample.get("messages")
        messages = [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []
        for index, message in enumerate(messages):
            self._time += _TICK
            if message.get("role") == "assistant":
                event = {"output": {"choices": [{"message": message}]}, "input": messages[:index]}
                yield from self._model_event(f"message {index}", event)
            elif message.get("role") == "tool" and not self._names:
                text = parts_text(message.get("content"))
                self._builder.damage.count("result without a call")
                yield from self._builder.unknown(f"message {index}", self._time, "tool", text)
        yield from self._caught_up("", messages, self._time)

    def _end(self) -> Events:
        sample, told = self._sample, {}
        scores = _object(sample.get("scores"))
        values = {name: _object(score).get("value") for name, score in scores.items()}
        if values:
            told["scores"] = values
        error = _object(sample.get("error"))
        problem = text_of(error.get("message")) or self._error
        end = moment_of(sample.get("completed_at"))
        self._builder.time = max(self._builder.time, end or 0)
        if told:
            yield self._builder.updated(self._builder.time, attributes=told)
        status = RunStatus.FAILED if error else RunStatus.COMPLETED
        yield from self._builder.finished(status, problem if error else None)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _asked(given: Any) -> str:
    """The task in the input of a sample: a text, or the messages of a user."""
    if not isinstance(given, list):
        return text_of(given)
    told = [m for m in given if isinstance(m, dict) and m.get("role") == "user"]
    return "\n\n".join(parts_text(message.get("content")) for message in told)


def _command(given: Any) -> str:
    """The script that a command of the sandbox runs, without the shell around it."""
    text = given if isinstance(given, str) else script_of(given)
    try:
        words = shlex.split(text)
    except ValueError:
        return text
    options = [word for word in words[1:-1] if word.startswith("-")]
    shell = len(words) > 2 and words[0].rsplit("/", 1)[-1] in ("bash", "sh")
    return words[-1] if shell and len(options) == len(words) - 2 and "-c" in options else text


def _code(script: str) -> str:
    """The command by which Inspect runs code of Python."""
    return "python3 -" if script.startswith("python3 - <<") else script
