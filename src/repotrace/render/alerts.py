"""Alerts beside what they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from repotrace.read.views import Alert
from repotrace.readable import one_line
from repotrace.render.diffs import Line, Span
from repotrace.render.runs_layout import count, wrapped

STYLE = "bold yellow"

_EVIDENCE = 3
"""Paths or words of an alert that are shown."""


def alert_count(number: int | None) -> str:
    """`2 alerts`; empty for none."""
    return count(number, "alert") if number else ""


def alert_rows(alerts: Iterable[Alert], *, width: int, step: bool = True) -> Iterator[Line]:
    """What was found, and below it for what; with `step` the steps are named."""
    for alert in alerts:
        where = f"step {alert.step}: " if alert.step and step else ""
        text = f"{alert.rule} · {where}{one_line(alert.message)}"
        mark = "! "
        for row in wrapped(text, max(width - len(mark), 20)):
            yield [Span(mark + row, STYLE)]
            mark = "  "
        more = len(alert.evidence) - _EVIDENCE
        proofs = [one_line(proof, 160) for proof in alert.evidence[:_EVIDENCE]]
        for proof in [*proofs, *([f"… {more} more"] if more > 0 else [])]:
            for row in wrapped(proof, max(width - 4, 20)):
                yield [Span("    "), Span(row, "dim")]
