"""What the tools of OpenCode were given and answered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from repotrace.agents import Action
from repotrace.importers.building import Call, Data, Result, blob_id, number, operation, text_of
from repotrace.importers.claims import claimed
from repotrace.importers.effects import normalised
from repotrace.records.run import OperationType

_REFUSED = re.compile(
    r"The user (?:rejected|dismissed)|The user has specified a rule which prevents"
    r"|PermissionRejectedError|RejectedError"
)
_LATE = re.compile(r"exceed(?:ing|ed) timeout|timed out after", re.IGNORECASE)
_TAIL = re.compile(r"\n*<(?:bash|shell)_metadata>.*\Z", re.DOTALL)
_STOPPED = re.compile(r"aborted|cancelled", re.IGNORECASE)
_KINDS = {"add": OperationType.CREATE, "delete": OperationType.DELETE}


def told(call: Call, state: Data) -> Result:
    """The result of a call from its last state."""
    metadata = _object(state.get("metadata"))
    if state.get("status") == "error":
        text = text_of(state.get("error"))
        stopped = _STOPPED.search(text) is not None and call.tool.action is Action.RUN
        return Result(
            text,
            failed=True,
            refused=_REFUSED.search(text) is not None,
            stdout=text_of(metadata.get("output")) or None,
            termination="interrupted" if stopped else None,
        )
    text = text_of(state.get("output"))
    facts = {"title": state["title"]} if isinstance(state.get("title"), str) else {}
    child = sub_session(call, state)
    if child:
        facts["session"] = child
    if call.tool.action is Action.RUN:
        return _ran(text, metadata)._replace(metadata=facts)
    return Result(
        text,
        operations=_operations(call, metadata),
        reads=_reads(call, metadata),
        metadata=facts,
    )


def sub_session(call: Call, state: Data) -> str:
    """The session of the sub-agent that a call started; empty if it is not told."""
    metadata = _object(state.get("metadata"))
    child = metadata.get("sessionId", metadata.get("sessionID"))
    return child if isinstance(child, str) and call.tool.action is Action.AGENT else ""


def _object(value: Any) -> Data:
    return value if isinstance(value, dict) else {}


def _ran(text: str, metadata: Data) -> Result:
    code = metadata.get("exit")
    if isinstance(code, bool) or not isinstance(code, int):
        code = None
    tail = _TAIL.search(text)
    late = tail is not None and _LATE.search(tail[0]) is not None
    stopped = tail is not None and not late and _STOPPED.search(tail[0]) is not None
    whole = metadata.get("truncated") is not True and metadata.get("output") == text
    return Result(
        text,
        failed=late or stopped,
        exit_code=code,
        stdout=_TAIL.sub("", text),
        exact=whole and tail is None,
        termination="timeout" if late else "interrupted" if stopped else None,
    )


def _operations(call: Call, metadata: Data) -> Sequence[Data]:
    given, action = call.arguments, call.tool.action
    if action is Action.PATCH:
        files = metadata.get("files")
        listed = [one for one in files if isinstance(one, dict)] if isinstance(files, list) else []
        if listed and all(_is_whole(one) for one in listed):
            return [change for one in listed for change in _whole(call, one)]
        return claimed(call.tool, given, call.cwd)
    if action not in (Action.EDIT, Action.WRITE):
        return ()
    path = given.get("filePath")
    if not isinstance(path, str) or not path:
        return ()
    path = normalised(call.cwd, path)
    content = given.get("content")
    if isinstance(content, str) and "oldString" not in given:
        kind = OperationType.CREATE if metadata.get("exists") is False else OperationType.EDIT
        return [operation(path, kind, content_after=content)]
    found = _object(metadata.get("filediff"))
    before, after = found.get("before"), found.get("after")
    if isinstance(before, str) and isinstance(after, str):
        return [operation(path, OperationType.EDIT, content_before=before, content_after=after)]
    if call.name == "multiedit":
        edits = given.get("edits")
        several = [
            {
                "old": one["oldString"],
                "new": text_of(one.get("newString")),
                "all": one.get("replaceAll") is True,
            }
            for one in (edits if isinstance(edits, list) else ())
            if isinstance(one, dict) and isinstance(one.get("oldString"), str)
        ]
        return [operation(path, OperationType.EDIT, edits=several)]
    if given.get("oldString") == "":
        return [
            operation(path, OperationType.CREATE, content_after=text_of(given.get("newString")))
        ]
    return claimed(call.tool, given, call.cwd)


def _is_whole(changed: Data) -> bool:
    return isinstance(changed.get("before"), str) and isinstance(changed.get("after"), str)


def _whole(call: Call, changed: Data) -> list[Data]:
    """The change of a file that a patch changed, of which both contents are told."""
    path = normalised(call.cwd, text_of(changed.get("filePath")))
    kind = _KINDS.get(text_of(changed.get("type")), OperationType.EDIT)
    before, after = changed["before"], changed["after"]
    target = changed.get("movePath")
    if isinstance(target, str) and target:
        moved = normalised(call.cwd, target)
        made = operation(moved, OperationType.CREATE, content_after=after, renamed_from=path)
        return [made, operation(path, OperationType.DELETE, content_before=before)]
    if kind == OperationType.CREATE:
        return [operation(path, kind, content_after=after)]
    if kind == OperationType.DELETE:
        return [operation(path, kind, content_before=before)]
    return [operation(path, kind, content_before=before, content_after=after)]


def _reads(call: Call, metadata: Data) -> Sequence[Data]:
    """What was shown of a file or folder."""
    if call.tool.action is not Action.READ:
        return ()
    path = call.arguments.get("filePath")
    if not isinstance(path, str) or not path:
        return ()
    path = normalised(call.cwd, path)
    shown = _object(metadata.get("display"))
    if shown.get("type") == "directory":
        return [{"file_path": path, "kind": "list"}]
    read: Data = {"file_path": path, "kind": "read"}
    first, last = number(shown.get("lineStart")), number(shown.get("lineEnd"))
    text, total = shown.get("text"), number(shown.get("totalLines"))
    whole = first == 1 and last == total and shown.get("truncated") is False
    if whole and isinstance(text, str) and text:
        # Whether a line end follows the last line is not told; nearly always one does.
        read["object_id"] = blob_id(f"{text}\n".encode("utf-8", "surrogatepass"))
        return [read]
    offset, count = number(call.arguments.get("offset")), number(call.arguments.get("limit"))
    if first:
        read["first_line"] = first
        if last and last >= first:
            read["last_line"] = last
    elif offset or count:
        read["first_line"] = offset or 1
        if count:
            read["last_line"] = read["first_line"] + count - 1
    return [read]
