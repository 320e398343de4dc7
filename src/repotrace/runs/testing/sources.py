"""What the source of a test says, compared between two states: its assertions, its marks."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

type _Function = ast.FunctionDef | ast.AsyncFunctionDef

_SKIPPING = frozenset({"skip", "skipif", "skipIf", "skipUnless", "xfail", "skipTest"})
_SKIPPING |= {"expectedFailure"}
_CHECKS = ("raises", "warns", "fail", "approx", "deprecated_call")


@dataclass(frozen=True, slots=True)
class TestSource:
    """One test in a file of Python."""

    __test__ = False

    name: str
    """As in a node id, after the file: `TestA::test_b`."""
    line: int
    whole: str
    """All of it, in a form that tells nothing of comments and layout."""
    assertions: tuple[str, ...]
    """What it asserts, as Python prints it; for parameters the values that it is run with."""
    skips: tuple[str, ...] = ()
    """What keeps it from being run or from failing, its class included: `@skip`, `@xfail`, …"""


@lru_cache(maxsize=500)
def sources_in(source: bytes) -> dict[str, TestSource] | None:
    """The functions and methods of a file by name; None if it is no Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return {test.name: test for test in _walk(tree.body, "")}


def source_of(source: bytes | None, test: str) -> TestSource | None:
    """The source of a test by its node id; None if the file does not have it."""
    name = test.partition("::")[2].partition("[")[0].partition(" ")[0]
    return (sources_in(source) or {}).get(name) if source is not None and name else None


def lost_assertions(before: TestSource, after: TestSource) -> list[str]:
    """What was asserted before and is not any more, in the words of the source."""
    left = Counter(before.assertions)
    left.subtract(after.assertions)
    return [text for text in dict.fromkeys(before.assertions) if left[text] > 0]


def gained_assertions(before: TestSource, after: TestSource) -> list[str]:
    """What is asserted now and was not before."""
    return lost_assertions(after, before)


def _walk(body: list[ast.stmt], prefix: str, skips: tuple[str, ...] = ()) -> Iterator[TestSource]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _walk(node.body, f"{prefix}{node.name}::", (*skips, *_skips(node)))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield TestSource(
                f"{prefix}{node.name}",
                node.lineno,
                ast.dump(node),
                tuple(_assertions(node)),
                (*skips, *_skips(node)),
            )


def _skips(node: _Function | ast.ClassDef) -> Iterator[str]:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if _name(called) in _SKIPPING:
            yield f"@{_name(called)}"
    for part in () if isinstance(node, ast.ClassDef) else ast.walk(node):
        if isinstance(part, ast.Call) and _name(part.func) in _SKIPPING:
            yield f"{_name(part.func)}()"


def _assertions(function: _Function) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and _name(decorator.func) == "parametrize":
            yield f"@{ast.unparse(decorator)}"
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            name = _name(node.func)
            if name.startswith("assert") or (name in _CHECKS and name != "approx"):
                yield ast.unparse(node)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
