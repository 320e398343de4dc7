"""Files that tests ask for, that the project has, and that no state holds.

Data that was not found, and modules: a generated one that git ignores is in no state.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from repotrace.runs.testing.executions import Bench
from repotrace.storage.memo import Execution

_QUOTED = re.compile(
    r"['\"]([^'\"\n]{1,300})['\"]|(?:^|\s)([\w./-]+/[\w./-]+|[\w-]+\.\w+)(?=[:,\s]|$)"
)
_MODULE = re.compile(r"No module named '([\w.]+)'")
_MEMBER = re.compile(r"cannot import name '(\w+)' from '[\w.]+' \(([^()\n]{1,400})\)")
_SOURCES = ("", "src/", "lib/")
"""Where the packages of a project lie."""
_MISSING = re.compile(r"No such file|FileNotFound|not found|cannot open|ENOENT|does not exist")


def uncaptured_in(text: str, execution: Execution, bench: Bench) -> Iterator[str]:
    """The paths that an execution complains of, as far as the project has them and its state lacks
    them; relative to the root of the work tree."""
    for line in text.splitlines():
        yield from _modules(line, execution, bench)
        if not _MISSING.search(line):
            continue
        for match in _QUOTED.finditer(line):
            path = _inside(match[1] or match[2], execution.command.cwd)
            if path and _is_only_here(path, bench, execution.state_id):
                yield path


def _modules(line: str, execution: Execution, bench: Bench) -> Iterator[str]:
    """The files of the modules that a line says are not there."""
    stems = []
    if found := _MODULE.search(line):
        stems = [prefix + found[1].replace(".", "/") for prefix in _SOURCES]
    elif found := _MEMBER.search(line):
        package = _inside(found[2], execution.command.cwd)
        stems = [f"{package.rpartition('/')[0]}/{found[1]}".lstrip("/")] if package else []
    for stem in stems:
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if _is_only_here(path, bench, execution.state_id):
                yield path


def _inside(path: str, root: str) -> str | None:
    """A path that a program named, relative to the root of the state that it ran in."""
    path = os.path.normpath(path)
    if path.startswith("/"):
        if not root or not path.startswith(f"{root}/"):
            return None
        path = os.path.relpath(path, root)
    return None if path.startswith("..") or path == "." else path


def _is_only_here(path: str, bench: Bench, state: str) -> bool:
    if path in bench.options.settings.link or not (bench.workspace / path).exists():
        return False
    return not bench.has(state, path)
