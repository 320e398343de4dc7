"""A sweep in the formats that other programs read: JUnit, GitHub, JSON, and plain text."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any
from xml.etree import ElementTree

from repotrace.markdown import annotation
from repotrace.readable import one_line, visible
from repotrace.records.replay import ReplayResult, ReplaySummary
from repotrace.report import (
    describe,
    diff_lines,
    exit_cell,
    format_replays,
    percent,
    row_outcome,
)

_DIFF_LINES = 200

CLOSED = ("closed", "fixed", "resolved", "done")
"""Statuses of reports that a gate expects not to fail any more."""
USUAL = ("open", "in progress", *CLOSED)
"""The usual statuses. Any other word counts as open."""


def sweep_text(
    summary: ReplaySummary,
    format: str,  # noqa: A002 - the option's name
    *,
    gate: bool = False,
) -> str:
    """`summary` as `table`, `markdown`, `json`, `junit` or `github`; KeyError for another one.

    `gate` decides what JUnit and GitHub call a failure, see `as_expected`.
    """
    return _WRITERS[format](summary, gate)


def as_expected(result: ReplayResult, *, gate: bool = False) -> bool:
    """Whether the command ran and the failure is there; with `gate`: not there if closed.

    A closed report of a success has no failure that could be gone: it has to stay as it is.
    """
    failed = result.expected is None or result.expected.failed
    gone = gate and failed and result.status.lower() in CLOSED
    return result.ran and result.matched is not gone


def unexpected(summary: ReplaySummary, *, gate: bool = False) -> list[str]:
    """A line for each report that ran and is not `as_expected`: its id, and why."""
    return [
        f"{one_line(result.report_id)}: {one_line(_problem(result))}"
        for result in summary.results
        if result.ran and not as_expected(result, gate=gate)
    ]


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
        "exit_code": result.exit_code,
        "expected_exit_code": result.expected_exit_code,
        "differences": result.differences,
        **reasons_json(result),
    }


def reasons_json(result: ReplayResult) -> dict[str, Any]:
    """What a verdict rests on, ready for JSON: in a row of a sweep and in `replay --json`."""
    return {
        "detail": result.detail,
        "rules": result.rules,
        "fixed_tests": result.fixed_tests,
        "still_failing": result.still_failing,
        "new_failing": result.new_failing,
        "reproduced": result.reproduced,
        "repeats": result.repeats,
        "missing": result.missing,
        "duration": result.duration,
    }


def format_json(summary: ReplaySummary) -> str:
    """`sweep_json` as text."""
    import json

    text = json.dumps(sweep_json(summary), indent=2, ensure_ascii=False)
    # A lone surrogate in a title has no UTF-8, but it has a JSON escape of this very form.
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


@cache
def _forbidden() -> re.Pattern[str]:
    """What XML 1.0 has no way to write (its production 2, Char)."""
    return re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def format_junit(summary: ReplaySummary, *, gate: bool = False) -> str:
    """JUnit XML: a test case a report; an error if it cannot run, a failure if it is not
    `as_expected`, with the diff of the outputs.

    Control characters, which XML forbids, are made visible.
    """
    failures = [
        result for result in summary.results if result.ran and not as_expected(result, gate=gate)
    ]
    suite = ElementTree.Element(
        "testsuite",
        name="repotrace replay-all",
        tests=str(summary.total),
        failures=str(len(failures)),
        errors=str(summary.failed),
        skipped="0",
    )
    for result in summary.results:
        case = _case(suite, result.report_id, result.duration or 0.0)
        if not as_expected(result, gate=gate):
            kind = "failure" if result.ran else "error"
            problem = ElementTree.SubElement(case, kind, message=_xml(_problem(result)))
            problem.set("type", _xml(result.verdict or row_outcome(result)))
            problem.text = _xml("\n".join([result.title, _problem(result), *_diff(result), ""]))
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


def _problem(result: ReplayResult) -> str:
    return f"closed, but reproduced: {describe(result)}" if result.matched else describe(result)


def _diff(result: ReplayResult) -> list[str]:
    lines = diff_lines(result)
    more = len(lines) - _DIFF_LINES
    return lines if more <= 0 else [*lines[:_DIFF_LINES], f"@@ {more} more lines @@"]


def _xml(text: str) -> str:
    return _forbidden().sub("\ufffd", visible(text))


def format_github(summary: ReplaySummary, *, gate: bool = False) -> str:
    """Workflow commands: an error for each report that is not `as_expected`, then one line."""
    lines = [
        _annotation(result.report_id, f"{row_outcome(result)}: {_problem(result)}")
        for result in summary.results
        if not as_expected(result, gate=gate)
    ]
    lines += [_annotation(name, f"unreadable: {reason}") for name, reason in summary.unreadable]
    lines.append(counts(summary))
    return "\n".join(lines) + "\n"


def _annotation(name: str, text: str) -> str:
    return annotation("error", one_line(text), title=one_line(f"replay {name}"))


def counts(summary: ReplaySummary, separator: str = ", ") -> str:
    """`replayed 1, reproduced 1, differs 0, failed 0, reproducibility 100%`"""
    parts = (
        f"replayed {summary.total}",
        f"reproduced {summary.matched}",
        f"differs {summary.differed}",
        f"failed {summary.failed}",
        f"reproducibility {percent(summary)}",
    )
    return separator.join(parts)


def format_plain(summary: ReplaySummary) -> str:
    """One line a report, separated by tabs, then the counts."""
    lines = [
        "\t".join((one_line(r.report_id), row_outcome(r), exit_cell(r), describe(r)))
        for r in summary.results
    ]
    lines += [f"{one_line(n)}\tunreadable\t—\t{one_line(why)}" for n, why in summary.unreadable]
    return "\n".join([*lines, counts(summary)]) + "\n"


_WRITERS: dict[str, Callable[[ReplaySummary, bool], str]] = {
    "table": lambda summary, _: format_plain(summary),
    "markdown": lambda summary, _: format_replays(summary),
    "json": lambda summary, _: format_json(summary),
    "junit": lambda summary, gate: format_junit(summary, gate=gate),
    "github": lambda summary, gate: format_github(summary, gate=gate),
}
