"""Searching the texts of one run that are not indexed yet: each is read, and found or not.

It finds what the index would. Most texts are ruled out, and those in ASCII decided, by looking
for the words; the others are put into an index of their own in memory, so that letters are
folded and words parted as SQLite does it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import batched
from typing import TYPE_CHECKING, NamedTuple

from repotrace.storage import words
from repotrace.storage.documents import as_indexed
from repotrace.storage.query import Query
from repotrace.storage.texts import Blocks, Cell, encode

if TYPE_CHECKING:
    import sqlite3

PORTION = 128
"""Texts that are looked at together."""

_WORD = re.compile(r"[0-9a-z]+")


class Document(NamedTuple):
    """A text that can be searched, as its row has it."""

    id: int
    field: str
    body: Cell


def scan(
    connection: sqlite3.Connection, query: Query, texts: Sequence[Document]
) -> Iterator[list[int]]:
    """The ids of those texts in which all that is wanted occurs and nothing that is not, portion
    by portion in the given order; empty lists tell that it goes on."""
    sought = _Sought(query)
    blocks = Blocks()
    with closing(_Index(query)) as index:
        for portion in batched(texts, PORTION):
            found = set()
            for document, data in _read(connection, blocks, portion):
                if not sought.may_be_in(data):
                    continue
                text = as_indexed(document.field, data)
                verdict = sought.is_in(text)
                if verdict:
                    found.add(document.id)
                elif verdict is None:
                    index.add(document.id, text)
            found |= index.take()
            yield [document.id for document in portion if document.id in found]


def _read(
    connection: sqlite3.Connection, blocks: Blocks, portion: Sequence[Document]
) -> Iterator[tuple[Document, bytes]]:
    long = [document.body for document in portion if isinstance(document.body, int)]
    read = blocks.read(connection, long)
    if len(read) < len(long):  # texts that are gone
        read = [next(iter(blocks.read(connection, [name])), b"") for name in long]
    pool = dict(zip(long, read, strict=True))
    for document in portion:
        body = document.body
        if isinstance(body, int):
            yield document, pool[body]
        elif body is not None:
            yield document, encode(body) if isinstance(body, str) else body


class _Sought:
    """What a query looks for, in folded letters."""

    def __init__(self, query: Query) -> None:
        pieces = {piece for term in query.wanted for piece in _pieces(term)}
        self._in_ascii = all(piece.isascii() for piece in pieces)
        self._pieces = sorted(pieces, key=len, reverse=True)
        self._bytes = [encode(piece) for piece in self._pieces]
        terms = (*query.wanted, *query.unwanted)
        self._is_plain = all(term.isascii() for term in terms)
        self._wanted = [_pattern(term) for term in query.wanted] if self._is_plain else []
        self._unwanted = [_pattern(term) for term in query.unwanted] if self._is_plain else []

    def may_be_in(self, data: bytes) -> bool:
        """False only if the words are not all in this text, as it is stored."""
        if data.isascii():
            folded = data.lower()
            return self._in_ascii and all(piece in folded for piece in self._bytes)
        text = fold(data.decode("utf-8", "replace"))
        return all(piece in text for piece in self._pieces)

    def is_in(self, text: str) -> bool | None:
        """Whether it is in a text; None where that is not so easily said."""
        if not (self._is_plain and text.isascii()):
            return None
        text = text.lower()
        if any(pattern.search(text) for pattern in self._unwanted):
            return False
        return all(pattern.search(text) for pattern in self._wanted)


class _Index:
    """A text index in memory, of few texts at a time."""

    def __init__(self, query: Query) -> None:
        import sqlite3

        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute(
            "CREATE VIRTUAL TABLE t USING fts5 (body, content = '', tokenize = 'unicode61')"
        )
        self._query = query.expression()
        self._count = 0

    def add(self, number: int, text: str) -> None:
        """Put a text in."""
        self._connection.execute(
            "INSERT INTO t (rowid, body) VALUES (?, ?)", (number, words.indexed(text))
        )
        self._count += 1

    def take(self) -> set[int]:
        """The numbers of the texts that fit; all texts are taken out."""
        if not self._count:
            return set()
        query = "SELECT rowid FROM t WHERE t MATCH ?"
        found = {number for (number,) in self._connection.execute(query, (self._query,))}
        self._connection.execute("INSERT INTO t (t) VALUES ('delete-all')")
        self._count = 0
        return found

    def close(self) -> None:
        """End it."""
        self._connection.close()


def fold(text: str) -> str:
    """A text without marks on letters and in small ones: whatever words SQLite takes for the
    same are the same then."""
    if text.isascii():
        return text.lower()
    return _unmarked(_unmarked(text).casefold())


def _unmarked(text: str) -> str:
    parted = unicodedata.normalize("NFD", text)
    if parted.isascii():
        return parted
    marks = {letter for letter in set(parted) if unicodedata.category(letter) == "Mn"}
    return parted.translate(dict.fromkeys(map(ord, marks))) if marks else parted


def _pieces(term: str) -> Iterator[str]:
    """Parts of a term that are in every text in which it occurs."""
    letters = unicodedata.normalize("NFD", words.indexed(term))
    for word in "".join(one if one.isalnum() else " " for one in letters).split():
        yield fold(word)


def _pattern(term: str) -> re.Pattern[str]:
    """Of a term in ASCII, to be searched in ASCII of small letters."""
    phrase = "[^0-9a-z]+".join(_WORD.findall(term.lower()))
    end = "" if words.is_beginning(term) else "(?![0-9a-z])"
    return re.compile(f"(?<![0-9a-z]){phrase}{end}")
