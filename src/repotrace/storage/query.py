"""The language of `runs search`: words, "quoted phrases", `key:value` filters, `-` for not.

`KeyError "due date" agent:codex -outcome:passed cost:>0.5 since:7d` is a whole query. A word with
a colon whose key is none of `KEYS` is a word, so that `src/x.py::test_leap` and `http://…` are
safe; in quotes everything is. `Assert*` is any word that begins so.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from repotrace.errors import RepoTraceError
from repotrace.storage import words

Number = Callable[[Decimal], bool]

RUN_KEYS = frozenset({"run", "status", "outcome", "agent", "model", "tag", "source"})
"""Filters on what a run is."""

FIGURES = {
    "cost": "cost_usd",
    "tokens": "tokens_used",
    "retries": "retries",
    "steps": "steps",
    "files": "files_modified",
}
"""Filters on the sums of a run: the key, and the field of `RunTotals`."""

TIMES = frozenset({"since", "until"})
TRACES = frozenset({"file", "read", "test"})
"""Filters on what was done in some step of a run."""

STEP_KEYS = frozenset({"type", "step"})
"""Filters on a step itself: its type, its status."""

KEYS = RUN_KEYS | frozenset(FIGURES) | TIMES | TRACES | STEP_KEYS

_MOST = 100
"""Filters that a query may have."""

_TERM = re.compile(r'(-(?!-))?(?:([A-Za-z]+):(?=\S))?(?:"([^"]*)"?|(\S+))')
_NUMBER = re.compile(r"(>=|<=|>|<|=)?\$?(\d+(?:\.\d+)?)([kKmM]?)")
_COMPARISONS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "": operator.eq,
}
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_AGO = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) ?(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True, slots=True)
class Filter:
    """One `key:value` of a query."""

    key: str
    value: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What must occur, and what must not."""

    wanted: tuple[str, ...] = ()
    """Words and phrases that all have to occur in one text."""
    unwanted: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()

    @classmethod
    def of(cls, text: str) -> Query:
        """`text` read as words, phrases and filters.

        Any punctuation is allowed; what stands between it must occur in this order. Raises
        RepoTraceError for more filters than the database can look at.
        """
        wanted: list[str] = []
        unwanted: list[str] = []
        filters: list[Filter] = []
        for minus, key, phrase, word in _TERM.findall(text):
            if key.lower() in KEYS and (phrase or word):
                filters.append(Filter(key.lower(), phrase or word, bool(minus)))
                continue
            term = phrase.rstrip("*") or word
            term = f"{key}:{term}" if key else term
            if any(character.isalnum() for character in term):
                (unwanted if minus else wanted).append(term)
        chosen = tuple(dict.fromkeys(filters))
        if len(chosen) > _MOST:
            raise RepoTraceError(
                f"The query has {len(chosen)} filters.", hint=f"At most {_MOST} are possible."
            )
        return cls(tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(unwanted)), chosen)

    def expression(self) -> str:
        """The words in the language of FTS5. Only for a query with wanted words."""
        positive = " AND ".join(map(words.expression, self.wanted))
        return " NOT ".join([f"({positive})", *map(words.expression, self.unwanted)])

    def named(self, *keys: str) -> list[Filter]:
        """The filters with one of these keys."""
        return [item for item in self.filters if item.key in keys]


def unknown_keys(text: str) -> list[str]:
    """The keys of what looks like a filter in `text` and is none; so it was read as a word."""
    keys = [
        key
        for _, key, phrase, word in _TERM.findall(text)
        if len(key) > 1 and key.lower() not in KEYS and (phrase or not word.startswith(("/", ":")))
    ]
    return list(dict.fromkeys(keys))


def compared(value: str, key: str) -> Number:
    """`>0.5`, `<=10k`, `3`, `1..5` as a test of a figure. Raises RepoTraceError for others."""
    low, dots, high = value.partition("..")
    if dots:
        least, most = _figure(low, key)[1], _figure(high, key)[1]
        return lambda figure: least <= figure <= most
    sign, limit = _figure(value, key)
    compare = _COMPARISONS[sign]
    return lambda figure: bool(compare(figure, limit))


def _figure(text: str, key: str) -> tuple[str, Decimal]:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise RepoTraceError(
            f"{key}:{text} is no comparison.", hint=f"Write {key}:>10, {key}:<=2k or {key}:1..5."
        )
    try:
        return match[1] or "", Decimal(match[2]) * _UNITS[match[3].lower()]
    except InvalidOperation:  # more digits than a figure has
        raise RepoTraceError(f"{key}:{text} is too long a number.") from None


def moment(text: str, now: datetime) -> datetime:
    """The moment that `2h`, `3d`, `90s`, `2w` before `now` is, or that an ISO date names.

    A date without a time zone is one of the local zone. Raises RepoTraceError for anything else.
    """
    match = _AGO.fullmatch(text.strip())
    try:
        if match:
            return now - timedelta(seconds=float(match[1]) * _SECONDS[match[2]])
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise RepoTraceError(
            f"{text!r} is no time.", hint="Write 30min, 2h, 3d, 2w or a date such as 2026-03-01."
        ) from None


def path_patterns(value: str) -> list[str]:
    """GLOB patterns of the paths that `value` means: itself, below it, and its end.

    `export.py` is any file of this name, `src/app` the folder's files; one with `*` or `?` is a
    pattern already.
    """
    value = value.removeprefix("./").rstrip("/")
    if any(mark in value for mark in "*?["):
        return [value, f"*/{value}"]
    return [value, f"{value}/*", f"*/{value}", f"*/{value}/*"]
