"""Changes of files as events: without their contents, which the snapshot store holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repotrace.records.events import Event, Kind
from repotrace.runs.transcripts.rebuilding import Change

_CONTENT = ("content_before", "content_after", "edits", "patch")


def derived(
    event: Event, kind: Kind, data: dict[str, Any], name: str, *, weak: bool = False
) -> Event:
    """Another event at the time of one, with an id of its own."""
    found: Event = {
        "id": f"{event['id']} {name}",
        "run": str(event.get("run")),
        "kind": kind,
        "time": event["time"],
        "data": data,
        "raw": True,
    }
    if weak:
        found["weak"] = True
    return found


def without_content(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a claimed change, but for what the file is to hold."""
    return {name: value for name, value in data.items() if name not in _CONTENT}


def facts_of(change: Change) -> dict[str, Any]:
    """The data of a change whose contents the snapshot store holds."""
    return {
        "file_path": change.path,
        "operation_type": change.kind,
        "before_id": change.before_id,
        "after_id": change.after_id,
        **change.facts,
    }
