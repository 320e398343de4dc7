"""OpenHands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Proxied, Tool, editor_tools, folder_of

_SHELL = Tool(Action.RUN, command="command")

TOOLS = {
    "terminal": _SHELL,
    "execute_bash": _SHELL,
    "bash": _SHELL,
    "terminal input": Tool(Action.OTHER, title="command"),
    **editor_tools("file_editor", "str_replace_editor", "planning_file_editor"),
    "execute_ipython_cell": _SHELL,
    "apply_patch": Tool(Action.PATCH, content="patch"),
    "grep": Tool(Action.SEARCH, path="path", title="pattern"),
    "glob": Tool(Action.LIST, path="path", title="pattern"),
    # The tools that models of Gemini are given.
    "read_file": Tool(Action.READ, path="file_path"),
    "write_file": Tool(Action.WRITE, path="file_path", content="content"),
    "edit": Tool(Action.EDIT, path="file_path", old="old_string", new="new_string"),
    "list_directory": Tool(Action.LIST, path="dir_path"),
    # The tools of 2024, which take lines.
    "read": Tool(Action.READ, path="path"),
    "write": Tool(Action.WRITE, path="path", content="content"),
    "edit_file": Tool(Action.EDIT, path="path"),
    "think": Tool(Action.PLAN, title="thought"),
    "task_tracker": Tool(Action.PLAN, title="command"),
    "task": Tool(Action.AGENT, title="description"),
    "delegate": Tool(Action.AGENT, title="command"),
    "delegate_to_browsing_agent": Tool(Action.AGENT, title="task"),
    "invoke_skill": Tool(Action.OTHER, title="name"),
    "browser": Tool(Action.WEB, title="code"),
    "browser_navigate": Tool(Action.WEB, title="url"),
    "browser_click": Tool(Action.WEB, title="index"),
    "browser_type": Tool(Action.WEB, title="text"),
    "browser_get_state": Tool(Action.WEB),
    "browser_get_content": Tool(Action.WEB),
    "web_read": Tool(Action.WEB, title="url"),
    "finish": Tool(Action.SUBMIT, title="message"),
    "reject": Tool(Action.SUBMIT, title="outputs"),
}


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The conversations of the command line and of the older server, whatever they worked on."""
    del folder
    home = folder_of(environ, "OPENHANDS_PERSISTENCE_DIR", ".openhands")
    conversations = environ.get("OPENHANDS_CONVERSATIONS_DIR")
    kept = Path(conversations) if conversations else home / "conversations"
    for place in (kept, home / "sessions"):
        for events in place.glob("*/events"):
            yield events.parent


AGENT = Agent(
    "openhands",
    "OpenHands",
    "openhands",
    TOOLS,
    sessions,
    Proxied(("--override-with-envs",)),
    headless=("openhands", "--headless", "-t", "{prompt}"),
)
