"""Moments for transcripts that tell none: when each part of it had been written, as it was seen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from repotrace.errors import ImportFailed
from repotrace.importers import importer
from repotrace.records.events import Event, Kind

UNTIMED = frozenset({"aider"})
"""Formats that tell no moments of steps."""

_MOST = 300
"""Sizes of a transcript that are looked at."""


class Span(NamedTuple):
    """What was written while a transcript grew, in nanoseconds."""

    start: int
    end: int

    def moved(self, event: Event) -> Event:
        """The event at its time."""
        begins = event["kind"] in (Kind.STEP_STARTED, Kind.LLM, Kind.COMMAND)
        return {**event, "time": self.start if begins else self.end}


def spans(path: Path, form: str, growths: Sequence[tuple[int, int]]) -> dict[str, Span]:
    """When what the events of a transcript tell was written, by their ids.

    `growths` are times and sizes. Whatever is in the transcript at one size and was not at the
    one before has happened between the two.
    """
    found: dict[str, Span] = {}
    if not growths:
        return found
    data = path.read_bytes()
    before = growths[0][0]
    with TemporaryDirectory() as folder:
        part = Path(folder) / path.name
        for at, size in _some(growths):
            part.write_bytes(data[:size])
            for event in _events(part, form):
                found.setdefault(event, Span(before, at))
            before = at
    return found


def _some(growths: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    every = -(-len(growths) // _MOST)
    return [*growths[:-1][every - 1 :: every], growths[-1]]


def _events(path: Path, form: str) -> list[str]:
    try:
        return [event["id"] for event in importer(form).read(path)]
    except ImportFailed:
        return []
