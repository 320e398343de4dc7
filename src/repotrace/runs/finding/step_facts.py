"""What is known of steps that are named: what they changed, the model call that led to them, and
what the run itself saw of a test afterwards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import cached_property

from repotrace.records.blame import BlamedStep, SeenByAgent
from repotrace.records.run import FAILING, ExecutionStep, LLMInteraction, Run, StateQuality
from repotrace.runs.testing.agent_tests import Sighting
from repotrace.storage import Store

_REASON = 400
"""Characters of the words that led to a step."""

_INSTALL = re.compile(
    r"(?:^|[\s;&|])(?:pip3?|uv|uv pip|poetry|pdm|pipenv|conda|mamba|npm|pnpm|yarn|bun|cargo|go|gem"
    r"|bundle|composer|apt|apt-get|brew)\s+(?:-\S+\s+)*"
    r"(?:install|add|sync|update|upgrade|remove|uninstall|i|ci|get)\b"
)


class StepFacts:
    """The steps of a run."""

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        self.steps = {step.step_number: step for step in store.runs.steps(run.id)}

    @cached_property
    def _calls(self) -> list[LLMInteraction]:
        return self._store.runs.interactions(self._run.id)

    @cached_property
    def installs(self) -> tuple[int, ...]:
        """Numbers of the steps whose commands install, update or remove packages."""
        numbers = {step.id: number for number, step in self.steps.items()}
        found = {
            numbers[command.step_id]
            for command in self._store.runs.commands(self._run.id)
            if command.step_id in numbers and _INSTALL.search(command.command_line)
        }
        return tuple(sorted(found))

    def named(self, number: int) -> BlamedStep:
        """A step with what led to it."""
        step = self.steps[number]
        call = self._call_of(step)
        operations = self._store.runs.operations(self._run.id, step.id)
        reason = step.reason or (call.response if call is not None else None) or None
        return BlamedStep(
            number=number,
            step_type=step.step_type,
            description=step.description,
            files=tuple(sorted({change.file_path for change in operations})),
            model=call.model or None if call is not None else None,
            tokens=call.tokens_used if call is not None else None,
            cost_usd=call.cost_usd if call is not None else None,
            reason=None if reason is None else reason.strip()[:_REASON] or None,
            inferred=step.state_quality not in (None, StateQuality.EXACT),
        )

    def _call_of(self, step: ExecutionStep) -> LLMInteraction | None:
        """The model call of the step, else the last one before it."""
        own = [call for call in self._calls if call.step_id == step.id]
        if own:
            return own[-1]
        before = [call for call in self._calls if call.timestamp <= step.started_at]
        return before[-1] if before else None

    def seen(self, sightings: Sequence[Sighting], broken_by: int | None) -> SeenByAgent:
        """What the run saw of a test after the step that broke it."""
        if broken_by is None:
            return SeenByAgent(runs=len(sightings))
        after = [seen for seen in sightings if seen.step_number > broken_by]
        if not after:
            return SeenByAgent(runs=len(sightings))
        first = after[0]
        found = SeenByAgent(
            runs=len(sightings), first_step=first.step_number, first_result=str(first.result)
        )
        if first.result not in FAILING:
            return found
        repaired = next((seen for seen in after if seen.result not in FAILING), None)
        start = self.steps.get(first.step_number)
        end = self.steps.get(repaired.step_number) if repaired is not None else None
        if start is None:
            return found
        until = end.started_at if end is not None else None
        spent = [
            call
            for call in self._calls
            if call.timestamp >= start.started_at and (until is None or call.timestamp <= until)
        ]
        costs = [call.cost_usd for call in spent if call.cost_usd is not None]
        last = repaired.step_number if repaired is not None else max(self.steps)
        retries = sum(
            step.attempt > 1 and first.step_number < number <= last
            for number, step in self.steps.items()
        )
        return found.model_copy(
            update={
                "repaired_after": repaired.step_number if repaired is not None else None,
                "retries": retries,
                "tokens": sum(call.tokens_used for call in spent),
                "cost_usd": sum(costs, Decimal(0)) if costs else None,
            }
        )
