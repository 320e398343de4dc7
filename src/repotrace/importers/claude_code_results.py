"""What the tools of Claude Code answered: outputs, reads and changes of files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from repotrace.agents import Action
from repotrace.importers.building import Builder, Call, Data, Result, blob_id, operation, parts_text
from repotrace.importers.patches import Hunk, Unfitting, apply_hunks
from repotrace.records.command import Termination
from repotrace.records.run import OperationType

_EXIT_CODE = re.compile(r"\A(?:Error: )?Exit code (\d+)(?:\n|\Z)")
_TIMED_OUT = re.compile(r"Command timed out after ", re.IGNORECASE)
_SPILLED = re.compile(r"Full output saved to: (\S+)")
_SPILL_LIMIT = 16 << 20
_MATCH = re.compile(r"^([^\s:][^:\n]*):\d+[:-]", re.MULTILINE)
_MATCHES = 200
_REFUSALS = (
    "The user doesn't want to proceed",
    "The user doesn't want to take this action",
    "Permission to use",
    "Claude requested permissions",
    "This command requires approval",
)


def refusal(record: Data, text: str) -> str | None:
    """Why a call was not allowed; None if it was."""
    decision = record.get("permissionDecision")
    if isinstance(decision, dict) and decision.get("decision") not in (None, "accept"):
        return text or str(decision.get("decision"))
    return text if text.startswith(_REFUSALS) else None


def typed(stdout: str, stderr: str) -> Result:
    """The result of a command that the user typed; how it ended is not told."""
    return Result(stdout, stdout=stdout, stderr=stderr)


def result_of(builder: Builder, call: Call | None, part: Data, told: Any, spilled: Path) -> Result:
    """The result that a `tool_result` and the record around it tell of.

    `spilled` is the folder of the outputs that were too long.
    """
    text = parts_text(part.get("content"))
    failed = part.get("is_error") is True
    if isinstance(told, str):
        failed = failed or told.startswith("Error:")
        text = text or told
    facts = told if isinstance(told, dict) else {}
    action = call.tool.action if call else Action.OTHER
    if action is Action.RUN:
        return _run(text, failed, facts, spilled)
    if failed:
        return Result(text, failed=True)
    operations: Sequence[Data] = ()
    if call is not None and action in (Action.EDIT, Action.WRITE):
        operations = _changes(builder, call, facts)
    reads = _reads(builder, facts)
    metadata: Data = {}
    if action is Action.AGENT:
        names = ("agentId", "status", "totalTokens", "totalDurationMs", "totalToolUseCount")
        metadata = {"sub_agent": {name: facts[name] for name in names if name in facts}}
    return Result(text, operations=operations, reads=reads, metadata=metadata)


# --- Commands -------------------------------------------------------------------------------


def _run(text: str, failed: bool, facts: Data, spilled: Path) -> Result:
    if failed and text.startswith(_REFUSALS):
        return Result(text, failed=True, refused=True)
    exit_code: int | None = None
    match = _EXIT_CODE.match(text)
    stdout: str | None = None
    if match is not None:
        exit_code = int(match[1])
        stdout = text[match.end() :]
    elif not failed and not {"returnCodeInterpretation", "backgroundTaskId"} & facts.keys():
        exit_code = 0
    told = facts.get("stdout")
    if isinstance(told, str):
        stdout = told
    kept = facts.get("persistedOutputPath") or next(iter(_SPILLED.findall(text)), None)
    if isinstance(kept, str):
        stdout = _spilled(spilled / kept.replace("\\", "/").rpartition("/")[2]) or stdout
    termination = None
    if facts.get("interrupted") is True:
        termination, exit_code = Termination.INTERRUPTED, None
    elif failed and exit_code is None and _TIMED_OUT.search(text):
        termination = Termination.TIMEOUT
    return Result(
        text,
        failed=failed,
        exit_code=exit_code,
        stdout=text if stdout is None else stdout,
        stderr=str(facts.get("stderr") or ""),
        termination=termination,
        background="backgroundTaskId" in facts,
    )


def _spilled(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return stream.read(_SPILL_LIMIT).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


# --- Reads ----------------------------------------------------------------------------------


def _reads(builder: Builder, facts: Data) -> list[Data]:
    file = facts.get("file")
    if isinstance(file, dict) and isinstance(file.get("filePath"), str):
        return [_read(builder, file)]
    names = facts.get("filenames")
    found: list[str] = []
    if isinstance(names, list) and names:
        found = [name for name in names if isinstance(name, str)][:_MATCHES]
    elif facts.get("mode") == "content" and isinstance(facts.get("content"), str):
        hits = (match[1] for match in _MATCH.finditer(facts["content"]))
        found = list(islice(dict.fromkeys(hits), _MATCHES))
    return [{"file_path": builder.path(name), "kind": "search"} for name in found]


def _read(builder: Builder, file: Data) -> Data:
    read: Data = {"file_path": builder.path(file["filePath"]), "kind": "read"}
    first, count, total = (file.get(name) for name in ("startLine", "numLines", "totalLines"))
    content = file.get("content")
    if not isinstance(first, int) or not isinstance(count, int):
        return read
    if first == 1 and count == total and isinstance(content, str) and "\ufffd" not in content:
        read["object_id"] = blob_id(content.encode("utf-8", "surrogatepass"))
    else:
        read |= {"first_line": first, "last_line": first + count - 1}
    return read


# --- Changes --------------------------------------------------------------------------------


def _changes(builder: Builder, call: Call, facts: Data) -> list[Data]:
    given = call.arguments
    path = facts.get("filePath") or given.get(call.tool.path)
    if not isinstance(path, str):
        return []
    path = builder.path(path)
    before = facts.get("originalFile", facts.get("originalFileContents"))
    content = facts.get("content", given.get(call.tool.content) if call.tool.content else None)
    if call.tool.action is Action.WRITE or (isinstance(content, str) and "oldString" not in facts):
        if not isinstance(content, str):
            return [operation(path, OperationType.EDIT)]
        created = facts.get("type") == "create" or ("type" in facts and before is None)
        kind = OperationType.CREATE if created else OperationType.EDIT
        known = {"content_before": before} if isinstance(before, str) else {}
        return [operation(path, kind, content_after=content, **known)]
    edits = _edits(call, facts)
    if not edits:
        return [operation(path, OperationType.EDIT)]  # that it was changed is all that is known
    if not isinstance(before, str):
        if len(edits) == 1 and edits[0]["old"] == "":
            return [operation(path, OperationType.CREATE, content_after=edits[0]["new"])]
        return [operation(path, OperationType.EDIT, edits=edits)]
    after = None if facts.get("userModified") is True else edited(before, edits)
    if after is None:
        after = _patched(before, facts.get("structuredPatch"))
    if after is None:
        return [operation(path, OperationType.EDIT, edits=edits)]
    kind = OperationType.EDIT if before else OperationType.CREATE
    known = {"content_before": before} if before else {}
    return [operation(path, kind, content_after=after, **known)]


def _edits(call: Call, facts: Data) -> list[Data]:
    source = facts.get("edits", call.arguments.get("edits"))
    if isinstance(source, list):
        names = ("old_string", "new_string", "replace_all")
        found = [[edit.get(name) for name in names] for edit in source if isinstance(edit, dict)]
    else:
        tool, given = call.tool, call.arguments
        found = [
            [
                facts.get("oldString", given.get(tool.old)),
                facts.get("newString", given.get(tool.new)),
                facts.get("replaceAll", given.get(tool.all)),
            ]
        ]
    return [
        {"old": old, "new": new, "all": bool(every)}
        for old, new, every in found
        if isinstance(old, str) and isinstance(new, str)
    ]


def edited(text: str, edits: Sequence[Data]) -> str | None:
    """The text with edits applied in order; None if one does not fit."""
    for edit in edits:
        old, new = edit["old"], edit["new"]
        if old == "" and text == "":
            text = new
        elif not old or old not in text:
            return None
        else:
            text = text.replace(old, new) if edit.get("all") else text.replace(old, new, 1)
    return text


def _patched(before: str, patch: Any) -> str | None:
    """The text with a `structuredPatch` applied."""
    if not isinstance(patch, list) or not patch:
        return None
    hunks = []
    for part in patch:
        lines = part.get("lines") if isinstance(part, dict) else None
        if not isinstance(lines, list) or not isinstance(part.get("oldStart"), int):
            return None
        words = [str(line) for line in lines if not str(line).startswith("\\")]
        old = tuple(line[1:] + "\n" for line in words if line[:1] in (" ", "-"))
        new = tuple(line[1:] + "\n" for line in words if line[:1] in (" ", "+"))
        hunks.append(Hunk(old, new, part["oldStart"]))
    try:
        return apply_hunks(before, hunks)
    except Unfitting:
        return None
