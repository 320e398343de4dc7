"""Trajectories of SWE-agent: `*.traj` of all versions, histories alone included.

A step has an action, which is the text of a command; the history knows the call that the model
made. Neither tells when something happened: steps follow each other up to the moment the file was
written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.agents.swe_agent import AGENT
from repotrace.errors import ImportFailed
from repotrace.importers.building import (
    Builder,
    Events,
    Thread,
    number,
    parts_text,
    text_of,
    tolerant,
)
from repotrace.importers.lines import Progress, ignore, looks_like_object, whole_json
from repotrace.importers.swe_agent_tools import Asked, Window, asked_of, plain, result_of
from repotrace.records.events import Event
from repotrace.records.run import RunStatus, StepType

NAME = "swe-agent"

type Record = dict[str, Any]

_TICK = 1_000_000
"""Nanoseconds that a step takes at least, since moments are not known."""
_DEMONSTRATION = "Here is a demonstration of how to correctly accomplish this task."
_PROMPT = re.compile(
    r"\n\(Open file: (?P<open_file>.*)\)\n\(Current directory: (?P<working_dir>.*)\)\nbash-\$\s*\Z"
)
_TASKS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"ISSUE:\n(.*?)\n+INSTRUCTIONS:\n",
        r"<pr_description>\n(.*?)\n</pr_description>",
    )
)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def sniff(head: bytes, path: Path) -> bool:
    """Whether it is a trajectory, or a history that stands alone, by the names in it."""
    del path
    if not looks_like_object(head) or not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return False
    if b'"trajectory_format"' in head or b'"schema_version"' in head:
        return False
    steps = (b'"action"', b'"observation"', b'"thought"')
    if b'"trajectory"' in head or b'"attempts"' in head:
        return all(mark in head for mark in steps) and b'"response"' in head
    history = (b'"history"', b'"role"', b'"agent"', b'"thought"', b'"action"')
    return all(mark in head for mark in history)


def read(path: Path, *, progress: Progress = ignore) -> Iterator[Event]:
    """The events of a trajectory; each attempt of a run that tried several times is a run."""
    value = whole_json(path, progress=progress)
    told = value if isinstance(value, dict) else {}
    attempts = [attempt for attempt in _list(told.get("attempts")) if _steps(attempt)]
    if not attempts and not _steps(told):
        raise ImportFailed(f"{path} holds no answers of a model.")
    best = _object(told.get("info")).get("best_attempt_idx")
    for place, attempt in enumerate(attempts):
        facts: Record = {"attempt": place + 1}
        if best == place:
            facts["best_attempt"] = True
        yield from _Trajectory(path, attempt, facts).events()
    if not attempts:
        yield from _Trajectory(path, told, {}).events()


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Record]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


class _Step(NamedTuple):
    """A step, wherever it is told."""

    action: str
    observation: str
    thought: str
    response: str
    state: Record
    """`open_file` and `working_dir` after it; before it in versions before 1.0."""
    is_old: bool
    seconds: float | None
    said: Record
    """The message of the history with the answer; empty if it has none."""
    raw: Record


def _steps(told: Record) -> list[_Step]:
    """The steps of a trajectory, or of the history where that is all there is."""
    history = _list(told.get("history"))
    answers = [m for m in history if m.get("role") == "assistant" and not _is_demo(m)]
    steps = _list(told.get("trajectory"))
    if not steps:
        return list(_steps_of_history(history))
    found = []
    at = 0
    for step in steps:
        action = text_of(step.get("action"))
        said: Record = {}
        if at < len(answers) and text_of(answers[at].get("action")).strip() == action.strip():
            said = answers[at]
            at += 1
        seconds = step.get("execution_time")
        found.append(
            _Step(
                action,
                plain(text_of(step.get("observation"))),
                text_of(step.get("thought")),
                text_of(step.get("response")),
                _state(step.get("state")),
                isinstance(step.get("state"), str),
                seconds
                if isinstance(seconds, float | int) and number(seconds) is not None
                else None,
                said,
                step,
            )
        )
    return found


def _steps_of_history(history: list[Record]) -> Iterator[_Step]:
    for place, message in enumerate(history):
        if message.get("role") != "assistant" or _is_demo(message) or "action" not in message:
            continue
        after = history[place + 1] if place + 1 < len(history) else {}
        text = plain(_text(after)) if after.get("role") in ("tool", "user") else ""
        match = _PROMPT.search(text)
        state = match.groupdict() if match else {}
        shown = text[: match.start()] if match else text
        thought, action = text_of(message.get("thought")), text_of(message.get("action"))
        yield _Step(action, shown, thought, _text(message), state, False, None, message, message)


def _state(value: Any) -> Record:
    if isinstance(value, str):
        try:
            return _object(json.loads(value))
        except (ValueError, RecursionError):
            return {}
    return _object(value)


def _text(message: Record) -> str:
    return parts_text(message.get("content"))


def _is_demo(message: Record) -> bool:
    return message.get("is_demo") is True or _text(message).startswith(_DEMONSTRATION)


class _Trajectory:
    def __init__(self, path: Path, told: Record, facts: Record) -> None:
        self._told, self._facts = told, facts
        self._info = _object(told.get("info"))
        self._config = _state(told.get("replay_config"))
        self._repo = _object(_object(self._config.get("env")).get("repo"))
        self._history = _list(told.get("history"))
        self._steps = _steps(told)
        name = _identity(path, told, self._steps, facts)
        self._builder = Builder(NAME, name, AGENT, timed=False)
        spent = sum(max(int((s.seconds or 0) * 1e9), _TICK) + _TICK for s in self._steps)
        self._time = max(_written(path) - spent, 0)
        self._thread = Thread()
        self._window: Window | None = None
        self._open_file = ""
        self._names: set[str] = set()
        self._passing: int | None = None
        """Messages that stay when those that only asked again have gone."""
        self._submission = ""

    def events(self) -> Events:
        builder = self._builder
        version = self._info.get("swe_agent_version")
        commit = self._repo.get("base_commit")
        exact = isinstance(commit, str) and _COMMIT.fullmatch(commit) is not None
        yield builder.started(
            self._time,
            cwd=self._folder(),
            agent_version=version if isinstance(version, str) else None,
            base_commit=commit if exact else None,
        )
        yield from self._begin()
        for index, step in enumerate(self._steps):
            yield from tolerant(builder, str(index), "step", step.raw, self._step(index, step))
        yield from self._end()

    def _folder(self) -> str:
        """The folder of the repository."""
        states = (step.state.get("working_dir") for step in self._steps)
        found = [state for state in states if isinstance(state, str) and state.startswith("/")]
        name = self._repo.get("repo_name")
        if isinstance(name, str) and name.strip("/"):
            named = f"/{name.strip('/')}"
            if not found or any(f"{folder}/".startswith(f"{named}/") for folder in found):
                return named
        return found[0] if found else ""

    def _begin(self) -> Events:
        """What the model was shown before its first answer."""
        task = ""
        for message in self._history:
            if message.get("role") == "assistant" and not _is_demo(message):
                break
            self._thread.say(
                {"role": str(message.get("role") or "user"), "content": _text(message)}
            )
            if message.get("role") == "user" and not _is_demo(message):
                task = task or self._task(_text(message))
        task = task or text_of(_object(self._config.get("problem_statement")).get("text"))
        if task:
            yield self._builder.updated(self._time, task=task)

    def _task(self, text: str) -> str:
        """The task within the prompt."""
        templates = _object(_object(self._config.get("agent")).get("templates"))
        template = text_of(templates.get("instance_template"))
        before, found, after = template.partition("{{problem_statement}}")
        if found and text.startswith(before) and not re.search(r"\{[{%]", before):
            end = text.find(re.split(r"\{[{%]", after)[0].rstrip() or "\0", len(before))
            if end >= 0:
                return text[len(before) : end].strip()
        matches = (pattern.search(text) for pattern in _TASKS)
        match = next((match for match in matches if match), None)
        return match[1].strip() if match else text

    def _step(self, index: int, step: _Step) -> Events:
        builder = self._builder
        if not step.action.strip() and not step.response.strip():
            yield from self._exit(index, step)
            return
        if step.is_old:
            self._moved(step)
        asked_at = self._time
        self._time += _TICK
        key = f"answer {index}"
        begun = builder.asking(key, asked_at, self._thread)
        if self._passing is not None:
            self._thread.rewind(self._passing)
        self._passing = None if step.said or not self._history else self._thread.count
        function, call_id = self._function(index, step)
        asked = asked_of(step.action, function, self._open_file)
        answer = _answer(step, call_id, asked.name, function or asked.arguments)
        self._thread.say(answer)
        if step.action.strip():
            yield from builder.call(
                call_id, asked.name, asked.arguments, self._time, reason=step.thought
            )
            step_id = builder.step_of(call_id) or ""
        else:
            step_id = builder.step_named(key, asked_at)
            yield from builder.answered(key, asked_at, self._time, step.response)
        model = _object(_object(self._config.get("agent")).get("model")).get("name")
        yield builder.asked(
            key,
            asked_at,
            begun,
            step_id=step_id,
            model=model if isinstance(model, str) else None,
            response_message=answer,
            response=step.response or step.thought or None,
        )
        yield from self._observed(index, step, call_id)

    def _function(self, index: int, step: _Step) -> tuple[Record | None, str]:
        """The call of the model, and a name for it that no other step has."""
        calls = _list(step.said.get("tool_calls") or step.raw.get("tool_calls"))
        if not calls:
            return None, f"step {index}"
        call_id = text_of(calls[0].get("id"))
        if not call_id or call_id in self._names:
            call_id = f"{call_id} {index}".strip()
        self._names.add(call_id)
        function = _object(calls[0].get("function"))
        given = function.get("arguments")
        return {"name": function.get("name"), "arguments": _state(given)}, call_id

    def _observed(self, index: int, step: _Step, call_id: str) -> Events:
        builder = self._builder
        self._time += max(int((step.seconds or 0) * 1e9), _TICK)
        shown: Record = {"type": "tool_result", "id": call_id, "content": step.observation}
        call = builder.opened(call_id)
        if call is None:
            self._thread.say({"role": "user", "content": step.observation})
            return
        self._thread.say({"role": "tool", "content": [shown]})
        result, self._window = result_of(
            Asked(call.name, call.arguments), step.observation, builder.cwd, self._window
        )
        result = result._replace(duration=step.seconds)
        if call.name == "submit" and "diff --git " in step.observation:
            self._submission = step.observation
        yield from builder.result(call_id, self._time, result)
        if not step.is_old:
            self._moved(step)

    def _moved(self, step: _Step) -> None:
        folder, opened = step.state.get("working_dir"), step.state.get("open_file")
        if isinstance(folder, str) and folder.startswith("/"):
            self._builder.cwd = folder
        if isinstance(opened, str):
            self._open_file = "" if opened in ("n/a", "") else opened
        elif self._window is not None and not step.state:
            self._open_file = self._window.path

    def _exit(self, index: int, step: _Step) -> Events:
        """SWE-agent ended the run, and may have submitted what there was."""
        text = step.thought or step.observation
        if text:
            yield from self._builder.moment(
                f"exit {index}",
                self._time,
                StepType.DECISION,
                text,
                output_result=step.observation,
            )

    def _end(self) -> Events:
        builder, stats = self._builder, _object(self._info.get("model_stats"))
        submission = plain(text_of(self._info.get("submission"))) or self._submission
        status = text_of(self._info.get("exit_status"))
        told = dict(self._facts)
        if submission.strip():
            told["submission"] = submission
        if status:
            told["exit_status"] = status
        cost = stats.get("instance_cost")
        if isinstance(cost, int | float) and not isinstance(cost, bool):
            told["session_cost_usd"] = str(cost)
        for ours, theirs in (
            ("total_prompt_tokens", "tokens_sent"),
            ("total_completion_tokens", "tokens_received"),
            ("api_calls", "api_calls"),
        ):
            if number(stats.get(theirs)) is not None:
                told[ours] = number(stats[theirs])
        if told:
            yield builder.updated(self._time, attributes=told)
        good = status in ("submitted", "")
        yield from builder.finished(
            RunStatus.COMPLETED if good else RunStatus.FAILED, None if good else status
        )


def _answer(step: _Step, call_id: str, name: str, given: Record) -> Record:
    """The message of the model."""
    words = step.thought if step.said.get("tool_calls") else step.response or step.thought
    parts: list[Record] = []
    for block in _list(step.said.get("thinking_blocks")):
        parts.append({"type": "thinking", "text": text_of(block.get("thinking"))})
    if words:
        parts.append({"type": "text", "text": words})
    if step.action.strip():
        arguments = given.get("arguments") if "arguments" in given and "name" in given else given
        parts.append({"type": "tool_call", "id": call_id, "name": name, "arguments": arguments})
    return {"role": "assistant", "content": parts}


def _written(path: Path) -> int:
    """When the file was written."""
    try:
        return path.stat().st_mtime_ns // _TICK * _TICK
    except OSError:
        return 0


def _identity(path: Path, told: Record, steps: list[_Step], facts: Record) -> str:
    """A name for the run: the file has none. It depends on how the run began."""
    first = steps[0]
    begin = [
        [_text(message) for message in _list(told.get("history"))[:3]],
        [first.action, first.response, first.observation, first.seconds],
        facts.get("attempt"),
        # How long a step took tells runs apart; without it the name of the file has to help.
        None if first.seconds is not None else path.name,
    ]
    text = json.dumps(begin, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
