"""One request to a provider and what came back, without the keys that went with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its response as they passed. Handed out twice: when the request is complete,
    without a response, and when the response has ended, however it did."""

    id: str
    """The same both times."""
    time: int
    """When the request came, in nanoseconds since 1970."""
    method: str
    path: str
    """As the provider sees it, without the query."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Without values that may be keys."""
    upstream: str = ""
    """Where it was sent: scheme and host."""
    request_headers: Mapping[str, str] = field(default_factory=dict)
    """Those that tell of the agent and its session; see `kept_headers`."""
    request: bytes = b""
    """The body, decoded."""
    status: int | None = None
    """None: there was no response, or none yet."""
    response_headers: Mapping[str, str] = field(default_factory=dict)
    response: bytes = b""
    """The body as far as it came, decoded."""
    first_byte: float | None = None
    """Seconds from the request to the first byte of the response's body."""
    duration: float | None = None
    """Seconds from the request to the end of the response; None while it has none."""
    complete: bool = False
    """The response came to its end."""
    error: str | None = None
    """Why it did not, or why a body could not be kept."""


_KEPT = frozenset(
    [
        *("content-type", "user-agent", "originator", "x-app", "traceparent"),
        *("anthropic-beta", "anthropic-version", "openai-beta", "x-stainless-retry-count"),
        *("session-id", "session_id", "thread-id", "thread_id", "conversation_id"),
        *("x-session-id", "x-session-affinity", "x-openai-subagent", "x-goog-api-client"),
        *("request-id", "x-request-id", "retry-after", "openai-processing-ms"),
    ]
)
_KEPT_BEGINNINGS = ("x-claude-code-", "x-codex-")
_KEYS = frozenset(
    [
        *("authorization", "proxy-authorization", "x-api-key", "x-goog-api-key", "api-key"),
        *("cookie", "x-auth-token", "x-amz-security-token", "ocp-apim-subscription-key"),
    ]
)
_LEAST_KEY = 16
"""Characters of a key; a shorter value may be a word that stands for none."""
_KEPT_QUERY = frozenset(["alt", "api-version", "beta", "stream"])


def kept_headers(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers that are kept, by their names in lower case.

    Named are those that are wanted: a key may stand in any other.
    """
    found = {}
    for raw_name, raw_value in pairs:
        name = raw_name.decode("latin-1").lower()
        if name in _KEPT or name.startswith(_KEPT_BEGINNINGS):
            found[name] = raw_value.decode("latin-1")
    return found


def kept_query(query: bytes) -> dict[str, str]:
    """The parameters of a query; of all but a few only the name."""
    from urllib.parse import parse_qsl

    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    return {name: value if name in _KEPT_QUERY else "[not kept]" for name, value in pairs}


def keys_in(pairs: Iterable[tuple[bytes, bytes]], query: bytes) -> list[bytes]:
    """The keys that a request carries outside of its body."""
    from urllib.parse import parse_qsl

    found = set()
    for raw_name, value in pairs:
        if raw_name.decode("latin-1").lower() in _KEYS:
            # Behind the kind of the key, and behind the name of a cookie.
            found.update(value.replace(b";", b" ").replace(b"=", b" ").split())
            found.add(value)
    for name, text in parse_qsl(query.decode("latin-1")):
        if name not in _KEPT_QUERY:
            found.add(text.encode("latin-1", "replace"))
    return sorted((key for key in found if len(key) >= _LEAST_KEY), key=len, reverse=True)


def without(keys: Iterable[bytes], body: bytes) -> bytes:
    """A body in which no key of its request stands, as where an agent printed its environment."""
    for key in keys:
        body = body.replace(key, b"[REDACTED:key]")
    return body
