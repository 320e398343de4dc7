"""The steps of a run: a list of any length, of which only what is in sight is read."""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from repotrace.errors import RepoTraceError
from repotrace.read.playing import PlayedRun
from repotrace.render.blocks import segments
from repotrace.render.diffs import Line, Span
from repotrace.render.play import ONE_ROW, step_rows


class StepList(ScrollView, can_focus=True):
    """The list. Its cursor is the step that is shown."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"step-list--cursor", "step-list--found"}
    DEFAULT_CSS = """
    StepList { scrollbar-gutter: stable; }
    StepList .step-list--cursor { background: $surface-lighten-2; }
    StepList:focus .step-list--cursor { background: $primary 28%; }
    StepList .step-list--found { background: $warning 15%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move_page(-1)", show=False),
        Binding("pagedown", "move_page(1)", show=False),
        Binding("home", "move(-1000000000)", show=False),
        Binding("end", "move(1000000000)", show=False),
        Binding("enter", "choose", show=False),
    ]

    place: reactive[int] = reactive(0)
    """The step that the cursor is on, counted from 0."""

    class Moved(Message):
        """The cursor is on another step."""

        def __init__(self, place: int) -> None:
            super().__init__()
            self.place = place

    class Chosen(Message):
        """Enter was pressed."""

    def __init__(self, run: PlayedRun, **options: Any) -> None:
        super().__init__(**options)
        self._run = run
        self.mark: int | None = None
        """The place of the marked step."""
        self.blamed: Collection[int] = ()
        """Numbers of steps that broke a test."""
        self.branched: Collection[int] = ()
        """Numbers of steps from which other runs went on."""
        self.found: Container[int] = ()
        """Places of the steps in which something was found."""

    # --- Moving -------------------------------------------------------------------------------

    def validate_place(self, place: int) -> int:
        """Keeps the cursor within the list."""
        return max(0, min(place, len(self._run) - 1))

    def watch_place(self, old: int, new: int) -> None:
        """Bring the cursor into sight, and tell."""
        if self.is_mounted:
            self._into_sight()
            self.refresh()
        self.post_message(self.Moved(new))

    def action_move(self, by: int) -> None:
        """To another step."""
        self.place += by

    def action_move_page(self, by: int) -> None:
        """As many steps as are in sight."""
        self.place += by * max(1, self.size.height // self._height - 1)

    def action_choose(self) -> None:
        """Go on to what is shown of the step."""
        self.post_message(self.Chosen())

    def on_click(self, event: Click) -> None:
        """The step under the pointer."""
        place = (self.scroll_offset.y + event.y) // self._height
        if place < len(self._run):
            self.place = place

    # --- Drawing ------------------------------------------------------------------------------

    @property
    def _height(self) -> int:
        return 1 if self.size.width >= ONE_ROW else 2

    def measure(self) -> None:
        """Reckon with another number of steps, or another width."""
        self.virtual_size = Size(0, len(self._run) * self._height)
        self.refresh()

    def _into_sight(self) -> None:
        """With the steps around it: one where it is near, half a screen where it is far."""
        top, height, room = self.place * self._height, self._height, self.size.height
        first = self.scroll_offset.y
        if room <= 0:
            return
        margin = height if room >= 3 * height else 0
        if first - room > top or top > first + 2 * room:
            self.scroll_to(0, max(0, top - room // 2), animate=False, force=True)
        elif top - margin < first:
            self.scroll_to(0, max(0, top - margin), animate=False, force=True)
        elif top + height + margin > first + room:
            self.scroll_to(0, top + height + margin - room, animate=False, force=True)

    def on_resize(self, event: Resize) -> None:
        """One row for a step or two."""
        self.measure()
        self._into_sight()

    def render_line(self, y: int) -> Strip:
        """The strip of a row of the window."""
        width, height = self.size.width, self._height
        place, part = divmod(self.scroll_offset.y + y, height)
        if place >= len(self._run):
            return Strip.blank(width, self.rich_style)
        here = place == self.place
        row = self._row(place, part)
        if here:  # what is dim cannot be read on the colour of the cursor
            row = [Span(span.text, span.style.replace("dim", "")) for span in row]
        strip = Strip(segments([Span("▌" if here else " "), *row]))
        style = self.rich_style
        if here:
            style = self.get_component_rich_style("step-list--cursor")
        elif place in self.found:
            style = self.get_component_rich_style("step-list--found")
        return strip.adjust_cell_length(width).apply_style(style)

    @property
    def _figures(self) -> set[str]:
        """The columns for which the run has anything."""
        totals = self._run.run.totals
        known = {
            "lines": totals.files_modified,
            "tokens": totals.tokens_used,
            "tests": totals.tests,
        }
        return {name for name, count in known.items() if count}

    def _row(self, place: int, part: int) -> Line:
        try:
            line = self._run.line(place)
        except RepoTraceError as error:
            return [Span(f" {error.message}", "red")]
        rows = step_rows(
            line,
            width=self.scrollable_content_region.width - 1,
            digits=len(str(self._run.outline(len(self._run) - 1).number)),
            marked=place == self.mark,
            blamed=line.number in self.blamed,
            branched=line.number in self.branched,
            figures=self._figures,
        )
        return rows[part] if part < len(rows) else []
