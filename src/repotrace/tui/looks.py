"""How the screen is laid out and coloured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual.color import Color
from textual.filter import LineFilter

from repotrace.render.greys import in_greys

LAYOUT = """
#body { height: 1fr; }
#body ScrollView { scrollbar-size-vertical: 1; }
#steps { width: 36%; min-width: 32; max-width: 60; border-right: solid $panel-lighten-2; }
#body.narrow #steps { min-width: 24; }
#right { width: 1fr; }
#files { display: none; }
#files.shown { display: block; }
#view.hidden { display: none; }
#tree { width: 36; max-width: 50%; border-right: solid $panel-lighten-2; }
#content { width: 1fr; }
#files.narrow #tree { width: 1fr; max-width: 100%; border-right: none; }
#files.narrow #content { display: none; }
#files.narrow.reading #tree { display: none; }
#files.narrow.reading #content { display: block; }
#body.listing #right { display: none; }
#body.listing #steps { width: 1fr; max-width: 100%; border-right: none; }
#foot { height: auto; max-height: 3; }
"""

DARK, LIGHT = "textual-dark", "textual-light"
_LIGHT_BACKGROUNDS = frozenset({"7", "15"})


def theme_for(environ: Mapping[str, str]) -> str | None:
    """The theme for a terminal of which these variables tell; None: as Textual has it.

    `COLORFGBG`, which many terminals set, names the numbers of their colours, the background last.
    """
    if "TEXTUAL_THEME" in environ:
        return None
    background = environ.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if background in _LIGHT_BACKGROUNDS else None


class ReadableGreys(LineFilter):
    """Greys for colours, such that everything can be read."""

    def apply(self, segments: list[Any], background: Color) -> list[Any]:
        """The same text in greys."""
        return in_greys(segments)


READABLE_GREYS = ReadableGreys()
