"""Pieces of GitHub Markdown around text that must stay text: no markup, mention or link in it.

Everything that somebody else wrote goes through one of these functions. Standard library only.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape

from repotrace.readable import one_line, readable, truncate, visible

MISSING = "—"
LONG = 40
"""Lines of output above which the whole is folded away."""
_SHOWN = 10
_MOST_LINES = 400
_MOST_CHARACTERS = 20_000
_LONGEST_LINE = 2_000


@cache
def _active() -> re.Pattern[str]:
    """Whatever Markdown or GitHub could take for more than text inside a line."""
    return re.compile(
        r"[`*<\[\]\\@#$]"
        r"|&[#\w]+;"
        r"|(?<![^\W_])_|_(?![^\W_])"
        r"|~.*~"
        r"|://|www\."
        r"|:[a-z0-9_+-]+:"
        r"|\bGH-\d"
        r"|\s\s|\t"
    )


def code_span(text: str) -> str:
    """`text` on one line as a code span; an em dash for nothing."""
    text = one_line(text)
    if not text:
        return MISSING
    ticks = "`" * (_longest_run(text) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def inline(text: str) -> str:
    """`text` on one line, in the middle of a line: as it is if harmless, else a code span."""
    text = one_line(text)
    return code_span(text) if _active().search(text) else text


def prose(text: str) -> list[str]:
    """Lines of free text: what could act is put into code spans, paragraphs and lists stay."""
    lines = readable(text).strip("\n").split("\n")
    result = [" ".join(_prose_words(line)) for line in lines]
    ends = [*result[1:], ""]
    return [
        f"{line}  " if line and after else line for line, after in zip(result, ends, strict=True)
    ]


def _prose_words(line: str) -> list[str]:
    words: list[str] = []
    pending: list[str] = []
    for index, word in enumerate(line.split()):
        item = index == 0 and re.fullmatch(r"[-+]|\d{1,9}[.)]", word)
        if not item and (_active().search(word) or _opens_block(word)):
            pending.append(word)
            continue
        if pending:
            words.append(code_span(" ".join(pending)))
            pending = []
        words.append(word)
    if pending:
        words.append(code_span(" ".join(pending)))
    return words


def _opens_block(word: str) -> bool:
    return bool(re.match(r">|[-+=_~]{2,}|=$|[|]|[-:|]+$", word)) or "|" in word


def fence(text: str, language: str = "") -> list[str]:
    """`text`, which is readable already, as a fenced block longer than any fence inside."""
    ticks = "`" * max(3, _longest_run(text) + 1)
    return [f"{ticks}{language}", *text.split("\n"), ticks]


def output(text: str, what: str, language: str = "text") -> list[str]:
    """Captured text in a fence; of a long one the last lines, and the whole folded away."""
    text = readable(text)
    lines = text.removesuffix("\n").split("\n")
    shown = [_shortened(line) for line in lines]
    if len(lines) <= LONG and sum(map(len, shown)) <= _MOST_CHARACTERS:
        return fence("\n".join(shown), language)
    return [
        f"The last {_SHOWN} of {len(lines)} lines:",
        "",
        *fence("\n".join(shown[-_SHOWN:]), language),
        "",
        *details(f"{what}: {len(lines)} lines", fence("\n".join(_middle_cut(shown)), language)),
    ]


def details(summary: str, lines: list[str]) -> list[str]:
    """`lines` folded away behind `summary`."""
    return [
        "<details>",
        f"<summary>{escape(one_line(summary), quote=False)}</summary>",
        "",
        *lines,
        "",
        "</details>",
    ]


def _shortened(line: str) -> str:
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[:_LONGEST_LINE]}… [{len(line) - _LONGEST_LINE} more characters]"


def _middle_cut(lines: list[str]) -> list[str]:
    """`lines` without their middle where they are too many to paste into an issue."""
    head, tail = lines[: _MOST_LINES // 4], lines[_MOST_LINES // 4 :]
    head = _within(head, _MOST_CHARACTERS // 4)
    tail = _within(tail[: -_MOST_LINES * 3 // 4 : -1], _MOST_CHARACTERS * 3 // 4)[::-1]
    missing = len(lines) - len(head) - len(tail)
    if missing <= 0:
        return lines
    return [*head, f"[… {missing} lines are in the report only …]", *tail]


def _within(lines: list[str], characters: int) -> list[str]:
    kept: list[str] = []
    for line in lines:
        characters -= len(line) + 1
        if characters < 0:
            break
        kept.append(line)
    return kept


def escape_cell(text: object) -> str:
    """`text` on one line for a table cell: no pipe, markup, mention or link in it acts."""
    line = one_line(str(text))
    if not _active().search(line):
        return line.replace("|", "\\|")
    # A code span would do, but a pipe after a backslash cannot be written inside one.
    return f"<code>{_entities(line)}</code>"


def _entities(line: str) -> str:
    return re.sub(r"[^\w .,;/()=+%?'-]|_", lambda match: f"&#{ord(match[0])};", line)


def list_item(key: str, value: str) -> str:
    """`- **key:** value`; `value` is Markdown already."""
    return f"- **{inline(key)}:** {value}"


def hard_breaks(lines: list[str]) -> list[str]:
    """`lines` of one paragraph, each on a line of its own also when rendered."""
    return [f"{line}  " for line in lines[:-1]] + lines[-1:]


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


__all__ = [
    "LONG",
    "MISSING",
    "code_span",
    "details",
    "escape_cell",
    "fence",
    "hard_breaks",
    "inline",
    "list_item",
    "output",
    "prose",
    "truncate",
]


def annotation(level: str, text: str, *, title: str, file: str | None = None) -> str:
    """A workflow command of GitHub that shows `text`: `level` is `error`, `warning` or `notice`."""
    where = {"file": file, "title": title}
    given = ",".join(f"{key}={_property(value)}" for key, value in where.items() if value)
    return f"::{level} {given}::{_data(text)}"


def _data(text: str) -> str:
    return visible(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
