"""A step and what hangs on it as lines of plain text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from difflib import SequenceMatcher
from typing import Any, Literal, TextIO

from repotrace.readable import one_line, readable, seconds, size, visible
from repotrace.records.run import (
    ExecutionStep,
    FileOperation,
    LLMInteraction,
    LogEntry,
    OperationType,
    TestOutcome,
)

_COMPARABLE = 10_000_000
"""Product of the numbers of lines up to which two contents are compared in a moment."""
_SHORT = 160
"""Characters of a text that is only hinted at."""


def print_lines(stream: TextIO, *texts: Iterable[str]) -> None:
    """Write lines; what the stream cannot encode is written as escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for lines in texts:
        for line in lines:
            stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def by_step[T: (FileOperation, LLMInteraction, LogEntry, TestOutcome)](
    parts: Iterable[T],
) -> dict[str, list[T]]:
    """What hangs on each step, by its id, in the order given."""
    found: dict[str, list[T]] = {}
    for part in parts:
        found.setdefault(part.step_id or "", []).append(part)
    return found


def duration(start: datetime, end: datetime) -> float:
    """Seconds; a time without a zone is meant to be UTC."""
    first, last = (time if time.tzinfo else time.replace(tzinfo=UTC) for time in (start, end))
    return (last - first).total_seconds()


# --- Steps ----------------------------------------------------------------------------------


def step_head(step: ExecutionStep) -> str:
    """Number, type, status, start and duration of a step."""
    facts = [step.step_type, step.status, step.started_at.isoformat(" ", "seconds")]
    if step.completed_at is not None:
        facts.append(seconds(duration(step.started_at, step.completed_at)))
    if step.attempt > 1:
        facts.append(f"attempt {step.attempt}")
    return f"Step {step.step_number}: {one_line(', '.join(facts))}"


def step_line(step: ExecutionStep) -> str:
    """A step in a list."""
    facts = f"{step.step_number:>5}  {step.step_type:<12} {step.status:<11}"
    return f"{visible(facts)} {one_line(step.description, _SHORT)}"


def titled(title: str, text: str | None) -> Iterator[str]:
    """A text whole, below its title; nothing for none."""
    if text:
        yield f"{title}:"
        yield from _indented(text)


def hint(title: str, text: str | None) -> Iterator[str]:
    """The begin of a text on one line, and how much more there is; nothing for none."""
    if not text:
        return
    line = one_line(text, _SHORT)
    more = f"  [{len(text)} characters]" if len(text) > _SHORT else ""
    yield f"  {title}: {line}{more}"


def _indented(text: str) -> Iterator[str]:
    return (f"  {line}" for line in readable(text).rstrip("\n").split("\n"))


# --- Model calls ----------------------------------------------------------------------------


def call_line(call: LLMInteraction) -> str:
    """Model, tokens, purpose and cost of a call."""
    facts = [call.model or "unknown model", f"{call.tokens_used} tokens", call.purpose]
    if call.cost_usd is not None:
        facts.append(f"${call.cost_usd}")
    if call.error:
        facts.append(f"failed: {call.error}")
    return one_line(", ".join(facts))


def prompt_lines(call: LLMInteraction) -> Iterator[str]:
    """All that the model was sent."""
    yield from titled("prompt", call.prompt)
    for message in call.messages:
        yield from titled(str(message.get("role", "message")), _said(message.get("content")))
    if not call.prompt and not call.messages:
        yield "prompt: not recorded"


def response_lines(call: LLMInteraction) -> Iterator[str]:
    """All that the model answered."""
    whole = _said(call.response_message.get("content")) if call.response_message else ""
    text = whole if call.response in whole else call.response
    yield from titled("response", text) if text else ["response: none"]


