"""Packages that a virtual environment takes from a work tree instead of from a copy of its own."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def editable_paths(venv: str, root: str) -> list[str]:
    """The folders inside `root` from which this environment imports, in its order.

    Read from `.pth` files and from the finders that setuptools installs.
    """
    prefix = root.rstrip("/") + "/"
    found: dict[str, None] = {}
    for site in sorted(Path(venv, "lib").glob("python3*/site-packages")):
        for path in _paths(site):
            real = os.path.realpath(site / path)
            if (real + "/").startswith(prefix) and not real.startswith(str(site)):
                found[real] = None
    return list(found)


def _paths(site: Path) -> Iterator[str]:
    with suppress(OSError):
        for file in sorted(site.iterdir()):
            if file.suffix == ".pth":
                for line in _text(file).splitlines():
                    if line.strip() and not line.startswith(("#", "import ", "import\t")):
                        yield line.strip()
            elif file.name.startswith("__editable__") and file.name.endswith("_finder.py"):
                yield from (os.path.dirname(path) for path in _mapping(_text(file)))  # noqa: PTH120


def _mapping(code: str) -> list[str]:
    """The files and folders that a finder of setuptools maps packages to."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return []
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "MAPPING":
            with suppress(ValueError, TypeError):
                value = ast.literal_eval(node.value) if node.value is not None else {}
                return [path for path in value.values() if isinstance(path, str)]
    return []


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
