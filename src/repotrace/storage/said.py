"""One event on its way into the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repotrace.storage.rows import Unusable


class Said:
    """One event, with its run resolved."""

    __slots__ = ("data", "name", "run_id", "weak", "when", "writer")

    def __init__(
        self,
        name: str,
        run_id: str,
        data: Mapping[str, Any],
        when: int,
        weak: bool,
        writer: str | None,
    ) -> None:
        self.name = name
        self.run_id = run_id
        self.data = data
        self.when = when
        self.weak = weak
        self.writer = writer

    def about(self, name: str) -> Said:
        """The same said about the row of this id."""
        data = {**self.data, "id": name}
        return Said(self.name, self.run_id, data, self.when, self.weak, self.writer)


def words_of(message: Mapping[str, Any]) -> str | None:
    """The text of an assistant's message."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [
        part["text"]
        for part in content
        if isinstance(part, dict)
        and part.get("type") == "text"
        and isinstance(part.get("text"), str)
    ]
    return "\n".join(parts) or None


def listed(value: Any) -> list[str]:
    """The texts of a list, or one text alone; none of anything else."""
    if isinstance(value, str):
        return [value]
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def step_name(data: Mapping[str, Any]) -> str:
    """The id of the step that an event is about. Raises Unusable if it tells none."""
    name = data.get("id")
    if not isinstance(name, str) or not name:
        raise Unusable("no id of a step")
    return name
