"""Two runs of one command: is it still the same failure?

Pure: it reads two records and runs nothing. Replay, capture (another occurrence, or another
failure?) and blame ask here, so that one word means one thing everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from repotrace.config import UserRule
from repotrace.normalize import Normalized, normalize
from repotrace.records.base import Record
from repotrace.records.command import CommandRun, Output, Places, Signature, Termination
from repotrace.redact import strip_digests
from repotrace.signatures import message_shape, runner_log, signature_of

type Match = Literal["normal", "exact", "exit-code"]


class Verdict(StrEnum):
    """What a replay says of the recorded failure."""

    SAME = "same"
    SAME_AFTER_NORMALISING = "same-after-normalising"
    SAME_FAILURE = "same-failure"
    PARTLY_FIXED = "partly-fixed"
    DIFFERENT_FAILURE = "different-failure"
    FIXED = "fixed"
    FLAKY = "flaky"
    CANNOT_RUN = "cannot-run"

    @property
    def matched(self) -> bool:
        """Whether the failure is reproduced."""
        return self in (Verdict.SAME, Verdict.SAME_AFTER_NORMALISING, Verdict.SAME_FAILURE)


class Comparison(Record):
    """A verdict with its reasons."""

    verdict: Verdict
    detail: str
    """One line for people, as `no differences` or `fixed: exit code 7 -> 0`."""
    differences: tuple[str, ...] = ()
    """What differs, in short: `exit code 7 -> 0`, `stdout differs`. Empty for the same."""
    rules: tuple[str, ...] = ()
    """The normalisers that the verdict rests on."""
    fixed_tests: tuple[str, ...] = ()
    still_failing: tuple[str, ...] = ()
    new_failing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a readable diff of what two runs printed."""

    text: str
    """Without a mark in front and without a line end."""
    kind: str
    """`-` expected only, `+` observed only, a space for both, `@` for a heading."""
    stream: str
    rules: frozenset[str] = frozenset()
    """The normalisers that touched the line."""


def compare(
    expected: CommandRun,
    observed: CommandRun,
    *,
    match: Match = "normal",
    user_rules: Sequence[UserRule] = (),
) -> Comparison:
    """Judge `observed` by what `expected` recorded.

    `exact` lets only equal bytes match. `exit-code` looks at the way of ending only.
    """
    endings = _ending_differences(expected, observed)
    if match == "exit-code":
        if not endings:
            return Comparison(verdict=Verdict.SAME, detail="no differences (exit code only)")
        return _changed(expected, observed, tuple(endings))
    streams = [stream for stream in _streams(expected) if not _equal(expected, observed, stream)]
    if not endings and (not streams or expected.termination is Termination.SPAWN_ERROR):
        return Comparison(verdict=Verdict.SAME, detail="no differences")
    if match != "exact":
        volatile = _volatile(expected, observed, streams, user_rules)
        streams = [stream for stream in streams if stream not in volatile]
        if not endings and not streams:
            return _same_after_normalising(volatile)
    differences = (*endings, *(f"{stream} differs" for stream in streams))
    judged = _by_signature(expected, observed, differences)
    if match == "exact" and judged.verdict.matched:
        return _changed(expected, observed, differences)
    return judged


def _streams(run: CommandRun) -> tuple[str, ...]:
    return ("stdout",) if run.merge or run.pty else ("stdout", "stderr")


def _output(run: CommandRun, stream: str) -> Output:
    return run.stdout if stream == "stdout" else run.stderr


def _ending_differences(expected: CommandRun, observed: CommandRun) -> list[str]:
    if _ending(expected) == _ending(observed):
        return []
    if expected.termination is observed.termination is Termination.EXITED:
        return [f"exit code {expected.exit_code} -> {observed.exit_code}"]
    return [f"{expected.ending} -> {observed.ending}"]


def _ending(run: CommandRun) -> tuple[Termination, int | None]:
    match run.termination:
        case Termination.EXITED:
            return run.termination, run.exit_code
        case Termination.SIGNALED:
            return run.termination, run.signal
        case Termination.SPAWN_ERROR:
            return run.termination, run.spawn_errno
        case _:
            return run.termination, None


def _equal(expected: CommandRun, observed: CommandRun, stream: str) -> bool:
    """Byte for byte; digests of redacted secrets may differ between machines."""
    one, other = _output(expected, stream), _output(observed, stream)
    if one.cut or other.cut:
        # Without a digest nobody knows what was in the middle.
        return bool(one.sha256) and (one.length, one.sha256) == (other.length, other.sha256)
    return one.head == other.head or strip_digests(one.head) == strip_digests(other.head)


