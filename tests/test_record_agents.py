"""Real coding agents, recorded and not: `sh scripts/test-agents` installs and drives them.

What they are to do, and so what the files are after each of their steps, is in the scenario that
the scripted model plays.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from agents_lab import SHARED, Lab, Session, drive

from repotrace.records.run import Run
from repotrace.runs.states import StatesOfRun
from repotrace.storage import Store

pytestmark = [pytest.mark.agents, pytest.mark.timeout(600)]

LAB = Lab(Path(os.environ.get("REPOTRACE_AGENTS_LAB", "/nonexistent")))
AGENTS = ["mini-swe-agent", "codex", "claude-code", "gemini-cli", "opencode", "aider", "openhands"]
CHANGED = "src/invoice_export/duedate.py"
_VARIES = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # ids of sessions
    r"|(?:ses|msg|prt|toolu|call|resp|req|chatcmpl|item)[-_][0-9A-Za-z_-]+"
    r"|[0-9a-f]{32}|[0-9a-f]{7,12}"
    r"|\d{4}-\d\d-\d\dT[0-9:.]+Z?|\d{13}"  # moments
    r"|\d+(?:\.\d+)?e?-?\d* ?m?s\b"
    r"|\"?[a-z_A-Z]*(?:duration|time|latency)[a-zA-Z_]*\"?: ?\d+(?:\.\d+)?"
    r"|\"[a-z_]*tokens\": ?\d+"  # guessed from the size of what was sent, with such ids in it
)
_RESTLESS = re.compile(r"^\[STARTUP\]")
"""Lines that Gemini CLI prints only now and then."""


def installed(agent: str) -> str:
    if not SHARED.is_dir() or LAB.program(agent) is None:
        pytest.skip(f"{agent} is not installed; see scripts/test-agents")
    return agent


@cache
def versions_of_the_file() -> tuple[str, ...]:
    """What the changed file is at first, and after each edit of the scenario."""
    text = (SHARED / "invoice-template" / CHANGED).read_text()
    found = [text]
    for call in calls():
        if call["op"] == "edit":
            assert call["path"] == CHANGED
            text = text.replace(call["old"], call["new"])
            found.append(text)
    return tuple(found)


def calls() -> list[dict[str, Any]]:
    """The calls of tools in the scenario, in order."""
    scenario = json.loads((SHARED / "scenario.json").read_text())
    return [call for turn in scenario["turns"] for call in turn["calls"]]


def comparable(text: bytes) -> list[str]:
    """The lines that an agent printed, without what is another one each time. Tools that work at
    the same time may answer in any order."""
    lines = text.decode().splitlines()
    return sorted(_VARIES.sub("_", line) for line in lines if not _RESTLESS.match(line))


def both(
    agent: str, folder: Path, *options: str, faults: str | None = None
) -> tuple[Session, Session]:
    """The agent without us, and recorded, at the same place."""
    place = folder / "place"
    bare = drive(LAB, agent, place, faults=faults)
    place.rename(folder / "bare")
    return bare, drive(LAB, agent, place, record=options, faults=faults)


def the_run(session: Session) -> tuple[Store, Run]:
    store = Store(session.repository / ".git" / "repotrace")
    (run,) = store.runs.list()
    return store, run


_STEADY = frozenset({"mini-swe-agent", "codex", "gemini-cli"})
"""Agents that print the same each time, but for ids and moments. Others print, for instance, how
many tokens they guess there are, or what came back first."""


_OURS = ("recording ", "recorded ", "relayed, by ", "alert ", "look at them with: ")
_REFUSED = "failed to connect to Responses WebSocket"
"""What Codex says through the relay, before it goes on over HTTP."""


def asked(session: Session) -> int:
    """How often the model was asked; over a WebSocket, which the relay refuses, Codex first asks
    for nothing, to have it warm."""
    bodies = [request.get("request") for request in session.requests]
    return sum(not (isinstance(b, dict) and b.get("generate") is False) for b in bodies)


def check_same(agent: str, bare: Session, recorded: Session) -> None:
    assert recorded.code == bare.code
    assert recorded.diff == bare.diff
    assert asked(recorded) == asked(bare)
    if agent not in _STEADY:
        return
    assert comparable(recorded.stdout) == comparable(bare.stdout)
    said = [
        line
        for line in comparable(recorded.stderr)
        if not line.startswith(_OURS) and _REFUSED not in line
    ]
    assert said == comparable(bare.stderr)


def check_states(agent: str, store: Store, run: Run) -> None:
    """Every state after a step is what the scenario makes of the files by then."""
    template = SHARED / "invoice-template"
    files = {
        str(path.relative_to(template)): path.read_bytes()
        for path in template.rglob("*")
        if path.is_file()
    }
    versions = versions_of_the_file()
    states = StatesOfRun.of(store, run)
    edits = 0
    for step in store.runs.steps(run.id):
        operations = store.runs.operations(run.id, step_id=step.id)
        if operations:
            (operation,) = operations
            assert operation.file_path == CHANGED
            assert (operation.content_before, operation.content_after) == versions[
                edits : edits + 2
            ]
            edits += 1
        if agent == "aider" and step.step_type == "llm":
            continue  # it tells of an edit only after it has asked for the message of a commit
        known = states.after(step.step_number)
        assert known.state_id is not None
        seen = {
            entry.path: store.snapshots.read(known.state_id, entry.path)
            for entry in store.snapshots.list(known.state_id)
        }
        seen = {path: data for path, data in seen.items() if path in files}
        assert seen == files | {CHANGED: versions[edits].encode()}, step.description
        assert not step.ambiguous
    assert edits == len(versions) - 1


@pytest.mark.parametrize("agent", AGENTS)
def test_it_works_as_without_us_and_every_turn_is_recorded(agent: str, tmp_path: Path) -> None:
    bare, recorded = both(installed(agent), tmp_path)
    check_same(agent, bare, recorded)
    store, run = the_run(recorded)
    assert (run.agent, run.status, run.outcome) == (agent, "completed", "passed")
    assert run.base_quality == "exact"
    turns = {r["turn"] for r in recorded.requests if r.get("turn") is not None}
    assert run.totals.llm_calls >= len(turns)
    check_states(agent, store, run)
    tests = [step for step in store.runs.steps(run.id) if step.step_type == "test"]
    assert [step.status for step in tests] == ["failed", "completed"]
    assert run.totals.tests == 6


@pytest.mark.parametrize("agent", AGENTS)
def test_it_works_through_the_relay(agent: str, tmp_path: Path) -> None:
    bare, recorded = both(installed(agent), tmp_path, "--proxy")
    check_same(agent, bare, recorded)
    store, run = the_run(recorded)
    turns = {r["turn"] for r in recorded.requests if r.get("turn") is not None}
    calls = [c for c in store.runs.interactions(run.id) if c.purpose != "side"]
    assert len(calls) == len(turns)
    check_states(agent, store, run)


@pytest.mark.parametrize("agent", ["mini-swe-agent", "codex", "claude-code", "opencode"])
def test_faults_of_the_provider_reach_it_as_they_are(agent: str, tmp_path: Path) -> None:
    bare, recorded = both(installed(agent), tmp_path, faults="all")
    check_same(agent, bare, recorded)
    store, run = the_run(recorded)
    assert run.status == "completed"
    check_states(agent, store, run)


@pytest.mark.parametrize("agent", ["claude-code", "gemini-cli"])
def test_hooks_tell_into_the_same_run(agent: str, tmp_path: Path) -> None:
    """Codex wants its hooks to be trusted by hand."""
    hooks = {"claude-code": "claude-code", "gemini-cli": "gemini"}[agent]
    recorded = drive(LAB, installed(agent), tmp_path / "place", record=(), hooks=hooks)
    assert recorded.code == 0
    store, run = the_run(recorded)
    check_states(agent, store, run)
    tools = [step for step in store.runs.steps(run.id) if step.external_id and step.metadata]
    assert len({step.external_id for step in tools}) == len(tools) == len(calls())
