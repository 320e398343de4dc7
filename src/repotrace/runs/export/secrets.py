"""What looks like a secret in the files of states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from repotrace.redact import Redactor
from repotrace.storage import Store

_LARGEST = 8 << 20
"""Bytes of a file above which only its beginning is looked at."""


class Suspect(NamedTuple):
    """A place that looks like a secret; the secret itself is told to nobody."""

    path: str
    line: int
    rule: str


def secrets_in(
    store: Store, states: Iterable[str], contents: Iterable[tuple[str, str]], redactor: Redactor
) -> Iterator[Suspect]:
    """Each place once, by path. `contents` are paths and object ids that no state may hold."""
    seen: dict[tuple[str, str], None] = {}
    for state_id in states:
        for entry in store.snapshots.list(state_id):
            if entry.object_id is not None:
                seen.setdefault((entry.path, entry.object_id))
    for named in contents:
        seen.setdefault(named)
    places: dict[str, list[tuple[int, str]]] = {}
    told: set[Suspect] = set()
    for path, object_id in sorted(seen):
        if object_id not in places:
            data = (store.snapshots.read_object(object_id) or b"")[:_LARGEST]
            places[object_id] = list(_places(data, redactor))
        for line, rule in places[object_id]:
            found = Suspect(path, line, rule)
            if found not in told:
                told.add(found)
                yield found


def secrets_of(contents: Iterable[tuple[str, bytes]], redactor: Redactor) -> list[Suspect]:
    """Each place in contents that stand with their paths."""
    found = (
        Suspect(path, line, rule)
        for path, data in contents
        for line, rule in _places(data[:_LARGEST], redactor)
    )
    return list(dict.fromkeys(found))


def _places(data: bytes, redactor: Redactor) -> Iterator[tuple[int, str]]:
    masked, _ = redactor.redact_bytes(data)
    if masked == data:
        return
    at, line, known = 0, 1, set()
    for start, _, _, rule, _ in redactor.spans(data):
        line += data.count(b"\n", at, start)
        at = start
        if (line, rule) not in known:
            known.add((line, rule))
            yield line, rule
    if not known:  # a block of several lines
        yield _first_difference(data, masked), "private-key"


def _first_difference(data: bytes, masked: bytes) -> int:
    at = next((n for n, (a, b) in enumerate(zip(data, masked, strict=False)) if a != b), 0)
    return data.count(b"\n", 0, at) + 1
