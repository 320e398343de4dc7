"""Python literals for any text and any bytes, laid out as `ruff format` would.

`repr` alone decides what is escaped: quotes, line ends, control characters, bidi controls,
surrogates. What follows only chooses the quotes and the lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WIDTH = 88
"""Of a line that the formatter leaves alone by default."""


def literal(value: str | bytes) -> str:
    """The literal of `value` on one line, with the quotes that need fewer escapes."""
    if isinstance(value, bytes):
        single = value.count(b'"') > value.count(b"'")
        body = "\\'".join(repr(b'"' + part)[3:-1] for part in value.split(b"'"))
        prefix = "b"
    else:
        single = value.count('"') > value.count("'")
        body = "\\'".join(repr('"' + part)[2:-1] for part in value.split("'"))
        prefix = ""
    if single:
        return f"{prefix}'{body}'"
    # Every quote in the body of a `repr` stands for itself, whatever is before it.
    return prefix + '"' + body.replace("\\'", "'").replace('"', '\\"') + '"'


def pattern_literal(text: str) -> str:
    """The literal of a regular expression, a raw one where that is possible."""
    if not text.isprintable() or text.endswith("\\") or ("'" in text and '"' in text):
        return literal(text)
    quote = "'" if '"' in text else '"'
    return f"r{quote}{text}{quote}" if "\\" in text else f"{quote}{text}{quote}"


def assignment(name: str, value: str | bytes | float | None) -> str:
    """`name = value`: in parentheses, one literal for each line, where it is long."""
    if not isinstance(value, str | bytes):
        return f"{name} = {value!r}"
    written = ascii_literal if _is_doubtful(len(name) + 3, literal(value)) else literal
    whole = written(value)
    line = f"{name} = {whole}"
    if fits(line):
        return line
    if fits(f"    {whole}"):
        return f"{name} = (\n    {whole}\n)"
    lines = _split_lines(value)
    if len(lines) == 1:
        return line
    rows = "\n".join(f"    {written(part)}" for part in lines)
    return f"{name} = (\n{rows}\n)"


def list_assignment(name: str, values: Sequence[str]) -> str:
    """`name = [...]`, one item on each line where they don't fit on one."""
    items = [literal(value) for value in values]
    line = f"{name} = [{', '.join(items)}]"
    if fits(line):
        return line
    return f"{name} = [\n" + "".join(f"    {item},\n" for item in items) + "]"


def dict_assignment(name: str, values: Mapping[str, str]) -> str:
    """`name = {...}`, one item on each line where they don't fit on one."""
    items = [f"{literal(key)}: {literal(value)}" for key, value in values.items()]
    line = f"{name} = {{{', '.join(items)}}}"
    if fits(line):
        return line
    return f"{name} = {{\n" + "".join(f"    {item},\n" for item in items) + "}"


def pairs_assignment(name: str, pairs: Sequence[tuple[str, str]]) -> str:
    """`name = [(pattern, replacement), ...]`, one pair on each line."""
    rows = []
    for first, second in pairs:
        items = [pattern_literal(first), pattern_literal(second)]
        row = f"    ({', '.join(items)}),\n"
        rows.append(
            row
            if fits(row.rstrip("\n"))
            else "    (\n" + "".join(f"        {item},\n" for item in items) + "    ),\n"
        )
    return f"{name} = [\n" + "".join(rows) + "]"


def ascii_literal(value: str | bytes) -> str:
    """The literal with everything beyond ASCII escaped."""
    text = literal(value)
    if text.isascii():
        return text
    return "".join(char if char.isascii() else ascii(char)[1:-1] for char in text)


def docstring(title: str, facts: Mapping[str, str], closing: str) -> str:
    """A module docstring that no content can break: one line for each fact."""
    lines = [f"{label}: {_doc_line(value)}".rstrip() for label, value in facts.items()]
    return "\n".join([f'"""{title}', "", *lines, "", closing, '"""'])


def fits(line: str) -> bool:
    """Whether the formatter leaves this line whole; certain for all that `_is_doubtful` is not."""
    return _widths(line)[1] <= WIDTH


def _doc_line(text: str) -> str:
    flat = " ".join(text.split("\n"))
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in flat)
    return shown.replace("\\", "\\\\").replace('"""', "'''")


def _is_doubtful(indent: int, text: str) -> bool:
    """Whether it depends on the widths of unusual characters if `text` fits in a line."""
    low, high = _widths(text)
    return any(low + before <= WIDTH < high + before for before in (indent, 4))


def _widths(text: str) -> tuple[int, int]:
    """The least and the most columns that `text` may take."""
    plain = sum(map(str.isascii, text)) if not text.isascii() else len(text)
    return plain, plain + 2 * (len(text) - plain)


def _split_lines(value: str | bytes) -> list[str | bytes]:
    """The lines of `value`, each with its line end."""
    if isinstance(value, bytes):
        *lines, last = value.split(b"\n")
        return [*(line + b"\n" for line in lines), *([last] if last else [])]
    *rows, rest = value.split("\n")
    return [*(row + "\n" for row in rows), *([rest] if rest else [])]
