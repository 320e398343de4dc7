"""Where in a text secrets may begin: a look at every literal, and a quick one that most texts pass.

Most texts that are recorded hold no secret, and there are many of them. `QuickLook` proves it of
a page in some microseconds: it asks for a few short strings, one of which is in every text that a
rule could match, and reads of the long names only where a token could begin. It may suspect too
much, never too little.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache

from repotrace.secret_rules import (
    ASSIGNED,
    FOLDED,
    PROVIDERS,
    RUN,
    TOKENS,
    Found,
    assignment,
    provider,
)
from repotrace.secret_spans import Span, Walls

type Suspect = tuple[int, bytes, bool]
"""A literal that occurs in a text: its rule by number in PROVIDERS (-1 stands for names to which
a secret is assigned), the literal, whether it is looked for in the lower-cased text."""

type Value = tuple[bytes, str, bytes]
"""A secret that is known by its value: one form of it, the rule, what its digest is of."""

_TOKEN_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_ALIKE = bytes(0x61 if code in _TOKEN_CHARACTERS else 0x20 for code in range(256))
_OTHERS_BLANK = bytes(code if code in _TOKEN_CHARACTERS else 0x20 for code in range(256))
_NEEDLE = "a" * RUN


def is_token(form: bytes) -> bool:
    """Whether this lies in a long run of token characters wherever it is: quicker to find."""
    return len(form) >= RUN and not form.translate(_ALIKE).strip(b"a")


@cache
def _literals() -> list[tuple[str, str, Suspect]]:
    """Every literal that a secret begins with: where to look for it, the name of its rule."""
    found: list[tuple[str, str, Suspect]] = []
    for index, (rule, literals, _) in enumerate(PROVIDERS):
        folded = index >= len(PROVIDERS) - len(FOLDED)
        where = "tokens" if index < len(TOKENS) else "folded" if folded else "text"
        found += [(where, rule, (index, literal, folded)) for literal in literals.encode().split()]
    return found + [("folded", "assigned", (-1, word.encode(), True)) for word in ASSIGNED]


class Search:
    """One text, the values that are in it, and the literals that occur in it."""

    def __init__(
        self,
        data: bytes,
        suspects: Sequence[Suspect],
        values: Sequence[Value],
        is_allowed: Callable[[str, bytes], bool],
    ) -> None:
        self._data = data
        self._lower = data.lower()
        self._suspects = suspects
        self._values = values
        self._is_allowed = is_allowed

    def run(self, low: int, high: int, walls: Walls) -> Iterator[Span]:
        """Every match within data[low:high], which are whole lines; they may overlap."""
        data, allowed = self._data, self._is_allowed
        for form, rule, secret in self._values:
            at = data.find(form, low, high)
            while at >= 0:
                if walls.gap(at, at + len(form)):
                    yield at, at + len(form), at, rule, secret
                at = data.find(form, at + 1, high)
        for index, literal, folded in self._suspects:
            text = self._lower if folded else data
            at = text.find(literal, low, high)
            while at >= 0:
                span = self._match(index, at, len(literal), low, high, walls)
                after = at + 1
                if isinstance(span, int):
                    after = max(after, span)
                elif span is not None:
                    start, end, begin, rule = span
                    after = max(after, end)
                    if not allowed(rule, data[start:end]):
                        yield start, end, begin, rule, None
                at = text.find(literal, after, high)

    def _match(
        self, index: int, at: int, size: int, low: int, high: int, walls: Walls
    ) -> Found | int | None:
        gap = walls.gap(at, at + size)
        if gap is None:
            return None
        low, high = max(low, gap[0]), min(high, gap[1])
        if index < 0:
            return assignment(self._data, low, at, high)
        return provider(index, self._data, low, at, high)


def thorough(
    data: bytes,
    values: Iterable[Value],
    rules: Collection[str],
    is_allowed: Callable[[str, bytes], bool],
) -> Search:
    """A search for everything but what `rules` find."""
    runs = "\n".join(_long_runs(data, data.decode("latin-1"))[1]).encode("latin-1")
    texts = {"tokens": runs, "text": data, "folded": data.lower()}
    suspects = [
        suspect
        for where, rule, suspect in _literals()
        if suspect[1] in texts[where] and rule not in rules
    ]
    near = [value for value in values if value[0] in (runs if is_token(value[0]) else data)]
    return Search(data, suspects, near, is_allowed)


def _long_runs(data: bytes, text: str) -> tuple[list[int], list[str]]:
    """The stretches that are long enough to hold a provider's token, and where they start.

    `text` is `data` as Latin-1: a str is searched quicker than bytes are.
    """
    marks = data.translate(_ALIKE).decode("ascii")
    starts, runs = [], []
    start = marks.find(_NEEDLE)
    while start >= 0:
        end = marks.find(" ", start + RUN)
        if end < 0:
            end = len(text)
        starts.append(start)
        runs.append(text[start:end])
        start = marks.find(_NEEDLE, end)
    return starts, runs


# --- The quick look -----------------------------------------------------------------------

_SOLID = 20
_BEFORE_SOLID = frozenset(
    b"""
    ghp_ gho_ ghu_ ghs_ ghr_ npm_ hf_ api_org_ dop_v1_ doo_v1_ dor_v1_ shpat_ shpca_ shppa_ shpss_
    key- PMAK- lin_api_ lin_oauth_ rubygems_ gsk_ xai- r8_ pplx- sbp_ ntn_
    """.split()
)
"""Literals that match only with _SOLID letters and digits in a row right behind them."""
_IN_SOLID = frozenset(b"AKIA ASIA ABIA ACCA SK".split())
"""Literals that match only as a part of such a row, and have capital letters."""
_TAIL = 3
"""The length of the shortest literal of _BEFORE_SOLID."""
_BLANK = " " * _TAIL
_LETTERS = bytes(0x61 if chr(code).isalnum() and code < 128 else 0x20 for code in range(256))
_SOLID_NEEDLE = "a" * _SOLID

_HINTS = {"netrc-password": "passw", "url-password": "@", "url-token": "@"}
"""Of some rules, what is cheaper to find than the literal and in each match."""
_UNDECIDED = ("-----begin ", "[redacted:")
"""What may hold a secret over several lines, or keep rules from matching."""
_RARE_FIRST = "zqjxkvbyugpcfmwd@[:=/.-_0123456789 lhrsnioate"
"""Characters by how seldom they are in texts and code, of some alike the most useful ones first."""

type _Hinted = dict[str, list[tuple[str, Suspect]]]
"""Literals by what is looked for first, with what is made of them if it is there."""


@cache
def _tables() -> tuple[_Hinted, _Hinted, _Hinted]:
    """All literals by a hint: a part of them in the lower-cased text, the end of what stands
    before a row of letters and digits, what stands in one."""
    spoken: _Hinted = {}
    before: _Hinted = {}
    within: _Hinted = {}
    for _, rule, suspect in _literals():
        literal = suspect[1].decode()
        if suspect[1] in _BEFORE_SOLID:
            table, hint = before, literal[-_TAIL:]
        elif suspect[1] in _IN_SOLID:
            table, hint = within, literal
        else:
            table, hint = spoken, _HINTS.get(rule, literal.lower())
        table.setdefault(hint, []).append((literal, suspect))
    return spoken, before, within


class QuickLook:
    """Says of most texts without a secret that they hold none.

    `forms` are all forms of the values that are secrets. Making one is cheap; its first look
    takes a millisecond.
    """

    def __init__(self, forms: Collection[bytes]) -> None:
        self._forms = forms
        self._pattern: re.Pattern[str] | None = None
        self._meant: dict[str, list[tuple[str, Suspect]] | None] = {}
        """What the pattern matches, and what is suspected then; None: it can't be said."""

    def suspects(self, data: bytes) -> list[Suspect] | None:
        """What may begin a secret in this text; None if anything else in it may be one.

        With none, nothing is found in it. It must be a text that is not masked in pieces.
        """
        # To search a str is quicker than to search bytes, by more than making one takes.
        text, lower = data.decode("latin-1"), data.lower().decode("latin-1")
        pattern = self._pattern or self._prepared()
        spoken, before, within = _tables()
        found: list[tuple[str, Suspect]] = []
        if match := pattern.search(lower):
            for said in _all_matches(pattern, lower, match):
                meant = self._meant[said]
                if meant is None:
                    return None
                found += meant
        if "@" in text:
            found += spoken["@"]
        marks = data.translate(_LETTERS).decode("ascii")
        start = marks.find(_SOLID_NEEDLE)
        if start >= 0:
            padded = _BLANK + text
            while start >= 0:
                end = marks.find(" ", start + _SOLID)
                row = text[start:end] if end >= 0 else text[start:]
                tail = padded[start : start + _TAIL]
                if tail in before:
                    found += before[tail]
                if not row.islower():
                    found += [entry for part in within if part in row for entry in within[part]]
                start = marks.find(_SOLID_NEEDLE, end) if end >= 0 else -1
        if not found:
            return []
        suspects = [
            suspect for literal, suspect in found if literal in (lower if suspect[2] else text)
        ]
        return list(dict.fromkeys(suspects))

    def _prepared(self) -> re.Pattern[str]:
        """The pattern that matches wherever one of the hints is, and what its matches mean.

        It begins with the rarest character of each, so most of a text is passed over.
        """
        spoken = _tables()[0]
        values = _shortest(_longest_word(form).lower().decode("latin-1") for form in self._forms)
        hints = [*_shortest(hint for hint in spoken if hint != "@"), *_UNDECIDED, *values]
        cuts: dict[str, list[tuple[str, str]]] = {}
        for hint in hints:
            rarest = min(hint, key=_RARE_FIRST.find)
            left, _, right = hint.partition(rarest)
            cuts.setdefault(rarest, []).append((left, right))
        choices = []
        for rarest, sides in cuts.items():
            rests = []
            for left, right in sides:
                behind = f"(?<={re.escape(left + rarest + right)})" if left else ""
                rests.append(re.escape(right) + behind)
                same = [a + rarest + b for a, b in sides if _fit(left, right, a, b)]
                self._note(rarest + right, same, spoken)
            choices.append(f"{re.escape(rarest)}(?:{'|'.join(rests)})")
        self._pattern = re.compile("|".join(choices))
        return self._pattern

    def _note(self, said: str, hints: Iterable[str], spoken: _Hinted) -> None:
        """Where `said` is matched, each of `hints` may be there."""
        known = self._meant.setdefault(said, [])
        for hint in hints:
            meant = [entry for other in spoken if hint in other for entry in spoken[other]]
            if not meant:
                self._meant[said] = known = None
            if known is not None:
                known += meant


def _all_matches(pattern: re.Pattern[str], text: str, match: re.Match[str] | None) -> set[str]:
    """What is matched from `match` on, at every place."""
    found = set()
    while match is not None:
        found.add(match[0])
        match = pattern.search(text, match.start() + 1)
    return found


def _fit(left: str, right: str, other_left: str, other_right: str) -> bool:
    """Whether both of two strings may stand around the same character."""
    return (left.endswith(other_left) or other_left.endswith(left)) and (
        right.startswith(other_right) or other_right.startswith(right)
    )


def _longest_word(form: bytes) -> bytes:
    """The longest part of token characters, which whatever holds the form holds too."""
    return max(form.translate(_OTHERS_BLANK).split(), key=len, default=b"") or form


def _shortest(strings: Iterable[str]) -> list[str]:
    """As few of these as possible, so that whatever holds one of all holds one of them."""
    kept: list[str] = []
    for string in sorted(strings, key=lambda string: (len(string), string)):
        if not any(short in string for short in kept):
            kept.append(string)
    return kept
