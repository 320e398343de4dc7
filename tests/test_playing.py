"""A run that is stepped through, as the screen reads it: searching, and the grid of tests."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording import RUN, event, traces

from repotrace.errors import RepoTraceError
from repotrace.read.grids import grid_of
from repotrace.read.lines import StepLines
from repotrace.read.playing import PlayedRun, marker
from repotrace.records.run import ExecutionTrace
from repotrace.storage import Store
from repotrace.storage.query import Query

LETTERS = st.sampled_from(
    [*"abAB1_ \n.-", "é", "E", "\u0301", "ß", "İ", "ς", "試", "験", "\0", "ﬁ"]
)
TEXTS = st.text(LETTERS, max_size=30)
TERM_LETTERS = st.sampled_from([*"abAB1_.", "é", "e", "試", "験", "ß", "i", "ς", "*"])
TERMS = st.text(TERM_LETTERS, min_size=1, max_size=3)


def found(run: PlayedRun, text: str, place: int = 0) -> dict[int, set[str]]:
    """Everything that is found, by places."""
    fields: dict[int, set[str]] = {}
    for findings in run.find(text, place):
        for at, names in findings.fields.items():
            fields.setdefault(at, set()).update(names)
    return fields


def stored(store: Store, steps: list[dict[str, Any]]) -> PlayedRun:
    """A run with steps of these facts."""
    events = [event("run_started", 0)]
    for number, facts in enumerate(steps, start=1):
        events.append(event("step_started", number, id=f"s{number}"))
        events.append(event("step_ended", number + 0.5, id=f"s{number}", **facts))
    store.runs.add_events(events)
    return PlayedRun(store, store.runs.get())


@settings(max_examples=30, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=8), st.lists(TERMS, min_size=1, max_size=3), st.data())
def test_texts_that_are_not_indexed_are_searched_as_the_index_would(
    texts: list[str], terms: list[str], data: st.DataObject
) -> None:
    query = " ".join(data.draw(st.sampled_from(["", "", "-"])) + term for term in terms)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        run = stored(
            store, [{"output_result": text * (1 + n % 2 * 40)} for n, text in enumerate(texts)]
        )
        before = found(run, query, data.draw(st.integers(0, len(texts) - 1)))
        hits = store.runs.search(query, run_id=RUN, limit=100)
        by_index = {
            hit.step_number - 1
            for hit in hits
            if hit.step_number is not None and Query.of(query).wanted
        }
        assert set(before) == by_index
        assert set(found(run, query)) == by_index
        store.close()


def test_what_is_nearest_is_found_first_and_all_is_looked_through(store: Store) -> None:
    run = stored(store, [{"output_result": f"needle {'x' * n}"} for n in range(1_000)])
    seen: list[int] = []
    through = 0
    for findings in run.find("needle", 600):
        assert findings.looked_through >= through
        through = findings.looked_through
        seen += sorted(findings.fields, key=lambda at: (at <= 600, at))
    assert seen == [*range(601, 1_000), *range(601)]
    assert through == 1_000


def test_what_was_indexed_and_what_was_not_are_found_together(store: Store) -> None:
    run = stored(store, [{"output_result": "needle"}, {"reason": "other"}])
    assert found(run, "needle") == {0: {"output_result"}}
    store.runs.index()
    more = [
        event("step_started", 9, id="z", description="a needle"),
        event("step_ended", 10, id="z"),
    ]
    store.runs.add_events(more)
    run.refresh()
    assert found(run, "needle") == {0: {"output_result"}, 2: {"description"}}
    assert found(run, "needle type:unknown -a") == {0: {"output_result"}}
    assert found(run, "type:nothing") == {}
    with pytest.raises(RepoTraceError, match="no comparison"):
        found(run, "needle cost:much")


def test_words_are_marked_where_they_stand() -> None:
    spans = marker('leap "due date" -no')("Leap, due\tdate; leaps no leap")
    assert spans == [(0, 4), (6, 14), (25, 29)]


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(traces(), st.data())
def test_a_grid_around_a_step_is_the_grid_of_these_steps(
    trace: ExecutionTrace, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.runs.save(trace)
        run = PlayedRun(store, store.runs.get())
        for _ in range(3 if len(run) else 0):
            shown = run.grid(data.draw(st.integers(0, len(run) - 1)))
            with store.runs.overview() as overview:
                assert overview is not None
                lines = StepLines(overview, run.run)
                numbers = [column.step_number for column in shown.runs]
                steps = [step for step in lines.outline if step.number in numbers]
                whole = grid_of(overview, lines, steps, shown.runs, whole=False)
                patches = {line.number: line.patch for line in lines.of(steps)}
                states = {
                    step.number: {test.state_id for test in store.runs.tests(RUN, step.id)}
                    for step in steps
                }
            assert shown == whole
            for column in shown.runs:
                if len(states[column.step_number]) == 1:
                    assert column.patch == patches[column.step_number]
        store.close()
