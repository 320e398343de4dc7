"""Alerts as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from repotrace.readable import one_line

if TYPE_CHECKING:
    from repotrace.read.views import Alert

_IN_FULL = 6
"""Alerts of several runs that are told each on a line."""

_NAMED = 8
"""Runs that are named in a line."""


def alert_lines(alert: Alert, *, with_run: bool = False) -> list[str]:
    """An alert: what, and below it the evidence."""
    parts = [alert.run_id] if with_run else []
    parts += [f"step {alert.step}"] if alert.step else []
    where = " ".join(parts)
    head = f"{alert.rule}  {where + ': ' if where else ''}{one_line(alert.message)}"
    return [head, *(f"  {one_line(proof, 160)}" for proof in alert.evidence)]


def end_lines(alerts: Sequence[Alert]) -> list[str]:
    """The alerts of a run that has just ended, a line each, and how to look at them."""
    lines = []
    for alert in alerts:
        where = f"step {alert.step}: " if alert.step else ""
        lines.append(f"alert {alert.rule} · {where}{one_line(alert.message)}")
    return [*lines, *_hint({alert.run_id for alert in alerts})]


def news_lines(runs: Mapping[str, Sequence[Alert]]) -> list[str]:
    """The alerts of runs that ended while nobody looked, in short where there are many."""
    found = [alert for alerts in runs.values() for alert in alerts]
    if len(found) > _IN_FULL:
        counts = [f"{name} ({len(alerts)})" for name, alerts in runs.items()]
        more = f" and {len(counts) - _NAMED} more" if len(counts) > _NAMED else ""
        noun = "1 run" if len(counts) == 1 else f"{len(counts)} runs"
        head = f"{len(found)} alerts in {noun}: {', '.join(counts[:_NAMED])}{more}"
        return [head, *_hint(list(runs)[:_NAMED])]
    lines = []
    for alert in found:
        where = f"{alert.run_id} step {alert.step}" if alert.step else alert.run_id
        lines.append(f"alert {alert.rule} · {where}: {one_line(alert.message)}")
    return [*lines, *_hint(runs)]


def _hint(run_ids: Iterable[str]) -> list[str]:
    names = " ".join(run_ids)
    return [f"look at them with: repotrace runs alerts {names}"] if names else []
