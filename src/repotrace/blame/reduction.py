"""Delta debugging: the smallest part of a change that still breaks the test."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from itertools import pairwise


def ddmin[T: Hashable](items: Sequence[T]) -> Generator[tuple[T, ...], bool, tuple[T, ...]]:
    """Yields parts of `items`; is sent whether the failure shows with just that part.

    Returns a part that shows it and is 1-minimal: without any one of its items the failure is
    gone. That all of `items` show it and none of them does not is known before, and not asked.
    No part is asked for twice. Order is kept.
    """
    answers: dict[frozenset[T], bool] = {}
    kept = tuple(dict.fromkeys(items))

    def shows(part: tuple[T, ...]) -> Generator[tuple[T, ...], bool, bool]:
        if not part:
            return False
        key = frozenset(part)
        if key not in answers:
            answers[key] = yield part
        return answers[key]

    parts = 2
    while len(kept) > 1:
        parts = min(parts, len(kept))
        chunks = _split(kept, parts)
        for chunk in chunks:
            if (yield from shows(chunk)):
                kept, parts = chunk, 2
                break
        else:
            # With two chunks the rest without the one is the other.
            for chunk in chunks if parts > 2 else ():
                left_out = set(chunk)
                rest = tuple(item for item in kept if item not in left_out)
                if (yield from shows(rest)):
                    kept, parts = rest, parts - 1
                    break
            else:
                if parts == len(kept):
                    break
                parts *= 2
    return kept


def _split[T](items: tuple[T, ...], parts: int) -> list[tuple[T, ...]]:
    """`items` in so many parts, of equal size as far as that goes."""
    ends = [len(items) * number // parts for number in range(parts + 1)]
    return [items[start:end] for start, end in pairwise(ends)]
