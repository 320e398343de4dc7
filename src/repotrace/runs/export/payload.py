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
_FOUND = re.compile(rf"^[>\s]*{MARK}\s*$(?P<body>(?:\n[>\t ]*[A-Za-z0-9+/=]*[\t ]*\r?$)+)", re.M)


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


def payload_in(text: str, name: str) -> bytes:
    """The JSON of the report in a page of Markdown, also in one that was quoted.

    Raises ImportFailed.
    """
    found = _FOUND.search(text)
    if found is None:
        raise ImportFailed(f"{name} holds no report that could be made of it.")
    packed = re.sub(r"[>\s]", "", found["body"])
    try:
        unpacking = zlib.decompressobj()
        plain = unpacking.decompress(base64.b64decode(packed, validate=True), _UNPACKED)
    except (binascii.Error, zlib.error) as error:
        raise ImportFailed(f"The report in {name} is damaged: {error}.") from error
    if not unpacking.eof:
        larger = bool(unpacking.unconsumed_tail)
        raise ImportFailed(f"The report in {name} is {'too large' if larger else 'cut off'}.")
    return plain
