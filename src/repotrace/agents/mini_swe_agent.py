"""mini-swe-agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Tool, folder_of

TOOLS = {"bash": Tool(Action.RUN, command="command")}


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The trajectory that `mini` wrote last, and those that lie in the folder itself."""
    settings = folder_of(environ, "MSWEA_GLOBAL_CONFIG_DIR", ".config/mini-swe-agent")
    yield from settings.glob("*.traj.json")
    yield from folder.glob("*.traj.json")


AGENT = Agent(
    "mini-swe-agent",
    "mini-swe-agent",
    "mini-swe-agent",
    TOOLS,
    sessions,
    headless=("mini", "--yolo", "--exit-immediately", "-t", "{prompt}"),
)
