"""A view of any length: blocks of lines that are laid out as they come into sight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from repotrace.errors import RepoTraceError
from repotrace.read.playing import Marker
from repotrace.render.blocks import Block, block_at, folded_to, marked, segments
from repotrace.render.diffs import Line, Span
from repotrace.render.play import problem

FOLDED = 12
"""Lines that are shown of a long block until it is opened."""

_SOUGHT = 2.0
"""Seconds for which something is looked for in a view."""
_SOUGHT_LINES = 20_000
"""Lines of one block that are looked at for it."""

_COUNTED = 10_000
"""Lines of a folded block that are counted, rather than guessed."""

_SPARED = 4
"""A block is only folded where that spares so many lines."""


class LinesView(ScrollView, can_focus=True):
    """Shows blocks, and folds long lines and long blocks."""

    DEFAULT_CSS = """
    LinesView { padding: 0 1; scrollbar-gutter: stable; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,space", "unfold", show=False),
        Binding("x", "unfold_all", show=False),
    ]

    class Resized(Message):
        """There is another width for it."""

        def __init__(self, view: LinesView) -> None:
            super().__init__()
            self.view = view

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._blocks: Sequence[Block] = ()
        self._rows: list[list[Strip] | None] = []
        self._tops: list[int] = [0]
        self._opened: set[int] = set()
        self._folded: set[int] = set()
        self._marker: Marker | None = None

    # --- What is shown ------------------------------------------------------------------------

    def show(self, blocks: Sequence[Block], *, stay: bool = False) -> None:
        """Show these instead, from their beginning; `stay`: from where one was before."""
        row = self.scroll_offset.y if stay else 0
        if not stay:
            self._opened = set()
        self._blocks = blocks
        self._forget()
        self.scroll_to(0, row, animate=False, force=True)
        self._look()
        self.refresh()

    def mark(self, marker: Marker | None) -> None:
        """Make what this finds stand out, from now on."""
        self._marker = marker
        self._forget()
        self._look()
        self.refresh()

    async def seek(self) -> bool:
        """Bring the first place into sight that stands out, unfolded; whether there is one.

        It is given up after some time, and when something else is shown.
        """
        blocks, marker, until = self._blocks, self._marker, time.monotonic() + _SOUGHT
        if marker is None:
            return False
        for number in range(len(blocks)):
            lines = islice(_made(blocks[number], self._width), _SOUGHT_LINES)
            for row, line in enumerate(lines):
                if marker("".join(span.text for span in line)):
                    self._show_line(number, row)
                    return True
            if number % 16 == 15:
                await asyncio.sleep(0)
                if self._blocks is not blocks or time.monotonic() > until:
                    break
        return False

    def _show_line(self, number: int, row: int) -> None:
        """Bring the place that stands out in a line of a block into sight."""
        block, width, marker = self._blocks[number], self._width, self._marker
        *before, line = islice(_made(block, width), row + 1)
        above = len(self._strips(before, width))
        for strip in islice(self._rows_of(line, width), _SOUGHT_LINES):
            if marker is not None and marker(strip.text):
                break
            above += 1
        if block.short is not None or (block.foldable and above >= FOLDED):
            self._opened.add(number)
        self._look_again(number)
        at = self._tops[number] + above
        top, height = self.scroll_offset.y, self.size.height
        if not top <= at < top + height - 1:
            self.scroll_to(0, max(0, at - height // 3), animate=False, force=True)
            self._look()
        self.refresh()

    @property
    def text(self) -> str:
        """All lines that have been laid out, as text."""
        return "\n".join(strip.text.rstrip() for rows in self._rows for strip in rows or ())

    def _forget(self) -> None:
        self._rows = [None] * len(self._blocks)
        self._folded = set()
        self._measure()

    def _measure(self) -> None:
        tops = [0]
        for block, rows in zip(self._blocks, self._rows, strict=True):
            tops.append(tops[-1] + (self._guess(block) if rows is None else len(rows)))
        self._tops = tops
        self.virtual_size = Size(0, tops[-1])

    def _guess(self, block: Block) -> int:
        if block.short is not None:
            return 1
        return min(block.rows, FOLDED) if block.foldable else max(block.rows, 1)

    def _look(self) -> None:
        """Lay out the blocks that are in sight."""
        height = self.size.height
        if self._width <= 0 or height <= 0:
            return
        while True:
            top = min(self.scroll_offset.y, max(0, self._tops[-1] - height))
            missing = [
                number
                for number in range(
                    block_at(self._tops, top), block_at(self._tops, top + height) + 1
                )
                if number < len(self._blocks) and self._rows[number] is None
            ]
            if not missing:
                return
            for number in missing:
                self._rows[number] = self._laid_out(number)
            self._measure()

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    def _laid_out(self, number: int) -> list[Strip]:
        width, block = self._width, self._blocks[number]
        is_open = number in self._opened
        self._folded.discard(number)
        if block.short is not None and not is_open:
            self._folded.add(number)
            return self._strips([block.short], width)
        lines = _made(block, width)
        if not block.foldable or is_open:
            return self._strips(lines, width)
        head: list[Strip] = []
        whole = taken = 0
        for line in lines:
            head += islice(self._rows_of(line, width), FOLDED + _SPARED + 1 - len(head))
            taken += 1
            whole += len(head) <= FOLDED
            if len(head) > FOLDED + _SPARED:
                break
        else:
            return head
        self._folded.add(number)
        rest = sum(1 for _ in islice(lines, _COUNTED))
        left = max(taken + rest, block.rows if rest == _COUNTED else 0) - whole
        said = f"{left} more lines" if left > 1 else "more of this line"
        return [*head[:FOLDED], *self._strips([[Span(f"  ▸ {said}", "cyan")]], width)]

    def _strips(self, lines: Iterable[Line], width: int) -> list[Strip]:
        return [strip for line in lines for strip in self._rows_of(line, width)]

    def _rows_of(self, line: Line, width: int) -> Iterator[Strip]:
        if self._marker is not None:
            line = marked(line, self._marker)
        return (Strip(segments(part)) for part in folded_to(line, width))

    # --- Drawing ------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """The strip of a line of the window."""
        style = self.rich_style
        row = self.scroll_offset.y + y
        if row >= self._tops[-1]:
            return Strip.blank(self.size.width, style)
        number = block_at(self._tops, row)
        rows = self._rows[number] or []
        at = row - self._tops[number]
        if at >= len(rows):
            return Strip.blank(self.size.width, style)
        strip = rows[at]
        if number == self._next_fold() and at == len(rows) - 1 and self.has_focus:
            strip = Strip([*strip, *segments([Span("  Enter opens, x all", "bold")])])
        return strip.adjust_cell_length(self.size.width).apply_style(style)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Lay out what comes into sight."""
        super().watch_scroll_y(old_value, new_value)
        self._look()

    def action_scroll_end(self) -> None:
        """To the very end, however long what is before it turns out to be."""
        row = -1
        while row != self.max_scroll_y:
            row = self.max_scroll_y
            self.scroll_to(0, row, animate=False, force=True)
            self._look()

    def on_resize(self, event: Resize) -> None:
        """Fold anew for another width."""
        row = self.scroll_offset.y
        self._forget()
        self._look()
        self.scroll_to(0, min(row, self._tops[-1]), animate=False)
        self.refresh()
        self.post_message(self.Resized(self))

    # --- Folding ------------------------------------------------------------------------------

    def _next_fold(self) -> int | None:
        """The topmost folded block whose end is in sight."""
        top, bottom = self.scroll_offset.y, self.scroll_offset.y + self.size.height
        return next(
            (number for number in sorted(self._folded) if top < self._tops[number + 1] <= bottom),
            None,
        )

    def action_unfold(self) -> None:
        """Open the block that says so; where there is none, close what is open on top."""
        number = self._next_fold()
        if number is None:
            first = block_at(self._tops, self.scroll_offset.y)
            number = next((n for n in sorted(self._opened) if n >= first), None)
            if number is None:
                return
        self._toggle(number)

    def action_unfold_all(self) -> None:
        """Open all blocks, or close them again."""
        if self._opened:
            self._opened = set()
        else:
            folds = enumerate(self._blocks)
            self._opened = {n for n, block in folds if block.foldable or block.short is not None}
        self._forget()
        self._look()
        self.refresh()

    def on_click(self, event: Click) -> None:
        """Open or close the block under the pointer."""
        row = self.scroll_offset.y + event.y
        if row < self._tops[-1]:
            number = block_at(self._tops, row)
            if number in self._folded or number in self._opened:
                self._toggle(number)

    def _toggle(self, number: int) -> None:
        self._opened ^= {number}
        self._rows[number] = None
        self._look_again(number)

    def _look_again(self, number: int) -> None:
        self._rows[number] = self._laid_out(number)
        self._measure()
        self._look()
        self.refresh()


def _made(block: Block, width: int) -> Iterator[Line]:
    try:
        yield from block.make(width)
    except (RepoTraceError, OSError) as error:
        yield problem(error)
