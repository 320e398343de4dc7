"""The figure of the page: executions against states, beside git bisect and the bound."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from repotrace.blame import executions_at_most

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 44, 48
LEAST, MOST = 12, 220
"""States."""
CEILING = 34
"""Executions."""

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .quiet { fill: #57606a }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .bound { fill: none; stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 5 4 }
  .proven { fill: #0969da; fill-opacity: .75 }
  .likely { fill: none; stroke: #0969da; stroke-width: 1.5 }
  .git { fill: #bc4c00; fill-opacity: .75 }
  .wrong { stroke: #bc4c00; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .quiet { fill: #9198a1 }
    .grid { stroke: #3d444d }
    .bound { stroke: #9198a1 }
    .proven { fill: #58a6ff }
    .likely { stroke: #58a6ff }
    .git { fill: #f0883e }
    .wrong { stroke: #f0883e }
  }
"""


def across(states: float) -> float:
    share = math.log(states / LEAST) / math.log(MOST / LEAST)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def up(executions: float) -> float:
    return HEIGHT - BOTTOM - executions / CEILING * (HEIGHT - TOP - BOTTOM)


def figure(lines: Sequence[dict[str, Any]]) -> str:
    """An image in SVG, for light and dark pages."""
    own = [line for line in lines if line["truth"]["bounded"] and "to_proven" in line]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="{WIDTH}" height="{HEIGHT}" role="img">',
        "<title>Executions until a step is likely and proven, against the states of the run,"
        " beside git bisect</title>",
        f"<style>{STYLE}</style>",
        *_axes(),
        *_bounds(),
    ]
    for line in own:
        x = across(line["states"])
        parts.append(
            f'<circle class="proven" cx="{x:.1f}" cy="{up(line["to_proven"]):.1f}" r="4"/>'
        )
        parts.append(
            f'<circle class="likely" cx="{x:.1f}" cy="{up(line["to_likely"]):.1f}" r="3.5"/>'
        )
        y = up(line["git"]["executions"])
        if line["git"]["grade"] == "exact":
            parts.append(
                f'<rect class="git" x="{x - 3.5:.1f}" y="{y - 3.5:.1f}" width="7" height="7"/>'
            )
        else:
            parts.append(f'<path class="wrong" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>')
    return "\n".join([*parts, *_legend(), "</svg>"]) + "\n"


def _axes() -> Iterator[str]:
    for executions in range(0, CEILING, 5):
        y = up(executions)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{executions}</text>'
    for states in (16, 32, 64, 128, 200):
        x = across(states)
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{states}</text>'
    yield (
        f'<text class="quiet" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}"'
        ' text-anchor="middle">states of the run</text>'
    )
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield (
        f'<text class="quiet" transform="translate(14 {middle}) rotate(-90)"'
        ' text-anchor="middle">executions of the test</text>'
    )


def _bounds() -> Iterator[str]:
    for which in (0, 1):
        points = [
            f"{across(states):.1f} {up(executions_at_most(states)[which]):.1f}"
            for states in range(LEAST, MOST)
        ]
        yield f'<path class="bound" d="M{" L".join(points)}"/>'


def _legend() -> Iterator[str]:
    y = 18
    yield f'<circle class="proven" cx="{LEFT + 4}" cy="{y}" r="4"/>'
    yield f'<text x="{LEFT + 14}" y="{y + 4}">blame, until proven</text>'
    yield f'<circle class="likely" cx="{LEFT + 164}" cy="{y}" r="3.5"/>'
    yield f'<text x="{LEFT + 174}" y="{y + 4}">until likely</text>'
    yield f'<path class="bound" d="M{LEFT + 266} {y}h24"/>'
    yield f'<text x="{LEFT + 296}" y="{y + 4}">at most</text>'
    yield f'<rect class="git" x="{LEFT + 372}" y="{y - 3.5}" width="7" height="7"/>'
    yield f'<text x="{LEFT + 386}" y="{y + 4}">git bisect run, right</text>'
    yield f'<path class="wrong" d="M{LEFT + 534} {y - 4}l8 8m0 -8l-8 8"/>'
    yield f'<text x="{LEFT + 550}" y="{y + 4}">and wrong</text>'
