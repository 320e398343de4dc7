"""Which tests failed, read from what a test runner printed.

For runs that no plug-in of ours watched. Ids are exactly as the runner names them.
"""

# ruff: noqa: RUF001 - runners print such signs

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from repotrace.tracebacks import (
    Frame,
    Raised,
    last_match,
    node_frames,
    python_error,
    rust_panic,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failing test."""

    test: str
    error: Raised | None = None
    """What it failed with, where the runner says so."""


@dataclass(frozen=True, slots=True)
class TestLog:
    """What one run of a test runner reports."""

    __test__ = False

    framework: str
    """One of `frameworks()`."""
    failures: tuple[Failure, ...] = ()
    """Sorted by test, each test once; files that could not be collected too."""
    passed_count: int | None = None
    """None where the runner does not say."""
    total_count: int | None = None
    """All tests that it knows the outcome of, skipped ones included."""
    failed: tuple[str, ...] = field(init=False)
    """Ids of the failing tests, sorted."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "failed", tuple(failure.test for failure in self.failures))


def failing_tests(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Framework and failing tests in `text`; None if no known runner reports a failure."""
    log = parse(text)
    return (log.framework, log.failed) if log and log.failed else None


def parse(text: str) -> TestLog | None:
    """What a test runner reports in `text`; None if it is the output of no known runner."""
    plain = _escapes().sub("", text) if "\x1b" in text else text
    plain = plain.replace("\r\n", "\n")
    logs = [log for read in _READERS.values() if (log := read(plain)) is not None]
    return next((log for log in logs if log.failures), logs[0] if logs else None)


def frameworks() -> Iterable[str]:
    """The names of the runners whose output is understood."""
    return _READERS.keys()


@cache
def _escapes() -> re.Pattern[str]:
    return re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")


@cache
def _pattern(regex: str) -> re.Pattern[str]:
    return re.compile(regex, re.MULTILINE)


def _log(
    framework: str,
    failures: Iterable[Failure],
    passed: int | None = None,
    total: int | None = None,
) -> TestLog:
    """Failures sorted; of two of one test the one that knows its error."""
    by_test: dict[str, Failure] = {}
    for failure in failures:
        known = by_test.get(failure.test)
        if known is None or known.error is None:
            by_test[failure.test] = failure
    ordered = tuple(by_test[test] for test in sorted(by_test))
    return TestLog(framework, ordered, passed, total)


def _sections(matches: Sequence[re.Match[str]], text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each match with the text up to the next."""
    for number, match in enumerate(matches):
        end = matches[number + 1].start() if number + 1 < len(matches) else len(text)
        yield match, text[match.end() : end]


# --- pytest

_WORDS = "failed|passed|skipped|deselected|xfailed|xpassed|warnings?|errors?|rerun|subtests? \\w+"
_COUNT_LINE = (
    rf"^(?:=+ )?(?P<counts>\d+ (?:{_WORDS})(?:, \d+ (?:{_WORDS}))*|no tests ran)"
    r" in [\d.]+s(?: \([\d:]+\))?(?: =+)?$"
)
_SUMMARY = r"^=+ short test summary info =+$"
_SUMMARY_LINE = r"^(?:FAILED|ERROR|SUBFAIL(?:ED)?(?:\[.*?\]|\(.*?\))*(?: \(.*?\))?) (?P<rest>\S.*)$"
_PROGRESS_LINE = r"^(?:\[gw\d+\] \[ *\d+%\] (?:FAILED|ERROR) (?P<xdist>\S.*)|(?P<id>\S+::.*) (?:FAILED|ERROR)(?: +\[ *\d+%\])?)$"  # noqa: E501
_REGION = r"^=+ (?P<title>[^=\n].*?) =+$"
_HEADING = r"^_+ (?P<title>[^_\s](?:.*\S)?) _+$"
_PLACE = r"^(?P<path>[^\s:][^:\n]*):\d+: ?(?P<what>.*)$"
_NAMED = r"^(?P<type>[A-Za-z_][\w.]*(?:\.[A-Z]\w*|Error|Exception|Exit|Interrupt|Warning|Failed)|[A-Z]\w*)(?:: ?(?P<message>.*))?$"  # noqa: E501


def _pytest(text: str) -> TestLog | None:
    counts = last_match(_pattern(_COUNT_LINE), text)
    summary = last_match(_pattern(_SUMMARY), text)
    if counts is None and summary is None and "= test session starts =" not in text:
        return None
    errors = _pytest_errors(text)
    if summary is not None:
        end = counts.start() if counts and counts.start() > summary.end() else len(text)
        lines = _pattern(_SUMMARY_LINE).finditer(text, summary.end(), end)
        failures = [_summarised(match["rest"], errors) for match in lines]
    else:
        failures = [Failure(*pair) for pair in errors.values() if pair[0]]
        failures += [Failure(test) for test in _pytest_progress(text)]
    numbers = _pytest_counts(counts["counts"]) if counts else {}
    if counts is None:
        return _log("pytest", failures)
    # A test that fails while it is torn down has been counted before.
    twice = len(_pattern(r"^_+ ERROR at teardown of ").findall(text))
    total = sum(number for word, number in numbers.items() if word in _OUTCOMES) - twice
    return _log("pytest", failures, numbers.get("passed", 0), total)


_OUTCOMES = ("failed", "passed", "skipped", "xfailed", "xpassed", "error")


def _pytest_counts(text: str) -> dict[str, int]:
    return {word.rstrip("s"): int(n) for n, word in re.findall(r"(\d+) (\w+)", text)}


def _summarised(line: str, errors: dict[str, tuple[str, Raised | None]]) -> Failure:
    """Id and error of a summary line. A parameter may hold spaces and ` - ` itself, so an id
    with `[` ends at the first `]` that ` - ` or the end follows."""
    name, _, rest = line.partition(" - ")
    if "[" in name:
        match = re.match(r"(.*?\])(?: - (.*)|$)", line)
        if match:
            name, rest = match[1], match[2] or ""
    name = name.strip()
    title = _pytest_title(name)
    known = errors.get(title, errors.get(name, ("", None)))[1]
    return Failure(name, known or _from_message(rest))


def _pytest_title(test: str) -> str:
    """How pytest heads the section of `test`."""
    _, _, inner = test.partition("::")
    name, bracket, parameters = inner.partition("[")
    return name.replace("::", ".") + bracket + parameters


def _pytest_progress(text: str) -> Iterator[str]:
    for match in _pattern(_PROGRESS_LINE).finditer(text):
        yield match["xdist"] or match["id"]


def _pytest_errors(text: str) -> dict[str, tuple[str, Raised | None]]:
    """By the title of its section: the id as far as the section tells it, and the error."""
    found: dict[str, tuple[str, Raised | None]] = {}
    for region, body in _sections(list(_pattern(_REGION).finditer(text)), text):
        if region["title"] not in ("FAILURES", "ERRORS"):
            continue
        for heading, section in _sections(list(_pattern(_HEADING).finditer(body)), body):
            title = re.sub(r"^ERROR (?:at \w+ of|collecting) ", "", heading["title"])
            places = list(_pattern(_PLACE).finditer(section))
            collecting = heading["title"].startswith("ERROR collecting ")
            name, bracket, parameters = title.partition("[")
            test = title if collecting else ""
            if places and not collecting:
                test = f"{places[0]['path']}::{name.replace('.', '::')}{bracket}{parameters}"
            found.setdefault(title, (test, _pytest_error(section, places)))
    return found


_CHAINED = r"^(?:The above exception was the direct cause|During handling of the above exception)"


def _pytest_error(section: str, places: Sequence[re.Match[str]]) -> Raised | None:
    """From a section: its last `path:line: Error` and the first line marked `E` above it."""
    chained = last_match(_pattern(_CHAINED), section)
    start = chained.end() if chained else 0
    marked = _pattern(r"^E +(?P<line>\S.*)$").search(section, start)
    if marked is None:
        return None
    raised = _from_message(marked["line"])
    if not places or raised is None:
        return raised
    last = places[-1]
    inside = re.fullmatch(r"in (?P<name>.+)", last["what"])
    if inside:
        return Raised("python", raised.exception, raised.message, (Frame(last["path"], inside[1]),))
    definition = last_match(
        _pattern(r"^[ >] *(?:async )?def (?P<name>\w+)\("), section[: last.start()]
    )
    frame = Frame(last["path"], definition["name"] if definition else None)
    exception = last["what"].strip() or raised.exception
    return Raised("python", exception, raised.message, (frame,))


def _from_message(line: str) -> Raised | None:
    """`KeyError: 'x'` as exception and message; a bare `assert …` is an AssertionError."""
    if not line:
        return None
    match = re.match(_NAMED, line)
    if match is not None:
        return Raised("python", match["type"], (match["message"] or "").strip() or None)
    return Raised("python", "AssertionError" if line.startswith("assert ") else None, line)


# --- unittest

_UNITTEST = (
    r"^={10,}\n(?:FAIL|ERROR|UNEXPECTED SUCCESS): (?P<name>\S+)(?: \((?P<where>[\w.<>]+)\))?"
    r"(?P<sub>(?: \[.*\])?(?: \(.*\))?)$"
)
_UNITTEST_END = r"^Ran (?P<total>\d+) tests? in [\d.]+s$"
_HOOKS = ("setUpClass", "tearDownClass", "setUpModule", "tearDownModule")


def _unittest(text: str) -> TestLog | None:
    end = last_match(_pattern(_UNITTEST_END), text)
    if end is None:
        return None
    failures = [
        Failure(_unittest_id(match), python_error(section))
        for match, section in _sections(list(_pattern(_UNITTEST).finditer(text)), text)
    ]
    return _log("unittest", failures, None, int(end["total"]))


def _unittest_id(match: re.Match[str]) -> str:
    """As `TestCase.id()` has it; up to Python 3.10 the name is not part of the parentheses."""
    name, where = match["name"], match["where"]
    if where is None:
        full = name
    elif name in _HOOKS:
        full = f"{name} ({where})"
    elif where == name or where.endswith(f".{name}"):
        full = where
    else:
        full = f"{where}.{name}"
    return full + match["sub"].rstrip()


# --- Jest, Vitest, Mocha, Node's own runner

_JEST_TOTAL = r"^Tests: +(?P<counts>.*\b(?P<total>\d+) total)$"
_JEST_FILE = r"^ *FAIL +(?P<file>\S.*?)(?: \([\d.]+ m?s\))?$"
_JEST_TITLE = rf"{_JEST_FILE}|^  ● (?P<name>\S.*)$"
_JEST_IGNORED = ("Console", "Cannot log after tests are done", "Validation Warning:")
_JEST_MARK = r"^(?P<indent> +)(?:✕ )?(?P<name>\S.*?)(?: \(\d[\d.]* m?s\))?$"


def _jest(text: str) -> TestLog | None:
    total = last_match(_pattern(_JEST_TOTAL), text)
    if total is None:
        return None
    failures: list[Failure] = []
    file = ""
    for title, section in _sections(list(_pattern(_JEST_TITLE).finditer(text)), text):
        if title["name"] is None:
            file = title["file"]
            continue
        if title["name"].startswith(_JEST_IGNORED):
            continue
        name = file if title["name"] == "Test suite failed to run" else title["name"]
        failures.append(Failure(name.strip(), _javascript_error(section)))
    if not failures:
        failures = [Failure(name) for name in _jest_marks(text)]
    passed = re.search(r"(\d+) passed", total["counts"])
    return _log("jest", failures, int(passed[1]) if passed else 0, int(total["total"]))


def _jest_marks(text: str) -> Iterator[str]:
    """Without details: the tests marked `✕`, below the titles that they are indented under."""
    titles: list[tuple[int, str]] = []
    for match in _pattern(_JEST_MARK).finditer(text):
        depth = len(match["indent"])
        titles = [title for title in titles if title[0] < depth] + [(depth, match["name"])]
        if match[0].lstrip().startswith("✕ "):
            yield " › ".join(name for _, name in titles)


def _javascript_error(section: str) -> Raised | None:
    """Of an indented block: its first line, and the frames that begin with `at`."""
    lines = section.split("\n")
    first = next((line.strip() for line in lines if line.strip()), None)
    if first is None:
        return None
    match = re.match(
        r"(?P<type>[A-Za-z_$][\w$.]*(?:Error|Exception)|Error)(?: \[\w+\])?: (?P<message>.*)$",
        first,
    )
    stack = next(
        (n for n, line in enumerate(lines) if re.match(r" +at .+:\d+:\d+\)?$", line)), None
    )
    frames = node_frames(lines[stack:]) if stack is not None else ()
    if match is not None:
        return Raised("node", match["type"], match["message"], frames)
    return Raised("node", None, first, frames)


_VITEST_TOTAL = r"^ +Tests  +(?P<counts>.*\((?P<total>\d+)\))$"
_VITEST_FILES = r"^ +Test Files  +.*\(\d+\)$"
_VITEST_FAIL = r"^ FAIL  (?P<name>\S.*)$"


def _vitest(text: str) -> TestLog | None:
    total = last_match(_pattern(_VITEST_TOTAL), text)
    if total is None and not _pattern(_VITEST_FILES).search(text):
        return None
    failures: list[Failure] = []
    for match, section in _sections(list(_pattern(_VITEST_FAIL).finditer(text)), text):
        name = re.sub(r"^(?P<file>\S+) \[ (?P=file) \]$", r"\g<file>", match["name"].rstrip())
        failures.append(Failure(name, _vitest_error(section)))
    passed = re.search(r"(\d+) passed", total["counts"]) if total else None
    counted = int(total["total"]) if total else None
    return _log("vitest", failures, int(passed[1]) if passed else 0, counted)


def _vitest_error(section: str) -> Raised | None:
    error = _javascript_error(section)
    if error is None:
        return None
    place = _pattern(r"^ ❯ (?:(?P<name>\S+) )?(?P<path>[^\s:]+):\d+:\d+$").search(section)
    frames = (Frame(place["path"], place["name"]),) if place else ()
    return Raised("node", error.exception, error.message, frames)


_MOCHA_TOTAL = r"^  (?P<failed>\d+) failing$"
_MOCHA_TITLE = r"^  \d+\) (?P<title>[^\n]+(?:\n {7,}[^\n]+){0,20}?):\n"


def _mocha(text: str) -> TestLog | None:
    total = last_match(_pattern(_MOCHA_TOTAL), text)
    passed = _pattern(r"^  (\d+) passing\b").search(text)
    if total is None and passed is None:
        return None
    failures: list[Failure] = []
    start = total.end() if total else len(text)
    rest = text[start:]
    for match, section in _sections(list(_pattern(_MOCHA_TITLE).finditer(rest)), rest):
        name = " ".join(line.strip() for line in match["title"].split("\n"))
        failures.append(Failure(name, _javascript_error(section)))
    count = int(passed[1]) if passed else 0
    return _log("mocha", failures, count, count + (int(total["failed"]) if total else 0))


_TAP_PLAN = r"^1\.\.\d+(?: |$)"
_TAP_LINE = r"^(?P<indent> *)(?P<outcome>ok|not ok) \d+(?: -)? (?P<name>.*?)(?P<mark> # (?:TODO|SKIP)\b.*)?$"  # noqa: E501
_SPEC_FAILURES = "\n✖ failing tests:\n"


def _tap(text: str) -> TestLog | None:
    """The Test Anything Protocol, as `node --test`, bats and others write it."""
    if not _pattern(_TAP_PLAN).search(text):
        return None
    failures: list[Failure] = []
    passed = total = 0
    for match, section in _sections(list(_pattern(_TAP_LINE).finditer(text)), text):
        if re.search(r"^ +type: '?suite|failureType: 'subtestsFailed'", section, re.M):
            continue
        total += 1
        if match["outcome"] == "ok" or match["mark"]:
            passed += not match["mark"]
            continue
        failures.append(Failure(match["name"].replace("\\#", "#"), _tap_error(section)))
    return _log("tap", failures, passed, total) if total else None


def _tap_error(section: str) -> Raised | None:
    error = _pattern(r"^ +error: (?:'(?P<one>.*)'|\|-\n +(?P<first>.+))$").search(section)
    if error is None:
        return None
    name = _pattern(r"^ +name: '(.*)'$").search(section)
    return Raised("node", name[1] if name else None, error["one"] or error["first"])


def _node_spec(text: str) -> TestLog | None:
    """What `node --test` writes on a terminal."""
    total, passed = (_pattern(rf"^ℹ {word} (\d+)$").search(text) for word in ("tests", "pass"))
    if total is None:
        return None
    _, _, rest = text.partition(_SPEC_FAILURES)
    titles = list(_pattern(r"^✖ (?P<name>.+?) \([\d.]+ms\)$").finditer(rest))
    failures = [
        Failure(match["name"], _javascript_error(section))
        for match, section in _sections(titles, rest)
    ]
    return _log("node-test", failures, int(passed[1]) if passed else None, int(total[1]))


# --- Go, Rust

_GO_FAIL = r"^ *--- FAIL: (?P<name>\S+) \("
_GO_PACKAGE = r"^(?:ok  |FAIL|---|\?   )\t(?P<package>\S+)(?:\t| \[)"
_GO_BROKEN = r"^FAIL\t(?P<package>\S+ \[(?:build|setup) failed\])$"
_GO_FAILED_PACKAGE = r"^FAIL\t(?P<package>\S+)\t[\d.]+s$"


def _go(text: str) -> TestLog | None:
    matches = list(_pattern(_GO_FAIL).finditer(text))
    if not matches and not _pattern(_GO_PACKAGE).search(text):
        return None
    failures = [
        Failure(match["name"], _go_error(match["name"], section))
        for match, section in _sections(matches, text)
    ]
    failures += [Failure(name) for name in _pattern(_GO_BROKEN).findall(text)]
    if not matches:
        # A package may fail without a failing test, as when its TestMain exits.
        failures += [Failure(name) for name in _pattern(_GO_FAILED_PACKAGE).findall(text)]
    return _log("go-test", failures)


def _go_error(test: str, section: str) -> Raised | None:
    match = re.match(r"[^\n]*\n\s+(?P<path>\S+\.go):\d+: (?P<message>.*)", section)
    if match is None:
        return None
    return Raised("go", None, match["message"], (Frame(match["path"], test),))


_CARGO_FAILED = r"^test (?P<name>.+?)(?: - should panic)? \.\.\. FAILED$"
_CARGO_LIST = r"^failures:\n(?P<names>(?:    \S.*\n)+)"
_CARGO_SECTION = r"^---- (?P<name>.+) stdout ----$"
_CARGO_RESULT = (
    r"^test result: \w+\. (?P<passed>\d+) passed; (?P<failed>\d+) failed; (?P<ignored>\d+) ignored;"
)
_NEXTEST = (
    r"^ +(?:FAIL|SIGABRT|SIGSEGV|TIMEOUT) \[[ >\d.]+s\] (?:\([^)\n]*\) )?(?P<name>\S+ +\S.*)$"
)
_NEXTEST_RESULT = r"^ +Summary \[[ \d.]+s\] +(?P<total>\d+) tests? run: (?P<passed>\d+) passed"


def _cargo(text: str) -> TestLog | None:
    results = list(_pattern(_CARGO_RESULT).finditer(text))
    names = _pattern(_CARGO_FAILED).findall(text)
    for block in _pattern(_CARGO_LIST).findall(text):
        names += [line.strip() for line in block.splitlines()]
    if not results and not names:
        return None
    panics = {
        match["name"]: rust_panic(section)
        for match, section in _sections(list(_pattern(_CARGO_SECTION).finditer(text)), text)
    }
    passed = sum(int(result["passed"]) for result in results)
    others = sum(int(result["failed"]) + int(result["ignored"]) for result in results)
    failures = [Failure(name, panics.get(name)) for name in names]
    return _log("cargo-test", failures, passed, passed + others)


def _nextest(text: str) -> TestLog | None:
    result = last_match(_pattern(_NEXTEST_RESULT), text)
    if result is None:
        return None
    names = [" ".join(name.split()) for name in _pattern(_NEXTEST).findall(text)]
    failures = [Failure(name) for name in names]
    return _log("nextest", failures, int(result["passed"]), int(result["total"]))


_READERS: dict[str, Callable[[str], TestLog | None]] = {
    "pytest": _pytest,
    "unittest": _unittest,
    "cargo-test": _cargo,
    "nextest": _nextest,
    "go-test": _go,
    "jest": _jest,
    "vitest": _vitest,
    "mocha": _mocha,
    "tap": _tap,
    "node-test": _node_spec,
}
