"""The messages of Inspect: what they say, the calls in them, the tokens that they took."""

from __future__ import annotations

import json
from typing import Any

from repotrace.importers.building import number, parts_text, text_of

type Record = dict[str, Any]


def arguments_of(call: Record) -> Any:
    """The arguments of a call; code of Python as the command that runs it."""
    given = call.get("arguments")
    name = call.get("function")
    if name == "python" and isinstance(given, dict) and isinstance(given.get("code"), str):
        return {"command": f"python3 - <<'EOF'\n{given['code']}\nEOF"}
    return given


def calls_of(message: Record) -> list[Record]:
    """The calls of tools in an answer."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def words_of(message: Record) -> str:
    """What a message says; its reasoning where it says nothing."""
    content = message.get("content")
    said = parts_text(content)
    if said or not isinstance(content, list):
        return said
    return "\n\n".join(
        text_of(part.get("reasoning"))
        for part in content
        if isinstance(part, dict) and part.get("type") == "reasoning"
    )


def name_of(message: Record) -> str:
    """What tells a message from others: its id, or else all of it."""
    name = message.get("id")
    return name if isinstance(name, str) else json.dumps(message, sort_keys=True, default=str)


def shaped_message(message: Record) -> Record:
    """A message in the words of `events.Message`."""
    content = message.get("content")
    role = str(message.get("role") or "user")
    if role == "tool":
        told: Record = {"type": "tool_result", "id": message.get("tool_call_id")}
        told["content"] = parts_text(content)
        return {"role": role, "content": [told | ({"is_error": True} if _failed(message) else {})]}
    parts = [_part(part) for part in (content if isinstance(content, list) else [content])]
    for call in calls_of(message):
        shaped = {"type": "tool_call", "id": call.get("id"), "name": call.get("function")}
        parts.append(shaped | {"arguments": call.get("arguments")})
    return {"role": role, "content": [part for part in parts if part != _EMPTY]}


_EMPTY: Record = {"type": "text", "text": ""}


def _failed(message: Record) -> bool:
    return isinstance(message.get("error"), dict)


def _part(part: Any) -> Record:
    if not isinstance(part, dict):
        return {"type": "text", "text": text_of(part)}
    kind = part.get("type")
    if kind == "reasoning":
        return {"type": "thinking", "text": text_of(part.get("reasoning"))}
    if kind == "image":
        return {"type": "image"}
    return {"type": "text", "text": text_of(part.get("text"))}


def tokens_of(usage: Any) -> dict[str, Any]:
    """The tokens of a call; whether cached ones are among those of the input, the total tells."""
    told = usage if isinstance(usage, dict) else {}
    names = ("input_tokens", "output_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    sent, received, hit, written = (number(told.get(name)) for name in names)
    total = number(told.get("total_tokens"))
    if sent is not None and total != sent + (received or 0):
        sent += (hit or 0) + (written or 0)
    return {
        "input_tokens": sent,
        "output_tokens": received,
        "cache_read_tokens": hit,
        "cache_write_tokens": written,
        "reasoning_tokens": number(told.get("reasoning_tokens")),
    }
