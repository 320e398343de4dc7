"""The specified trace module, run as it stands: what ours has to agree with.

It is not part of this repository. Tests that need it are skipped where it is missing.
"""

from __future__ import annotations

import ast
import sqlite3
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "shared" / "specification" / "trace-module.md"

_TABLES = """
CREATE TABLE runs (id TEXT PRIMARY KEY, task_id TEXT, status TEXT, started_at TEXT,
                   completed_at TEXT);
CREATE TABLE execution_steps (id TEXT PRIMARY KEY, run_id TEXT, step_number INTEGER,
    step_type TEXT, description TEXT, started_at TEXT, completed_at TEXT, status TEXT,
    input_context TEXT, output_result TEXT, metadata TEXT);
CREATE TABLE llm_interactions (id TEXT PRIMARY KEY, run_id TEXT, step_id TEXT, prompt TEXT,
    response TEXT, model TEXT, tokens_used INTEGER, timestamp TEXT, purpose TEXT);
CREATE TABLE file_operations (id TEXT PRIMARY KEY, run_id TEXT, step_id TEXT,
    operation_type TEXT, file_path TEXT, content_before TEXT, content_after TEXT, timestamp TEXT);
"""


def source() -> str:
    """The Python source on the page."""
    if not PAGE.exists():
        pytest.skip(f"the specification is not here: {PAGE.name}")
    lines = PAGE.read_text().splitlines()
    return "\n".join(line[1:] for line in lines if line.startswith("+"))


def module(database: Path) -> Any:
    """The module, with `database` in place of that of its system."""
    code = source()
    with sqlite3.connect(database) as connection:
        connection.executescript(_TABLES)
    connection.close()
    workspace: Any = ModuleType("codeframe.core.workspace")
    workspace.Workspace = Path
    workspace.get_db_connection = lambda _: sqlite3.connect(database)
    found = ModuleType("specified_replay")
    names = {"codeframe": ModuleType("codeframe"), "codeframe.core": ModuleType("codeframe.core")}
    names |= {"codeframe.core.workspace": workspace, "specified_replay": found}
    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in names.items():
            patch.setitem(sys.modules, name, stand_in)
        exec(compile(ast.parse(code), str(PAGE), "exec"), found.__dict__)
    return found


def as_specified(module_: Any, record: Any) -> Any:
    """One of our records as the specified module has it."""
    cls = getattr(module_, type(record).__name__)
    return cls(**{name: getattr(record, name) for name in cls.__dataclass_fields__})
