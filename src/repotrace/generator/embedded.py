"""Functions that run here and, copied as they are, in generated tests.

Written for Python 3.8 and for a width of 88, since they end up in projects of others. Each
one uses nothing but its arguments and the modules imported here.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import os
import re
from collections.abc import Iterable
from typing import BinaryIO
from urllib.parse import quote


def replaced(text: str, folders: Iterable[tuple[str, str]]) -> str:
    """`text` with other names for folders, wherever their paths stand in it."""
    folders = [folder for folder in folders if folder[0].strip("/")]
    before = r"(?:(?<![A-Za-z0-9_.+~%/-])|(?<=file://)|(?<=\\[nrt])|(?<=-[IL]))"
    after = r"(?![A-Za-z0-9_+@~%-]|\.[A-Za-z0-9_])"
    for path, name in sorted(folders, key=lambda folder: -len(folder[0])):
        for form in {path: 0, quote(os.fsencode(path)): 0, path.replace("/", "\\/"): 0}:
            pattern = before + re.escape(form) + after
            text = re.sub(pattern, name.replace("\\", "\\\\"), text)
    return text


def hidden(text: str, expected: str) -> str:
    """`expected` if `text` is the same but for what is redacted there, else `text`."""
    lines, found = expected.split("\n"), text.split("\n")
    if "[REDACTED:private-key]" in expected:
        lines, found = [expected], [text]
    if len(lines) != len(found):
        return text
    for number, line in enumerate(lines):
        other = found[number]
        first, *rest = re.split(r"\[REDACTED:[A-Za-z0-9_-]+\]", line)
        if not other.startswith(first) or (not rest and other != first):
            return text
        end = len(first)
        for part in rest[:-1]:
            start = other.find(part, end + 1)
            if start < 0:
                return text
            end = start + len(part)
        if rest and not (other.endswith(rest[-1]) and len(other) - len(rest[-1]) > end):
            return text
    return expected


def shortened(file: BinaryIO, first: int, last: int, *, whole: bool) -> bytes:
    """The first and the last lines of a long output; `whole`: and the digest of all."""
    file.seek(0)
    start = b"".join(itertools.islice(file, first))
    end = b"".join(collections.deque(file, last))
    middle = b"[...]\n"
    if whole:
        file.seek(0)
        digest = hashlib.sha256()
        for piece in iter(lambda: file.read(65536), b""):
            digest.update(piece)
        middle = b"[... SHA-256 of all: %s]\n" % digest.hexdigest().encode()
    return start + middle + end
