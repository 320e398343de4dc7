"""The steps of a run over time, drawn."""

from __future__ import annotations

from datetime import datetime

from repotrace.readable import one_line, seconds
from repotrace.records.run import ExecutionStep
from repotrace.runs.export.account import Account, is_failed
from repotrace.runs.export.elements import Html, element

_WIDTH = 1000
_LANE = 22
_BAR = 16
_LEAST = 3.0
_MOST = 2_000
"""Steps that are drawn."""

_KINDS = {
    "llm": "llm", "planning": "llm", "decision": "llm",
    "edit": "edit", "external": "edit",
    "test": "test", "gate": "test", "verification": "test",
    "command": "command", "tool": "command", "tool_call": "command", "execution": "command",
}  # fmt: skip
_NAMES = {
    "llm": "model, planning",
    "edit": "edits",
    "test": "tests",
    "command": "commands, tools",
    "other": "other",
    "failed": "failed",
}


def timeline(account: Account) -> Html | None:
    """The picture; None for a run that takes no time."""
    steps = account.selection.steps[:_MOST]
    if not steps:
        return None
    start = min(step.started_at for step in steps)
    ends = [step.completed_at or step.started_at for step in steps]
    whole = (max(ends) - start).total_seconds()
    if whole <= 0:
        return None
    lanes = min(5, 1 + max(account.line(step).depth for step in steps))
    height = lanes * _LANE
    bars = (_bar(account, step, start, whole) for step in steps)
    svg = element(
        "svg",
        *(element("line", x1=at, x2=at, y1=0, y2=height) for at in range(0, _WIDTH, _WIDTH // 4)),
        *bars,
        viewBox=f"0 0 {_WIDTH} {height}",
        height=height,
        preserveAspectRatio="none",
        role="group",
        aria_label="The steps over time",
    )
    ticks = (element("span", seconds(whole * part / 4) if part else "0") for part in range(5))
    return element("div", svg, element("div", *ticks, class_="axis"), _legend(steps))


def kind_of(step: ExecutionStep) -> str:
    """The class of a step's colour."""
    return _KINDS.get(step.step_type, "other")


def _bar(account: Account, step: ExecutionStep, first: datetime, whole: float) -> Html:
    start = (step.started_at - first).total_seconds()
    line = account.line(step)
    took = line.duration or 0.0
    room = _WIDTH - _LEAST
    left = max(0.0, min(room, start / whole * room))
    width = max(_LEAST, min(_WIDTH - left, took / whole * room))
    told = f"Step {step.step_number}, {step.step_type}: {one_line(step.description, 100)}"
    told += f" ({seconds(took)})"
    rect = element(
        "rect",
        element("title", told),
        x=round(left, 1),
        y=min(line.depth, 4) * _LANE + 3,
        width=round(width, 1),
        height=_BAR,
        class_="failed" if is_failed(step) else kind_of(step),
    )
    return element("a", rect, href=f"#step-{step.step_number}", aria_label=told)


def _legend(steps: list[ExecutionStep]) -> Html:
    present = {kind_of(step) for step in steps if not is_failed(step)}
    present |= {"failed" for step in steps if is_failed(step)}
    items = (
        element("span", element("i", class_=kind), name)
        for kind, name in _NAMES.items()
        if kind in present
    )
    return element("div", *items, class_="legend")
