"""Changes of files for people: masked, visible, and as a diff."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from repotrace.readable import size, visible
from repotrace.records.run import FileOperation
from repotrace.runs.contents import bytes_of
from repotrace.runs.step_text import diff_lines

LARGEST = 400_000
"""Bytes of a content above which a page does not show it, unless it is told to."""


class Change(NamedTuple):
    """A change of one file."""

    operation: FileOperation
    diff: tuple[str, ...]
    """A unified diff; a sentence where it cannot be told."""
    before: str = ""
    after: str = ""
    """The masked contents; empty where there are none, or no text."""

    @property
    def is_diff(self) -> bool:
        return bool(self.diff) and self.diff[0].startswith("--- ")

    @property
    def counts(self) -> str:
        """`+3 -1`, or `binary`; empty where they are not known."""
        if self.operation.is_binary:
            return "binary"
        added, removed = self.operation.lines_added, self.operation.lines_removed
        return "" if added is None or removed is None else f"+{added} -{removed}"


def change_of(
    operation: FileOperation, redact: Callable[[str], str] | None, limit: int = LARGEST
) -> Change:
    """The change with its secrets masked."""
    path = visible(operation.file_path).replace("\n", "\\n")
    contents = {}
    for side in ("before", "after"):
        text = getattr(operation, f"content_{side}")
        if text is not None and len(data := bytes_of(text)) > limit:
            return Change(operation, (f"{path}: {size(len(data))}, too large to be shown here",))
        contents[f"content_{side}"] = text if text is None or redact is None else redact(text)
    masked = operation.model_copy(update=contents)
    lines = tuple(diff_lines(masked))
    found = Change(masked, lines or (f"{path}: the contents are the same",))
    if not found.is_diff:
        return found
    return found._replace(
        before=visible(masked.content_before or ""), after=visible(masked.content_after or "")
    )
