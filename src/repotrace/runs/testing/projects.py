"""Projects in the folders of a work tree that is none itself."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

_DEEPEST = 4
_MOST = 4000
"""Folders that are looked into."""
_ASIDE = frozenset(
    [
        *("node_modules", "site-packages", "vendor", "third_party", "target", "build", "dist"),
        *("__pycache__", "env", "venv"),
    ]
)
PYTHON_MARKS = (
    *("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "conftest.py"),
)
_OTHER_MARKS = frozenset({"Cargo.toml", "go.mod"})
_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_TEST_FOLDERS = ("tests", "test")
_NO_TEST = "no test specified"


def projects_in(workspace: Path) -> list[str]:
    """The folders of projects that have tests, as paths in the workspace, sorted. What lies
    within one of them is a part of it."""
    marked, tested, found = set[str](), set[str](), set[str]()
    for folder, names in _folders(workspace):
        if not _OTHER_MARKS.isdisjoint(names):
            found.add(folder)
        if "package.json" in names and node_script(workspace / folder) is not None:
            found.add(folder)
        if not names.isdisjoint(PYTHON_MARKS):
            marked.add(folder)
        if any(map(_TEST_FILE.fullmatch, names)):
            tested.add(folder)
    for folder in tested:
        above = [one for one in _and_above(folder) if one in marked]
        found.add(above[-1] if above else _owner(folder))
    found.discard("")
    return sorted(one for one in found if not found.intersection(_and_above(one)[1:]))


def node_script(folder: Path) -> str | None:
    """What `npm test` runs in a folder; None if that has no such script."""
    try:
        told = json.loads((folder / "package.json").read_text(encoding="utf-8", errors="replace"))
        script = told.get("scripts", {}).get("test")
    except (OSError, ValueError, AttributeError):
        return None
    return script if isinstance(script, str) and _NO_TEST not in script else None


def _folders(workspace: Path) -> Iterator[tuple[str, set[str]]]:
    """Folders below the workspace with the names of their files; not those of tools."""
    for count, (root, folders, files) in enumerate(os.walk(workspace)):
        inside = os.path.relpath(root, workspace).replace(os.sep, "/")
        inside = "" if inside == "." else inside
        if inside:
            yield inside, set(files)
        if count >= _MOST:
            return
        deep = inside.count("/") + 1 if inside else 0
        folders[:] = [] if deep >= _DEEPEST else sorted(filter(_is_source, folders))
        folders[:] = [one for one in folders if not Path(root, one, "pyvenv.cfg").is_file()]


def _is_source(name: str) -> bool:
    return not name.startswith(".") and name not in _ASIDE


def _and_above(folder: str) -> list[str]:
    """The folder, and those that it lies in, but for the workspace."""
    found = []
    while folder:
        found.append(folder)
        folder = posixpath.dirname(folder)
    return found


def _owner(folder: str) -> str:
    """The project of a folder of tests that none is marked for."""
    for one in reversed(_and_above(folder)):
        if posixpath.basename(one) in _TEST_FOLDERS:
            return posixpath.dirname(one)
    return folder