def _volatile(
    expected: CommandRun,
    observed: CommandRun,
    streams: Sequence[str],
    user_rules: Sequence[UserRule],
) -> dict[str, frozenset[str]]:
    """Those of `streams` that differ in volatile text only, with the rules that made them equal.

    Never a cut stream, whose middle nobody has seen.
    """
    found: dict[str, frozenset[str]] = {}
    for stream in streams:
        one, other = _output(expected, stream), _output(observed, stream)
        if one.cut or other.cut:
            continue
        before = normalize(one.head, expected.places, user_rules)
        after = normalize(other.head, observed.places, user_rules)
        if before.data == after.data:
            found[stream] = _deciding_rules(one.head, before, other.head, after)
    return found


def _same_after_normalising(volatile: Mapping[str, frozenset[str]]) -> Comparison:
    named = tuple(sorted(frozenset[str]().union(*volatile.values())))
    return Comparison(
        verdict=Verdict.SAME_AFTER_NORMALISING,
        detail=f"same after normalising: {', '.join(named)}",
        rules=named,
    )


def _deciding_rules(
    raw_before: bytes, before: Normalized, raw_after: bytes, after: Normalized
) -> frozenset[str]:
    """The rules on lines that differ as written; all rules if lines cannot be paired."""
    one, other = raw_before.split(b"\n"), raw_after.split(b"\n")
    if not len(one) == len(other) == before.data.count(b"\n") + 1:
        return before.rules | after.rules
    named: frozenset[str] = frozenset()
    for number, (old, new) in enumerate(zip(one, other, strict=True)):
        if old != new:
            named |= before.by_line.get(number, frozenset())
            named |= after.by_line.get(number, frozenset())
    return named


def _by_signature(
    expected: CommandRun, observed: CommandRun, differences: tuple[str, ...]
) -> Comparison:
    changed = _changed(expected, observed, differences)
    if not expected.failed or not observed.failed:
        return changed
    # Read anew on both sides: a stored signature may come from another version.
    known, seen = signature_of(expected), signature_of(observed)
    if known is None or seen is None or not known.typed or not seen.typed:
        return changed
    tests = _tests(known, seen)
    if _ending(expected) == _ending(observed) and _agree(known, seen):
        return Comparison(
            verdict=Verdict.SAME_FAILURE,
            detail="same failure, output differs",
            differences=differences,
            **tests,
        )
    if tests and not _ran_as_many(expected, observed):
        # Which tests no longer ran is unknown, so none of them counts as fixed.
        tests["fixed_tests"] = ()
    partly = _partly_fixed(tests, known)
    if partly is not None:
        verdict, detail = Verdict.PARTLY_FIXED, partly
    else:
        verdict = changed.verdict
        detail = "; ".join([changed.detail, *_said_of_tests(tests)])
    return Comparison(verdict=verdict, detail=detail, differences=differences, **tests)


def _partly_fixed(tests: dict[str, tuple[str, ...]], known: Signature) -> str | None:
    """The detail if some of the failing tests pass now and none is new."""
    if not tests or not tests["fixed_tests"] or not tests["still_failing"] or tests["new_failing"]:
        return None
    still, total = len(tests["still_failing"]), len(known.failing_tests)
    return f"{still} of {total} still fail; fixed: {_names(tests['fixed_tests'])}"


def _said_of_tests(tests: dict[str, tuple[str, ...]]) -> list[str]:
    """What a reader of a different failure wants to know first."""
    kinds = {"new_failing": "fails newly", "fixed_tests": "fixed"}
    return [f"{word}: {_names(tests[kind])}" for kind, word in kinds.items() if tests.get(kind)]


def _ran_as_many(expected: CommandRun, observed: CommandRun) -> bool:
    """Whether the test runner came to its end and saw no fewer tests than before."""
    before, after = runner_log(expected), runner_log(observed)
    if observed.termination is not Termination.EXITED or before is None or after is None:
        return False
    if before.total_count is None or after.total_count is None:
        return True
    return after.total_count >= before.total_count


