"""The changes in the answers that Aider asks models for: blocks, whole files, diffs, patches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from repotrace.importers import patches
from repotrace.importers.building import Data, operation
from repotrace.records.run import OperationType

_SEARCH = re.compile(r"<{5,9} SEARCH>?\s*")
_DIVIDER = re.compile(r"={5,9}\s*")
_REPLACE = re.compile(r">{5,9} REPLACE\s*")
_FENCE = re.compile(r"(?:`{3,}|<(?:source|code|pre|codeblock|sourcecode)>)")
_KINDS = {
    "add": OperationType.CREATE,
    "update": OperationType.EDIT,
    "delete": OperationType.DELETE,
}


class Edit(NamedTuple):
    """A change of one file that an answer asks for."""

    path: str
    old: str = ""
    """Lines to look for."""
    new: str = ""
    whole: bool = False
    """`new` is the whole file."""
    patch: str = ""
    """An envelope for `apply_patch`, instead of lines."""
    kind: str = OperationType.EDIT

    def operation(self, *, created: bool = False) -> Data:
        """What it does; `created` says that the file was not there."""
        if self.patch:
            return operation(self.path, self.kind, patch=self.patch)
        if self.whole or (created and not self.old.strip()):
            kind = OperationType.CREATE if created else self.kind
            return operation(self.path, kind, content_after=self.new)
        # Whether an empty file was there is not told; added lines make one that was not.
        kind = self.kind if self.old.strip() else OperationType.CREATE
        return operation(self.path, kind, patch=_envelope(self.path, self.old, self.new))

    def undone(self, *, created: bool = False) -> Data:
        """The way back."""
        if created:
            return operation(self.path, OperationType.DELETE)
        if self.patch or self.whole:
            return operation(self.path, OperationType.EDIT)
        return operation(
            self.path, OperationType.EDIT, patch=_envelope(self.path, self.new, self.old)
        )


def _envelope(path: str, old: str, new: str) -> str:
    body = [f"-{line}" for line in _lines(old if old.strip() else "")]
    body += [f"+{line}" for line in _lines(new)]
    return "\n".join(["*** Begin Patch", f"*** Update File: {path}", "@@", *body, "*** End Patch"])


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def edits_of(answer: str, form: str) -> list[Edit]:
    """The changes in an answer; `form` is the edit format that Aider announced."""
    if "*** Begin Patch" in answer:
        return list(_patched(answer))
    lines = answer.split("\n")
    if any(_SEARCH.fullmatch(line) for line in lines):
        return list(_blocks(lines))
    if "diff" in form and "```diff" in answer:
        return list(_diffs(lines))
    return list(_wholes(lines)) if "whole" in form else []


def prose(answer: str) -> str:
    """The words of an answer, without the changes in it."""
    kept: list[str] = []
    fenced = False
    for line in answer.split("\n"):
        if _FENCE.match(line):
            if not fenced and kept and _name(kept[-1]) and " " not in kept[-1].strip():
                kept.pop()
            fenced = not fenced
        elif not fenced:
            kept.append(line)
    return "\n".join(kept).strip()


def _blocks(lines: Sequence[str]) -> Iterator[Edit]:
    path = ""
    at = 0
    while at < len(lines):
        if not _SEARCH.fullmatch(lines[at]):
            at += 1
            continue
        path = _named_before(lines, at) or path
        middle = _next(lines, at + 1, _DIVIDER)
        end = _next(lines, middle + 1, _REPLACE, _DIVIDER)
        if end >= len(lines):
            return  # the answer broke off
        if path:
            old, new = lines[at + 1 : middle], lines[middle + 1 : end]
            yield Edit(path, _text(old), _text(new))
        at = end + 1


def _next(lines: Sequence[str], start: int, *marks: re.Pattern[str]) -> int:
    for place in range(start, len(lines)):
        if any(mark.fullmatch(lines[place]) for mark in marks):
            return place
    return len(lines)


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _named_before(lines: Sequence[str], at: int) -> str:
    """The name of the file, which stands before the block or before its fence."""
    for line in reversed(lines[max(0, at - 3) : at]):
        name = _name(line)
        if name:
            return name
        if not _FENCE.match(line):
            break
    return ""


def _name(line: str) -> str:
    name = line.strip()
    if _FENCE.match(name):
        rest = name.lstrip("`")
        return rest if "." in rest or "/" in rest else ""
    name = name.rstrip(":").lstrip("#").strip().strip("`").strip("*").strip()
    return "" if name == "..." or len(name) > 250 else name


def _wholes(lines: Sequence[str]) -> Iterator[Edit]:
    path, begin = "", 0
    for place, line in enumerate(lines):
        if not _FENCE.match(line) and not line.startswith("</"):
            continue
        if path:
            yield Edit(path, "", _text(lines[begin:place]), whole=True)
            path = ""
        elif place:
            path, begin = _name(lines[place - 1]), place + 1


def _diffs(lines: Sequence[str]) -> Iterator[Edit]:
    inside = False
    path = ""
    body: list[str] = []

    def edit() -> Iterator[Edit]:
        old = [line[1:] for line in body if not line.startswith("+")]
        new = [line[1:] for line in body if not line.startswith("-")]
        if path and old != new:
            yield Edit(path, _text(old), _text(new))
        body.clear()

    for line in lines:
        if line.startswith("```"):
            yield from edit()
            inside, path = line.startswith("```diff") and not inside, ""
        elif not inside or line.startswith("--- "):
            yield from edit()
        elif line.startswith("+++ "):
            path = line[4:].strip().removeprefix("b/")
        elif line.startswith("@@"):
            yield from edit()
        else:
            body.append(line or " ")


def _patched(answer: str) -> Iterator[Edit]:
    for kind, path, target, section in patches.envelope_files(answer):
        if kind == "delete":
            yield Edit(path, kind=OperationType.DELETE, patch=section)
        elif target is None:
            yield Edit(path, patch=section, kind=_KINDS[kind])
