"""Runs read back as views: whose work files were, what tests did, what steps cost and changed."""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading import LEAP, Recorded, project, record
from recording import NOON, RUN, event, step, traces
from running import plain_git
from states import exact, picture

from repotrace.errors import RunNotFound
from repotrace.read.diffs import step_diff
from repotrace.read.runs import list_runs, show_run, stream_steps
from repotrace.read.steps import call_before, play_step, repeated_messages, step_json
from repotrace.read.views import RunList, RunView, StepView
from repotrace.records.events import Event
from repotrace.records.run import ExecutionTrace
from repotrace.storage import Store
from repotrace.storage.overview import HEAD


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    return record(project(tmp_path / "invoice"))


def shown(store: Store) -> RunView:
    return show_run(store, store.runs.get(RUN))


def played(store: Store, number: int) -> StepView:
    return play_step(store, store.runs.get(RUN), number)


def patches(store: Store) -> dict[int, tuple[int, ...] | None]:
    """The steps whose work each test run ran on."""
    steps = shown(store).steps
    return {
        line.number: None if line.patch is None else line.patch.steps
        for line in steps
        if line.tests
    }


def state(seconds: float, state_id: str, **data: Any) -> Event:
    return event("state", seconds, state_id=state_id, state_quality="exact", **data)


def failure(seconds: float, name: str, **data: Any) -> Event:
    return event("test", seconds, step_id=name, node_id="t", outcome="failed", **data)


# --- Lists and lines ------------------------------------------------------------------------


def test_a_run_lasts_to_its_end_or_to_what_was_heard_of_it_last(store: Store) -> None:
    for name, ending in (("r1", "completed"), ("r2", "interrupted"), ("r3", None)):
        store.runs.add_events([event("run_started", 0, run=name), event("log", 7, run=name)])
        if ending == "completed":
            store.runs.add_events([event("run_ended", 9, run=name)])
        elif ending is not None:
            store.runs.add_events([event("run_updated", 8, run=name, status=ending)])
    durations = {run.id: run.duration for run in list_runs(store).runs}
    assert durations == {"r1": 9.0, "r2": 8.0, "r3": None}


def test_a_list_says_whether_it_left_something_out(store: Store) -> None:
    for number in range(3):
        store.runs.add_events([event("run_started", number, run=f"r{number}", workspace="/a")])
    assert [run.id for run in list_runs(store, limit=2).runs] == ["r2", "r1"]
    assert list_runs(store, limit=2).more
    assert not list_runs(store, limit=3).more
    assert list_runs(store, workspace="/b") == RunList(elsewhere=3)
    assert list_runs(store, workspace="/a", agent="x") == RunList()


def test_a_step_counts_what_its_parts_did(store: Store) -> None:
    def used(seconds: float, name: str, tokens: int, cost: str | None) -> Event:
        return event("llm", seconds, id=f"l{seconds}", step_id=name, tokens_used=tokens,
                     cost_usd=cost)  # fmt: skip

    store.runs.add_events(
        [
            event("run_started", 0),
            *step("whole", 1, 9),
            *step("part", 2, 8, parent_id="whole"),
            *step("inner", 3, 4, parent_id="part", attempt=2, retry_of="other"),
            *step("other", 10, 11),
            used(2, "whole", 1, "0.1"),
            used(3, "part", 10, "0.01"),
            used(4, "inner", 100, None),
            event("file_operation", 4, step_id="inner", file_path="a", lines_added=2),
            event("file_operation", 5, step_id="part", file_path="a", lines_removed=1),
            event("file_operation", 6, step_id="whole", file_path="b", lines_added=1),
        ]
    )
    view = shown(store)
    lines = {line.id: line for line in view.steps}
    whole, part, inner = lines["whole"], lines["part"], lines["inner"]
    assert (whole.tokens, part.tokens, inner.tokens) == (111, 110, 100)
    assert (whole.cost_usd, part.cost_usd) == (Decimal("0.11"), Decimal("0.01"))
    assert (whole.unpriced_calls, inner.unpriced_calls) == (1, 1)
    assert (whole.files, whole.lines_added, whole.lines_removed) == (("a", "b"), 3, 1)
    assert (inner.depth, inner.parent, inner.retry_of) == (2, part.number, lines["other"].number)
    assert (view.retries.count, view.retries.tokens, view.retries.duration) == (1, 100, 1.0)
    assert played(store, whole.number).parts == (part.number,)


