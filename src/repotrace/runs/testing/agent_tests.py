"""What a run itself saw of its tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from repotrace.outcomes import verdicts
from repotrace.records.run import OutcomeOrigin, Run, StepCommand, TestOutcome, TestResult
from repotrace.runs.testing.commands import place_of_pytest
from repotrace.storage import Store

_RELIABLE = frozenset({OutcomeOrigin.PLUGIN, OutcomeOrigin.GIVEN, OutcomeOrigin.JUNIT})
"""Where passing tests are named like failing ones."""


class Sighting(NamedTuple):
    """One test, as one command of the run had it."""

    step_number: int
    result: TestResult
    state_id: str | None
    outcomes: tuple[TestOutcome, ...]
    """Its phases."""


class AgentTests:
    """The tests that a run ran, by node id, in order of the steps."""

    def __init__(self, store: Store, run: Run | None) -> None:
        self._sightings: dict[str, list[Sighting]] = {}
        self._commands: list[tuple[int, StepCommand]] = []
        self._known = run is not None
        if run is None:
            return
        numbers = {step.id: step.step_number for step in store.runs.steps(run.id)}
        groups: dict[tuple[str, str], list[TestOutcome]] = {}
        told: set[str] = set()
        for outcome in store.runs.tests(run.id):
            groups.setdefault((outcome.step_id, outcome.command_id or ""), []).append(outcome)
            if outcome.origin in _RELIABLE:
                told.add(outcome.step_id)
        for (step_id, _), outcomes in groups.items():
            self._take(numbers.get(step_id, 0), outcomes)
        for sightings in self._sightings.values():
            sightings.sort(key=lambda seen: seen.step_number)
        self._commands = [
            (numbers.get(command.step_id, 0), command)
            for command in store.runs.commands(run.id)
            if command.is_test and command.step_id not in told and not _named_all(command)
        ]

    def _take(self, number: int, outcomes: Sequence[TestOutcome]) -> None:
        by_test: dict[str, list[TestOutcome]] = {}
        for outcome in outcomes:
            by_test.setdefault(outcome.node_id, []).append(outcome)
        for test, result in verdicts(outcomes).items():
            own = tuple(by_test.get(test, ()))
            state = next((one.state_id for one in own if one.state_id), None)
            self._sightings.setdefault(test, []).append(Sighting(number, result, state, own))

    @property
    def tests(self) -> list[str]:
        """All tests of which the run saw something."""
        return sorted(self._sightings)

    def of(self, test: str) -> list[Sighting]:
        """What the run saw of a test, in order of its steps."""
        return self._sightings.get(test, [])

    def ran(self, test: str) -> tuple[str, int | None]:
        """`yes`, `no` or `unknown`, and the last step in which the run ran the test.

        A command whose passing tests nobody named ran those that it chose by its arguments.
        """
        if not self._known:
            return "unknown", None
        seen = self.of(test)
        last = seen[-1].step_number if seen else 0
        unsure = False
        for number, command in self._commands:
            ran = chose(command, test)
            if ran:
                last = max(last, number)
            unsure = unsure or ran is None
        if last:
            return "yes", last
        return ("unknown", None) if unsure else ("no", None)

    def result(self, test: str, step_number: int | None) -> str | None:
        """What came of the test in that step, as far as it was told."""
        found = [seen for seen in self.of(test) if seen.step_number == step_number]
        return str(found[-1].result) if found else None


def _named_all(command: StepCommand) -> bool:
    """Whether the output named every test that was run, be it that it passed."""
    words = list(command.command.argv) or command.command_line.split()
    plain = not any(mark in word for word in words for mark in "|>;&")
    return plain and "unittest" in words and not {"-v", "--verbose"}.isdisjoint(words)


def chose(command: StepCommand, test: str) -> bool | None:
    """Whether a command of pytest ran a test, going by its arguments; None: who knows."""
    words = list(command.command.argv) or command.command_line.split()
    place = place_of_pytest(words)
    if place is None or any(word in ("&&", "||", ";", "|") for word in words[:place]):
        return None
    rest: list[str] = []
    for word in words[place + 1 :]:
        if word in ("&&", "||", ";", "|", "2>&1") or word.startswith((">", "2>")):
            break
        rest.append(word.rstrip(";"))
    if any(word.startswith(("-k", "-m", "--lf", "--last-failed", "--deselect")) for word in rest):
        return None
    chosen = [word for word in rest if ".py" in word or ("/" in word and word[0] != "-")]
    if not chosen:
        # Words that are no options may still be folders.
        return not any(word for word in rest if not word.startswith("-")) or None
    return any(_within(test, word.rstrip("/")) for word in chosen)


def _within(test: str, chosen: str) -> bool:
    chosen = chosen.removeprefix("./")
    return test == chosen or test.startswith((f"{chosen}::", f"{chosen}/", f"{chosen}["))
