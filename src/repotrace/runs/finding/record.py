"""A finding as a record: the steps by what they did, the hunks, the evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from repotrace.blame import (
    Boundary,
    Break,
    Candidate,
    Finding,
    Kind,
    Memo,
    Rate,
    Searcher,
    Verdict,
    chance_words,
)
from repotrace.journal import new_id
from repotrace.records.blame import (
    Blame,
    BlamedBreak,
    BlamedHunk,
    Evidence,
    RateOfFailing,
    SeenByAgent,
    Suspects,
)
from repotrace.records.run import FAILING, Run
from repotrace.runs.finding.hunk_origins import made_at
from repotrace.runs.finding.step_facts import StepFacts
from repotrace.runs.testing.agent_tests import Sighting
from repotrace.runs.testing.executions import Bench
from repotrace.runs.testing.hunks import split_lines
from repotrace.runs.testing.moving import Moving
from repotrace.runs.testing.subjects import Change, shown_hunk
from repotrace.runs.testing.uncaptured import uncaptured_in

UNCAPTURED = "depends-on-uncaptured-files"
"""The verdict on a test that asks for files which no state holds."""

NO_TEST = "no-such-test"
"""The verdict on a name that no state has a test of."""

_NOWHERE = frozenset(
    {Verdict.BROKEN_BEFORE, Verdict.ENVIRONMENT, Verdict.NEVER_PASSED, Verdict.UNDECIDED}
)


@dataclass(frozen=True, slots=True)
class Account:
    """What a search was about."""

    bench: Bench
    run: Run | None
    facts: StepFacts | None
    candidates: Sequence[Candidate]
    all_states: int
    """Candidates of the whole run."""
    tests: str
    """The state whose tests lay over all others."""
    selection: Sequence[str]
    sightings: Sequence[Sighting]


def blame_of(test: str, searcher: Searcher, account: Account) -> Blame:
    """The record of a search that is over."""
    finding, candidates, facts = searcher.finding, account.candidates, account.facts
    assert finding is not None
    verdict, reason = str(finding.verdict), finding.reason
    evidence = tuple(_evidence(searcher.memo, candidates))
    uncaptured: tuple[str, ...] = ()
    if finding.verdict in _NOWHERE or finding.breaks:
        uncaptured = tuple(_uncaptured(evidence, account, strict=bool(finding.breaks)))
        if uncaptured:
            verdict = UNCAPTURED
            reason = f"it needs {', '.join(uncaptured)}, which no state holds"
    executed = {one.kind for one in evidence}
    if finding.verdict is Verdict.NEVER_PASSED and executed == {Kind.MISSING}:
        verdict, reason = NO_TEST, "no state that was looked at has such a test"
    numbers = finding.steps
    if finding.verdict is Verdict.ENVIRONMENT and facts is not None:
        passed = [one.step_number for one in account.sightings if one.result not in FAILING]
        since = max(passed, default=0)
        numbers = tuple(one for one in facts.installs if one > since) or finding.installs
    if finding.verdict is Verdict.TEST_CHANGED and finding.test_step is not None:
        numbers = (finding.test_step,)
    seen = SeenByAgent(runs=len(account.sightings))
    if facts is not None and len(numbers) == 1:
        seen = facts.seen(account.sightings, numbers[0])
    touched = [candidates[at] for found in finding.breaks for at in found.boundary[:2]]
    return Blame(
        id=new_id(),
        run_id=account.run.id if account.run is not None else "",
        test=test,
        command=account.bench.line(account.selection),
        verdict=verdict,
        reason=reason,
        named=finding.named and verdict != UNCAPTURED,
        steps=tuple(facts.named(number) for number in numbers) if facts is not None else (),
        breaks=tuple(_break(found, account) for found in finding.breaks if not uncaptured),
        first_broken=_steps_between(finding.first_broken, candidates),
        flaky=_suspects(finding),
        message=_message(evidence),
        until=max((_number(one) for one in candidates), default=0),
        repaired=len(candidates) < account.all_states,
        test_step=finding.test_step if verdict != NO_TEST else None,
        original_tests=finding.original_tests or account.tests == candidates[0].state_id,
        overlay=tuple(account.bench.subjects.overlay(candidates[0].state_id, account.tests)),
        uncaptured=uncaptured,
        inferred=any(one.inferred for one in touched),
        states=len({one.state_id for one in candidates}),
        tried=finding.tried,
        executions=finding.executions,
        reductions=finding.reductions,
        exhausted=finding.exhausted,
        disturbed=len(finding.disturbed),
        seen=seen,
        evidence=evidence,
        notes=(
            *_contradictions(finding, account),
            *([account.bench.unseen] if account.bench.unseen else []),
        ),
        created_at=datetime.now(UTC),
    )


def _number(candidate: Candidate) -> int:
    return max(candidate.steps, default=0)


def _steps_between(boundary: Boundary | None, candidates: Sequence[Candidate]) -> tuple[int, ...]:
    if boundary is None:
        return ()
    between = candidates[boundary.passes + 1 : boundary.fails + 1]
    return tuple(dict.fromkeys(number for one in between for number in one.steps))


def _break(found: Break, account: Account) -> BlamedBreak:
    candidates = account.candidates
    low, high = found.boundary[:2]
    hunks = None
    if found.hunks is not None:
        hunks = tuple(_hunks(found, account))
    return BlamedBreak(
        steps=found.steps,
        verdict=str(found.verdict),
        passes_after=_number(candidates[low]),
        fails_after=_number(candidates[high]),
        passed=found.passed,
        failed=found.failed,
        given_passed=found.given_passed,
        given_failed=found.given_failed,
        odds=found.odds,
        chance=chance_words(found.odds),
        message=found.failure.fingerprint,
        skipped=len(found.boundary.skipped),
        hunks=hunks,
        hunks_of=found.hunks_of,
        minimal=found.minimal,
        necessary=found.necessary,
        revert=found.revert.note or str(found.revert.kind) if found.revert is not None else "",
    )


def _hunks(found: Break, account: Account) -> Iterator[BlamedHunk]:
    snapshots = account.bench.store.snapshots
    for name in found.hunks or ():
        change = account.bench.subjects.change(name)
        step = None if found.boundary.exact else _maker(change, found.boundary, account)
        old = snapshots.read(change.before, change.path)
        if change.hunk is not None:
            # The files of a state are exact; what is said of them goes to the database and out.
            lines = shown_hunk(change, split_lines(old or b""))
            redact = account.bench.options.redactor.redact
            yield BlamedHunk(path=change.path, lines=tuple(map(redact, lines)), step=step)
            continue
        new = snapshots.read(change.after, change.path)
        what = "created" if old is None else "deleted" if new is None else "changed"
        yield BlamedHunk(path=change.path, what=what, step=step)


def _maker(change: Change, boundary: Boundary, account: Account) -> int | None:
    """The one step between two states that made a hunk, going by the files."""
    states = account.candidates[boundary.passes : boundary.fails + 1]
    read = account.bench.store.snapshots.read
    place = made_at(change.hunk, [read(one.state_id, change.path) for one in states])
    steps = states[place].steps if place is not None else ()
    return steps[0] if len(steps) == 1 else None


def _suspects(finding: Finding) -> Suspects | None:
    found = finding.flakiness
    if found is None:
        return None
    return Suspects(
        steps=found.steps,
        probability=max(found.posterior[1:], default=0.0),
        always=0 in found.credible,
        before=_rate(found.before),
        after=_rate(found.after),
    )


def _rate(rate: Rate) -> RateOfFailing:
    return RateOfFailing(failed=rate.failed, runs=rate.runs, upper=rate.upper)


def _evidence(memo: Memo, candidates: Sequence[Candidate]) -> Iterator[Evidence]:
    numbers = {one.state_id: _number(one) for one in reversed(candidates)}
    for subject, seen in memo:
        changed = bool(subject.added or subject.removed)
        yield Evidence(
            purpose="given" if seen.given else "executed",
            state_id=subject.state,
            step_number=None if changed else numbers.get(subject.state),
            tests_of=subject.tests,
            hunks_added=len(subject.added),
            hunks_removed=len(subject.removed),
            kind=str(seen.kind),
            note=seen.note,
            alone=seen.alone,
            given=seen.given,
            source=seen.source,
            duration=seen.duration,
        )


def _contradictions(finding: Finding, account: Account) -> Iterator[str]:
    """Where the run itself saw something else on the same files."""
    final = account.candidates[-1].state_id
    if finding.verdict is not Verdict.NOT_REPRODUCIBLE:
        return
    failing = [one for one in account.sightings if one.state_id == final and one.result in FAILING]
    if failing:
        yield (
            f"the run saw it fail on the same files in step {failing[-1].step_number}; it may be"
            " flaky, or have run with something else (as stale bytecode)"
        )


def _message(evidence: Sequence[Evidence]) -> str:
    """How the test fails, in the words of the last execution that failed on an unchanged state."""
    failing = [
        one.note
        for one in evidence
        if one.step_number is not None and one.kind != Kind.PASSED and one.note
    ]
    return failing[0] if failing else ""


def _uncaptured(
    evidence: Sequence[Evidence], account: Account, *, strict: bool = False
) -> list[str]:
    """What the failing test names, the project has and the final state lacks.

    `strict`: where a step was found. That the code came to need such a file is no break, but only
    the failure itself counts then, and only what is kept out of states on purpose.
    """
    bench, state = account.bench, account.candidates[-1].state_id
    sources = [one.source for one in evidence if not one.given and one.state_id == state]
    found: dict[str, None] = {}
    for execution in bench.store.memo.executions(ids=sources[:3]) if sources else ():
        texts = [one.message or "" for one in execution.outcomes if one.failed]
        command = execution.command
        if not strict:
            texts += [command.stdout.text, command.stderr.text]
        elif not execution.outcomes and command.signature is not None and command.signature.typed:
            texts.append(command.signature.message or "")
        found.update(dict.fromkeys(uncaptured_in("\n".join(texts), execution, bench)))
    if strict:
        moving = Moving(bench.workspace, bench.workspace)
        states = {one.state_id for one in account.candidates}
        return sorted(
            path
            for path in found
            if moving.is_left_out(path) and not any(bench.has(one, path) for one in states)
        )
    return sorted(found)[:10]
