"""A run without what models were asked and answered: what was done stays, who said what goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from repotrace.readable import one_line
from repotrace.records.run import ExecutionStep, LLMInteraction, StepType, same_type
from repotrace.storage.memo import KeptVerdict

_SAID: Mapping[str, Any] = {
    "prompt": "",
    "response": "",
    "messages": (),
    "response_message": None,
    "tools": (),
}
"""What a model call without its texts has in their place."""

_TALK = (
    *(StepType.LLM, StepType.PLANNING, StepType.NOTE, StepType.DECISION),
    StepType.UNKNOWN,  # a record of a transcript, as it was
)
_USER = "User: "
"""Before the words of a person in the description of a step."""


def silent_call(call: LLMInteraction) -> LLMInteraction:
    """The model call with its facts alone."""
    return call.model_copy(update=dict(_SAID))


def silent_step(step: ExecutionStep, calls: Iterable[LLMInteraction]) -> ExecutionStep:
    """The step without words; `calls` are its own. A description that quotes them goes too."""
    texts = [step.reason, *(text for call in calls for text in _texts(call))]
    update: dict[str, Any] = {"reason": None}
    if is_talk(step.step_type):
        texts += [step.input_context, step.output_result]
        update |= {"input_context": None, "output_result": None}
    if any(_begins(text, step.description) for text in texts if text):
        update["description"] = _USER.rstrip(": ") if step.description.startswith(_USER) else ""
    return step.model_copy(update=update)


def silent_verdict(kept: KeptVerdict, steps: Mapping[int, ExecutionStep]) -> KeptVerdict:
    """The verdict without the words that led to the steps it names; `steps` are silent ones."""
    named = []
    for step in kept.record.get("steps", ()):
        found = steps.get(step.get("number"))
        unknown = "" if is_talk(str(step.get("step_type"))) else step.get("description", "")
        description = unknown if found is None else found.description
        named.append({**step, "reason": None, "description": description})
    return kept._replace(record={**kept.record, "steps": named})


def is_talk(step_type: str) -> bool:
    """Whether what goes into such a step and comes out of it is what somebody said."""
    return any(same_type(step_type, kind) for kind in _TALK)


def _texts(call: LLMInteraction) -> Iterator[str]:
    yield call.response
    yield call.prompt
    yield from _strings(call.response_message)
    if call.messages:
        yield from _strings(call.messages[-1])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _begins(text: str, description: str) -> bool:
    """Whether the description is the text, or its beginning."""
    words = one_line(description.removeprefix(_USER)).rstrip("… ")
    return bool(words) and one_line(text[: 4 * len(description) + 200]).startswith(words)
