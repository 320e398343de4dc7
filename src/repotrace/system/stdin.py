"""Standard input on its way into a command, recorded as it passes."""

from __future__ import annotations

import os
import selectors
import stat
from collections.abc import Callable
from pathlib import Path

PIECE = 64 * 1024


def is_null_device(fd: int) -> bool:
    """Whether `fd` is closed or /dev/null: nothing will ever come out of it."""
    try:
        here, null = os.fstat(fd), Path(os.devnull).stat()
    except OSError:
        return True
    return stat.S_ISCHR(here.st_mode) and here.st_rdev == null.st_rdev


def peek(fd: int, position: int, limit: int) -> bytes:
    """What a regular file holds from `position` on, at most `limit` bytes.

    Its own position stays, so that a command which gets the file finds all of it.
    """
    data = bytearray()
    while len(data) < limit:
        piece = os.pread(fd, min(PIECE, limit - len(data)), position + len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


class Feed:
    """Moves bytes into `sink` as far as they are taken, never blocking.

    First `data`, then what `source` gives, until its end. Owns and closes `sink`; the first
    `limit` bytes of all that was fed are in `recorded`. `on_piece` sees what `source` gives.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        sink: int,
        *,
        data: bytes = b"",
        source: int | None = None,
        limit: int,
        on_piece: Callable[[bytes], None] | None = None,
    ) -> None:
        self._selector = selector
        self._sink: int | None = sink
        self._source = source
        self._limit = limit
        self._on_piece = on_piece
        self._waiting = memoryview(data)
        self._always_ready = False
        self._listening = False
        self._writing = False
        self.recorded = bytearray(data[:limit])
        self.cut = len(data) > limit
        os.set_blocking(sink, False)
        self._wait_for_more()

    def close(self) -> None:
        """Feed nothing more: the command sees the end of its input."""
        self._listen(False)
        self._source = None
        if self._sink is not None:
            self._write_when_possible(False)
            os.close(self._sink)
            self._sink = None

    def abandon(self) -> None:
        """Close the sink when the selector is closed already."""
        if self._sink is not None:
            os.close(self._sink)
            self._sink = None

    def _wait_for_more(self) -> None:
        if self._waiting:
            self._listen(False)
            self._write_when_possible(True)
        elif self._source is None:
            self.close()
        elif self._always_ready:
            self._write_when_possible(True)
        else:
            self._write_when_possible(False)
            self._listen(True)

    def _listen(self, on: bool) -> None:
        if on == self._listening or self._source is None:
            return
        if not on:
            self._selector.unregister(self._source)
        else:
            try:
                self._selector.register(self._source, selectors.EVENT_READ, self._read)
            except OSError:
                # Devices such as /dev/zero cannot be waited for: they always have something.
                self._always_ready = True
                self._write_when_possible(True)
                return
        self._listening = on

    def _write_when_possible(self, on: bool) -> None:
        if on == self._writing or self._sink is None:
            return
        if on:
            self._selector.register(self._sink, selectors.EVENT_WRITE, self._write)
        else:
            self._selector.unregister(self._sink)
        self._writing = on

    def _read(self) -> None:
        if self._source is None:
            return
        try:
            piece = os.read(self._source, PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.close()
            return
        if self._on_piece is not None:
            self._on_piece(piece)
        room = self._limit - len(self.recorded)
        self.recorded += piece[:room]
        self.cut = self.cut or len(piece) > room
        self._waiting = memoryview(piece)
        self._write()

    def _write(self) -> None:
        if self._sink is None:
            return
        if not self._waiting:
            self._read()
            return
        try:
            written = os.write(self._sink, self._waiting)
        except BlockingIOError:
            written = 0
        except OSError:
            # The command closed its input; what is left is nobody's.
            self.close()
            return
        self._waiting = self._waiting[written:]
        self._wait_for_more()
