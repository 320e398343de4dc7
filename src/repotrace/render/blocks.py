"""Long views in blocks, each of which is laid out when somebody looks at it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment

from repotrace.render.diffs import Line, Span, style_of
from repotrace.render.runs_layout import (
    COLOURED,
    CapturedLine,
    captured,
    captured_part,
    eased,
    fitting,
)

PIECE = 16_384
"""About so many bytes of a long text are one block."""

MARKED = "bold reverse yellow"
"""Of what was searched for."""

TAB = 4
"""Columns from one tab stop to the next."""

_AT_ONCE = 100
"""Lines of one block where they are made in order."""


class NumberedLine(list[Span]):
    """A line whose first piece is a margin, below which the rest is not folded."""


@dataclass(slots=True)
class Block:
    """A part of a view."""

    make: Callable[[int], Iterable[Line]]
    """Its lines for a width in cells; they may be taken one by one."""
    rows: int = 1
    """How many lines there will be, roughly, until they are made."""
    foldable: bool = False
    """Where it is long, only its beginning is shown until somebody opens it."""
    short: Line | None = None
    """What is shown in its place until somebody opens it."""


def fixed(lines: Iterable[Line], *, foldable: bool = False, short: Line | None = None) -> Block:
    """A block of lines that are there already, the same for all widths."""
    kept = list(lines)
    return Block(lambda width: kept, len(kept), foldable, short)


def folded_to(line: Line, width: int) -> Iterator[Line]:
    """A line as lines of at most `width` cells, broken between words where that can be."""
    if not isinstance(line, NumberedLine):
        yield from _at_words(eased(untabbed(line), width), width)
        return
    margin = line[0]
    room = width - cell_len(margin.text)
    for part in _at_words(untabbed(line[1:]), max(room, 1)):
        yield [margin, *part]
        margin = Span(" " * cell_len(margin.text), margin.style)


def untabbed(line: Line) -> Line:
    """A line with spaces for tabs, which on a screen would move what comes after them anywhere."""
    if not any("\t" in span.text for span in line):
        return line
    found = CapturedLine() if isinstance(line, CapturedLine) else []
    at = 0
    for span in line:
        first, *rest = span.text.split("\t")
        text = first
        at += cell_len(first)
        for piece in rest:
            text += " " * (TAB - at % TAB) + piece
            at += TAB - at % TAB + cell_len(piece)
        found.append(Span(text, span.style))
    return found


def _at_words(line: Line, width: int) -> Iterator[Line]:
    text = "".join(span.text for span in line)
    if len(text) <= width and text.isascii():
        yield line
        return
    indent = min(len(text) - len(text.lstrip(" ")), width // 2)
    start, margin = 0, 0
    while True:
        end = start + max(1, len(fitting(text[start : start + width], width - margin)))
        if end >= len(text):
            yield _cut(line, start, len(text), margin)
            return
        space = text.rfind(" ", start + (end - start) * 2 // 3, end + 1)
        cut = end if space <= max(start, indent) else space
        yield _cut(line, start, cut, margin)
        start, margin = cut + (cut == space), indent


def _cut(line: Line, start: int, end: int, margin: int) -> list[Span]:
    """The part of a line between two characters, behind a margin."""
    _, on, behind = line[0].style.partition("on ") if line else ("", "", "")
    part = [Span(" " * margin, on + behind)] if margin else []
    at = 0
    for span in line:
        piece = span.text[max(start - at, 0) : max(end - at, 0)]
        if piece:
            part.append(Span(piece, span.style))
        at += len(span.text)
    return part


def marked(line: Line, marker: Callable[[str], Iterable[tuple[int, int]]]) -> Line:
    """A line in which the places stand out that `marker` finds in its text."""
    places = list(marker("".join(span.text for span in line)))
    if not places:
        return line
    found: list[Span] = []
    at = 0
    for start, end in places:
        found += _cut(line, at, start, 0)
        found += [Span(span.text, MARKED) for span in _cut(line, start, end, 0)]
        at = end
    found += _cut(line, at, sum(len(span.text) for span in line), 0)
    return NumberedLine(found) if isinstance(line, NumberedLine) else found


def in_order(lines: Iterable[Line], rows: int) -> list[Block]:
    """Lines that can only be made one after another, about so many."""
    source = iter(lines)
    taken: list[Line] = []

    def part(first: int, last: int | None) -> list[Line]:
        wanted = None if last is None else last - len(taken)
        if wanted is None or wanted > 0:
            taken.extend(islice(source, wanted))
        return taken[first:last]

    count = max(1, -(-rows // _AT_ONCE))
    ends = [*range(0, count * _AT_ONCE, _AT_ONCE), None]
    return [
        Block(partial(_taken, part, first, ends[number + 1]), max(1, min(_AT_ONCE, rows - first)))
        for number, first in enumerate(range(0, count * _AT_ONCE, _AT_ONCE))
    ]


def _taken(
    part: Callable[[int, int | None], list[Line]], first: int, last: int | None, width: int
) -> list[Line]:
    return part(first, last)


# --- Texts ----------------------------------------------------------------------------------


def text_blocks(data: bytes) -> list[Block]:
    """A captured text of any length; only what is looked at is decoded."""
    data = data.strip(b"\n")
    if len(data) <= PIECE:
        return [Block(partial(_whole, data), data.count(b"\n") + 1)]
    return [
        Block(partial(_piece, data, start, end), max(1, data.count(b"\n", start, end)))
        for start, end in _pieces(data)
    ]


def _whole(data: bytes, width: int) -> Iterator[Line]:
    return captured(data.decode("utf-8", "replace"))


def _piece(data: bytes, start: int, end: int, width: int = 0) -> Iterator[Line]:
    return captured_part(data[start:end].decode("utf-8", "replace").removesuffix("\n"))


def by_and_by(text: str) -> Iterator[Line]:
    """The lines of a captured text, made as they are taken."""
    if len(text) <= COLOURED:
        yield from captured(text)
        return
    data = text.encode("utf-8", "replace")
    for start, end in _pieces(data):
        yield from _piece(data, start, end)


def rows_of(text: str | None) -> int:
    """How many lines a text has, roughly."""
    return (text or "").count("\n") + 1


def _pieces(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the pieces of a long text start and end: at the ends of lines where that can be."""
    start = 0
    while start < len(data):
        end = start + PIECE
        newline = data.find(b"\n", end, end + PIECE)
        if end >= len(data):
            end = len(data)
        elif newline >= 0:
            end = newline + 1
        else:
            while end < len(data) and data[end] & 0xC0 == 0x80:
                end += 1
        yield start, end
        start = end


# --- For other renderers --------------------------------------------------------------------


def segments(line: Line) -> list[Segment]:
    """A line as what Rich, and whatever builds on it, takes."""
    return [Segment(span.text, style_of(span.style)) for span in line if span.text]


def lines_from(renderable: RenderableType, width: int) -> Iterator[Line]:
    """What is made for a console, as lines of this width."""
    console = Console(
        width=width, color_system="standard", force_terminal=True, no_color=False, markup=False,
        highlight=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    for row in console.render_lines(renderable, pad=False):
        yield [Span(part.text, str(part.style) if part.style else "") for part in row]


def block_at(tops: list[int], row: int) -> int:
    """The number of the block in which a row is; `tops` are their first rows, and the end."""
    return max(0, min(bisect_left(tops, row + 1) - 1, len(tops) - 2))
