"""A report inside of its own Markdown: folded away, and made a report again by `import`."""

from __future__ import annotations

import base64
import binascii
import json
import re
import textwrap
import zlib

from repotrace.errors import ImportFailed
from repotrace.records.bug import BugReport

MARK = "repotrace-report-1"
"""The line before the payload."""

LIMIT = 40_000
"""Characters of a payload, at most: an issue takes 65,536 in all."""

_UNPACKED = 64 << 20
_WIDTH = 100
_BEFORE = r"(?:^[>\t ]*+|[>\"'])"
"""What may stand before the mark: signs of a quotation, or the end of a tag or of a key."""
_LINE = r"[>\t ]*+[A-Za-z0-9+/=]++[\t ]*+\r?(?:\n|\Z|(?=[<\"]))"
_FOUND = re.compile(rf"{_BEFORE}{MARK}[\t ]*+\r?\n(?P<body>(?:{_LINE})+)", re.M)


def payload_lines(report: BugReport) -> list[str]:
    """Lines of Markdown that hold the report; none if it is too large."""
    plain = json.dumps(report.model_dump(mode="json"), separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(plain.encode(), 9)).decode()
    if len(packed) > LIMIT:
        return []
    return [
        "<details>",
        "<summary>The report itself; save this page as FILE.md, then: repotrace import FILE.md"
        "</summary>",
        "",
        "```text",
        MARK,
        *textwrap.wrap(packed, _WIDTH),
        "```",
        "",
        "</details>",
    ]


def payloads_in(text: str, name: str) -> list[bytes]:
    """The JSON of each different report in a page, also in one that was quoted, rendered as HTML,
    or made a string of JSON.

    What cannot be read is left out beside what can. Raises ImportFailed if there is none.
    """
    found: dict[bytes, None] = {}
    failures: list[ImportFailed] = []
    for packed in _packed(text):
        try:
            found[_unpacked(packed, name)] = None
        except ImportFailed as error:
            failures.append(error)
    if not found:
        none = ImportFailed(f"{name} holds no report that could be made of it.")
        raise failures[0] if failures else none
    return list(found)


def _packed(text: str) -> list[str]:
    plain = [match["body"] for match in _FOUND.finditer(text)]
    escaped = re.sub(r"(?:\\r)?\\n|&#(?:10|xA|xa);", "\n", text) if not plain else ""
    bodies = plain or [match["body"] for match in _FOUND.finditer(escaped)]
    return list(dict.fromkeys(re.sub(r"[>\s]", "", body) for body in bodies))


def _unpacked(packed: str, name: str) -> bytes:
    try:
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(base64.b64decode(packed, validate=True), _UNPACKED)
    except (binascii.Error, zlib.error) as error:
        raise ImportFailed(f"The report in {name} is damaged or cut off.") from error
    if not unpacking.eof:
        larger = bool(unpacking.unconsumed_tail)
        raise ImportFailed(f"The report in {name} is {'too large' if larger else 'cut off'}.")
    return plain
