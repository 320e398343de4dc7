"""What blame said of a test, as sentences and hunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from repotrace.readable import one_line, visible
from repotrace.records.blame import Blame, BlamedBreak


class BlamedHunkText(NamedTuple):
    """A part of a change that breaks a test."""

    path: str
    lines: tuple[str, ...]
    """As in a diff; what happened to the file as a whole where there are none."""


def headline(blame: Blame) -> str:
    """`broken by step 3: Write the patch`, or the verdict with its reason."""
    if not blame.named:
        return one_line(f"{blame.verdict}: {blame.reason}")
    steps = "; ".join(
        f"step {step.number}: {one_line(step.description or step.step_type, 120)}"
        for step in blame.steps
    )
    return f"broken by {steps or one_line(blame.reason)}"


def evidence(blame: Blame) -> Iterator[str]:
    """A sentence for each break, and what else there is to know."""
    for found in blame.breaks:
        yield _break(found)
        if found.necessary:
            yield "undoing it makes the test pass"
    if blame.inferred:
        yield "it rests on states that were rebuilt from a transcript"
    seen = blame.seen
    if blame.named and seen.runs and seen.first_step is not None:
        yield f"the agent ran the test in step {seen.first_step}, where it {seen.first_result}"
    elif blame.named and not seen.runs:
        yield "the agent never ran the test"
    if blame.executions:
        yield f"{blame.executions} executions on {blame.states} states"


def hunks(blame: Blame) -> Iterator[BlamedHunkText]:
    """The smallest part of the change that breaks the test, as far as it was looked for."""
    for found in blame.breaks:
        for hunk in found.hunks or ():
            lines = tuple(visible(line) for line in hunk.lines)
            yield BlamedHunkText(visible(hunk.path), lines or (hunk.what,))


def _break(found: BlamedBreak) -> str:
    passed, failed = found.passed + found.given_passed, found.failed + found.given_failed
    before = f"after step {found.passes_after}" if found.passes_after else "before step 1"
    after = f"after step {found.fails_after}" if found.fails_after else "before step 1"
    text = f"{found.verdict}: passes {before} ({passed}/{passed}), fails {after}"
    text += f" ({failed}/{failed})"
    return f"{text}; by chance {found.chance}" if found.chance and found.odds < 0.05 else text
