"""The states of a run in order, and whose they are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from recording import NOON

from repotrace.blame import Candidate, candidates_of
from repotrace.records.run import ExecutionStep, Run, StateQuality, StepType

RUN = Run(id="r1", started_at=NOON, base_state="base")


def step(number: int, start: float, end: float | None, **facts: Any) -> ExecutionStep:
    return ExecutionStep(
        id=f"step{number}",
        run_id="r1",
        step_number=number,
        started_at=NOON + timedelta(seconds=start),
        completed_at=None if end is None else NOON + timedelta(seconds=end),
        **facts,
    )


def found(*steps: ExecutionStep, run: Run = RUN) -> list[tuple[str, tuple[int, ...]]]:
    states = candidates_of(run, steps)
    assert [one.index for one in states] == list(range(len(states)))
    return [(one.state_id, one.steps) for one in states]


def test_states_change_at_the_steps_that_change_files() -> None:
    assert found(
        step(1, 0, 1, state_before_id="base", state_id="base"),
        step(2, 1, 2),
        step(3, 2, 3, state_before_id="base", state_id="a"),
        step(4, 3, 4, state_id="a"),
        step(5, 4, 5, state_id="b"),
    ) == [("base", ()), ("a", (3,)), ("b", (5,))]


def test_files_that_were_put_back_are_a_candidate_of_their_own() -> None:
    assert found(
        step(1, 0, 1, state_id="a"), step(2, 1, 2, state_id="base"), step(3, 2, 3, state_id="a")
    ) == [("base", ()), ("a", (1,)), ("base", (2,)), ("a", (3,))]


def test_a_parent_ends_after_its_parts() -> None:
    assert found(
        step(1, 0, 9, state_before_id="base", state_id="c"),
        step(2, 1, 2, parent_id="step1", state_id="a"),
        step(3, 3, 4, parent_id="step1", state_id="b"),
    ) == [("base", ()), ("a", (2,)), ("b", (3,)), ("c", (1,))]


def test_steps_at_the_same_time_cannot_be_told_apart() -> None:
    assert found(
        step(1, 0, 9, state_id="d"),
        step(2, 1, 5, parent_id="step1", ambiguous=True, state_id="a"),
        step(3, 2, 6, parent_id="step1", ambiguous=True, state_id="b"),
        step(4, 7, 8, parent_id="step1", ambiguous=True, state_id="c"),
    ) == [("base", ()), ("a", (2, 3)), ("b", (2, 3)), ("c", (4,)), ("d", (1,))]


def test_what_an_outsider_changed_is_his_own() -> None:
    """The derived step has a later number, and the time at which the next step began."""
    outside = step(3, 2, 2, step_type=StepType.EXTERNAL, state_id="x")
    assert found(
        step(1, 0, 1, state_id="a"), step(2, 2, 3, state_before_id="x", state_id="b"), outside
    ) == [("base", ()), ("a", (1,)), ("x", (3,)), ("b", (2,))]


def test_a_change_seen_at_the_start_of_a_part_is_that_of_the_whole() -> None:
    assert found(
        step(1, 0, 9, state_id="b"), step(2, 4, 5, parent_id="step1", state_before_id="a")
    ) == [("base", ()), ("a", (1,)), ("b", (1,))]


def test_steps_whose_state_is_missing_are_suspects_with_the_next() -> None:
    missing = StateQuality.MISSING
    assert found(
        step(1, 0, 1, state_id="a"),
        step(2, 1, 2, state_quality=missing),
        step(3, 2, 3, state_quality=missing),
        step(4, 3, 4, state_id="b"),
        step(5, 4, 5, state_id="c"),
    ) == [("base", ()), ("a", (1,)), ("b", (2, 3, 4)), ("c", (5,))]


def test_a_missing_state_before_one_that_is_unchanged_suspects_nobody_later() -> None:
    assert found(
        step(1, 0, 1, state_quality=StateQuality.MISSING),
        step(2, 1, 2, state_id="base"),
        step(3, 2, 3, state_id="a"),
    ) == [("base", ()), ("a", (3,))]


def test_without_a_base_the_first_known_state_is_it() -> None:
    run = Run(id="r1", started_at=NOON)
    assert found(step(1, 0, 1, state_before_id="a", state_id="b"), run=run) == [
        ("a", ()),
        ("b", (1,)),
    ]
    assert found(step(1, 0, 1), run=run) == []


def test_qualities_and_fingerprints_come_along() -> None:
    run = RUN.model_copy(update={"base_quality": "inferred"})
    states = candidates_of(
        run,
        [step(1, 0, 1, state_id="a", state_quality="unverified"), step(2, 1, 2, state_id="b")],
        environments={"a": "e1"},
        tests={"base": "t0", "b": "t1"},
    )
    assert states == (
        Candidate(0, "base", (), "inferred", "", "t0"),
        Candidate(1, "a", (1,), "unverified", "e1", ""),
        Candidate(2, "b", (2,), "exact", "", "t1"),
    )
    assert [one.inferred for one in states] == [True, True, False]


@given(st.lists(st.sampled_from(["base", "a", "b", None]), max_size=20))
@settings(deadline=None)
def test_steps_one_after_another_make_a_state_each_time_it_changes(names: list[str | None]) -> None:
    steps = [step(n, n, n + 0.5, state_id=name) for n, name in enumerate(names, 1)]
    expected: list[tuple[str, tuple[int, ...]]] = [("base", ())]
    for number, name in enumerate(names, 1):
        if name is not None and name != expected[-1][0]:
            expected.append((name, (number,)))
    assert found(*steps) == expected
    assert found(*reversed(steps)) == expected