def test_a_retry_costs_what_was_used_since_the_failure(store: Store) -> None:
    def used(seconds: float, name: str, tokens: int) -> Any:
        return event("llm", seconds, id=f"l{seconds}", step_id=name, tokens_used=tokens)

    store.runs.add_events(
        [
            event("run_started", 0),
            *step("asks first", 1, 2),
            used(1, "asks first", 1),
            *step("edits", 2, 3),
            event("step_started", 3, id="tests", step_type="test"),
            event("test", 3, step_id="tests", node_id="t", outcome="failed"),
            event("step_ended", 5, id="tests"),
            *step("asks again", 5, 7),
            used(5, "asks again", 10),
            *step("edits again", 7, 8, attempt=2, retry_of="edits"),
            used(7, "edits again", 100),
            *step("asks last", 8, 9),
            used(8, "asks last", 1000),
        ]
    )
    retries = shown(store).retries
    assert (retries.count, retries.tokens, retries.duration) == (1, 110, 3.0)


def test_steps_that_are_parts_of_each_other_are_shown_too(store: Store) -> None:
    store.runs.add_events(
        [event("run_started", 0), *step("a", 1, 2, parent_id="b"), *step("b", 1, 2, parent_id="a")]
    )
    assert [line.depth for line in shown(store).steps] == [1, 1]


def test_only_the_beginning_of_a_long_text_is_read_for_a_line(store: Store) -> None:
    reason = "because é " * 100_000
    store.runs.add_events([event("run_started", 0), *step("a", 1, 2, reason=reason)])
    (line,) = shown(store).steps
    assert line.reason is not None
    assert len(line.reason.encode()) <= HEAD + 3
    assert reason.startswith(line.reason.rstrip("\ufffd"))
    assert played(store, 1).step.reason == reason


# --- Whose work the files were --------------------------------------------------------------


def test_a_test_names_the_step_whose_change_it_ran_on(recorded: Recorded) -> None:
    assert patches(recorded.store) == {4: (3,), 6: (5,)}
    view = shown(recorded.store)
    assert view.steps[3].patch is not None
    assert view.steps[3].patch.state_id == recorded.states[1]
    assert view.steps[3].failing_tests == (LEAP,)


def test_a_test_may_run_on_what_nobody_changed(store: Store) -> None:
    store.runs.add_events(
        [
            event("run_started", 0),
            state(0, "s0"),
            *step("test", 1, 2),
            failure(1.5, "test", state_id="s0"),
        ]
    )
    (line,) = shown(store).steps
    assert line.patch is not None
    assert (line.patch.unchanged, line.patch.steps) == (True, ())


def test_a_state_that_comes_back_is_the_work_of_the_step_that_brought_it_back(
    store: Store,
) -> None:
    store.runs.add_events(
        [
            event("run_started", 0),
            state(0, "s0"),
            *step("break", 1, 2),
            state(2, "s1", step_id="break"),
            *step("undo", 3, 4),
            state(4, "s0", step_id="undo"),
            *step("test", 5, 6),
            failure(5.5, "test", state_id="s0"),
            *step("again", 7, 8),
            state(8, "s1", step_id="again"),
            *step("test2", 9, 10),
            failure(9.5, "test2"),
        ]
    )
    assert patches(store) == {3: (2,), 5: (4,)}


