"""Python scripts that rewrite a file, followed without running them.

Agents edit with `python - <<EOF`: read a text, replace some of it, write it back. Straight-line
scripts of that kind are understood; anything else is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from repotrace.importers.shell import Opaque

type Read = Callable[[str], bytes | None]
type Write = Callable[[str, bytes], None]

_HARMLESS = frozenset({"print", "len", "repr", "sorted"})
_TEXT_METHODS = frozenset(
    [
        *("replace", "strip", "rstrip", "lstrip", "removeprefix", "removesuffix"),
        *("lower", "upper", "join"),
    ]
)
_LARGEST = 64 << 20


class _Path:
    def __init__(self, name: str) -> None:
        self.name = name


class _File:
    def __init__(self, name: str, mode: str) -> None:
        self.name = name
        self.mode = mode
        self.parts: list[Any] = []


class _Unknown:
    """A value that is not needed to know what the files become."""


def follow(script: str, read: Read, write: Write) -> None:
    """Do what the script would do to files, through `read` and `write`.

    Raises Opaque where that cannot be told; writes up to there were made.
    """
    try:
        tree = ast.parse(script)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Opaque("a script that is no Python") from error
    _Follower(read, write).body(tree.body)


class _Follower:
    def __init__(self, read: Read, write: Write) -> None:
        self._read, self._write = read, write
        self._names: dict[str, Any] = {}

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                modules = {alias.name.partition(".")[0] for alias in node.names}
                if isinstance(node, ast.ImportFrom):
                    modules = {(node.module or "").partition(".")[0]}
                if not modules <= {"pathlib", "sys", "io", "re", "textwrap", "__future__"}:
                    raise Opaque("a script that imports more")
            case (
                ast.Assign(targets=[ast.Name(id=name)])
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
            ):
                assert node.value is not None
                self._names[name] = self._value(node.value)
            case ast.AugAssign(target=ast.Name(id=name), op=ast.Add()):
                self._names[name] = _added(self._known(name), self._value(node.value))
            case ast.Expr():
                self._value(node.value)
            case ast.Assert() | ast.Pass():
                pass
            case ast.With(items=[ast.withitem(context_expr=made, optional_vars=ast.Name(id=name))]):
                file = self._value(made)
                if not isinstance(file, _File):
                    raise Opaque("a script with something else than a file")
                self._names[name] = file
                self.body(node.body)
                self._close(file)
            case _:
                raise Opaque("a script with branches or loops")

    def _known(self, name: str) -> Any:
        if name not in self._names:
            raise Opaque(f"a script that uses {name}")
        return self._names[name]

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=str() | bytes() | int() | None):
                return node.value
            case ast.Name(id=name):
                return self._known(name)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _added(self._value(left), self._value(right))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                one, other = self._value(left), self._value(right)
                if isinstance(one, _Path) and isinstance(other, str):
                    return _Path(f"{one.name}/{other}")
                raise Opaque("a script that calculates")
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return [self._value(part) for part in parts]
            case ast.Call():
                return self._call(node)
            case ast.Compare() | ast.JoinedStr() | ast.BoolOp() | ast.UnaryOp() | ast.Subscript():
                return _Unknown()
        raise Opaque("a script that calculates")

    def _call(self, node: ast.Call) -> Any:
        function = node.func
        if isinstance(function, ast.Name):
            return self._named(function.id, node)
        if not isinstance(function, ast.Attribute):
            raise Opaque("a script that calls what it made")
        if isinstance(function.value, ast.Name) and function.value.id in ("pathlib", "io"):
            return self._named(function.attr, node)
        owner, method = self._value(function.value), function.attr
        if isinstance(owner, _Path):
            return self._on_path(owner, method, node)
        if isinstance(owner, _File):
            return self._on_file(owner, method, node)
        if isinstance(owner, str | bytes) and method in _TEXT_METHODS:
            return self._on_text(owner, method, node)
        if isinstance(owner, str | bytes | _Unknown):
            for argument in node.args:
                self._value(argument)
            return _Unknown()
        raise Opaque(f"a script that calls {method}")

    def _named(self, name: str, node: ast.Call) -> Any:
        if name in _HARMLESS:
            return _Unknown()
        arguments = [self._value(argument) for argument in node.args]
        options = self._options(node)
        if name == "Path" and len(arguments) == 1:
            return _Path(_name(arguments[0]))
        if name == "open" and arguments:
            mode = options.get("mode", arguments[1] if len(arguments) > 1 else "r")
            if mode not in ("r", "w", "a", "rb", "wb", "ab", "rt", "wt"):
                raise Opaque("a script that opens a file in an odd way")
            return _File(_name(arguments[0]), mode)
        raise Opaque(f"a script that calls {name}")

    def _options(self, node: ast.Call) -> dict[str, Any]:
        options = {word.arg: self._value(word.value) for word in node.keywords if word.arg}
        encoding = options.get("encoding", "utf-8")
        if str(encoding).lower() not in ("utf-8", "utf8") or options.get("newline") not in (
            *(None, "", "\n"),
        ):
            raise Opaque("a script with an encoding of its own")
        return options

    def _on_path(self, path: _Path, method: str, node: ast.Call) -> Any:
        arguments = [self._value(argument) for argument in node.args]
        self._options(node)
        if method in ("read_text", "read_bytes"):
            return self._content(path.name, as_bytes=method == "read_bytes")
        if method in ("write_text", "write_bytes") and arguments:
            self._put(path.name, arguments[0])
            return _Unknown()
        if method in ("exists", "is_file", "as_posix", "resolve"):
            return path if method == "resolve" else _Unknown()
        if method == "open":
            return _File(path.name, arguments[0] if arguments else "r")
        raise Opaque(f"a script that calls {method}")

    def _on_file(self, file: _File, method: str, node: ast.Call) -> Any:
        arguments = [self._value(argument) for argument in node.args]
        if method == "read" and not arguments and file.mode.startswith("r"):
            return self._content(file.name, as_bytes="b" in file.mode)
        if method == "write" and arguments:
            file.parts.append(arguments[0])
            if not any(value is file for value in self._names.values()):
                self._close(file)  # `open(…).write(…)`
            return _Unknown()
        if method == "close":
            self._close(file)
            return _Unknown()
        raise Opaque(f"a script that calls {method}")

    def _on_text(self, text: Any, method: str, node: ast.Call) -> Any:
        arguments = [self._value(argument) for argument in node.args]
        if node.keywords:
            raise Opaque("a script that calculates")
        if any(isinstance(argument, _Unknown) for argument in arguments):
            return _Unknown()
        try:
            result = getattr(text, method)(*arguments)
        except (TypeError, ValueError) as error:
            raise Opaque("a script that fails") from error
        if len(result) > _LARGEST:
            raise Opaque("a script that makes much")
        return result

    def _content(self, name: str, *, as_bytes: bool) -> str | bytes:
        data = self._read(name)
        if data is None:
            raise Opaque(f"a script that reads {name}, which is not there")
        if as_bytes:
            return data
        try:
            # As Python reads text: every kind of line end is one.
            return data.decode().replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError as error:
            raise Opaque("a script that reads what is no text") from error

    def _put(self, name: str, value: Any) -> None:
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if not isinstance(value, bytes):
            raise Opaque("a script that writes what it calculates")
        self._write(name, value)

    def _close(self, file: _File) -> None:
        if file.mode.startswith("r"):
            return
        parts = [
            p.encode("utf-8", "surrogatepass") if isinstance(p, str) else p for p in file.parts
        ]
        if not all(isinstance(part, bytes) for part in parts):
            raise Opaque("a script that writes what it calculates")
        before = (self._read(file.name) or b"") if file.mode.startswith("a") else b""
        self._write(file.name, before + b"".join(parts))
        file.parts.clear()
        file.mode = "a"


def _name(value: Any) -> str:
    if isinstance(value, _Path):
        return value.name
    if isinstance(value, str):
        return value
    raise Opaque("a script with a path that it calculates")


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, str) and isinstance(other, str):
        return one + other
    if isinstance(one, bytes) and isinstance(other, bytes):
        return one + other
    return _Unknown()
