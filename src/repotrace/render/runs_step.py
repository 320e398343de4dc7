"""One step of a run, whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from repotrace.read.diffs import StepDiff
from repotrace.read.views import SinceFailure, StateView, StepView
from repotrace.readable import one_line, reached_words
from repotrace.records.run import (
    FileOperation,
    FileRead,
    LLMInteraction,
    LogEntry,
    StepCommand,
    TestOutcome,
)
from repotrace.render.alerts import alert_rows
from repotrace.render.console import WIDE
from repotrace.render.diffs import Line, Span, diff_lines
from repotrace.render.runs import patch_of, tests_of
from repotrace.render.runs_layout import (
    STATUS_STYLES,
    captured,
    cost_of,
    count,
    indented,
    lines_of,
    phrase,
    status_word,
    time_of,
    tokens_of,
)

_LEVELS = {"warning": "yellow", "error": "red", "critical": "bold red"}
_OUTCOMES = {"passed": "green", "failed": "red", "error": "red"}
_LETTERS = {"create": ("A", "green"), "edit": ("M", "yellow"), "delete": ("D", "red")}
_PATHS_SHOWN = 20
_PASSED_SHOWN = 10

type Repeated = Sequence[tuple[int, LLMInteraction]]
"""Each model call with how many of its messages repeat the call before."""


def step_view(
    view: StepView,
    *,
    diff: StepDiff | None = None,
    messages: Repeated | None = None,
    coloured: bool = True,
) -> Iterator[Line]:
    """All of a step, a section for each kind of fact; sections without any are left out.

    `diff` and `messages` are given where they are to be shown in full.
    """
    step = view.step
    yield from step_head(view)
    known = {step.description, *(item.command_line for item in view.commands)}
    if step.input_context and step.input_context.strip() not in known:
        yield from titled("Input", step.input_context)
    if step.reason:
        yield from titled("Reason", step.reason)
    if view.interactions:
        yield from title("Model calls")
        yield from indented(_calls(view.interactions, messages))
    outputs = {item.command.stdout.text.strip() for item in view.commands}
    if step.output_result and step.output_result.strip() not in outputs:
        yield from titled("Output", step.output_result)
    if step.error:
        yield from titled("Error", step.error)
    if view.logs:
        yield from title("Logs")
        yield from indented(line for entry in view.logs for line in log_lines(entry))
    if view.reads:
        yield from title("Files read")
        yield from indented(read_lines(view.reads))
    if view.operations:
        yield from title("Files changed")
        yield from indented(changes(view.operations))
        if diff is not None:
            yield from indented(step_diff_lines(diff, syntax=coloured))
    if view.since_failure is not None:
        yield from title(f"Changed since the failure in step {view.since_failure.step_number}")
        yield from indented(since_lines(view, view.since_failure))
    if view.commands:
        yield from title("Commands")
        yield from indented(line for item in view.commands for line in _command(item))
    if view.tests:
        yield from title("Tests")
        yield from indented(_tests(view))
    yield from title("State")
    yield from indented(state_lines(view.after))


def step_head(view: StepView) -> Iterator[Line]:
    """Which step it is, what it did, and how it ended."""
    line = view.line
    yield [
        Span(f"Step {line.number} of {view.last_step}", "bold"),
        Span(" · "),
        Span(one_line(line.step_type), "cyan"),
        Span(" · "),
        Span(status_word(line.status), STATUS_STYLES.get(line.status, "")),
        Span(f" · {time_of(line.duration)}" if line.duration is not None else "", "dim"),
        Span(f" · {line.started_at:%Y-%m-%d %H:%M:%S} UTC", "dim"),
    ]
    if line.description:
        yield [Span(one_line(line.description))]
    facts = []
    if line.tool:
        facts.append(f"tool {one_line(line.tool)}")
    if line.attempt > 1:
        of = f" of step {line.retry_of}" if line.retry_of else ""
        facts.append(f"attempt {line.attempt}{of}")
    if line.label:
        far = ""
        if view.reached is not None:
            far = f" ({reached_words(view.reached.steps, view.reached.files_modified)})"
        facts.append(f"checkpoint {one_line(line.label)}{far}")
    if line.parent:
        facts.append(f"part of step {line.parent}")
    if view.parts:
        facts.append("parts: " + ", ".join(map(str, view.parts[:20]))
                     + (", …" if len(view.parts) > 20 else ""))  # fmt: skip
    if line.ambiguous:
        facts.append("another step was at work meanwhile: changes may be either's")
    if facts:
        yield [Span(" · ".join(facts), "dim")]
    yield from alert_rows(view.alerts, width=WIDE, step=False)


def title(name: str) -> Iterator[Line]:
    """The title of a section, with an empty line above."""
    yield []
    yield [Span(name, "bold")]


def titled(name: str, text: str) -> Iterator[Line]:
    """A section that is a text."""
    yield from title(name)
    yield from indented(captured(text))


# --- Model calls ----------------------------------------------------------------------------


def _calls(calls: Sequence[LLMInteraction], messages: Repeated | None) -> Iterator[Line]:
    if messages is None:
        for call in calls:
            yield call_line(call)
            if call.error:
                yield [Span(f"  error: {phrase(call.error)}", "red")]
        return
    for repeated, call in messages:
        yield call_line(call)
        if repeated:
            same = f"… {count(repeated, 'message')} as in the call before (all of them: --json)"
            yield [Span(f"  {same}", "dim")]
        for message in call.messages[repeated:]:
            yield from indented(message_lines(message))
        if call.prompt:
            yield from indented(said("prompt", call.prompt))
        if call.response_message:
            yield from indented(message_lines(call.response_message))
        elif call.response:
            yield from indented(said("response", call.response))
        if call.error:
            yield from indented(said("error", call.error))


def call_line(call: LLMInteraction) -> Line:
    """A model call without its conversation."""
    used = [f"{tokens_of(call.tokens_used)} tokens" if call.tokens_used else "tokens not known"]
    details = [
        f"{tokens_of(number)} {word}"
        for number, word in (
            (call.input_tokens, "in"),
            (call.output_tokens, "out"),
            (call.cache_read_tokens, "from cache"),
            (call.cache_write_tokens, "to cache"),
            (call.reasoning_tokens, "of reasoning"),
        )
        if number
    ]
    if details:
        used[0] += f" ({', '.join(details)})"
    used.append("cost not known" if call.cost_usd is None else cost_of(call.cost_usd))
    if call.duration is not None:
        used.append(time_of(call.duration))
    if call.stop_reason:
        used.append(one_line(call.stop_reason))
    if call.attempts > 1:
        used.append(f"{call.attempts} attempts")
    purpose = f" for {one_line(call.purpose)}" if call.purpose != "execution" else ""
    name = one_line(call.model) or "unknown model"
    return [Span(name, "cyan"), Span(f"{purpose} · {' · '.join(used)}")]


def message_lines(message: Mapping[str, Any]) -> Iterator[Line]:
    """A message of a conversation, its tool calls and results included."""
    role = message.get("role")
    name = one_line(role) if isinstance(role, str) else "message"
    content = message.get("content")
    if isinstance(content, str):
        yield from said(name, content)
    elif isinstance(content, list):
        yield [Span(name, "bold")]
        for part in content:
            yield from indented(_part(part))
    extra = {key: value for key, value in message.items() if key not in ("role", "content")}
    if not isinstance(content, str | list):
        yield [Span(name, "bold")]
    for function in _functions(extra):
        yield from indented(_tool_call(function.get("name"), function.get("arguments")))
    if extra:
        yield from indented(captured(_as_json(extra)))


def _functions(extra: dict[str, Any]) -> list[Mapping[str, Any]]:
    """What a message calls beside its content; it is taken out of `extra`."""
    calls = extra.get("tool_calls")
    if not isinstance(calls, list):
        return []
    found = [call.get("function") for call in calls if isinstance(call, Mapping)]
    functions = [function for function in found if isinstance(function, Mapping)]
    if len(functions) != len(calls):
        return []
    del extra["tool_calls"]
    return functions


def _tool_call(name: object, arguments: object) -> Iterator[Line]:
    yield [Span("calls ", "dim"), Span(one_line(str(name)), "cyan")]
    if isinstance(arguments, str):
        yield from indented(arguments_lines(arguments))
    elif arguments is not None:
        yield from indented(arguments_lines(_as_json(arguments)))


def arguments_lines(text: str) -> Iterator[Line]:
    """What was handed over: the names and values of a JSON object, or the text as it is."""
    try:
        given = json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not given:
        yield from captured(text)
        return
    for key, value in given.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        first, *rest = captured(shown)
        if rest:
            yield [Span(f"{one_line(key)}:", "dim")]
            yield from indented([first, *rest])
        else:
            yield [Span(f"{one_line(key)}: ", "dim"), *first]


def _part(part: object) -> Iterator[Line]:
    if not isinstance(part, Mapping):
        yield from captured(part if isinstance(part, str) else _as_json(part))
        return
    kind, text = part.get("type"), part.get("text")
    if kind in ("text", "thinking") and isinstance(text, str):
        if kind == "thinking":
            yield [Span("thinking", "dim")]
        yield from captured(text)
    elif kind in ("tool_call", "tool_use", "function_call"):
        yield from _tool_call(part.get("name"), part.get("arguments", part.get("input")))
    elif kind == "tool_result":
        yield [Span("result" + (", an error" if part.get("is_error") else ""), "dim")]
        content = part.get("content")
        for piece in content if isinstance(content, list) else [content]:
            yield from indented(_part(piece))
    elif kind == "image":
        yield [Span(f"picture {one_line(str(part.get('media_type', '')))}", "dim")]
    else:
        yield from captured(_as_json(dict(part)))


def said(who: str, text: str) -> Iterator[Line]:
    """Who said what."""
    yield [Span(who, "bold")]
    yield from indented(captured(text))


def _as_json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


# --- What hangs on a step ---------------------------------------------------------------------


def log_lines(entry: LogEntry) -> Iterator[Line]:
    """A log entry."""
    first, *rest = captured(entry.message)
    style = _LEVELS.get(entry.level, "dim")
    logger = f" {one_line(entry.logger)}" if entry.logger else ""
    yield [
        Span(f"{entry.timestamp:%H:%M:%S} ", "dim"),
        Span(f"{one_line(entry.level)}{logger}: ", style),
        *first,
    ]
    yield from indented(rest)
    if entry.data:
        yield from indented(captured(_as_json(entry.data)))


def read_lines(reads: Sequence[FileRead]) -> Iterator[Line]:
    """A line for each file that was read."""
    for read in reads:
        lines = ""
        if read.first_line is not None:
            last = "" if read.last_line is None else f"-{read.last_line}"
            lines = f":{read.first_line}{last}"
        kind = "" if read.kind == "read" else f"  ({one_line(read.kind)})"
        yield [Span(f"{one_line(read.file_path)}{lines}"), Span(kind, "dim")]


def changes(operations: Sequence[FileOperation]) -> Iterator[Line]:
    """A line for each file operation: what happened to which path, and how much."""
    for operation in operations:
        letter, style = _LETTERS.get(operation.operation_type, ("?", ""))
        source = operation.renamed_from
        name = one_line(operation.file_path)
        notes = []
        if operation.is_binary:
            notes.append("binary")
        elif operation.lines_added is not None or operation.lines_removed is not None:
            notes.append(lines_of(operation.lines_added or 0, operation.lines_removed or 0))
        before, after = operation.mode_before, operation.mode_after
        if before is not None and after is not None and before != after:
            notes.append(f"mode {before & 0o7777:o} → {after & 0o7777:o}")
        if operation.origin != "observed":
            notes.append(one_line(operation.origin))
        yield [
            Span(f"{letter} ", style),
            Span(name if source is None else f"{one_line(source)} → {name}"),
            Span("  " + ", ".join(notes) if notes else "", "dim"),
        ]


def since_lines(view: StepView, since: SinceFailure) -> Iterator[Line]:
    """What is different from the files on which the test failed."""
    if not since.files:
        yield [Span("nothing")]
        return
    names = ", ".join(one_line(path) for path in since.files[:_PATHS_SHOWN])
    more = len(since.files) - _PATHS_SHOWN
    changed = lines_of(since.lines_added, since.lines_removed)
    yield [Span(names + (f" and {more} more" if more > 0 else "")), Span(f"  {changed}", "dim")]
    steps = f"--from-step {since.step_number} --to-step {view.line.number}"
    yield [Span(f"repotrace runs diff {one_line(view.run_id)} {steps}", "dim")]


def step_diff_lines(diff: StepDiff, *, syntax: bool) -> Iterator[Line]:
    """What a step changed."""
    if diff.diff:
        yield []
        yield from diff_lines(diff.diff, syntax=syntax)
    for operation in diff.unknown:
        yield [Span(f"the contents of {one_line(operation.file_path)} were not kept", "yellow")]


def command_head(item: StepCommand) -> Iterator[Line]:
    """A command of a step, and how it ended."""
    first, *rest = captured(item.command_line)
    yield [Span("$ ", "dim"), *first]
    yield from indented(rest)
    run = item.command
    if item.background:
        ending, style = "left running", "yellow"
    elif item.exit_code is None:
        ending, style = "how it ended is not known", "yellow"
    elif run.exit_code is None and run.termination != "exited":
        ending, style = one_line(run.ending), "red"
    else:
        ending, style = f"exit code {item.exit_code}", "red" if item.exit_code else "green"
    took = "" if item.duration is None else f" after {time_of(item.duration)}"
    where = f" in {one_line(run.cwd)}" if run.cwd else ""
    yield [Span(f"→ {ending}", style), Span(f"{took}{where}", "dim")]


def _command(item: StepCommand) -> Iterator[Line]:
    yield from command_head(item)
    for name, stream in (("stdout", item.command.stdout), ("stderr", item.command.stderr)):
        if stream.head or stream.tail:
            if name == "stderr":
                yield [Span("stderr", "dim")]
            yield from indented(captured(stream.text))


def _tests(view: StepView) -> Iterator[Line]:
    if view.line.tests is not None:
        said = " ".join(filter(None, (tests_of(view.line.tests), patch_of(view.line.patch))))
        yield [Span(said, "red" if view.line.tests.failing else "green")]
    passed = [outcome for outcome in view.tests if outcome.outcome == "passed"]
    others = [outcome for outcome in view.tests if outcome.outcome != "passed"]
    for outcome in [*others, *passed[:_PASSED_SHOWN]]:
        yield from outcome_lines(outcome)
    if len(passed) > _PASSED_SHOWN:
        yield [Span(f"… {len(passed) - _PASSED_SHOWN} more passed", "dim")]


def outcome_lines(outcome: TestOutcome) -> Iterator[Line]:
    """What came of a test, with its failure."""
    style = _OUTCOMES.get(outcome.outcome, "yellow")
    phase = "" if outcome.phase == "call" else f" at {one_line(outcome.phase)}"
    took = "" if outcome.duration is None else f"  {time_of(outcome.duration)}"
    yield [
        Span(f"{one_line(outcome.outcome):<7} ", style),
        Span(one_line(outcome.node_id)),
        Span(f"{phase}{took}", "dim"),
    ]
    if outcome.details:
        yield from indented(captured(outcome.details))
    elif outcome.message:
        yield from indented(captured(outcome.message))


def state_lines(state: StateView) -> Iterator[Line]:
    """How far the files after a step are known."""
    if state.state_id is None:
        text = f"{one_line(state.quality)}: the files after this step are not known"
        yield [Span(text, "yellow")]
    else:
        verb = "found" if state.at_start else "left"
        of = f"as step {state.step_number} {verb} them" if state.step_number else "as at the start"
        style = "green" if state.quality == "exact" else "yellow"
        yield [
            Span(one_line(state.quality), style),
            Span(f" · {one_line(state.state_id)} · {of}"),
        ]
    if state.reason:
        yield from captured(state.reason)
    if state.not_captured_count:
        names = ", ".join(one_line(path) for path in state.not_captured[:_PATHS_SHOWN])
        more = state.not_captured_count - min(_PATHS_SHOWN, len(state.not_captured))
        yield [Span(f"without: {names}" + (f" and {more} more" if more else ""), "dim")]
