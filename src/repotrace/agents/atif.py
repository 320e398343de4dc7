"""Agents whose trajectories come in the Agent Trajectory Interchange Format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Tool, editor_tools

_SHELLS = ("bash", "shell", "execute_bash", "run_command", "run_shell_command", "terminal")
TOOLS = {
    **{name: Tool(Action.RUN, command="command") for name in _SHELLS},
    "bash_command": Tool(Action.RUN, command="keystrokes"),
    **editor_tools("str_replace_editor", "text_editor", "str_replace_based_edit_tool"),
    "read_file": Tool(Action.READ, path="path"),
    "write_file": Tool(Action.WRITE, path="path", content="content"),
    "grep": Tool(Action.SEARCH, path="path", title="pattern"),
    "glob": Tool(Action.LIST, path="path", title="pattern"),
    "think": Tool(Action.PLAN, title="thought"),
    "mark_task_complete": Tool(Action.SUBMIT),
    "finish": Tool(Action.SUBMIT, title="message"),
    "submit": Tool(Action.SUBMIT),
}
"""Of agents that we do not know by name, the tools that many of them have."""


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The trajectories that Harbor leaves in the folder."""
    del environ
    yield from folder.glob("trajectory.json")
    yield from folder.glob("jobs/*/*/agent/trajectory*.json")


AGENT = Agent("atif", "ATIF", "atif", TOOLS, sessions)
