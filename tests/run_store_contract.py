"""What every store of runs must do, whatever it is built on.

A back end is tested by a subclass of `RunStoreContract` whose fixture `runs` gives an empty store.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from recording import NOON, RUN, event, step, traces

from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.records.events import Event
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    LLMInteraction,
    RunTotals,
)
from repotrace.storage.runs import RunStore

LEAP = "The date of the invoice is wrong in leap years.\n" * 40


def a_run() -> list[Event]:
    """A small run as a program would tell it: two steps, a failing and a passing test."""
    return [
        event("run_started", 0, task="Fix the date bug", source="sdk", agent="demo", tags=["b"]),
        event("state", 0, state_id="state-0"),
        *step("s1", 1, 3, step_type="edit", description="edit dates.py", reason="365 days"),
        event("file_read", 1, step_id="s1", file_path="src/dates.py"),
        event("file_read", 1, step_id="s1", file_path="src/dates.py"),
        event(
            "file_operation", 2, step_id="s1", file_path="src/dates.py", operation_type="edit",
            before_id="aa", after_id="bb", lines_added=2, lines_removed=1, origin="observed",
        ),
        event("state", 3, step_id="s1", state_id="state-1"),
        event("step_started", 4, id="s2", step_type="test", description="run the tests"),
        event("command", 4, id="c1", step_id="s2", is_test=True,
              command={"argv": ["pytest", "-q"], "exit_code": 1, "duration": 0.5,
                       "stdout": LEAP}),
        event("test", 5, step_id="s2", command_id="c1", node_id="tests/test_dates.py::test_leap",
              outcome="failed", message="2024-05-31 != 2024-06-01", details=LEAP),
        event("test", 5, step_id="s2", command_id="c1", node_id="tests/test_dates.py::test_year",
              outcome="passed"),
        event("step_ended", 6, id="s2", status="failed", error="1 test failed"),
        event("llm", 7, step_id="s2", id="l1", model="claude", input_tokens=100, output_tokens=20,
              cost_usd="0.0125", messages=[{"role": "user", "content": LEAP}], response="I see"),
        event("llm", 8, step_id="s2", model="gpt", input_tokens=7, response=LEAP),
        event("log", 8, step_id="s2", level="warning", message="slow", data={"seconds": 3}),
        event("run_ended", 9, tags=["a"]),
    ]  # fmt: skip


class RunStoreContract:
    """The tests. Their names say the promises."""

    @pytest.fixture
    def told(self, runs: RunStore) -> RunStore:
        runs.add_events(a_run())
        return runs

    # --- Without a run ----------------------------------------------------------------------

    def test_an_empty_store_has_nothing(self, runs: RunStore) -> None:
        assert runs.list() == []
        assert runs.steps(RUN) == []
        assert runs.interactions(RUN) == runs.operations(RUN) == runs.tests(RUN) == []
        assert runs.search("anything") == []
        assert runs.losses() == 0
        assert not runs.home.exists()
        for ref in ("latest", "r0", ""):
            with pytest.raises(RunNotFound) as caught:
                runs.get(ref)
            assert caught.value.hint
        with pytest.raises(RunNotFound):
            runs.step(RUN, 1)

    # --- What was told ------------------------------------------------------------------------

    def test_a_run_is_what_was_told(self, told: RunStore) -> None:
        run = told.get(RUN)
        assert (run.task, run.agent, run.source) == ("Fix the date bug", "demo", "sdk")
        assert (run.status, run.outcome) == ("completed", "failed")
        assert run.started_at == NOON
        assert run.completed_at == run.last_event_at == NOON + timedelta(seconds=9)
        assert run.tags == ("a", "b")
        assert run.models == ("claude", "gpt")
        assert run.base_state == "state-0"
        assert run.totals == RunTotals(
            steps=2,
            failed_steps=1,
            llm_calls=2,
            tokens_used=127,
            input_tokens=107,
            output_tokens=20,
            cost_usd=Decimal("0.0125"),
            unpriced_calls=1,
            files_read=1,
            files_modified=1,
            lines_added=2,
            lines_removed=1,
            commands=1,
            test_runs=1,
            tests=2,
            tests_failing=1,
        )

    def test_steps_are_numbered_by_their_start(self, runs: RunStore) -> None:
        runs.add_events([*step("late", 5, 6), *step("early", 1, 9), *step("middle", 3)])
        assert [(item.id, item.step_number) for item in runs.steps(RUN)] == [
            ("early", 1),
            ("middle", 2),
            ("late", 3),
        ]
        runs.add_events([*step("earliest", 0, 1), *step("late", 5, 7)])
        assert [item.id for item in runs.steps(RUN)] == ["early", "middle", "late", "earliest"]

    def test_steps_come_in_pages_and_by_what_they_are(self, runs: RunStore) -> None:
        kinds = ("edit", "test")
        runs.add_events(
            item
            for number in range(1, 21)
            for item in step(f"s{number}", number, number, step_type=kinds[number % 2])
        )
        assert [item.step_number for item in runs.steps(RUN, first=5, last=8)] == [5, 6, 7, 8]
        assert [item.step_number for item in runs.steps(RUN, first=18, limit=2)] == [18, 19]
        assert len(runs.steps(RUN, step_type="test")) == 10
        assert runs.steps(RUN, status="failed") == []
        assert runs.step(RUN, 7) == runs.step(RUN, "s7")

    def test_parts_of_a_step(self, told: RunStore) -> None:
        command = told.commands(RUN, "s2")[0]
        assert (command.command_line, command.exit_code, command.is_test) == ("pytest -q", 1, True)
        assert command.command.stdout.text == LEAP
        assert command.command.argv == ("pytest", "-q")
        operation = told.operations(RUN, "s1")[0]
        assert (operation.before_id, operation.origin) == ("aa", "observed")
        assert told.operations(RUN, "s2") == []
        assert told.operations(RUN, path="src/dates.py") == [operation]
        assert [item.file_path for item in told.reads(RUN)] == ["src/dates.py"] * 2
        assert told.logs(RUN)[0].data == {"seconds": 3}
        first, second = told.interactions(RUN, "s2")
        assert first.messages == ({"role": "user", "content": LEAP},)
        assert (first.tokens_used, first.cost_usd, first.cost_source) == (
            120,
            Decimal("0.0125"),
            "given",
        )
        assert (second.response, second.cost_usd, second.tokens_used) == (LEAP, None, 7)

    def test_an_outcome_belongs_to_the_state_its_step_began_with(self, told: RunStore) -> None:
        states = {item.state_id for item in told.tests(RUN)}
        assert states == {"state-1"}
        failing = told.tests(RUN, node_id="tests/test_dates.py::test_leap")
        assert [item.details for item in failing] == [LEAP]

    def test_contents_of_files_come_from_the_snapshot_store(self, told: RunStore) -> None:
        asked: list[str] = []

        def read(object_id: str) -> bytes | None:
            asked.append(object_id)
            return {"aa": b"before", "bb": b"caf\xc3\xa9 \xff"}.get(object_id)

        told.contents = read
        operation = told.operations(RUN)[0]
        assert asked == []
        assert operation.content_before == "before"
        assert operation.content_after == "café \udcff"
        assert asked == ["aa", "bb"]

    def test_a_trace_counts_as_specified(self, told: RunStore) -> None:
        trace = told.trace(RUN)
        assert trace.summary() == {
            "total_steps": 2,
            "llm_calls": 2,
            "total_tokens": 127,
            "files_modified": 1,
        }
        assert trace.task_id == "unknown"

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(trace=traces())
    def test_saving_and_loading_is_identity(self, runs: RunStore, trace: ExecutionTrace) -> None:
        if runs.list():
            runs.delete(RUN)
        assert runs.save(trace).unusable == 0
        loaded = runs.trace(RUN)
        for name in ("steps", "llm_interactions", "file_operations", "file_reads", "logs"):
            assert getattr(loaded, name) == getattr(trace, name)
        assert loaded.commands == trace.commands
        assert loaded.test_outcomes == trace.test_outcomes
        assert loaded.run is not None
        assert trace.run is not None
        models = {call.model for call in trace.llm_interactions} - {""}
        worked_out = {"totals", "last_event_at", "models"}
        assert loaded.run.model_dump(exclude=worked_out) == trace.run.model_dump(exclude=worked_out)
        assert set(loaded.run.models) == models | set(trace.run.models)
        before = loaded.model_dump()
        runs.save(trace)
        assert runs.trace(RUN).model_dump() == before

    # --- Single records -----------------------------------------------------------------------

    def test_a_record_that_is_put_again_is_replaced_whole(self, runs: RunStore) -> None:
        first = ExecutionStep(
            id="s",
            run_id=RUN,
            step_number=1,
            description="one",
            started_at=NOON,
            completed_at=NOON + timedelta(seconds=1),
            status="failed",
            input_context="context",
            output_result=LEAP,
            metadata={"a": 1, "b": 2},
            external_id="outer",
            state_id="state-1",
            state_quality="exact",
            error="why",
        )
        later = ExecutionStep(
            id="s",
            run_id=RUN,
            step_number=4,
            started_at=NOON + timedelta(seconds=5),
            metadata={"c": 3},
        )
        for step_told in (first, later, first):
            runs.put(step_told)
            assert runs.steps(RUN) == [step_told]
        runs.put(later)
        assert runs.search("context") == runs.search("leap") == []

        call = LLMInteraction(
            id="l",
            run_id=RUN,
            step_id="s",
            prompt="p",
            messages=({"role": "user", "content": LEAP},),
            tokens_used=5,
            cost_usd=Decimal("0.5"),
            cost_source="given",
            external_id="outer",
            timestamp=NOON,
        )
        bare = LLMInteraction(
            id="l", run_id=RUN, step_id="t", timestamp=NOON + timedelta(seconds=1)
        )
        for call_told in (call, bare, call):
            runs.put(call_told)
            assert runs.interactions(RUN) == [call_told]

        told = FileOperation(
            id="f",
            run_id=RUN,
            step_id="s",
            operation_type="edit",
            file_path="a",
            before_id="aa",
            after_id="bb",
            lines_added=1,
            timestamp=NOON,
        )
        deleted = FileOperation(
            id="f", run_id=RUN, step_id="s", operation_type="delete", file_path="b", timestamp=NOON
        )
        for operation in (told, deleted, told):
            runs.put(operation)
            assert runs.operations(RUN) == [operation]

    def test_numbers_of_records_stay_as_given_where_they_can(self, runs: RunStore) -> None:
        def put(name: str, number: int) -> None:
            runs.put(ExecutionStep(id=name, run_id=RUN, step_number=number, started_at=NOON))

        for name, number in (("c", 3), ("a", 1), ("again", 3), ("zero", 0), ("b", 2), ("c", 3)):
            put(name, number)
        found = [(item.step_number, item.id, item.metadata) for item in runs.steps(RUN)]
        assert found == [
            (1, "a", {}),
            (2, "b", {}),
            (3, "c", {}),
            (4, "again", {"step_number": 3}),
            (5, "zero", {"step_number": 0}),
        ]
        runs.add_events(step("told", 9, 10))
        assert runs.step(RUN, "told").step_number == 6
        put("a", 6)
        assert runs.step(RUN, "a").step_number == 1

    def test_a_run_of_records_alone_has_no_known_status(self, runs: RunStore) -> None:
        for name, seconds in (("b", 2), ("a", 1)):
            at_second = NOON + timedelta(seconds=seconds)
            runs.put(ExecutionStep(id=name, run_id=RUN, step_number=seconds, started_at=at_second))
        assert runs.get(RUN).status == "UNKNOWN"
        assert runs.get(RUN).started_at == NOON + timedelta(seconds=1)
        runs.add_events([event("run_started", 0, task="Fix it")])
        assert runs.get(RUN).status == "running"
        runs.add_events([event("run_ended", 9)])
        runs.put(ExecutionStep(id="c", run_id=RUN, step_number=3, started_at=NOON))
        assert (runs.get(RUN).status, runs.get(RUN).started_at) == ("completed", NOON)

    def test_only_whole_names_name_a_run(self, told: RunStore) -> None:
        found = told.named(RUN)
        assert found is not None
        assert found.id == RUN
        assert told.named(RUN[:-1]) is None
        assert told.named("latest") is None
        told.add_events([event("run_started", 0, run="rx", source="a", source_id="b")])
        told.add_events([event("run_started", 0, run="ry", source="a", source_id="b")])
        joined = told.named("ry")
        assert joined is not None
        assert joined.id == "rx"

    # --- Telling it again -----------------------------------------------------------------------

    def test_telling_twice_is_telling_once(self, told: RunStore) -> None:
        before = told.trace(RUN).load()
        told.add_events(a_run_again(before, told))
        assert told.trace(RUN).model_dump() == before.model_dump()

    def test_an_absent_fact_changes_nothing_and_a_later_one_replaces(self, runs: RunStore) -> None:
        runs.add_events(step("s1", 1, 2, description="one", metadata={"a": 1, "b": 1}))
        runs.add_events([event("step_updated", 3, id="s1", metadata={"b": 2}, reason="why")])
        found = runs.step(RUN, 1)
        assert (found.description, found.reason, found.status) == ("one", "why", "completed")
        assert found.metadata == {"a": 1, "b": 2}
        runs.add_events([event("step_updated", 4, id="s1", description="two", reason=None)])
        assert (runs.step(RUN, 1).description, runs.step(RUN, 1).reason) == ("two", "why")

    def test_a_weak_fact_only_fills_what_is_not_known(self, runs: RunStore) -> None:
        runs.add_events(step("s1", 1, 2, description="one", metadata={"a": 1}))
        weak = event(
            "step_updated", 3, id="s1", description="other", step_type="edit", metadata={"a": 2}
        )
        weak["weak"] = True
        runs.add_events([weak])
        found = runs.step(RUN, 1)
        assert (found.description, found.step_type, found.metadata) == ("one", "edit", {"a": 1})

    def test_views_of_one_session_are_one_run(self, runs: RunStore) -> None:
        session = {"source": "claude-code", "source_id": "5e55"}
        runs.add_events(
            [
                event("run_started", 0, **session),
                *step("tool-1", 1, 2, external_id="toolu_1", description="edit"),
                event("llm", 1, step_id="tool-1", external_id="msg_1", input_tokens=5),
            ]
        )
        runs.add_events(
            [
                event("run_started", 0, run="rother", task="Fix it", **session),
                *(
                    item
                    for item in [
                        event(
                            "test", 1, run="rother", step_id="hook-9", node_id="t", outcome="failed"
                        ),
                        event("step_started", 1, run="rother", id="hook-9", external_id="toolu_1"),
                        event("step_ended", 4, run="rother", id="hook-9", output_result="done"),
                        event("llm", 1, run="rother", external_id="msg_1", output_tokens=3),
                    ]
                ),
            ]
        )
        assert [run.task for run in runs.list()] == ["Fix it"]
        assert runs.resolve("rother") == RUN
        (only,) = runs.steps(RUN)
        assert (only.id, only.description, only.output_result) == ("tool-1", "edit", "done")
        assert [outcome.step_id for outcome in runs.tests(RUN)] == ["tool-1"]
        (call,) = runs.interactions(RUN)
        assert (call.input_tokens, call.output_tokens, call.tokens_used) == (5, 3, 8)

    def test_a_grown_session_is_extended(self, runs: RunStore) -> None:
        conversation = [{"role": "user", "content": f"message {n}"} for n in range(6)]
        runs.add_events([event("run_started", 0), event("run_ended", 5)])
        for length in (2, 4, 6, 4, 6):
            runs.add_events(
                event("llm", n, id=f"call-{n}", messages=conversation[:n])
                for n in range(2, length + 1, 2)
            )
        calls = runs.interactions(RUN)
        assert [call.messages for call in calls] == [tuple(conversation[:n]) for n in (2, 4, 6)]
        runs.add_events([event("run_started", 7)])
        assert (runs.get(RUN).status, runs.get(RUN).completed_at) == ("running", None)

    def test_a_changed_call_does_not_change_those_that_followed(self, runs: RunStore) -> None:
        talk = [{"role": "user", "content": f"message {n}"} for n in range(5)]
        runs.add_events(event("llm", n, id=f"call-{n}", messages=talk[:n]) for n in range(1, 6))
        runs.add_events([event("llm", 2, id="call-2", messages=[{"role": "user", "content": "x"}])])
        found = {call.id: call.messages for call in runs.interactions(RUN)}
        assert found["call-2"] == ({"role": "user", "content": "x"},)
        assert found["call-5"] == tuple(talk)
        assert found["call-3"] == tuple(talk[:3])

    def test_a_writer_may_give_only_what_was_added(self, runs: RunStore) -> None:
        talk = [{"role": "user", "content": f"message {n}"} for n in range(200)]
        runs.add_events(
            event("llm", n, id=f"c{n}", messages=[talk[n]], previous_id=f"c{n - 1}")
            for n in range(200)
        )
        runs.add_events([event("llm", 201, id="fork", previous_id="c9", kept=3, messages=talk[:1])])
        found = {call.id: call.messages for call in runs.interactions(RUN)}
        assert found["c199"] == tuple(talk)
        assert found["c64"] == tuple(talk[:65])
        assert found["fork"] == (*talk[:3], talk[0])

    def test_facts_may_come_before_what_they_are_about(self, runs: RunStore) -> None:
        runs.add_events([event("step_ended", 5, id="s1", output_result="done")])
        runs.add_events([event("step_started", 1, id="s1", description="late news")])
        found = runs.step(RUN, 1)
        assert (found.description, found.output_result, found.status) == (
            "late news",
            "done",
            "completed",
        )
        assert found.started_at == NOON + timedelta(seconds=1)

    def test_retries_count_up(self, runs: RunStore) -> None:
        runs.add_events(
            [
                *step("a", 1, 2),
                *step("b", 3, 4, retry_of="a"),
                *step("c", 5, 6, retry_of="b"),
                *step("d", 7, 8, retry_of="a", attempt=7),
            ]
        )
        assert [item.attempt for item in runs.steps(RUN)] == [1, 2, 3, 7]
        assert runs.get(RUN).totals.retries == 3

    def test_the_outcome_is_that_of_the_last_time_each_test_ran(self, runs: RunStore) -> None:
        def outcome(second: float, step_id: str, result: str, phase: str = "call") -> Event:
            return event("test", second, step_id=step_id, node_id="t", outcome=result, phase=phase)

        runs.add_events([event("run_started", 0)])
        assert runs.get(RUN).outcome == "not-run"
        runs.add_events([outcome(1, "s1", "failed"), outcome(2, "s2", "passed")])
        assert runs.get(RUN).outcome == "passed"
        runs.add_events([outcome(3, "s3", "passed"), outcome(4, "s3", "error", "teardown")])
        assert runs.get(RUN).outcome == "failed"
        assert runs.get(RUN).totals.tests_failing == 1
        runs.add_events([event("run_updated", 5, outcome="passed"), outcome(6, "s4", "failed")])
        assert runs.get(RUN).outcome == "passed"

    @pytest.mark.parametrize(
        "bad",
        [
            {"kind": "test", "data": {"node_id": "x"}},
            {"kind": "step_started", "data": {}},
            {"kind": "command", "data": {"command": {"argv": 7}}},
            {"kind": "log", "data": "text"},
            {"kind": "log", "data": {}, "time": "yesterday"},
            {"kind": "log", "data": {}, "id": None},
            {"kind": "log", "data": {}, "run": 7},
            {},
        ],
    )
    def test_what_says_too_little_is_counted(self, runs: RunStore, bad: dict[str, object]) -> None:
        whole = {"id": "e", "run": RUN, "time": 1, **bad}
        done = runs.add_events([event("run_started"), whole, event("odd_kind")])
        assert (done.events, done.unusable, done.unknown) == (1, 1, 1)
        assert [run.id for run in runs.list()] == [RUN]

    def test_odd_values_are_kept_or_dropped_but_never_fatal(self, runs: RunStore) -> None:
        done = runs.add_events(
            [
                event("run_started", task={"not": "text"}, attributes=["x"], pinned="yes", tags=7),
                event("step_started", id="s\udcff", attempt="3", metadata={"\ud800": float("nan")}),
                event("llm", cost_usd="many", input_tokens=10**30, duration="inf", messages="x"),
                event("test", node_id="n\udcff", outcome="\ud800", duration=True),
                event("file_read", file_path={"base64": "/w=="}, first_line=[1]),
                event("file_operation", file_path=["odd"], is_binary=None),
            ]
        )
        assert (done.events, done.unusable) == (6, 0)
        assert runs.get(RUN).task == '{"not":"text"}'
        assert runs.step(RUN, 1).attempt == 3
        call = runs.interactions(RUN)[0]
        assert (call.cost_usd, call.input_tokens, call.duration) == (None, None, None)
        assert runs.reads(RUN)[0].file_path == "\udcff"
        assert runs.tests(RUN)[0].node_id == "n\udcff"

    # --- Finding --------------------------------------------------------------------------------

    def test_runs_are_listed_newest_first_and_filtered(self, runs: RunStore) -> None:
        for number, (agent, status) in enumerate(
            [("codex", "completed"), ("codex", "failed"), ("claude-code", "completed")]
        ):
            name = f"r{number}"
            runs.add_events(
                [
                    event("run_started", number, run=name, agent=agent, tags=[f"t{number}"],
                          workspace=f"/w{number % 2}", source_id=name, task_id="T"),
                    event("run_ended", 60, run=name, status=status),
                ]
            )  # fmt: skip
        ids: list[list[str]] = [
            [run.id for run in found]
            for found in (
                runs.list(),
                runs.list(agent="codex"),
                runs.list(status="failed"),
                runs.list(tag="t2"),
                runs.list(workspace="/w0", limit=1),
                runs.list(since=NOON + timedelta(seconds=1), until=NOON + timedelta(seconds=2)),
                runs.list(agent="codex", status="completed", task_id="T"),
            )
        ]
        assert ids == [["r2", "r1", "r0"], ["r1", "r0"], ["r1"], ["r2"], ["r2"], ["r1"], ["r0"]]
        assert runs.get("latest").id == runs.get().id == "r2"
        assert runs.get(workspace="/w1").id == "r1"

    def test_a_unique_prefix_means_its_run(self, runs: RunStore) -> None:
        for name in ("rabc1", "rabc2", "rb%_c"):
            runs.add_events([event("run_started", run=name)])
        assert runs.resolve("rabc1") == "rabc1"
        assert runs.resolve("rb") == "rb%_c"
        with pytest.raises(RepoTraceError, match="2 runs begin with it") as caught:
            runs.resolve("rabc")
        assert caught.value.hint == "Write more of one of: rabc1, rabc2"
        with pytest.raises(RunNotFound):
            runs.resolve("r%")

    def test_every_text_can_be_found(self, told: RunStore) -> None:
        found = {
            word: {(hit.field, hit.step_number) for hit in told.search(word)}
            for word in ("bug", "dates.py", "365", '"is wrong in leap"', "slow", "pytest", "see")
        }
        assert found == {
            "bug": {("task", None)},
            "dates.py": {("file_path", 1), ("description", 1), ("node_id", 2)},
            "365": {("reason", 1)},
            '"is wrong in leap"': {
                ("stdout_head", 2),
                ("details", 2),
                ("message", 2),
                ("response", 2),
            },
            "slow": {("message", 2)},
            "pytest": {("command_line", 2)},
            "see": {("response", 2)},
        }
        hit = told.search("INVOICE years", limit=1)[0]
        assert "invoice" in [hit.snippet[start:end] for start, end in hit.marks]
        assert told.search("wrong -leap") == []
        assert told.search("pytest", run_id="rother") == []

    @pytest.mark.parametrize(
        "query",
        ["", "-", '"', "(", "a*", "NEAR(", "x AND", "--json", "'; DROP", "\0", "\ud800", "^"],
    )
    def test_any_query_is_safe(self, told: RunStore, query: str) -> None:
        assert isinstance(told.search(query), list)

    def test_a_changed_text_is_found_by_its_new_words_alone(self, runs: RunStore) -> None:
        runs.add_events(step("s1", 1, description="alpha " * 200))
        assert len(runs.search("alpha")) == 1
        runs.add_events(step("s1", 1, description="beta " * 200))
        assert (runs.search("alpha"), len(runs.search("beta"))) == ([], 1)

    # --- Deleting -------------------------------------------------------------------------------

    def test_a_deleted_run_leaves_nothing(self, told: RunStore) -> None:
        told.add_events(
            [event("run_started", 20, run="rother", task="Another"), *step_of("rother")]
        )
        told.search("leap")
        assert told.delete(RUN)
        assert not told.delete(RUN)
        assert [run.id for run in told.list()] == ["rother"]
        assert told.steps(RUN) == told.commands(RUN) == told.tests(RUN) == []
        assert told.search("invoice") == []
        assert len(told.search("Another")) == 1
        assert told.add_events(a_run()).unusable == 0
        assert told.get(RUN).totals.steps == 2


def step_of(run: str) -> Iterable[Event]:
    return [event("step_started", 21, run=run, id="s1", description="something")]


def a_run_again(before: ExecutionTrace, runs: RunStore) -> list[Event]:
    """`a_run` with the same ids for what has no id of its own."""
    again = a_run()
    names = {
        "file_read": iter(item.id for item in before.file_reads),
        "file_operation": iter(item.id for item in before.file_operations),
        "test": iter(item.id for item in before.test_outcomes),
        "llm": iter(item.id for item in before.llm_interactions),
        "log": iter(item.id for item in before.logs),
    }
    for item in again:
        if item["kind"] in names:
            item["id"] = next(names[item["kind"]])
    return again
