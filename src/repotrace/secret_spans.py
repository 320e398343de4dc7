"""Stretches of a text that are masked: what is free between them, their union, where bytes went."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

_SHORTEST_REST = 16

# Start and end of what is masked, start of the match with its context, the rule, the secret that
# the digest is of (None: what stands there).
type Span = tuple[int, int, int, str, bytes | None]


class Offsets:
    """Where the bytes of a text went when it was redacted."""

    def __init__(self, edits: Iterable[tuple[int, int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._shifted: list[int] = []
        shift = 0
        for start, end, size in edits:
            shift += size - (end - start)
            self._starts.append(start)
            self._ends.append(end)
            self._shifted.append(end + shift)

    def map(self, raw_offset: int) -> int:
        """The offset in the redacted text; an offset inside a secret maps to its mask's end."""
        index = bisect_left(self._starts, raw_offset) - 1
        if index < 0:
            return raw_offset
        return self._shifted[index] + max(0, raw_offset - self._ends[index])


class Walls:
    """The masked stretches of a text, ordered and disjoint."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = sorted(spans)

    def add(self, start: int, end: int) -> None:
        insort(self._spans, (start, end))

    def free(self, span: Span) -> Iterator[Span]:
        """The parts of a span that are not masked yet."""
        start, end, _begin, rule, _secret = span
        inner = [wall for wall in self._spans if wall[0] < end and wall[1] > start]
        if not inner:
            yield span
            return
        bounds = [start, *(bound for wall in inner for bound in wall), end]
        for low, high in zip(bounds[::2], bounds[1::2], strict=True):
            if high - low >= _SHORTEST_REST:
                yield low, high, low, rule, None

    def gap(self, start: int, end: int, size: int = 1 << 62) -> tuple[int, int] | None:
        """The bounds of the free stretch that holds all of [start, end), if there is one."""
        index = bisect_right(self._spans, (start, size))
        low = self._spans[index - 1][1] if index else 0
        high = self._spans[index][0] if index < len(self._spans) else size
        return (low, high) if low <= start and end <= high else None


def moved(span: Span, by: int) -> Span:
    """`span` with every offset changed by `by`."""
    start, end, begin, rule, secret = span
    return start + by, end + by, begin + by, rule, secret


def line_start(data: bytes, low: int, at: int) -> int:
    """Where the line that holds offset `at` begins, at the earliest at `low`."""
    return data.rfind(b"\n", low, at) + 1 or low


def lines_of(data: bytes, spans: Iterable[Span]) -> list[tuple[int, int]]:
    """The stretches of whole lines that these spans touch."""
    regions: list[tuple[int, int]] = []
    for start, end, *_ in sorted(spans):
        low, high = line_start(data, 0, start), data.find(b"\n", end) + 1 or len(data)
        if regions and low <= regions[-1][1]:
            regions[-1] = (regions[-1][0], max(high, regions[-1][1]))
        else:
            regions.append((low, high))
    return regions


def merged(spans: Iterable[Span]) -> list[Span]:
    """The union of overlapping spans, each named after its longest part."""
    groups: list[list[Span]] = []
    high = -1
    for span in sorted(spans, key=lambda span: (span[0], -span[1], not span[3].startswith("env-"))):
        if span[0] < high:
            groups[-1].append(span)
        else:
            groups.append([span])
        high = max(high, span[1])
    return [_union(group) for group in groups]


def _union(group: list[Span]) -> Span:
    # Of equal length, the first: a variable's value can be put back, so it goes before a rule.
    best = max(group, key=lambda span: span[1] - span[0])
    start, end = group[0][0], max(span[1] for span in group)
    secret = best[4] if (start, end) == best[:2] else None
    return start, end, min(span[2] for span in group), best[3], secret
