"""The terminal screen of `play`, driven by keys as by a person, and what it shows as text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from xml.etree import ElementTree

from textual.pilot import Pilot
from textual.widget import Widget
from textual.worker import WorkerCancelled

from repotrace.read.playing import PlayedRun
from repotrace.storage import Store
from repotrace.tui.bars import LineBar, Prompt, TabBar
from repotrace.tui.file_tree import FileTree
from repotrace.tui.lines_view import LinesView
from repotrace.tui.options import PlayOptions
from repotrace.tui.play import PlayApp
from repotrace.tui.step_list import StepList

_SVG = "{http://www.w3.org/2000/svg}"
_CELL = 12.2
"""Width of a column in a picture."""

WIDE, NARROW = (190, 40), (80, 24)


class Screen:
    """The screen, once all that was pressed has been done."""

    def __init__(self, app: PlayApp, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys one after another, each when the one before has been done."""
        for key in keys:
            await self._pilot.press(key)
            await self.settle()

    async def type(self, text: str) -> None:
        """Write something and press Enter."""
        await self.press(*("space" if letter == " " else letter for letter in text), "enter")

    async def click(self, widget: Widget, column: int, row: int) -> None:
        """Click into a widget."""
        await self._pilot.click(widget, offset=(column, row))
        await self.settle()

    async def settle(self) -> None:
        """Wait until nothing is being read."""
        await self._pilot.pause()
        with suppress(WorkerCancelled):  # something else was to be shown meanwhile
            await self.app.workers.wait_for_complete()
        await self.until(self._is_up_to_date)
        await self._pilot.pause()

    def _is_up_to_date(self) -> bool:
        app = self.app
        if not app.is_running or not len(app.played):
            return True
        if app.shown is None or app.tab == "Diff":
            return app.shown == app.wanted
        return app.shown._replace(width=0) == app.wanted._replace(width=0)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that comes by itself."""
        for _ in range(1_000):
            if condition():
                return
            await self._pilot.pause(0.02)
        raise AssertionError("it did not come")

    async def resize(self, width: int, height: int) -> None:
        """Another size of the terminal."""
        await self._pilot.resize_terminal(width, height)
        await self.settle()

    # --- What it shows ------------------------------------------------------------------------

    @property
    def number(self) -> int:
        return self.app.number

    @property
    def steps(self) -> str:
        """The part of the list that is in sight."""
        return rows(self.app.query_one(StepList))

    @property
    def view(self) -> str:
        """The part of the right side that is in sight."""
        return rows(self.app.view)

    @property
    def content(self) -> str:
        return rows(self.app.content)

    @property
    def tree(self) -> str:
        return rows(self.app.query_one(FileTree))

    @property
    def tabs(self) -> str:
        return rows(self.app.query_one(TabBar))

    @property
    def foot(self) -> str:
        return self.app.query_one("#foot", LineBar).text

    @property
    def asks(self) -> bool:
        return self.app.query_one(Prompt).has_class("asking")

    @property
    def painted(self) -> list[str]:
        """The rows as a picture of the screen has them: what really reached the terminal."""
        rows: dict[float, dict[int, str]] = {}
        for text in ElementTree.fromstring(self.app.export_screenshot()).iter(_SVG + "text"):
            if "line-" in text.get("clip-path", ""):
                row = rows.setdefault(float(text.get("y", "0")), {})
                row[round(float(text.get("x", "0")) / _CELL)] = text.text or ""
        return [_joined(row) for _, row in sorted(rows.items())]

    @property
    def all(self) -> str:
        """Everything that any part of the screen shows."""
        kinds = (LineBar, StepList, LinesView, FileTree)
        shown = [w for kind in kinds for w in self.app.screen.query(kind) if w.display]
        return "\n".join(rows(widget) for widget in shown)


def _joined(pieces: dict[int, str]) -> str:
    line = ""
    for column, piece in sorted(pieces.items()):
        line = line.ljust(column) + piece.replace("\xa0", " ")
    return line


def rows(widget: Widget) -> str:
    """What a widget shows, row by row."""
    found = (widget.render_line(y).text.rstrip() for y in range(widget.size.height))
    return "\n".join(found).rstrip("\n")


def play(
    store: Store,
    script: Callable[[Screen], Awaitable[None]],
    *,
    size: tuple[int, int] = (120, 36),
    **options: Any,
) -> PlayApp:
    """Open the screen on the newest run, and do what `script` does."""

    async def main() -> PlayApp:
        app = PlayApp(PlayedRun(store, store.runs.get()), PlayOptions(**options))
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            await screen.settle()
            await script(screen)
        return app

    return asyncio.run(main())
