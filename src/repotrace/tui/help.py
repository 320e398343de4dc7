"""What the keys do."""

from __future__ import annotations

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.events import Click, Key
from textual.screen import ModalScreen

from repotrace.render.blocks import fixed
from repotrace.render.diffs import Line, Span
from repotrace.tui.keys import KEYS, SIGNS
from repotrace.tui.lines_view import LinesView


class HelpScreen(ModalScreen[None]):
    """The keys, over the screen; any key goes back."""

    DEFAULT_CSS = """
    HelpScreen { align: center middle; }
    HelpScreen LinesView { width: 78; max-width: 100%; height: 24; max-height: 100%;
                           border: round $primary; background: $surface; }
    """

    def compose(self) -> ComposeResult:
        """One box."""
        yield LinesView(id="help")

    def on_mount(self) -> None:
        """Fill it."""
        view = self.query_one(LinesView)
        view.border_title = "keys"
        view.show([fixed(_lines())])

    def on_key(self, event: Key) -> None:
        """Go back, unless the text is scrolled."""
        if event.key not in ("up", "down", "pageup", "pagedown"):
            event.stop()
            self.dismiss()

    def on_click(self, event: Click) -> None:
        """Go back."""
        self.dismiss()


def _lines() -> Iterator[Line]:
    for keys, meaning in KEYS:
        yield [Span(f"{keys:<7}", "bold"), Span(meaning)]
    yield []
    yield [part for sign, word in SIGNS for part in (Span(sign, "bold"), Span(f" {word} ", "dim"))]
