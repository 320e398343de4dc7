"""What the tools of Gemini CLI gave back: texts, commands with their ends, changes of files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from repotrace.agents import Action
from repotrace.importers.building import (
    Call,
    Data,
    Result,
    blob_id,
    operation,
    text_of,
)
from repotrace.importers.claims import claimed
from repotrace.importers.effects import normalised
from repotrace.records.run import OperationType

type Record = dict[str, Any]

ENDED = frozenset(["success", "error", "cancelled"])
"""The states of a call that it does not leave."""

_CODE = re.compile(r"(?:^|\n)Exit Code: (-?\d+)[ \t]*(?=\n|\Z)")
_LABELS = re.compile(
    r"\A(?:Command: .*?\n)?(?:Directory: [^\n]*\n)?(?:Output|Stdout): ?", re.DOTALL
)
_TAIL = ("Process Group PGID: ", "Background PIDs: ", "Signal: ", "Exit Code: ", "Error: (none)")
_STDERR = re.compile(r"\nStderr: ?(.*)\Z", re.DOTALL)
_WRAPPED = re.compile(r"\A<untrusted_context>\n(.*)\n</untrusted_context>\s*\Z", re.DOTALL)
_CUT = ("truncated.", "[truncated")
_SEVERAL = re.compile(r"^--- (.+) ---$", re.MULTILINE)


def response_text(result: Any) -> str:
    """The text that the model was given for a call."""
    found = []
    for part in result if isinstance(result, list) else [result]:
        if not isinstance(part, dict):
            found.append(text_of(part))
            continue
        answer = part.get("functionResponse")
        response = answer.get("response") if isinstance(answer, dict) else None
        if isinstance(response, dict):
            told = response.get("output", response.get("error", response))
            found.append(text_of(told))
        elif "text" in part:
            found.append(text_of(part["text"]))
    return "\n".join(text for text in found if text)


def result_of(told: Record, call: Call) -> Result:
    """What came back from a call that has ended."""
    text = response_text(told.get("result"))
    display = told.get("resultDisplay")
    if not text:
        text = text_of(display) if isinstance(display, str) else ""
    match = _WRAPPED.match(text)
    inner = match[1] if match else text
    status = told.get("status")
    if call.tool.action is Action.RUN and status != "error":
        return _ran(call, text, inner, refused=status == "cancelled")
    if status == "cancelled":
        return Result(text, failed=True, refused=True)
    if status == "error":
        return Result(text, failed=True)
    return Result(text, operations=_changes(call, display), reads=list(_reads(call, inner)))


def _ran(call: Call, text: str, inner: str, *, refused: bool) -> Result:
    code = next((int(match[1]) for match in reversed([*_CODE.finditer(inner)])), None)
    if "cancelled because it exceeded the timeout" in inner:
        return Result(text, failed=True, stdout=_after(inner), termination="timeout")
    if refused:
        return Result(text, failed=True, refused="before it could complete" not in inner)
    started = call.arguments.get("is_background") is True or "moved to background" in inner[:200]
    output, stderr = _output(inner)
    ended = not started and _LABELS.match(inner) is not None
    signal = re.search(r"\nSignal: (?!0\b|\(none\))\S", inner) is not None
    return Result(
        text,
        failed=signal,
        # It tells codes of failures only, but for old versions.
        exit_code=code if code is not None else 0 if ended and not signal else None,
        stdout=output,
        stderr=stderr,
        background=started,
    )


def _after(inner: str) -> str:
    return inner.partition("before it was cancelled:\n")[2]


def _output(inner: str) -> tuple[str, str]:
    """What a command printed, without what is told around it."""
    match = _LABELS.match(inner)
    if match is None:
        return inner, ""
    lines = inner[match.end() :].split("\n")
    for label in _TAIL:
        if lines and lines[-1].startswith(label):
            lines.pop()
    output = "\n".join(lines)
    stderr = ""
    if inner[: match.end()].rstrip().endswith("Stdout:"):
        split = _STDERR.search(output)
        if split is not None:
            output, stderr = output[: split.start()], split[1]
    return _unless_empty(output), _unless_empty(stderr)


def _unless_empty(text: str) -> str:
    return "" if text.strip() == "(empty)" else text


def _changes(call: Call, display: Any) -> list[Data]:
    tool = call.tool
    if tool.action not in (Action.EDIT, Action.WRITE):
        return []
    path = call.arguments.get(tool.path)
    if isinstance(display, dict) and isinstance(display.get("newContent"), str):
        named = path if isinstance(path, str) and path else text_of(display.get("filePath"))
        if named:
            before, after = display.get("originalContent"), display["newContent"]
            whole = normalised(call.cwd, named) if call.cwd else named
            if display.get("isNewFile") is True or before is None:
                return [operation(whole, OperationType.CREATE, content_after=after)]
            told = {"content_before": before} if isinstance(before, str) else {}
            return [operation(whole, OperationType.EDIT, **told, content_after=after)]
    return claimed(tool, call.arguments, call.cwd)


def _reads(call: Call, text: str) -> Iterator[Data]:
    """More than the arguments tell: the content of a file, several files."""
    given = call.arguments
    if call.name == "read_many_files":
        for match in _SEVERAL.finditer(text):
            yield {"file_path": normalised(call.cwd, match[1]), "kind": "read"}
        return
    if call.name != "read_file":
        return
    path = given.get("file_path") or given.get("absolute_path") or given.get("path")
    if not isinstance(path, str) or not path:
        return
    read: Data = {"file_path": normalised(call.cwd, path), "kind": "read"}
    first, last = given.get("start_line"), given.get("end_line")
    offset, limit = given.get("offset"), given.get("limit")
    if _is_count(offset) or _is_count(limit):
        first = (offset if _is_count(offset) else 0) + 1
        last = first + limit - 1 if _is_count(limit) else None
    if _is_count(first) or _is_count(last):
        read["first_line"] = max(first, 1) if _is_count(first) else 1
        if _is_count(last) and last >= read["first_line"]:
            read["last_line"] = last
    elif text and not any(mark in text[:200] for mark in _CUT):
        read["object_id"] = blob_id(text.encode("utf-8", "surrogatepass"))
    yield read


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40
