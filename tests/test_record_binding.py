"""Which step a look at the files belongs to.

Times are written as on a ruler: a step is its two ends, a look is when it began and was done.
"""

from __future__ import annotations

from typing import Any

from repotrace.records.events import Kind
from repotrace.runs.transcripts.binding import bind
from repotrace.storage.joins import NOT_SEEN, PYTEST, Look, StepMoment

RUN = "r123"


class Texts:
    """States are named by their files: `a1` and `a1'` are the same files."""

    def described(self, before: str, after: str) -> str:
        return f"{before} to {after}"

    def equal(self, one: str, other: str) -> bool:
        return one.rstrip("'") == other.rstrip("'")


def step(name: str, start: int, end: int | None, kind: str = "edit", **facts: Any) -> StepMoment:
    known: dict[str, Any] = {"parent_id": None, "source": "", "has_state": 0, "reads": 0}
    return StepMoment(id=name, type=kind, started_at=start, completed_at=end, **known | facts)


def bound(
    steps: list[StepMoment], *looks: tuple[int, int, str], running: bool = False
) -> list[tuple[str, str | None, int]]:
    """(step, state, time) of each binding; steps that were made are called by their type and
    description."""
    events = list(
        bind(
            RUN,
            steps,
            [Look(*look) for look in looks],
            [Look(0, 0, "a0")],
            running=running,
            files=Texts(),
        )
    )
    names = {
        event["data"]["id"]: f"{event['data']['step_type']} {event['data']['description']}"
        for event in events
        if event["kind"] == Kind.STEP_STARTED
    }
    return [
        (
            names.get(event["data"]["step_id"], event["data"]["step_id"]),
            event["data"].get("state_id"),
            event["time"] // 1000,
        )
        for event in events
        if event["kind"] == Kind.STATE
    ]


def test_the_first_look_after_a_step_and_before_the_next_one_is_its_end() -> None:
    steps = [step("one", 10, 20), step("two", 50, 60)]
    looks = [(15, 17, "a1"), (22, 25, "a2"), (30, 33, "a2"), (61, 62, "a3")]
    assert bound(steps, *looks) == [("one", "a2", 22), ("two", "a3", 61)]


def test_a_look_that_was_not_done_when_the_next_step_began_shows_the_end_of_neither() -> None:
    steps = [step("one", 10, 20), step("two", 24, 60)]
    assert bound(steps, (22, 25, "a2"), (61, 62, "a3")) == [("two", "a3", 61)]


def test_steps_at_the_same_time_may_share_a_look() -> None:
    steps = [step("one", 10, 20), step("two", 11, 19)]
    assert bound(steps, (22, 25, "a2")) == [("one", "a2", 22), ("two", "a2", 22)]


def test_a_change_while_nothing_was_at_work_is_somebody_elses() -> None:
    steps = [step("one", 10, 20), step("two", 50, 60)]
    looks = [(22, 23, "a1"), (30, 31, "a2"), (61, 62, "a2"), (70, 71, "a3")]
    assert bound(steps, *looks) == [
        ("one", "a1", 22),
        ("two", "a2", 61),
        ("external a1 to a2", "a2", 30),
        ("external a2 to a3", "a3", 70),
    ]


def test_where_only_the_files_are_known_each_change_is_an_edit() -> None:
    looks = [(5, 6, "a0"), (10, 11, "a1"), (20, 21, "a2"), (30, 31, "a2")]
    assert bound([], *looks) == [("edit a0 to a1", "a1", 10), ("edit a1 to a2", "a2", 20)]
    tests = [step("tests", 14, 16, "test", source=PYTEST)]
    assert bound(tests, *looks) == [
        ("tests", "a2", 20),
        ("edit a0 to a1", "a1", 10),
    ]


def test_a_step_that_was_broken_off_made_what_was_seen_last() -> None:
    steps = [step("one", 10, None)]
    looks = [(15, 16, "a1"), (30, 31, "a2")]
    assert bound(steps, *looks) == [("one", "a2", 30)]
    assert bound(steps, *looks, running=True) == []


def test_a_step_that_knows_its_state_needs_no_look() -> None:
    steps = [step("one", 10, 20, has_state=1), step("whole", 9, 40, "tool"),
             step("part", 25, 30, parent_id="whole")]  # fmt: skip
    assert bound(steps, (21, 22, "a1"), (32, 33, "a2"))[0] == ("part", "a2", 32)


def test_rebuilt_files_that_are_seen_next_are_exact() -> None:
    steps = [step("one", 10, 20, rebuilt="a1'"), step("two", 21, 60, "command")]
    assert bound(steps, (61, 62, "a1")) == [("two", "a1", 61), ("one", "a1", 20)]
    assert bound(steps, (61, 62, "a2")) == [("two", "a2", 61)]


def test_what_nobody_saw_is_said_of_tools_that_say_nothing() -> None:
    steps = [step("one", 10, 20, "tool"), step("two", 21, 60)]
    (event,) = (
        e
        for e in bind(
            RUN, steps, [Look(61, 62, "a1")], [Look(0, 0, "a0")], running=False, files=Texts()
        )
        if e["data"].get("state_reason")
    )
    assert event["data"]["step_id"] == "one"
    assert (event["data"]["state_quality"], event["data"]["state_reason"]) == ("missing", NOT_SEEN)
    assert event.get("weak") is True


def test_a_step_that_ends_in_a_whole_millisecond_may_have_ended_a_little_later() -> None:
    steps = [step("one", 1_000, 2_000), step("two", 9_000, 10_000)]
    assert bound(steps, (2_400, 2_500, "a1"), (4_000, 4_100, "a2")) == [("one", "a2", 4_000)]
    assert bound([step("one", 1_001, 2_001)], (2_400, 2_500, "a1")) == [("one", "a1", 2_400)]


def test_steps_of_one_millisecond_keep_their_order() -> None:
    steps = [step("one", 1_000, 1_000), step("two", 1_000, 1_000), step("three", 1_000, 1_000)]
    assert bound(steps, (5_000, 5_100, "a3")) == [("three", "a3", 5_000)]
