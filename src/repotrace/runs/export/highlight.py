"""Source as lines of HTML with colours."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from repotrace.runs.export.elements import Html

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_LANGUAGES = {
    "py": "python", "pyi": "python", "js": "javascript", "mjs": "javascript", "cjs": "javascript",
    "jsx": "jsx", "ts": "typescript", "tsx": "tsx", "go": "go", "rs": "rust", "java": "java",
    "c": "c", "h": "c", "cc": "cpp", "cpp": "cpp", "hpp": "cpp", "cs": "csharp", "rb": "ruby",
    "php": "php", "swift": "swift", "kt": "kotlin", "sh": "bash", "bash": "bash", "sql": "sql",
    "json": "json", "yml": "yaml", "yaml": "yaml", "toml": "toml", "ini": "ini", "cfg": "ini",
    "html": "html", "css": "css", "md": "markdown",
}  # fmt: skip
"""By the end of a name. The others stay plain: the lexers of rare languages may take for ever."""

_LARGEST = 200_000
_LONGEST_LINE = 1_000

_CLASSES = (
    ("Comment", "hc"),
    ("Keyword", "hk"),
    ("Name.Function", "hf"),
    ("Name.Class", "hf"),
    ("Name.Decorator", "hf"),
    ("Name.Tag", "hk"),
    ("Name.Builtin", "hb"),
    ("Name.Attribute", "hb"),
    ("Literal.String", "hs"),
    ("Literal.Number", "hn"),
    ("Operator.Word", "hk"),
)


def lines_of(text: str, path: str) -> list[Html]:
    """The lines of `text`, which is visible already, without their ends."""
    plain = text.split("\n")
    lexer = _lexer(path.rpartition(".")[2].lower())
    if lexer is None or len(text) > _LARGEST or max(map(len, plain)) > _LONGEST_LINE:
        return [Html(escape(line, quote=False)) for line in plain]
    coloured = list(_coloured(lexer, text))
    # A lexer that loses a line would shift all that follow.
    if len(coloured) != len(plain):
        return [Html(escape(line, quote=False)) for line in plain]
    return coloured


def _coloured(lexer: Lexer, text: str) -> Iterator[Html]:
    line = ""
    for token, value in lexer.get_tokens(text):
        name = _class(token)
        for number, part in enumerate(value.split("\n")):
            if number:
                yield Html(line)
                line = ""
            if part:
                shown = escape(part, quote=False)
                line += f'<span class="{name}">{shown}</span>' if name else shown
    yield Html(line)


@cache
def _class(token: Any) -> str:
    full = ".".join(token)
    return next((css for name, css in _CLASSES if full.startswith(name)), "")


@cache
def _lexer(ending: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name

    name = _LANGUAGES.get(ending)
    return get_lexer_by_name(name, stripnl=False, ensurenl=False) if name else None
