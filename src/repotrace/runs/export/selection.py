"""What of a run is exported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from repotrace.errors import RunNotFound
from repotrace.read.runs import show_run
from repotrace.read.views import RunView, StepLine
from repotrace.records.blame import Blame
from repotrace.records.omitted import Omitted
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    LLMInteraction,
    Run,
)
from repotrace.runs.export.silence import silent_call, silent_step, silent_verdict
from repotrace.storage import Store
from repotrace.storage.memo import KeptVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What to leave out, and how much to show."""

    from_step: int | None = None
    to_step: int | None = None
    llm: bool = True
    """Whether the texts of conversations are in it."""
    files: bool = True
    """Whether the contents of changed files are in it."""
    max_bytes: int | None = None
    """A longer text is cut, a longer content of a file left out; None: the format's own limit."""
    brief: bool = False
    allow_secrets: bool = False
    """Whether the contents of files are exported as they are."""
    full: bool = False
    """Whether the history of the commit goes into a bundle too."""

    @property
    def left_out(self) -> Omitted:
        """What the options leave out."""
        return Omitted(
            from_step=self.from_step,
            to_step=self.to_step,
            llm=not self.llm,
            files=not self.files,
            max_bytes=self.max_bytes,
        )


class Selection:
    """The part of a run that is exported. Its texts are loaded when they are read."""

    def __init__(self, store: Store, run: Run, options: ExportOptions) -> None:
        """Raises RunNotFound if there is no step between `from_step` and `to_step`."""
        self.store, self.run, self.options = store, run, options
        first, last = options.from_step or 1, options.to_step
        self.steps = store.runs.steps(run.id) if options.llm else list(_silent_steps(store, run))
        if first > 1 or last is not None:
            self._all = False
            highest = max((step.step_number for step in self.steps), default=0)
            self.steps = [
                step
                for step in self.steps
                if first <= step.step_number and (last is None or step.step_number <= last)
            ]
            if not self.steps:
                raise RunNotFound(
                    f"Run {run.id} has no step from {first} to {last or highest}.",
                    hint=f"List its steps with: repotrace runs show {run.id}",
                )
        else:
            self._all = True
        self._ids = {step.id for step in self.steps}

    @cached_property
    def trace(self) -> ExecutionTrace:
        """The part as a trace; its lists are loaded when they are read."""
        runs, run = self.store.runs, self.run
        fields = {
            "run_id": run.id,
            "task_id": run.task_id or "unknown",
            "started_at": run.started_at,
            "status": run.status,
            "completed_at": run.completed_at,
            "run": run,
            "steps": self.steps,
        }
        loaders: dict[str, Callable[[], Any]] = {
            "llm_interactions": lambda: [
                call if self.options.llm else silent_call(call)
                for call in self._own(runs.interactions(run.id))
            ],
            "file_operations": lambda: [
                _hollow(change, self.options) for change in self._own(runs.operations(run.id))
            ],
            "file_reads": lambda: self._own(runs.reads(run.id)),
            "logs": lambda: self._own(runs.logs(run.id)),
            "commands": lambda: self._own(runs.commands(run.id)),
            "test_outcomes": lambda: self._own(runs.tests(run.id)),
        }
        return ExecutionTrace.pending(fields, loaders)

    @cached_property
    def view(self) -> RunView:
        """The run with all its steps and tests as a table."""
        return show_run(self.store, self.run, whole=True)

    @cached_property
    def lines(self) -> dict[str, StepLine]:
        """The rows of the steps, by their ids."""
        return {line.id: line for line in self.view.steps if line.id in self._ids}

    @cached_property
    def verdicts(self) -> list[KeptVerdict]:
        """What blame said of the tests of the run."""
        kept = self.store.memo.verdicts(self.run.id)
        if self.options.llm:
            return kept
        steps = {step.step_number: step for step in self.steps}
        return [silent_verdict(one, steps) for one in kept]

    @cached_property
    def blames(self) -> list[Blame]:
        """The verdicts as records; none on names that were mistyped."""
        from repotrace.runs.finding.record import NO_TEST

        told = (kept for kept in self.verdicts if kept.verdict != NO_TEST)
        return [Blame.model_validate(kept.record) for kept in told]

    @cached_property
    def left_out(self) -> Omitted:
        """What of the run is not in it; what never came here of a run from elsewhere included."""
        return missing_here(self.store, self.run.id).beside(self.options.left_out)

    def _own[T: Any](self, parts: Iterable[T]) -> list[T]:
        if self._all:
            return list(parts)
        return [part for part in parts if part.step_id in self._ids]


def missing_here(store: Store, run_id: str) -> Omitted:
    """What the file had not that a run came from; nothing for one that was recorded here."""
    origin = store.received.origin("run", run_id)
    return Omitted() if origin is None else Omitted.noted(origin.left_out)


def _silent_steps(store: Store, run: Run) -> Iterator[ExecutionStep]:
    calls: dict[str, list[LLMInteraction]] = defaultdict(list)
    for call in store.runs.interactions(run.id):
        calls[call.step_id].append(call)
    for step in store.runs.steps(run.id):
        yield silent_step(step, calls[step.id])


def _hollow(change: FileOperation, options: ExportOptions) -> FileOperation:
    if options.files:
        return change
    return change.model_copy(update={"content_before": None, "content_after": None})
