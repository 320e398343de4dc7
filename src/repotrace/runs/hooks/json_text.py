"""Edits of a JSON text that leave all else in it as it stands, byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_SCALAR = re.compile(r"[^\s,\]}]+")
_INDENTED = re.compile(r"\n([ \t]+)[^ \t\r\n]")


class NotPlain(ValueError):
    """The text is no JSON, or none that can be edited safely: comments, a name that comes twice."""


@dataclass(slots=True)
class Node:
    """A value, and where it stands in the text."""

    start: int
    end: int
    value: Any
    members: list[Member] = field(default_factory=list)
    """Of an object or an array."""

    def member(self, name: str) -> Node | None:
        """The value of this name in an object."""
        return next((member.node for member in self.members if member.name == name), None)


@dataclass(slots=True)
class Member:
    """A value in an object or an array."""

    name: str | None
    """None in an array."""
    start: int
    """Of the name, or of the value."""
    node: Node


def parsed(text: str) -> Node:
    """The whole text. Raises NotPlain."""
    try:
        value = json.loads(text, object_pairs_hook=_once_each, parse_constant=_refuse)
        return _node(text, _SPACE.match(text).end(), value)  # type: ignore[union-attr]
    except NotPlain:
        raise
    except (ValueError, RecursionError) as error:
        raise NotPlain(str(error)) from error


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise NotPlain("a name comes twice in one object")
    return found


def _refuse(constant: str) -> NoReturn:
    raise NotPlain(f"{constant} is no JSON")


def _node(text: str, start: int, value: Any) -> Node:
    if not isinstance(value, dict | list):
        pattern = _STRING if isinstance(value, str) else _SCALAR
        return Node(start, _end(pattern, text, start), value)
    node = Node(start, 0, value)
    at = _end(_SPACE, text, start + 1)
    for name, item in _items(value):
        begin = at
        if name is not None:
            colon = _end(_SPACE, text, _end(_STRING, text, at))
            at = _end(_SPACE, text, colon + 1)
        node.members.append(Member(name, begin, _node(text, at, item)))
        at = _end(_SPACE, text, node.members[-1].node.end)
        if text[at] == ",":
            at = _end(_SPACE, text, at + 1)
    node.end = at + 1
    return node


def _items(value: dict[str, Any] | list[Any]) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    else:
        yield from ((None, item) for item in value)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    if match is None:
        raise NotPlain(f"unexpected text at position {at}")
    return match.end()


def inserted(text: str, node: Node, value: Any, name: str | None = None) -> str:
    """`text` with `value` as the last member of `node`: on a line of its own, unless the others
    have none."""
    line = "\r\n" if "\r\n" in text else "\n"
    key = "" if name is None else json.dumps(name, ensure_ascii=False) + ": "
    shown = key + json.dumps(value, ensure_ascii=False)
    last = node.members[-1].node.end if node.members else node.start + 1
    if node.members:
        one_line = "\n" not in text[node.start : node.end]
        space = " " if one_line else line + _indentation(text, node.members[0].start)
        return f"{text[:last]},{space}{shown}{text[last:]}"
    outer = _indentation(text, node.start)
    rest = text[node.end - 1 :]
    return f"{text[:last]}{line}{outer}{_unit(text)}{shown}{line}{outer}{rest}"


def removed(text: str, node: Node, place: int) -> str:
    """`text` without the member of `node` at `place`."""
    members = node.members
    if len(members) == 1:
        return text[: node.start + 1] + text[node.end - 1 :]
    if place:
        return text[: members[place - 1].node.end] + text[members[place].node.end :]
    return text[: members[0].start] + text[members[1].start :]


def replaced(text: str, node: Node, value: Any) -> str:
    """`text` with `value` in the place of `node`."""
    return text[: node.start] + json.dumps(value, ensure_ascii=False) + text[node.end :]


def _unit(text: str) -> str:
    """What one level is indented by."""
    match = _INDENTED.search(text)
    return match[1] if match else "  "


def _indentation(text: str, at: int) -> str:
    """The white space that the line of this place begins with."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]
