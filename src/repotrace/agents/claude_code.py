"""Claude Code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Hooks, Tool, folder_of

TOOLS = {
    "Read": Tool(Action.READ, path="file_path", first="offset", lines="limit"),
    "NotebookRead": Tool(Action.READ, path="notebook_path"),
    "Grep": Tool(Action.SEARCH, path="path", title="pattern"),
    "Glob": Tool(Action.LIST, path="path", title="pattern"),
    "LS": Tool(Action.LIST, path="path"),
    "Edit": Tool(
        Action.EDIT, path="file_path", old="old_string", new="new_string", all="replace_all"
    ),
    "MultiEdit": Tool(Action.EDIT, path="file_path"),
    "NotebookEdit": Tool(Action.EDIT, path="notebook_path", title="notebook_path"),
    "Write": Tool(Action.WRITE, path="file_path", content="content"),
    "Bash": Tool(Action.RUN, command="command"),
    "PowerShell": Tool(Action.RUN, command="command"),
    "BashOutput": Tool(Action.OTHER, title="bash_id"),
    "KillShell": Tool(Action.OTHER, title="shell_id"),
    "Task": Tool(Action.AGENT, title="description"),
    "Agent": Tool(Action.AGENT, title="description"),
    "TodoWrite": Tool(Action.PLAN),
    "TaskCreate": Tool(Action.PLAN, title="subject"),
    "TaskUpdate": Tool(Action.PLAN, title="taskId"),
    "TaskList": Tool(Action.PLAN),
    "EnterPlanMode": Tool(Action.PLAN),
    "ExitPlanMode": Tool(Action.PLAN),
    "AskUserQuestion": Tool(Action.ASK),
    "WebFetch": Tool(Action.WEB, title="url"),
    "WebSearch": Tool(Action.WEB, title="query"),
    "Skill": Tool(Action.OTHER, title="skill"),
    "ToolSearch": Tool(Action.OTHER, title="query"),
    "bash": Tool(Action.RUN, command="command"),
}


def project_folder(folder: Path) -> str:
    """The name that Claude Code gives to the folder of a project's sessions."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(folder))


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The sessions of a folder and of folders below it."""
    projects = folder_of(environ, "CLAUDE_CONFIG_DIR", ".claude") / "projects"
    name = project_folder(folder)
    for found in (projects / name, *sorted(projects.glob(f"{name}-*"))):
        yield from found.glob("*.jsonl")


HOOKS = Hooks(
    lambda environ: folder_of(environ, "CLAUDE_CONFIG_DIR", ".claude") / "settings.json",
    # The file beside it is shared with others, who have no such path.
    ".claude/settings.local.json",
    (
        *("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure"),
        "SessionEnd",
    ),
    30,
    switch="disableAllHooks",
)

AGENT = Agent(
    "claude-code",
    "Claude Code",
    "claude-code",
    TOOLS,
    sessions,
    hooks=HOOKS,
    headless=("claude", "-p", "--permission-mode", "acceptEdits", "{prompt}"),
)