def test_a_change_between_steps_is_that_of_an_external_step(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    store = Store(tmp_path / "home")

    def now() -> str:
        return exact(store.snapshots.take(workspace, ref=f"runs/{RUN}"))

    base = now()
    (workspace / "a").write_text("1\n")
    changed = now()
    store.runs.add_events(
        [
            event("run_started", 0, workspace=str(workspace)),
            state(0, base),
            *step("think", 1, 2),
            *step("test", 3, 4),
            state(3, changed, step_id="test", when="start"),
            failure(3.5, "test"),
            state(4, changed, step_id="test"),
        ]
    )
    lines = {line.step_type: line for line in shown(store).steps}
    external = lines["external"]
    assert external.files == ("a",)
    (test,) = (line for line in shown(store).steps if line.tests)
    assert test.patch is not None
    assert test.patch.steps == (external.number,)


def test_without_states_the_newest_change_that_was_told_of_counts(store: Store) -> None:
    store.runs.add_events(
        [
            event("run_started", 0),
            *step("one", 1, 2),
            event("file_operation", 1.5, step_id="one", file_path="a"),
            *step("test", 3, 4),
            failure(3.5, "test"),
            *step("two", 5, 6),
            event("file_operation", 5.5, step_id="two", file_path="a"),
        ]
    )
    (line,) = (line for line in shown(store).steps if line.tests)
    assert line.patch is not None
    assert (line.patch.steps, line.patch.quality) == ((1,), "missing")


def test_what_is_doubtful_about_a_state_is_said(store: Store) -> None:
    store.runs.add_events(
        [
            event("run_started", 0),
            state(0, "s0"),
            *step("edit", 1, 3, ambiguous=True),
            event("state", 3, step_id="edit", state_id="s1", state_quality="unverified",
                  state_reason="a command ran"),
            *step("test", 4, 5),
            failure(4.5, "test"),
        ]
    )  # fmt: skip
    (line,) = (line for line in shown(store).steps if line.tests)
    assert line.patch is not None
    assert (line.patch.steps, line.patch.quality, line.patch.ambiguous) == (
        (1,),
        "unverified",
        True,
    )
    after = played(store, 2).after
    assert (after.state_id, after.step_number, after.reason) == ("s1", 1, "a command ran")
    assert played(store, 1).before.state_id == "s0"


def test_a_step_that_has_not_ended_has_the_files_that_it_found(store: Store) -> None:
    store.runs.add_events(
        [
            event("run_started", 0),
            state(0, "s0"),
            event("step_started", 1, id="going"),
            state(1, "s1", step_id="going", when="start"),
        ]
    )
    after = played(store, 1).after
    assert (after.state_id, after.step_number, after.at_start) == ("s1", 1, True)


# --- Tests ----------------------------------------------------------------------------------

OUTCOMES = st.sampled_from(
    ["passed", "failed", "error", "skipped", "xfailed", "xpassed", "rerun", "odd"]
)
EXECUTIONS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from([("call",), ("setup",), ("setup", "call"),
              ("setup", "call", "teardown")]), st.lists(OUTCOMES, min_size=3, max_size=3)),
    max_size=6,
)  # fmt: skip


def _worth(phases: list[tuple[str, str]]) -> str | None:
    """The outcome of one execution of a test, worked out the slow way."""
    outcomes = [outcome for _, outcome in phases]
    for outcome in outcomes:
        if outcome in ("failed", "error"):
            return outcome
    own = [outcome for outcome in outcomes if outcome != "passed"]
    return own[0] if own else "passed"


@settings(deadline=None, max_examples=60)
@given(executions=EXECUTIONS)
def test_each_test_of_a_step_counts_once_as_its_last_execution_ended(executions: Any) -> None:
    expected: dict[str, str] = {}
    events = [event("run_started", 0), *step("s", 1, 9)]
    for number, (name, phases, outcomes) in enumerate(executions):
        ran = [pair for pair in zip(phases, outcomes, strict=False) if pair[1] != "rerun"]
        for phase, outcome in zip(phases, outcomes, strict=False):
            events.append(
                event("test", 2 + number / 100, step_id="s", node_id=name, phase=phase,
                      outcome=outcome, command_id=f"c{number}")
            )  # fmt: skip
        if ran:
            expected[name] = _worth(ran) or ""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.runs.add_events(events)
        (line,) = shown(store).steps
    counted = Counter(expected.values())
    if not expected:
        assert line.tests is None or line.tests.total == 0
        return
    assert line.tests is not None
    assert line.tests.failed == counted["failed"]
    assert line.tests.errors == counted["error"]
    assert line.tests.skipped == counted["skipped"] + counted["xfailed"]
    assert line.tests.total == len(expected)
    assert set(line.failing_tests) == {
        name for name, outcome in expected.items() if outcome in ("failed", "error")
    }


