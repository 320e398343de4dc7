"""Greys for colours, for those who want none."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

_APART = 0.5
"""By how much the brightness of text differs from what is behind it, at least."""

_SHAPES = " ─│▁▂▃▄▅▆▇█▌"
"""What only borders and scroll bars are made of: they need not stand out."""

_LIGHT, _DARK = 0.9, 0.08


def in_greys(segments: Iterable[Segment]) -> list[Segment]:
    """The same in greys. What would come too near to what is behind it becomes light or dark."""
    return [
        Segment(text, None if style is None else _grey(style, bool(text.strip(_SHAPES))))
        for text, style, _ in segments
    ]


@lru_cache(maxsize=4096)
def _grey(style: Style, is_read: bool) -> Style:
    if style.color is None or style.bgcolor is None:
        return style
    front, back = _brightness(style.color), _brightness(style.bgcolor)
    if is_read and abs(front - back) < _APART:
        front = _LIGHT if back < _APART else _DARK
    return style + Style.from_color(_of(front), _of(back))


def _brightness(colour: Color) -> float:
    red, green, blue = colour.get_truecolor()
    return (red * 299 + green * 587 + blue * 114) / 255_000


def _of(brightness: float) -> Color:
    level = round(brightness * 255)
    return Color.from_rgb(level, level, level)
