"""What the tools of agents do, in the words of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Action(StrEnum):
    """What calling a tool means."""

    READ = "read"
    SEARCH = "search"
    LIST = "list"
    EDIT = "edit"
    WRITE = "write"
    """A whole file, new or not."""
    PATCH = "patch"
    """Several files by one patch."""
    RUN = "run"
    PLAN = "plan"
    AGENT = "agent"
    """It hands work to another agent."""
    ASK = "ask"
    """It asks the user."""
    WEB = "web"
    SUBMIT = "submit"
    """It says that the work is done."""
    OTHER = "other"


class Tool(NamedTuple):
    """A tool of an agent: what it does, and which of its arguments says what."""

    action: Action
    path: str = ""
    command: str = ""
    old: str = ""
    new: str = ""
    all: str = ""
    """Says whether every occurrence is replaced."""
    content: str = ""
    """The whole content, or the patch."""
    first: str = ""
    """The first line to read, from 1."""
    lines: str = ""
    """How many lines to read."""
    title: str = ""
    """Says best what the call is about."""


OTHER = Tool(Action.OTHER)

EDITOR = {
    "view": Tool(Action.READ, path="path"),
    "create": Tool(Action.WRITE, path="path", content="file_text"),
    "str_replace": Tool(Action.EDIT, path="path", old="old_str", new="new_str"),
    "insert": Tool(Action.EDIT, path="path", new="new_str", first="insert_line"),
    "undo_edit": Tool(Action.EDIT, path="path"),
}
"""What the commands of the text editor do that several agents have."""


def editor_tools(*names: str) -> dict[str, Tool]:
    """The vocabulary of text editors of these names: a tool for each name with each command."""
    return {f"{name} {verb}": tool for name in names for verb, tool in EDITOR.items()}


class Proxied(NamedTuple):
    """What leads an agent through the relay besides the usual variables, see `proxy`."""

    arguments: tuple[str, ...] = ()
    """Stand behind the name of its program; `{openai}` and the like are addresses."""
    environment: Mapping[str, str] = {}
    upstream: Callable[[Mapping[str, str]], str | None] | None = None
    """The provider that its own settings name, as `--upstream` takes it; gets the environment."""


class Hooks(NamedTuple):
    """How an agent is told to start a program of ours at what it does."""

    user: Callable[[Mapping[str, str]], Path]
    """The file of settings for all that the user does; gets the environment."""
    project: str
    """The file of settings of one project, below its root."""
    events: tuple[str, ...]
    """What the agent calls the moments that we want to hear of."""
    timeout: int
    """Half a minute, in the agent's unit."""
    named: bool = False
    """Whether the agent shows hooks by a name."""
    switch: str = ""
    """A name in the settings that turns all hooks off."""
    advice: str = ""
    """What the user has to do besides."""


class Agent(NamedTuple):
    """An agent that people use. Nothing here looks at the machine before it is asked to."""

    name: str
    """As in `runs list`."""
    title: str
    """For people."""
    format: str
    """The importer of its sessions."""
    tools: Mapping[str, Tool]
    sessions: Callable[[Mapping[str, str], Path], Iterable[Path]]
    """The transcripts that may be of the work in a folder; gets the environment and the folder.
    A transcript of another folder may be among them: the importer knows better."""
    proxy: Proxied = Proxied()
    hooks: Hooks | None = None
    """None where the agent has none that we know."""
    headless: tuple[str, ...] = ()
    """The command that works on `{prompt}` without asking anybody, for `rerun`; empty where we
    know of none."""


def folder_of(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    """The folder that `variable` names, else `usual` in the home folder."""
    given = environ.get(variable)
    if given:
        return Path(given)
    return Path(environ.get("HOME") or "/") / usual
