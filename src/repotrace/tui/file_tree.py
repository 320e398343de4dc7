"""The files after a step, as a tree that opens where something changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from textual.binding import Binding, BindingType
from textual.events import Click, Resize
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from repotrace.read.playing import KnownFile
from repotrace.readable import one_line
from repotrace.render.blocks import folded_to, segments
from repotrace.render.diffs import Line, Span

_LETTERS = {
    "create": ("A", "bold green"),
    "edit": ("M", "bold yellow"),
    "delete": ("D", "bold red"),
}
_FEW = 30
"""Files up to which all folders are open."""


@dataclass(slots=True)
class _Folder:
    path: str
    folders: dict[str, _Folder] = field(default_factory=dict)
    files: list[KnownFile] = field(default_factory=list)
    changed: bool = False


@dataclass(frozen=True, slots=True)
class _Row:
    depth: int
    name: str
    path: str
    file: KnownFile | None
    """None: a folder."""
    changed: bool = False


class FileTree(ScrollView, can_focus=True):
    """The tree. Enter opens a folder or shows a file."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"file-tree--cursor"}
    DEFAULT_CSS = """
    FileTree .file-tree--cursor { background: $surface-lighten-2; }
    FileTree:focus .file-tree--cursor { background: $primary 28%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move(-15)", show=False),
        Binding("pagedown", "move(15)", show=False),
        Binding("home", "move(-1000000000)", show=False),
        Binding("end", "move(1000000000)", show=False),
        Binding("enter,space", "choose", show=False),
    ]

    class Chosen(Message):
        """A file is to be shown."""

        def __init__(self, path: str) -> None:
            super().__init__()
            self.path = path

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._root = _Folder("")
        self._open: dict[str, bool] = {}
        self._rows: list[_Row] = []
        self._cursor = 0
        self._few = True
        self._instead = ""

    def show(self, files: Sequence[KnownFile], instead: str = "") -> None:
        """Show these files, or `instead` where there are none.

        Folders that somebody opened or closed stay so, and so does the cursor on its path where
        that is still there.
        """
        self._instead = instead
        here = self._rows[self._cursor].path if self._rows else None
        self._root = _tree(files)
        self._few = len(files) <= _FEW
        self._lay_out()
        paths = [row.path for row in self._rows]
        if here in paths:
            self._cursor = paths.index(here)
        else:
            changed = (n for n, row in enumerate(self._rows) if row.file and row.file.change)
            self._cursor = next(changed, 0)
        self._into_sight()

    @property
    def text(self) -> str:
        """What is shown, as text."""
        return "\n".join("".join(span.text for span in _line(row, "")) for row in self._rows)

    @property
    def path(self) -> str | None:
        """The path of the file that the cursor is on."""
        row = self._rows[self._cursor] if self._rows else None
        return row.path if row is not None and row.file is not None else None

    def _lay_out(self) -> None:
        self._rows = list(self._visible(self._root, 0))
        self._cursor = max(0, min(self._cursor, len(self._rows) - 1))
        self.virtual_size = Size(0, len(self._rows))
        self.refresh()

    def _visible(self, folder: _Folder, depth: int) -> Iterator[_Row]:
        for name in sorted(folder.folders):
            inner = folder.folders[name]
            yield _Row(depth, name, inner.path, None, inner.changed)
            if self._is_open(inner):
                yield from self._visible(inner, depth + 1)
        for file in folder.files:
            name = file.path.rpartition("/")[2] or file.path
            yield _Row(depth, name, file.path, file)

    def _is_open(self, folder: _Folder) -> bool:
        return self._open.get(folder.path, self._few or folder.changed)

    # --- Moving -------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """To another row."""
        self._cursor = max(0, min(self._cursor + by, len(self._rows) - 1))
        self._into_sight()
        self.refresh()

    def _into_sight(self) -> None:
        top, height = self.scroll_offset.y, self.size.height
        if height > 0 and not top <= self._cursor < top + height:
            row = self._cursor if self._cursor < top else self._cursor - height + 1
            self.scroll_to(0, row, animate=False, force=True)

    def action_choose(self) -> None:
        """Open or close a folder, show a file."""
        if not self._rows:
            return
        row = self._rows[self._cursor]
        if row.file is not None:
            self.post_message(self.Chosen(row.path))
            return
        shown = (
            self._cursor + 1 < len(self._rows) and self._rows[self._cursor + 1].depth > row.depth
        )
        self._open[row.path] = not shown
        self._lay_out()

    def on_click(self, event: Click) -> None:
        """As Enter on the row under the pointer."""
        row = self.scroll_offset.y + event.y
        if row < len(self._rows):
            self._cursor = row
            self.action_choose()
            self.refresh()

    # --- Drawing ------------------------------------------------------------------------------

    def on_resize(self, event: Resize) -> None:
        """Keep the cursor in sight."""
        self._into_sight()

    def render_line(self, y: int) -> Strip:
        """The strip of a row of the window."""
        number, width = self.scroll_offset.y + y, self.size.width
        if not self._rows and self._instead:
            rows = list(folded_to([Span(self._instead, "dim")], max(width - 2, 1)))
            strip = Strip(segments([Span(" "), *rows[y]] if y < len(rows) else []))
            return strip.adjust_cell_length(width).apply_style(self.rich_style)
        if number >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        row = self._rows[number]
        is_open = number + 1 < len(self._rows) and self._rows[number + 1].depth > row.depth
        strip = Strip(segments(_line(row, "▾ " if is_open else "▸ ")))
        style = self.rich_style
        if number == self._cursor:
            style = self.get_component_rich_style("file-tree--cursor")
        return strip.adjust_cell_length(width).apply_style(style)


def _line(row: _Row, arrow: str) -> Line:
    margin = Span(" " * (2 * row.depth + 1))
    name = one_line(row.name) or "?"
    if row.file is None:
        return [margin, Span(arrow, "dim"), Span(f"{name}/", "bold" if row.changed else "")]
    letter, style = _LETTERS.get(
        row.file.change, ("·" if row.file.changed_before else " ", "yellow")
    )
    return [margin, Span(f"{letter} ", style), Span(name, style if row.file.change else "")]


def _tree(files: Sequence[KnownFile]) -> _Folder:
    root = _Folder("")
    for file in files:
        folder = root
        *above, _ = file.path.split("/")
        for name in above:
            path = f"{folder.path}/{name}" if folder.path else name
            folder.changed |= bool(file.change)
            folder = folder.folders.setdefault(name, _Folder(path))
        folder.changed |= bool(file.change)
        folder.files.append(file)
    return root
