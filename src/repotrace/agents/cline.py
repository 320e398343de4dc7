"""Cline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Tool

TOOLS = {
    "read_files": Tool(Action.READ, path="path", first="start_line"),
    "search_codebase": Tool(Action.SEARCH, title="queries"),
    "run_commands": Tool(Action.RUN, command="command"),
    "editor": Tool(
        Action.EDIT, path="path", old="old_text", new="new_text", content="new_text", first="line"
    ),
    "apply_patch": Tool(Action.PATCH, content="input"),
    "fetch_web_content": Tool(Action.WEB, title="requests"),
    "skills": Tool(Action.OTHER, title="skill"),
    "ask_question": Tool(Action.ASK, title="question"),
    "spawn_agent": Tool(Action.AGENT, title="task"),
    "submit_and_exit": Tool(Action.SUBMIT, title="summary"),
    # The tools of the extension until 2026.
    "read_file": Tool(Action.READ, path="path"),
    "write_to_file": Tool(Action.WRITE, path="path", content="content"),
    "replace_in_file": Tool(Action.EDIT, path="path", content="diff"),
    "search_files": Tool(Action.SEARCH, path="path", title="regex"),
    "list_files": Tool(Action.LIST, path="path"),
    "list_code_definition_names": Tool(Action.LIST, path="path"),
    "execute_command": Tool(Action.RUN, command="command"),
    "browser_action": Tool(Action.WEB, title="action"),
    "web_fetch": Tool(Action.WEB, title="url"),
    "use_mcp_tool": Tool(Action.OTHER, title="tool_name"),
    "access_mcp_resource": Tool(Action.OTHER, title="uri"),
    "ask_followup_question": Tool(Action.ASK, title="question"),
    "plan_mode_respond": Tool(Action.PLAN, title="response"),
    "focus_chain": Tool(Action.PLAN),
    "new_task": Tool(Action.PLAN, title="context"),
    "condense": Tool(Action.PLAN),
    "attempt_completion": Tool(Action.SUBMIT, title="result"),
}

_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor")
_EXTENSION = "User/globalStorage/saoudrizwan.claude-dev"


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The sessions of the command line and of the extension, whatever they worked on."""
    del folder
    home = Path(environ.get("HOME") or "/")
    data = Path(environ.get("CLINE_DIR") or home / ".cline") / "data"
    data = Path(environ.get("CLINE_DATA_DIR") or data)
    yield from Path(environ.get("CLINE_SESSION_DATA_DIR") or data / "sessions").glob(
        "*/*.messages.json"
    )
    places = [data]
    for name in _EDITORS:
        places.append(home / ".config" / name / _EXTENSION)
        places.append(home / "Library/Application Support" / name / _EXTENSION)
    for place in places:
        yield from place.glob("tasks/*/api_conversation_history.json")


AGENT = Agent("cline", "Cline", "cline", TOOLS, sessions)
