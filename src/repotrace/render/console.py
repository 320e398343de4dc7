"""The one way to make a console."""

from __future__ import annotations

import os
import sys

from rich.console import Console

WIDE = 200
"""Columns where the output is no terminal, so that nothing that is read by a program is cut."""


def console(*, stderr: bool = False, color: str = "auto") -> Console:
    """A console on stdout, or on stderr.

    `color`: `auto` (a terminal, unless NO_COLOR is set or TERM is `dumb`; FORCE_COLOR asks for
    colours elsewhere too), `always` or `never`.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS", "").isdigit() else WIDE
    return Console(
        file=stream,
        width=width,
        force_terminal=True if color == "always" else None,
        no_color=True if color == "never" else None,
        color_system=None if color == "never" else "auto",
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
