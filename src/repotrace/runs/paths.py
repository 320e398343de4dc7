"""Which paths of a state are meant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from repotrace.readable import visible


class PathFilter:
    """The paths that fit one of some patterns; all of them without any.

    A pattern is a path, a folder with all below it, or a pattern of the shell, in which `*` goes
    across `/`. One without `/` may also fit the last name alone: `*.py`, `conftest.py`.
    """

    def __init__(self, patterns: Sequence[str] = (), *, root: str | None = None) -> None:
        """`root` is the folder that paths are relative to, for patterns that are absolute."""
        self.patterns = tuple(_relative(pattern, root) for pattern in patterns)

    def __call__(self, path: str) -> bool:
        return not self.patterns or any(_fits(path, pattern) for pattern in self.patterns)


def _relative(pattern: str, root: str | None) -> str:
    if root is not None and pattern.startswith("/"):
        for base in (root, os.path.realpath(root)):
            if Path(pattern).is_relative_to(base):
                pattern = os.path.relpath(pattern, base)
                break
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return ("/" if pattern.startswith("/") else "") + "/".join(parts)


def _fits(path: str, pattern: str) -> bool:
    if pattern in ("", path) or path.startswith(f"{pattern}/") or fnmatchcase(path, pattern):
        return True
    if fnmatchcase(path, f"{pattern}/*"):
        return True
    return "/" not in pattern and fnmatchcase(path.rpartition("/")[2], pattern)


def shown_path(path: str) -> str:
    """A path on one line, with what cannot be seen made visible."""
    return visible(path).replace("\n", "\\n").replace("\t", "\\t")
