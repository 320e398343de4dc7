"""A change of a file as a table: line numbers, colours, what was added and removed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from repotrace.readable import one_line
from repotrace.runs.export.changes import Change
from repotrace.runs.export.elements import Html, element, join
from repotrace.runs.export.highlight import lines_of

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_MOST = 3_000
"""Lines of a diff that are shown."""

_WORDS = {"create": "created", "edit": "changed", "delete": "deleted"}


def diff_table(change: Change) -> Html:
    """The change with its name."""
    operation = change.operation
    name = one_line(operation.file_path, 300)
    if operation.renamed_from is not None:
        name = f"{one_line(operation.renamed_from, 300)} → {name}"
    word = _WORDS.get(operation.operation_type, operation.operation_type)
    said = " ".join(filter(None, [word, change.counts]))
    if operation.origin == "claimed":
        said += ", as the agent tells"
    head = element("div", element("b", name), element("span", said, class_="quiet"), class_="file")
    if not change.is_diff:
        told = element("div", *change.diff, class_="said quiet")
        return element("div", head, told, class_="diff")
    body = element("table", element("tbody", *_rows(change)))
    return element("div", head, body, class_="diff", tabindex=0, role="group", aria_label=name)


def _rows(change: Change) -> Iterator[Html]:
    path = change.operation.file_path
    old, new = lines_of(change.before, path), lines_of(change.after, path)
    left = right = 0
    shown = [line for line in change.diff if not line.startswith(("--- ", "+++ "))]
    if len(change.diff) > 2:
        shown = list(change.diff[2:])
    for line in shown[:_MOST]:
        hunk = _HUNK.match(line)
        if hunk:
            left, right = int(hunk[1]), int(hunk[2])
            yield _row("at", "", "", Html(""), line)
        elif line.startswith("+"):
            yield _row("add", "", str(right), _at(new, right), line)
            right += 1
        elif line.startswith("-"):
            yield _row("del", str(left), "", _at(old, left), line)
            left += 1
        elif line.startswith(" "):
            yield _row("", str(left), str(right), _at(new, right), line)
            left, right = left + 1, right + 1
        else:
            yield _row("at", "", "", Html(""), line)
    if len(shown) > _MOST:
        yield _row("at", "", "", Html(""), f"… {len(shown) - _MOST} more lines")


def _at(lines: list[Html], number: int) -> Html | None:
    return lines[number - 1] if 0 < number <= len(lines) else None


def _row(kind: str, left: str, right: str, coloured: Html | None, line: str) -> Html:
    mark, text = (line[:1], line[1:]) if kind != "at" else ("", line)
    content = coloured if coloured else text
    return element(
        "tr",
        element("td", left, class_="n"),
        element("td", right, class_="n"),
        element("td", join(mark, content)),
        class_=kind or None,
    )
