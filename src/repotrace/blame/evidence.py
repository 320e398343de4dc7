"""What was run and what came of it: the only thing that a search for a break decides by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """How one execution of a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    """It could not be imported or collected."""
    SKIPPED = "skipped"
    """The runner left it out, or expects it to fail."""
    MISSING = "missing"
    """The runner knows no such test."""
    TIMEOUT = "timeout"
    SIGNAL = "signal"
    UNUSABLE = "unusable"
    """It could not be run: the files do not fit together, or the set-up failed."""


class Purpose(StrEnum):
    """Why a state is run."""

    REPRODUCE = "reproduce"
    """Does the test fail on the final state at all?"""
    GALLOP = "gallop"
    """Back from the end in growing strides, to a state where it passes."""
    BISECT = "bisect"
    SCAN = "scan"
    """Other states, where the test passes on none so far, and where all were asked for."""
    CONFIRM = "confirm"
    BASE = "base"
    """The first state, with the tests that it had itself."""
    TESTS = "tests"
    """Which version of the tests is it that fails?"""
    FLAKY = "flaky"
    FIRST = "first"
    """When it was broken first, if it was repaired in between."""
    REDUCE = "reduce"
    REVERT = "revert"
    """Does undoing the hunks help on the final state?"""


class Subject(NamedTuple):
    """The files that a test is run on: those of a state, changed by hunks."""

    state: str
    tests: str = ""
    """State whose test files lie over those of `state`; empty: its own tests."""
    added: tuple[str, ...] = ()
    """Ids of hunks that are applied."""
    removed: tuple[str, ...] = ()
    """Ids of hunks that are undone, by a three-way merge."""


class Probe(NamedTuple):
    """One execution that is wanted."""

    subject: Subject
    purpose: Purpose
    candidate: int | None = None
    """The index of the candidate that it is about; None where hunks are tried."""
    number: int = 1
    """The how-manieth execution on this subject."""
    alone: bool = True
    """Whether nothing else may run at the same time."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What came of one execution."""

    kind: Kind
    fingerprint: str = ""
    """The same for the same failure: test id, type of exception, innermost frame of the project,
    normalised. Empty for a pass, a missing test, a timeout."""
    alone: bool = True
    """Whether nothing else ran at the same time."""
    given: bool = False
    """Whether it is a result that the run itself recorded, and no execution of ours."""
    source: str = ""
    """Where it can be looked up: the id of a command run or of a test outcome."""
    note: str = ""
    """One line for people, as the message of the failure."""
    duration: float | None = None
    """Seconds."""

    @property
    def passed(self) -> bool:
        return self.kind is Kind.PASSED

    @property
    def failure(self) -> Failure:
        """What kind of end it was, to be compared."""
        return Failure(self.kind, self.fingerprint)


class Failure(NamedTuple):
    """A way to end. Two of different kinds are never the same: a timeout is no failed assertion."""

    kind: Kind
    fingerprint: str = ""


class MemoKey(NamedTuple):
    """What an observation holds for. Another command or environment is another question."""

    subject: Subject
    test: str
    """Node id; empty where the command is judged as a whole."""
    command: str
    """The test command, normalised."""
    environment: str
    """Fingerprint of the interpreter and the installed packages."""

    @property
    def digest(self) -> str:
        """The key as 64 hexadecimal digits."""
        parts = [list(self.subject), self.test, self.command, self.environment]
        text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Memo:
    """Observations by subject, each list in order of time: all of one test, command, environment.

    A search that begins with the memo of one that was stopped goes on where that one was.
    """

    def __init__(self, observations: Iterable[tuple[Subject, Observation]] = ()) -> None:
        self._of: dict[Subject, list[Observation]] = {}
        for subject, observation in observations:
            self.add(subject, observation)

    def add(self, subject: Subject, observation: Observation) -> None:
        """Append what was observed on `subject`."""
        self._of.setdefault(subject, []).append(observation)

    def of(self, subject: Subject) -> tuple[Observation, ...]:
        """All that was observed on `subject`."""
        return tuple(self._of.get(subject, ()))

    def executions(self, subject: Subject) -> int:
        """How often `subject` was executed; what was given counts for nothing."""
        return sum(not observation.given for observation in self._of.get(subject, ()))

    def __iter__(self) -> Iterator[tuple[Subject, Observation]]:
        for subject, observations in self._of.items():
            for observation in observations:
                yield subject, observation

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))
