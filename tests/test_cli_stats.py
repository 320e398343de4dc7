"""Figures of many runs, worked out by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from reading import project
from recording import NOON, event
from running import Shell

from repotrace.read.stats import run_stats
from repotrace.read.views import Spread, StatsGroup
from repotrace.records.events import Event
from repotrace.render.stats import bar, stats
from repotrace.storage import Store


def told(
    name: str,
    outcomes: str = "",
    *,
    start: float = 0,
    tokens: int = 0,
    cost: str | None = None,
    steps: int = 1,
    model: str = "m",
    tags: tuple[str, ...] = (),
    calls: int = 0,
    **facts: Any,
) -> Iterator[Event]:
    """A run whose test has the `outcomes`, one letter each, a change of a file before each."""
    yield event("run_started", start, run=name, tags=list(tags), **facts)
    for number in range(steps):
        failed = "failed" if number == 1 else "completed"
        more = {"metadata": {"tool": "grep"}} if number == 1 else {}
        own: dict[str, Any] = {"id": f"s{number}", "step_type": "tool", **more}
        yield event("step_started", start + 1, run=name, **own)
        yield event("step_ended", start + 1, run=name, id=f"s{number}", status=failed)
    if tokens:
        usage = {"tokens_used": tokens, "input_tokens": tokens, "cost_usd": cost, "model": model}
        yield event("llm", start + 1, run=name, step_id="s0", **usage)
    for _ in range(calls):  # of which nothing is told
        yield event("llm", start + 1, run=name, step_id="s0", model=model)
    for number, letter in enumerate(outcomes):
        at = start + 2 + 2 * number
        change: dict[str, Any] = {"operation_type": "edit", "file_path": f"f{number}.py"}
        yield event("file_operation", at, run=name, step_id="s0", **change)
        outcome = {"P": "passed", "F": "failed"}[letter]
        yield event("test", at + 1, run=name, step_id="s0", node_id="t", outcome=outcome)
    yield event("run_ended", start + 10, run=name)


@pytest.fixture
def four(store: Store) -> Store:
    runs = (
        told("ra", "FP", tokens=1000, cost="0.10", steps=2, agent="codex", task="Fix it\nnow"),
        told("rb", "F", tokens=3000, cost="0.30", steps=4, agent="codex", task="Fix it"),
        told("rc", "PP", tokens=500, steps=1, agent="aider", tags=("night", "ci"), model="n"),
        told("rd", "", start=-7200, steps=3, tags=("ci",)),
    )
    for events in runs:
        store.runs.add_events(events)
    return store


def by_name(groups: tuple[StatsGroup, ...]) -> dict[str | None, StatsGroup]:
    return {group.name: group for group in groups}


def test_figures_of_each_agent(four: Store) -> None:
    found = run_stats(four)
    assert [group.name for group in found.groups] == ["codex", "aider", None]
    codex = by_name(found.groups)["codex"]
    assert (codex.runs, codex.passed, codex.failed, codex.success_rate) == (2, 1, 1, 0.5)
    assert (codex.total_tokens, codex.total_cost_usd) == (4000, Decimal("0.40"))
    # What the failed run cost belongs to the one fix that there is.
    assert (codex.tokens_per_fix, codex.cost_per_fix_usd) == (4000, Decimal("0.40"))
    assert codex.steps == Spread(median=3, low=2.5, high=3.5)
    none = by_name(found.groups)[None]
    assert (none.runs, none.success_rate, none.tokens_per_fix) == (1, None, None)
    assert found.whole is not None
    assert (found.whole.runs, found.whole.passed, found.whole.failed) == (4, 2, 1)
    assert found.whole.tokens_per_fix == 4500 / 2


def test_only_tasks_with_tests_count_for_a_fix(store: Store) -> None:
    runs = (
        told("ra", "P", tokens=1000, cost="0.10", agent="codex", task="Fix it"),
        told("rb", "", tokens=300, cost="0.05", agent="codex", task="Fix it"),  # gave up
        told("rc", "", tokens=9000, cost="0.90", agent="codex", task="Explain it"),
        told("rd", "F", tokens=70, agent="aider", task="Explain that"),
        told("re", "P", tokens=30, agent="aider"),
        told("rf", "", tokens=5000, agent="aider"),
        told("rg", "", tokens=800, agent="cline", task="Fix it"),
    )
    for events in runs:
        store.runs.add_events(events)
    groups = by_name(run_stats(store).groups)
    codex, aider, cline = groups["codex"], groups["aider"], groups["cline"]
    assert (codex.tokens_per_fix, codex.cost_per_fix_usd) == (1300, Decimal("0.15"))
    assert (codex.total_tokens, codex.unpriced_per_fix) == (10_300, 0)
    # Nobody knows what these cost, which is not nothing.
    assert (aider.tokens_per_fix, aider.cost_per_fix_usd, aider.unpriced_per_fix) == (100, None, 2)
    assert (cline.tokens_per_fix, cline.cost_per_fix_usd) == (None, None)
    whole = run_stats(store).whole
    assert whole is not None
    assert (whole.tokens_per_fix, whole.unpriced_per_fix) == ((1300 + 100 + 800) / 2, 3)
    shown = ["".join(span.text for span in line) for line in stats(run_stats(store), width=200)]
    assert next(line for line in shown if line.endswith("aider")).split()[-2:] == ["$?", "aider"]


def test_tokens_that_nobody_tells_are_not_none(store: Store) -> None:
    runs = (
        told("ra", "P", tokens=1000, agent="codex", task="Fix it"),
        told("rb", "P", tokens=3000, agent="codex", task="Fix it"),
        told("rc", "P", calls=2, agent="codex", task="Fix it"),
        told("rd", "P", calls=1, agent="swe-agent", task="Fix it"),
        told("re", "P", agent="make", task="Fix it"),
    )
    for events in runs:
        store.runs.add_events(events)
    groups = by_name(run_stats(store).groups)
    codex, untold, make = groups["codex"], groups["swe-agent"], groups["make"]
    assert codex.tokens == Spread(median=2000, low=1500, high=2500)
    assert (codex.untold_runs, codex.untold_per_fix) == (1, 1)
    assert codex.tokens_per_fix == pytest.approx(4000 / 3)
    assert (untold.tokens, untold.tokens_per_fix, untold.cost_per_fix_usd) == (None, None, None)
    assert (make.tokens, make.tokens_per_fix, make.untold_runs) == (
        Spread(median=0, low=0, high=0),
        0,
        0,
    )
    shown = ["".join(span.text for span in line) for line in stats(run_stats(store), width=200)]
    assert any("1.3k + ?" in line and line.endswith("codex") for line in shown)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 132])
def test_a_table_fits_its_terminal(four: Store, width: int) -> None:
    found = run_stats(four)
    lines = ["".join(span.text for span in line) for line in stats(found, width=width)]
    assert max(map(len, lines)) <= width
    head = lines[0].split()
    assert (head[:2], head[-1]) == (["RUNS", "PASSED"], "AGENT")
    assert "TOKENS/FIX" in head
    assert [line.split()[-1] for line in lines[1:5]] == ["codex", "aider", "(none)", "all"]
    assert all(line.split()[1:4] == ["50%", "of", "2"] for line in lines if line.endswith("codex"))


def test_groups_by_task_model_and_tag(four: Store) -> None:
    assert {g.name: g.runs for g in run_stats(four, group_by="task").groups} == {
        "Fix it": 2,
        None: 2,
    }
    assert {g.name: g.runs for g in run_stats(four, group_by="model").groups} == {
        "m": 2,
        "n": 1,
        None: 1,
    }
    tags = {g.name: g.runs for g in run_stats(four, group_by="tag").groups}
    assert tags == {"ci": 2, "night": 1, None: 2}


def test_since(four: Store) -> None:
    found = run_stats(four, since=NOON - timedelta(hours=1))
    assert found.whole is not None
    assert found.whole.runs == 3


def test_what_fails_and_what_was_changed_before_a_test_went_red(four: Store) -> None:
    found = run_stats(four)
    # The second step of three runs failed, by the tool grep; steps without a tool never did.
    assert [(k.name, k.steps, k.failed) for k in found.failing] == [("grep", 3, 3)]
    # f0.py before the failures of ra and rb; f1.py came before passes only.
    assert [(file.path, file.runs) for file in found.broken_files] == [("f0.py", 2)]


def test_a_change_before_the_last_pass_is_not_to_blame(store: Store) -> None:
    store.runs.add_events(told("ra", "PF"))
    assert [file.path for file in run_stats(store).broken_files] == ["f1.py"]


@pytest.mark.parametrize(
    ("part", "shown"), [(1, "█" * 10), (0.5, "█" * 5), (0, ""), (0.001, "▏"), (0.55, "█████▌")]
)
def test_a_bar(part: float, shown: str) -> None:
    assert bar(part) == shown


# --- The command ----------------------------------------------------------------------------


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.cwd = project(shell.cwd / "invoice")
    return shell


def test_the_command(repotrace: Shell) -> None:
    assert repotrace("runs", "stats").stdout == b"no runs recorded\n"
    store = Store(repotrace.cwd / ".git" / "repotrace")
    store.runs.add_events(told("ra", "F", tokens=1000, agent="codex"))
    store.runs.add_events(told("rb", "P", tokens=2000, agent="aider"))
    lines = repotrace("runs", "stats").stdout.decode().splitlines()
    assert lines[0].split() == [
        *("RUNS", "PASSED", "STEPS", "RETRIES", "TOKENS", "TIME", "TOKENS/FIX", "COST/FIX"),
        "AGENT",
    ]
    assert [line.split()[-1] for line in lines[1:4]] == ["aider", "codex", "all"]
    assert "50% of 2" in lines[3]
    assert "3.0k" in lines[3]
    found = json.loads(repotrace("runs", "stats", "--group-by", "model", "--json").stdout)
    assert (found["schema_version"], found["whole"]["runs"]) == (1, 2)
    done = repotrace("runs", "stats", "--group-by", "colour")
    assert (done.returncode, b"agent, model, task, tag" in done.stderr) == (2, True)
    assert repotrace("runs", "stats", "--since", "1h").stdout == b"no matching runs\n"
