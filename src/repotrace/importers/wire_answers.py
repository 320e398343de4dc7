"""What a model answered: words, calls of tools, tokens, in one form for all providers.

The SDK reads what it is told of here, too, so nothing here may load the records. Names of fields:
https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/messages,
https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from repotrace.importers.values import number, parts_text, text_of
from repotrace.importers.wire_streams import Payloads, whole

type Record = dict[str, Any]

PROVIDERS = {
    "chat": "openai",
    "responses": "openai",
    "messages": "anthropic",
    "gemini": "google",
}
"""Whose form of requests and answers each is; others speak it, too."""


class ToolCall(NamedTuple):
    """A call of a tool that an answer asks for."""

    id: str
    """Empty where the provider gives none."""
    name: str
    arguments: Any
    done: bool = False
    """The provider itself carried it out."""


class Answer(NamedTuple):
    """A response of a model."""

    id: str | None
    model: str | None
    parts: list[Record]
    """As `events.Part`."""
    calls: list[ToolCall]
    tokens: dict[str, int | None]
    stop_reason: str | None
    complete: bool
    error: str | None = None
    """What the provider says is wrong."""

    @property
    def text(self) -> str:
        return "\n\n".join(p["text"] for p in self.parts if p["type"] == "text" and p["text"])

    @property
    def thoughts(self) -> str:
        return "\n\n".join(p["text"] for p in self.parts if p["type"] == "thinking" and p["text"])


def answer_of(api: str, found: Payloads) -> Answer:
    """The answer in a response. Raises `building.MALFORMED` or RecursionError if it is none."""
    response, complete = whole(api, found)
    answer = _READERS[api](response)
    return answer._replace(complete=complete, error=error_of(response))


def error_of(response: Any) -> str | None:
    """What a body says is wrong."""
    if isinstance(response, list):
        response = response[0] if response else None
    error = response.get("error") if isinstance(response, dict) else None
    if not error:
        return None
    if isinstance(error, dict):
        return text_of(error.get("message") or error.get("type") or error)
    return text_of(error)


def decoded(text: Any) -> Any:
    """Arguments, which some providers send as JSON within JSON."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def called(call: ToolCall) -> Record:
    """A call as a part of a message."""
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _total(*counts: Any) -> int | None:
    known = [count for count in map(number, counts) if count is not None]
    return sum(known) if known else None


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# --- Chat Completions -----------------------------------------------------------------------


def chat_parts(message: Record) -> tuple[list[Record], list[ToolCall]]:
    """The parts of a message of an assistant, and the calls among them."""
    parts: list[Record] = []
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thoughts, str):
        parts.append({"type": "thinking", "text": thoughts})
    text = parts_text(message.get("content"), ("text", "output_text", "refusal"))
    text = text or text_of(message.get("refusal"))
    if text:
        parts.append({"type": "text", "text": text})
    calls = []
    for call in message.get("tool_calls") or ():
        told = call.get("function") or call.get("custom") or {}
        given = decoded(told.get("arguments", told.get("input")))
        calls.append(ToolCall(text_of(call.get("id")), text_of(told.get("name")), given))
    return [*parts, *map(called, calls)], calls


def _chat(response: Record) -> Answer:
    choices = response.get("choices") or []
    choice: Record = choices[0] if choices else {}
    parts, calls = chat_parts(choice.get("message") or {})
    usage = response.get("usage") or {}
    told = usage.get("prompt_tokens_details") or {}
    detail = usage.get("completion_tokens_details") or {}
    tokens = {
        "input_tokens": number(usage.get("prompt_tokens")),
        "output_tokens": number(usage.get("completion_tokens")),
        "cache_read_tokens": number(told.get("cached_tokens")),
        "reasoning_tokens": number(detail.get("reasoning_tokens")),
    }
    reason = _name(choice.get("finish_reason"))
    return Answer(
        _name(response.get("id")), _name(response.get("model")), parts, calls, tokens, reason, True
    )


# --- Responses ------------------------------------------------------------------------------


def item_parts(item: Record) -> tuple[list[Record], list[ToolCall]]:
    """The parts of an item that a model made, and the calls among them."""
    kind = text_of(item.get("type")) or "message"
    if kind == "message":
        text = parts_text(item.get("content"), ("output_text", "text", "refusal"))
        return [{"type": "text", "text": text}], []
    if kind == "reasoning":
        text = parts_text(item.get("summary"), ("summary_text",))
        text = text or parts_text(item.get("content"), ("reasoning_text", "text"))
        return ([{"type": "thinking", "text": text}] if text else []), []
    if kind.endswith("_call"):
        name, given = call_of(item, kind)
        call_id = text_of(item.get("call_id") or item.get("id"))
        # What has an id of an item alone is carried out by the provider.
        call = ToolCall(call_id, name, given, done=item.get("call_id") is None)
        return [called(call)], [call]
    return [{"type": "unknown", "raw": item}], []


