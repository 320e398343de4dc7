"""The hunks of a change: applied one by one, and undone on files that changed further since."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

COMPARED = 20_000
"""Lines of either side above which a file is one hunk: comparing them would take too long."""


class Hunk(NamedTuple):
    """A stretch of lines that is replaced by another one; either may be empty."""

    start: int
    """Index of its first line in the old text."""
    end: int
    """Index after its last one."""
    lines: tuple[bytes, ...]
    """What stands there in the new text."""
    new_start: int = 0
    """Index of the first line in the new text."""


class Unfitting(Exception):
    """The hunks cannot be undone: what they changed was changed again."""


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a text with their ends, as git counts them."""
    lines = data.split(b"\n")
    ended = [line + b"\n" for line in lines[:-1]]
    return [*ended, lines[-1]] if lines[-1] else ended


def is_text(data: bytes) -> bool:
    """Whether git would compare it by lines."""
    return b"\0" not in data[:8000]


def hunks_between(old: Sequence[bytes], new: Sequence[bytes]) -> list[Hunk]:
    """What leads from one list of lines to the other, in order; neighbours do not touch."""
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    shortest = min(len(old), len(new)) - first
    while last < shortest and old[-1 - last] == new[-1 - last]:
        last += 1
    old_end, new_end = len(old) - last, len(new) - last
    if first == old_end and first == new_end:
        return []
    if max(old_end, new_end) - first > COMPARED:
        return [Hunk(first, old_end, tuple(new[first:new_end]), first)]
    matcher = SequenceMatcher(None, old[first:old_end], new[first:new_end], autojunk=False)
    return [
        Hunk(first + a, first + b, tuple(new[first + c : first + d]), first + c)
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind != "equal"
    ]


def with_hunks(old: Sequence[bytes], hunks: Collection[Hunk]) -> list[bytes]:
    """The old lines with these of their hunks."""
    result: list[bytes] = []
    place = 0
    for hunk in sorted(hunks):
        result += old[place : hunk.start]
        result += hunk.lines
        place = hunk.end
    return result + list(old[place:])


def merged(base: Sequence[bytes], ours: Sequence[bytes], theirs: Sequence[bytes]) -> list[bytes]:
    """`ours` with what differs between `base` and `theirs`: a three-way merge.

    Raises Unfitting where both changed the same lines, or lines that touch, in different ways.
    """
    own, other = hunks_between(base, ours), hunks_between(base, theirs)
    kept: list[Hunk] = []
    for hunk in other:
        meeting = [one for one in own if one.start <= hunk.end and hunk.start <= one.end]
        if any(one[:3] == hunk[:3] for one in meeting):
            continue
        if meeting:
            raise Unfitting
        kept.append(hunk)
    return with_hunks(base, [*own, *kept])
