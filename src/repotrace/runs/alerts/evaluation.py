"""Whether a rule raises an alert: one function each, from what was recorded to alerts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from repotrace.read.runs import duration_of
from repotrace.read.views import Alert
from repotrace.records.run import FAILING, FileOperation, OperationType, Run, StateQuality
from repotrace.redact import PLACEHOLDER, Redactor
from repotrace.runs.alerts.claims import claim_in
from repotrace.runs.alerts.facts import Facts
from repotrace.runs.alerts.rules import UNTESTED, Rules
from repotrace.runs.testing.sources import TestSource, lost_assertions, sources_in
from repotrace.runs.testing.subjects import is_test_file
from repotrace.storage import Store

EVIDENCE = 10
"""Paths or tests that an alert names."""

_LARGEST = 1_000_000
"""Bytes of a file that is looked through for secrets."""

type _Found = Iterator[tuple[int | None, str, list[str]]]
"""Step, message, evidence."""


def alerts_of(store: Store, run: Run, rules: Rules) -> tuple[Alert, ...]:
    """The alerts of a run. One that is still running is taken as far as it has come."""
    facts = Facts(store, run)
    return tuple(
        Alert(
            rule=name, run_id=run.id, step=step, message=message, evidence=tuple(proof[:EVIDENCE])
        )
        for name, evaluate in _EVALUATIONS.items()
        if rules.on(name)
        for step, message, proof in evaluate(facts, rules)
    )


# --- Tests ----------------------------------------------------------------------------------


def _broken_test(facts: Facts, rules: Rules) -> _Found:
    """A test that passed when it was first seen fails when it was seen last."""
    broken: dict[int, list[str]] = {}
    for test in facts.tests.tests:
        seen = facts.tests.of(test)
        if seen[0].result not in FAILING and seen[-1].result in FAILING:
            broken.setdefault(seen[-1].step_number, []).append(test)
    for step, tests in sorted(broken.items()):
        fail = "1 test that passed before fails" if len(tests) == 1 else (
            f"{len(tests)} tests that passed before fail"
        )  # fmt: skip
        yield step, f"{fail} at the end", tests


def _untested_edit(facts: Facts, rules: Rules) -> _Found:
    """Files were changed after tests ran last, or no test ran at all."""
    last = facts.test_runs[-1] if facts.test_runs else None
    late = [
        operation
        for operation in facts.operations
        if (last is None or operation.timestamp > last.at)
        and facts.number(operation.step_id) != (last.step if last else None)
        and not any(fnmatchcase(operation.file_path, pattern) for pattern in UNTESTED)
    ]
    if late:
        paths = sorted({operation.file_path for operation in late})
        files = "1 file was" if len(paths) == 1 else f"{len(paths)} files were"
        when = f"after the last test run (step {last.step})" if last else "and no test was run"
        yield facts.number(late[-1].step_id), f"{files} changed {when}", paths


def _false_claim(facts: Facts, rules: Rules) -> _Found:
    """The last words about it are that the tests pass, and the last test run says otherwise."""
    said = [(call, claim) for call in facts.calls if (claim := claim_in(call.response))]
    if not said:
        return
    call, claim = said[-1]
    before = [ran for ran in facts.test_runs if ran.at <= call.timestamp]
    if before and before[-1].passed is not False:
        return
    why = f"the last test run (step {before[-1].step}) failed" if before else "no test had been run"
    yield facts.number(call.step_id), f"it said that the tests pass, but {why}", [claim]


def _retries(facts: Facts, rules: Rules) -> _Found:
    limit = rules.limit("retries")
    number = facts.run.totals.retries
    if limit is not None and number > limit:
        tries = [step for step in facts.steps.values() if step.attempt > 1]
        last = max((step.step_number for step in tries), default=None)
        yield last, f"{number} retries, more than {limit:g}", []


def _repeated_failure(facts: Facts, rules: Rules) -> _Found:
    limit = rules.limit("repeated-failure")
    for test in facts.tests.tests if limit is not None else ():
        failed = [seen for seen in facts.tests.of(test) if seen.result in FAILING]
        if limit is not None and len(failed) > limit:
            number = len(failed)
            yield failed[-1].step_number, f"one test failed {number} times", [test]


def _weakened_test(facts: Facts, rules: Rules) -> _Found:
    """A test was deleted or skipped, or an assertion of it is gone."""
    by_path: dict[str, list[FileOperation]] = {}
    for operation in facts.operations:
        if is_test_file(operation.file_path) and operation.file_path.endswith(".py"):
            by_path.setdefault(operation.file_path, []).append(operation)
    for path, operations in by_path.items():
        last = operations[-1]
        renamed = any(other.renamed_from == path for other in facts.operations)
        if renamed or (last.after_id is None and last.operation_type != OperationType.DELETE):
            continue
        final = _sources(facts, last.after_id)
        for operation in operations:
            if operation.before_id is None:
                continue
            before, after = (_sources(facts, i) for i in (operation.before_id, operation.after_id))
            for name, test in before.items():
                what = _weaker(test, after.get(name), final.get(name))
                if what and name.rpartition("::")[2].startswith("test"):
                    node_id = f"{path}::{name}"
                    yield facts.number(operation.step_id), f"a test {what[0]}", [node_id, *what[1:]]


def _weaker(before: TestSource, after: TestSource | None, end: TestSource | None) -> list[str]:
    """What a step took from a test and what is still so at the end: a phrase, then evidence."""
    if after is None:
        return ["was deleted"] if end is None else []
    if end is None:
        return []
    skips = [mark for mark in after.skips if mark not in before.skips and mark in end.skips]
    if skips:
        return ["was marked so that it is not run, or may fail", *skips]
    lost = lost_assertions(before, after)
    still = [text for text in lost if text not in end.assertions]
    return (
        ["lost an assertion", *still]
        if still and len(after.assertions) < len(before.assertions)
        else []
    )


def _sources(facts: Facts, object_id: str | None) -> dict[str, TestSource]:
    content = facts.content(object_id)
    return (sources_in(content) or {}) if content is not None else {}


# --- Files ----------------------------------------------------------------------------------


def _unread_edit(facts: Facts, rules: Rules) -> _Found:
    """A file was changed that had never been read, in a run that tells what was read."""
    if not facts.reads:
        return
    known = {read.file_path: read.timestamp for read in reversed(facts.reads)}
    own: set[str] = set()
    for operation in facts.operations:
        path = operation.file_path
        read = known.get(path)
        unread = read is None or read > operation.timestamp
        if operation.operation_type == OperationType.EDIT and unread and path not in own:
            yield facts.number(operation.step_id), "a file was changed that was never read", [path]
        own.add(path)


def _outside(facts: Facts, rules: Rules) -> _Found:
    root = facts.run.workspace
    for operation in facts.operations:
        path = operation.file_path
        away = path.startswith("../") or (
            path.startswith(os.sep) and not (root and path.startswith(f"{root}/"))
        )
        if away:
            step = facts.number(operation.step_id)
            yield step, "a file outside of the workspace was changed", [path]


def _touched(facts: Facts, rules: Rules) -> _Found:
    patterns = rules.patterns("touched")
    seen: set[str] = set()
    for operation in facts.operations:
        path = operation.file_path
        fits = next((p for p in patterns if _matches(path, p)), None)
        if fits and path not in seen:
            seen.add(path)
            yield facts.number(operation.step_id), f"a file of {fits} was changed", [path]


def _matches(path: str, pattern: str) -> bool:
    """As git's patterns: without a `/` the name alone may fit, `**` is any folders."""
    plain = pattern.replace("**", "*").lstrip("/")
    if fnmatchcase(path, plain):
        return True
    return "/" not in pattern and fnmatchcase(path.rpartition("/")[2], plain)


