"""Which step made a hunk, and where it is undone: of states that were not run, the files tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from repotrace.runs.testing.hunks import Hunk, split_lines


def made_at(hunk: Hunk | None, contents: Sequence[bytes | None]) -> int | None:
    """The index of the content that one step alone put all of the hunk into; None if several had
    a part in it, or that is not to be told.

    `contents` are those of one file in successive states; the hunk leads from the first to the
    last one. None for the hunk: the file as a whole.
    """
    if hunk is None:
        places = [
            index
            for index, (before, after) in enumerate(pairwise(contents), 1)
            if before != after == contents[-1]
        ]
    else:
        texts = [split_lines(content or b"") for content in contents]
        gone = texts[0][hunk.start : hunk.end]
        places = [
            index
            for index, (before, after) in enumerate(pairwise(texts), 1)
            if before != after
            and _comes(hunk.lines, texts[0], before, after)
            and _comes(gone, texts[-1], after, before)
        ]
    return places[0] if len(places) == 1 else None


def is_undone(
    hunk: Hunk | None, before: bytes | None, after: bytes | None, now: bytes | None
) -> bool:
    """Whether a file does not have the hunk any more that led from `before` to `after`."""
    if hunk is None:
        return now == before
    old, new, present = (split_lines(content or b"") for content in (before, after, now))
    gone = old[hunk.start : hunk.end]
    if hunk.lines and _count(hunk.lines, present) >= _count(hunk.lines, new):
        return False
    return not gone or _count(gone, present) > _count(gone, new)


def _comes(
    block: Sequence[bytes],
    without: Sequence[bytes],
    before: Sequence[bytes],
    after: Sequence[bytes],
) -> bool:
    """Whether the block is new after, and no line of it was new before already.

    `without` is the text that has none of it.
    """
    if not block:
        return True
    usual, present = _counted(without, block), _counted(before, block)
    return _count(block, after) > _count(block, before) and present <= usual


def _counted(lines: Iterable[bytes], block: Sequence[bytes]) -> Counter[bytes]:
    """How often those lines of the block that say something are there."""
    wanted = {line for line in block if line.strip()}
    return Counter(line for line in lines if line in wanted)


def _count(block: Sequence[bytes], lines: Sequence[bytes]) -> int:
    """How often the block stands there, its lines one below the other."""
    wanted = list(block)
    starts = range(len(lines) - len(wanted) + 1)
    return sum(list(lines[start : start + len(wanted)]) == wanted for start in starts)
