"""Where a run is read, the alerts that were found in it are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from recording import event
from running import Shell
from screens import Screen, play

from repotrace.read.runs import list_runs
from repotrace.records.events import Event
from repotrace.render.runs import run_list
from repotrace.storage import Store

RUN = "ra1e57000000"
CLAIM = "Now <b>all tests pass</b>; @everyone."
FALSE = "it said that the tests pass, but the last test run (step 1) failed"
DEAR = "it cost $11.00, more than $10"


def told() -> Iterator[Event]:
    """A test fails, a model says otherwise and cost a lot, a note follows."""
    here: dict[str, Any] = {"run": RUN}
    yield event("run_started", 0, **here, agent="a", task="Repair it")
    for number, kind in enumerate(("test", "llm", "note"), 1):
        yield event("step_started", 60 * number, **here, id=f"s{number}", step_type=kind)
        if kind == "test":
            failed = {"step_id": "s1", "node_id": "t.py::test_x", "outcome": "failed"}
            yield event("test", 61, **here, **failed)
        if kind == "llm":
            call = {"step_id": "s2", "model": "m", "response": CLAIM, "cost_usd": "11"}
            yield event("llm", 121, **here, **call)
        yield event("step_ended", 60 * number + 3, **here, id=f"s{number}")
    yield event("run_ended", 300, **here)


def project(folder: Path) -> Shell:
    shell = Shell(folder)
    shell.git("init", "-q")
    Store(shell.cwd / ".git" / "repotrace").runs.add_events(told())
    return shell


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return project(tmp_path)


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Once somebody has asked for the alerts; to be read only."""
    shell = project(tmp_path_factory.mktemp("looked"))
    assert shell("runs", "alerts", RUN).returncode == 1
    return shell


def out(shell: Shell, *args: str) -> str:
    done = shell(*args)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_nothing_is_shown_of_a_run_that_nobody_looked_over(repotrace: Shell) -> None:
    found = json.loads(out(repotrace, "runs", "list", "--all-worktrees", "--json"))
    assert found["runs"][0]["alerts"] is None
    assert "ALERTS" not in out(repotrace, "runs", "list", "--all-worktrees")
    assert FALSE not in out(repotrace, "runs", "show", RUN)


def test_a_list_counts_them(looked: Shell) -> None:
    head, row = out(looked, "runs", "list", "--all-worktrees").splitlines()
    assert re.search(r"RESULT +ALERTS +AGENT", head)
    assert re.search(r"tests fail +2 +a ", row)
    found = json.loads(out(looked, "runs", "list", "--all-worktrees", "--json"))
    assert found["runs"][0]["alerts"] == 2
    store = Store(looked.cwd / ".git" / "repotrace")
    lines = list(run_list(list_runs(store).runs, width=70, now=datetime.now(UTC)))
    assert "".join(span.text for span in lines[1]).strip().startswith("2 alerts · 3 steps")
    assert ("2 alerts", "bold yellow") in [(span.text, span.style) for span in lines[1]]


def test_a_run_shows_them_with_what_they_were_raised_for(looked: Shell) -> None:
    rows = out(looked, "runs", "show", RUN).splitlines()
    at = rows.index(f"! false-claim · step 2: {FALSE}")
    assert rows[at + 1] == f"    {CLAIM}"
    assert f"! cost · {DEAR}" in rows
    found = json.loads(out(looked, "runs", "show", RUN, "--json"))
    assert [(alert["rule"], alert["step"]) for alert in found["alerts"]] == [
        ("false-claim", 2),
        ("cost", None),
    ]
    assert f"! cost · {DEAR}" in out(looked, "play", RUN).splitlines()


def test_a_step_shows_its_own_and_the_last_one_those_of_the_whole_run(looked: Shell) -> None:
    def shown(step: str) -> list[str]:
        rows = out(looked, "play", RUN, "--step", step).splitlines()
        return [row for row in rows if row.startswith("! ")]

    assert [shown(step) for step in "123"] == [
        [],
        [f"! false-claim · {FALSE}"],
        [f"! cost · {DEAR}"],
    ]
    found = json.loads(out(looked, "play", RUN, "--step", "2", "--json"))
    assert [alert["rule"] for alert in found["alerts"]] == ["false-claim"]


def test_the_screen_names_the_steps_and_shows_them_there(looked: Shell) -> None:
    async def script(screen: Screen) -> None:
        assert "2 alerts at step 2" in screen.all
        assert "! false-claim" not in screen.view
        await screen.press("n")
        assert "! false-claim" in screen.view
        assert CLAIM in screen.view

    play(Store(looked.cwd / ".git" / "repotrace"), script)


def test_pages_show_them_and_nothing_in_them_acts(looked: Shell) -> None:
    text = out(looked, "export", RUN, "--format", "markdown")
    section = text[text.index("## Worth a look") : text.index("## Outcome")]
    assert section.splitlines()[2:5] == [
        f"- **false-claim**, step 2: {FALSE}",
        f"  - `{CLAIM}`",
        f"- **cost**: `{DEAR}`",
    ]
    page = out(looked, "export", RUN, "--format", "html")
    assert "&lt;b&gt;all tests pass&lt;/b&gt;; @everyone." in page
    assert '<a href="#step-2">step 2</a>' in page[page.index('id="alerts"') :]
    for form in ("markdown", "html"):
        silent = out(looked, "export", RUN, "--format", form, "--no-llm")
        assert FALSE.partition(" (")[0] in silent
        assert "@everyone" not in silent
        part = out(looked, "export", RUN, "--format", form, "--from-step", "3")
        assert (FALSE.partition(" (")[0] in part, "more than" in part) == (False, True)


def test_an_exported_run_is_the_same_whoever_looked(repotrace: Shell) -> None:
    before = out(repotrace, "export", RUN)
    assert repotrace("runs", "alerts", RUN).returncode == 1
    assert out(repotrace, "export", RUN) == before


def test_they_are_out_of_date_when_something_else_is_recorded(repotrace: Shell) -> None:
    assert repotrace("runs", "alerts", RUN).returncode == 1
    store = Store(repotrace.cwd / ".git" / "repotrace")
    late = {"step_id": "s3", "node_id": "t.py::test_x", "outcome": "passed"}
    store.runs.add_events([event("test", 250, run=RUN, **late)])
    assert "! " not in out(repotrace, "runs", "show", RUN)
    assert repotrace("runs", "alerts", RUN).returncode == 1
    assert f"! cost · {DEAR}" in out(repotrace, "runs", "show", RUN)
