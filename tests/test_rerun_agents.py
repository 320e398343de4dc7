"""Real coding agents that go on from a step of a run with another prompt: `sh scripts/test-agents`
installs them.

The model plays another scenario to whom it hears the words from that are added to the prompt, and
does nothing for anybody else.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agents_lab import SCENARIO, SHARED, Lab, command, drive, environment, scripted_model

from repotrace.storage import Store

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

LAB = Lab(Path(os.environ.get("REPOTRACE_AGENTS_LAB", "/nonexistent")))
AGENTS = ["mini-swe-agent", "codex", "claude-code", "gemini-cli", "opencode", "openhands"]
"""Those that play all turns of a scenario."""
HINT = "Keep replace(); only 29 February becomes 28 February."
BROKEN = "tests/test_duedate.py::test_annual_across_a_leap_day"


def scenarios(folder: Path, *, ends_broken: bool) -> tuple[Path, Path]:
    """What is done at first: the wrong edit, and then the right one unless it ends broken; and
    what is done when the hint is heard: the right edit at once."""
    told: dict[str, Any] = json.loads(SCENARIO.read_text())
    turns = told["turns"]
    wrong, right = (turn for turn in turns if any(c["op"] == "edit" for c in turn["calls"]))
    look, test, last = turns[0], turns[3], turns[-1]
    at_once = {**right["calls"][0], "old": wrong["calls"][0]["old"]}
    other = [look, {"text": "I'll treat 29 February on its own.", "calls": [at_once]}, test, last]
    first = [*turns[:4], last] if ends_broken else turns
    paths = folder / "first.json", folder / "other.json"
    paths[0].write_text(json.dumps(told | {"turns": first}))
    paths[1].write_text(json.dumps(told | {"turns": other, "marker": HINT}))
    return paths


def picture(folder: Path) -> dict[str, str]:
    """All files but ours, and when they changed. (Git touches objects that it has already.)"""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith(".git/repotrace"):
            when = "" if name.startswith(".git/objects") else path.stat().st_mtime_ns
            found[name] = f"{when} {hashlib.sha256(path.read_bytes()).hexdigest()}"
    return found


def repotrace(
    repository: Path, words: list[str], variables: dict[str, str]
) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "repotrace", *words],
        cwd=repository,
        env=environment(LAB, repository.parent) | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done


@pytest.mark.parametrize("ends_broken", [True, False], ids=["broken", "retried"])
@pytest.mark.parametrize("agent", AGENTS)
def test_a_changed_prompt_goes_another_way(agent: str, tmp_path: Path, ends_broken: bool) -> None:
    if not SHARED.is_dir() or LAB.program(agent) is None:
        pytest.skip(f"{agent} is not installed; see scripts/test-agents")
    first, other = scenarios(tmp_path, ends_broken=ends_broken)
    session = drive(LAB, agent, tmp_path / "place", record=(), scenario=first)
    repository = session.repository
    store = Store(repository / ".git" / "repotrace")
    (original,) = store.runs.list()
    wanted = ("failed", 0) if ends_broken else ("passed", 1)
    assert (original.outcome, original.totals.retries) == wanted
    numbers = {step.id: step.step_number for step in store.runs.steps(original.id)}
    edit = min(numbers[change.step_id] for change in store.runs.operations(original.id))
    export = ["export", original.id, "--format", "json"]
    before, saved = picture(repository), repotrace(repository, export, {}).stdout

    into = session.home / "another"
    with scripted_model(LAB, agent, into, tmp_path / "other.jsonl", scenario=other) as port:
        _, variables = command(LAB, agent, session.home, port)
        words = ["rerun", original.id, "--from-step", str(edit - 1), "--modify-prompt", HINT]
        done = repotrace(
            repository, [*words, "--into", str(into), "--execute", "--json"], variables
        )

    told = json.loads(done.stdout)
    (branch,) = store.runs.list(parent=original.id)
    assert (branch.id, branch.branched_from_step) == (told["new_run_id"], edit - 1)
    assert (branch.agent, branch.outcome, branch.totals.retries) == (agent, "passed", 0)
    compared = told["comparison"]
    fixed = [test["node_id"] for test in compared["fixed"]]
    assert (compared["verdict"], fixed) == (("better", [BROKEN]) if ends_broken else ("same", []))
    assert compared["same_end"] is not ends_broken
    # What is there is as it was.
    assert picture(repository) == before
    assert repotrace(repository, export, {}).stdout == saved