def test_the_grid_has_the_tests_that_ever_failed(store: Store) -> None:
    results = {"one": "FP.", "two": "PPE", "three": "PPP", "four": "..P"}
    words = {"F": "failed", "P": "passed", "E": "error"}
    events = [event("run_started", 0)]
    for column in range(3):
        events += step(f"s{column}", column + 1, column + 1.5)
        events += [
            event("test", column + 1.2, step_id=f"s{column}", node_id=name,
                  outcome=words[marks[column]])
            for name, marks in results.items()
            if marks[column] != "."
        ]  # fmt: skip
    store.runs.add_events(events)
    grid = shown(store).grid
    assert [run.step_number for run in grid.runs] == [1, 2, 3]
    assert [(row.node_id, row.outcomes) for row in grid.tests] == [
        ("two", ("passed", "passed", "error")),
        ("one", ("failed", "passed", None)),
    ]
    assert grid.never_failed == 2
    assert [run.tests.total for run in grid.runs] == [3, 3, 3]


# --- Steps ----------------------------------------------------------------------------------


def test_a_step_is_read_with_all_that_hangs_on_it(recorded: Recorded) -> None:
    search = played(recorded.store, 2)
    assert [read.file_path for read in search.reads] == ["app/export.py", "tests/test_export.py"]
    assert [entry.message for entry in search.logs] == ["two files match"]
    check = played(recorded.store, 4)
    assert [item.exit_code for item in check.commands] == [1]
    assert {outcome.node_id: outcome.outcome for outcome in check.tests}[LEAP] == "failed"
    with pytest.raises(RunNotFound, match="no step 7"):
        played(recorded.store, 7)


def test_a_retry_tells_what_was_changed_after_the_failure(recorded: Recorded) -> None:
    since = played(recorded.store, 5).since_failure
    assert since is not None
    assert (since.step_number, since.state_id) == (4, recorded.states[1])
    assert since.files == ("app/export.py", "logo.bin")
    assert (since.lines_added, since.lines_removed) == (1, 1)
    assert played(recorded.store, 3).since_failure is None


def test_messages_that_the_call_before_had_are_counted(recorded: Recorded) -> None:
    run = recorded.store.runs.get(RUN)
    plan, retry = played(recorded.store, 1), played(recorded.store, 5)
    assert call_before(recorded.store, run, plan) is None
    before = call_before(recorded.store, run, retry)
    assert before is not None
    assert before.id == "call1"
    assert [count for count, _ in repeated_messages(retry, before)] == [1]


def test_conversations_and_files_are_left_out_of_json_without_being_read(store: Store) -> None:
    text = "long " * 1000
    store.runs.add_events(
        [
            event("run_started", 0),
            *step("s", 1, 2),
            event("llm", 1, id="l", step_id="s", model="m", response=text),
            event("file_operation", 1, step_id="s", file_path="a", after_id="0" * 40),
        ]
    )
    view = played(store, 1)
    plain = step_json(store, view, messages=False, contents=False)
    assert "response" not in plain["interactions"][0]
    assert plain["interactions"][0]["model"] == "m"
    assert "response" not in view.interactions[0].__dict__
    whole = step_json(store, view, messages=True, contents=True)
    assert whole["interactions"][0]["response"] == text
    assert (whole["diff"], whole["operations"][0]["content_after"]) == ("", None)


# --- Diffs ----------------------------------------------------------------------------------


def test_the_diff_of_a_step_is_what_git_says_of_its_states(recorded: Recorded) -> None:
    diff = step_diff(recorded.store, played(recorded.store, 5))
    assert diff.diff == recorded.store.snapshots.diff(*recorded.states[1:])
    assert diff.unknown == ()
    assert step_diff(recorded.store, played(recorded.store, 1)).diff == b""


