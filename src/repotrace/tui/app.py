"""An app that is careful with the terminal: its colours, and that it is given back."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence

from textual.app import App
from textual.filter import LineFilter

from repotrace.tui.looks import DARK, LIGHT, READABLE_GREYS


class CarefulApp(App[None]):
    """Leaves when the terminal goes away, and prints nothing over it."""

    failure: Exception | None = None
    """A bug that ended it."""

    def leave_when_told(self) -> None:
        """Give the terminal back when a signal asks to end. Call when the app has started."""
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.exit, None, 128 + number)

    def _handle_exception(self, error: Exception) -> None:
        # Textual would print a page of source code and variables on the terminal.
        if self.is_headless:
            super()._handle_exception(error)
        elif self.failure is None:
            self.failure = error
            self.exit(return_code=1)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """In greys that can be read, where no colours are wanted."""
        filters = super().get_line_filters()
        return [*filters, READABLE_GREYS] if self.no_color else filters

    def action_interrupt(self) -> None:
        """Leave, whatever is being asked."""
        self.exit()

    def action_colours(self) -> None:
        """Dark on light, or light on dark."""
        self.theme = LIGHT if self.current_theme.dark else DARK
