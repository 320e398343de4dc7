"""How the screen begins."""

from __future__ import annotations

from typing import NamedTuple


class PlayOptions(NamedTuple):
    """How the screen begins."""

    step: int | None = None
    """The number of the first step that is shown."""
    show_llm: bool = False
    """Begin with the conversation."""
    show_files: bool = True
    """Without it there is nothing of files and diffs."""
    follow: bool = False
    """Look again and again what the run has done meanwhile."""
    command: str = "repotrace"
    """How RepoTrace is called for this store."""
    colourless: bool = False
    theme: str | None = None
    """Of Textual's; None: the one that it has by itself."""
