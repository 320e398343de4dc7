"""What the plug-in told of a command's tests, and what was read from its output: one counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording import RUN, event, step

from repotrace.records.events import Event
from repotrace.storage import Store
from repotrace.storage.runs import RunStore


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    return Store(tmp_path / "home").runs


def outcome(origin: str, command: str = "c1", node_id: str = "t.py::test_a") -> Event:
    message = f"{origin}word of {command}"
    said = event(
        "test",
        2.0,
        step_id="s1",
        command_id=command,
        node_id=node_id,
        outcome="failed",
        message=message,
        details=message * 200,
        origin=origin,
    )
    if origin == "parsed":
        said["weak"] = True
    return said


def kept(runs: RunStore) -> list[tuple[str | None, str, str]]:
    return sorted((found.command_id, found.origin, found.node_id) for found in runs.tests(RUN))


TOLD = [outcome("plugin"), outcome("plugin", node_id="t.py::test_b")]
READ = [outcome("parsed"), outcome("parsed", node_id="t.py::test_c")]
BOTH = [("c1", "plugin", "t.py::test_a"), ("c1", "plugin", "t.py::test_b")]


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(("first", "second"), [(TOLD, READ), (READ, TOLD)])
def test_what_the_plugin_told_stays_alone(
    runs: RunStore, first: list[Event], second: list[Event], together: bool
) -> None:
    runs.add_events(step("s1", 0.0, 9.0))
    if together:
        runs.add_events([*first, event("log", 2.0, message="between"), *second])
    else:
        runs.add_events(first)
        assert runs.search("t.py"), "its words are in the index"
        runs.add_events(second)
    assert kept(runs) == BOTH
    found = {hit.field for hit in runs.search("parsedword")}
    assert found == set(), "nothing of them is found any more"
    assert [hit.field for hit in runs.search("pluginword")]
    run = runs.get(RUN)
    assert (run.totals.tests, run.totals.tests_failing) == (2, 2)


def test_without_the_plugin_what_was_read_counts(runs: RunStore) -> None:
    runs.add_events([*READ, outcome("plugin", command="c2"), outcome("given"), outcome("junit")])
    assert kept(runs) == [
        ("c1", "given", "t.py::test_a"),
        ("c1", "junit", "t.py::test_a"),
        ("c1", "parsed", "t.py::test_a"),
        ("c1", "parsed", "t.py::test_c"),
        ("c2", "plugin", "t.py::test_a"),
    ]
    assert {hit.field for hit in runs.search("parsedword")} >= {"message"}


def test_a_parsed_outcome_that_is_not_weak_is_kept(runs: RunStore) -> None:
    strong = outcome("parsed")
    del strong["weak"]
    runs.add_events([*TOLD, strong])
    assert ("c1", "parsed", "t.py::test_a") in kept(runs)


@settings(max_examples=30, deadline=None)
@given(st.permutations(TOLD + READ + [outcome("parsed", "c2")]), st.integers(0, 5))
def test_any_order_and_any_batches_give_the_same(
    tmp_path_factory: pytest.TempPathFactory, order: list[Event], cut: int
) -> None:
    runs = Store(tmp_path_factory.mktemp("home")).runs
    moved: list[Event] = []
    for place, said in enumerate(order):
        again = said.copy()
        again["time"] += place
        moved.append(again)
    for batch in (moved[:cut], moved[cut:], moved):
        runs.add_events(batch)
    assert kept(runs) == [*BOTH, ("c2", "parsed", "t.py::test_a")]
