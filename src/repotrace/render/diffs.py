"""Unified diffs for a terminal: coloured by line and, where that is quick, by syntax."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import groupby, islice
from typing import NamedTuple, Protocol

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style

from repotrace.readable import visible

SYNTAX_LIMIT = 40_000
"""Bytes of a diff above which it is coloured by line alone."""

_LINE_LIMIT = 2_000
"""Characters of a line above which its hunk is coloured by line alone: made by programs."""

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_INDEX = re.compile(rb"^index ([0-9a-f]{12})[0-9a-f]*\.\.([0-9a-f]{12})[0-9a-f]*")
_LITERAL = re.compile(rb"(literal|delta) (\d+)")
_QUOTES = '"""'
_BASE = {"+": "green", "-": "red"}

_LEXERS = {
    ".py": "python:PythonLexer",
    ".pyi": "python:PythonLexer",
    ".js": "javascript:JavascriptLexer",
    ".mjs": "javascript:JavascriptLexer",
    ".cjs": "javascript:JavascriptLexer",
    ".jsx": "javascript:JavascriptLexer",
    ".ts": "javascript:TypeScriptLexer",
    ".tsx": "javascript:TypeScriptLexer",
    ".go": "go:GoLexer",
    ".rs": "rust:RustLexer",
    ".c": "c_cpp:CLexer",
    ".h": "c_cpp:CLexer",
    ".cc": "c_cpp:CppLexer",
    ".cpp": "c_cpp:CppLexer",
    ".hpp": "c_cpp:CppLexer",
    ".java": "jvm:JavaLexer",
    ".kt": "jvm:KotlinLexer",
    ".rb": "ruby:RubyLexer",
    ".php": "php:PhpLexer",
    ".sh": "shell:BashLexer",
    ".bash": "shell:BashLexer",
    ".json": "data:JsonLexer",
    ".yaml": "data:YamlLexer",
    ".yml": "data:YamlLexer",
    ".toml": "configs:TOMLLexer",
    ".ini": "configs:IniLexer",
    ".cfg": "configs:IniLexer",
    ".html": "html:HtmlLexer",
    ".css": "css:CssLexer",
    ".sql": "sql:SqlLexer",
    ".md": "markup:MarkdownLexer",
}
"""Pygments itself looks through some hundred patterns, which takes longer than a short diff."""

_UNCOLOURED = frozenset({"", ".txt", ".lock", ".csv", ".log"})

_TOKENS = {
    "Keyword": "magenta",
    "Literal.String": "yellow",
    "Literal.Number": "cyan",
    "Comment": "dim",
    "Name.Function": "blue",
    "Name.Class": "blue",
    "Name.Decorator": "cyan",
    "Name.Builtin": "cyan",
    "Name.Tag": "magenta",
    "Name.Attribute": "cyan",
}


class Lexer(Protocol):
    """What is used of a lexer of Pygments."""

    def get_tokens_unprocessed(self, text: str) -> Iterable[tuple[int, object, str]]:
        """Position, token and text of each piece."""


class Span(NamedTuple):
    """A piece of a line in one style."""

    text: str
    style: str = ""


type Line = Sequence[Span]
"""The pieces of one line."""


def diff_view(diff: bytes) -> DiffView:
    """`diff`, one or more files of a unified diff, to be printed with `soft_wrap=True`.

    What git writes of binary files is summed up, object ids are shortened, and characters that
    could act are made visible.
    """
    return DiffView(diff)


class DiffView:
    """See `diff_view`."""

    def __init__(self, diff: bytes) -> None:
        self._diff = diff

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        colours = console.color_system is not None and not console.no_color
        for line in diff_lines(self._diff, syntax=colours):
            for span in line:
                yield Segment(span.text, style_of(span.style))
            yield Segment.line()


def diff_lines(diff: bytes, *, syntax: bool = True) -> Iterator[list[Span]]:
    """The lines of a diff in styled pieces."""
    for part in diff_parts(diff, syntax=syntax):
        if isinstance(part, Hunk):
            yield part.title
            yield from part.lines
        else:
            yield part


class Hunk(NamedTuple):
    """A hunk in styled pieces; the first character of each line is its mark."""

    old_start: int
    new_start: int
    title: list[Span]
    lines: Iterator[list[Span]]
    """Made as they are taken."""


def diff_parts(diff: bytes, *, syntax: bool = True) -> Iterator[list[Span] | Hunk]:
    """The parts of a diff: its hunks, and the lines between them."""
    syntax = syntax and len(diff) <= SYNTAX_LIMIT
    lines = diff.removesuffix(b"\n").split(b"\n") if diff else []
    name = ""
    number = 0
    while number < len(lines):
        line = lines[number]
        if match := _HUNK.match(line):
            old_start, old, new_start, new = (int(n) if n else 1 for n in match.groups())
            end = _end_of_hunk(lines, number + 1, old, new)
            body = _hunk(lines[number + 1 : end], name if syntax else "")
            yield Hunk(old_start, new_start, _hunk_title(line, match.end()), body)
            number = end
        elif line == b"GIT binary patch":
            number, sizes = _binary(lines, number + 1)
            yield [Span(f"binary: {sizes}", "yellow")]
        else:
            if line.startswith((b"--- ", b"+++ ")) and not line.endswith(b" /dev/null"):
                name = _shown(line[4:].strip(b'"\t'))
            yield [Span(_shown(_INDEX.sub(rb"index \1..\2", line)), "bold")]
            number += 1


