"""Changes of Python files: mutations that break tests, and edits that break nothing.

A patch is found again in the text as it is by then, by the name of its function and its number in
there, so that others may have edited the file around it.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.In: ("in", "not in"),
}
_COMPUTED: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
}
type Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """Bytes from `start` to `end` give way to `new`."""

    start: int
    end: int
    new: bytes


class Patch(Protocol):
    """A change of one file that is there or not."""

    @property
    def path(self) -> str: ...

    def edits(self, text: bytes) -> list[Edit]: ...


def patched(text: bytes, patches: Iterable[Patch]) -> bytes:
    """The text with all patches, each found in the text without any."""
    edits = sorted((edit for patch in patches for edit in patch.edits(text)), reverse=True)
    for start, end, new in edits:
        text = text[:start] + new + text[end:]
    return text


@dataclass(frozen=True)
class Mutant:
    """One operator, comparison or constant of a function is another one."""

    path: str
    function: str
    number: int

    def edits(self, text: bytes) -> list[Edit]:
        return [_mutations(_Source(text), self.function)[self.number]]

    def __str__(self) -> str:
        return f"{self.path}:{self.function}:{self.number}"


@dataclass(frozen=True)
class Entry:
    """A line at the beginning of a function."""

    path: str
    function: str
    line: str

    def edits(self, text: bytes) -> list[Edit]:
        source = _Source(text)
        body = source.functions[self.function].body
        first = body[1] if _is_docstring(body[0]) and len(body) > 1 else body[0]
        start = source.lines[first.lineno - 1]
        return [Edit(start, start, b" " * first.col_offset + self.line.encode() + b"\n")]


@dataclass(frozen=True)
class Unfinished:
    """A function that nobody wrote to its end: the file cannot be imported."""

    path: str

    def edits(self, text: bytes) -> list[Edit]:
        return [Edit(len(text), len(text), b"\n\ndef unfinished(:\n")]


@dataclass(frozen=True)
class Without:
    """A function at the top of a file is not there."""

    path: str
    function: str

    def edits(self, text: bytes) -> list[Edit]:
        source = _Source(text)
        node = source.functions[self.function]
        first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        assert node.end_lineno is not None
        return [Edit(source.lines[first - 1], source.lines[node.end_lineno], b"")]


class _Source:
    def __init__(self, text: bytes) -> None:
        self.text = text
        self.lines = [0]
        for line in text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.tree = ast.parse(text)
        self.functions = dict(_functions(self.tree, ""))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.lines[node.lineno - 1] + node.col_offset
        return start, self.lines[node.end_lineno - 1] + node.end_col_offset


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def mutants(path: str, text: bytes) -> list[Mutant]:
    """All mutants of the functions of a file."""
    source = _Source(text)
    return [
        Mutant(path, name, number)
        for name in source.functions
        for number in range(len(_mutations(source, name)))
    ]


def _mutations(source: _Source, function: str) -> list[Edit]:
    node = source.functions[function]
    # What is in a text with fields has places of its own, or none.
    inside = {
        id(part)
        for joined in ast.walk(node)
        if isinstance(joined, ast.JoinedStr)
        for part in ast.walk(joined)
    }
    found: list[Edit] = []
    for statement in node.body:
        if _is_docstring(statement):
            continue
        for part in ast.walk(statement):
            if id(part) not in inside:
                found += _mutations_of(source, part)
    return found


def _mutations_of(source: _Source, node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Compare(left=left, ops=[op, *_], comparators=[right, *_]):
            yield from _swapped(source, left, right, _COMPARED.get(type(op)))
        case ast.BinOp(left=left, op=operator, right=right):
            yield from _swapped(source, left, right, _COMPUTED.get(type(operator)))
        case ast.BoolOp(op=ast.And(), values=[left, right, *_]):
            yield from _swapped(source, left, right, ("and", "or"))
        case ast.BoolOp(op=ast.Or(), values=[left, right, *_]):
            yield from _swapped(source, left, right, ("or", "and"))
        case ast.Constant(value=bool(value)):
            yield Edit(*source.span(node), str(not value).encode())
        case ast.Constant(value=int(value)):
            yield Edit(*source.span(node), str(value + 1).encode())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Edit(source.span(node)[0], source.span(operand)[0], b"")
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield Edit(*source.span(value), b"None")


def _swapped(
    source: _Source, left: ast.expr, right: ast.expr, words: tuple[str, str] | None
) -> Iterator[Edit]:
    if words is None:
        return
    start, end = source.span(left)[1], source.span(right)[0]
    pattern = re.escape(words[0].encode())
    if words[0].isalpha():
        pattern = rb"\b" + pattern + rb"\b"
    found = re.search(pattern, source.text[start:end])
    if found is not None:
        yield Edit(start + found.start(), start + found.end(), words[1].encode())


# --- Edits that break nothing ------------------------------------------------------------------


def with_comment(text: bytes, words: str, chance: random.Random) -> bytes:
    """With a comment before some statement."""
    source = _Source(text)
    places = [
        (source.lines[node.lineno - 1], node.col_offset)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.stmt)
        and not source.text[source.lines[node.lineno - 1] :][: node.col_offset].strip()
        and not isinstance(node, ast.ImportFrom | ast.Import)
    ]
    start, indent = chance.choice(sorted(set(places)))
    return text[:start] + b" " * indent + f"# {words}\n".encode() + text[start:]


def with_function(text: bytes, name: str) -> bytes:
    """With one more function, that nobody calls."""
    body = f'\n\ndef {name}(value):\n    """Not used yet."""\n    return value\n'
    return text.rstrip(b"\n") + b"\n" + body.encode()
