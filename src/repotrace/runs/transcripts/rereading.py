"""A transcript is gone through twice: for where it worked, then for what was done."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path

from repotrace.importers import Importer
from repotrace.importers.lines import Progress
from repotrace.records.events import Event

_HELD = 32 << 20
"""Bytes of a transcript up to which its events are kept at hand between two readings."""


class Reading:
    """A transcript that is gone through twice, though only a very long one is read twice."""

    def __init__(self, found: Importer, path: Path, progress: Progress) -> None:
        self._importer, self._path, self._progress = found, path, progress
        self._size = 0
        self._held: deque[tuple[Event, int]] = deque()
        """What was read, each event with the bytes until then."""
        self._is_whole = False

    def first(self) -> Iterator[Event]:
        """The events, from the file."""
        self._is_whole = True
        for event in self._importer.read(self._path, progress=self._count):
            # A format that does not say how much was read may be of any size.
            if not 0 < self._size <= _HELD:
                self._is_whole = False
                self._held.clear()
            if self._is_whole:
                self._held.append((event, self._size))
            yield event

    def again(self) -> Iterator[Event]:
        """The same events."""
        if not self._is_whole:
            yield from self._importer.read(self._path, progress=self._progress)
            return
        before = 0
        while self._held:
            event, size = self._held.popleft()
            self._progress(size - before)
            before = size
            yield event
        self._progress(self._size - before)

    def _count(self, more: int) -> None:
        self._size += more
        self._progress(more)
