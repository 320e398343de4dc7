"""Values of transcripts, in the forms that providers and agents write them, as ours."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

type Data = dict[str, Any]

_LINE = 120


def operation(path: str, kind: str, **content: Any) -> Data:
    """A claimed change of a path; `content` are fields of `ClaimedContent`, `renamed_from`."""
    return {"file_path": path, "operation_type": kind, **content}


def blob_id(data: bytes) -> str:
    """The object id that git gives to this content."""
    import hashlib

    return hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest()


def one_line(text: str) -> str:
    """The first line that says something, cut where it is long."""
    line = next((part.strip() for part in text.split("\n", 50) if part.strip()), "")
    line = " ".join(line[: 2 * _LINE].split())
    return line if len(line) <= _LINE else line[: _LINE - 1] + "…"


def text_of(value: Any) -> str:
    """A value of a transcript as text."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def script_of(command: Any) -> str:
    """A command as a shell script, be it one or a list of words."""
    if isinstance(command, str):
        return command
    if not isinstance(command, list):
        return ""
    from repotrace.importers import programs

    words = [text_of(word) for word in command]
    if len(words) > 2 and programs.program(words) in programs.SHELLS and words[1] in ("-c", "-lc"):
        return words[2]
    import shlex

    return shlex.join(words)


def parts_text(content: Any, kinds: Iterable[str] = ("text",)) -> str:
    """The text in the parts of a message, in the forms that providers use."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    found = []
    for part in content:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, dict) and str(part.get("type", "text")).lower() in kinds:
            found.append(text_of(part.get("text")))
    return "\n".join(text for text in found if text)


def number(value: Any) -> int | None:
    """A count of a transcript; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < 1 << 53 else None


def moment_of(value: Any) -> int | None:
    """A moment in nanoseconds: ISO 8601 text, or seconds or milliseconds since 1970."""
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
            aware = found if found.tzinfo else found.replace(tzinfo=UTC)
            return int(aware.timestamp() * 1_000_000) * 1000
        except (ValueError, OverflowError, OSError):
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    seconds = value / 1000 if value > 1e11 else value
    return int(seconds * 1_000_000) * 1000 if 0 < seconds < 1e10 else None
