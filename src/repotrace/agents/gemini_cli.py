"""Gemini CLI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Hooks, Proxied, Tool, folder_of

TOOLS = {
    "read_file": Tool(Action.READ, path="file_path", first="start_line"),
    "read_many_files": Tool(Action.READ, title="include"),
    "grep_search": Tool(Action.SEARCH, path="dir_path", title="pattern"),
    "search_file_content": Tool(Action.SEARCH, path="path", title="pattern"),
    "glob": Tool(Action.LIST, path="dir_path", title="pattern"),
    "list_directory": Tool(Action.LIST, path="dir_path"),
    "replace": Tool(
        Action.EDIT, path="file_path", old="old_string", new="new_string", all="allow_multiple"
    ),
    "write_file": Tool(Action.WRITE, path="file_path", content="content"),
    "run_shell_command": Tool(Action.RUN, command="command"),
    "google_web_search": Tool(Action.WEB, title="query"),
    "web_fetch": Tool(Action.WEB, title="prompt"),
    "write_todos": Tool(Action.PLAN),
    "enter_plan_mode": Tool(Action.PLAN, title="reason"),
    "exit_plan_mode": Tool(Action.PLAN, title="plan_filename"),
    "update_topic": Tool(Action.PLAN, title="title"),
    "ask_user": Tool(Action.ASK),
    "save_memory": Tool(Action.OTHER, title="fact"),
    "activate_skill": Tool(Action.OTHER, title="name"),
    "get_internal_docs": Tool(Action.OTHER, title="path"),
    "invoke_agent": Tool(Action.AGENT, title="agent_name"),
    "codebase_investigator": Tool(Action.AGENT, title="objective"),
    "cli_help": Tool(Action.AGENT, title="question"),
    "complete_task": Tool(Action.SUBMIT),
}


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """All sessions, whatever they worked on: their folders are named by what only they know."""
    del folder
    home = folder_of(environ, "GEMINI_CLI_HOME", "")
    for place in (home / ".gemini" / "tmp").glob("*/chats"):
        yield from place.glob("session-*.json")
        yield from place.glob("session-*.jsonl")


HOOKS = Hooks(
    lambda environ: folder_of(environ, "GEMINI_CLI_HOME", "") / ".gemini" / "settings.json",
    ".gemini/settings.json",
    ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "SessionEnd"),
    30_000,
    named=True,
    advice="Gemini CLI runs the hooks of a project in folders that you trust",
)

AGENT = Agent(
    "gemini-cli",
    "Gemini CLI",
    "gemini-cli",
    TOOLS,
    sessions,
    # It takes the address from the environment in folders alone that are trusted.
    Proxied(environment={"GEMINI_CLI_TRUST_WORKSPACE": "true"}),
    HOOKS,
    headless=("gemini", "--approval-mode", "auto_edit", "-p", "{prompt}"),
)
