"""What an agent tells its hooks, in the words of the journal.

Agents start a program before and after each of their tools, and write an object of JSON to it.
Here those objects are read; places, processes and files are not known. Only the standard library
is needed, since a hook has a few milliseconds.
"""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from typing import Any, NamedTuple

__all__ = [
    "AFTER",
    "BEFORE",
    "BEGIN",
    "END",
    "PROMPT",
    "Heard",
    "call_digest",
    "heard",
    "read",
    "step_facts",
]

BEGIN = "begin"
"""A session begins, or is taken up again."""
PROMPT = "prompt"
"""The user said something."""
BEFORE = "before"
"""A tool is about to be used."""
AFTER = "after"
"""A tool was used."""
END = "end"
"""A session ends."""

_MOMENTS = {
    "SessionStart": BEGIN,
    "UserPromptSubmit": PROMPT,
    "BeforeAgent": PROMPT,
    "PreToolUse": BEFORE,
    "BeforeTool": BEFORE,
    "PostToolUse": AFTER,
    "PostToolUseFailure": AFTER,
    "AfterTool": AFTER,
    "SessionEnd": END,
}

LARGEST = 16 << 20
"""Bytes of an object above which only names in its head and tail are looked for: most of it is
what a tool has answered."""

ARGUMENT = 2_000
"""Characters of an argument above which only their number counts; importers keep no more."""

_WINDOW = 1 << 16
_LONGEST = 100
"""Characters of the line that describes a step."""

_NAMES = ("session_id", "transcript_path", "cwd", "hook_event_name", "tool_name", "tool_use_id")
_NAMED = re.compile(rb'"(%s)" ?: ?("(?:[^"\\]|\\.)*")' % "|".join(_NAMES).encode())

_TYPES = {
    "Bash": "command",
    "PowerShell": "command",
    "run_shell_command": "command",
    "Edit": "edit",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "Write": "edit",
    "apply_patch": "edit",
    "replace": "edit",
    "write_file": "edit",
}
"""Until the session itself says what a tool is."""

_TITLES = (
    *("command", "cmd", "file_path", "absolute_path", "notebook_path", "path", "dir_path"),
    *("pattern", "query", "url", "description", "title", "prompt"),
)
"""Arguments of tools that say what a call is about, the best first."""


class Heard(NamedTuple):
    """What one hook was told. A text that was not told is empty."""

    moment: str
    """BEGIN, PROMPT, BEFORE, AFTER or END."""
    session: str
    transcript: str
    """Path of the session's file."""
    cwd: str
    tool: str
    call_id: str
    arguments: Any
    failure: str | None
    """Why the tool failed; None if it did not, as far as the agent tells."""
    prompt: str
    model: str
    resumed: bool
    """The session goes on that of another one, whose beginning it repeats."""


def read(descriptor: int) -> tuple[bytes, bytes]:
    """All that can be read, to its end: the writer must not be left with a broken pipe.

    The second part is the tail of what is too large to be kept, else empty.
    """
    kept, tail = bytearray(), b""
    while chunk := os.read(descriptor, 1 << 20):
        if len(kept) <= LARGEST:
            kept += chunk
            tail = b"" if len(kept) <= LARGEST else bytes(kept[-_WINDOW:])
        else:
            tail = (tail + chunk)[-_WINDOW:]
    return bytes(kept), tail


def heard(head: bytes, tail: bytes = b"") -> Heard | None:
    """What a hook's standard input says; None for anything that is of no use here."""
    told = _names(head[:_WINDOW], tail) if tail else _told(head)
    moment, session = _MOMENTS.get(_text(told, "hook_event_name")), _text(told, "session_id")
    tool = _text(told, "tool_name")
    if moment is None or not session or (moment in (BEFORE, AFTER) and not tool):
        return None
    return Heard(
        moment,
        session,
        _text(told, "transcript_path"),
        _text(told, "cwd"),
        tool,
        _text(told, "tool_use_id"),
        told.get("tool_input"),
        _failure(told),
        _text(told, "prompt"),
        _text(told, "model"),
        _text(told, "source") in ("resume", "fork"),
    )


def _told(data: bytes) -> dict[str, Any]:
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _names(head: bytes, tail: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in [*_NAMED.findall(tail), *_NAMED.findall(head)]:
        found.update(_told(b'{"%s":%s}' % (name, value)))
    return found


def _text(told: dict[str, Any], name: str) -> str:
    value = told.get(name)
    return _encodable(value) if isinstance(value, str) else ""


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _failure(told: dict[str, Any]) -> str | None:
    if told.get("hook_event_name") == "PostToolUseFailure":
        return _line(told.get("error")) or "it failed"
    answer = told.get("tool_response")
    error = answer.get("error") if isinstance(answer, dict) else None
    return _line(error.get("message") if isinstance(error, dict) else error) or None


def step_facts(told: Heard) -> dict[str, Any]:
    """What is known of the step that a call of a tool is; see `records.events.StepData`."""
    facts: dict[str, Any] = {
        "step_type": _TYPES.get(told.tool, "tool"),
        "description": _description(told),
        "metadata": {"tool": told.tool},
    }
    if told.call_id:
        facts["external_id"] = told.call_id
    else:
        facts["metadata"]["call_digest"] = call_digest(told.tool, told.arguments)
    return facts


def call_digest(tool: str, arguments: Any) -> str:
    """The same for the same call of a tool, where agents give their calls no ids."""
    if isinstance(arguments, dict):
        arguments = {
            name: f"[{len(value)} characters]"
            if isinstance(value, str) and len(value) > ARGUMENT
            else value
            for name, value in arguments.items()
        }
    plain = json.dumps([tool, arguments], sort_keys=True, default=str)
    return sha256(plain.encode("utf-8", "replace")).hexdigest()[:16]


def _description(told: Heard) -> str:
    given = told.arguments if isinstance(told.arguments, dict) else {}
    title = next((line for name in _TITLES if (line := _line(given.get(name)))), "")
    if _TYPES.get(told.tool) == "command" and title:
        return title
    return f"{' '.join(told.tool.split())} {title}".strip()[:_LONGEST]


def _line(value: Any) -> str:
    """The first line of a text that says something."""
    if isinstance(value, list):
        value = " ".join(str(part) for part in value[:50])
    if not isinstance(value, str):
        return ""
    lines = (line.strip() for line in value[: 100 * _LONGEST].split("\n"))
    return _encodable(next(filter(None, lines), "")[:_LONGEST])
