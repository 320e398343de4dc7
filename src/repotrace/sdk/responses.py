"""What the response objects of model providers say, in the words of `records.events.LLMData`.

Known are the objects of the `openai` package (Chat Completions, Responses), of `anthropic`
(Messages) and of `google-genai`, and the same as plain dicts. Anything else says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from repotrace.importers.wire_answers import PROVIDERS, answer_of
from repotrace.importers.wire_streams import Payloads
from repotrace.sdk.values import dumped

type Plain = dict[str, Any]


def facts_of(response: object) -> dict[str, Any]:
    """What a provider's response says of the call; empty for anything else. Never raises."""
    try:
        plain = _plain(response)
        api = next((name for name, fits in _FORMS.items() if plain and fits(plain)), None)
        return {} if plain is None or api is None else _facts(api, plain)
    except Exception:  # whatever a foreign object does when it is looked at
        return {}


def _plain(response: object) -> Plain | None:
    if isinstance(response, Mapping):
        return dict(response)
    dump = getattr(response, "model_dump", None)
    found = dumped(dump) if callable(dump) else None
    return dict(found) if isinstance(found, Mapping) else None


def _facts(api: str, plain: Plain) -> dict[str, Any]:
    answer = answer_of(api, Payloads([plain]))
    facts = {
        "provider": PROVIDERS[api],
        "model": answer.model,
        "external_id": answer.id,
        "response": answer.text or None,
        "response_message": {"role": "assistant", "content": answer.parts},
        "stop_reason": answer.stop_reason,
        "error": answer.error,
        **answer.tokens,
    }
    return {name: value for name, value in facts.items() if value is not None}


_FORMS: dict[str, Callable[[Plain], bool]] = {
    "chat": lambda plain: isinstance(plain.get("choices"), list),
    "responses": lambda plain: isinstance(plain.get("output"), list),
    "messages": lambda plain: (
        plain.get("type") == "message" and isinstance(plain.get("content"), list)
    ),
    "gemini": lambda plain: isinstance(plain.get("candidates"), list),
}
"""How each form of answers is known."""
