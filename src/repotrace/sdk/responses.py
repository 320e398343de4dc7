"""What the response objects of model providers say, in the words of `records.events.LLMData`.

Known are the objects of the `openai` package (Chat Completions, Responses), of `anthropic`
(Messages) and of `google-genai`, and the same as plain dicts. Anything else says nothing. Field
names: https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api/messages,
https://ai.google.dev/api/generate-content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from repotrace.sdk.values import dumped

type Plain = Mapping[str, Any]


def facts_of(response: object) -> dict[str, Any]:
    """What a provider's response says of the call; empty for anything else. Never raises."""
    try:
        plain = _plain(response)
        if plain is None:
            return {}
        for fits, read in _READERS:
            if fits(plain):
                return {key: value for key, value in read(plain).items() if value is not None}
    except Exception:  # whatever a foreign object does when it is looked at
        return {}
    return {}


def _plain(response: object) -> Plain | None:
    if isinstance(response, Mapping):
        return response
    dump = getattr(response, "model_dump", None)
    found = dumped(dump) if callable(dump) else None
    return found if isinstance(found, Mapping) else None


def _sum(*counts: Any) -> int | None:
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known else None


def _part(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _arguments(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    import json

    try:
        return json.loads(text)
    except ValueError:
        return text


def _message(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "assistant", "content": parts}


def _chat_completion(plain: Plain) -> dict[str, Any]:
    choice = plain["choices"][0] if plain["choices"] else {}
    message, usage = choice.get("message") or {}, plain.get("usage") or {}
    parts: list[dict[str, Any]] = []
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str):
            parts.append({"type": "thinking", "text": message[name]})
            break
    if message.get("content"):
        parts.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        parts.append(
            {
                "type": "tool_call",
                "id": call.get("id"),
                "name": function.get("name"),
                "arguments": _arguments(function.get("arguments")),
            }
        )
    return {
        "provider": "openai",
        "model": plain.get("model"),
        "external_id": plain.get("id"),
        "response": message.get("content"),
        "response_message": _message(parts),
        "stop_reason": choice.get("finish_reason"),
        "input_tokens": usage.get("prompt_tokens"),
        "output_tokens": usage.get("completion_tokens"),
        "cache_read_tokens": _part(usage.get("prompt_tokens_details"), "cached_tokens"),
        "reasoning_tokens": _part(usage.get("completion_tokens_details"), "reasoning_tokens"),
    }


def _responses(plain: Plain) -> dict[str, Any]:
    usage, parts = plain.get("usage") or {}, []
    words: list[str] = []
    for item in plain["output"]:
        kind = item.get("type")
        if kind == "message":
            for piece in item.get("content") or ():
                text = piece.get("text") or piece.get("refusal") or ""
                parts.append({"type": "text", "text": text})
                words.append(text)
        elif kind == "reasoning":
            summary = "\n".join(piece.get("text", "") for piece in item.get("summary") or ())
            parts.append({"type": "thinking", "text": summary})
        elif kind in ("function_call", "custom_tool_call"):
            given = item.get("arguments") if kind == "function_call" else item.get("input")
            parts.append(
                {
                    "type": "tool_call",
                    "id": item.get("call_id"),
                    "name": item.get("name"),
                    "arguments": _arguments(given),
                }
            )
        else:
            parts.append({"type": "unknown", "raw": dict(item)})
    return {
        "provider": "openai",
        "model": plain.get("model"),
        "external_id": plain.get("id"),
        "response": "\n".join(words) or None,
        "response_message": _message(parts),
        "stop_reason": plain.get("status"),
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "cache_read_tokens": _part(usage.get("input_tokens_details"), "cached_tokens"),
        "reasoning_tokens": _part(usage.get("output_tokens_details"), "reasoning_tokens"),
    }


def _anthropic(plain: Plain) -> dict[str, Any]:
    usage, parts = plain.get("usage") or {}, []
    words: list[str] = []
    for block in plain["content"]:
        kind = block.get("type")
        if kind == "text":
            parts.append({"type": "text", "text": block.get("text", "")})
            words.append(block.get("text", ""))
        elif kind == "thinking":
            parts.append({"type": "thinking", "text": block.get("thinking", "")})
        elif kind == "tool_use":
            parts.append(
                {
                    "type": "tool_call",
                    "id": block.get("id"),
                    "name": block.get("name"),
                    "arguments": block.get("input"),
                }
            )
        else:
            parts.append({"type": "unknown", "raw": dict(block)})
    read, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    return {
        "provider": "anthropic",
        "model": plain.get("model"),
        "external_id": plain.get("id"),
        "response": "\n".join(words) or None,
        "response_message": _message(parts),
        "stop_reason": plain.get("stop_reason"),
        # Anthropic counts what came from a cache, or went there, apart.
        "input_tokens": _sum(usage.get("input_tokens"), read, written),
        "output_tokens": usage.get("output_tokens"),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def _gemini(plain: Plain) -> dict[str, Any]:
    usage = plain.get("usage_metadata") or plain.get("usageMetadata") or {}

    def count(snake: str, camel: str) -> Any:
        return usage.get(snake, usage.get(camel))

    candidate = (plain.get("candidates") or [{}])[0]
    words: list[str] = []
    parts: list[dict[str, Any]] = []
    for piece in _part(candidate.get("content"), "parts") or ():
        call = piece.get("function_call") or piece.get("functionCall")
        if call:
            name, given = call.get("name"), call.get("args")
            parts.append(
                {"type": "tool_call", "id": call.get("id"), "name": name, "arguments": given}
            )
        elif piece.get("text"):
            kind = "thinking" if piece.get("thought") else "text"
            parts.append({"type": kind, "text": piece["text"]})
            if kind == "text":
                words.append(piece["text"])
    thoughts = count("thoughts_token_count", "thoughtsTokenCount")
    return {
        "provider": "google",
        "model": plain.get("model_version") or plain.get("modelVersion"),
        "external_id": plain.get("response_id") or plain.get("responseId"),
        "response": "\n".join(words) or None,
        "response_message": _message(parts),
        "stop_reason": _reason(candidate.get("finish_reason") or candidate.get("finishReason")),
        "input_tokens": count("prompt_token_count", "promptTokenCount"),
        # Gemini counts its thoughts apart from the answer.
        "output_tokens": _sum(count("candidates_token_count", "candidatesTokenCount"), thoughts),
        "cache_read_tokens": count("cached_content_token_count", "cachedContentTokenCount"),
        "reasoning_tokens": thoughts,
    }


def _reason(value: Any) -> str | None:
    return None if value is None else str(getattr(value, "value", value))


_READERS: tuple[tuple[Callable[[Plain], bool], Callable[[Plain], dict[str, Any]]], ...] = (
    (lambda plain: isinstance(plain.get("choices"), list), _chat_completion),
    (lambda plain: isinstance(plain.get("output"), list), _responses),
    (
        lambda plain: plain.get("type") == "message" and isinstance(plain.get("content"), list),
        _anthropic,
    ),
    (lambda plain: isinstance(plain.get("candidates"), list), _gemini),
)
