"""Aider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Tool

TOOLS = {
    "edit": Tool(Action.EDIT, path="path"),
    "add": Tool(Action.READ, path="path"),
    "run": Tool(Action.RUN, command="command"),
    "test": Tool(Action.RUN, command="command"),
    "lint": Tool(Action.RUN, command="command"),
    "linter": Tool(Action.EDIT, title="commit"),
    "undo": Tool(Action.EDIT, title="commit"),
}
"""Aider has no tools that the model calls; these are the names that we give to what it does."""


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The history of the chats in the folder."""
    yield folder / (environ.get("AIDER_CHAT_HISTORY_FILE") or ".aider.chat.history.md")


AGENT = Agent(
    "aider",
    "Aider",
    "aider",
    TOOLS,
    sessions,
    headless=("aider", "--yes-always", "--message", "{prompt}"),
)
