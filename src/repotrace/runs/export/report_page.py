"""A report as Markdown that holds the report itself."""

from __future__ import annotations

from repotrace.records.bug import BugReport
from repotrace.report import format_report
from repotrace.runs.export.payload import payload_lines

BRIEF = 65_536
"""Characters that an issue takes."""


def report_markdown(report: BugReport, *, brief: bool = False, payload: bool = True) -> str:
    """The page that `repotrace report` prints, with the report folded away at its end if it fits.

    With `brief` of at most 65,536 characters: what is said twice goes first.
    """
    folded = "\n".join(["", *payload_lines(report), ""]) if payload else ""
    text = format_report(report) + folded
    if not brief or len(text) <= BRIEF:
        return text
    text = format_report(report, include_events=False) + folded
    if len(text) <= BRIEF:
        return text
    text = format_report(report, include_events=False, include_metadata=False)
    if len(text) + len(folded) <= BRIEF:
        return text + folded
    return text if len(text) <= BRIEF else text[: BRIEF - 1] + "\n"
