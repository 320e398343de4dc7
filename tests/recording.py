"""Records and events of runs that several test modules share, and strategies for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from repotrace.readable import shell_line
from repotrace.records.command import CommandRun, Output, Termination
from repotrace.records.events import Event
from repotrace.records.run import (
    ExecutionStep,
    ExecutionTrace,
    FileOperation,
    FileRead,
    LLMInteraction,
    LogEntry,
    Run,
    StepCommand,
    TestOutcome,
)

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN = "r0123456789ab"


def at(seconds: float) -> int:
    """Nanoseconds of a moment after noon."""
    return int(NOON.timestamp()) * 1_000_000_000 + int(seconds * 1_000_000_000)


_numbers = itertools.count(1)


def event(kind: str, seconds: float = 0.0, *, run: str = RUN, **data: Any) -> Event:
    """An event with an id of its own."""
    name = f"e{next(_numbers):08d}"
    return {"id": name, "run": run, "kind": kind, "time": at(seconds), "data": data}


def step(name: str, start: float = 0.0, end: float | None = None, **data: Any) -> Iterator[Event]:
    """A step from start to end."""
    yield event("step_started", start, id=name, **data)
    if end is not None:
        yield event("step_ended", end, id=name)


# --- Strategies ---------------------------------------------------------------------------

times = st.datetimes(
    min_value=datetime(1971, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)
)
texts = st.text(st.characters(codec=None), max_size=40) | st.text(min_size=600, max_size=700)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
counts = st.integers(min_value=0, max_value=10**12)
seconds = st.floats(min_value=0, max_value=1e9, allow_nan=False)
paths = st.binary(min_size=1, max_size=20).map(lambda data: data.decode("utf-8", "surrogateescape"))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
facts = st.dictionaries(words, values.filter(lambda value: value is not None), max_size=3)
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts}),
    max_size=4,
).map(tuple)


def maybe[T](strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    return st.none() | strategy


@st.composite
def commands(draw: st.DrawFn) -> CommandRun:
    output = st.binary(max_size=700).map(Output.of)
    return CommandRun(
        argv=tuple(draw(st.lists(paths, min_size=1, max_size=3))),
        cwd=draw(paths),
        env=draw(st.dictionaries(names, paths, max_size=2)),
        termination=Termination.EXITED,
        exit_code=draw(st.integers(0, 255)),
        stdout=draw(output),
        stderr=draw(output),
        started_at=draw(maybe(times)),
        duration=draw(maybe(seconds)),
    )


@st.composite
def traces(draw: st.DrawFn) -> ExecutionTrace:
    """A run with up to three steps, and up to two of each thing that hangs on steps."""
    run = Run(
        id=RUN,
        task_id=draw(maybe(words)),
        task=draw(maybe(texts)),
        agent=draw(maybe(words)),
        source=draw(words),
        source_id=draw(maybe(names)),
        status=draw(st.sampled_from(["running", "completed", "failed", "interrupted", "odd"])),
        outcome=draw(names),
        error=draw(maybe(texts)),
        started_at=draw(times),
        workspace=draw(maybe(paths)),
        base_state=draw(names),
        base_quality="exact",
        branched_from_step=draw(maybe(counts)),
        models=tuple(draw(st.lists(names, max_size=2, unique=True))),
        tags=tuple(sorted(draw(st.sets(names, max_size=3)))),
        pinned=draw(st.booleans()),
        attributes=draw(facts),
    )
    if run.status != "running":
        end = draw(maybe(st.timedeltas(timedelta(0), timedelta(days=1))))
        run = run.model_copy(update={"completed_at": None if end is None else run.started_at + end})
    steps = [draw(steps_of(number)) for number in sorted(draw(st.sets(st.integers(1, 9))))[:3]]
    some = st.integers(0, 2)
    owner = st.sampled_from([item.id for item in steps] or [""])
    return ExecutionTrace(
        run_id=RUN,
        task_id=run.task_id or "unknown",
        started_at=run.started_at,
        status=run.status,
        completed_at=run.completed_at,
        run=run,
        steps=steps,
        llm_interactions=[draw(interactions(f"l{n}", owner)) for n in range(draw(some))],
        file_operations=[
            FileOperation(
                id=f"f{n}",
                run_id=RUN,
                step_id=draw(owner),
                operation_type=draw(st.sampled_from(["create", "edit", "delete"])),
                file_path=draw(paths),
                timestamp=NOON + timedelta(seconds=n),
                before_id=draw(maybe(names)),
                mode_after=draw(maybe(counts)),
                renamed_from=draw(maybe(paths)),
                is_binary=draw(st.booleans()),
                lines_added=draw(maybe(counts)),
                origin=draw(st.sampled_from(["observed", "claimed"])),
            )
            for n in range(draw(some))
        ],
        file_reads=[
            FileRead(
                id=f"r{n}",
                run_id=RUN,
                step_id=draw(owner),
                file_path=draw(paths),
                timestamp=NOON + timedelta(seconds=n),
                first_line=draw(maybe(counts)),
            )
            for n in range(draw(some))
        ],
        logs=[
            LogEntry(
                id=f"g{n}",
                run_id=RUN,
                step_id=draw(maybe(owner)),
                level=draw(names),
                message=draw(texts),
                timestamp=NOON + timedelta(seconds=n),
                data=draw(facts),
            )
            for n in range(draw(some))
        ],
        commands=[draw(step_commands(f"c{n}", owner, n)) for n in range(draw(some))],
        test_outcomes=[
            TestOutcome(
                id=f"t{n}",
                run_id=RUN,
                step_id=draw(owner),
                node_id=draw(names),
                outcome=draw(st.sampled_from(["passed", "failed", "skipped"])),
                duration=draw(maybe(seconds)),
                message=draw(maybe(texts)),
                details=draw(maybe(texts)),
                timestamp=NOON + timedelta(seconds=n),
                state_id=draw(names),
            )
            for n in range(draw(some))
        ],
    )


@st.composite
def steps_of(draw: st.DrawFn, number: int) -> ExecutionStep:
    start = draw(times)
    quality = draw(st.sampled_from([None, "exact", "missing", "unverified"]))
    ended = draw(st.booleans())
    return ExecutionStep(
        id=f"s{number}",
        run_id=RUN,
        step_number=number,
        step_type=draw(names),
        description=draw(texts),
        started_at=start,
        completed_at=draw(times) if ended else None,
        status=draw(st.sampled_from(["started", "completed", "failed", "interrupted", "odd"])),
        input_context=draw(maybe(texts)),
        output_result=draw(maybe(texts)),
        metadata=draw(facts),
        parent_id=draw(maybe(names)),
        reason=draw(maybe(texts)),
        attempt=draw(st.integers(1, 5)),
        state_id=draw(names) if quality not in (None, "missing") else None,
        state_before_id=draw(maybe(names)),
        state_quality=quality,
        state_reason=draw(maybe(texts)) if quality else None,
        ambiguous=draw(st.booleans()),
        error=draw(maybe(texts)),
        label=draw(maybe(names)),
    )


@st.composite
def interactions(draw: st.DrawFn, name: str, owner: st.SearchStrategy[str]) -> LLMInteraction:
    return LLMInteraction(
        id=name,
        run_id=RUN,
        step_id=draw(owner),
        prompt=draw(texts),
        response=draw(texts),
        model=draw(words),
        tokens_used=draw(counts),
        timestamp=NOON + timedelta(seconds=int(name[1:])),
        purpose=draw(names),
        source="wire",
        external_id=name,
        messages=draw(messages),
        response_message=draw(maybe(facts)),
        tools=tuple(draw(st.lists(facts, max_size=2))),
        parameters=draw(facts),
        input_tokens=draw(maybe(counts)),
        cache_read_tokens=draw(maybe(counts)),
        cost_usd=draw(maybe(st.decimals(0, 10**6, places=9))),
        cost_source=draw(st.sampled_from(["given", "computed"])),
        duration=draw(maybe(seconds)),
        error=draw(maybe(texts)),
    )


@st.composite
def step_commands(
    draw: st.DrawFn, name: str, owner: st.SearchStrategy[str], number: int
) -> StepCommand:
    command = draw(commands())
    return StepCommand(
        id=name,
        run_id=RUN,
        step_id=draw(owner),
        command=command,
        command_line=shell_line(command),
        timestamp=NOON + timedelta(seconds=number),
        duration=command.duration,
        exit_code=command.exit_code,
        is_test=draw(st.booleans()),
        background=draw(st.booleans()),
        state_id=draw(maybe(names)),
    )
