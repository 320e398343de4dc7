"""In what forms the value of a variable may stand in a text."""

from __future__ import annotations

import re
from binascii import b2a_base64
from collections.abc import Iterator

_SHORTEST_LINE = 16
_SHORTEST_BASE64 = 10


def encode(text: str) -> bytes:
    """The bytes of any string, also of one with lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def forms_of(value: str) -> Iterator[bytes]:
    """The ways in which a value may stand in a text."""
    raw = encode(value)
    yield raw
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        yield from (
            encode(line) for line in lines if len(line) >= _SHORTEST_LINE and line[:5] != "-----"
        )
    for offset, skipped in ((0, 0), (1, 2), (2, 3)):
        text = b2a_base64(bytes(offset) + raw, newline=False)
        core = text[skipped : (offset + len(raw)) * 8 // 6]
        for form in (core, text) if not offset else (core,):
            if len(form) >= _SHORTEST_BASE64:
                yield from (form, form.replace(b"+", b"-").replace(b"/", b"_"))
    if value.isalnum() and value.isascii():
        return
    if any("\udc80" <= character <= "\udcff" for character in value):
        yield value.encode("utf-8", "surrogateescape" if _is_escaped(value) else "surrogatepass")
    for safe in (b"-_.~", b"-_.~/", b"-_.~!*'()"):
        percent = b"".join(
            bytes((code,)) if bytes((code,)).isalnum() or code in safe else b"%%%02X" % code
            for code in raw
        )
        yield from (percent, percent.replace(b"%20", b"+"))
        yield re.sub(rb"%..", lambda match: match[0].lower(), percent)
    import json  # only for the values that it would change

    escaped = [json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]]
    escaped += [repr(value)[1:-1], repr(raw)[2:-1], value.replace("'", "'\"'\"'")]
    escaped += [value.replace("'", "'\\''"), json.dumps(escaped[0])[1:-1]]
    yield from map(encode, escaped)


def _is_escaped(value: str) -> bool:
    return not any("\ud800" <= c < "\udc80" or "\udcff" < c <= "\udfff" for c in value)
