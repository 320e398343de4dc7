"""What a workspace had beside a state, as the commit of the state tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

from repotrace.system.snapshots.model import NestedRepository, NotCaptured, Reason

_MOST = 500
"""So many paths are told of; of the others it is known how many there are."""
_NOT_CAPTURED = "Not-captured: "
_MORE = "Not-captured-more: "
_NESTED = "Nested-repository: "
_LINE = re.compile(r"(\S+) (\S+) (.*)")


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a state does not hold of the workspace that it was taken of."""

    not_captured: tuple[NotCaptured, ...] = ()
    nested: tuple[NestedRepository, ...] = ()
    """Repositories whose files the state holds, without their history."""
    more: int = 0
    """Further paths that were not captured."""


def trailers(not_captured: Sequence[NotCaptured], nested: Sequence[NestedRepository]) -> str:
    """The end of a commit message, empty where nothing lacks; `lacking_in` reads it."""
    lines = list(_lines(not_captured, nested))
    return "\n\n" + "\n".join(lines) if lines else ""


def subject_of(message: str) -> str:
    """A commit message without its `trailers`."""
    ends = [message.find(f"\n\n{mark}") for mark in (_NOT_CAPTURED, _NESTED)]
    return message[: min([end for end in ends if end >= 0], default=len(message))].strip()


def lacking_in(message: str) -> Lacking:
    """What `trailers` told in a commit message."""
    left_out, nested, more = [], [], 0
    for line in message.splitlines():
        if line.startswith(_NOT_CAPTURED):
            found = _LINE.fullmatch(line.removeprefix(_NOT_CAPTURED))
            if found and found[1] in get_args(Reason.__value__):
                path = _unquoted(found[3])
                size = None if found[2] == "?" else int(found[2])
                # The pattern above allows the words of `Reason` alone.
                left_out.append(NotCaptured(path.rstrip("/"), found[1], size, path[-1:] == "/"))  # type: ignore[arg-type]
        elif line.startswith(_NESTED):
            head, _, path = line.removeprefix(_NESTED).partition(" ")
            nested.append(NestedRepository(_unquoted(path), None if head == "?" else head))
        elif line.startswith(_MORE):
            more = int(line.removeprefix(_MORE))
    return Lacking(tuple(left_out), tuple(nested), more)


def _lines(
    not_captured: Sequence[NotCaptured], nested: Sequence[NestedRepository]
) -> Iterator[str]:
    for item in not_captured[:_MOST]:
        size = "?" if item.size is None else item.size
        path = item.path + "/" if item.is_folder else item.path
        yield f"{_NOT_CAPTURED}{item.reason} {size} {path!a}"
    if len(not_captured) > _MOST:
        yield f"{_MORE}{len(not_captured) - _MOST}"
    for repository in nested:
        head = repository.head if repository.head and repository.head.isalnum() else "?"
        yield f"{_NESTED}{head} {repository.path!a}"


def _unquoted(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return text
