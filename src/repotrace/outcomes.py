"""Outcomes of tests: read from what a runner printed, and the verdict on each test.

What a runner prints is the second choice, for runs that no plug-in of ours watched. Failing tests
are known in any case; others only where the runner was asked to name them.
"""

# ruff: noqa: RUF001 - runners print such signs

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from repotrace.records.command import CommandRun
from repotrace.records.events import OutcomeData
from repotrace.records.run import OutcomeOrigin, TestOutcome, TestResult
from repotrace.testlogs import Failure, parse

MESSAGE_LIMIT = 2_000
"""Characters of the one line that says why a test failed."""

# --- From output ----------------------------------------------------------------------------


def outcomes_from_output(run: CommandRun) -> list[OutcomeData]:
    """What the output of a command says of its tests; nothing for a command that runs none.

    The origin is `parsed`. One outcome for each test, in the order of their names.
    """
    found: dict[str, OutcomeData] = {}
    for stream in (run.stdout, run.stderr):
        for outcome in outcomes_from_text(stream.text):
            found.setdefault(outcome["node_id"], outcome)
    return [found[name] for name in sorted(found)]


def outcomes_from_text(text: str) -> list[OutcomeData]:
    """What `text`, as a test runner prints it, says of its tests; see `outcomes_from_output`."""
    log = parse(text)
    if log is None:
        return []
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n")
    named = dict(_NAMED[log.framework](plain)) if log.framework in _NAMED else {}
    failed = {failure.test: failure for failure in log.failures}
    broken = _broken(plain) if log.framework == "pytest" else set()
    outcomes = []
    for name in sorted({*named, *failed}):
        data = OutcomeData(
            node_id=name,
            outcome=str(TestResult.FAILED if name in failed else named[name]),
            origin=OutcomeOrigin.PARSED,
            runner=log.framework,
        )
        if name in failed:
            _describe(data, failed[name])
            if name in broken:
                data["outcome"] = str(TestResult.ERROR)
                data["phase"] = "setup" if "::" in name else "collect"
        outcomes.append(data)
    return outcomes


def _describe(data: OutcomeData, failure: Failure) -> None:
    error = failure.error
    if error is None:
        return
    parts = [part for part in (error.exception, error.message) if part]
    if parts:
        first = ": ".join(parts).splitlines()[0]
        data["message"] = first[:MESSAGE_LIMIT]


def _broken(text: str) -> set[str]:
    """What the summary of pytest calls an error and not a failure besides."""
    named: dict[str, set[str]] = {"ERROR": set(), "FAILED": set()}
    for match in _SUMMARY.finditer(text):
        line = match["line"]
        named[match["word"]].update(line[: at.start()] for at in _DASH.finditer(line))
        named[match["word"]].add(line)
    return named["ERROR"] - named["FAILED"]


_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")
_SUMMARY = re.compile(r"^(?P<word>ERROR|FAILED) (?P<line>\S.{0,1999})", re.MULTILINE)
_DASH = re.compile(" - ")

type _Named = Iterator[tuple[str, TestResult]]

_WORDS = {
    "PASSED": TestResult.PASSED,
    "SKIPPED": TestResult.SKIPPED,
    "XFAIL": TestResult.XFAILED,
    "XPASS": TestResult.XPASSED,
    "ok": TestResult.PASSED,
    "PASS": TestResult.PASSED,
    "SKIP": TestResult.SKIPPED,
    "ignored": TestResult.SKIPPED,
    "skipped": TestResult.SKIPPED,
    "expected failure": TestResult.XFAILED,
    "✓": TestResult.PASSED,
    "○": TestResult.SKIPPED,
}


def _by_words(pattern: str) -> Callable[[str], _Named]:
    """Each match of a pattern with the groups `id` and `word`."""
    compiled = re.compile(pattern, re.MULTILINE)

    def named(text: str) -> _Named:
        for match in compiled.finditer(text):
            yield match["id"], _WORDS[match["word"]]

    return named


_PYTEST_VERBOSE = _by_words(
    r"^(?P<id>[^\s:]\S{0,999}?::.{0,1999}?) (?P<word>PASSED|SKIPPED|XFAIL|XPASS)"
    r"(?: \(.{0,1999}\))?(?: +\[ *\d+%\])?$"
)
_PYTEST_XDIST = _by_words(
    r"^\[gw\d+\] \[ *\d+%\] (?P<word>PASSED|SKIPPED|XFAIL|XPASS)"
    r" (?P<id>\S{1,999}?::.{0,1999}?)(?: \(.{0,1999}\))?(?: {1,99})?$"
)
_PYTEST_SUMMARY = _by_words(r"^(?P<word>PASSED) (?P<id>\S{1,999}?::.*)$")
_PYTEST_REASONS = _by_words(
    r"^(?P<word>XFAIL|XPASS) (?:at setup of )?"
    r"(?P<id>\S{1,999}?::[^\s\[]{1,999}(?:\[.{0,1999}?\])?)(?: - .*)?$"
)


