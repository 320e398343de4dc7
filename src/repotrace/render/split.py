"""A diff as a screen shows it: tinted, and side by side where there is room."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from rich.cells import cell_len

from repotrace.render.blocks import NumberedLine, untabbed
from repotrace.render.diffs import Hunk, Line, Span, diff_parts
from repotrace.render.runs_layout import fold

WIDE_ENOUGH = 100
"""Columns from which on two sides beside each other can be read."""

_TINTS = {"-": "on #3d1418", "+": "on #12311d"}
"""Behind what is gone, and behind what is new."""

_EMPTY: tuple[Span, ...] = ()


class _Numbered(NamedTuple):
    number: int
    line: Line


def unified_lines(diff: bytes, *, syntax: bool = True) -> Iterator[Line]:
    """The lines of a diff, old and new ones below each other."""
    for part in diff_parts(diff, syntax=syntax):
        if isinstance(part, Hunk):
            yield part.title
            for line in part.lines:
                mark, tint = line[0].text[:1], _TINTS.get(line[0].text[:1])
                rest = [Span(line[0].text[1:], line[0].style), *line[1:]]
                yield NumberedLine(_tinted([Span(mark, line[0].style), *rest], tint))
        elif not _is_noise(part):
            yield part


def _tinted(line: Line, tint: str | None) -> Line:
    if tint is None:
        return line
    return [Span(span.text, f"{span.style} {tint}".lstrip()) for span in line]


def split_lines(diff: bytes, *, width: int, syntax: bool = True) -> Iterator[Line]:
    """The lines of a diff, those of its hunks in two columns with their numbers."""
    half = (width - 3) // 2
    for part in diff_parts(diff, syntax=syntax):
        if isinstance(part, Hunk):
            yield part.title
            yield from _rows(part, half)
        elif not _is_noise(part):
            yield part


def _is_noise(line: Line) -> bool:
    """What git says once more below the names of the files."""
    return line[0].text.startswith(("index ", "--- ", "+++ "))


def _rows(hunk: Hunk, half: int) -> Iterator[Line]:
    old, new = hunk.old_start, hunk.new_start
    removed: list[_Numbered] = []
    added: list[_Numbered] = []
    for line in hunk.lines:
        mark = line[0].text[:1]
        if mark == "-":
            if added:
                yield from _beside(removed, added, half)
                removed, added = [], []
            removed.append(_Numbered(old, line))
            old += 1
        elif mark == "+":
            added.append(_Numbered(new, line))
            new += 1
        else:
            yield from _beside(removed, added, half)
            removed, added = [], []
            if mark == "\\":
                yield line
                continue
            yield from _beside([_Numbered(old, line)], [_Numbered(new, line)], half)
            old, new = old + 1, new + 1
    yield from _beside(removed, added, half)


def _beside(left: list[_Numbered], right: list[_Numbered], half: int) -> Iterator[Line]:
    for one, other in zip_longest(left, right):
        rows = zip_longest(_cell(one, half), _cell(other, half), fillvalue=_EMPTY)
        for before, after in rows:
            yield [*_padded(before, half), Span(" │ ", "dim"), *_padded(after, half)]


def _cell(side: _Numbered | None, half: int) -> Iterator[Line]:
    if side is None:
        return
    first, *rest = side.line
    mark, text = first.text[:1], first.text[1:]
    room = max(half - 7, 1)
    number, mark_span = Span(f"{side.number:>4} ", "dim"), Span(f"{mark} ", first.style)
    for row in fold(untabbed([Span(text, first.style), *rest]), room):
        filled = _padded([mark_span, *row], half - 5)
        yield [number, *_tinted(filled, _TINTS.get(mark))]
        number, mark_span = Span(" " * 5), Span("  ")


def _padded(line: Line, width: int) -> Line:
    return [*line, Span(" " * (width - sum(cell_len(span.text) for span in line)))]
