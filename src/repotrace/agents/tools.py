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


def folder_of(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    """The folder that `variable` names, else `usual` in the home folder."""
    given = environ.get(variable)
    if given:
        return Path(given)
    return Path(environ.get("HOME") or "/") / usual
