"""What a model was asked: the messages of a request, in one form for all providers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from repotrace.importers.codex_results import output_text
from repotrace.importers.values import parts_text, text_of
from repotrace.importers.wire_answers import (
    ToolCall,
    block_part,
    called,
    chat_parts,
    gemini_part,
    item_parts,
)

type Record = dict[str, Any]

_APIS = (
    (re.compile(r"/chat/completions$"), "chat"),
    (re.compile(r"/responses$"), "responses"),
    (re.compile(r"/messages$"), "messages"),
    (re.compile(r":(?:stream)?[gG]enerateContent$"), "gemini"),
)
_SESSION_HEADERS = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id")
_THREAD_HEADERS = ("thread-id", "thread_id", "conversation_id")
_NO_PARAMETERS = frozenset(
    [
        *("messages", "input", "contents", "system", "instructions", "systemInstruction", "tools"),
        *("model", "stream", "stream_options", "metadata", "client_metadata", "include", "user"),
        *("prompt_cache_key", "previous_response_id", "safety_identifier", "type", "generate"),
    ]
)


def api_of(method: str, path: str) -> str | None:
    """The form of a request to a model; None for any other."""
    if method not in ("POST", "WEBSOCKET"):
        return None
    return next((name for pattern, name in _APIS if pattern.search(path)), None)


@dataclass(slots=True)
class Told:
    """The result of a tool that a request carries."""

    id: str
    text: str
    failed: bool = False
    raw: Any = None
    """As the agent sent it."""


@dataclass(slots=True)
class Ask:
    """A request to a model."""

    api: str
    model: str = ""
    messages: list[Record] = field(default_factory=list)
    """As `events.Message`."""
    tools: list[Record] = field(default_factory=list)
    parameters: Record = field(default_factory=dict)
    session: str = ""
    """Of the agent; several conversations may share one."""
    thread: str = ""
    """Of the conversation, where the agent names it."""
    previous: str = ""
    """The response that this one follows, where the provider keeps the conversation."""
    wants_json: bool = False
    """The form of the answer is prescribed."""
    results: list[Told] = field(default_factory=list)
    warms_up: bool = False
    """No answer is wanted."""
    unnamed: int = 0
    """Calls without an id among the messages."""
    prefixes: bool = False
    """The agent itself calls a call by its tool and its id."""

    @property
    def tool_names(self) -> list[str]:
        found = []
        for tool in self.tools:
            inner = tool.get("function")
            inner = inner if isinstance(inner, dict) else {}
            found.append(text_of(inner.get("name") or tool.get("name") or tool.get("type")))
        return found

    @property
    def system(self) -> str:
        return "\n".join(
            parts_text(m.get("content")) for m in self.messages if m.get("role") == "system"
        )


def ask_of(api: str, path: str, headers: Mapping[str, str], body: Any) -> Ask:
    """What a request asks. Raises `building.MALFORMED` or RecursionError if it is none."""
    if not isinstance(body, dict):
        raise ValueError("no request")
    ask = _READERS[api](body)
    ask.model = text_of(body.get("model")) or path.rpartition("/")[2].partition(":")[0]
    ask.parameters = {key: value for key, value in body.items() if key not in _NO_PARAMETERS}
    ask.previous = text_of(body.get("previous_response_id"))
    ask.warms_up = body.get("generate") is False
    ask.session = _session(headers, body)
    if headers.get("user-agent", "").startswith("GeminiCLI"):
        ask.prefixes = True
        _prefix(ask)
    ask.thread = next((headers[name] for name in _THREAD_HEADERS if headers.get(name)), "")
    return ask


def _session(headers: Mapping[str, str], body: Record) -> str:
    for name in _SESSION_HEADERS:
        if headers.get(name):
            return headers[name]
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    if isinstance(user, str):
        match = re.search(r'session_(?:id"?\s*:\s*")?([0-9a-f-]{36})', user)
        if match:
            return match[1]
    key = body.get("prompt_cache_key")
    return key if isinstance(key, str) else ""


def prefixed(name: str, tool: str) -> str:
    """The id of a call as Gemini CLI writes it down."""
    return name if name.startswith("#") else f"{tool}__{name}"


def _prefix(ask: Ask) -> None:
    own: dict[str, str] = {}
    for message in ask.messages:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "tool_call":
                given = part["id"]
                own[given] = part["id"] = prefixed(given, part["name"])
            elif part["type"] == "tool_result":
                part["id"] = own.get(part["id"], part["id"])
    for told in ask.results:
        told.id = own.get(told.id, told.id)


class _Conversation:
    """Puts messages in order: what an assistant said in several items is one message."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._calls: list[str] = []
        self._answered = 0

    def system(self, content: Any, kinds: tuple[str, ...] = ("text", "input_text")) -> None:
        text = parts_text(content, kinds)
        if text:
            self._ask.messages.append({"role": "system", "content": text})

    def user(self, parts: list[Record], role: str = "user") -> None:
        if parts:
            self._ask.messages.append({"role": role, "content": parts})

    def assistant(self, parts: list[Record], calls: list[ToolCall]) -> None:
        named = [self._named(call) for call in calls]
        parts = [part for part in parts if part["type"] != "tool_call"] + list(map(called, named))
        messages = self._ask.messages
        if messages and messages[-1]["role"] == "assistant":
            messages[-1]["content"] += parts
        elif parts:
            messages.append({"role": "assistant", "content": parts})

    def _named(self, call: ToolCall) -> ToolCall:
        if not call.id:
            call = call._replace(id=unnamed(self._ask.unnamed))
            self._ask.unnamed += 1
        if not call.done:
            self._calls.append(call.id)
        return call

    def results(self, told: list[Told]) -> None:
        """Results, in the order of their calls: agents send those of calls that ran side by side
        in any."""
        for one in told:
            if not one.id:
                one.id = unnamed(self._answered)
                self._answered += 1
        order = {name: place for place, name in enumerate(self._calls)}
        for one in sorted(told, key=lambda one: order.get(one.id, len(order))):
            part: Record = {"type": "tool_result", "id": one.id, "content": one.text}
            if one.failed:
                part["is_error"] = True
            self._ask.messages.append({"role": "tool", "content": [part]})
            self._ask.results.append(one)


