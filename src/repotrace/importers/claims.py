"""Changes of files as the arguments of a call claim them, for transcripts that tell no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from repotrace.agents import Action, Tool
from repotrace.importers import patches
from repotrace.importers.building import Data, operation, text_of
from repotrace.importers.effects import normalised
from repotrace.records.run import OperationType

_KINDS = {"add": OperationType.CREATE, "delete": OperationType.DELETE}


def spoken(name: str, arguments: Any, tools: Mapping[str, Tool]) -> str:
    """The name of a tool in the vocabulary; that of a text editor includes its command."""
    if name not in tools and isinstance(arguments, dict):
        whole = f"{name} {arguments.get('command')}"
        if whole in tools:
            return whole
    return name


def claimed(tool: Tool, arguments: Any, cwd: str) -> list[Data]:
    """The changes that a call which succeeded made, as far as its arguments tell."""
    if not isinstance(arguments, dict):
        return []
    if tool.action is Action.PATCH:
        return list(patch_operations(text_of(arguments.get(tool.content)), cwd))
    path = arguments.get(tool.path) if tool.path else None
    if not isinstance(path, str) or not path:
        return []
    path = normalised(cwd, path) if cwd else path
    if tool.action is Action.WRITE:
        content = arguments.get(tool.content)
        if not isinstance(content, str):
            return [operation(path, OperationType.EDIT)]
        # Whether the file was there is not told; the states know.
        return [operation(path, OperationType.EDIT, content_after=content)]
    if tool.action is Action.EDIT:
        return [_edit(tool, arguments, path)]
    return []


def _edit(tool: Tool, arguments: Mapping[str, Any], path: str) -> Data:
    old, new = arguments.get(tool.old), arguments.get(tool.new)
    after = arguments.get(tool.first)
    if isinstance(new, str) and not isinstance(old, str) and isinstance(after, int):
        return inserted(path, after, new)
    several = arguments.get("edits")
    if isinstance(several, list) and all(isinstance(one, dict) for one in several) and several:
        edits = [_replaced(tool, one) for one in several]
    else:
        edits = [_replaced(tool, arguments)] if isinstance(old, str) else []
    if not edits or None in edits:
        return operation(path, OperationType.EDIT)
    return operation(path, OperationType.EDIT, edits=edits)


def _replaced(tool: Tool, given: Mapping[str, Any]) -> Data | None:
    old = given.get(tool.old or "old_string")
    if not isinstance(old, str):
        return None
    new = text_of(given.get(tool.new or "new_string"))
    return {"old": old, "new": new, "all": given.get(tool.all or "replace_all") is True}


def inserted(path: str, after: int, text: str) -> Data:
    """A change that adds lines behind the first `after` lines."""
    lines = text.removesuffix("\n").split("\n")
    head = f"@@ -{max(after, 0)},0 +{max(after, 0) + 1},{len(lines)} @@\n"
    diff = head + "".join(f"+{line}\n" for line in lines)
    return operation(path, OperationType.EDIT, patch=diff)


def patch_operations(text: str, cwd: str) -> Iterator[Data]:
    """The changes of a patch for `apply_patch`, one file each."""
    if not patches.is_envelope(text):
        return
    for kind, name, target, section in patches.envelope_files(text):
        path = normalised(cwd, name) if cwd else name
        if target is None:
            yield operation(path, _KINDS.get(kind, OperationType.EDIT), patch=section)
        else:
            moved = normalised(cwd, target) if cwd else target
            patch = section if "\n@@" in section else ""
            yield operation(moved, OperationType.CREATE, patch=patch, renamed_from=path)
            yield operation(path, OperationType.DELETE)
