"""Hooks of agents, as the agents start them: real processes, real sessions, real files."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hooked_agent import lines_of
from hypothesis import given
from hypothesis import strategies as st
from importing import CLAUDE, SHARED
from running import clean_environment, plain_git

from repotrace import hook
from repotrace.records.events import (
    JOURNAL_VARIABLE,
    RUN_VARIABLE,
    WORKSPACE_VARIABLE,
    derived_run_id,
)
from repotrace.records.run import ExecutionStep, Origin, Run, StateQuality
from repotrace.runs.hooks.settings import Scope, apply, installing, our_command, places
from repotrace.runs.states import StatesOfRun
from repotrace.runs.transcripts.importing import Options, import_session
from repotrace.runs.transcripts.joining import complete
from repotrace.runs.transcripts.naming_calls import naming
from repotrace.storage import Store

FIXTURES = SHARED / "agents" / "fixtures"
AGENT = Path(__file__).parent / "hooked_agent.py"
CHANGED = "src/invoice_export/duedate.py"
NAMES = {"claude-code": "claude-code", "codex": "codex", "gemini-cli": "gemini"}
NO_FIXTURES = pytest.mark.skipif(not FIXTURES.is_dir(), reason="no recorded sessions are here")

type Told = dict[str, Any]


class Project:
    """A project with git in which an agent works that has our hooks, in a home of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a project"
        self.home = folder / "user"
        self.home.mkdir(parents=True)
        self.store = Store(self.root / ".git" / "repotrace")
        outer = ("CLAUDE_", "GEMINI_")
        ours = clean_environment(self.home).items()
        self.environ = {name: value for name, value in ours if not name.startswith(outer)}

    def begin(self, files: Mapping[str, str]) -> None:
        """Make the project of these files, with one commit."""
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.commit()

    def commit(self) -> None:
        """Put all there is under git."""
        plain_git(self.root, "init", "-q", "-b", "main")
        plain_git(self.root, "add", "-A")
        plain_git(self.root, "commit", "-q", "-m", "begin")

    def told(self, event: str, **facts: Any) -> Told:
        """What Claude Code tells a hook."""
        return {
            "session_id": "s1",
            "transcript_path": os.fspath(self.home / "none.jsonl"),
            "cwd": os.fspath(self.root),
            "hook_event_name": event,
            **facts,
        }

    def hear(
        self,
        event: str,
        *,
        agent: str = "claude-code",
        environ: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        """Run the hook of an event as the agent does."""
        given_ = json.dumps(self.told(event, **facts)).encode()
        assert self.run(given_, agent=agent, environ=environ) == (0, b"", b"")

    def run(
        self,
        stdin: bytes,
        *,
        agent: str = "claude-code",
        environ: Mapping[str, str] | None = None,
        command: str | None = None,
    ) -> tuple[int, bytes, bytes]:
        """Exit code and output of the line that stands in the settings."""
        done = subprocess.run(
            ["sh", "-c", command or bare_command(agent)],
            cwd=self.root,
            env={**self.environ, **(environ or {})},
            input=stdin,
            capture_output=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def recorded(self) -> Run:
        """The one run, as it is now."""
        self.store.runs.ingest(wait=True)
        (run,) = self.store.runs.list()
        return run

    def steps(self) -> list[ExecutionStep]:
        """Its steps."""
        return self.store.runs.steps(self.recorded().id)


@cache
def bare_command(agent: str) -> str:
    """The line of the settings, such that anything that is printed would be seen."""
    return our_command(agent).replace(" >/dev/null 2>&1 || true", "")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.begin({"a.py": "one\n"})
    return made


def eventually[T](look: Callable[[], T | None], seconds: float = 60) -> T:
    """What `look` gives in the end: another process is at work."""
    until = time.monotonic() + seconds
    while (found := look()) is None:
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)
    return found


# --- Whole sessions of real agents ------------------------------------------------------------


class Session:
    """A session of a real agent, and the project in which it is done again."""

    def __init__(self, agent: str, folder: Path) -> None:
        self.agent = agent
        self.project = Project(folder)
        source = FIXTURES / agent / "watched"
        shutil.copytree(SHARED / "agents" / "invoice-template", self.project.root)
        for path in [self.project.root, *self.project.root.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.project.commit()
        (self.hooks,) = source.glob("hooks.jsonl*")
        (self.transcript,) = (source / "session").rglob("*.jsonl")
        self.session = self.project.home / self.transcript.relative_to(source / "session")
        environ = {"HOME": os.fspath(self.project.home)}
        (self.place,) = places(
            NAMES[agent], self.project.root, self.project.store.home, environ, Scope.USER
        )
        apply(installing(self.place, our_command(agent)))

    def play(self, *, killed_after: int = 0) -> subprocess.CompletedProcess[bytes]:
        """Do the session again in a process of its own."""
        return subprocess.run(
            [
                *(sys.executable, AGENT, self.place.path, self.session, self.hooks),
                *(self.transcript, self.project.root, str(killed_after)),
            ],
            env=self.project.environ,
            capture_output=True,
            check=False,
        )


@NO_FIXTURES
@pytest.mark.parametrize("agent", NAMES)
def test_a_session_is_recorded_as_its_import_has_it_with_exact_states(
    agent: str, tmp_path: Path
) -> None:
    session = Session(agent, tmp_path / "live")
    project = session.project
    first = (project.root / CHANGED).read_text()
    done = session.play()
    assert done.returncode == 0, done.stderr.decode()

    # Read when the agent is gone, by a process of its own that nobody waits for.
    store = project.store
    eventually(lambda: is_joined(project) or None)
    run, steps = project.recorded(), project.steps()
    assert len(steps) == 8

    other = Store(tmp_path / "imported")
    (summary,) = import_session(other, session.session, Options(repository=project.root))
    imported = other.runs.get(summary.run_id)
    theirs = told_of(other, imported.id, other.runs.steps(imported.id))
    assert told_of(store, run.id, steps) == theirs
    same = ("task", "agent", "source", "source_id", "status", "outcome", "models")
    assert [getattr(run, name) for name in same] == [getattr(imported, name) for name in same]
    assert run.workspace == os.fspath(project.root)

    # The states are those that were there, not those that the session lets suppose.
    wrong = first.replace(
        "        return issued.replace(year=issued.year + 1)\n",
        "        return issued + timedelta(days=365)\n",
    )
    last = (project.root / CHANGED).read_text()
    assert len({first, wrong, last}) == 3
    states = StatesOfRun.of(store, run)
    assert states.after(0).exact
    for step, content in zip(steps, [first] * 3 + [wrong] * 2 + [last] * 3, strict=True):
        known = states.after(step.step_number)
        assert known.quality == StateQuality.EXACT, step
        assert known.state_id is not None
        assert store.snapshots.read(known.state_id, CHANGED) == content.encode()
    # Importing the session, which is the same run, takes nothing of that back.
    for _ in range(2):
        again = project.recorded()
        begun = {"attributes": again.attributes, "started_at": again.started_at}
        assert again == run.model_copy(update=begun)
        operations = store.runs.operations(run.id)
        assert [(o.step_id, o.file_path, o.origin) for o in operations] == [
            (steps[3].id, CHANGED, Origin.OBSERVED),
            (steps[5].id, CHANGED, Origin.OBSERVED),
        ]
        assert project.steps() == steps
        assert not any(step.ambiguous for step in steps)
        import_session(store, session.session, Options(repository=project.root))
    other.close()
    store.close()


def is_joined(project: Project) -> bool:
    """Whether the look at the end of the session was joined with all else."""
    run_id, joins = project.recorded().id, project.store.joins
    return bool(joins.looks(run_id)) and not joins.has_new_looks(run_id)


def told_of(store: Store, run_id: str, steps: list[ExecutionStep]) -> list[Any]:
    """What a run holds besides times and states."""
    found: list[Any] = []
    for step in steps:
        calls = store.runs.interactions(run_id, step.id)
        commands = store.runs.commands(run_id, step.id)
        tests = store.runs.tests(run_id, step.id)
        found += [
            (step.step_number, step.step_type, step.description, step.external_id, step.reason),
            (step.status, step.attempt, step.error),
            [(call.external_id, call.model, call.input_tokens, call.response) for call in calls],
            [(c.command.script, c.exit_code, c.is_test) for c in commands],
            [(test.node_id, test.outcome) for test in tests],
        ]
    return found


@NO_FIXTURES
def test_of_an_agent_that_was_killed_all_is_there(tmp_path: Path) -> None:
    session = Session("claude-code", tmp_path)
    project = session.project
    heard = [json.loads(line) for line in lines_of(session.hooks)]
    first_edit = next(
        number
        for number, told in enumerate(heard, 1)
        if (told["hook_event_name"], told.get("tool_name")) == ("PostToolUse", "Edit")
    )
    done = session.play(killed_after=first_edit + 1)  # the tests have begun
    assert done.returncode == -9

    run = project.recorded()
    assert run.status == "interrupted"
    complete(project.store)
    steps = project.steps()
    assert [(step.step_type, step.status) for step in steps] == [
        *(("tool", "completed") for _ in range(3)),
        ("edit", "completed"),
        ("test", "interrupted"),
    ]
    now = StatesOfRun.of(project.store, run).after(4)
    assert now.exact
    assert now.state_id is not None
    on_disk = (project.root / CHANGED).read_bytes()
    assert project.store.snapshots.read(now.state_id, CHANGED) == on_disk
    assert steps[3].reason  # the session was read, too
    assert plain_git(project.root, "status", "--porcelain") == f"M {CHANGED}"


# --- One hook ---------------------------------------------------------------------------------


def test_a_session_that_goes_on_is_running(project: Project) -> None:
    project.hear("SessionStart", source="startup")
    project.hear("UserPromptSubmit", prompt="mend it")
    given_ = {"command": "pytest -q"}
    project.hear("PreToolUse", tool_name="Bash", tool_input=given_, tool_use_id="c1")
    run, (step,) = project.recorded(), project.steps()
    assert (run.status, run.task, run.agent) == ("running", "mend it", "claude-code")
    assert run.id == derived_run_id("claude-code", "s1")
    assert run.base_quality == StateQuality.EXACT
    assert (step.status, step.description, step.external_id) == ("started", "pytest -q", "c1")

    (project.root / "a.py").write_text("two\n")
    error = "Exit code 1\nboom"
    project.hear(
        "PostToolUseFailure", tool_name="Bash", tool_input=given_, tool_use_id="c1", error=error
    )
    (step,) = project.steps()
    assert (step.status, step.error) == ("failed", "Exit code 1")
    (operation,) = project.store.runs.operations(run.id)
    assert (operation.file_path, operation.step_id) == ("a.py", step.id)

    (project.root / "b.py").write_text("the user's own\n")
    project.hear("SessionEnd", reason="other")
    assert project.recorded().status == "completed"
    complete(project.store)
    assert [step.step_type for step in project.steps()] == ["command", "external"]


def test_a_session_that_goes_on_is_joined_when_it_is_read(project: Project) -> None:
    session = project.home / "session.jsonl"
    lines = CLAUDE.read_bytes().replace(b"/home/ada/calc", os.fsencode(project.root))
    session.write_bytes(lines)
    records = [json.loads(line) for line in lines.splitlines() if b'"type": "tool_use"' in line]
    used = next(p for r in records for p in r["message"]["content"] if p["type"] == "tool_use")
    facts: Told = {"tool_name": used["name"], "tool_input": used["input"]}
    project.hear("PreToolUse", tool_use_id=used["id"], transcript_path=str(session), **facts)
    project.hear("PostToolUse", tool_use_id=used["id"], transcript_path=str(session), **facts)
    assert len(project.steps()) == 1

    complete(project.store)
    run, steps = project.recorded(), project.steps()
    assert run.status == "running"
    assert run.totals.output_tokens
    (heard,) = (step for step in steps if step.external_id == used["id"])
    assert heard.reason
    assert heard.state_quality == StateQuality.EXACT
    assert len(steps) > 1
    session.write_bytes(lines[: lines.rindex(b"\n", 0, -1) + 1])  # as if it was written anew
    complete(project.store)
    assert project.recorded().status == "running"


@pytest.mark.slow
def test_after_a_look_that_took_too_long_the_agent_is_spared_others(project: Project) -> None:
    project.hear("SessionStart")
    (lock,) = project.store.home.glob("snapshots.git/lock")
    facts: Told = {"tool_name": "Read", "tool_input": {}, "tool_use_id": "c1"}
    with lock.open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        project.hear("PreToolUse", **facts)
    # Nothing is in the way now, but a look might take as long again.
    project.hear("PostToolUse", **facts)
    (step,) = project.steps()
    assert (step.status, step.state_quality) == ("completed", StateQuality.MISSING)
    assert step.state_reason == "the files could not be looked at in time"


def test_what_a_hook_hears_first_begins_the_run(project: Project) -> None:
    given_ = {"file_path": os.fspath(project.root / "a.py")}
    project.hear("PreToolUse", tool_name="Read", tool_input=given_, tool_use_id="c1")
    project.hear("PostToolUse", tool_name="Read", tool_input=given_, tool_use_id="c1")
    run, (step,) = project.recorded(), project.steps()
    assert run.base_state == step.state_before_id == step.state_id is not None


def test_hooks_that_run_at_once_all_count(project: Project) -> None:
    def call(number: int) -> None:
        facts: Told = {"tool_name": "Read", "tool_use_id": f"c{number}", "tool_input": {}}
        project.hear("PreToolUse", **facts)
        project.hear("PostToolUse", **facts)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(call, range(6)))
    steps = project.steps()
    assert {step.external_id for step in steps} == {f"c{number}" for number in range(6)}
    assert {(step.status, step.state_quality) for step in steps} == {("completed", "exact")}
    assert project.store.runs.losses() == 0


def test_the_same_call_twice_is_two_steps_also_without_ids(project: Project) -> None:
    facts: Told = {"agent": "gemini-cli", "tool_name": "replace", "tool_input": {"x": "y" * 5_000}}
    for content in ("two\n", "three\n"):
        project.hear("BeforeTool", **facts)
        (project.root / "a.py").write_text(content)
        project.hear("AfterTool", tool_response={"error": {"message": "no"}}, **facts)
    project.hear("AfterTool", **facts)  # nobody heard of its beginning
    steps = project.steps()
    assert [(step.status, step.error) for step in steps] == [("failed", "no")] * 2
    contents = [project.store.snapshots.read(str(step.state_id), "a.py") for step in steps]
    assert contents == [b"two\n", b"three\n"]


def test_within_a_recorded_run_hooks_tell_that_run(project: Project, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    environ = {
        RUN_VARIABLE: "r0123456789ab",
        JOURNAL_VARIABLE: os.fspath(inbox),
        WORKSPACE_VARIABLE: os.fspath(project.root),
        "REPOTRACE_HOME": os.fspath(project.store.home),
    }
    project.hear("SessionStart", environ=environ)
    facts: Told = {"tool_name": "Edit", "tool_input": {}, "tool_use_id": "c1"}
    project.hear("PreToolUse", environ=environ, **facts)
    project.hear("PostToolUse", environ=environ, **facts)
    project.hear("SessionEnd", environ=environ)
    lines = [
        json.loads(x) for path in inbox.glob("*.jsonl") for x in path.read_bytes().splitlines()
    ]
    assert {line["run"] for line in lines if "run" in line} == {"r0123456789ab"}
    kinds = [line["kind"] for line in lines]
    assert kinds == [
        *("writer", "run_updated", "followed", "step_started", "state", "state", "step_ended"),
        "look",
    ]
    assert lines[1]["data"] == {"source": "claude-code", "source_id": "s1"}
    assert not (project.store.home / "journal").exists()


def test_where_nobody_asked_nothing_is_recorded(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.root.mkdir()
    (project.root / "a.py").write_text("x\n")
    project.hear("SessionStart")
    assert [path.name for path in project.root.iterdir()] == ["a.py"]
    (project.root / ".repotrace").mkdir()
    project.hear("SessionStart")
    assert Store(project.root / ".repotrace").runs.ingest().events > 0


def test_recording_can_be_turned_off(project: Project) -> None:
    project.hear("SessionStart", environ={"REPOTRACE_RECORD": "0"})
    assert not project.store.home.exists()


def test_a_folder_that_is_too_wide_is_recorded_without_its_files(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.root.mkdir()
    plain_git(project.root, "init", "-q")
    project.environ["HOME"] = os.fspath(project.root)
    facts: Told = {"tool_name": "Edit", "tool_input": {}, "tool_use_id": "c1"}
    project.hear("PreToolUse", **facts)
    project.hear("PostToolUse", **facts)
    (step,) = project.steps()
    assert (step.status, step.state_quality) == ("completed", StateQuality.MISSING)
    assert step.state_reason


def test_secrets_stay_out_of_the_journal(project: Project) -> None:
    secret = "ghp_" + "x9K2mQ7vT4bW8nR3" + "pL6sD1fG5hJ0zA2yC4eU"[:20]
    given_ = {"command": f"curl -H 'Authorization: token {secret}' https://example.org"}
    project.hear("UserPromptSubmit", prompt=f"use {secret}")
    project.hear("PreToolUse", tool_name="Bash", tool_input=given_, tool_use_id="c1")
    written = b"".join(path.read_bytes() for path in (project.store.home / "journal").iterdir())
    assert b"curl" in written
    assert secret.encode() not in written
    for path in [project.store.home, *(project.store.home / "journal").iterdir()]:
        assert path.stat().st_mode & 0o077 == 0, path


# --- Whatever comes in ------------------------------------------------------------------------

GARBAGE = {
    "nothing": b"",
    "no json": b"\x00\xff{",
    "a list": b"[]",
    "a number": b"1e999",
    "deep": b"[" * 200_000,
    "wrong types": json.dumps(
        {"session_id": 3, "cwd": [], "hook_event_name": {}, "tool_name": None}
    ).encode(),
    "no session": b'{"hook_event_name": "PreToolUse", "cwd": "/", "tool_name": "Bash"}',
    "unknown event": b'{"hook_event_name": "Later", "session_id": "s", "cwd": "/"}',
    "no folder": b'{"hook_event_name": "SessionStart", "session_id": "s", "cwd": "/nowhere"}',
    "odd folder": b'{"hook_event_name": "SessionStart", "session_id": "s", "cwd": "a\\u0000b"}',
    "surrogates": b'{"hook_event_name": "SessionStart", "session_id": "\\ud800", "cwd": "\\udfff"}',
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_met_with_silence_and_success(name: str, project: Project) -> None:
    assert project.run(GARBAGE[name]) == (0, b"", b"")
    assert not project.store.home.exists()


def test_odd_arguments_and_closed_streams_are_met_with_silence(project: Project) -> None:
    program = f"{shlex.quote(sys.executable)} -I -m repotrace hook"
    for line in (
        f"{program}",
        f"{program} nobody",
        f"{program} --join",
        f"{program} --join /nowhere r0 nonsense",
        f"{program} claude-code <&-",
        f"{program} claude-code >&- 2>&-",
        f"{program} claude-code </dev/null >/dev/full 2>/dev/full",
    ):
        assert project.run(b"{}", command=line) == (0, b"", b""), line
    assert not project.store.home.exists()


def test_an_input_too_large_to_be_kept_is_recorded_by_its_names(project: Project) -> None:
    told = project.told("PostToolUse", tool_name="Read")
    told["tool_response"] = "x" * (hook.LARGEST + 1_000)
    told["tool_use_id"] = "c1"
    assert project.run(json.dumps(told).encode()) == (0, b"", b"")
    (step,) = project.steps()
    assert (step.external_id, step.status) == ("c1", "completed")


def test_a_full_disk_or_a_broken_home_is_nothing_to_the_agent(project: Project) -> None:
    project.store.home.write_text("no folder")
    project.hear("SessionStart")
    assert project.store.home.read_text() == "no folder"


def test_the_installed_line_does_nothing_when_we_are_gone(project: Project) -> None:
    line = our_command("claude-code")
    told = json.dumps(project.told("SessionStart")).encode()
    program = shlex.quote(sys.executable)
    gone = line.replace(program, "/nowhere/bin/python")
    # A Python that is there, but knows nothing of us.
    moved = line.replace(program, shlex.quote(os.path.realpath(sys.executable)))
    for command in (gone, moved):
        assert project.run(told, command=command) == (0, b"", b"")
    for shell in ("bash", "dash", "zsh", "fish", "ksh"):
        if shutil.which(shell):
            run = [shell, "-lc", gone]
            done = subprocess.run(
                run, input=told, capture_output=True, check=False, env=project.environ
            )
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), shell
    assert not project.store.home.exists()
    assert project.run(told, command=line) == (0, b"", b"")
    assert project.store.home.exists()


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)
_EVENTS = st.sampled_from(["PreToolUse", "AfterTool", "PostToolUseFailure"])
_NAMES = ("tool_input", "tool_response", "error", "cwd", "tool_use_id", "prompt")
_EVENT = st.fixed_dictionaries(
    {
        "hook_event_name": _EVENTS | _JSON,
        "session_id": st.text(min_size=1) | _JSON,
        "tool_name": st.text(min_size=1) | _JSON,
    },
    optional=dict.fromkeys(_NAMES, _JSON),
)


@given(told=_EVENT, tail=st.binary(max_size=20))
def test_anything_is_heard_or_passed_over(told: Told, tail: bytes) -> None:
    data = json.dumps(told).encode()
    for found in (hook.heard(data), hook.heard(data, data + tail), hook.heard(tail + data)):
        if found is None:
            continue
        facts = hook.step_facts(found)
        json.dumps(facts).encode("ascii")
        assert "\n" not in facts["description"]
        assert len(facts["description"]) <= 100


# --- Calls without ids ------------------------------------------------------------------------


def heard_call(number: int, tool: str, **arguments: Any) -> ExecutionStep:
    """A step as a hook of Gemini CLI begins it."""
    return ExecutionStep.model_validate(
        {
            "id": f"h{number}",
            "run_id": "r1",
            "step_number": number,
            "step_type": "tool",
            "description": tool,
            "started_at": f"2026-03-01T10:00:{number:02}Z",
            "metadata": {"tool": tool, "call_digest": hook.call_digest(tool, arguments)},
        }
    )


def session_call(number: int, tool: str, **arguments: Any) -> Any:
    """The event of a call, as the importer has it."""
    told = {"external_id": f"c{number}", "metadata": {"tool": tool, "arguments": arguments}}
    return {"id": f"e{number}", "kind": "step_started", "time": number, "data": told}


def test_calls_are_named_by_what_they_say_and_by_order() -> None:
    steps = [
        heard_call(1, "run", x="pytest"),
        heard_call(2, "run", x="pytest"),
        heard_call(3, "edit", path="/a", mode=1),
        heard_call(4, "look", path="/b"),
    ]
    session = [
        session_call(1, "run", x="ls"),  # from before the hooks
        session_call(2, "run", x="pytest"),
        session_call(3, "edit", path="a"),  # told a little differently
        session_call(4, "run", x="pytest"),
    ]
    found = {e["data"]["id"]: e["data"]["external_id"] for e in naming("r1", steps, session)}
    assert found == {"h1": "c2", "h2": "c4", "h3": "c3"}
    named = [s.model_copy(update={"external_id": found.get(s.id)}) for s in steps]
    assert naming("r1", named, session) == []
