"""What the tools of OpenHands were given and answered."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from repotrace.agents import Action
from repotrace.agents.openhands import TOOLS
from repotrace.importers.building import (
    Call,
    Data,
    Result,
    blob_id,
    operation,
    parts_text,
    text_of,
)
from repotrace.importers.claims import claimed, spoken
from repotrace.importers.effects import normalised
from repotrace.records.run import OperationType

_OURS = frozenset({"kind", "security_risk", "summary"})
"""Arguments that say nothing to the tool."""
_NUMBERED = re.compile(r"\AHere's the result of running `cat -n` on ([^\n]*):\n")
_NUMBER = re.compile(r" *(\d+)\t")
_FOLDER = "Here's the files and directories up to"


def asked(event: Data) -> tuple[str, Data]:
    """The tool that an action calls, by its name in the vocabulary, and its arguments."""
    name = text_of(event.get("tool_name")) or "tool"
    given: Any = None
    call = event.get("tool_call")
    if isinstance(call, dict):
        given = call.get("arguments")
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except (ValueError, RecursionError):
                given = None if event.get("action") else {"input": given}
    if not isinstance(given, dict):
        action = event.get("action")
        given = action if isinstance(action, dict) else {}
    given = {key: value for key, value in given.items() if key not in _OURS}
    if name == "execute_ipython_cell":
        return name, {"command": f"python3 - <<'EOF'\n{text_of(given.get('code'))}\nEOF"}
    tool = TOOLS.get(name)
    if tool is not None and tool.action is Action.RUN and given.get("is_input") in (True, "true"):
        return "terminal input", given
    return spoken(name, given, TOOLS), given


def told(call: Call | None, observation: Data) -> Result:
    """The result of a call."""
    text = parts_text(observation.get("content")) or text_of(
        observation.get("output") or observation.get("error")
    )
    failed = observation.get("is_error") is True or bool(observation.get("error"))
    if call is None:
        return Result(text, failed=failed)
    if call.tool.action is Action.RUN:
        return _ran(text, observation, failed=failed)
    if failed:
        return Result(text, failed=True)
    return Result(
        text, operations=_operations(call, observation), reads=_reads(call, observation, text)
    )


def _ran(text: str, observation: Data, *, failed: bool) -> Result:
    metadata = observation.get("metadata")
    facts = metadata if isinstance(metadata, dict) else {}
    code = observation.get("exit_code")
    if code is None:
        code = facts.get("exit_code")
    if isinstance(code, bool) or not isinstance(code, int):
        code = None
    late = observation.get("timeout") is True
    return Result(
        text,
        failed=failed or late,
        # -1 means that there is none yet: the command goes on, or was not begun.
        exit_code=code if code is not None and code >= 0 else None,
        termination="timeout" if late else None,
        background=code == -1 and not failed and not late,
        refused=failed and code in (None, -1),
    )


def working_folder(observation: Data) -> str:
    """The folder that a shell was in after a command; empty if it is not told."""
    metadata = observation.get("metadata")
    found = metadata.get("working_dir") if isinstance(metadata, dict) else None
    return found if isinstance(found, str) and found.startswith("/") else ""


def _operations(call: Call, observation: Data) -> Sequence[Data]:
    if call.tool.action not in (Action.EDIT, Action.WRITE, Action.PATCH):
        return ()
    new = observation.get("new_content")
    if not isinstance(new, str):
        return () if "prev_exist" in observation and new is None else _claimed(call)
    told_path = observation.get("path") or call.arguments.get(call.tool.path)
    path = normalised(call.cwd, text_of(told_path))
    old = observation.get("old_content")
    if observation.get("prev_exist") is False or not isinstance(old, str):
        kind = OperationType.CREATE if observation.get("prev_exist") is False else "edit"
        return [operation(path, kind, content_after=new)]
    return [operation(path, OperationType.EDIT, content_before=old, content_after=new)]


def _claimed(call: Call) -> Sequence[Data]:
    given = call.arguments
    if call.name in ("write", "edit_file"):
        # Part of the file may be meant, told by its lines.
        whole = given.get("start") in (None, 0, 1) and given.get("end") in (None, -1)
        content = given.get("content")
        path = normalised(call.cwd, text_of(given.get("path")))
        if call.name == "edit_file" or not whole or not isinstance(content, str):
            return [operation(path, OperationType.EDIT)]
    return claimed(call.tool, given, call.cwd)


def _reads(call: Call, observation: Data, text: str) -> Sequence[Data]:
    """What a view of a file or folder showed, where the arguments do not say it all."""
    if call.tool.action is not Action.READ:
        return ()
    path = observation.get("path") or call.arguments.get(call.tool.path)
    if not isinstance(path, str) or not path:
        return ()
    path = normalised(call.cwd, path)
    if text.startswith(_FOLDER):
        return [{"file_path": path, "kind": "list"}]
    read: Data = {"file_path": path, "kind": "read"}
    lines = call.arguments.get("view_range")
    if isinstance(lines, list) and len(lines) == 2:
        first, last = lines
        if isinstance(first, int) and first > 0:
            read["first_line"] = first
            if isinstance(last, int) and last >= first:
                read["last_line"] = last
        return [read]
    content = _unnumbered(text)
    if content is not None:
        read["object_id"] = blob_id(content.encode("utf-8", "surrogatepass"))
    return [read]


def _unnumbered(text: str) -> str | None:
    """The file that was shown with numbers of lines; None if it was not shown as a whole."""
    begin = _NUMBERED.match(text)
    if begin is None or "<response clipped>" in text:
        return None
    lines = text[begin.end() :].removesuffix("\n").split("\n")
    found = []
    for number, line in enumerate(lines, 1):
        match = _NUMBER.match(line)
        if match is None or int(match[1]) != number:
            return None
        found.append(line[match.end() :])
    return "\n".join(found)
