"""Which tests failed, read from what a test runner printed.

For runs that no plug-in of ours watched. Ids are exactly as the runner names them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(frozen=True, slots=True)
class TestLog:
    """The failing tests of one run of a test runner."""

    __test__ = False

    framework: str
    """`pytest`, `unittest`, `jest`, `go-test` or `cargo-test`."""
    failed: tuple[str, ...]
    """Sorted, without repeats; tests and files that could not be collected too."""
    first_error: str | None = None
    """What the runner says of the first failure in its summary, as `KeyError: 'x'`."""


def failing_tests(text: str) -> tuple[str, tuple[str, ...]] | None:
    """Framework and failing tests in `text`; None if no known runner reports a failure."""
    log = parse(text)
    return (log.framework, log.failed) if log else None


def parse(text: str) -> TestLog | None:
    """The failures that the output of a test runner reports; None if there are none."""
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n")
    for framework, read in _READERS.items():
        found = read(plain)
        if found:
            names = sorted({name for name, _ in found})
            first = next((error for _, error in found if error), None)
            return TestLog(framework, tuple(names), first)
    return None


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last of all matches, None without any."""
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None


type _Failures = list[tuple[str, str | None]]

_PYTEST_SUMMARY = re.compile(r"^=+ short test summary info =+$", re.M)
_PYTEST_LINE = re.compile(r"^(?:\[gw\d+\] )?(?:FAILED|ERROR) (?P<rest>\S.*)$", re.M)
_PYTEST_COUNT = re.compile(r"\b\d+ (?:failed|error(?:s)?)\b.* in [\d.:]+")
_PYTEST_HEADER = re.compile(r"^_{3,} (?P<name>\S.*?\S|\S) _{3,}$", re.M)
_PYTEST_PLACE = re.compile(r"^(?P<path>[^\s:]+\.py):\d+: (?P<error>\w[\w.]*)?", re.M)


def _pytest(text: str) -> _Failures:
    summary = last_match(_PYTEST_SUMMARY, text)
    if summary is not None:
        lines = [match["rest"] for match in _PYTEST_LINE.finditer(text, summary.end())]
        return [_split_pytest(line) for line in lines]
    if not _PYTEST_COUNT.search(text):
        return []
    return _pytest_sections(text)


def _split_pytest(line: str) -> tuple[str, str | None]:
    """Id and error of a summary line. A parameter may hold spaces and ` - ` itself, so an id
    with `[` ends at the last `]` that ` - ` or the end follows."""
    if "[" in line.split(" - ", 1)[0]:
        match = re.match(r"(.*?\](?=$| - ))(?: - (.*))?$", line)
        if match:
            return match[1], match[2]
    name, dash, error = line.partition(" - ")
    return name.strip(), error if dash else None


def _pytest_sections(text: str) -> _Failures:
    """Without a summary (`-r N`): the headed sections, and the file named inside each."""
    headers = list(_PYTEST_HEADER.finditer(text))
    found: _Failures = []
    for number, header in enumerate(headers):
        end = headers[number + 1].start() if number + 1 < len(headers) else len(text)
        places = list(_PYTEST_PLACE.finditer(text, header.end(), end))
        name = re.sub(r"^ERROR (?:at \w+ of |collecting )", "", header["name"])
        if not places:
            if header["name"].startswith("ERROR collecting "):
                found.append((name, None))
            continue
        parts = name.replace(".", "::") if "[" not in name else name
        found.append((f"{places[0]['path']}::{parts}", places[-1]["error"]))
    return found


_UNITTEST = re.compile(
    r"^=+\n(?:FAIL|ERROR): (?P<name>\S+)(?: \((?P<where>[\w.<>]+)\))?(?P<sub> [\[(].*)?$", re.M
)
_UNITTEST_END = re.compile(r"^Ran \d+ tests? in ", re.M)


def _unittest(text: str) -> _Failures:
    if not _UNITTEST_END.search(text):
        return []
    found: _Failures = []
    matches = list(_UNITTEST.finditer(text))
    for number, match in enumerate(matches):
        name, where = match["name"], match["where"]
        if where is None:
            full = name
        elif where == name or where.endswith(f".{name}"):
            full = where
        else:
            full = f"{where}.{name}"
        full += (match["sub"] or "").rstrip()
        end = matches[number + 1].start() if number + 1 < len(matches) else len(text)
        found.append((full, _last_error(text[match.end() : end])))
    return found


def _last_error(section: str) -> str | None:
    errors = re.findall(r"^([A-Za-z_][\w.]*(?::.*)?)$", section, re.M)
    named = [
        error for error in errors if re.match(r"[\w.]*(Error|Exception|Exit|Interrupt)\b", error)
    ]
    return named[-1] if named else None


_JEST_BULLET = re.compile(r"^ *● (?P<name>\S.*)$", re.M)
_VITEST = re.compile(
    r"^ *(?:FAIL|\u00d7|✗) +(?P<name>\S+\.[cm]?[jt]sx?(?: \[[^]]*\])? > .+?)(?: \d+ms)?$", re.M
)
_JEST_TOTAL = re.compile(r"^ *(?:Tests?|Test Suites|Test Files):? .*\bfailed\b", re.M)


def _jest(text: str) -> _Failures:
    if not _JEST_TOTAL.search(text):
        return []
    bullets = _JEST_BULLET.findall(text)
    ignored = ("Console", "Cannot log after tests are done")
    names = [name for name in bullets if not name.startswith(ignored)]
    names += _VITEST.findall(text)
    return [(name.strip(), None) for name in names]


_GO = re.compile(r"^ *--- FAIL: (?P<name>\S+)", re.M)
_GO_PACKAGE = re.compile(r"^FAIL\t(?P<package>\S+)(?:\t| \[)", re.M)


def _go(text: str) -> _Failures:
    names = _GO.findall(text)
    packages = _GO_PACKAGE.findall(text)
    if not names and not (packages and "\nFAIL" in f"\n{text}"):
        return []
    return [(name, None) for name in names or packages]


_CARGO = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. FAILED$", re.M)
_CARGO_LIST = re.compile(r"^failures:\n(?P<names>(?:    \S.*\n)+)", re.M)


def _cargo(text: str) -> _Failures:
    names = _CARGO.findall(text)
    for block in _CARGO_LIST.findall(text):
        names += [line.strip() for line in block.splitlines()]
    return [(name, None) for name in names]


_READERS: dict[str, Callable[[str], _Failures]] = {
    "pytest": _pytest,
    "unittest": _unittest,
    "cargo-test": _cargo,
    "go-test": _go,
    "jest": _jest,
}


def frameworks() -> Iterable[str]:
    """The names of the runners whose output is understood."""
    return _READERS.keys()
