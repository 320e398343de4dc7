"""A run that is stepped through: its outline stays at hand, all else is read when it is shown."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

from pydantic import ValidationError

from repotrace.errors import RunNotFound
from repotrace.read.alerts import alerts_in
from repotrace.read.diffs import StepDiff, step_diff
from repotrace.read.grids import GridAround
from repotrace.read.lines import StepLines
from repotrace.read.runs import branches_of
from repotrace.read.steps import call_before, place_of, repeated_messages, step_at
from repotrace.read.views import Alert, Branch, StateView, StepLine, StepView, TestGrid
from repotrace.records.blame import Blame
from repotrace.records.run import LLMInteraction, Run, StepStatus, TestOutcome, TestResult
from repotrace.storage import Store
from repotrace.storage.overview import Outline
from repotrace.storage.query import Query
from repotrace.storage.words import marks

PAGE = 24
"""Lines of steps that are read together."""

TESTS_SHOWN = 200
"""Tests that did not pass which are read at once."""

type Marker = Callable[[str], Sequence[tuple[int, int]]]
"""Tells where in a text something stands."""

_TESTS_AT_ONCE = 200

_NOTABLE = frozenset({StepStatus.FAILED, StepStatus.INTERRUPTED})


class KnownFile(NamedTuple):
    """A path of the files after a step."""

    path: str
    mode: int
    object_id: str | None
    change: str = ""
    """`create`, `edit` or `delete` where the step itself did that to it."""
    changed_before: bool = False
    """An earlier step of the run changed it."""


class ShownTests(NamedTuple):
    """What came of the tests of a step."""

    others: Sequence[TestOutcome]
    """The first of those that did not pass."""
    left_out: int
    """How many more there are of them."""
    passed: int


class Findings(NamedTuple):
    """What was found since the findings before."""

    fields: dict[int, set[str]]
    """The fields that hold it, by the places of steps."""
    looked_through: int
    """The steps that have been looked through, from the one after the first on, round the end."""


class PlayedRun:
    """A run that is stepped through. Safe to use from several threads.

    Steps are told apart by their place, counted from 0, which is not their number: a program may
    have given numbers with gaps.
    """

    def __init__(self, store: Store, run: Run) -> None:
        self.store = store
        self.run = run
        self._lock = threading.RLock()
        self._kept: dict[int, StepLine] = {}
        self._blamed: list[Blame] | None = None
        self._lines = self._read_lines(run)
        self._grid = GridAround(self._lines)

    def _read_lines(self, run: Run) -> StepLines:
        with self.store.runs.overview() as overview:
            if overview is None:
                raise RunNotFound(f"Run {run.id} is gone.")
            return StepLines(overview, run)

    # --- Steps --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._lines.outline)

    def outline(self, place: int) -> Outline:
        """The step at a place, without its texts."""
        return self._lines.outline[place]

    def place(self, number: int) -> int | None:
        """The place of the step with this number; None if there is none."""
        steps = self._lines.outline
        place = bisect_left(steps, number, key=attrgetter("number"))
        return place if place < len(steps) and steps[place].number == number else None

    def labelled(self, label: str) -> int | None:
        """The place of the newest step that is a checkpoint of this name; None if there is none."""
        places = reversed(range(len(self)))
        return next((place for place in places if self.outline(place).label == label), None)

    def line(self, place: int) -> StepLine:
        """The line of a step; its neighbours are read with it."""
        with self._lock:
            if place not in self._kept:
                self._read(place // PAGE * PAGE)
            return self._kept[place]

    def _read(self, first: int) -> None:
        with self.store.runs.overview() as overview:
            if overview is None:
                raise RunNotFound(f"Run {self.run.id} is gone.")
            self._lines.look_into(overview)
            lines = self._lines.of(self._lines.outline[first : first + PAGE])
            self._kept.update(enumerate(lines, start=first))

    def refresh(self) -> bool:
        """Take in what was recorded meanwhile; whether anything is different."""
        touched = self.run.id in self.store.runs.ingest().runs
        run = self.store.runs.get(self.run.id)
        if run == self.run and not touched:
            return False
        before, after = self._lines, self._read_lines(run)
        same = after.outline == before.outline and after.tested == before.tested
        with self._lock:
            told, self.run = self.run, run
            if same and run.totals == told.totals and run.status == told.status:
                return False
            self._lines, self._grid = after, GridAround(after)
            self._kept = {}
            self._blamed = None
            return True

    # --- One step -----------------------------------------------------------------------------

    def view(self, place: int) -> StepView:
        """All of a step but its tests, which are `tests`; its long texts are loaded when they
        are read."""
        outline = self.outline(place)
        try:
            step = self.store.runs.step(self.run.id, outline.id)
        except RunNotFound as error:
            raise RunNotFound(
                f"Step {outline.number} of run {self.run.id} is no longer there.",
                hint="The run was deleted or taken in anew meanwhile; q leaves.",
            ) from error
        with self._lock, self.store.runs.overview() as overview:
            if overview is None:
                raise RunNotFound(f"Run {self.run.id} is gone.")
            self._lines.look_into(overview)
            found = place_of(self._lines, step.id)
        return step_at(self.store, self.run, step, found, tests=False)

    def tests(self, view: StepView) -> ShownTests:
        """What came of the tests of a step."""
        run_id, step_id = self.run.id, view.step.id
        with self.store.runs.overview() as overview:
            counts = Counter[str]() if overview is None else overview.outcomes(run_id, step_id)
        passed = counts.pop(TestResult.PASSED, 0)
        others = self.store.runs.tests(run_id, step_id, passed=False, limit=TESTS_SHOWN)
        return ShownTests(others, counts.total() - len(others), passed)

    def more_tests(self, view: StepView, *, passed: bool) -> list[TestOutcome]:
        """The tests of a step that passed, or those that `tests` left out."""
        found = self.store.runs.tests(self.run.id, view.step.id, passed=passed)
        return found if passed else found[TESTS_SHOWN:]

    def calls(self, view: StepView) -> list[tuple[int, LLMInteraction]]:
        """Its model calls, each with how many of its messages repeat the call before."""
        return repeated_messages(view, call_before(self.store, self.run, view))

    def call_that_led_to(self, view: StepView) -> tuple[int, LLMInteraction] | None:
        """The newest model call before the step, with the number of its step."""
        outline = self._lines.by_id.get(view.step.id)
        with self.store.runs.overview() as overview:
            if overview is None or outline is None:
                return None
            found = overview.last_call(self.run.id, outline.started_at)
        if found is None or found[0] not in self._lines.by_id:
            return None
        step_id, name = found
        calls = self.store.runs.interactions(self.run.id, step_id)
        call = next((call for call in calls if call.id == name), None)
        return None if call is None else (self._lines.by_id[step_id].number, call)

    def diff(self, view: StepView) -> StepDiff:
        """What the step changed."""
        return step_diff(self.store, view)

    def diff_between(self, one: int, other: int) -> bytes | None:
        """What is different after one step from after another; None where that is not known."""
        before, after = self.state_after(one), self.state_after(other)
        if before.state_id is None or after.state_id is None:
            return None
        return self.store.snapshots.diff(before.state_id, after.state_id)

    def state_after(self, place: int) -> StateView:
        """The files when a step had ended."""
        with self._lock:
            return self._lines.states.after(self.outline(place))

    def files(self, view: StepView) -> list[KnownFile]:
        """The files after a step, by path, and those that it deleted.

        Where they are not known: those that it changed.
        """
        changes = {item.file_path: item for item in view.operations}
        state = view.after.state_id
        if state is None or not self.store.snapshots.path.is_dir():
            return sorted(
                KnownFile(path, item.mode_after or 0, item.after_id, item.operation_type)
                for path, item in changes.items()
            )
        before = self._changed_in_run(state)
        found = []
        for entry in self.store.snapshots.list(state):
            change = changes.pop(entry.path, None)
            kind = "" if change is None else change.operation_type
            found.append(
                KnownFile(entry.path, entry.mode, entry.object_id, kind, entry.path in before)
            )
        for path, item in changes.items():
            found.append(KnownFile(path, item.mode_before or 0, None, item.operation_type))
        return sorted(found)

    def _changed_in_run(self, state: str) -> frozenset[str]:
        base = self.run.base_state
        if base is None:
            return frozenset()
        pairs = [(base, state)]
        found = next(iter(self.store.snapshots.known_operations_of(pairs)), None)
        return frozenset(operation.path for operation in found or ())

    def content(self, view: StepView, path: str) -> bytes | None:
        """The content of a file after the step, or what the step deleted; None if not kept."""
        state = view.after.state_id
        if state is not None and self.store.snapshots.path.is_dir():
            found = self.store.snapshots.read(state, path)
            if found is not None:
                return found
        for item in view.operations:
            if item.file_path == path:
                for name in (item.after_id, item.before_id):
                    data = name and self.store.snapshots.read_object(name)
                    if data:
                        return data
        return None

    # --- The run ------------------------------------------------------------------------------

    def grid(self, place: int) -> TestGrid:
        """Which test did what in the test runs around a step."""
        with self._lock, self.store.runs.overview() as overview:
            if overview is None:
                raise RunNotFound(f"Run {self.run.id} is gone.")
            self._lines.look_into(overview)
            return self._grid.at(overview, self.outline(place))

    def blamed(self) -> Sequence[Blame]:
        """The newest verdict of blame on each test, but for those of a form that is not known."""
        if self._blamed is None:
            found = []
            for kept in self.store.memo.verdicts(self.run.id):
                with suppress(ValidationError):
                    found.append(Blame.model_validate(kept.record))
            self._blamed = found
        return self._blamed

    def branches(self) -> Sequence[Branch]:
        """The runs that went on from a step of this one, the oldest first."""
        return branches_of(self.store, self.run)

    def alerts(self) -> Sequence[Alert]:
        """What somebody should look at, as it was found when the run was looked over."""
        return alerts_in(self.store, self.run.id)

    # --- Finding ------------------------------------------------------------------------------

    def next_failure(self, place: int, *, back: bool = False) -> int | None:
        """The next place of a step that failed, or in which a test did; then from the beginning.

        `back`: the one before. None if there is none.
        """
        tested: dict[str, bool] = {}
        ahead = list(_round(len(self), place, back=back))
        for number, other in enumerate(ahead):
            step = self.outline(other)
            if step.status in _NOTABLE:
                return other
            if step.id in self._lines.tested:
                if step.id not in tested:
                    some = ahead[number : number + _TESTS_AT_ONCE]
                    tested |= self._failing([self.outline(at) for at in some])
                if tested[step.id]:
                    return other
        return None

    def _failing(self, steps: Sequence[Outline]) -> dict[str, bool]:
        with self._lock, self.store.runs.overview() as overview:
            if overview is None:
                raise RunNotFound(f"Run {self.run.id} is gone.")
            self._lines.look_into(overview)
            found = self._lines.tests(steps)
        return {
            step.id: bool(found[step.id].failing) if step.id in found else False for step in steps
        }

    def next_test_run(self, place: int, *, back: bool = False) -> int | None:
        """The next place of a step that ran tests, as `next_failure`."""
        ahead = _round(len(self), place, back=back)
        return next((at for at in ahead if self.outline(at).id in self._lines.tested), None)

    def find(self, text: str, place: int) -> Iterator[Findings]:
        """The steps that `runs search` would find in this run, by and by: from the one after
        this place on, round the end. Raises RepoTraceError for a filter that makes no sense."""
        if not len(self):
            return
        places = {step.id: at for at, step in enumerate(self._lines.outline)}
        after = self.outline(place).number
        with self.store.runs.overview() as overview:
            if overview is None:
                raise RunNotFound(f"Run {self.run.id} is gone.")
            now = datetime.now(UTC)
            for found, until in overview.find(text, self.run.id, after=after, now=now):
                fields = {places[name]: found[name] for name in found if name in places}
                yield Findings(fields, self._looked_through(place, until))

    def _looked_through(self, place: int, until: int | None) -> int:
        """How many steps there are from the one after a place to one with this number."""
        if until is None:
            return len(self)
        steps = self._lines.outline
        end = bisect_left(steps, until + 1, key=attrgetter("number"))
        return end - place - 1 if until >= steps[place].number else len(self) - place - 1 + end


def marker(text: str) -> Marker:
    """Tells where in other texts the words of a search stand."""
    terms = Query.of(text).wanted
    return lambda shown: list(marks(shown, terms))


def _round(count: int, place: int, *, back: bool) -> Iterator[int]:
    """All places from the one after this, round the end, to this one; `back`: the other way."""
    way = range(place - 1, place - count - 1, -1) if back else range(place + 1, place + count + 1)
    return (number % count for number in way)