def _secret(facts: Facts, rules: Rules) -> _Found:
    """A line was written that looks like a secret. It is named by its place, never shown."""
    redactor = Redactor(key=facts.store.key, variables=os.environ)
    seen: set[tuple[str, str]] = set()
    for operation in facts.operations:
        content = facts.content(operation.after_id)
        if content is None or operation.is_binary or len(content) > _LARGEST:
            continue
        old = set((facts.content(operation.before_id) or b"").splitlines())
        for number, line in enumerate(content.splitlines(), 1):
            if line in old:
                continue
            text = line.decode("utf-8", "replace")
            masked = redactor.redact(text)
            match = PLACEHOLDER.search(masked) if masked != text else None
            if match and (operation.file_path, match[0]) not in seen:
                seen.add((operation.file_path, match[0]))
                place = f"{operation.file_path}:{number}"
                yield facts.number(operation.step_id), "what looks like a secret was written", [
                    place, match[0]
                ]  # fmt: skip


def _missing_state(facts: Facts, rules: Rules) -> _Found:
    run = facts.run
    missed = [s for s in facts.steps.values() if s.state_quality == StateQuality.MISSING]
    if missed:
        numbers = sorted(step.step_number for step in missed)
        one = len(numbers) == 1
        text = "the files after a step were not kept" if one else (
            f"the files after {len(numbers)} steps were not kept"
        )  # fmt: skip
        reason = next((step.state_reason for step in missed if step.state_reason), None)
        yield numbers[0], text, [reason] if reason else []
    elif run.base_quality == StateQuality.MISSING:
        yield None, "the files before the run were not kept", []
    if run.totals.lost:
        yield None, f"{run.totals.lost} events of the recording were lost", []


# --- Sums -----------------------------------------------------------------------------------


def _cost(facts: Facts, rules: Rules) -> _Found:
    limit = rules.limit("cost")
    cost = facts.run.totals.cost_usd
    if limit is not None and float(cost) > limit:
        yield None, f"it cost ${cost:.2f}, more than ${limit:g}", []


def _tokens(facts: Facts, rules: Rules) -> _Found:
    limit = rules.limit("tokens")
    tokens = facts.run.totals.tokens_used
    if limit is not None and tokens > limit:
        yield None, f"it used {tokens:,} tokens, more than {limit:,.0f}", []


def _duration(facts: Facts, rules: Rules) -> _Found:
    limit = rules.limit("duration")
    duration = duration_of(facts.run)
    if limit is not None and duration is not None and duration > limit:
        yield None, f"it took {duration:,.0f} s, more than {limit:,.0f} s", []


_EVALUATIONS: dict[str, Callable[[Facts, Rules], _Found]] = {
    "broken-test": _broken_test,
    "false-claim": _false_claim,
    "untested-edit": _untested_edit,
    "weakened-test": _weakened_test,
    "repeated-failure": _repeated_failure,
    "retries": _retries,
    "unread-edit": _unread_edit,
    "outside": _outside,
    "touched": _touched,
    "secret": _secret,
    "cost": _cost,
    "tokens": _tokens,
    "duration": _duration,
    "missing-state": _missing_state,
}
"""Every rule of `rules.DEFAULTS`, in the order in which alerts are told."""
