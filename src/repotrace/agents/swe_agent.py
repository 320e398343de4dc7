"""SWE-agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Tool, editor_tools

TOOLS = {
    "bash": Tool(Action.RUN, command="command"),
    "open": Tool(Action.READ, path="path", title="line_number"),
    "goto": Tool(Action.READ, path="path", title="line_number"),
    "scroll_up": Tool(Action.READ, path="path"),
    "scroll_down": Tool(Action.READ, path="path"),
    "filemap": Tool(Action.READ, path="file_path"),
    "view_image": Tool(Action.READ, path="image_file"),
    "find_file": Tool(Action.LIST, path="dir", title="file_name"),
    "search_dir": Tool(Action.SEARCH, path="dir", title="search_term"),
    "search_file": Tool(Action.SEARCH, path="file", title="search_term"),
    "create": Tool(Action.WRITE, path="filename"),
    "edit": Tool(Action.EDIT, path="path"),
    "insert": Tool(Action.EDIT, path="path"),
    **editor_tools("str_replace_editor"),
    "submit": Tool(Action.SUBMIT),
    "exit_forfeit": Tool(Action.OTHER),
}
"""The tools of its bundles. Those that work on the open file have its path as `path`."""


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The trajectories below the folder, where `sweagent run` leaves them."""
    yield from folder.glob("*.traj")
    places = [folder / "trajectories"]
    if environ.get("SWE_AGENT_TRAJECTORY_DIR"):
        places.append(Path(environ["SWE_AGENT_TRAJECTORY_DIR"]))
    for place in places:
        yield from place.rglob("*.traj")


AGENT = Agent("swe-agent", "SWE-agent", "swe-agent", TOOLS, sessions)
