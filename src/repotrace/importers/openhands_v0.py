"""Events of OpenHands before its SDK, as events of the SDK.

Each was an action or an observation of one; the answer of the model that led to an action is kept
with it as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from repotrace.importers.building import Data, number, parts_text, text_of

type Record = dict[str, Any]

_SILENT = frozenset({"change_agent_state", "null", "recall", "pause", "resume", "stop", "start"})
"""Actions and observations that tell nothing of the work."""
_ALONE = frozenset({"finish", "think", "reject", "task_tracking"})
"""Actions that are done once they are said."""


def modern(records: Iterable[Record]) -> Iterator[Record]:
    """The events of the SDK that say the same; its own, and what is not understood, stay as they
    are."""
    called: dict[str, Record] = {}
    paid: list[float] = [0.0]
    for record in records:
        if "kind" in record:
            yield record
            continue
        common = {
            "id": text_of(record.get("id")),
            "timestamp": record.get("timestamp"),
            "source": record.get("source"),
        }
        if "action" in record:
            yield from _action(record, common, called, paid)
        elif "observation" in record:
            yield from _observation(record, common, called)
        else:
            yield record


def _object(value: Any) -> Record:
    return value if isinstance(value, dict) else {}


def _action(
    record: Record, common: Record, called: dict[str, Record], paid: list[float]
) -> Iterator[Record]:
    name, args = text_of(record.get("action")), _object(record.get("args"))
    if name in _SILENT:
        return
    if name == "system":
        prompt = {"type": "text", "text": text_of(args.get("content"))}
        yield {**common, "kind": "SystemPromptEvent", "system_prompt": prompt}
        return
    if name in ("condensation", "condensation_request"):
        yield _condensed(common, args)
        return
    told = {**common, **_answer(record, paid)}
    if name == "message":
        text = text_of(args.get("content", record.get("message")))
        role = "user" if record.get("source") == "user" else "assistant"
        message = {"role": role, "content": [{"type": "text", "text": text}]}
        yield {**told, "kind": "MessageEvent", "llm_message": message}
        return
    tool, given = _asked(record, name, args)
    call_id = _call_id(record)
    thought = args.get("thought")
    event = {
        **told,
        "kind": "ActionEvent",
        "tool_name": tool,
        "tool_call_id": call_id,
        "action": given,
        "thought": [{"type": "text", "text": text_of(thought) or _said(record)}],
    }
    yield event
    if name in _ALONE:
        shown = text_of(args.get("final_thought") or thought or record.get("message"))
        done = {**common, "id": f"{common['id']} done"}
        yield _observed(event, {"content": [{"type": "text", "text": shown}]}, done)
    else:
        called[common["id"]] = event


def _observation(record: Record, common: Record, called: dict[str, Record]) -> Iterator[Record]:
    name, extras = text_of(record.get("observation")), _object(record.get("extras"))
    if name == "agent_state_changed":
        state = text_of(extras.get("agent_state"))
        update = {"key": "execution_status", "value": state, "reason": extras.get("reason")}
        yield {**common, "kind": "ConversationStateUpdateEvent", **update}
        return
    call = called.get(text_of(record.get("cause")))
    if name in _SILENT or (call is None and name in _ALONE):
        return
    text = text_of(record.get("content"))
    if call is None:
        if name == "error":
            yield {**common, "kind": "ConversationErrorEvent", "detail": text}
        else:
            yield record
        return
    if name == "user_rejected":
        yield _observed(call, {}, common) | {
            "kind": "UserRejectObservation",
            "rejection_reason": text,
        }
        return
    failed = text.startswith("ERROR:") or extras.get("error") is True
    text = text.removeprefix("ERROR:").lstrip("\n")
    if name == "error":
        yield _observed(call, {}, common) | {"kind": "AgentErrorEvent", "error": text}
        return
    shown = {**extras, "content": [{"type": "text", "text": text}], "is_error": failed}
    yield _observed(call, shown, common)


def _observed(call: Record, observation: Record, common: Record) -> Record:
    return {
        **common,
        "source": "environment",
        "kind": "ObservationEvent",
        "tool_name": call["tool_name"],
        "tool_call_id": call["tool_call_id"],
        "action_id": call["id"],
        "observation": observation,
    }


def _condensed(common: Record, args: Record) -> Record:
    first, last = number(args.get("forgotten_events_start_id")), args.get("forgotten_events_end_id")
    end = number(last)
    given = args.get("forgotten_event_ids")
    ids = [text_of(one) for one in given] if isinstance(given, list) else []
    if first is not None and end is not None and end - first < 1_000_000:
        ids = [str(one) for one in range(first, end + 1)]
    told = {"forgotten_event_ids": ids, "summary": args.get("summary")}
    return {**common, "kind": "Condensation", **told}


def _call_id(record: Record) -> str:
    told = _object(record.get("tool_call_metadata")).get("tool_call_id")
    return text_of(told) or f"action {text_of(record.get('id'))}"


def _response(record: Record) -> Record:
    return _object(_object(record.get("tool_call_metadata")).get("model_response"))


def _message(record: Record) -> Record:
    choices = _response(record).get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return _object(_object(first).get("message"))


def _said(record: Record) -> str:
    return parts_text(_message(record).get("content"))


def _asked(record: Record, action: str, args: Record) -> tuple[str, Any]:
    """The tool and the arguments, in the words of the model where they are known."""
    told = _object(record.get("tool_call_metadata"))
    name = text_of(told.get("function_name"))
    calls = _message(record).get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = _object(_object(call).get("function"))
        if _object(call).get("id") == told.get("tool_call_id"):
            try:
                given = json.loads(text_of(function.get("arguments")))
            except (ValueError, RecursionError):
                break
            if isinstance(given, dict):
                return name or text_of(function.get("name")), given
    given = {key: value for key, value in args.items() if key not in ("thought", "hidden")}
    found, arguments = _plain(action, given)
    return name or found, arguments


def _plain(action: str, args: Record) -> tuple[str, Data]:
    """The tool that an action without an answer of a model stands for."""
    if action == "run_ipython":
        return "execute_ipython_cell", args
    if action == "edit" and isinstance(args.get("command"), str):
        return "str_replace_editor", args
    names = {
        "run": "execute_bash",
        "edit": "edit_file",
        "browse": "web_read",
        "browse_interactive": "browser",
        "task_tracking": "task_tracker",
        "call_tool_mcp": text_of(args.get("name")),
        "mcp": text_of(args.get("name")),
    }
    return names.get(action) or action, args


def _answer(record: Record, paid: list[float]) -> Record:
    """What is told of the answer that led to an action."""
    response = _response(record)
    usage = _object(response.get("usage"))
    found: Record = {"llm_response_id": response.get("id"), "created": response.get("created")}
    told: Data = {"model": response.get("model")}
    if usage:
        detail = _object(usage.get("prompt_tokens_details"))
        thought = _object(usage.get("completion_tokens_details"))
        told |= {
            "prompt_tokens": usage.get("prompt_tokens"),
            "completion_tokens": usage.get("completion_tokens"),
            "cache_read_tokens": usage.get("cache_read_input_tokens", detail.get("cached_tokens")),
            "cache_write_tokens": usage.get("cache_creation_input_tokens"),
            "reasoning_tokens": thought.get("reasoning_tokens"),
        }
    spent = _object(record.get("llm_metrics")).get("accumulated_cost")
    if isinstance(spent, int | float) and not isinstance(spent, bool) and spent > paid[0]:
        told["cost"] = spent - paid[0]
        paid[0] = spent
    return {**found, "usage": told}
