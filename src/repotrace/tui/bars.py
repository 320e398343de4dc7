"""The single lines of the screen: title, tabs, hints, and where something is typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Click, Key
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Label

from repotrace.render.blocks import segments
from repotrace.render.diffs import Line, Span


class LineBar(Widget):
    """One line."""

    DEFAULT_CSS = """
    LineBar { height: 1; background: $panel; }
    """

    def __init__(self, line: Line = (), **options: Any) -> None:
        super().__init__(**options)
        self._line = line

    def show(self, line: Line) -> None:
        """Show this instead."""
        self._line = line
        self.refresh()

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(span.text for span in self._line)

    def render_line(self, y: int) -> Strip:
        """The line, cut where there is no room for more."""
        width = self.size.width
        strip = Strip(segments(self._line))
        if strip.cell_length > width:
            strip = Strip([*strip.crop(0, max(width - 1, 0)), *segments([Span("…")])])
        return strip.adjust_cell_length(width).apply_style(self.rich_style)


_WHOLE = 20
_ROOM = (
    (1, _WHOLE, _WHOLE),
    *((0, letters, _WHOLE) for letters in (_WHOLE, 6, 5, 4)),
    *((0, letters, letters) for letters in (5, 4, 3)),
)
"""How the names of tabs may stand, the best first: columns around each, letters of each, and
of the current one."""


class TabBar(LineBar):
    """The names of the tabs; the current one stands out, with or without colours."""

    class Chosen(Message):
        """A name was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._names: Sequence[str] = ()
        self._current = ""

    def choose(self, names: Sequence[str], current: str) -> None:
        """Show these names, and which one is current."""
        self._names, self._current = names, current
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The names, shortened where there is no room for them."""
        names, gap = self._fitting()
        self._line = []
        for whole, name in zip(self._names, names, strict=True):
            style = "reverse bold" if whole == self._current else ""
            between = Span("") if gap else Span(" ")
            self._line += [Span(f"{' ' * gap}{name}{' ' * gap}", style), between]
        return super().render_line(y)

    def _fitting(self) -> tuple[list[str], int]:
        """The names as there is room for them, and the columns on either side of each."""
        width = self.size.width
        for gap, letters, current in _ROOM:
            names = [name[: current if name == self._current else letters] for name in self._names]
            if sum(len(name) + 2 * gap + (not gap) for name in names) - (not gap) <= width:
                break
        return names, gap

    def on_click(self, event: Click) -> None:
        """The tab under the pointer."""
        at = 0
        names, gap = self._fitting()
        for whole, name in zip(self._names, names, strict=True):
            at += len(name) + (2 * gap or 1)
            if event.x < at:
                self.post_message(self.Chosen(whole))
                return


class _Answer(Input):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "app.interrupt", show=False)]

    def on_key(self, event: Key) -> None:
        """End the question here, so that keys that came with Enter are not taken for the answer."""
        prompt = self.screen.query_one(Prompt)
        if not prompt.is_asking:
            event.prevent_default()
        elif event.key in ("enter", "escape"):
            event.stop()
            prompt.take(event)


class Prompt(Horizontal):
    """Asks for one line of text at the foot of the screen."""

    DEFAULT_CSS = """
    Prompt { height: 1; background: $panel; }
    Prompt Label { width: auto; padding: 0 1; text-style: bold; }
    Prompt Input { border: none; height: 1; padding: 0; background: $panel; width: 1fr; }
    Prompt Input:focus { border: none; }
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.display = False
        self._then: Callable[[str], None] | None = None
        self._back: Widget | None = None

    def compose(self) -> ComposeResult:
        """The question, and the answer."""
        yield Label("", markup=False)
        yield _Answer(compact=True, select_on_focus=False)

    def ask(self, question: str, then: Callable[[str], None], *, given: str = "") -> None:
        """Ask; `then` gets the answer unless somebody presses Escape."""
        self._then = then
        if not self.is_asking:
            self._back = self.screen.focused
        self.display = True
        self.query_one(Label).update(Content(question))
        answer = self.query_one(_Answer)
        answer.value = given
        answer.cursor_position = len(given)
        self.add_class("asking")
        # At once, since what was typed meanwhile is there already.
        self.screen.set_focus(answer)

    @property
    def is_asking(self) -> bool:
        """Whether an answer is awaited."""
        return self.has_class("asking")

    def take(self, event: Key) -> None:
        """Do what a key means for the answer, though it may have been pressed a little early."""
        event.prevent_default()
        answer = self.query_one(_Answer)
        if event.key == "enter":
            self._end(answer.value)
        elif event.key == "escape":
            self._end(None)
        elif event.character is not None and event.is_printable:
            answer.insert_text_at_cursor(event.character)

    def _end(self, answer: str | None) -> None:
        then, self._then = self._then, None
        self.remove_class("asking")
        self.display = False
        self.screen.set_focus(self._back)
        if then is not None and answer is not None:
            then(answer.strip())