def _hunk_title(line: bytes, end: int) -> list[Span]:
    return [Span(_shown(line[:end]), "cyan"), Span(_shown(line[end:]), "dim")]


def _end_of_hunk(lines: Sequence[bytes], start: int, old: int, new: int) -> int:
    """Where the hunk ends; its lines may look like anything, so only its counts tell."""
    number = start
    while number < len(lines) and (old > 0 or new > 0):
        mark = lines[number][:1]
        old -= mark in (b" ", b"-", b"")
        new -= mark in (b" ", b"+", b"")
        number += 1
    while number < len(lines) and lines[number].startswith(b"\\"):
        number += 1
    return number


def _binary(lines: Sequence[bytes], number: int) -> tuple[int, str]:
    """The line behind a binary patch, and how large its contents are."""
    found = []
    while number < len(lines) and not lines[number].startswith(b"diff --git "):
        if match := _LITERAL.fullmatch(lines[number]):
            found.append(f"{match[2].decode()} bytes" + " of delta" * (match[1] == b"delta"))
        number += 1
    after, before = (*found, "", "")[:2]
    return number, f"{before} → {after}" if before else after


def _hunk(lines: Sequence[bytes], name: str) -> Iterator[list[Span]]:
    short = max(map(len, lines), default=0) <= _LINE_LIMIT
    lexer = lexer_of(name) if name and short else None
    pieces = _coloured(lines, lexer) if lexer is not None else {}
    for number, line in enumerate(lines):
        mark, text = chr(line[0]) if line else " ", _shown(line[1:])
        if mark == "\\":
            yield [Span(f"\\{text}", "dim")]
            continue
        base = _BASE.get(mark, "")
        yield list(_joined([Span(mark), *pieces.get(number, [Span(text)])], base))


def _coloured(lines: Sequence[bytes], lexer: Lexer) -> dict[int, list[Span]]:
    """The pieces of the lines of a hunk, both sides each as a whole."""
    pieces: dict[int, list[Span]] = {}
    for side in (b"-", b"+"):
        numbers = [n for n, line in enumerate(lines) if line[:1] in (b" ", b"", side)]
        if side == b"+" or any(line.startswith(b"-") for line in lines):
            texts = [_shown(lines[number][1:]) for number in numbers]
            before = [_QUOTES] if _begins_in_docstring(texts, lexer) else []
            coloured = islice(code_spans([*before, *texts], lexer), len(before), None)
            pieces.update(zip(numbers, coloured, strict=True))
    return pieces


def _begins_in_docstring(texts: Sequence[str], lexer: Lexer) -> bool:
    """Whether the first quotes of a hunk of Python close a string that began above it."""
    if type(lexer).__name__ != "PythonLexer" or sum(text.count(_QUOTES) for text in texts) % 2 == 0:
        return False
    first = next(number for number, text in enumerate(texts) if _QUOTES in text)
    above = next((text for text in reversed(texts[:first]) if text.strip()), ":")
    start = texts[first].partition(_QUOTES)[0].strip()
    return start[-1:] not in ("=", "(") and not above.rstrip().endswith(":")


def _joined(spans: Iterable[Span], base: str) -> Iterator[Span]:
    """Fewer spans for the same look, the unstyled ones in the style `base`."""
    for style, same in groupby(spans, key=lambda span: span.style or base):
        yield Span("".join(span.text for span in same), style)


def code_spans(lines: Sequence[str], lexer: Lexer) -> Iterator[list[Span]]:
    """Lines of one piece of code, coloured; as many as were given."""
    current: list[Span] = []
    left = len(lines)
    for _, token, value in lexer.get_tokens_unprocessed("\n".join(lines)):
        style = _token_style(str(token))
        first, *rest = value.split("\n")
        current.append(Span(first, style))
        for part in rest:
            left -= 1
            yield current
            current = [Span(part, style)]
    if left:
        yield current


@cache
def _token_style(token: str) -> str:
    """`Token.Keyword.Constant` has the style of `Keyword`."""
    name = token.removeprefix("Token.")
    while name:
        if name in _TOKENS:
            return _TOKENS[name]
        name = name.rpartition(".")[0]
    return ""


@cache
def lexer_of(name: str) -> Lexer | None:
    """What colours the code of a file with this name; None for text, and for what is unknown."""
    suffix = re.search(r"\.[^./]*$", name)
    ending = suffix[0].lower() if suffix else ""
    if ending in _UNCOLOURED:
        return None
    if ending in _LEXERS:
        module, _, kind = _LEXERS[ending].partition(":")
        found = getattr(import_module(f"pygments.lexers.{module}"), kind)
    else:
        lexers = import_module("pygments.lexers")
        found = lexers.find_lexer_class_for_filename(name.rpartition("/")[2])
    lexer: Lexer | None = found() if found is not None else None
    return lexer


@cache
def style_of(style: str) -> Style | None:
    """The style of a `Span`."""
    return Style.parse(style) if style else None


def _shown(line: bytes) -> str:
    return visible(line.decode("utf-8", "surrogateescape"))
