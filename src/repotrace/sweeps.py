"""A sweep in the formats that other programs read: JUnit, GitHub, JSON, and plain text."""

from __future__ import annotations

import re
from functools import cache
from typing import Any
from xml.etree import ElementTree

from repotrace.readable import one_line
from repotrace.records.replay import ReplayResult, ReplaySummary
from repotrace.report import describe, exit_cell, format_replays, percent, row_outcome

FORMATS = ("table", "markdown", "json", "junit", "github")


def sweep_text(summary: ReplaySummary, format: str) -> str:  # noqa: A002 - the option's name
    """`summary` in one of `FORMATS`. Raises KeyError for another one."""
    return _WRITERS[format](summary)


def sweep_json(summary: ReplaySummary) -> dict[str, Any]:
    """The sweep as one JSON object; output is left out."""
    return {
        "schema_version": 1,
        "total": summary.total,
        "matched": summary.matched,
        "differed": summary.differed,
        "failed": summary.failed,
        "reproducible": summary.reproducible,
        "results": [_row(result) for result in summary.results],
        "unreadable": [{"name": name, "problem": why} for name, why in summary.unreadable],
    }


def _row(result: ReplayResult) -> dict[str, Any]:
    return {
        "report_id": result.report_id,
        "title": result.title,
        "status": result.status,
        "outcome": result.outcome.value,
        "verdict": result.verdict,
        "detail": result.detail,
        "exit_code": result.exit_code,
        "expected_exit_code": result.expected_exit_code,
        "differences": result.differences,
        "rules": result.rules,
        "fixed_tests": result.fixed_tests,
        "still_failing": result.still_failing,
        "new_failing": result.new_failing,
        "missing": result.missing,
        "duration": result.duration,
    }


def format_json(summary: ReplaySummary) -> str:
    """`sweep_json` as text."""
    import json

    return json.dumps(sweep_json(summary), indent=2, ensure_ascii=False) + "\n"


@cache
def _forbidden() -> re.Pattern[str]:
    """What XML 1.0 has no way to write (its production 2, Char)."""
    return re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def format_junit(summary: ReplaySummary) -> str:
    """JUnit XML: a test case a report; a failure if it differs, an error if it cannot run.

    Characters that XML forbids become U+FFFD.
    """
    suite = ElementTree.Element(
        "testsuite",
        name="repotrace replay-all",
        tests=str(summary.total),
        failures=str(summary.differed),
        errors=str(summary.failed),
        skipped="0",
    )
    for result in summary.results:
        case = _case(suite, result.report_id, result.duration or 0.0)
        if not result.matched:
            kind = "failure" if result.ran else "error"
            problem = ElementTree.SubElement(case, kind, message=_xml(describe(result)))
            problem.set("type", _xml(result.verdict or row_outcome(result)))
            problem.text = _xml(f"{result.title}\n{describe(result)}\n")
    for name, reason in summary.unreadable:
        case = _case(suite, name, 0.0)
        ElementTree.SubElement(case, "error", message=_xml(reason), type="unreadable")
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    head = '<?xml version="1.0" encoding="utf-8"?>\n'
    return head + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, name: str, duration: float) -> ElementTree.Element:
    return ElementTree.SubElement(
        suite, "testcase", classname="repotrace", name=_xml(name), time=f"{duration:.3f}"
    )


def _xml(text: str) -> str:
    return _forbidden().sub("\ufffd", text)


def format_github(summary: ReplaySummary) -> str:
    """Workflow commands: an error for each report that does not reproduce, then one line."""
    lines = [
        _annotation(result.report_id, f"{row_outcome(result)}: {describe(result)}")
        for result in summary.results
        if not result.matched
    ]
    lines += [_annotation(name, f"unreadable: {reason}") for name, reason in summary.unreadable]
    lines.append(_counts(summary))
    return "\n".join(lines) + "\n"


def _annotation(name: str, text: str) -> str:
    title = _escaped(f"replay {name}").replace(":", "%3A").replace(",", "%2C")
    return f"::error title={title}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _counts(summary: ReplaySummary) -> str:
    return (
        f"replayed {summary.total}, reproduced {summary.matched}, differs {summary.differed},"
        f" failed {summary.failed}, reproducibility {percent(summary)}"
    )


def format_plain(summary: ReplaySummary) -> str:
    """One line a report, separated by tabs, then the counts."""
    lines = [
        "\t".join((one_line(r.report_id), row_outcome(r), exit_cell(r), describe(r)))
        for r in summary.results
    ]
    lines += [f"{one_line(n)}\tunreadable\t—\t{one_line(why)}" for n, why in summary.unreadable]
    return "\n".join([*lines, _counts(summary)]) + "\n"


_WRITERS = {
    "table": format_plain,
    "markdown": format_replays,
    "json": format_json,
    "junit": format_junit,
    "github": format_github,
}