CONTENTS = [
    *(b"", b"one\ntwo\nthree\n", b"one\nTWO\nthree\nfour", b"caf\xe9\r\n"),
    *(b"\0\1binary", bytes(range(256)) * 3),
]
PATHS = ["plain.py", "with space", "tab\there", 'quo"te', "caf\xe9", "not\udcffutf8", "a/b/c"]


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_diff_made_of_contents_is_one_that_git_applies(data: st.DataObject) -> None:
    """A parent's own changes are not what lies between its states: those are its parts' too."""
    names = st.dictionaries(st.sampled_from(PATHS), st.tuples(st.sampled_from(CONTENTS),
                            st.sampled_from([0o644, 0o755])), max_size=5)  # fmt: skip
    before, after = data.draw(names), data.draw(names)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = Store(root / "home")
        workspace = root / "w"
        pictures = [
            before,
            before | {"part's": (b"x\n", 0o644)},
            after | {"part's": (b"x\n", 0o644)},
        ]
        states = []
        for number, files in enumerate(pictures):
            fill(workspace, files)
            states.append(exact(store.snapshots.take(workspace, ref=f"runs/{RUN}")))
            fill(root / str(number), files)
        base, between, end = states
        store.runs.add_events(
            [
                event("run_started", 0, workspace=str(workspace)),
                state(0, base),
                event("step_started", 1, id="whole"),
                state(1, base, step_id="whole", when="start"),
                *step("part", 2, 3, parent_id="whole"),
                state(2, base, step_id="part", when="start"),
                state(3, between, step_id="part"),
                state(4, end, step_id="whole"),
                event("step_ended", 4, id="whole"),
            ]
        )
        view = played(store, 1)
        found = step_diff(store, view)
        assert found.unknown == ()
        target = root / "1"
        if found.diff:
            plain_git(target, "init", "-q")
            (root / "patch").write_bytes(found.diff)
            plain_git(target, "apply", "--whitespace=nowarn", str(root / "patch"))
        assert picture(target) == picture(root / "2")


def fill(folder: Path, files: dict[str, tuple[bytes, int]]) -> None:
    """Make the folder hold these files alone."""
    for top, _, names in os.walk(folder):
        for name in names:
            (Path(top) / name).unlink()
    for name, (content, mode) in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
    folder.mkdir(exist_ok=True)
    for top, folders, names in os.walk(folder, topdown=False):
        if not folders and not names and Path(top) != folder:
            Path(top).rmdir()


def test_contents_that_are_not_kept_are_named(store: Store) -> None:
    store.runs.add_events(
        [
            event("run_started", 0),
            *step("s", 1, 2),
            event("file_operation", 1, step_id="s", file_path="a", operation_type="edit"),
            event("file_operation", 1, step_id="s", file_path="b", operation_type="create",
                  after_id="--output=/tmp/never"),
        ]
    )  # fmt: skip
    found = step_diff(store, played(store, 1))
    assert found.diff == b""
    assert [operation.file_path for operation in found.unknown] == ["a", "b"]


# --- Anything -------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(trace=traces())
def test_whatever_was_recorded_is_read_back(trace: ExecutionTrace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.runs.save(trace)
        run = store.runs.get(RUN)
        view = show_run(store, run)
        assert [line.number for line in view.steps] == [item.step_number for item in trace.steps]
        assert list(stream_steps(store, run)) == list(view.steps)
        json.dumps(view.json_object())
        json.dumps(list_runs(store).json_object())
        for item in trace.steps:
            one = play_step(store, run, item.step_number)
            assert one.step.load() == store.runs.step(RUN, item.step_number).load()
            json.dumps(step_json(store, one, messages=True, contents=True))


@pytest.mark.parametrize("view", [RunList, RunView, StepView])
def test_every_view_has_a_schema(view: type[RunList | RunView | StepView]) -> None:
    properties = view.model_json_schema()["properties"]
    assert properties["schema_version"]["default"] == 1


def test_views_are_plain_in_json(recorded: Recorded) -> None:
    plain = shown(recorded.store).json_object()
    assert plain["steps"][4]["cost_usd"] == "0.01"
    assert plain["steps"][0]["started_at"] == "2026-03-01T12:00:01Z"
    assert plain["duration"] == 13.0
    assert NOON + timedelta(seconds=13) == recorded.store.runs.get(RUN).completed_at
