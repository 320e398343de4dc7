"""What the rules look at of a run, each part read once and only when it is asked for."""

from __future__ import annotations

import re
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
from repotrace.runs.testing.agent_tests import AgentTests
from repotrace.runs.testing.subjects import is_test_file
from repotrace.storage import Store


class RanTests(NamedTuple):
    """A time at which the run ran tests."""

    at: datetime
    step: int
    passed: bool | None
    """None: nobody told."""


_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|node|deno|bun|ruby|perl|php|sh|bash|\.\.?")


def runs_tests(command: StepCommand) -> bool:
    """Whether a command ran tests: a test runner, or a file of tests as a program."""
    if command.is_test:
        return True
    words = command.command_line.split()
    program = words[0].rpartition("/")[2] if words else ""
    if _INTERPRETERS.fullmatch(program):
        return any(is_test_file(word) for word in words[1:] if not word.startswith("-"))
    return bool(words) and words[0].startswith("./") and is_test_file(words[0][2:])


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
        return sorted(self._test_runs(), key=lambda ran: ran[:2])

    def _test_runs(self) -> Iterator[RanTests]:
        failing: dict[str, bool] = {}
        times: dict[str, datetime] = {}
        for outcome in self.store.runs.tests(self.run.id):
            step = outcome.step_id
            failed = outcome.outcome in ("failed", "error")
            failing[step] = failing.get(step, False) or failed
            times[step] = max(times.get(step, outcome.timestamp), outcome.timestamp)
        for command in self.commands:
            if command.step_id not in failing and runs_tests(command):
                code = command.exit_code
                passed = None if code is None else code == 0
                yield RanTests(self._end(command), self.number(command.step_id) or 0, passed)
        for step, failed in failing.items():
            yield RanTests(times[step], self.number(step) or 0, not failed)

    def _end(self, command: StepCommand) -> datetime:
        step = self.steps.get(command.step_id)
        return (step.completed_at if step else None) or command.timestamp

    def content(self, object_id: str | None) -> bytes | None:
        """A content that an operation names; None if it is not kept."""
        return None if object_id is None else self.store.snapshots.read_object(object_id)
