"""Real agents over the wire: the log of their traffic gives the run that their own session gives.

The other side is what the agent itself wrote, taken in by its own importer.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import pytest
from importing import SHARED, check_end, imported_runs, invoice_repository

from repotrace.importers import wire
from repotrace.importers.wire_traffic import Traffic
from repotrace.records.events import Event, Kind
from repotrace.records.run import StepType
from repotrace.runs.transcripts.importing import Options, import_session
from repotrace.runs.transcripts.joining import join
from repotrace.storage import Store

FIXTURES = SHARED / "agents" / "fixtures"
_SESSIONS = {
    "aider": "session/*/.aider.chat.history.md",
    "claude-code": "session/.claude/projects/*/*.jsonl",
    "codex": "session/.codex/sessions/*/*/*/*.jsonl",
    "gemini-cli": "session/.gemini/tmp/*/chats/session-*.jsonl",
    "inspect-ai": "session/logs/*",
    "mini-swe-agent": "session/*.traj.json",
    "opencode": "session-export.json",
    "openhands": "session/.openhands/conversations/*",
}
LOGS = sorted([*FIXTURES.glob("*/*/llm.jsonl"), *FIXTURES.glob("*/*/llm.jsonl.gz")])
WITH_SESSIONS = [
    (log, session)
    for log in LOGS
    for session in [next(log.parent.glob(_SESSIONS[log.parent.parent.name]), None)]
    if session is not None
]
"""Logs, each with what the agent wrote."""


def _tells_its_folder(log: Path) -> bool:
    # The words of Claude Code are left out of its logs, and aider tells its model no folder.
    agents = ("codex", "gemini-cli", "mini-swe-agent", "opencode", "openhands", "inspect-ai")
    return log.parent.parent.name in agents and log.parent.name in ("plain", "anthropic")


_BARE_OUTPUT = ("opencode", "inspect-ai")
"""Agents that do not show their model the exit code of a command."""
_FOLDER = "/home/dev/invoice/"
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens")


def _name(value: object) -> str:
    return "-".join(value.parts[-3:-1]) if isinstance(value, Path) else ""


class _Side(NamedTuple):
    """What one view says of a run."""

    task: str
    answers: list[str]
    tokens: list[tuple[int | None, ...]]
    models: set[str]
    calls: list[tuple[str, str, str | None]]
    """Id, tool and reason of each call."""
    edits: list[str]
    exits: dict[str, int]
    tests: list[tuple[str, str]]
    failed: set[str]
    retries: list[str]


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """Where a log is unpacked."""
    return tmp_path / "llm.jsonl"


def _log(path: Path, unpacked: Path) -> Path:
    if path.suffix != ".gz":
        return path
    unpacked.write_bytes(gzip.decompress(path.read_bytes()))
    return unpacked


def _seen(store: Store, path: Path) -> _Side:
    found = [run for _, run, _ in imported_runs(store, path)]
    (run,) = found
    steps = store.runs.steps(run.id)
    interactions = [i for i in store.runs.interactions(run.id) if i.purpose != "side"]
    tools = [s for s in steps if s.metadata.get("tool") not in (None, "sandbox")]
    names = {step.id: str(step.external_id) for step in steps}
    commands = store.runs.commands(run.id)
    return _Side(
        task=(run.task or "").strip().strip('"'),
        answers=[interaction.response.strip() for interaction in interactions],
        tokens=[tuple(getattr(i, name) for name in _TOKENS) for i in interactions],
        models={interaction.model for interaction in interactions},
        calls=[(names[s.id], s.metadata["tool"], s.reason) for s in tools],
        # Of some logs the words in which the agent named its folder are left out.
        edits=[o.file_path.removeprefix(_FOLDER) for o in store.runs.operations(run.id)],
        exits={names[str(c.step_id)]: c.exit_code for c in commands if c.exit_code is not None},
        tests=[(test.node_id, test.outcome) for test in store.runs.tests(run.id)],
        failed={names[s.id] for s in tools if s.status == "failed"},
        retries=[names[step.id] for step in tools if step.retry_of],
    )


@pytest.mark.skipif(not LOGS, reason="no runs of real agents beside the checkout")
@pytest.mark.parametrize(("log", "session"), WITH_SESSIONS, ids=_name)
def test_traffic_tells_what_the_session_of_the_agent_tells(
    store: Store, log: Path, session: Path, unpacked: Path
) -> None:
    agent = log.parent.parent.name
    wire, ours = _seen(store, _log(log, unpacked)), _seen(store, session)
    if agent != "inspect-ai":  # its log has the words around the task as well
        assert wire.task == ours.task
    if agent == "aider":  # its session has the words of answers and no calls
        assert [a.split()[0] for a in wire.answers] == [a.split()[0] for a in ours.answers]
        assert wire.edits == [edit for edit in ours.edits if edit.endswith(".py")]
        return
    broken = agent == "gemini-cli" and log.parent.name == "faults"
    assert wire.answers[: -1 if broken else None] == ours.answers
    assert [used[1] for used in wire.tokens][: len(ours.tokens)] == [
        used[1] for used in ours.tokens
    ]
    assert [call[:2] for call in wire.calls] == [call[:2] for call in ours.calls]
    assert wire.edits == ours.edits
    assert wire.retries == ours.retries
    if agent not in _BARE_OUTPUT:
        assert wire.exits == ours.exits
        assert wire.failed == ours.failed
    assert wire.tests == ours.tests


@pytest.mark.skipif(not LOGS, reason="no runs of real agents beside the checkout")
@pytest.mark.parametrize("log", [log for log in LOGS if _tells_its_folder(log)], ids=_name)
def test_the_files_are_rebuilt_from_the_traffic(
    store: Store, log: Path, unpacked: Path, tmp_path: Path
) -> None:
    repository = invoice_repository(tmp_path / "repository")
    # What was committed just now is younger than the run.
    options = Options(repository=repository, base="HEAD")
    (summary,) = import_session(store, _log(log, unpacked), options)
    steps = store.runs.steps(summary.run_id)
    check_end(store, steps, repository, log.parent / "final.diff")
    assert summary.unknown == 0
    # Each answer is a step, with its calls below it.
    answers = {step.id for step in steps if step.step_type == StepType.LLM}
    assert {i.step_id for i in store.runs.interactions(summary.run_id)} == answers
    below = [step for step in steps if step.metadata.get("tool")]
    assert {step.parent_id for step in below} <= answers


@pytest.mark.skipif(not LOGS, reason="no runs of real agents beside the checkout")
@pytest.mark.parametrize(
    ("log", "session"),
    [pair for pair in WITH_SESSIONS if pair[0].parent.parent.name in ("claude-code", "codex")],
    ids=_name,
)
def test_a_transcript_adds_to_the_run_of_its_traffic(
    store: Store, log: Path, session: Path, unpacked: Path
) -> None:
    """Whoever imports the session of an agent that went through the relay counts nothing twice."""
    told = _seen_on_the_wire(_log(log, unpacked))
    store.runs.add_events(told)
    before = _counts(store, told[0]["run"])
    (summary,) = import_session(store, session, Options())
    run = store.runs.get(summary.run_id)
    assert (run.id, summary.is_new) == (told[0]["run"], False)
    assert len(store.runs.list()) == 1
    assert _counts(store, run.id) == before
    answers = {s.id for s in store.runs.steps(run.id) if s.step_type == StepType.LLM}
    assert {i.step_id for i in store.runs.interactions(run.id)} == answers
    assert run.attributes["transcript"] == session.name


def test_what_was_read_of_a_session_too_early_is_not_counted(store: Store, tmp_path: Path) -> None:
    """A session is followed while it grows: an answer may lack the calls in it when it is read."""
    folder = FIXTURES / "claude-code" / "plain"
    if not folder.exists():
        pytest.skip("no runs of real agents beside the checkout")
    told = _seen_on_the_wire(folder / "llm.jsonl")
    whole = next(folder.glob(_SESSIONS["claude-code"])).read_bytes()
    lines = whole.split(b"\n")
    session = tmp_path / "session.jsonl"
    followed: Event = {**told[0], "kind": Kind.FOLLOWED, "id": "f"}
    followed["data"] = {"path": str(session), "format": "claude-code"}
    alone = Store(tmp_path / "alone")
    alone.runs.add_events(told)
    expected = _counts(alone, told[0]["run"])
    store.runs.add_events([told[0], followed])
    words = [n for n, line in enumerate(lines) if b'"text": "Now the tests' in line]
    run = store.runs.get(told[0]["run"])
    session.write_bytes(b"\n".join(lines[: words[0] + 1]) + b"\n")
    assert join(store, run, wait=True)
    (early,) = (s for s in store.runs.steps(run.id) if s.output_result == "Now the tests.")
    assert early.step_type == StepType.LLM
    store.runs.add_events(told)
    session.write_bytes(whole)
    assert join(store, store.runs.get(run.id), wait=True)
    assert _counts(store, run.id) == expected


def _seen_on_the_wire(log: Path) -> list[Event]:
    """The events of a log as they are recorded live."""
    traffic = Traffic(joins=True)
    told: list[Event] = []
    for number, line in enumerate(line for line in log.read_bytes().split(b"\n") if line):
        told += wire.exchanged(traffic, number, json.loads(line))
    told += traffic.ended()
    seen: Event = {**told[0], "kind": Kind.RUN_UPDATED, "id": "w", "data": {}}
    seen["data"]["attributes"] = {"wire": True}
    return [*told, seen]


def _counts(store: Store, run_id: str) -> list[object]:
    return [
        [(step.external_id, step.step_type) for step in store.runs.steps(run_id)],
        [(i.external_id, i.output_tokens) for i in store.runs.interactions(run_id)],
        sorted((c.command.script or "", c.exit_code or 0) for c in store.runs.commands(run_id)),
        [(test.node_id, test.outcome) for test in store.runs.tests(run_id)],
    ]
