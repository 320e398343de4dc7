"""OpenCode."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from repotrace.agents.tools import Action, Agent, Tool, folder_of
from repotrace.errors import ImportFailed

TOOLS = {
    "bash": Tool(Action.RUN, command="command"),
    "shell": Tool(Action.RUN, command="command"),
    "read": Tool(Action.READ, path="filePath"),
    "list": Tool(Action.LIST, path="path"),
    "glob": Tool(Action.LIST, path="path", title="pattern"),
    "grep": Tool(Action.SEARCH, path="path", title="pattern"),
    "codesearch": Tool(Action.WEB, title="query"),
    "edit": Tool(Action.EDIT, path="filePath", old="oldString", new="newString", all="replaceAll"),
    "multiedit": Tool(Action.EDIT, path="filePath"),
    "write": Tool(Action.WRITE, path="filePath", content="content"),
    "apply_patch": Tool(Action.PATCH, content="patchText"),
    "patch": Tool(Action.PATCH, content="patchText"),
    "task": Tool(Action.AGENT, title="description"),
    "todowrite": Tool(Action.PLAN),
    "todoread": Tool(Action.PLAN),
    "plan_enter": Tool(Action.PLAN),
    "plan_exit": Tool(Action.PLAN),
    "question": Tool(Action.ASK),
    "webfetch": Tool(Action.WEB, title="url"),
    "websearch": Tool(Action.WEB, title="query"),
    "skill": Tool(Action.OTHER, title="name"),
    "lsp": Tool(Action.SEARCH, path="filePath", title="operation"),
    "invalid": Tool(Action.OTHER, title="tool"),
}


def sessions(environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """The sessions of a folder and of folders below it: those in the database as paths below
    it, `opencode.db/ses_…`, and those in files, whatever they worked on. What a sub-agent did
    comes with its session."""
    data = folder_of(environ, "XDG_DATA_HOME", ".local/share") / "opencode"
    databases = sorted(data.glob("opencode*.db"))
    named = environ.get("OPENCODE_DB")
    if named:
        databases = [data / named]
    for database in databases:
        yield from _within(database, folder)
    yield from (data / "storage" / "session").glob("*/ses*.json")


def _within(database: Path, folder: Path) -> Iterator[Path]:
    from repotrace.storage.opencode import sessions as rows_of

    try:
        rows = rows_of(database) if database.is_file() else []
    except ImportFailed:
        rows = []
    for row in rows:
        worked_in = Path(os.path.normpath(str(row.get("directory"))))
        inside = worked_in == folder or folder in worked_in.parents
        if inside and not row.get("parent_id"):
            yield database / str(row.get("id"))


AGENT = Agent(
    "opencode",
    "OpenCode",
    "opencode",
    TOOLS,
    sessions,
    headless=("opencode", "run", "{prompt}"),
)
