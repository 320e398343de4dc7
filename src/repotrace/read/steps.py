"""`play`: one step whole."""

from __future__ import annotations

from typing import Any, NamedTuple

from repotrace.errors import RunNotFound
from repotrace.read.alerts import alerts_at
from repotrace.read.diffs import step_diff
from repotrace.read.lines import StepLines
from repotrace.read.views import ReachedView, SinceFailure, StateView, StepLine, StepView
from repotrace.records.base import encode_bytes
from repotrace.records.run import ExecutionStep, FileOperation, LLMInteraction, Run
from repotrace.storage import Store
from repotrace.storage.labels import reached

LACKING = 100
"""Paths that a state lacks of which is told."""

MESSAGE_FIELDS = frozenset({"prompt", "response", "messages", "response_message", "tools"})
"""The fields of a model call that hold its conversation."""

CONTENT_FIELDS = frozenset({"content_before", "content_after"})
"""The fields of a file operation that hold the files."""


def play_step(store: Store, run: Run, number: int) -> StepView:
    """All of one step; its long texts are loaded when they are read.

    Raises RunNotFound if there is no such step.
    """
    step = store.runs.step(run.id, number)
    with store.runs.overview() as overview:
        if overview is None:
            raise RunNotFound(f"Run {run.id} is gone.")
        place = place_of(StepLines(overview, run), step.id)
    return step_at(store, run, step, place)


class StepPlace(NamedTuple):
    """A step among the others of its run."""

    line: StepLine
    before: StateView
    after: StateView
    last_step: int
    parts: tuple[int, ...]
    failure: tuple[int, str] | None
    """Of a retry: the step whose test failed before it, and the state that it failed on."""


def place_of(lines: StepLines, step_id: str) -> StepPlace:
    """Where a step stands. Raises KeyError if the lines do not know it."""
    outline = lines.by_id[step_id]
    (line,) = lines.of([outline])
    return StepPlace(
        line=line,
        before=lines.states.before(outline),
        after=lines.states.after(outline),
        last_step=lines.outline[-1].number,
        parts=tuple(lines.parts(step_id)),
        failure=lines.failure_before(outline) if outline.attempt > 1 else None,
    )


def step_at(
    store: Store, run: Run, step: ExecutionStep, place: StepPlace, *, tests: bool = True
) -> StepView:
    """All of a step whose place is known; without its tests if these are not asked for."""
    after, number = _with_reason(store, run, place.after), place.line.number
    return StepView.model_construct(
        schema_version=1,
        run_id=run.id,
        last_step=place.last_step,
        line=place.line,
        step=step,
        parts=place.parts,
        interactions=tuple(store.runs.interactions(run.id, step.id)),
        operations=tuple(store.runs.operations(run.id, step.id)),
        reads=tuple(store.runs.reads(run.id, step.id)),
        logs=tuple(store.runs.logs(run.id, step.id)),
        commands=tuple(store.runs.commands(run.id, step.id)),
        tests=tuple(store.runs.tests(run.id, step.id)) if tests else (),
        before=place.before,
        after=after,
        since_failure=None if place.failure is None else _since(store, *place.failure, after),
        alerts=alerts_at(store, run.id, number, is_last=number == place.last_step),
        reached=None if step.label is None else _reached(store, run, number),
    )


def _reached(store: Store, run: Run, number: int) -> ReachedView:
    steps, files_modified = reached(store.home, run.id, number)
    return ReachedView(steps=steps, files_modified=files_modified)


def step_json(store: Store, view: StepView, *, messages: bool, contents: bool) -> dict[str, Any]:
    """The view in plain values, with or without conversations, and with or without contents of
    files and their `diff`."""
    shown = view
    if not messages:
        calls = tuple(_without(call, MESSAGE_FIELDS) for call in view.interactions)
        shown = shown.model_copy(update={"interactions": calls})
    if not contents:
        operations = tuple(_without(change, CONTENT_FIELDS) for change in view.operations)
        shown = shown.model_copy(update={"operations": operations})
    plain = shown.json_object()
    for name, wanted, fields in (
        ("interactions", messages, MESSAGE_FIELDS),
        ("operations", contents, CONTENT_FIELDS),
    ):
        if not wanted:
            plain[name] = [
                {key: value for key, value in item.items() if key not in fields}
                for item in plain[name]
            ]
    if contents:
        plain["diff"] = encode_bytes(step_diff(store, view).diff)
    return plain


def call_before(store: Store, run: Run, view: StepView) -> LLMInteraction | None:
    """The last model call of the run before those of the step."""
    if not view.interactions:
        return None
    with store.runs.overview() as overview:
        found = overview.call_before(run.id, view.interactions[0].id) if overview else None
    if found is None:
        return None
    step_id, name = found
    return next(
        (call for call in store.runs.interactions(run.id, step_id) if call.id == name), None
    )


def repeated_messages(
    view: StepView, before: LLMInteraction | None
) -> list[tuple[int, LLMInteraction]]:
    """Each model call with how many of its messages repeat the call before."""
    counted = []
    for call in view.interactions:
        repeated = 0
        for one, other in zip(before.messages if before else (), call.messages, strict=False):
            if one != other:
                break
            repeated += 1
        counted.append((repeated, call))
        before = call
    return counted


def _without[R: (LLMInteraction, FileOperation)](record: R, fields: frozenset[str]) -> R:
    """The record without what these fields hold, and without loading it."""
    kept = {name: getattr(record, name) for name in type(record).model_fields if name not in fields}
    return type(record).model_construct(**kept)


def _since(store: Store, number: int, failed: str, after: StateView) -> SinceFailure | None:
    """What is different after the retry from the files on which the test failed."""
    if after.state_id is None or not store.snapshots.path.is_dir():
        return None
    found = next(iter(store.snapshots.known_operations_of([(failed, after.state_id)])), None)
    if found is None:
        return None
    return SinceFailure(
        step_number=number,
        state_id=failed,
        files=tuple(sorted(operation.path for operation in found)),
        lines_added=sum(operation.lines_added for operation in found),
        lines_removed=sum(operation.lines_removed for operation in found),
    )


def _with_reason(store: Store, run: Run, state: StateView) -> StateView:
    """The state with why it is not exact, and what it lacks of the workspace."""
    found = state
    if state.step_number:
        reason = store.runs.step(run.id, state.step_number).state_reason
        found = found.model_copy(update={"reason": reason})
    if state.state_id is not None:
        lacking = store.snapshots.lacking(f"runs/{run.id}", state.state_id)
        paths = tuple(item.path for item in lacking.not_captured)
        count = len(paths) + lacking.more
        update = {"not_captured": paths[:LACKING], "not_captured_count": count}
        found = found.model_copy(update=update)
    return found