def _pytest(text: str) -> _Named:
    for read in (_PYTEST_VERBOSE, _PYTEST_XDIST, _PYTEST_SUMMARY, _PYTEST_REASONS):
        yield from read(text)


_UNITTEST = re.compile(
    r"^(?P<name>\w+) \((?P<where>[\w.<>]+)\)(?:\n.*)? \.\.\. "
    r"(?P<word>ok|skipped|expected failure)\b",
    re.MULTILINE,
)


def _unittest(text: str) -> _Named:
    for match in _UNITTEST.finditer(text):
        name, where = match["name"], match["where"]
        full = where if where.rpartition(".")[2] == name else f"{where}.{name}"
        yield full, _WORDS[match["word"]]


_JEST = re.compile(
    r"^(?P<indent> {1,99})(?:(?P<sign>[✓○✕]) )?(?!FAIL |PASS )(?P<name>\S.{0,1999}?)"
    r"(?: \(\d[\d.]{0,19} m?s\))?$"
)


def _jest(text: str) -> _Named:
    """With `--verbose`: tests below the titles that they are indented under."""
    titles: list[tuple[int, str]] = []
    for line in text.split("\n"):
        match = _JEST.match(line)
        if match is None:
            titles = []
            continue
        depth = len(match["indent"])
        name = match["name"].removeprefix("skipped ") if match["sign"] == "○" else match["name"]
        titles = [title for title in titles if title[0] < depth] + [(depth, name)]
        if match["sign"] in ("✓", "○"):
            yield " › ".join(title for _, title in titles), _WORDS[match["sign"]]


_NAMED: dict[str, Callable[[str], _Named]] = {
    "pytest": _pytest,
    "unittest": _unittest,
    "jest": _jest,
    "vitest": _by_words(r"^ {1,99}(?P<word>✓) (?P<id>\S{1,999} > .{1,1999}?)(?: \d[\d.]*m?s)?$"),
    "go-test": _by_words(r"^ *--- (?P<word>PASS|SKIP): (?P<id>\S+) \("),
    "cargo-test": _by_words(
        r"^test (?P<id>.{1,1999}?)(?: - should panic)? \.\.\. (?P<word>ok|ignored)\b"
    ),
    "nextest": _by_words(
        r"^ +(?P<word>PASS|SKIP) \[[ >\d.]+s\] (?:\([^)\n]*\) )?(?P<id>\S+ \S.*)$"
    ),
    "tap": _by_words(r"^ *(?P<word>ok) \d+(?: -)? (?P<id>[^#\n]*[^#\s])$"),
}

# --- Verdicts -------------------------------------------------------------------------------

_BADNESS = (
    TestResult.PASSED,
    TestResult.SKIPPED,
    TestResult.XFAILED,
    TestResult.XPASSED,
    TestResult.RERUN,
    TestResult.ERROR,
    TestResult.FAILED,
)
"""From the best to the worst; a test that was to be tried again and never was has failed."""


def verdicts(outcomes: Iterable[TestOutcome]) -> dict[str, TestResult]:
    """One result for each test: its worst phase, of the last attempt where it was tried again.

    A test with a failing subtest has failed. Outcomes with words that are no `TestResult` count
    as errors.
    """
    found: dict[str, tuple[int, TestResult]] = {}
    for outcome in outcomes:
        result = _result(outcome.outcome)
        attempt, worst = found.get(outcome.node_id, (0, TestResult.PASSED))
        if outcome.attempt > attempt:
            found[outcome.node_id] = (outcome.attempt, result)
        elif outcome.attempt == attempt and _BADNESS.index(result) > _BADNESS.index(worst):
            found[outcome.node_id] = (attempt, result)
    results = {name: result for name, (_, result) in found.items()}
    for name, result in list(results.items()):
        if result not in (TestResult.FAILED, TestResult.ERROR):
            continue
        for match in _parents(name):
            if match in results and _BADNESS.index(result) > _BADNESS.index(results[match]):
                results[match] = result
    return results


def _parents(name: str) -> Iterator[str]:
    """What the id of a subtest may go on from."""
    start = name.find("::")
    while start >= 0:
        start = name.find(" ", start + 1)
        if start >= 0 and name[start + 1 : start + 2] in ("[", "("):
            yield name[:start]


def _result(word: str) -> TestResult:
    try:
        return TestResult(word)
    except ValueError:
        return TestResult.ERROR
