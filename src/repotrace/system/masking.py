"""Masking secrets in what a command wrote, also where colours run through them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from functools import cache

from repotrace.redact import Offsets, RedactingStream, Redactor


@cache
def _escapes() -> re.Pattern[bytes]:
    return re.compile(
        rb"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor movement
        rb"|\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # links, titles
        rb"|[ -/]*[0-Z^-~])"
    )


def redact_terminal_output(redactor: Redactor, data: bytes) -> tuple[bytes, Callable[[int], int]]:
    """`data` without secrets, and where each offset of it went.

    A secret that only shows once colours and links are taken out is masked, too, together with
    the escape sequences inside it. Everything else stays byte for byte.
    """
    masked, first = redactor.redact_bytes(data)
    if b"\x1b" not in masked:
        return masked, first.map
    plain, removed = _plain(masked)
    edits: list[tuple[int, int, int]] = []
    stream = RedactingStream(redactor, edits)
    clean = stream.feed(plain) + stream.close()
    if not edits:
        return masked, first.map
    pieces: list[bytes] = []
    raw_edits: list[tuple[int, int, int]] = []
    at = shift = 0
    for start, end, size in edits:
        mask = clean[start + shift : start + shift + size]
        shift += size - (end - start)
        low, high = removed(start), removed(end - 1) + 1
        pieces += [masked[at:low], mask]
        raw_edits.append((low, high, size))
        at = high
    second = Offsets(raw_edits)
    return b"".join((*pieces, masked[at:])), lambda offset: second.map(first.map(offset))


def _plain(data: bytes) -> tuple[bytes, Callable[[int], int]]:
    """`data` without escape sequences, and where each of its bytes stood before."""
    pieces: list[bytes] = []
    starts: list[int] = [0]
    shifts: list[int] = [0]
    at = kept = 0
    for match in _escapes().finditer(data):
        pieces.append(data[at : match.start()])
        kept += match.start() - at
        at = match.end()
        starts.append(kept)
        shifts.append(at - kept)
    pieces.append(data[at:])

    def before(offset: int) -> int:
        return offset + shifts[bisect_right(starts, offset) - 1]

    return b"".join(pieces), before
