"""Reading transcripts: lines of JSON, whole JSON files, packed or not."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from repotrace.errors import ImportFailed

type Progress = Callable[[int], None]
"""Is told how many more bytes of the transcript were read."""

_CHUNK = 1 << 20
_SMALL = 1 << 16
"""Bytes that most files of one value have; asking for more than there is costs time."""
LINE_LIMIT = 256 << 20
"""Bytes of a line above which it is counted as broken rather than read."""
WHOLE_LIMIT = 1 << 30
"""Bytes of a file of one JSON value above which it is refused."""
_ZSTD = b"\x28\xb5\x2f\xfd"


class Damage:
    """What could not be read of a transcript."""

    # No dataclass: the SDK loads this package in the programs that it records.
    __slots__ = ("broken", "duplicate", "torn", "unknown")

    def __init__(self) -> None:
        self.broken = 0
        """Lines that are no JSON objects."""
        self.torn = 0
        """1 if the last line is not complete."""
        self.duplicate = 0
        """Records that came twice."""
        self.unknown: dict[str, int] = {}
        """Records of kinds that are not known, by kind."""

    def count(self, kind: str) -> None:
        """Note a record of an unknown kind."""
        kind = kind[:80] if len(self.unknown) < 200 else "more"
        self.unknown[kind] = self.unknown.get(kind, 0) + 1

    def facts(self) -> dict[str, Any]:
        """What is to be told of it, for `attributes`."""
        counts = {"broken": self.broken, "torn": self.torn, "duplicate": self.duplicate}
        found: dict[str, Any] = {name: count for name, count in counts.items() if count}
        if self.unknown:
            found["unknown"] = dict(sorted(self.unknown.items()))
        return found


def ignore(_size: int) -> None:
    """A `Progress` that nobody watches."""


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The file for reading; one packed by zstd is unpacked. Raises ImportFailed."""
    try:
        # Opening a pipe would wait for somebody who writes into it.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ImportFailed(f"{path} is no file.")
        raw = path.open("rb")
    except OSError as error:
        raise ImportFailed(f"{path} cannot be read: {error.strerror}.") from error
    with raw:
        if raw.peek(4)[:4] != _ZSTD:
            yield raw
            return
        zstd = _zstd()
        try:
            with zstd.open(raw, "rb") as stream:
                yield stream
        except zstd.ZstdError as error:
            raise ImportFailed(f"{path} cannot be unpacked: {error}.") from error


def _zstd() -> Any:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def json_lines(
    path: Path, damage: Damage, *, progress: Progress = ignore, marks: Sequence[bytes] = ()
) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one a line; with `marks`, those that hold one of them. What is
    none is counted."""
    with opened(path) as stream:
        try:
            for line, complete in _lines(stream, damage, progress):
                if marks and not any(mark in line for mark in marks):
                    continue
                value = _parsed(line)
                if isinstance(value, dict):
                    yield value
                elif not complete:
                    damage.torn += 1
                else:
                    damage.broken += 1
        except (OSError, EOFError, ValueError) as error:
            raise ImportFailed(f"{path} cannot be read further: {error}.") from error


def _lines(stream: IO[bytes], damage: Damage, progress: Progress) -> Iterator[tuple[bytes, bool]]:
    """The lines that hold anything, and whether a line end follows."""
    pending = bytearray()
    skipping = False
    while chunk := stream.read(_CHUNK):
        progress(len(chunk))
        first, *rest = chunk.split(b"\n")
        if not skipping:
            pending += first
        for line in rest:
            if not skipping and pending.strip():
                yield bytes(pending), True
            skipping = False
            pending = bytearray(line)
        if len(pending) > LINE_LIMIT:
            damage.broken += 1
            skipping = True
            pending.clear()
    if not skipping and pending.strip():
        yield bytes(pending), False


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def whole_json(path: Path, *, progress: Progress = ignore) -> Any:
    """The JSON value that a file holds. Raises ImportFailed."""
    with opened(path) as stream:
        try:
            data = stream.read(_SMALL)
            if len(data) == _SMALL:
                data += stream.read(WHOLE_LIMIT + 1 - _SMALL)
        except (OSError, EOFError, ValueError) as error:
            raise ImportFailed(f"{path} cannot be read: {error}.") from error
    if len(data) > WHOLE_LIMIT:
        raise ImportFailed(f"{path} is too large for one JSON value.")
    progress(len(data))
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImportFailed(f"{path} is no JSON: {error}.") from error


def looks_like_object(head: bytes, *keys: bytes) -> bool:
    """Whether the head of a file begins with a JSON object or array that names all `keys`."""
    begin = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    return begin in (b"{", b"[") and all(b'"' + key + b'"' in head for key in keys)


def first_objects(head: bytes, limit: int = 20) -> Iterator[dict[str, Any]]:
    """The JSON objects in the first lines of a file, as far as `head` reaches."""
    for line in head.split(b"\n")[:limit]:
        value = _parsed(line) if line.strip() else None
        if isinstance(value, dict):
            yield value
