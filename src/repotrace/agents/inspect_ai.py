"""Inspect, whose agents are what a task makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents import claude_code, codex
from repotrace.agents.tools import Action, Agent, Tool, editor_tools

TOOLS = {
    # Agents of others run inside of a task and bring their own tools.
    **claude_code.TOOLS,
    **codex.TOOLS,
    "bash": Tool(Action.RUN, command="command"),
    "python": Tool(Action.RUN, command="command"),
    "bash_session": Tool(Action.RUN, command="input"),
    **editor_tools("text_editor", "str_replace_editor", "str_replace_based_edit_tool"),
    "read_file": Tool(Action.READ, path="file"),
    "list_files": Tool(Action.LIST, path="path"),
    "grep": Tool(Action.SEARCH, path="path", title="pattern"),
    "web_search": Tool(Action.WEB, title="query"),
    "web_browser_go": Tool(Action.WEB, title="url"),
    "think": Tool(Action.PLAN, title="thought"),
    "update_plan": Tool(Action.PLAN, title="explanation"),
    "sandbox": Tool(Action.RUN, command="command"),
    "sandbox write_file": Tool(Action.WRITE, path="file", content="input"),
    "submit": Tool(Action.SUBMIT, title="answer"),
}


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The logs that `inspect eval` leaves in the folder."""
    logs = folder / (environ.get("INSPECT_LOG_DIR") or "logs")
    yield from logs.glob("*.eval")
    yield from logs.glob("*.json")


AGENT = Agent("inspect", "Inspect", "inspect", TOOLS, sessions)
