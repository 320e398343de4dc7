"""The screen: the steps of a run on the left, what the current one did on the right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Event
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Key, Resize
from textual.strip import Strip

from repotrace.errors import RepoTraceError
from repotrace.read.playing import Findings, PlayedRun
from repotrace.readable import one_line
from repotrace.records.run import RunStatus
from repotrace.render.blocks import fixed, segments
from repotrace.render.diffs import Line, Span
from repotrace.render.play import problem, run_title
from repotrace.runs.restore import state_of_step
from repotrace.tui.app import CarefulApp
from repotrace.tui.bars import LineBar, Prompt, TabBar
from repotrace.tui.file_tree import FileTree
from repotrace.tui.help import HelpScreen
from repotrace.tui.keys import BINDINGS, FINDING, HINT, keys_line
from repotrace.tui.lines_view import LinesView
from repotrace.tui.looks import LAYOUT
from repotrace.tui.options import PlayOptions
from repotrace.tui.restoring import proposed, restored
from repotrace.tui.searching import Search, tell_of
from repotrace.tui.step_list import StepList
from repotrace.tui.tabs import (
    BLAME,
    DIFF,
    FILES,
    MESSAGES,
    OUTPUT,
    OVERVIEW,
    TESTS,
    TabReader,
    Wanted,
    command_for,
)

_READING = "reading …"
_SLOW = 0.2
"""Seconds after which the screen says that it is reading."""

_AGAIN = 1.0
"""Seconds between two looks at a run that is followed."""


class PlayApp(CarefulApp):
    """Steps through a recorded run. Nothing is executed."""

    ENABLE_COMMAND_PALETTE = False
    CSS = LAYOUT
    BINDINGS: ClassVar[list[BindingType]] = [*BINDINGS]

    def __init__(self, run: PlayedRun, options: PlayOptions | None = None) -> None:
        super().__init__()
        self.animation_level = "none"
        self.played = run
        self.options = options or PlayOptions()
        if self.options.colourless:
            self.no_color = True
        if self.options.theme is not None:
            self.theme = self.options.theme
        self.tab = MESSAGES if self.options.show_llm else OVERVIEW
        self._tabs = TabReader(run)
        self._reading = asyncio.Lock()
        self._between = False
        self._path: str | None = None
        self._said_at: int | None = None
        """The step that was current when something was said, if it still stands at the foot."""
        self.shown: Wanted | None = None
        """What is on the right side."""
        self._has_blame = False
        self.search: Search | None = None
        """What was searched for last."""
        self._sought: list[str] = []

    # --- Layout -------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Title, list, tabs, views, hints."""
        yield LineBar(run_title(self.played.run, self.played.alerts()), id="title")
        with Horizontal(id="body"):
            yield StepList(self.played, id="steps")
            with Vertical(id="right"):
                yield TabBar(id="tabs")
                yield LinesView(id="view")
                with Horizontal(id="files"):
                    yield FileTree(id="tree")
                    yield LinesView(id="content")
        yield Prompt(id="prompt")
        yield LineBar(id="foot")

    @property
    def steps(self) -> StepList:
        """The list."""
        return self.query_one(StepList)

    @property
    def view(self) -> LinesView:
        """Where all tabs but that of the files are shown."""
        return self.query_one("#view", LinesView)

    @property
    def content(self) -> LinesView:
        """Where a file is shown."""
        return self.query_one("#content", LinesView)

    @property
    def place(self) -> int:
        """The current step, counted from 0."""
        return self.steps.place

    @property
    def number(self) -> int:
        """The number of the current step; 0 in a run without steps."""
        return self.played.outline(self.place).number if len(self.played) else 0

    @property
    def tabs(self) -> list[str]:
        """The tabs that there are."""
        names = [OVERVIEW, MESSAGES, FILES, DIFF, OUTPUT, TESTS, BLAME]
        if not self.options.show_files:
            names = [name for name in names if name not in (FILES, DIFF)]
        return names if self._has_blame else names[:-1]

    def on_mount(self) -> None:
        """Begin with the wanted step."""
        self.leave_when_told()
        self._see_marks()
        wanted = self.options.step
        place = self.played.place(wanted) if wanted is not None else 0
        if place is None:
            self.exit(return_code=2)
            return
        if self.options.follow:
            self.set_interval(_AGAIN, self._look_again)
            place = place if wanted is not None else len(self.played) - 1
        self.steps.measure()
        self.steps.place = place
        self.steps.focus()
        self.call_after_refresh(self._show)

    def _see_marks(self) -> None:
        try:
            found, branches = self.played.blamed(), self.played.branches()
        except RepoTraceError as error:
            self.say(problem(error))
            return
        self._has_blame = bool(found)
        named = (blame.steps for blame in found if blame.named)
        self.steps.blamed = {step.number for steps in named for step in steps}
        self.steps.branched = {branch.step for branch in branches if branch.step is not None}

    def on_resize(self, event: Resize) -> None:
        """A file beside the tree, or in its place; and how much of the keys is told."""
        self.query_one("#files").set_class(event.size.width < 120, "narrow")
        self.query_one("#body").set_class(event.size.width < 72, "narrow")
        self._say_nothing_else(event.size.width)

    def on_lines_view_resized(self, event: LinesView.Resized) -> None:
        """A diff has two sides or one."""
        if event.view is self.view and self.tab == DIFF:
            self._read(stay=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While something is asked, keys belong to the answer, but for ^C and ^Z."""
        if action in ("interrupt", "suspend_process"):
            return True
        return not (any(b.action.startswith(action) for b in BINDINGS) and self._asking())

    def _asking(self) -> bool:
        found = self.screen.query(Prompt)
        return bool(found) and found.first().is_asking

    def on_key(self, event: Key) -> None:
        """Keys that were pressed before the question could take them are part of the answer."""
        if self._asking() and (event.is_printable or event.key in ("enter", "escape")):
            self.query_one(Prompt).take(event)

    # --- Showing ------------------------------------------------------------------------------

    def _show(self, *, stay: bool = False) -> None:
        """Show the current tab of the current step."""
        is_files = self.tab == FILES
        self.query_one("#files").set_class(is_files, "shown")
        self.view.set_class(is_files, "hidden")
        self.query_one(TabBar).choose(self.tabs, self.tab)
        self._read(stay=stay)

    @property
    def wanted(self) -> Wanted:
        """What is to be shown now."""
        since = self.steps.mark if self._between else None
        return Wanted(self.place, self.tab, self.view.size.width - 3, since, self._path)

    @work(exclusive=True, group="read")
    async def _read(self, *, stay: bool) -> None:
        if not len(self.played):
            self.view.show([fixed([[Span("the run has no steps yet", "dim")]])])
            return
        slow = self.set_timer(_SLOW, lambda: self.say([Span(_READING, "dim")]))
        wanted = self.wanted
        try:
            async with self._reading:
                shown = await asyncio.to_thread(self._tabs.read, wanted)
        finally:
            slow.stop()
        if wanted.tab == FILES:
            self.query_one(FileTree).show(shown.files, shown.note)
            self.content.show(shown.blocks, stay=stay)
        else:
            self.view.show(shown.blocks, stay=stay)
        self.shown = wanted
        if shown.note and shown.files:
            self.say([Span(shown.note, "yellow")])
        elif self.query_one("#foot", LineBar).text == _READING:
            self._say_nothing_else()
        await self._look_at_found(wanted)

    def say(self, line: Line) -> None:
        """A message at the foot of the screen."""
        self.query_one("#foot", LineBar).show(line)
        self._said_at = self.place

    def _say_nothing_else(self, width: int | None = None) -> None:
        """At the foot again what always stands there."""
        told = [] if self.search is None else [*self.search.told(self.place), Span("  ")]
        room = (width or self.size.width) - Strip(segments(told)).cell_length
        self.say([*told, *keys_line(FINDING if told else HINT, room)])
        self._said_at = None

    # --- Moving -------------------------------------------------------------------------------

    def on_step_list_moved(self, event: StepList.Moved) -> None:
        """Another step."""
        if self._said_at != self.place:  # else it was said after this move
            self._say_nothing_else()
        self._show()

    def on_step_list_chosen(self) -> None:
        """From the list to what is shown."""
        if self.query_one("#body").has_class("listing"):
            self.action_list()
        self._focus_view()

    def _focus_view(self) -> None:
        if self.tab != FILES:
            self.view.focus()
        else:
            self.query_one(FileTree).focus()

    def on_tab_bar_chosen(self, event: TabBar.Chosen) -> None:
        """A tab was clicked."""
        self.action_tab(event.name)

    def on_file_tree_chosen(self, event: FileTree.Chosen) -> None:
        """A file was chosen."""
        self._path = event.path
        self.query_one("#files").add_class("reading")
        self.content.focus()
        self._read(stay=False)

    def action_step(self, by: int) -> None:
        """To the next step, or the one before."""
        before = self.place
        self.steps.place += by
        if self.place == before:
            self.say([Span("this is the last step" if by > 0 else "this is the first step")])

    def action_tab(self, name: str) -> None:
        """To another tab."""
        if name not in self.tabs:
            return
        had_list = self.focused is self.steps
        if self.query_one("#body").has_class("listing"):
            self.action_list()
        self.tab = name
        self.query_one("#files").remove_class("reading")
        self._show()
        if name == FILES or not had_list:
            self._focus_view()

    def action_tab_number(self, number: int) -> None:
        """To a tab by its place."""
        if number <= len(self.tabs):
            self.action_tab(self.tabs[number - 1])
        elif not self._has_blame and number == len(self.tabs) + 1:
            asked = f"{self.options.command} blame {self.played.run.id}"
            self.say([Span(" which step broke a test is told by "), Span(asked, "bold")])

    def action_turn(self, by: int) -> None:
        """To the next tab, or the one before."""
        tabs = self.tabs
        self.action_tab(tabs[(tabs.index(self.tab) + by) % len(tabs)])

    def action_list(self) -> None:
        """The list over the whole screen, and back."""
        self.query_one("#body").toggle_class("listing")
        self.steps.focus()

    def action_leave(self) -> None:
        """From a file to the tree, from there to the list."""
        files = self.query_one("#files")
        if self.query_one("#body").has_class("listing"):
            self.action_list()
        elif self.tab == FILES and self.focused is self.content:
            files.remove_class("reading")
            self.query_one(FileTree).focus()
        elif self.focused is self.steps and self.search is not None:
            self._searched(None)
            self._say_nothing_else()
        else:
            self.steps.focus()

    def action_jump(self) -> None:
        """Ask for a number or a name."""
        self.query_one(Prompt).ask("jump to step", self._jump)

    def _jump(self, text: str) -> None:
        if not text:
            return
        is_number = text.isdecimal() and len(text) < 10
        place = self.played.place(int(text)) if is_number else self.played.labelled(text)
        if place is not None:
            self.steps.place = place
            return
        numbers = [self.played.outline(at).number for at in (0, -1)] if len(self.played) else []
        ends = f"; they go from {numbers[0]} to {numbers[1]}" if numbers else ""
        self.say([Span(f"there is no step {one_line(text, 20)}{ends}", "yellow")])

    def action_failure(self, back: bool) -> None:
        """To the next step that failed, or the one before."""
        self._go(lambda: self.played.next_failure(self.place, back=back), "no step failed")

    def action_test_run(self, back: bool) -> None:
        """To the next step that ran tests, or the one before."""
        self._go(lambda: self.played.next_test_run(self.place, back=back), "no step ran tests")

    @work(exclusive=True, group="go")
    async def _go(self, where: Callable[[], int | None], nowhere: str) -> None:
        place = await self._off(where)
        if place is None:
            self.say([Span(nowhere, "yellow")])
        elif place == self.place:
            self.say([Span("there is no other")])
        else:
            self.steps.place = place

    async def _off[T](self, function: Callable[[], T]) -> T | None:
        """What a function gives that may take long; its error is said, and None then."""
        try:
            return await asyncio.to_thread(function)
        except (RepoTraceError, OSError) as error:
            self.say(problem(error))
            return None

    # --- Searching ----------------------------------------------------------------------------

    def action_search(self) -> None:
        """Ask for words."""
        self.query_one(Prompt).ask("search", self._search)

    def _search(self, text: str) -> None:
        if text and (self.search is None or text != self.search.text):
            self._look_for(text)
        else:
            self.action_found(False)

    @work(exclusive=True, group="search")
    async def _look_for(self, text: str) -> None:
        if not len(self.played):
            return
        start, has_stopped = self.place, Event()
        search = self._searched(Search(text, start, len(self.played)))
        loop = asyncio.get_running_loop()

        def tell(findings: Sequence[Findings]) -> None:
            loop.call_soon_threadsafe(self._take, search, findings)

        try:
            whole = await self._off(
                lambda: tell_of(self.played.find(text, start), tell, has_stopped)
            )
        finally:
            has_stopped.set()
        if whole is None:
            self._searched(None)
            return
        search.is_over = True
        self._take(search, ())

    def _searched[T: (Search, None)](self, search: T) -> T:
        """Show this search from now on."""
        self.search, self._sought = search, []
        self.steps.found = search or ()
        self.steps.refresh()
        for view in (self.view, self.content):
            view.mark(search.marker if search is not None else None)
        if search is not None:
            self._say_nothing_else()
        return search

    def _take(self, search: Search, found: Sequence[Findings]) -> None:
        if self.search is not search:
            return
        for findings in found:
            search.take(findings)
        place = search.first()
        if not search.has_arrived and place is not None:
            search.has_arrived = True
            if self.place == search.start:
                self._show_found(place)
        self.steps.refresh()
        self._say_nothing_else()

    def action_found(self, back: bool) -> None:
        """To the next step in which it was found, or the one before."""
        search = self.search
        if search is None:
            self.say([Span("nothing was searched for yet; / searches")])
            return
        place = search.next(self.place, back=back)
        if place is None:
            self._say_nothing_else()
        else:
            self._show_found(place)

    def _show_found(self, place: int) -> None:
        assert self.search is not None
        tabs = [tab for tab in self.search.tabs(place) if tab in self.tabs]
        self._sought = sorted(tabs, key=lambda tab: tab != self.tab)
        if tabs and self.tab not in tabs:
            self.tab = self._sought[0]
        if place == self.place:
            self._say_nothing_else()
            self._show(stay=True)
        else:
            self.steps.place = place

    async def _look_at_found(self, wanted: Wanted) -> None:
        """Bring it into sight, if need be in another tab."""
        view = self.content if wanted.tab == FILES else self.view
        if wanted.tab not in self._sought or await view.seek():
            self._sought = []
        else:
            self._sought.remove(wanted.tab)
            if self._sought:
                self.tab = self._sought[0]
                self._show()

    # --- Doing --------------------------------------------------------------------------------

    def action_mark(self) -> None:
        """Mark the current step, or take the mark away."""
        if not len(self.played):
            return
        steps = self.steps
        steps.mark = None if steps.mark == self.place else self.place
        steps.refresh()
        if steps.mark is None:
            self.say([Span("the mark is gone")])
        else:
            self.say([Span(f"step {self.number} is marked; d on another step: the diff")])
        if self.tab == DIFF:
            self._show(stay=True)

    def action_diff(self) -> None:
        """From the marked step to this one; again: of this step."""
        has_mark = self.steps.mark is not None
        self._between = has_mark and not (self.tab == DIFF and self._between)
        self.action_tab(DIFF)
        if not has_mark:
            self.say([Span("m marks a step; then d shows what is different since")])

    @work(exclusive=True, group="restore")
    async def action_restore(self) -> None:
        """Ask for a folder, and write the files into it."""
        if not len(self.played):
            return
        number, run, store = self.number, self.played.run, self.played.store
        known = await self._off(lambda: state_of_step(store, run, number))
        if known is None or known.state_id is None:
            return
        state_id, quality = known.state_id, known.quality

        def then(text: str) -> None:
            self._restore(state_id, quality, text)

        question = f"write the files after step {number} into"
        self.query_one(Prompt).ask(question, then, given=str(proposed(store, run, number)))

    @work(exclusive=True, group="restore")
    async def _restore(self, state_id: str, quality: str, text: str) -> None:
        if not text:
            return
        store, run = self.played.store, self.played.run
        line = await self._off(lambda: restored(store, run, state_id, quality, text))
        if line is not None:
            self.say(line)

    def action_copy(self) -> None:
        """Copy the command that shows this."""
        if not len(self.played):
            return
        command = command_for(self.played, self.wanted, self.options.command)
        self.copy_to_clipboard(command)
        self.say([Span("copied: "), Span(one_line(command), "bold")])

    def action_help(self) -> None:
        """What the keys do."""
        self.push_screen(HelpScreen())

    # --- Following ----------------------------------------------------------------------------

    @work(exclusive=True, group="follow")
    async def _look_again(self) -> None:
        was_last = self.place >= len(self.played) - 1
        is_new = await self._off(self.played.refresh)
        if not is_new:
            return
        self._tabs.forget()
        self._see_marks()
        self.query_one("#title", LineBar).show(run_title(self.played.run, self.played.alerts()))
        self.steps.measure()
        before = self.place
        if was_last:
            self.steps.place = len(self.played) - 1
        if self.place == before:
            self._show(stay=True)
        if self.played.run.status != RunStatus.RUNNING:
            self.say([Span(f"the run has ended: {one_line(self.played.run.status)}")])
