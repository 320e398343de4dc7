"""Responses of providers, plain or as streams, put together to what the plain one would be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

type Record = dict[str, Any]


class Payloads(NamedTuple):
    """The JSON values of a response, in order."""

    values: list[Any]
    broken: int = 0
    """Pieces that are no JSON."""
    streamed: bool = False


def payloads(body: bytes, content_type: str = "") -> Payloads:
    """The values in a body: one, an array of a stream, or those of server-sent events."""
    if content_type.startswith("text/event-stream") or _looks_like_events(body):
        return _events(body)
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        values = list(_cut_array(body))
        return Payloads(values, 1, streamed=bool(values))
    if isinstance(value, list):
        return Payloads(value, streamed=True)
    return Payloads([value])


def _looks_like_events(body: bytes) -> bool:
    return body.lstrip()[:6] in (b"data: ", b"event:") or body.startswith((b"data:", b":"))


def _events(body: bytes) -> Payloads:
    values: list[Any] = []
    broken = 0
    for data in _data_of_events(body.decode("utf-8", "replace")):
        if data.strip() == "[DONE]":
            continue
        try:
            values.append(json.loads(data))
        except (ValueError, RecursionError):
            broken += 1
    return Payloads(values, broken, streamed=True)


def _data_of_events(text: str) -> Iterator[str]:
    """The data of each event, as the HTML standard has it; an event that is not ended is none."""
    lines: list[str] = []
    # Not str.splitlines(): text of models holds other line ends.
    for line in text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            if lines:
                yield "\n".join(lines)
            lines = []
            continue
        name, _, value = line.partition(":")
        if name == "data":
            lines.append(value.removeprefix(" "))
    # Some servers leave out the empty line behind the last event.
    if lines:
        yield "\n".join(lines)


def _cut_array(body: bytes) -> Iterator[Any]:
    """The whole values at the beginning of an array that was cut."""
    text = body.decode("utf-8", "replace").lstrip()
    if not text.startswith("["):
        return
    decoder, at = json.JSONDecoder(), 1
    while True:
        while at < len(text) and text[at] in ", \r\n\t":
            at += 1
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield value


_MARKS = {
    "chat": ("choices",),
    "responses": ("output",),
    "messages": ("content",),
    "gemini": ("candidates", "promptFeedback"),
}
"""What a plain response has at least."""


def whole(api: str, found: Payloads) -> tuple[Record, bool]:
    """The response in the form of the plain one, and whether the stream came to its end.

    Raises ValueError, or what malformed values raise, if it is none.
    """
    values = [value for value in found.values if isinstance(value, dict)]
    if not values:
        raise ValueError("no response")
    if not found.streamed and "type" not in values[0]:
        if not any(name in values[0] for name in ("error", *_MARKS[api])):
            raise ValueError("no response")
        return values[0], not found.broken
    return _JOINERS[api](values)


# --- Chat Completions -----------------------------------------------------------------------


def _chat(values: list[Record]) -> tuple[Record, bool]:
    joined: Record = {}
    message: Record = {"role": "assistant"}
    calls: dict[Any, Record] = {}
    reason = None
    for value in values:
        for name in ("id", "model", "usage", "error", "system_fingerprint"):
            if value.get(name) is not None:
                joined[name] = value[name]
        for choice in value.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            delta = choice.get("delta") or choice.get("message") or {}
            for name, piece in delta.items():
                if isinstance(piece, str) and name != "role":
                    message[name] = message.get(name, "") + piece
            for place, call in enumerate(delta.get("tool_calls") or ()):
                _add_call(calls.setdefault(call.get("index", place), {}), call)
            reason = choice.get("finish_reason") or reason
    if calls:
        message["tool_calls"] = [calls[key] for key in sorted(calls)]
    joined["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
    return joined, reason is not None


def _add_call(call: Record, delta: Record) -> None:
    for name in ("id", "type"):
        if delta.get(name):
            call[name] = delta[name]
    function = call.setdefault("function", {"name": "", "arguments": ""})
    told = delta.get("function") or {}
    if told.get("name"):
        function["name"] = told["name"]
    function["arguments"] += told.get("arguments") or ""


# --- Responses ------------------------------------------------------------------------------

_LAST = ("response.completed", "response.incomplete", "response.failed")


def _responses(values: list[Record]) -> tuple[Record, bool]:
    joined: Record = {}
    items: dict[int, Record] = {}
    for value in values:
        if value.get("object") == "response":
            return value, True
        kind = value.get("type")
        response = value.get("response")
        if isinstance(response, dict):
            joined = response
        if kind in _LAST and isinstance(response, dict):
            # What was sent item by item need not be in the last one.
            listed = response.get("output") or [items[place] for place in sorted(items)]
            return {**response, "output": listed}, True
        if kind == "response.output_item.done":
            items[value["output_index"]] = value["item"]
        elif kind == "error":
            joined = {**joined, "error": value.get("error") or value}
    return {**joined, "output": [items[place] for place in sorted(items)]}, False


# --- Messages -------------------------------------------------------------------------------


def _messages(values: list[Record]) -> tuple[Record, bool]:
    joined: Record = {}
    blocks: dict[int, Record] = {}
    inputs: dict[int, str] = {}
    for value in values:
        kind = value.get("type")
        if kind == "message":
            return value, True
        if kind == "error":
            joined["error"] = value.get("error")
        elif kind == "message_start":
            joined = dict(value["message"])
        elif kind == "content_block_start":
            blocks[value["index"]] = dict(value["content_block"])
        elif kind == "content_block_delta":
            _add_delta(blocks[value["index"]], inputs, value["index"], value["delta"])
        elif kind == "message_delta":
            joined |= {key: told for key, told in value["delta"].items() if told is not None}
            used = value.get("usage")
            if isinstance(used, dict):
                told = {key: count for key, count in used.items() if count is not None}
                joined["usage"] = {**(joined.get("usage") or {}), **told}
        elif kind == "message_stop":
            return _closed(joined, blocks, inputs), True
    return _closed(joined, blocks, inputs), False


def _add_delta(block: Record, inputs: dict[int, str], place: int, delta: Record) -> None:
    kind = delta.get("type")
    if kind == "input_json_delta":
        inputs[place] = inputs.get(place, "") + delta["partial_json"]
    elif kind in ("text_delta", "thinking_delta"):
        name = kind.removesuffix("_delta")
        block[name] = (block.get(name) or "") + delta[name]


def _closed(joined: Record, blocks: dict[int, Record], inputs: dict[int, str]) -> Record:
    for place, text in inputs.items():
        if text:
            try:
                blocks[place]["input"] = json.loads(text)
            except (ValueError, RecursionError):
                blocks[place]["input"] = text
    return {**joined, "type": "message", "content": [blocks[place] for place in sorted(blocks)]}


# --- Gemini ---------------------------------------------------------------------------------


def _gemini(values: list[Record]) -> tuple[Record, bool]:
    joined: Record = {}
    parts: list[Record] = []
    reason = None
    for value in values:
        for name in ("responseId", "modelVersion", "usageMetadata", "error", "promptFeedback"):
            if value.get(name) is not None:
                joined[name] = value[name]
        for candidate in value.get("candidates") or ():
            if candidate.get("index", 0) == 0:
                content = candidate.get("content") or {}
                _join_parts(parts, content.get("parts") or ())
                reason = candidate.get("finishReason") or reason
    content = {"role": "model", "parts": parts}
    joined["candidates"] = [{"index": 0, "content": content, "finishReason": reason}]
    return joined, reason is not None


def _join_parts(parts: list[Record], more: Iterable[Record]) -> None:
    """A text is sent in pieces; what follows a piece of its kind belongs to it."""
    for part in more:
        last = parts[-1] if parts else {}
        same = part.get("thought", False) == last.get("thought", False)
        if isinstance(part.get("text"), str) and isinstance(last.get("text"), str) and same:
            last["text"] += part["text"]
        else:
            parts.append(dict(part))


_JOINERS: dict[str, Callable[[list[Record]], tuple[Record, bool]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