def unnamed(place: int) -> str:
    """The id of a call that was given none: which one it is in its conversation."""
    return f"#{place}"


# --- Chat Completions -----------------------------------------------------------------------


def _chat(body: Record) -> Ask:
    ask = Ask("chat", tools=_objects(body.get("tools") or body.get("functions")))
    ask.wants_json = isinstance(body.get("response_format"), dict)
    talk = _Conversation(ask)
    for message in body["messages"]:
        role = message.get("role")
        if role in ("system", "developer"):
            talk.system(message.get("content"))
        elif role == "assistant":
            talk.assistant(*chat_parts(message))
        elif role in ("tool", "function"):
            text = parts_text(message.get("content"))
            talk.results([Told(text_of(message.get("tool_call_id")), text, raw=message)])
        else:
            talk.user(_parts(message.get("content")))
    return ask


# --- Responses ------------------------------------------------------------------------------


def _responses(body: Record) -> Ask:
    ask = Ask("responses", tools=_objects(body.get("tools")))
    form = (body.get("text") or {}).get("format")
    ask.wants_json = isinstance(form, dict) and form.get("type") not in (None, "text")
    talk = _Conversation(ask)
    talk.system(body.get("instructions"))
    items = body.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    for item in items or ():
        kind, role = text_of(item.get("type")) or "message", item.get("role")
        if kind.endswith("_output"):
            output = item.get("output", item.get("tools"))
            talk.results([Told(text_of(item.get("call_id")), output_text(output), raw=item)])
        elif kind == "message" and role in ("system", "developer"):
            talk.system(item.get("content"))
        elif kind == "message" and role != "assistant":
            talk.user(_parts(item.get("content")))
        elif kind not in ("item_reference", "compaction"):
            talk.assistant(*item_parts(item))
    return ask


