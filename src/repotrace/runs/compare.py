"""Two runs side by side: what the tests say, where they parted, and what differs at the end."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from repotrace.read.runs import run_line, stream_steps
from repotrace.read.views import (
    ComparedFile,
    ComparedStep,
    ComparedTest,
    RunComparison,
    StepLine,
)
from repotrace.records.run import FAILING, Run, StepType
from repotrace.runs.states import KnownState, StatesOfRun
from repotrace.storage import Store
from repotrace.system.snapshots import Operation

BETTER, WORSE, MIXED, SAME, UNKNOWN = "better", "worse", "mixed", "same", "unknown"

type Deed = tuple[object, ...]
"""What a step did, without what came of it: a tool and its target, a command, changed paths."""


class _Steps(NamedTuple):
    """What a run did, in order."""

    lines: list[StepLine]
    deeds: list[Deed]
    contents: Mapping[str, list[tuple[str, str | None]]]
    """What each step left in which path, by the id of the step."""


def compare_runs(store: Store, a: Run, b: Run) -> RunComparison:
    """How `b` differs from `a`. The tests decide which of them is better, nothing else.

    Steps are aligned by what they did: the same tool on the same target, the same command, a
    change of the same files. Two that did the same may still differ in what came of it. Of a run
    that the other one is a branch of, only what it did after that step is compared.
    """
    tests = _tests(store, a, b)
    passing = tests.pop("passing", ())
    branch = "b" if b.parent_run_id == a.id else "a" if a.parent_run_id == b.id else None
    step = {"a": a, "b": b}[branch].branched_from_step if branch else None
    begun = (step or 0 if branch == "b" else 0, step or 0 if branch == "a" else 0)
    steps = tuple(_aligned(_steps(store, a, begun[0]), _steps(store, b, begun[1])))
    both = [StatesOfRun.of(store, run) for run in (a, b)]
    start = _differing(store, *(own.after(n) for own, n in zip(both, begun, strict=True)))
    ends = [states.last() for states in both]
    end = _differing(store, *ends)
    return RunComparison(
        a=run_line(a),
        b=run_line(b),
        **tests,
        verdict=_verdict(tests, any_passing=bool(passing)),
        steps=steps,
        divergence=next((n for n, step in enumerate(steps) if not step.same), None),
        branch=branch,
        branched_from_step=step,
        same_start=None if start is None else not start,
        same_end=None if end is None else not end,
        end_qualities=(ends[0].quality, ends[1].quality),
        files=tuple(map(_file, end or ())),
        diff=_diff(store, *ends) if end is not None else None,
    )


# --- Tests ----------------------------------------------------------------------------------


def _tests(store: Store, a: Run, b: Run) -> dict[str, tuple[ComparedTest, ...]]:
    with store.runs.overview() as overview:
        if overview is None:
            return {}
        old, new = overview.last_outcomes(a.id), overview.last_outcomes(b.id)
    found: dict[str, list[ComparedTest]] = defaultdict(list)
    for name in {**old, **new}:
        test = ComparedTest(node_id=name, a=old.get(name), b=new.get(name))
        kind = _kind(test)
        if kind:
            found[kind].append(test)
    return {kind: tuple(tests) for kind, tests in found.items()}


def _kind(test: ComparedTest) -> str | None:
    if test.a is None:
        return "only_b"
    if test.b is None:
        return "only_a"
    match test.a in FAILING, test.b in FAILING:
        case True, False:
            return "fixed"
        case False, True:
            return "broken"
        case True, True:
            return "failing"
    return "passing"


def _verdict(tests: Mapping[str, tuple[ComparedTest, ...]], *, any_passing: bool) -> str:
    fixed, broken, failing = (tests.get(kind, ()) for kind in ("fixed", "broken", "failing"))
    if fixed and broken:
        return MIXED
    if fixed or broken:
        return BETTER if fixed else WORSE
    return SAME if failing or any_passing else UNKNOWN


# --- Steps ----------------------------------------------------------------------------------


def _steps(store: Store, run: Run, after: int) -> _Steps:
    """What the run did after a step, with what that step was made of left out as well."""
    every = list(stream_steps(store, run))
    parents = {line.parent for line in every}
    within = {after}
    for line in every if after else ():
        if line.parent in within:
            within.add(line.number)
    lines = [
        line
        for line in every
        if line.number > after
        and line.number not in within
        and line.number not in parents
        and line.step_type != StepType.LLM
    ]
    contents: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    for operation in store.runs.operations(run.id):
        contents[operation.step_id].append((operation.file_path, operation.after_id))
    reads: dict[str, list[str]] = defaultdict(list)
    for read in store.runs.reads(run.id):
        if read.kind == "read":
            reads[read.step_id].append(read.file_path)
    return _Steps(lines, [_deed(line, run, reads.get(line.id, ())) for line in lines], contents)


def _deed(line: StepLine, run: Run, reads: Sequence[str]) -> Deed:
    if reads and not line.files:  # agents have other names for it, and `cat` is another way
        return ("read", *sorted(set(reads)))
    if line.commands:
        return ("command", *(_moved(cmd.command_line, run) for cmd in line.commands))
    if line.files:
        return ("change", *line.files)
    return (line.step_type, line.tool or "", _moved(line.description, run))


def _moved(text: str, run: Run) -> str:
    """A text that means the same for runs in other folders, on one line."""
    if run.workspace and run.workspace != os.sep:
        text = text.replace(run.workspace, ".")
    return " ".join(text.split())


def _aligned(old: _Steps, new: _Steps) -> Iterator[ComparedStep]:
    i = j = 0
    for a, b in [*alignment(old.deeds, new.deeds), (len(old.deeds), len(new.deeds))]:
        yield from (ComparedStep(a=line) for line in old.lines[i:a])
        yield from (ComparedStep(b=line) for line in new.lines[j:b])
        if a < len(old.lines):
            both = old.lines[a], new.lines[b]
            differs = tuple(_differences(*both, old, new))
            yield ComparedStep(a=both[0], b=both[1], differs=differs)
        i, j = a + 1, b + 1


def alignment[T: Hashable](old: Sequence[T], new: Sequence[T]) -> list[tuple[int, int]]:
    """The places of equal items of both in order, as many as there can be."""
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    rest = shorter - start
    end = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    middle = _longest(old[start : len(old) - end], new[start : len(new) - end])
    return [
        *((n, n) for n in range(start)),
        *((start + a, start + b) for a, b in middle),
        *((len(old) - n, len(new) - n) for n in range(end, 0, -1)),
    ]


def _longest[T: Hashable](old: Sequence[T], new: Sequence[T]) -> list[tuple[int, int]]:
    """A longest common subsequence, a row of its table in the bits of a number: those where it
    grows are 0 (Hyyrö, Bit-parallel LCS-length computation revisited, 2004)."""
    places: dict[T, int] = defaultdict(int)
    for n, item in enumerate(old):
        places[item] |= 1 << n
    ones = (1 << len(old)) - 1
    row, rows = ones, []
    for item in new:
        same = row & places.get(item, 0)
        row = ((row + same) | (row - same)) & ones
        rows.append(row)
    found = []
    a, b = len(old), len(new)
    while a and b:
        if rows[b - 1] >> (a - 1) & 1:
            a -= 1
            continue
        b -= 1
        if not b or rows[b - 1] >> (a - 1) & 1:
            a -= 1
            found.append((a, b))
    return found[::-1]


def _differences(a: StepLine, b: StepLine, old: _Steps, new: _Steps) -> Iterator[str]:
    if sorted(old.contents.get(a.id, ()), key=repr) != sorted(new.contents.get(b.id, ()), key=repr):
        yield "content"
    codes = [[command.exit_code for command in line.commands] for line in (a, b)]
    known = all(code is not None for own in codes for code in own)
    if all(codes) and known and codes[0] != codes[1]:
        yield "exit code"
    if a.tests and b.tests and (a.tests, a.failing_tests) != (b.tests, b.failing_tests):
        yield "tests"


# --- Files ----------------------------------------------------------------------------------


def _differing(store: Store, a: KnownState, b: KnownState) -> list[Operation] | None:
    """What is different in `b`; None where one of them is not known."""
    if a.state_id is None or b.state_id is None:
        return None
    return [] if a.state_id == b.state_id else store.snapshots.operations(a.state_id, b.state_id)


def _diff(store: Store, a: KnownState, b: KnownState) -> str:
    assert a.state_id is not None
    assert b.state_id is not None
    return os.fsdecode(store.snapshots.diff(a.state_id, b.state_id))


def _file(operation: Operation) -> ComparedFile:
    return ComparedFile(
        path=operation.path,
        operation=operation.op,
        lines_added=operation.lines_added,
        lines_removed=operation.lines_removed,
    )
