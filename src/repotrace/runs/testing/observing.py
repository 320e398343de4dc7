"""What one execution says of one test: how it ended, and what makes two failures the same."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from hashlib import sha256

from repotrace.blame.evidence import Kind, Observation
from repotrace.outcomes import verdicts
from repotrace.records.command import CommandRun, Termination
from repotrace.records.run import FAILING, OutcomeOrigin, TestOutcome, TestResult
from repotrace.signatures import message_shape
from repotrace.storage.memo import Execution

_LOCATION = re.compile(
    r"^(?:(?P<path>[^\s:][^:\n]{0,400}?\.py):\d+: |  File \"(?P<file>[^\"\n]{1,400})\", line \d+)",
    re.MULTILINE,
)
_EXCEPTION = re.compile(r"(?:E +)?(?P<type>[A-Za-z_][\w.]{0,200}?)(?:: |$)")
_ELSEWHERE = ("site-packages/", "dist-packages/", "/lib/python", "<frozen", "<string>")
_TIMED_OUT = re.compile(r"Failed: Timeout\b|Timeout [(>]")
"""As pytest-timeout says it."""
_NOT_STARTED = (126, 127)
_CANNOT_SAY = 125
"""The exit code by which a script tells `git bisect run` to skip a commit."""

KINDS = {
    TestResult.PASSED: Kind.PASSED,
    TestResult.XPASSED: Kind.PASSED,
    TestResult.SKIPPED: Kind.SKIPPED,
    TestResult.XFAILED: Kind.SKIPPED,
    TestResult.FAILED: Kind.FAILED,
    TestResult.ERROR: Kind.FAILED,
    TestResult.RERUN: Kind.FAILED,
}


def observed(execution: Execution, test: str = "") -> Observation:
    """What came of `test`; of the command as a whole if none is named."""
    command = execution.command
    kind, fingerprint, note = _end(execution, command, test)
    return Observation(
        kind=kind,
        fingerprint=fingerprint,
        alone=execution.alone,
        source=execution.id,
        note=note[:300],
        duration=execution.duration,
    )


def _end(execution: Execution, command: CommandRun, test: str) -> tuple[Kind, str, str]:
    if execution.problem is not None:
        return Kind.UNUSABLE, "", execution.problem
    if command.termination is Termination.SPAWN_ERROR:
        return Kind.UNUSABLE, "", command.ending
    own = [outcome for outcome in execution.outcomes if outcome.node_id == test]
    result = verdicts(execution.outcomes).get(test) if test else None
    if result is not None:
        told = of_outcomes(own, result, command.cwd)
        if told[0] is Kind.PASSED or command.termination is Termination.EXITED:
            return told
    if command.termination is Termination.TIMEOUT:
        return Kind.TIMEOUT, "", command.ending
    if command.termination is Termination.SIGNALED:
        return Kind.SIGNAL, str(command.signal), command.ending
    if result is not None:
        return of_outcomes(own, result, command.cwd)
    if not test:
        return _whole(command)
    if execution.origin == OutcomeOrigin.PLUGIN or is_pytest(execution):
        return _not_run(execution, command, test)
    return _unnamed(execution, command)


def of_outcomes(
    outcomes: Iterable[TestOutcome], result: TestResult, root: str = ""
) -> tuple[Kind, str, str]:
    """Kind, fingerprint and one line of a test with these outcomes, whose verdict is `result`.

    `root` is the folder that it ran in.
    """
    kind = KINDS[result]
    outcomes = list(outcomes)
    worst = [outcome for outcome in outcomes if outcome.outcome == result] or outcomes
    message = next((one.message for one in reversed(worst) if one.message), "") or ""
    if kind is not Kind.FAILED:
        return kind, "", message
    if _TIMED_OUT.match(message):
        return Kind.TIMEOUT, "", message
    details = next((one.details for one in reversed(worst) if one.details), "") or ""
    return kind, _fingerprint(message, details, root), message


def _not_run(execution: Execution, command: CommandRun, test: str) -> tuple[Kind, str, str]:
    """pytest told nothing of the test: its file could not be collected, or has no such test."""
    file = test.partition("::")[0]
    for outcome in execution.outcomes:
        if outcome.phase != "collect" or not _contains(outcome.node_id, file):
            continue
        if outcome.outcome == TestResult.SKIPPED:
            return Kind.SKIPPED, "", outcome.message or ""
        if outcome.outcome in FAILING:
            message, details = outcome.message or "", outcome.details or ""
            print_ = f"{_fingerprint(message, details, command.cwd)} {message_shape(message)}"
            return Kind.ERROR, print_[:300], message
    text = f"{command.stdout.text}\n{command.stderr.text}"
    if "ImportError while loading conftest" in text or "INTERNALERROR>" in text:
        line = next((line for line in text.splitlines() if line.startswith("E  ")), "")
        message = line.removeprefix("E").strip() or "pytest could not start"
        return Kind.ERROR, message_shape(message)[:300], message
    if command.exit_code == 4 and "unrecognized arguments" in text:
        return Kind.UNUSABLE, "", "pytest does not know an argument"
    if command.exit_code in (3, 4) and "not found:" not in text and "file or directory" not in text:
        return Kind.ERROR, f"exit code {command.exit_code}", "pytest could not start"
    if not execution.complete and command.exit_code not in (0, 4, 5):
        return Kind.UNUSABLE, "", f"the session ended before the test: {command.ending}"
    return Kind.MISSING, "", "there is no such test"


def _unnamed(execution: Execution, command: CommandRun) -> tuple[Kind, str, str]:
    """A runner that names only what fails did not name the test."""
    if command.exit_code == 0:
        return Kind.PASSED, "", ""
    kind, fingerprint, note = _whole(command)
    if kind is Kind.FAILED and execution.outcomes:
        return Kind.PASSED, "", ""
    return (Kind.ERROR if kind is Kind.FAILED else kind), fingerprint, note


def _whole(command: CommandRun) -> tuple[Kind, str, str]:
    code = command.exit_code
    if code == 0:
        return Kind.PASSED, "", ""
    if code in _NOT_STARTED or code == _CANNOT_SAY:
        return Kind.UNUSABLE, "", command.ending
    found = command.signature
    if found is None:
        return Kind.FAILED, "", command.ending
    parts = [found.kind, found.exception, found.frame, *found.failing_tests]
    if not found.typed:
        parts.append(message_shape(found.message or ""))
    note = ": ".join(part for part in (found.exception, found.message) if part)
    return Kind.FAILED, " ".join(part for part in parts if part)[:300], note or command.ending


def _fingerprint(message: str, details: str, root: str) -> str:
    """Type of exception, and the innermost file of the project."""
    match = _EXCEPTION.match(message)
    exception = match["type"] if match else ""
    if message.startswith("assert ") or not exception:
        exception = "AssertionError"
    places = [match["path"] or match["file"] for match in _LOCATION.finditer(details)]
    ours = [place for place in places if not any(part in place for part in _ELSEWHERE)]
    place = (ours or places or [""])[-1]
    if root and place.startswith(root + "/"):
        place = os.path.relpath(place, root)
    return f"{exception.rpartition('.')[2]} {place}".strip()


def _contains(collector: str, file: str) -> bool:
    """Whether a file is what could not be collected, or lies in it."""
    folder = collector.rstrip("/")
    return folder in ("", ".", file) or file.startswith(f"{folder}/")


def is_pytest(execution: Execution) -> bool:
    """Whether the command was one of pytest, whatever came of it."""
    words = execution.command.argv
    return any(word.rpartition("/")[2] in ("pytest", "py.test") for word in words)


def key_of(state_id: str, line: str, environment: str) -> str:
    """The digest that the memo knows an execution by."""
    text = "\0".join((state_id, line, environment))
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
