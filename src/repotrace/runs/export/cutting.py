"""Long texts cut, for an export that is to stay small. What others refer to stays whole."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from repotrace.records.base import decode_bytes, encode_bytes

_CONTENTS = ("content_before", "content_after")
_STREAMS = ("stdout", "stderr")
_TEXTS = frozenset(
    {
        *("task", "error", "prompt", "response", "messages", "response_message", "tools"),
        *("parameters", "attributes", "description", "input_context", "output_result", "metadata"),
        *("reason", "state_reason", "message", "details", "data", "stdin", "note", "notes"),
    }
)
"""Fields with texts: these, and what is below them, may be cut. Any other is a name or a time."""
_NAMES = frozenset({"id", "role", "type", "name", "tool_call_id", "tool_use_id", "call_id"})
"""Fields of messages that others refer to."""


def within(value: Any, limit: int) -> Any:
    """The plain value with longer texts cut, and longer contents of files left out."""
    if isinstance(value, dict):
        return _without_odd_chunks({key: _field(key, item, limit) for key, item in value.items()})
    return [within(item, limit) for item in value] if isinstance(value, list) else value


def cut(text: str, limit: int) -> str:
    """The text, or the beginning and the end of one that has more bytes than `limit`."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text
    head, tail = data[: limit * 3 // 4], data[len(data) - limit // 4 :]
    left_out = len(data) - len(head) - len(tail)
    ends = (head.decode("utf-8", "ignore"), tail.decode("utf-8", "ignore"))
    return f"{ends[0]}\n[… {left_out} bytes are left out …]\n{ends[1]}"


def _field(key: str, value: Any, limit: int) -> Any:
    if key in _CONTENTS:
        return None if _size(value) > limit else value
    if key in _STREAMS and isinstance(value, dict) and "head" in value:
        return _stream(value, limit)
    return _text(value, limit) if key in _TEXTS else within(value, limit)


def _text(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return cut(value, limit)
    if isinstance(value, list):
        return [_text(item, limit) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"base64"}:
        return value if _size(value) <= limit else cut(_shown(value), limit)
    return {
        key: item if key in _NAMES and isinstance(item, str) else _text(item, limit)
        for key, item in value.items()
    }


def _stream(stream: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """An output of a command with less of it; it says itself how much was omitted."""
    head, tail = decode_bytes(stream["head"]), decode_bytes(stream["tail"])
    if len(head) + len(tail) <= limit:
        return dict(stream)
    first = _whole_characters(head[: limit * 3 // 4])
    last = (tail or head[len(first) :])[-(limit // 4) :] if limit >= 4 else b""
    last = last.lstrip(bytes(range(0x80, 0xC0)))
    omitted = stream["omitted"] + len(head) + len(tail) - len(first) - len(last)
    ends = {"head": encode_bytes(first), "tail": encode_bytes(last)}
    return {**stream, **ends, "omitted": omitted}


def _whole_characters(data: bytes) -> bytes:
    """The beginning without a character that is cut at its end; what is no text as it is."""
    for less in range(4):
        shorter = data[: len(data) - less]
        with suppress(UnicodeDecodeError):
            shorter.decode()
            return shorter
    return data


def _without_odd_chunks(fields: dict[str, Any]) -> dict[str, Any]:
    """A command without the moments of output that it does not have any more."""
    streams = [stream for name in _STREAMS if isinstance(stream := fields.get(name), dict)]
    if "chunks" in fields and any(stream.get("omitted") for stream in streams):
        return {**fields, "chunks": []}
    return fields


def _size(content: Any) -> int:
    if isinstance(content, dict):
        return len(str(content.get("base64"))) * 3 // 4
    return len(str(content or "").encode("utf-8", "surrogatepass"))


def _shown(packed: Mapping[str, Any]) -> str:
    return decode_bytes(packed).decode("utf-8", "replace")