def _said(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else _as_json(content)
    return "\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    kind = part.get("type")
    if kind in ("text", "thinking") and isinstance(part.get("text"), str):
        return f"[thinking] {part['text']}" if kind == "thinking" else str(part["text"])
    if kind == "tool_call":
        return f"[tool call] {part.get('name')} {_as_json(part.get('arguments'))}"
    if kind == "tool_result":
        return f"[tool result] {_said(part.get('content'))}"
    return f"[{kind}] {_as_json({key: part[key] for key in part if key != 'type'})}"


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# --- Files ----------------------------------------------------------------------------------


def change_line(operation: FileOperation) -> str:
    """What happened to a file: the operation, the path, how many lines."""
    line = f"{operation.operation_type:<7}{visible(operation.file_path)}"
    if operation.renamed_from is not None:
        line += f" (renamed from {visible(operation.renamed_from)})"
    if operation.lines_added is not None and operation.lines_removed is not None:
        line += f"  +{operation.lines_added} -{operation.lines_removed}"
    return one_line(line) if "\n" in line else line


def diff_lines(operation: FileOperation) -> Iterator[str]:
    """The change of a file as a unified diff; a sentence where that cannot be told."""
    path = visible(operation.file_path).replace("\n", "\\n")
    before, after = operation.content_before, operation.content_after
    is_there = operation.operation_type != OperationType.DELETE
    was_there = operation.operation_type != OperationType.CREATE
    if (is_there and after is None) or (was_there and before is None):
        yield f"{path}: the contents were not kept"
        return
    old, new = before or "", after or ""
    if operation.is_binary or "\0" in old or "\0" in new:
        yield f"{path}: binary, {_size(before)} before, {_size(after)} after"
        return
    matcher = _Trimmed(_lines(old), _lines(new))
    if matcher.is_long:
        yield f"{path}: too long to be compared here; repotrace runs diff does it"
        return
    changed = list(matcher.get_grouped_opcodes(3))
    if changed:
        yield f"--- a/{path}" if was_there else "--- /dev/null"
        yield f"+++ b/{path}" if is_there else "+++ /dev/null"
    for group in changed:
        yield from _hunk(matcher, group)


type _Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


class _Trimmed(SequenceMatcher[str]):
    """Compares lines; what both begin and end with is set aside first."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        shorter = min(len(old), len(new))
        start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
        rest = shorter - start
        end = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
        differing = old[start : len(old) - end], new[start : len(new) - end]
        super().__init__(None, *differing, autojunk=False)
        self.old, self.new = old, new
        self.is_long = len(differing[0]) * len(differing[1]) > _COMPARABLE
        self._start, self._end = start, end

    def get_opcodes(self) -> list[_Opcode]:
        """Those of all lines."""
        start, end, n, m = self._start, self._end, len(self.old), len(self.new)
        found: list[_Opcode] = [("equal", 0, start, 0, start)] if start else []
        for tag, a, b, c, d in super().get_opcodes():
            found.append((tag, a + start, b + start, c + start, d + start))
        return found + ([("equal", n - end, n, m - end, m)] if end else [])


def _hunk(matcher: _Trimmed, group: Sequence[tuple[str, int, int, int, int]]) -> Iterator[str]:
    first, last = group[0], group[-1]
    yield f"@@ -{_range(first[1], last[2])} +{_range(first[3], last[4])} @@"
    for tag, a, b, c, d in group:
        if tag == "equal":
            yield from _marked(" ", matcher.old[a:b])
        else:
            yield from _marked("-", matcher.old[a:b])
            yield from _marked("+", matcher.new[c:d])


def _range(start: int, end: int) -> str:
    count = end - start
    if count == 1:
        return f"{start + 1}"
    return f"{start + 1 if count else start},{count}"


def _marked(mark: str, lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield mark + visible(line.removesuffix("\n"))
        if not line.endswith("\n"):
            yield "\\ No newline at end of file"


def _lines(text: str) -> list[str]:
    """Lines with their ends, as a diff sees them: only `\\n` ends one."""
    lines = text.split("\n")
    ends = [f"{line}\n" for line in lines[:-1]]
    return ends + lines[-1:] if lines[-1] else ends


def _size(content: str | None) -> str:
    if content is None:
        return "nothing"
    return size(len(content.encode("utf-8", "surrogateescape")))
