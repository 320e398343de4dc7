"""Words as the text index has them, and where those of a query stand in a text.

A word is letters and digits, whatever their case and accents. Scripts that put no spaces between
words would come to one word from one punctuation mark to the next; each of their characters is
made a word of its own, so that a phrase of them is found wherever it stands.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

_DENSE = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u303b\u3041-\u3096\u309d-\u309f"
    "\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
"""Chinese, Japanese and Korean, as in a class of a regular expression."""

_DENSE_CHARACTER = re.compile(f"([{_DENSE}])")
_LETTER = rf"[^\W_{_DENSE}]"
_UNIT = re.compile(rf"[{_DENSE}]|{_LETTER}+")
_MARK = "[\u0300-\u036f]"
_MARKS = re.compile(_MARK)

_AROUND = 60
_AROUND_MORE = 30
"""Characters around the first words that are shown, and around those that stand elsewhere."""

_WINDOW = 120
_LONGEST = 400
_FRAGMENTS = 3
_TERMS = 8
_PLACES = 50
"""Of so many terms so many places are looked at to find where most of them stand together."""

type Span = tuple[int, int]


def indexed(text: str) -> str:
    """`text` as the index is given it."""
    return text if text.isascii() else _DENSE_CHARACTER.sub(r" \1 ", text)


def expression(term: str) -> str:
    """A word or phrase in the language of FTS5. `begin*` is any word that begins so."""
    quoted = '"' + indexed(term).replace('"', '""').replace("\0", " ") + '"'
    return f"{quoted} *" if is_beginning(term) else quoted


def is_beginning(term: str) -> bool:
    """Whether a term means all words that begin with its last one."""
    return term.endswith("*") and term[-2:-1].isalnum()


def excerpt(text: str, terms: Sequence[str]) -> tuple[str, tuple[Span, ...]]:
    """One line out of `text` where most of the terms stand, and where in it they are.

    Words that stand nowhere near come after a gap.
    """
    used = list(dict.fromkeys(terms))[:_TERMS]
    line = ""
    for start, end in _fragments(text, used):
        gap = " … " if line else "…" if start else ""
        line += gap + " ".join(text[start:end].split())
        last = end
    if last < len(text.rstrip()):
        line += "…"
    return line, tuple(marks(line, used))


def marks(text: str, terms: Sequence[str]) -> Iterator[Span]:
    """Where in a text any of the terms stand, in order."""
    return _apart(sorted(span for term in terms for span in _places(text, term)))


def _fragments(text: str, terms: Sequence[str]) -> list[Span]:
    places = [list(_places(text, term, limit=_PLACES)) for term in terms]
    first = max(
        (span for spans in places for span in spans),
        key=lambda span: (len(_near(places, span)), -span[0]),
        default=None,
    )
    if first is None:
        return [(0, _end(text, _AROUND * 2))]
    near = _near(places, first)
    end = max(end for _, end in near.values())
    found = [(first[0] - _AROUND, min(end + _AROUND, first[0] + _LONGEST))]
    for number, spans in enumerate(places):
        if spans and number not in near:
            start, end = spans[0]
            end = min(end, start + _LONGEST)
            found.append((start - _AROUND_MORE, end + _AROUND_MORE))
    joined: list[Span] = []
    for start, end in sorted(found[:_FRAGMENTS]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return [(_start(text, start), _end(text, end)) for start, end in joined]


def _near(places: Sequence[Sequence[Span]], around: Span) -> dict[int, Span]:
    """The terms that stand within a window from the beginning of `around`, each once."""
    start = around[0]
    return {
        number: span
        for number, spans in enumerate(places)
        for span in reversed(spans)
        if start <= span[0] and span[1] <= max(start + _WINDOW, around[1])
    }


def _start(text: str, at: int) -> int:
    """The first place from `at` on that is not within a word."""
    at = max(at, 0)
    while 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum():
        if _DENSE_CHARACTER.match(text, at):
            break
        at += 1
    return at


def _end(text: str, at: int) -> int:
    """The last place up to `at` that is not within a word; `at` itself within a long one."""
    end = at = min(at, len(text))
    while 0 < end < len(text) and text[end - 1].isalnum() and text[end].isalnum():
        if _DENSE_CHARACTER.match(text, end) or end <= at - _AROUND_MORE:
            break
        end -= 1
    return end


def _apart(spans: Sequence[Span]) -> Iterator[Span]:
    """Spans without those that lie in an earlier one."""
    last = 0
    for start, end in spans:
        if start >= last:
            yield start, end
            last = end


# --- Places ---------------------------------------------------------------------------------


def _places(text: str, term: str, limit: int | None = None) -> Iterator[Span]:
    """Where a term stands, as the index sees it."""
    folded = _folded(text)
    pattern = _pattern(term, has_marks=not text.isascii() and bool(_MARKS.search(folded)))
    for number, match in enumerate(pattern.finditer(folded)):
        if number == limit:
            return
        yield match.span()


@lru_cache(maxsize=64)
def _pattern(term: str, *, has_marks: bool) -> re.Pattern[str]:
    units = _UNIT.findall(_MARKS.sub("", _folded(term)))
    if not units:
        return re.compile("(?!)")
    dense = [bool(_DENSE_CHARACTER.match(unit)) for unit in units]
    parts = ["" if dense[0] else f"(?<!{_LETTER})"]
    for number, unit in enumerate(units):
        if number:
            parts.append(r"[\W_]*" if dense[number - 1] or dense[number] else r"[\W_]+")
        parts += [re.escape(c) + f"{_MARK}*" for c in unit] if has_marks else [re.escape(unit)]
    if not dense[-1]:
        parts.append(f"{_LETTER}*" if is_beginning(term) else f"(?!{_LETTER})")
    return re.compile("".join(parts))


def _folded(text: str) -> str:
    """`text` without case and accents, each character at its place."""
    return text.lower() if text.isascii() else "".join(map(_folded_character, text))


@lru_cache(maxsize=4096)
def _folded_character(character: str) -> str:
    apart = unicodedata.normalize("NFD", character)
    folded = (apart[0] if all(map(_MARKS.match, apart[1:])) else character).lower()
    return folded if len(folded) == 1 else character
