"""Two runs of one command: is it still the same failure?

Pure: it reads two records and runs nothing. Replay, capture (another occurrence, or another
failure?) and blame ask here, so that one word means one thing everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from repotrace.normalize import Normalized, UserRule, normalize
from repotrace.records.base import Record
from repotrace.records.command import CommandRun, Output, Signature, Termination
from repotrace.redact import strip_digests
from repotrace.signatures import message_shape, signature_of

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
        return _changed(expected, observed, endings)
    streams = [stream for stream in _streams(expected) if not _equal(expected, observed, stream)]
    differences = [*endings, *(f"{stream} differs" for stream in streams)]
    if not differences:
        return Comparison(verdict=Verdict.SAME, detail="no differences")
    if match == "exact":
        return _changed(expected, observed, differences)
    if not endings:
        equal = _equal_after_normalising(expected, observed, streams, user_rules)
        if equal is not None:
            return equal
    return _by_signature(expected, observed, differences)


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
        return (one.length, one.sha256) == (other.length, other.sha256)
    return one.head == other.head or strip_digests(one.head) == strip_digests(other.head)


def _equal_after_normalising(
    expected: CommandRun,
    observed: CommandRun,
    streams: Sequence[str],
    user_rules: Sequence[UserRule],
) -> Comparison | None:
    """The verdict if `streams` differ in volatile text only. Never for a cut stream, whose
    middle nobody has seen."""
    rules: set[str] = set()
    for stream in streams:
        one, other = _output(expected, stream), _output(observed, stream)
        if one.cut or other.cut:
            return None
        before = normalize(one.head, expected.places, user_rules)
        after = normalize(other.head, observed.places, user_rules)
        if before.data != after.data:
            return None
        rules |= _deciding_rules(one.head, before, other.head, after)
    named = tuple(sorted(rules))
    return Comparison(
        verdict=Verdict.SAME_AFTER_NORMALISING,
        detail=f"same after normalising: {', '.join(named)}",
        rules=named,
    )


def _deciding_rules(
    raw_before: bytes, before: Normalized, raw_after: bytes, after: Normalized
) -> set[str]:
    """The rules on lines that differ as written; all rules if lines cannot be paired."""
    one, other = raw_before.splitlines(), raw_after.splitlines()
    everything = set(before.rules | after.rules)
    if len(one) != len(other) or len(one) != len(before.data.splitlines()):
        return everything
    differing = [
        number for number, pair in enumerate(zip(one, other, strict=True)) if len({*pair}) > 1
    ]
    named: set[str] = set()
    for number in differing:
        named |= before.by_line.get(number, frozenset()) | after.by_line.get(number, frozenset())
    return named or everything


def _by_signature(
    expected: CommandRun, observed: CommandRun, differences: Sequence[str]
) -> Comparison:
    known = expected.signature or signature_of(expected)
    seen = observed.signature or signature_of(observed)
    if expected.failed and not observed.failed:
        return _changed(expected, observed, differences)
    if known is None or seen is None or not known.typed or not seen.typed:
        return _changed(expected, observed, differences)
    tests = _tests(known, seen)
    same_ending = _ending(expected) == _ending(observed)
    if same_ending and _agree(known, seen):
        return Comparison(
            verdict=Verdict.SAME_FAILURE,
            detail="same failure, output differs",
            differences=tuple(differences),
            still_failing=tests.still_failing if tests else (),
        )
    if tests is None:
        return _changed(expected, observed, differences)
    if tests.fixed_tests and tests.still_failing and not tests.new_failing:
        total = len(known.failing_tests)
        detail = (
            f"{len(tests.still_failing)} of {total} still fail; fixed: {_names(tests.fixed_tests)}"
        )
        return tests.model_copy(
            update={
                "verdict": Verdict.PARTLY_FIXED,
                "detail": detail,
                "differences": tuple(differences),
            }
        )
    changed = _changed(expected, observed, differences)
    return tests.model_copy(update=changed.model_dump(include={"verdict", "detail", "differences"}))


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


def _tests(known: Signature, seen: Signature) -> Comparison | None:
    """What became of each failing test; None if tests are not what failed."""
    if known.kind != seen.kind or not known.failing_tests or not seen.failing_tests:
        return None
    before, after = set(known.failing_tests), set(seen.failing_tests)
    return Comparison(
        verdict=Verdict.DIFFERENT_FAILURE,
        detail="",
        fixed_tests=tuple(sorted(before - after)),
        still_failing=tuple(sorted(before & after)),
        new_failing=tuple(sorted(after - before)),
    )


def _names(tests: Sequence[str], most: int = 3) -> str:
    shown = ", ".join(test.rpartition("::")[2] or test for test in tests[:most])
    return shown if len(tests) <= most else f"{shown} and {len(tests) - most} more"


def _changed(expected: CommandRun, observed: CommandRun, differences: Sequence[str]) -> Comparison:
    if expected.failed and not observed.failed:
        verdict, word = Verdict.FIXED, "fixed"
    elif expected.failed:
        verdict, word = Verdict.DIFFERENT_FAILURE, "different failure"
    else:
        verdict, word = Verdict.DIFFERENT_FAILURE, "different behaviour"
    return Comparison(
        verdict=verdict,
        detail=f"{word}: {', '.join(differences)}",
        differences=tuple(differences),
    )


MOST_LINES = 5_000
"""Longer outputs are compared by their first and last lines only."""


def explain(
    expected: CommandRun,
    observed: CommandRun,
    *,
    user_rules: Sequence[UserRule] = (),
    context: int = 3,
) -> list[DiffLine]:
    """A readable diff of what two runs printed, volatile text normalised away; empty if equal.

    `context`: how many equal lines stand around a change.
    """
    lines: list[DiffLine] = []
    for stream in _streams(expected):
        before = normalize(_output(expected, stream).data, expected.places, user_rules)
        after = normalize(_output(observed, stream).data, observed.places, user_rules)
        if before.data != after.data:
            lines += _diff(stream, before, after, context)
    return lines


def _diff(stream: str, before: Normalized, after: Normalized, context: int) -> list[DiffLine]:
    from difflib import SequenceMatcher

    one, other = _lines(before), _lines(after)
    result = [DiffLine(f"{stream}: expected (-) and observed (+)", "@", stream)]

    def add(kind: str, side: Normalized, texts: Sequence[str], start: int, end: int) -> None:
        for number in range(start, end):
            rules = side.by_line.get(number, frozenset())
            result.append(DiffLine(texts[number], kind, stream, rules))

    matcher = SequenceMatcher(None, one, other, autojunk=len(one) + len(other) > 2_000)
    for group in matcher.get_grouped_opcodes(context):
        if len(result) > 1:
            result.append(DiffLine("…", "@", stream))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                add(" ", before, one, i1, i2)
            else:
                add("-", before, one, i1, i2)
                add("+", after, other, j1, j2)
    return result


def _lines(side: Normalized) -> list[str]:
    lines = side.data.decode("utf-8", "replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if len(lines) <= MOST_LINES:
        return lines
    half = MOST_LINES // 2
    return [*lines[:half], f"[… {len(lines) - 2 * half} lines …]", *lines[-half:]]
