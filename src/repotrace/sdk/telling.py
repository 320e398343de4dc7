"""What a traced agent tells of by itself: edits, reads, model calls, decisions, messages.

Each function gives the id of what it recorded, None outside of a traced agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from repotrace.journal import new_id
from repotrace.sdk.responses import facts_of
from repotrace.sdk.spans import Span, current_span, inherited_span
from repotrace.sdk.values import as_text

if TYPE_CHECKING:
    from repotrace.records.events import OutcomeData
    from repotrace.sdk.active import ActiveRun

type FilePath = str | PathLike[str]

_LINE = 100
"""Characters of an answer that describe its step."""


def _here() -> tuple[Span, ActiveRun] | None:
    span = current_span()
    if span is None:
        span = inherited_span()
    return None if span is None or span._run is None else (span, span._run)


def _own_step(span: Span, run: ActiveRun, kind: str, description: str, **facts: Any) -> str:
    """A step within the span; nothing has ended it yet."""
    return run.recorder.start_step(kind, description, parent_id=span.id, **facts)


def record_edit(
    path: FilePath,
    before: str | None = None,
    after: str | None = None,
    *,
    reason: str | None = None,
) -> str | None:
    """Tell of a change that was just made to a file; the id of the step.

    `before` is None for a new file, `after` for a deleted one. Within a span of type `edit` the
    change is that span's; elsewhere it is a step of its own, at whose end the files are kept.
    """
    here = _here()
    if here is None:
        return None
    span, run = here
    name = fspath(path)
    kind = "create" if before is None else "delete" if after is None else "edit"
    if span.type == "edit" and span.id is not None:
        if reason is not None:
            span.set(reason=reason)
        run.recorder.record_file_operation(span.id, kind, name, before, after)
        return span.id
    facts = {} if reason is None else {"reason": reason}
    step = _own_step(span, run, "edit", f"{kind} {name}", **facts)
    run.recorder.record_file_operation(step, kind, name, before, after)
    run.recorder.end_step(step, with_state=True)
    return step


def record_read(
    path: FilePath,
    *,
    kind: str = "read",
    first_line: int | None = None,
    last_line: int | None = None,
) -> str | None:
    """Tell that the agent looked at a file. `kind`: read, search, list."""
    here = _here()
    if here is None:
        return None
    span, run = here
    name = fspath(path)
    step = span.id or _own_step(span, run, "tool", f"{kind} {name}")
    found = run.recorder.record_read(
        step, name, kind=kind, first_line=first_line, last_line=last_line
    )
    if span.id is None:
        run.recorder.end_step(step)
    return found


def record_llm(
    response: object = None,
    *,
    messages: Sequence[Mapping[str, Any]] | None = None,
    prompt: str | None = None,
    model: str | None = None,
    purpose: str = "execution",
    **facts: Any,
) -> str | None:
    """Tell of a model call by the object that the provider's SDK returned.

    `messages` are those that the model was shown. Text, tool calls, token counts and the id are
    read from `response`; where it is something else it is the answer as text, and `facts` say the
    rest: `input_tokens` (with those of caches), `output_tokens`, `cost_usd`, `duration` (seconds)
    and whatever else `records.events.LLMData` has.
    """
    here = _here()
    if here is None:
        return None
    span, run = here
    known = facts_of(response)
    if not known and response is not None:
        known = {"response": as_text(response)}
    given = {"prompt": prompt, "model": model, "purpose": purpose, **facts}
    given = {name: value for name, value in given.items() if value is not None}
    if "tokens" in given:
        given["tokens_used"] = given.pop("tokens")
    known |= given
    recorded = run.told.told(known, span)
    if recorded is not None:  # by itself, see `instrument`
        return run.recorder.record_llm(**{**given, "id": recorded.id, "step_id": recorded.step_id})
    name = str(known.setdefault("id", new_id()))
    if messages is not None:
        known |= run.conversations.added(name, messages)
    if span.id is not None and span.type != "agent":
        span.calls_are_told()
        return run.recorder.record_llm(**known, step_id=span.id)
    step = _own_step(span, run, "llm", _description(known))
    run.recorder.record_llm(**known, step_id=step)
    said, error = as_text(known.get("response")), as_text(known.get("error"))
    run.recorder.end_step(step, output_result=said, error=error)
    return name


def _description(known: Mapping[str, Any]) -> str:
    """One line for a call: who answered, and what it asks for or says."""
    message = known.get("response_message")
    parts = message.get("content") if isinstance(message, Mapping) else None
    calls = [
        str(part.get("name"))
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, Mapping) and part.get("type") == "tool_call"
    ]
    said = (as_text(known.get("response")) or "").strip().partition("\n")[0]
    what = f"asks for {', '.join(calls)}" if calls else said[:_LINE]
    return ": ".join(filter(None, [str(known.get("model") or ""), what])) or "model call"


def record_tests(
    outcomes: Iterable[Mapping[str, Any]] = (), *, junit: FilePath | None = None
) -> list[str] | None:
    """Tell what came of tests that ran where RepoTrace did not see them; the ids of the outcomes.

    Each outcome has a `node_id`, an `outcome` (passed, failed, error, skipped, …) and whatever
    else `records.events.OutcomeData` has; `junit` is a JUnit XML file, as most runners write it.
    Raises RepoTraceError for a file that cannot be read as one.
    """
    here = _here()
    if here is None:
        return None
    span, run = here
    found: list[tuple[str, Mapping[str, Any]]] = [("given", each) for each in outcomes]
    if junit is not None:
        found += [("junit", each) for each in _of_report(junit)]
    step = span.id or _own_step(span, run, "test", "tests")
    names = [
        name
        for origin, each in found
        for name in run.recorder.record_test_outcomes(step, [each], origin=origin)
    ]
    if span.id is None:
        run.recorder.end_step(step)
    return names


def _of_report(path: FilePath) -> list[OutcomeData]:
    from pathlib import Path

    from repotrace.errors import RepoTraceError
    from repotrace.junit import outcomes_from_junit

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RepoTraceError(f"Cannot read {fspath(path)}: {error.strerror}.") from error
    return outcomes_from_junit(data, exists=lambda name: Path(name).is_file())


def record_decision(
    description: str, reason: str | None = None, *, kind: str | None = None
) -> str | None:
    """Tell of a choice, and why it was made. `kind`: choice, retry, blocker, branch."""
    here = _here()
    if here is None:
        return None
    span, run = here
    return run.recorder.record_decision(description, reason, kind=kind, parent_id=span.id)


def checkpoint(name: str) -> str | None:
    """Keep the files as they are now under a name, as a step `note`; its id.

    `runs restore --checkpoint NAME`, `runs diff --from-step NAME` and `rerun --from-step NAME`
    find it.
    """
    here = _here()
    if here is None:
        return None
    span, run = here
    step = _own_step(span, run, "note", f"checkpoint {name}", label=name)
    run.recorder.end_step(step, with_state=True)
    return step


def record_log(message: str, *, level: str = "info", **data: Any) -> str | None:
    """Tell a message, with data to it."""
    here = _here()
    if here is None:
        return None
    span, run = here
    return run.recorder.record_log(message, level=level, step_id=span.id, data=data or None)
