"""What a command wrote, kept in bounded memory however much it is."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

MARGIN = 16 * 1024
"""Bytes kept beyond the limit on each side of a cut, see `RawOutput`."""

MOST_CHUNKS = 400
"""From here on, chunks are only made longer."""

type Chunks = tuple[tuple[str, int, int, float], ...]
"""Stretches of output as (stream, start, end, seconds): offsets into the stream as written,
seconds since the start when the first byte of the stretch came."""


_OF_NOTHING = sha256(b"").hexdigest()


class RawOutput(NamedTuple):
    """One stream as it was written, not redacted: whole in `head`, or head and tail.

    A stream that is kept with a limit has up to `limit // 2 + MARGIN` bytes on each side.
    So a caller can redact first and cut at `limit` afterwards, and a secret that straddles
    the cut (at `limit // 2` from either end) is seen whole. Therefore `omitted` may be 0 for
    a stream somewhat longer than the limit.
    """

    head: bytes = b""
    tail: bytes = b""
    """The end of the stream; empty unless `omitted` is above 0."""
    omitted: int = 0
    """Bytes between head and tail that are not here."""
    length: int = 0
    """Bytes that were written."""
    sha256: str = _OF_NOTHING
    """Hex digest of all that was written."""


class Keeper:
    """Takes a stream piece by piece; holds its beginning, its end, its length and digest."""

    def __init__(self, limit: int) -> None:
        self._side = max(limit, 0) // 2 + MARGIN
        self._head = bytearray()
        self._tail = bytearray()
        self._digest = sha256()
        self.length = 0

    def add(self, data: bytes) -> None:
        self.length += len(data)
        self._digest.update(data)
        room = self._side - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Dropping the oldest only now and then keeps this linear, whatever the pieces' size.
        if len(self._tail) > 2 * self._side:
            del self._tail[: -self._side]

    def output(self) -> RawOutput:
        """All that came so far."""
        tail = bytes(self._tail[-self._side :])
        omitted = self.length - len(self._head) - len(tail)
        whole = omitted == 0
        return RawOutput(
            head=bytes(self._head) + (tail if whole else b""),
            tail=b"" if whole else tail,
            omitted=omitted,
            length=self.length,
            sha256=self._digest.hexdigest(),
        )


class Timeline:
    """In what order the streams were read, and when."""

    def __init__(self) -> None:
        self._chunks: list[tuple[str, int, int, float]] = []
        self._last: dict[str, int] = {}

    def add(self, stream: str, end: int, size: int, seconds: float) -> None:
        """`size` bytes came that reach to offset `end` of `stream`."""
        last = self._last.get(stream)
        newest = len(self._chunks) - 1
        if last is not None and (last == newest or newest + 1 >= MOST_CHUNKS):
            name, start, _, since = self._chunks[last]
            self._chunks[last] = (name, start, end, since)
            return
        self._last[stream] = newest + 1
        self._chunks.append((stream, end - size, end, seconds))

    def chunks(self) -> Chunks:
        return tuple(self._chunks)
