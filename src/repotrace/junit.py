"""Reports of test runners in JUnit's XML: those of pytest, Jest, Vitest, Go, Surefire and others.

A document type is refused, and with it all entities of a file's own: no file can make more of
itself than it is, or reach for another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from repotrace.errors import RepoTraceError
from repotrace.outcomes import MESSAGE_LIMIT
from repotrace.records.events import OutcomeData
from repotrace.records.run import OutcomeOrigin, TestResult

type Exists = Callable[[str], bool]

_DEEPEST = 100


def outcomes_from_junit(data: bytes, *, exists: Exists | None = None) -> list[OutcomeData]:
    """The outcomes in a report, in its order; their origin is `junit`.

    Node ids are what the runner itself would print, as far as the report tells. A report of
    pytest names modules by dots; `exists` says whether a path, relative to where pytest ran, is
    a file, and so where the module ends and a class begins.

    Raises RepoTraceError if it is no such report.
    """
    root = _parse(data)
    if _tag(root) not in ("testsuites", "testsuite"):
        raise RepoTraceError(
            f"The file is no JUnit report: it begins with <{_tag(root)}>.",
            hint="Give the XML file that the test runner wrote.",
        )
    dialect = _dialect(root)
    outcomes: list[OutcomeData] = []
    for case in root.iter():
        if _tag(case) == "testcase":
            outcomes += _outcomes_of(case, dialect, exists)
    return outcomes


# --- XML ------------------------------------------------------------------------------------


class _Refused(Exception):
    pass


def _parse(data: bytes) -> Element:
    builder = TreeBuilder()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEEPEST:
            raise _Refused("it is nested too deeply")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def doctype(*_: object) -> None:
        raise _Refused("it has a document type")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise RepoTraceError(f"The file is no readable XML: {error}.") from error
    except _Refused as error:
        raise RepoTraceError(f"The JUnit report is refused: {error}.") from error
    except (ValueError, LookupError) as error:
        raise RepoTraceError("The file is in an encoding that is not known.") from error
    root = builder.close()
    assert isinstance(root, Element)
    return root


def _tag(element: Element) -> str:
    """The name without a prefix."""
    return element.tag.rpartition(":")[2]


# --- Dialects -------------------------------------------------------------------------------


class _Case(NamedTuple):
    """What the id of a test is made of."""

    name: str
    classname: str
    file: str
    phase: str


def _dialect(root: Element) -> str:
    """Which runner wrote the report; empty if it is not one whose ids are special."""
    suites = [root, *(suite for suite in root.iter() if _tag(suite) == "testsuite")]
    names = {suite.get("name", "") for suite in suites}
    if "pytest" in names or "pytest tests" in names:
        return "pytest"
    if root.get("name") == "vitest tests":
        return "vitest"
    if root.get("name") == "nextest-run":
        return "nextest"
    if root.get("name") == "jest tests":
        return "jest"
    if any(item.get("name") == "go.version" for item in root.iter() if _tag(item) == "property"):
        return "go-test"
    return ""


def _pytest_id(case: _Case, exists: Exists | None) -> str:
    if case.phase == "collect":
        dotted = case.name if not case.classname else f"{case.classname}.{case.name}"
        return case.file or _module(dotted.split("."), exists)[0]
    parts = case.classname.split(".") if case.classname else []
    if case.file:
        module = case.file.removesuffix(".py").replace("\\", "/").split("/")
        inner = parts[len(module) :] if parts[: len(module)] == module else _module(parts, None)[1]
        path = case.file
    else:
        path, inner = _module(parts, exists)
    return "::".join([path, *inner, case.name])


def _module(parts: list[str], exists: Exists | None) -> tuple[str, list[str]]:
    """Path of the module that a dotted name begins with, and the classes after it."""
    if exists is not None:
        for count in range(len(parts), 0, -1):
            path = "/".join(parts[:count]) + ".py"
            if exists(path):
                return path, parts[count:]
    count = len(parts)
    while count > 1 and parts[count - 1][:1].isupper():
        count -= 1
    return "/".join(parts[:count]) + ".py", parts[count:]


def _jest_id(case: _Case, exists: Exists | None) -> str:
    """By default both attributes hold the whole name."""
    if not case.classname or case.classname == case.name or case.name.startswith(case.classname):
        return case.name
    return f"{case.classname} › {case.name}"  # noqa: RUF001 - as Jest prints it


def _dotted(case: _Case, exists: Exists | None) -> str:
    if not case.classname or case.name.startswith(f"{case.classname}."):
        return case.name
    return f"{case.classname}.{case.name}"


_IDS: Mapping[str, Callable[[_Case, Exists | None], str]] = {
    "pytest": _pytest_id,
    "jest": _jest_id,
    "vitest": lambda case, _: f"{case.classname} > {case.name}" if case.classname else case.name,
    "nextest": lambda case, _: f"{case.classname} {case.name}" if case.classname else case.name,
}

# --- Cases ----------------------------------------------------------------------------------

_PHASES = (
    (re.compile(r"failed on setup"), "setup"),
    (re.compile(r"failed on teardown"), "teardown"),
    (re.compile(r"collection (?:failure|error|skipped)"), "collect"),
)
_TRIED = ("flakyFailure", "flakyError", "rerunFailure", "rerunError")
_NOT_RUN = ("notrun", "disabled", "skipped", "suppressed", "ignored")


def _outcomes_of(case: Element, dialect: str, exists: Exists | None) -> Iterator[OutcomeData]:
    children = {_tag(child): child for child in reversed(case)}
    told = next(
        (children[name] for name in ("error", "failure", "skipped") if name in children), None
    )
    result = _result(case, told, dialect)
    phase = "call"
    if told is not None and dialect == "pytest":
        message = told.get("message") or ""
        phase = next((name for pattern, name in _PHASES if pattern.match(message)), "call")
    name, classname = case.get("name", ""), case.get("classname", "").strip()
    attributes = _Case(name.strip(), classname, case.get("file", ""), phase)
    node_id = _IDS.get(dialect, _dotted)(attributes, exists)
    if not node_id:
        return
    data = OutcomeData(node_id=node_id, phase=phase, origin=OutcomeOrigin.JUNIT)
    if dialect:
        data["runner"] = dialect
    attempt = 1
    for child in case:
        if _tag(child) in _TRIED:
            yield _described({**data, "outcome": TestResult.RERUN, "attempt": attempt}, child)
            attempt += 1
    data["outcome"] = result
    if attempt > 1:
        data["attempt"] = attempt
    duration = _seconds(case.get("time"))
    if duration is not None:
        data["duration"] = duration
    yield _described(data, told)


def _result(case: Element, told: Element | None, dialect: str) -> str:
    if told is None:
        states = {case.get("status", "").lower(), case.get("result", "").lower()}
        skipped = bool(states.intersection(_NOT_RUN))
        return TestResult.SKIPPED if skipped else TestResult.PASSED
    match _tag(told):
        case "skipped":
            expected = dialect == "pytest" and told.get("type") == "pytest.xfail"
            return TestResult.XFAILED if expected else TestResult.SKIPPED
        case "error":
            return TestResult.ERROR
        case _:
            return TestResult.FAILED


def _described(data: OutcomeData, element: Element | None) -> OutcomeData:
    """With the words of a failure or of a reason to skip."""
    if element is None:
        return data
    details = "".join(element.itertext()).strip("\n")
    message = _reason(element.get("message") or "", details).strip()
    if message:
        data["message"] = message.splitlines()[0].strip()[:MESSAGE_LIMIT]
    if details and _tag(element) != "skipped":
        data["details"] = details
    return data


def _reason(message: str, details: str) -> str:
    """Why, without what pytest says of the phase, which is told elsewhere."""
    if message == "collection failure":
        marked = re.findall(r"^E +(\S.*)$", details, re.MULTILINE)
        return str(marked[-1]) if marked else details
    if message == "collection skipped":
        skip = re.search(r"'Skipped: (.*)'\)$", details)
        return skip[1] if skip else details
    broken = re.fullmatch(r'failed on (?:setup|teardown) with "(.*)"', message, re.DOTALL)
    return broken[1] if broken else message or details


def _seconds(text: str | None) -> float | None:
    """Some runners write thousands with a comma."""
    try:
        seconds = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None
