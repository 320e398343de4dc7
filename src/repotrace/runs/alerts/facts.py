"""What the rules look at of a run, each part read once and only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from repotrace.records.run import (
    ExecutionStep,
    FileOperation,
    FileRead,
    LLMInteraction,
    Run,
    StepCommand,
)
from repotrace.runs.agent_tests import AgentTests
from repotrace.storage import Store


class RanTests(NamedTuple):
    """A time at which the run ran tests."""

    at: datetime
    step: int
    passed: bool


class Facts:
    """A run, with what was recorded of it."""

    def __init__(self, store: Store, run: Run) -> None:
        self.store = store
        self.run = run

    @cached_property
    def steps(self) -> dict[str, ExecutionStep]:
        """By id."""
        return {step.id: step for step in self.store.runs.steps(self.run.id)}

    def number(self, step_id: str | None) -> int | None:
        """The number of a step."""
        step = self.steps.get(step_id or "")
        return None if step is None else step.step_number

    @cached_property
    def operations(self) -> list[FileOperation]:
        """In order of time."""
        return self.store.runs.operations(self.run.id)

    @cached_property
    def reads(self) -> list[FileRead]:
        """In order of time; searches are no reading."""
        return [read for read in self.store.runs.reads(self.run.id) if read.kind == "read"]

    @cached_property
    def calls(self) -> list[LLMInteraction]:
        """The model calls, in order of time."""
        calls = self.store.runs.interactions(self.run.id)
        return sorted(calls, key=lambda call: call.timestamp)

    @cached_property
    def tests(self) -> AgentTests:
        """What the run saw of its tests."""
        return AgentTests(self.store, self.run)

    @cached_property
    def commands(self) -> list[StepCommand]:
        """In order of time."""
        return self.store.runs.commands(self.run.id)

    @cached_property
    def test_runs(self) -> list[RanTests]:
        """When tests were run, and whether all passed, in order of time."""
        return sorted(self._test_runs())

    def _test_runs(self) -> Iterator[RanTests]:
        failing: dict[str, bool] = {}
        times: dict[str, datetime] = {}
        for outcome in self.store.runs.tests(self.run.id):
            step = outcome.step_id
            failed = outcome.outcome in ("failed", "error")
            failing[step] = failing.get(step, False) or failed
            times[step] = max(times.get(step, outcome.timestamp), outcome.timestamp)
        for command in self.commands:
            if command.is_test and command.step_id not in failing:
                code = command.exit_code
                if code is not None:
                    at = self._end(command)
                    yield RanTests(at, self.number(command.step_id) or 0, code == 0)
        for step, failed in failing.items():
            yield RanTests(times[step], self.number(step) or 0, not failed)

    def _end(self, command: StepCommand) -> datetime:
        step = self.steps.get(command.step_id)
        return (step.completed_at if step else None) or command.timestamp

    def content(self, object_id: str | None) -> bytes | None:
        """A content that an operation names; None if it is not kept."""
        return None if object_id is None else self.store.snapshots.read_object(object_id)