# --- Messages -------------------------------------------------------------------------------


def _messages(body: Record) -> Ask:
    ask = Ask("messages", tools=_objects(body.get("tools")))
    form = (body.get("output_config") or {}).get("format") or body.get("output_format")
    ask.wants_json = isinstance(form, dict)
    talk = _Conversation(ask)
    talk.system(body.get("system"))
    for message in body["messages"]:
        role, content = message.get("role"), message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        if role == "system":
            talk.system(content)
        elif role == "assistant":
            found = [block_part(block) for block in blocks]
            calls = [call for _, call in found if call is not None]
            talk.assistant([part for part, _ in found], calls)
        else:
            results = [block for block in blocks if block.get("type") == "tool_result"]
            talk.results(
                [
                    Told(
                        text_of(block.get("tool_use_id")),
                        parts_text(block.get("content")),
                        block.get("is_error") is True,
                        block,
                    )
                    for block in results
                ]
            )
            talk.user(_parts([block for block in blocks if block not in results]))
    return ask


# --- Gemini ---------------------------------------------------------------------------------


def _gemini(body: Record) -> Ask:
    declared = [
        tool for group in _objects(body.get("tools")) for tool in _objects(_declared(group))
    ]
    ask = Ask("gemini", tools=declared)
    config = body.get("generationConfig") or {}
    ask.wants_json = any(key in config for key in ("responseJsonSchema", "responseSchema"))
    talk = _Conversation(ask)
    instruction = body.get("systemInstruction") or body.get("system_instruction") or {}
    talk.system(instruction.get("parts"))
    for content in body["contents"]:
        parts = _objects(content.get("parts"))
        if content.get("role") == "model":
            found = [gemini_part(part) for part in parts]
            calls = [call for _, call in found if call is not None]
            talk.assistant([part for part, _ in found], calls)
            continue
        told = [part["functionResponse"] for part in parts if "functionResponse" in part]
        talk.results(
            [
                Told(
                    text_of(one.get("id")),
                    _response_text(one.get("response")),
                    isinstance(one.get("response"), dict) and "error" in one["response"],
                    one,
                )
                for one in told
            ]
        )
        talk.user(_parts([part for part in parts if "functionResponse" not in part]))
    return ask


def _declared(group: Record) -> Any:
    return group.get("functionDeclarations") or group.get("function_declarations") or [group]


def _response_text(response: Any) -> str:
    if not isinstance(response, dict):
        return text_of(response)
    return text_of(response.get("output", response.get("error", response)))


# --- Parts ----------------------------------------------------------------------------------


def _objects(value: Any) -> list[Record]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _parts(content: Any) -> list[Record]:
    """What a user said, as parts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    found: list[Record] = []
    for part in content if isinstance(content, list) else []:
        if isinstance(part, str):
            found.append({"type": "text", "text": part})
        elif isinstance(part.get("text"), str):
            found.append({"type": "text", "text": part["text"]})
        else:
            found.append(_other(part))
    return found


def _other(part: Record) -> Record:
    kind = text_of(part.get("type"))
    inline = part.get("inlineData")
    if "image" in kind or isinstance(inline, dict):
        source = part.get("source") or inline or {}
        media = source.get("media_type") or source.get("mimeType")
        return {"type": "image", **({"media_type": media} if isinstance(media, str) else {})}
    text = json.dumps(part, ensure_ascii=False, default=str)
    # A document or a sound in base64 is no use to a reader.
    return {"type": "unknown", "raw": part if len(text) < 10_000 else f"[{len(text)} characters]"}


_READERS: dict[str, Callable[[Record], Ask]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "gemini": _gemini,
}