def _agree(known: Signature, seen: Signature) -> bool:
    """Whether two typed signatures mean one failure.

    The message counts by its shape: `0.7 != 0.5` and `0.1 != 0.9` are one failure, the missing
    modules `a` and `b` are two.
    """
    return (
        known.kind == seen.kind
        and known.exception == seen.exception
        and known.frame == seen.frame
        and known.signal == seen.signal
        and set(known.failing_tests) == set(seen.failing_tests)
        and message_shape(known.message or "") == message_shape(seen.message or "")
    )


def _tests(known: Signature, seen: Signature) -> dict[str, tuple[str, ...]]:
    """What became of each failing test; empty if tests are not what failed."""
    if known.kind != seen.kind or not known.failing_tests or not seen.failing_tests:
        return {}
    before, after = set(known.failing_tests), set(seen.failing_tests)
    return {
        "fixed_tests": tuple(sorted(before - after)),
        "still_failing": tuple(sorted(before & after)),
        "new_failing": tuple(sorted(after - before)),
    }


def _names(tests: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(test.rpartition("::")[2] or test for test in tests[:most])
    return shown if len(tests) <= most else f"{shown} and {len(tests) - most} more"


def _changed(
    expected: CommandRun, observed: CommandRun, differences: tuple[str, ...]
) -> Comparison:
    if expected.failed and not observed.failed:
        verdict, word = Verdict.FIXED, "fixed"
    elif expected.failed:
        verdict, word = Verdict.DIFFERENT_FAILURE, "different failure"
    else:
        verdict, word = Verdict.DIFFERENT_FAILURE, "different behaviour"
    return Comparison(
        verdict=verdict,
        detail=f"{word}: {', '.join(differences)}",
        differences=differences,
    )


MOST_LINES = 4_000
"""Longer outputs are compared by their first and last lines only."""


def explain(
    expected: CommandRun,
    observed: CommandRun,
    *,
    user_rules: Sequence[UserRule] = (),
    context: int = 3,
    exact: bool = False,
) -> list[DiffLine]:
    """A readable diff of what two runs printed, volatile text normalised away; empty if equal.

    `context`: how many equal lines stand around a change. `exact`: the outputs as they are.
    """
    lines: list[DiffLine] = []
    for stream in _streams(expected):
        before, after = (
            _lines(_output(run, stream).data, run.places, user_rules, exact=exact)
            for run in (expected, observed)
        )
        if before != after:
            lines += _diff(stream, before, after, context)
    return lines


type _Line = tuple[str, frozenset[str]]
"""A line with the rules that touched it."""


def _lines(
    data: bytes, places: Places, user_rules: Sequence[UserRule], *, exact: bool
) -> list[_Line]:
    if exact:
        side = Normalized(strip_digests(data), frozenset(), {})
    else:
        side = normalize(data, places, user_rules)
    texts = side.data.decode("utf-8", "backslashreplace").split("\n")
    lines = [(text, side.by_line.get(n, frozenset())) for n, text in enumerate(texts)]
    if texts[-1]:
        lines.append((NO_LAST_NEWLINE, frozenset()))
    else:
        lines.pop()
    if len(lines) <= MOST_LINES:
        return lines
    half = MOST_LINES // 2
    left_out = (f"[… {len(lines) - 2 * half} lines …]", frozenset[str]())
    return [*lines[:half], left_out, *lines[-half:]]


NO_LAST_NEWLINE = "\\ no newline at the end"


def _diff(
    stream: str, before: Sequence[_Line], after: Sequence[_Line], context: int
) -> list[DiffLine]:
    from difflib import SequenceMatcher

    one, other = [text for text, _ in before], [text for text, _ in after]
    if one == other:
        return []
    start = _common(one, other)
    end = _common(one[start:][::-1], other[start:][::-1])
    kept = max(0, start - context)
    ends = [max(start, len(side) - end + context) for side in (one, other)]
    result = [DiffLine(f"{stream}: expected (-) and observed (+)", "@", stream)]

    def add(kind: str, side: Sequence[_Line], first: int, last: int) -> None:
        result.extend(
            DiffLine(text, kind, stream, rules) for text, rules in side[kept + first : kept + last]
        )

    matcher = SequenceMatcher(None, one[kept : ends[0]], other[kept : ends[1]], autojunk=True)
    for group in matcher.get_grouped_opcodes(context):
        if len(result) > 1:
            result.append(DiffLine("…", "@", stream))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                add(" ", before, i1, i2)
            else:
                add("-", before, i1, i2)
                add("+", after, j1, j2)
    return result


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (old, new) in pairs if old != new), min(len(one), len(other)))
