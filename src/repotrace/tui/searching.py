"""A search that goes on while one looks at what it has found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from threading import Event

from repotrace.read.playing import Findings, marker
from repotrace.readable import one_line
from repotrace.render.diffs import Line, Span
from repotrace.tui.tabs import DIFF, FILES, MESSAGES, OUTPUT, OVERVIEW, TESTS

_SHOWN_IN = {
    "output_result": (OUTPUT, OVERVIEW),
    "error": (OVERVIEW, OUTPUT, MESSAGES),
    "command_line": (OVERVIEW, OUTPUT),
    "file_path": (OVERVIEW, FILES, DIFF),
    "messages": (MESSAGES,),
    "prompt": (MESSAGES,),
    "response": (MESSAGES,),
    "message": (OVERVIEW, TESTS),
    "node_id": (TESTS, OVERVIEW),
    "details": (TESTS,),
}
"""The tabs that may show a field; all others are in the overview, or in the output."""


_OFTEN = 0.1
"""Seconds between two times that findings are handed on."""


def tell_of(
    found: Iterator[Findings], tell: Callable[[Sequence[Findings]], None], has_stopped: Event
) -> bool:
    """Tell of findings now and then, until there are no more; False if it was stopped."""
    portion: list[Findings] = []
    told = time.monotonic()
    for findings in found:
        if has_stopped.is_set():
            return False
        portion.append(findings)
        if time.monotonic() - told >= _OFTEN:
            tell(portion)
            portion, told = [], time.monotonic()
    tell(portion)
    return True


class Search:
    """What was searched for, and where it has been found until now."""

    def __init__(self, text: str, start: int, count: int) -> None:
        self.text = text
        self.marker = marker(text)
        self.start = start
        """The step that was current then."""
        self.is_over = False
        self.has_arrived = False
        """Whether the first step with it was told."""
        self._count = count
        self._looked_through = 0
        self._fields: dict[int, set[str]] = {}
        self._places: list[int] | None = []

    def take(self, findings: Findings) -> None:
        """Note what was found besides."""
        self._looked_through = findings.looked_through
        for place, fields in findings.fields.items():
            self._fields.setdefault(place, set()).update(fields)
            self._places = None

    @property
    def places(self) -> list[int]:
        """The steps in which it is, in order."""
        if self._places is None:
            self._places = sorted(self._fields)
        return self._places

    def __contains__(self, place: object) -> bool:
        return place in self._fields

    def first(self) -> int | None:
        """The first step from the start on, round the end; None as long as it is not known."""
        place = self.next(self.start)
        if place is None:
            return None
        ahead = (place - self.start - 1) % self._count
        return place if self.is_over or ahead < self._looked_through else None

    def next(self, place: int, *, back: bool = False) -> int | None:
        """The next step in which it is, or the one before, round the end."""
        places = self.places
        ordered = reversed(places) if back else iter(places)
        ahead = (one for one in ordered if (one < place if back else one > place))
        return next(chain(ahead, reversed(places) if back else iter(places)), None)

    def tabs(self, place: int) -> Iterator[str]:
        """The tabs that may show it, those first that most likely do."""
        fields = self._fields.get(place, ())
        shown = [
            _SHOWN_IN.get(f, (OUTPUT,) if f.startswith("std") else (OVERVIEW,)) for f in fields
        ]
        for rank in range(3):
            yield from {tabs[rank] for tabs in shown if rank < len(tabs)}

    def told(self, place: int) -> Line:
        """How far it is, and which of the steps this one is."""
        name, count = one_line(self.text, 24), len(self.places)
        if not count:
            words = f"nothing found: {one_line(self.text, 60)}" if self.is_over else "searching …"
            return [Span(f" {words}", "yellow" if self.is_over else "dim")]
        steps = "step" if count == 1 else "steps"
        which = f"{self.places.index(place) + 1} of " if place in self else ""
        line = [Span(f" {which}{count} {steps}", "bold"), Span(" with "), Span(name, "bold")]
        if not self.is_over:
            share = self._looked_through * 100 // self._count
            return [*line, Span(f"  searching … {share} %", "dim")]
        return line
