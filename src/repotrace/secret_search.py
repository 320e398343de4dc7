"""Where in a text secrets may begin: a look at every literal, and a quick one that most texts pass.

Most texts that are recorded hold no secret, and there are many of them. `QuickLook` proves it of
a page in some microseconds: it asks for a few short strings, one of which is in every text that a
rule could match, and reads of the long names only where a token could begin. It may suspect too
much, never too little.
"""

from __future__ import annotations

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

_SHARED = ("key", "pass", "auth")
"""Parts of several literals, which are asked for once."""
_HINTS = {"url-password": "@", "netrc-password": "pass"}
"""Of some rules, what is cheaper to find than the literal and in each match."""
_RUN_BEHIND = frozenset({"google-token", "sendgrid-key", "url-token", "vault-token"})
"""Rules beside TOKENS that match only if a long run stands right behind the literal."""
_WITH_RUN = frozenset({"discord-token", "discord-webhook", "telegram-token"})
"""Rules beside TOKENS that match only if there is a long run somewhere."""
_TAIL = 3
"""The length of the shortest literal of _RUN_BEHIND."""
_BLANK = " " * _TAIL

type _Hinted = dict[str, list[tuple[str, Suspect]]]
"""Literals by what is asked for first, with what is made of them if it is there."""


@cache
def _tables() -> tuple[_Hinted, _Hinted, _Hinted, _Hinted, _Hinted]:
    """All literals, by a hint: `anywhere` and `with_run` a part of them in the lower-cased text,
    `tails` the end of what stands before a run, `pieces` what a token such as `sk-ant-` has
    before its first `-` or `_`, `heads` the other tokens as they are."""
    anywhere: _Hinted = {}
    with_run: _Hinted = {}
    tails: _Hinted = {}
    pieces: _Hinted = {}
    heads: _Hinted = {}
    for where, rule, suspect in _literals():
        literal = suspect[1].decode()
        piece, lower = literal.replace("_", "-").partition("-")[0], literal.lower()
        if where == "tokens":
            table, hint = (heads, literal) if piece == literal else (pieces, piece)
        elif rule in _RUN_BEHIND:
            table, hint = tails, literal[-_TAIL:]
        else:
            table = with_run if rule in _WITH_RUN else anywhere
            hint = _HINTS.get(rule) or next((part for part in _SHARED if part in lower), lower)
        table.setdefault(hint, []).append((literal, suspect))
    return anywhere, with_run, tails, pieces, heads


@cache
def _small_heads() -> list[str]:
    """Those of the heads that have no capital letter."""
    return [head for head in _tables()[-1] if head.islower()]


class QuickLook:
    """Says of most texts without a secret that they hold none.

    `forms` are all forms of the values that are secrets.
    """

    def __init__(self, forms: Collection[bytes]) -> None:
        tokens = {form.decode("latin-1") for form in forms if is_token(form)}
        others = {_longest_word(form).decode("latin-1") for form in forms if not is_token(form)}
        self._tokens = _shortest(tokens)
        self._words = _shortest(others)

    def suspects(self, data: bytes) -> list[Suspect] | None:
        """What may begin a secret in this text; None if anything else in it may be one.

        With none, nothing is found in it. It must be a text that is not masked in pieces.
        """
        text, lower = data.decode("latin-1"), data.lower().decode("latin-1")
        if "-----begin" in lower or "[redacted:" in lower:
            return None
        for word in self._words:
            if word in text:
                return None
        anywhere, with_run, tails, pieces, heads = _tables()
        found = [entry for hint in anywhere if hint in lower for entry in anywhere[hint]]
        starts, runs = _long_runs(data, text)
        if runs:
            if "\\" in text or "%" in text or "[" in text:
                runs += _unescaped(text, starts, runs)
            joined = "-".join(runs)
            for token in self._tokens:
                if token in joined:
                    return None
            words = joined.replace("_", "-").split("-")
            if not pieces.keys().isdisjoint(words):
                found += [entry for piece in pieces.keys() & set(words) for entry in pieces[piece]]
            likely = _small_heads() if joined.islower() else heads
            found += [entry for head in likely if head in joined for entry in heads[head]]
            found += [entry for hint in with_run if hint in lower for entry in with_run[hint]]
            padded = _BLANK + text
            before = {padded[start : start + _TAIL] for start in starts}
            if not tails.keys().isdisjoint(before):
                found += [entry for tail in tails.keys() & before for entry in tails[tail]]
        if not found:
            return []
        return [suspect for literal, suspect in found if literal in (lower if suspect[2] else text)]


def _unescaped(text: str, starts: Sequence[int], runs: Sequence[str]) -> list[str]:
    """Runs without what belongs to an escape that begins before them: `n` of a line end."""
    found = []
    for start, run in zip(starts, runs, strict=True):
        before = text[start - 1] if start else ""
        if before == "\\":
            found.append(run[{"x": 3, "u": 5}.get(run[0], 1) :])
        elif before == "%":
            found.append(run[2:])
        elif before in ("[", ";"):
            found.append(run.lstrip("0123456789")[1:])
    return found


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
