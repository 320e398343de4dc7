"""Lines of styled pieces, and the words for figures, that all views of runs are made of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import batched

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment

from repotrace.readable import folded, one_line, readable, seconds, visible, without_escapes
from repotrace.render.console import WIDE, console
from repotrace.render.diffs import Line, Span, style_of

COLOURED = 200_000
"""Characters of captured text above which its own colours are left out."""

_AT_ONCE = 200
"""Lines that are printed together."""

_LITTLE = 8
"""Columns that a captured line may be too long by to be made shorter rather than folded."""

_RUN = re.compile(r"([ =_*~.-])\1{9,}")
_NEWLINE = Span("\n")
_SGR = re.compile("\x1b\\[([0-9;:]*)m")
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ATTRIBUTES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
_ENDS = {
    22: ("bold", "dim"),
    23: ("italic",),
    24: ("underline",),
    27: ("reverse",),
    29: ("strike",),
}


class Page:
    """Where lines are printed: on stdout, with or without colours."""

    def __init__(self, color: str = "auto") -> None:
        self._console = console(color=color)
        self.width = self._console.width
        """Columns; `WIDE` where the output is no terminal."""
        self.coloured = self._console.color_system is not None and not self._console.no_color

    def print(self, lines: Iterable[Line]) -> None:
        """Print lines as they come.

        Where the width of a terminal is known, long lines are folded, indented as they were, so
        that no captured text begins where ours does.
        """
        if self.width < WIDE:
            lines = (part for line in lines for part in fold(eased(line, self.width), self.width))
        for some in batched(lines, _AT_ONCE):
            if self.coloured:
                self._console.print(_Coloured(some), soft_wrap=True)
            else:
                text = "".join([*(span.text for line in some for span in (*line, _NEWLINE))])
                self._console.file.write(text)
        self._console.file.flush()


class CapturedLine(list[Span]):
    """A line of captured text."""


class _Coloured:
    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self._lines:
            for span in line:
                yield Segment(span.text, style_of(span.style))
            yield Segment.line()


def eased(line: Line, width: int) -> Line:
    """A captured line that was made for a slightly wider terminal, with shorter rules and gaps."""
    if not isinstance(line, CapturedLine):
        return line
    excess = sum(cell_len(span.text) for span in line) - width
    if not 0 < excess <= _LITTLE:
        return line
    eased: list[Span] = []
    for span in line:
        runs = (run for run in _RUN.finditer(span.text) if run.start() or run[1] != " ")
        run = max(runs, key=lambda run: len(run[0]), default=None)
        if run is None or len(run[0]) < excess + _LITTLE:
            eased.append(span)
            continue
        eased.append(Span(span.text[: run.start()] + span.text[run.start() + excess :], span.style))
        excess = 0
    return eased


def fold(line: Line, width: int) -> Iterator[Line]:
    """A line as lines of at most `width` cells."""
    if sum(len(span.text) for span in line) <= width and all(s.text.isascii() for s in line):
        yield line
        return
    text = "".join(span.text for span in line)
    indent = min(len(text) - len(text.lstrip(" ")), width // 2)
    part: list[Span] = []
    room = width
    for span in line:
        rest = span.text
        while rest:
            piece = fitting(rest, room)
            if not piece:
                yield part
                part, room = [Span(" " * indent)], width - indent
                piece = fitting(rest, room) or rest[:1]
            part.append(Span(piece, span.style))
            room -= cell_len(piece)
            rest = rest[len(piece) :]
    yield part


def fitting(text: str, room: int) -> str:
    """As much of the beginning of `text` as fits into `room` cells."""
    if room <= 0:
        return ""
    piece = text[:room]
    while piece and cell_len(piece) > room:
        piece = piece[: -max(1, (cell_len(piece) - room) // 2)]
    return piece


# --- Captured text ------------------------------------------------------------------------


def captured(text: str) -> Iterator[Line]:
    """Captured text line by line: its colours as styles, all else that could act made visible."""
    text = text.strip("\n") if text.strip() else ""
    if len(text) > COLOURED:
        text = without_escapes(text)
    yield from captured_part(text)


def captured_part(text: str) -> Iterator[Line]:
    """`captured` for a part of a longer text: empty lines at its ends stay."""
    if "\x1b[" not in text:
        for row in readable(text).split("\n"):
            yield CapturedLine([Span(row)])
        return
    line = CapturedLine()
    style: tuple[str, ...] = ()
    for number, piece in enumerate(_SGR.split(folded(text))):
        if number % 2:
            style = _after(style, piece)
            continue
        first, *rest = visible(without_escapes(piece)).split("\n")
        line.append(Span(first, " ".join(style)))
        for row in rest:
            yield line
            line = CapturedLine([Span(row, " ".join(style))])
    yield line


def _after(style: tuple[str, ...], codes: str) -> tuple[str, ...]:
    """The style after a sequence of SGR codes. Concealing text is not among what is kept."""
    numbers = [int(code) if code.isdecimal() and len(code) < 5 else 0 for code in
               codes.replace(":", ";").split(";")]  # fmt: skip
    at = 0
    while at < len(numbers):
        code = numbers[at]
        at += 1
        if code == 0:
            style = ()
        elif code in _ATTRIBUTES:
            style = (*style, _ATTRIBUTES[code]) if _ATTRIBUTES[code] not in style else style
        elif code in _ENDS:
            style = tuple(word for word in style if word not in _ENDS[code])
        elif code in (38, 48):
            colour, at = _extended(numbers, at)
            style = _coloured(style, colour, back=code == 48)
        elif 30 <= code <= 49 or 90 <= code <= 107:
            name = _COLOURS[code % 10] if code % 10 < 8 else None
            bright = "bright_" if name and code >= 90 else ""
            style = _coloured(style, name and f"{bright}{name}", back=code // 10 in (4, 10))
    return style


def _extended(numbers: Sequence[int], at: int) -> tuple[str | None, int]:
    """A colour of 256 or of all, and where the codes go on."""
    kind = numbers[at] if at < len(numbers) else 0
    if kind == 5 and at + 1 < len(numbers):
        return f"color({min(numbers[at + 1], 255)})", at + 2
    if kind == 2 and at + 3 < len(numbers):
        red, green, blue = (min(value, 255) for value in numbers[at + 1 : at + 4])
        return f"rgb({red},{green},{blue})", at + 4
    return None, len(numbers)


def _coloured(style: tuple[str, ...], colour: str | None, *, back: bool) -> tuple[str, ...]:
    """The style with another colour of text or, with `back`, behind it; None for the usual one."""
    others = tuple(word for word in style if not _is_colour(word, back=back))
    if colour is None:
        return others
    return (*others, f"on {colour}" if back else colour)


def _is_colour(word: str, *, back: bool) -> bool:
    return word.startswith("on ") if back else not (
        word.startswith("on ") or word in _ATTRIBUTES.values()
    )  # fmt: skip


def indented(lines: Iterable[Line], by: int = 2) -> Iterator[Line]:
    """Lines further to the right; empty ones stay empty."""
    for line in lines:
        moved = [Span(" " * by), *line] if any(span.text for span in line) else []
        yield CapturedLine(moved) if isinstance(line, CapturedLine) else moved


# --- Figures ------------------------------------------------------------------------------


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 step`, `2 steps`, `3 retries`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def tokens_of(number: int) -> str:
    """`950`, `1.2k`, `15k`, `1.2M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            value = number / size
            return f"{value:.1f}{unit}" if value < 9.95 else f"{value:.0f}{unit}"
    return str(number)


def cost_of(cost: Decimal, unpriced: int = 0) -> str:
    """`$0.031`; `$0.031 + ?` where the cost of some calls is unknown, `$?` where all of it is."""
    if not cost:
        return "$?" if unpriced else "$0"
    digits = 2 if cost >= 1 else 3 if cost >= Decimal("0.01") else 4
    shown = f"${cost:.{digits}f}" if cost >= Decimal("0.0001") else "<$0.0001"
    return f"{shown} + ?" if unpriced else shown


def usage_of(tokens: int, cost: Decimal, unpriced: int) -> Iterator[str]:
    """Tokens and what they cost, as far as anybody told of them: no answer takes none."""
    if tokens:
        yield f"{tokens_of(tokens)} tokens"
    if tokens or cost:
        yield cost_of(cost, unpriced)


def lines_of(added: int, removed: int) -> str:
    """`+3 -1`."""
    return f"+{added} -{removed}"


def known_lines(added: int, removed: int) -> str:
    """As `lines_of`; empty for none, which is also what files of unknown content have."""
    return lines_of(added, removed) if added or removed else ""


def time_of(duration: float | None) -> str:
    """A duration, empty for none."""
    return "" if duration is None else seconds(duration)


def phrase(text: str) -> str:
    """The first line of a text that has words, safe to print."""
    return next((one_line(line) for line in text.split("\n") if line.strip()), "")


def fit(text: str, width: int) -> str:
    """`text` in exactly `width` cells, with `…` where it was cut."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(fitting(text, width - 1) + "…", width)


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` cells, broken at spaces where that can be."""
    if width >= WIDE:
        return [text]
    rows, row = [], ""
    for word in text.split(" "):
        longer = f"{row} {word}" if row else word
        if row and cell_len(longer) > width:
            rows.append(row)
            row = word
        else:
            row = longer
    return [*rows, row]


_PATH = 12
"""Cells that are left of a path at least, where its beginning is cut off."""


def fit_end(text: str, width: int) -> str:
    """The end of `text` in `width` cells at most, with `…` where it was cut."""
    while cell_len(text) > width:
        text = "…" + text[2 if text.startswith("…") else 1 :]
    return text


def shortened(text: str, width: int) -> str:
    """`text` in at most `width` cells; a path in it loses its beginning, not its end."""
    path = max(text.split(" "), key=len)
    room = width - cell_len(text) + cell_len(path)
    if cell_len(text) > width and "/" in path and room >= _PATH:
        return text.replace(path, fit_end(path, room), 1)
    return fit(text, width).rstrip() if cell_len(text) > width else text


STATUS_STYLES = {
    "completed": "green",
    "failed": "red",
    "interrupted": "bold yellow",
    "started": "cyan",
    "running": "cyan",
}


def status_word(status: str) -> str:
    """The status of a step in few letters."""
    short = {"completed": "ok", "started": "running"}
    return one_line(short.get(status, status), 12)
