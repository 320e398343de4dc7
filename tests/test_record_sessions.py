"""`record` with an agent that writes its session down: one run out of both.

The agent is a player of scripted moves (`codex_player.py`): real files, a real session, real times.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from running import Shell, clean_environment

from repotrace.records.run import ExecutionStep, Run
from repotrace.runs.states import StatesOfRun
from repotrace.storage import Store

PATIENCE = 60.0
PLAYER = Path(__file__).with_name("codex_player.py")


class Agent:
    """A repository with the player installed as `codex`, under `repotrace record` or bare."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder)
        self.cwd = self.shell.cwd
        self.shell.git("init", "-q", "-b", "main")
        (self.cwd / "calc.py").write_text("zero\n")
        self.shell.git("add", "-A")
        self.shell.git("commit", "-q", "-m", "first")
        programs = folder / "bin"
        programs.mkdir()
        self._player = programs / "codex.py"
        self._player.write_bytes(PLAYER.read_bytes())
        python, player = shlex.quote(sys.executable), shlex.quote(str(self._player))
        (programs / "codex").write_text(f'#!/bin/sh\nexec {python} {player} "$@"\n')
        (programs / "codex").chmod(0o755)
        self.env = {"CODEX_HOME": str(folder / "codex-home")}
        self.env["PATH"] = f"{programs}{os.pathsep}{clean_environment(folder)['PATH']}"
        self._folder = folder

    def words(self, moves: Sequence[Sequence[Any]], *more: str) -> list[str]:
        """The command line of the agent that makes these moves."""
        path = self._folder / f"moves-{len(list(self._folder.glob('moves-*')))}.json"
        path.write_text(json.dumps(moves))
        return ["codex", str(path), *more]

    def record(
        self, moves: Sequence[Sequence[Any]], *options: str
    ) -> subprocess.CompletedProcess[bytes]:
        words = self.words(moves)
        return self.shell("record", *options, "--", *words, env=self.env, timeout=PATIENCE * 2)

    def start(self, moves: Sequence[Sequence[Any]]) -> subprocess.Popen[bytes]:
        """The recorder, once the agent has said that it is asleep."""
        process = subprocess.Popen(
            [sys.executable, "-m", "repotrace", "record", "--", *self.words(moves)],
            cwd=self.cwd,
            env=clean_environment(self.shell.home, self.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"asleep\n"
        return process

    @property
    def store(self) -> Store:
        return Store(self.cwd / ".git" / "repotrace")

    def processes(self) -> dict[int, bool]:
        """The processes that have to do with us here, and whether they are the player."""
        found = {}
        for place in Path("/proc").glob("[0-9]*"):
            try:
                words = (place / "cmdline").read_bytes()
            except OSError:
                continue
            if str(self._folder).encode() in words and b"-m\0repotrace" not in words:
                found[int(place.name)] = str(self._player).encode() in words
        return found

    def settled(self, expected: set[int]) -> set[int]:
        """The processes that are there, after time for others than the expected to end."""
        deadline = time.monotonic() + PATIENCE
        while set(self.processes()) != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        return set(self.processes())


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def files_after(store: Store, run: Run, step: ExecutionStep) -> dict[str, str]:
    """The files after a step, as text."""
    state = StatesOfRun.of(store, run).after(step.step_number)
    assert state.state_id is not None
    return {
        entry.path: (store.snapshots.read(state.state_id, entry.path) or b"").decode()
        for entry in store.snapshots.list(state.state_id)
    }


def changes(store: Store, run: Run, step: ExecutionStep) -> dict[str, tuple[str, str]]:
    """What a step changed, and how that is known."""
    return {
        op.file_path: (op.operation_type, op.origin)
        for op in store.runs.operations(run.id, step_id=step.id)
    }


def test_steps_of_the_session_have_the_files_that_were_seen(agent: Agent) -> None:
    moves = [
        *(["write", "calc.py", "one\n"], ["quiet"]),
        ["run", f"{shlex.quote(sys.executable)} -c \"open('made.txt', 'w').write('made')\""],
        *(["quiet"], ["other", "calc.py", "by hand\n"], ["quiet"]),
        *(["run", "true"], ["quiet"], ["say", "Done."]),
    ]
    done = agent.record(moves)
    assert done.returncode == 0, done.stderr.decode()
    store = agent.store
    (run,) = store.runs.list()
    assert (run.agent, run.source, run.task) == ("codex", "codex", "Make it so.")
    assert (run.status, run.base_quality) == ("completed", "exact")
    steps = {step.step_number: step for step in store.runs.steps(run.id)}
    kinds = [step.step_type for step in steps.values()]
    assert kinds == ["edit", "command", "external", "command", "llm"]
    first = {"calc.py": "one\n"}
    second = first | {"made.txt": "made"}
    third = second | {"calc.py": "by hand\n"}
    for number, files in ((1, first), (2, second), (3, third), (4, third), (5, third)):
        assert files_after(store, run, steps[number]) == files
    assert changes(store, run, steps[1]) == {"calc.py": ("edit", "observed")}
    assert changes(store, run, steps[2]) == {"made.txt": ("create", "observed")}
    assert changes(store, run, steps[3]) == {"calc.py": ("edit", "observed")}
    assert changes(store, run, steps[4]) == {}
    assert {steps[n].state_quality for n in (1, 2, 3, 4)} == {"exact"}
    assert not any(step.ambiguous for step in steps.values())
    assert run.totals.files_modified == 2


def test_steps_too_quick_to_be_seen_are_told_apart_by_what_they_say(agent: Agent) -> None:
    contents = [f"{number}\n" for number in range(1, 7)]
    moves: list[list[Any]] = [["write", "calc.py", text] for text in contents]
    assert agent.record([*moves, ["run", "true"]]).returncode == 0
    store = agent.store
    (run,) = store.runs.list()
    steps = [step for step in store.runs.steps(run.id) if step.step_type == "edit"]
    seen = [files_after(store, run, step)["calc.py"] for step in steps]
    assert seen == contents
    for step in steps:
        (operation,) = store.runs.operations(run.id, step_id=step.id)
        assert operation.content_after == files_after(store, run, step)["calc.py"]
    assert not any(step.ambiguous for step in steps)
    # What was not seen is not called seen.
    qualities = {step.state_quality for step in steps}
    assert qualities <= {"exact", "inferred"}
    assert steps[-1].state_quality == "exact"


def test_a_later_import_of_the_session_adds_nothing(agent: Agent) -> None:
    moves = [["write", "calc.py", "one\n"], ["quiet"], ["run", "echo new > n.txt"], ["say", "x"]]
    assert agent.record(moves).returncode == 0
    store = agent.store

    def told() -> list[Any]:
        (run,) = store.runs.list()
        return [
            run.id,
            run.totals,
            [(s.id, s.state_id, s.state_quality) for s in store.runs.steps(run.id)],
            sorted((o.step_id, o.file_path, o.origin) for o in store.runs.operations(run.id)),
        ]

    before = told()
    done = agent.shell("import", "--latest", "--agent", "codex", env=agent.env)
    assert done.returncode == 0, done.stderr.decode()
    assert told() == before


def test_sessions_of_others_are_left_alone(agent: Agent) -> None:
    before = subprocess.run(
        agent.words([["say", "an earlier one"]]),
        cwd=agent.cwd,
        env=clean_environment(agent.shell.home, agent.env),
        check=False,
        timeout=PATIENCE,
    )
    elsewhere = agent.cwd.parent / "elsewhere"
    elsewhere.mkdir()
    other = " ".join(map(shlex.quote, agent.words([["say", "of another folder"]])))
    own = " ".join(map(shlex.quote, agent.words([["quiet"], ["say", "this one"]])))
    script = f"(cd {shlex.quote(str(elsewhere))}; {other}); {own}"
    done = agent.shell("record", "--", "sh", "-c", script, env=agent.env)
    assert (before.returncode, done.returncode) == (0, 0), done.stderr.decode()
    store = agent.store
    (run,) = store.runs.list()
    assert run.agent == "codex"
    assert [step.description for step in store.runs.steps(run.id)] == ["this one"]


def test_it_is_shown_while_it_goes_on(agent: Agent) -> None:
    process = agent.start([["write", "calc.py", "one\n"], ["quiet"], ["sleep"]])
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            done = agent.shell("runs", "list", "--json", env=agent.env)
            (run,) = json.loads(done.stdout)["runs"]
            if run["totals"]["steps"] or time.monotonic() > deadline:
                break
        assert (run["status"], run["totals"]["steps"]) == ("running", 1)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    (run,) = agent.store.runs.list()
    assert run.status == "interrupted"


@pytest.mark.parametrize("victim", ["agent", "recorder", "both"])
def test_killed_at_any_moment_what_was_recorded_is_there(agent: Agent, victim: str) -> None:
    status = agent.shell.git("status", "--porcelain", "--branch")
    process = agent.start(
        [["write", "calc.py", "one\n"], ["quiet"], ["write", "new.txt", "new\n"], ["sleep"]]
    )
    (player,) = (pid for pid, is_player in agent.processes().items() if is_player)
    if victim != "agent":
        process.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL
    if victim != "recorder":
        os.kill(player, signal.SIGKILL)
    if victim == "agent":
        assert process.wait(PATIENCE) == 128 + signal.SIGKILL
    done = agent.shell("runs", "list", "--json", env=agent.env)
    assert done.returncode == 0, done.stderr.decode()
    (told,) = json.loads(done.stdout)["runs"]
    assert (told["status"], told["totals"]["steps"]) == ("interrupted", 2)
    store = agent.store
    (run,) = store.runs.list()
    steps = store.runs.steps(run.id)
    assert [step.description for step in steps] == ["apply_patch", "apply_patch"]
    assert files_after(store, run, steps[0]) == {"calc.py": "one\n"}
    assert files_after(store, run, steps[1]) == {"calc.py": "one\n", "new.txt": "new\n"}
    store.close()
    # The repository is as the agent left it, and nothing of ours runs on.
    assert agent.shell.git("status", "--porcelain", "--branch") == (
        f"{status.splitlines()[0]}\n M calc.py\n?? new.txt\n"
    )
    left = {player} if victim == "recorder" else set()
    assert agent.settled(left) == left
    if victim == "recorder":
        os.kill(player, signal.SIGKILL)


def test_a_session_that_is_taken_up_again_tells_only_what_is_new(agent: Agent) -> None:
    before = subprocess.run(
        agent.words([["write", "calc.py", "one\n"], ["say", "For now."]]),
        cwd=agent.cwd,
        env=clean_environment(agent.shell.home, agent.env),
        check=False,
        timeout=PATIENCE,
    )
    assert before.returncode == 0
    (session,) = Path(agent.env["CODEX_HOME"]).rglob("rollout-*.jsonl")
    # As if it had been an hour ago: `record` may not take it for its own by its time alone.
    lines = [json.loads(line) for line in session.read_text().splitlines()]
    for line in lines:
        moment = datetime.fromisoformat(line["timestamp"]) - timedelta(hours=1)
        line["timestamp"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    session.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = agent.words([["write", "calc.py", "two\n"], ["quiet"], ["say", "Done."]], "resume")
    env = {**agent.env, "RESUMED": str(session)}
    done = agent.shell("record", "--", *words, env=env)
    assert done.returncode == 0, done.stderr.decode()
    store = agent.store
    (run,) = store.runs.list()
    steps = store.runs.steps(run.id)
    assert [step.step_type for step in steps] == ["note", "edit", "llm"]
    (operation,) = store.runs.operations(run.id)
    assert (operation.content_before, operation.content_after) == ("one\n", "two\n")
    # The model was shown the conversation from its beginning.
    first, *_ = store.runs.interactions(run.id)
    shown = json.dumps(first.messages)
    assert "Make it so." in shown
    assert "For now." in shown


def _confined(folder: Path, words: Sequence[str]) -> list[str]:
    """`words` where everything outside `folder` is read-only, and only the loopback is there."""
    place = shlex.quote(str(folder))
    script = (
        "mount --make-rprivate / && "
        f"mount --bind {place} {place} && mount -o remount,bind,ro / && "
        f"for m in /tmp /var /home /root; do mount -o remount,bind,ro $m 2>/dev/null; done; "
        f'cd {place} && exec "$@"'
    )
    return ["unshare", "--mount", "--net", "sh", "-c", script, "sh", *words]


def test_a_sandboxed_agent_is_recorded(agent: Agent) -> None:
    outside = agent.cwd.parent / "outside"
    probe = _confined(agent.cwd, ["sh", "-c", f"touch here && ! touch {shlex.quote(str(outside))}"])
    if subprocess.run(probe, capture_output=True, check=False, timeout=PATIENCE).returncode != 0:
        pytest.skip("nothing can be confined here")
    (agent.cwd / "here").unlink()
    (agent.cwd / "test_calc.py").write_text("def test_calc(): assert open('calc.py').read()\n")
    agent.env["CODEX_HOME"] = str(agent.cwd / ".codex")
    (agent.cwd / ".gitignore").write_text(".codex/\n__pycache__/\n")
    moves = [
        *(["write", "calc.py", "one\n"], ["quiet"]),
        ["run", f"{shlex.quote(sys.executable)} -m pytest -q -p no:cacheprovider test_calc.py"],
        ["run", f"touch {shlex.quote(str(outside))}"],
        ["say", "Done."],
    ]
    words = _confined(agent.cwd, agent.words(moves))
    # The home of the recorder lies outside of what the agent may write to.
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "repotrace",
            "--home",
            agent.shell.home / "rt",
            "record",
            "--",
            *words,
        ],
        cwd=agent.cwd,
        env=clean_environment(agent.shell.home, agent.env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=PATIENCE * 2,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert not outside.exists()
    with closing(Store(agent.shell.home / "rt")) as store:
        (run,) = store.runs.list()
        steps = store.runs.steps(run.id)
        assert [step.step_type for step in steps] == ["edit", "test", "command", "llm"]
        assert files_after(store, run, steps[0])["calc.py"] == "one\n"
        assert [step.status for step in steps] == ["completed", "completed", "failed", "completed"]
        # pytest could not tell its outcomes itself; what is known is out of its output.
        assert {outcome.origin for outcome in store.runs.tests(run.id)} <= {"parsed"}
    assert b"pytest could not tell" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_killed_at_a_moment_of_no_choice(agent: Agent, seed: int) -> None:
    chance = Random(seed)
    contents = [f"{number}\n" for number in range(1, 400)]
    words = agent.words([["write", "calc.py", text] for text in contents])
    process = subprocess.Popen(
        [sys.executable, "-m", "repotrace", "record", "--", *words],
        cwd=agent.cwd,
        env=clean_environment(agent.shell.home, agent.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(chance.uniform(0.1, 2.5))  # the moment is what is tried
    if chance.random() < 0.5:
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)
    for pid, is_player in agent.processes().items():
        if is_player:
            os.kill(pid, signal.SIGKILL)
    assert agent.settled(set()) == set()
    done = agent.shell("runs", "list", "--json", env=agent.env)
    assert done.returncode == 0, done.stderr.decode()
    runs = json.loads(done.stdout)["runs"]
    assert len(runs) <= 1
    assert agent.shell.git("fsck", "--strict") == ""
    assert (agent.cwd / "calc.py").read_text() in ["zero\n", "", *contents]
    with closing(agent.store) as store:
        for run in store.runs.list():
            assert run.status in ("interrupted", "completed")
            steps = [s for s in store.runs.steps(run.id) if s.step_type == "edit"]
            if run.base_state is None:
                continue
            for step, text in zip(steps, contents, strict=False):
                if step.status == "completed" and step.state_quality in ("exact", "inferred"):
                    assert files_after(store, run, step)["calc.py"] == text
