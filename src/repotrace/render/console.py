"""The one way to make a console."""

from __future__ import annotations

import os
import sys
from typing import Literal

from rich.console import Console

WIDE = 1000
"""Columns where the output is no terminal, so that nothing that is read by a program is cut."""


def console(*, stderr: bool = False, color: str = "auto") -> Console:
    """A console on stdout, or on stderr.

    `color`: `auto` (a terminal, unless NO_COLOR is set or TERM is `dumb`; FORCE_COLOR asks for
    colours elsewhere too), `always` or `never`.
    """
    stream = sys.stderr if stderr else sys.stdout
    told = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    systems: dict[str, Literal["auto", "standard"] | None] = {"always": "standard", "never": None}
    return Console(
        file=stream,
        width=None if told else WIDE,
        height=None if told else 25,  # without one, Rich would not believe the width
        force_terminal=True if color == "always" else None,
        no_color={"always": False, "never": True}.get(color),
        color_system=systems.get(color, "auto"),
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