def call_of(item: Record, kind: str) -> tuple[str, Any]:
    """Name and arguments of a call, from an item of the kind."""
    if kind == "local_shell_call":
        action = item.get("action")
        return "local_shell", action if isinstance(action, dict) else {}
    if kind in ("web_search_call", "tool_search_call", "image_generation_call"):
        given = item.get("action") or item.get("arguments") or {}
        return kind.removesuffix("_call"), given
    name = text_of(item.get("name")) or kind
    if kind == "custom_tool_call":
        given = item.get("input")
        known = decoded(given) if name != "apply_patch" else None
        return name, known if isinstance(known, dict) else {"input": given}
    arguments = decoded(item.get("arguments"))
    if name == "apply_patch" and isinstance(arguments, dict) and "input" not in arguments:
        return name, {"input": arguments.get("patch"), **arguments}
    return name, arguments


def _responses(response: Record) -> Answer:
    parts: list[Record] = []
    calls: list[ToolCall] = []
    for item in response.get("output") or ():
        more, asked = item_parts(item)
        parts += more
        calls += asked
    usage = response.get("usage") or {}
    told = usage.get("input_tokens_details") or {}
    detail = usage.get("output_tokens_details") or {}
    tokens = {
        "input_tokens": number(usage.get("input_tokens")),
        "output_tokens": number(usage.get("output_tokens")),
        "cache_read_tokens": number(told.get("cached_tokens")),
        "cache_write_tokens": number(told.get("cache_write_tokens")),
        "reasoning_tokens": number(detail.get("reasoning_tokens")),
    }
    reason = _name((response.get("incomplete_details") or {}).get("reason"))
    reason = reason or _name(response.get("status"))
    return Answer(
        _name(response.get("id")), _name(response.get("model")), parts, calls, tokens, reason, True
    )


# --- Messages -------------------------------------------------------------------------------


def block_part(block: Record) -> tuple[Record, ToolCall | None]:
    """A block of an assistant as a part, and the call that it is."""
    kind = block.get("type")
    if kind == "text":
        return {"type": "text", "text": text_of(block.get("text"))}, None
    if kind in ("thinking", "redacted_thinking"):
        return {"type": "thinking", "text": text_of(block.get("thinking"))}, None
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        call = ToolCall(
            text_of(block.get("id")),
            text_of(block.get("name")),
            block.get("input"),
            kind != "tool_use",
        )
        return called(call), call
    return {"type": "unknown", "raw": block}, None


def _of_parts(
    found: list[tuple[Record, ToolCall | None]],
    tokens: dict[str, int | None],
    *,
    response_id: Any,
    model: Any,
    stop_reason: Any,
) -> Answer:
    """A whole answer of parts, each with the call that it is."""
    parts = [part for part, _ in found]
    calls = [call for _, call in found if call is not None]
    names = (_name(response_id), _name(model))
    return Answer(*names, parts, calls, tokens, _name(stop_reason), True)


def _messages(response: Record) -> Answer:
    found = [block_part(block) for block in response.get("content") or ()]
    usage = response.get("usage") or {}
    read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    tokens = {
        # Anthropic counts what came from a cache, or went there, apart.
        "input_tokens": _total(usage.get("input_tokens"), read, written),
        "output_tokens": number(usage.get("output_tokens")),
        "cache_read_tokens": number(read),
        "cache_write_tokens": number(written),
    }
    return _of_parts(
        found,
        tokens,
        response_id=response.get("id"),
        model=response.get("model"),
        stop_reason=response.get("stop_reason"),
    )


# --- Gemini ---------------------------------------------------------------------------------


def gemini_part(part: Record) -> tuple[Record, ToolCall | None]:
    """A part of a model as ours, and the call that it is."""
    asked = _either(part, "functionCall", "function_call")
    if isinstance(asked, dict):
        call = ToolCall(
            text_of(asked.get("id")), text_of(asked.get("name")), asked.get("args") or {}
        )
        return called(call), call
    if isinstance(part.get("text"), str):
        return {"type": "thinking" if part.get("thought") else "text", "text": part["text"]}, None
    return {"type": "unknown", "raw": part}, None


def _either(record: Record, wire: str, sdk: str) -> Any:
    """A field, which the provider's SDK gives another name."""
    return record[wire] if record.get(wire) is not None else record.get(sdk)


def _gemini(response: Record) -> Answer:
    candidates = response.get("candidates") or []
    candidate: Record = candidates[0] if candidates else {}
    content = candidate.get("content") or {}
    found = [gemini_part(part) for part in content.get("parts") or ()]
    usage = _either(response, "usageMetadata", "usage_metadata") or {}
    thoughts = _either(usage, "thoughtsTokenCount", "thoughts_token_count")
    answered = _either(usage, "candidatesTokenCount", "candidates_token_count")
    cached = _either(usage, "cachedContentTokenCount", "cached_content_token_count")
    tokens = {
        "input_tokens": number(_either(usage, "promptTokenCount", "prompt_token_count")),
        # Gemini counts its thoughts apart from the answer.
        "output_tokens": _total(answered, thoughts),
        "cache_read_tokens": number(cached),
        "reasoning_tokens": number(thoughts),
    }
    reason = _either(candidate, "finishReason", "finish_reason")
    return _of_parts(
        found,
        tokens,
        response_id=_either(response, "responseId", "response_id"),
        model=_either(response, "modelVersion", "model_version"),
        stop_reason=getattr(reason, "value", reason),
    )


_READERS: dict[str, Callable[[Record], Answer]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
