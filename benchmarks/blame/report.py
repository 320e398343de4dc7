"""The log as tables in docs/blame-ground-truth.md, the log itself beside them, and a figure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.blame.figure import figure
from benchmarks.blame.judging import GRADES
from benchmarks.blame.scenarios import KINDS

PAGE = "blame-ground-truth.md"
BEGIN, END = "<!-- made by benchmarks.blame report -->", "<!-- end of what is made -->"

type Line = dict[str, Any]


def write_report(log: Path, docs: Path) -> None:
    """Write the tables into the page, the raw log, and the figure."""
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    order = list(KINDS)
    lines.sort(key=lambda line: (order.index(line["kind"]), int(line["name"].split(" ")[-2])))
    tables = [summary(lines), kinds(lines), bounds(lines), reductions(lines), contrary(lines)]
    made = "\n\n".join(table for table in tables if table)
    page = docs / PAGE
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    page.write_text(f"{head}{BEGIN}\n\n{made}\n\n{END}{tail}", encoding="utf-8")
    raw = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    page.with_suffix(".jsonl").write_text(raw, encoding="utf-8")
    page.with_suffix(".svg").write_text(figure(lines), encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown; all but the first column to the right."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def number(count: int) -> str:
    return str(count) if count else "·"


def about(values: Iterable[float]) -> str:
    found = list(values)
    return f"{mean(found):.1f}" if found else ""


def span(values: Iterable[int]) -> str:
    found = sorted(values)
    if not found:
        return ""
    return str(found[0]) if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def summary(lines: Sequence[Line]) -> str:
    """What it comes to, in a few lines."""
    fixed = [line for line in lines if line["truth"]["deterministic"]]
    runs = {line["name"] for line in lines}
    proofs = [line for line in fixed if line["proven"]]
    false = [line for line in proofs if line["grade"] == "wrong"]
    wrong = [line for line in lines if line["grade"] == "wrong"]
    git = [
        line
        for line in lines
        if line["truth"]["step"] is not None and line["git"]["grade"] != "not asked"
    ]
    right = sum(line["git"]["grade"] == "exact" for line in git)
    good = sum(line["grade"] in ("exact", "range", "right") for line in git)
    steps = span({line["steps"] for line in lines})
    executed = sum(line["executions"] + line["reductions"] for line in lines)
    return "\n".join(
        (
            f"- {len(runs)} runs of {steps} steps, {len(lines)} questions,"
            f" {executed:,} executions of pytest by blame.",
            f"- Deterministic breaks: {len(proofs)} answers are `proven` or more,"
            f" **{len(false)} of them wrong**.",
            f"- All questions: {len(wrong)} wrong answers.",
            f"- Where a step is to be found and git can be asked, blame names it, gives a range"
            f" with it, or says the right verdict in {good} of {len(git)}; plain"
            f" `git bisect run` names it in {right}.",
        )
    )


def kinds(lines: Sequence[Line]) -> str:
    """One row for each kind of run."""
    head = ["what was planted", "asked", "states", *GRADES, "executions", "git: right", "wrong"]
    head += ["careful: right", "executions"]
    rows = []
    for kind in KINDS:
        own = [line for line in lines if line["kind"] == kind]
        if not own:
            continue
        grades = [number(sum(line["grade"] == grade for line in own)) for grade in GRADES]
        git = [line["git"] for line in own]
        careful = [one.get("careful", one)["grade"] for one in git]
        rows.append(
            [
                kind,
                len(own),
                span(line["states"] for line in own),
                *grades,
                about(line["executions"] for line in own),
                number(sum(one["grade"] == "exact" for one in git)),
                number(sum(one["grade"] == "wrong" for one in git)),
                number(careful.count("exact")),
                about(one["executions"] for one in git if one["grade"] != "not asked"),
            ]
        )
    return table(head, rows)


def bounds(lines: Sequence[Line]) -> str:
    """How far the executions stay below what is promised."""
    own = [line for line in lines if line["truth"]["bounded"] and "to_proven" in line]
    groups: dict[tuple[int, int], list[Line]] = {}
    for line in own:
        groups.setdefault(tuple(line["allowed"]), []).append(line)
    rows = [
        [
            span(line["states"] for line in group),
            len(group),
            about(line["to_likely"] for line in group),
            max(line["to_likely"] for line in group),
            allowed[0],
            about(line["to_proven"] for line in group),
            max(line["to_proven"] for line in group),
            allowed[1],
            about(line["git"]["executions"] for line in group),
        ]
        for allowed, group in sorted(groups.items())
    ]
    head = ["states", "asked", "to likely", "most", "allowed", "to proven", "most", "allowed"]
    return "Executions, where one break is to be found and all states can be run:\n\n" + table(
        [*head, "git bisect"], rows
    )


def reductions(lines: Sequence[Line]) -> str:
    """Whether the hunk that breaks was found."""
    own = [line for line in lines if "hunk_right" in line]
    several = [line for line in own if line["hunks_of"] > 1]
    right = sum(line["hunk_right"] and line["hunks"] == 1 for line in own)
    ranges = [line for line in own if line["grade"] == "range" and "hunk_steps" in line]
    traced = sum(line["hunk_steps"] == [line["truth"]["step"]] for line in ranges)
    text = (
        f"Of {len(own)} changes that broke a test and were reduced, {len(several)} had more than"
        f" one hunk. The one hunk with the planted line, and no other, is what is left of {right},"
        f" after {about(line['reductions'] for line in own)} executions on average, undoing it"
        f" included."
    )
    if ranges:
        text += (
            f" Of {len(ranges)} ranges it is said in {traced} that the planted step alone made"
            f" that hunk."
        )
    return text


def contrary(lines: Sequence[Line]) -> str:
    """What was not answered as it should have been."""
    wanted: Callable[[Line], bool] = lambda line: line["grade"] in ("wrong", "open")  # noqa: E731
    rows = [
        [
            line["name"],
            line["grade"],
            f"{line['truth']['expected']} {line['truth']['step'] or ''}".strip(),
            f"{line['verdict']} {', '.join(map(str, line['named']))}".strip(),
            line["reason"],
        ]
        for line in lines
        if wanted(line)
    ]
    if not rows:
        return "No answer was wrong, and none was left open."
    return "Wrong, or left open:\n\n" + table(["run", "", "truth", "answer", "reason"], rows)
