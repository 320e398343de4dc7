"""Which tests are nearest to the files that changed."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence

_FAR = 1_000

type Read = Callable[[str], bytes | None]


def by_nearness(
    tests: Sequence[str], changed: Collection[str], read: Read
) -> list[tuple[str, list[str]]]:
    """The files of tests with the tests of each: those nearest to the changed files first.

    A changed file itself, then what imports a changed module, what is named after one, and what
    lies near it. `read` gives the content of a file.
    """
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    modules = {name for path in changed for name in _module_names(path)}
    stems = {_stem(path) for path in changed} - {"__init__", "conftest"}

    def distance(file: str) -> tuple[int, str]:
        if file in changed:
            return 0, file
        if _imported(read(file)) & modules:
            return 1, file
        if _stem(file).removeprefix("test_").removesuffix("_test") in stems:
            return 2, file
        apart = min((_apart(file, path) for path in changed), default=_FAR)
        return 3 + apart, file

    return [(file, files[file]) for file in sorted(files, key=distance)]


def _stem(path: str) -> str:
    return posixpath.basename(path).partition(".")[0]


def _module_names(path: str) -> Iterator[str]:
    """`src/a/b.py` may be imported as `src.a.b`, as `a.b` and as `b`."""
    if not path.endswith(".py"):
        return
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    for start in range(len(parts)):
        yield ".".join(parts[start:])


def _imported(source: bytes | None) -> set[str]:
    """The modules that a file imports, and what it takes from them as if that were modules."""
    try:
        tree = ast.parse(source or b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _apart(one: str, other: str) -> int:
    """Folders between two files."""
    first, second = posixpath.dirname(one).split("/"), posixpath.dirname(other).split("/")
    shared = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        shared += 1
    return len(first) + len(second) - 2 * shared
