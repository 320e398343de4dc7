"""`repotrace record`: commands that are no agents we know, and what the terminal has of it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from running import Shell, plain_git

from repotrace.storage import Store

PYTHON = shlex.quote(sys.executable)


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    """A git repository with one file."""
    shell = Shell(tmp_path)
    shell.git("init", "-q", "-b", "main")
    (shell.cwd / "dates.py").write_text("DAYS = 28\n")
    shell.git("add", "-A")
    shell.git("commit", "-q", "-m", "first")
    return shell


def opened(shell: Shell) -> Store:
    return Store(shell.cwd / ".git" / "repotrace")


def the_run(shell: Shell) -> dict[str, Any]:
    """`runs show --json` of the newest run."""
    done = shell("runs", "show", "--json")
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# Waits until the states that are kept of the run are as many as it is told. An agent would not do
# so; it makes each change a look of its own, however busy the machine is.
PAUSE = """
import os, subprocess, sys, time
home = os.path.join(os.environ["REPOTRACE_HOME"], "snapshots.git")
run = "refs/repotrace/runs/" + os.environ["REPOTRACE_RUN"]
for _ in range(6000):
    done = subprocess.run(["git", "--git-dir", home, "rev-list", "--count", run],
                          capture_output=True, text=True)
    if done.stdout.strip() and int(done.stdout) >= int(sys.argv[1]):
        break
    time.sleep(0.01)
else:
    sys.exit("nobody looked")
"""


@pytest.fixture
def pause(tmp_path: Path) -> str:
    """The beginning of a shell line that waits for a number of states."""
    path = tmp_path / "pause.py"
    path.write_text(PAUSE)
    return f"{PYTHON} {shlex.quote(str(path))}"


def test_a_command_has_its_streams_and_exit_code(repotrace: Shell) -> None:
    script = 'read line; echo "got $line"; echo problem >&2; exit 3'
    bare = subprocess.run(
        ["sh", "-c", script], input=b"words\n", capture_output=True, check=False, timeout=60
    )
    done = repotrace("record", "--", "sh", "-c", script, stdin=b"words\n")
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout)
    first, middle, last = done.stderr.decode().splitlines()
    run = the_run(repotrace)
    shown = repotrace("runs", "show").stdout.decode()
    assert f"sh -c {shlex.quote(script)}" in " ".join(shown.split())
    assert middle.encode() + b"\n" == bare.stderr
    assert first == f"recording {run['run']['id']} · kept in .git/repotrace"
    assert last == f"recorded {run['run']['id']} · 0 steps · repotrace play"
    assert (run["run"]["status"], run["run"]["error"]) == ("failed", "exit code 3")


def test_each_change_of_an_unknown_command_is_a_step(repotrace: Shell, pause: str) -> None:
    script = f"""
        {pause} 1
        echo 'DAYS = 29' > dates.py; {pause} 2
        echo new > notes.txt; rm dates.py; {pause} 3
    """
    done = repotrace("record", "--task", "leap", "--tag", "t", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr.decode()
    store = opened(repotrace)
    run = store.runs.get()
    assert (run.task, run.tags, run.status) == ("leap", ("t",), "completed")
    changes = [
        {op.file_path: op.operation_type for op in store.runs.operations(run.id, step_id=step.id)}
        for step in store.runs.steps(run.id)
    ]
    first = {"dates.py": "edit"}
    assert changes[0] == first
    # A look may fall between two changes of one line of the script.
    rest = {path: kind for each in changes[1:] for path, kind in each.items()}
    assert rest == {"notes.txt": "create", "dates.py": "delete"}
    steps = store.runs.steps(run.id)
    assert {step.step_type for step in steps} == {"edit"}
    assert store.snapshots.read(str(steps[0].state_id), "dates.py") == b"DAYS = 29\n"
    assert store.snapshots.read(str(steps[-1].state_id), "dates.py") is None
    assert run.base_quality == "exact"
    assert store.snapshots.read(str(run.base_state), "dates.py") == b"DAYS = 28\n"


def test_pytest_in_it_is_a_test_step(repotrace: Shell) -> None:
    (repotrace.cwd / "test_days.py").write_text(
        "def test_a(): pass\n\ndef test_b(): assert 28 == 29\n"
    )
    done = repotrace("record", "--", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 1
    assert done.stderr.decode().splitlines()[-1].endswith("1 test failed · repotrace play")
    store = opened(repotrace)
    run = store.runs.get()
    (step,) = store.runs.steps(run.id)
    assert (step.step_type, step.status) == ("test", "failed")
    outcomes = {o.node_id: o.outcome for o in store.runs.tests(run.id)}
    assert outcomes == {"test_days.py::test_a": "passed", "test_days.py::test_b": "failed"}
    (command,) = store.runs.commands(run.id, step_id=step.id)
    assert command.exit_code == 1


def test_a_traced_program_tells_its_steps_in_the_same_run(repotrace: Shell) -> None:
    program = repotrace.cwd.parent / "agent.py"
    program.write_text(
        "from pathlib import Path\n"
        "from repotrace import span, trace_agent\n"
        "@trace_agent\n"
        "def agent():\n"
        "    with span('edit-dates', type='edit'):\n"
        "        Path('dates.py').write_text('DAYS = 29\\n')\n"
        "agent()\n"
    )
    done = repotrace("record", "--", sys.executable, str(program))
    assert done.returncode == 0, done.stderr.decode()
    store = opened(repotrace)
    (run,) = store.runs.list()
    steps = store.runs.steps(run.id)
    assert [step.description for step in steps] == ["agent", "edit-dates"]
    (operation,) = store.runs.operations(run.id)
    assert (operation.step_id, operation.origin) == (steps[1].id, "observed")


@pytest.mark.parametrize(
    ("command", "code"), [(["no-such-program"], 127), (["./dates.py"], 126), (["."], 126)]
)
def test_what_cannot_be_started_is_said_and_leaves_no_run(
    repotrace: Shell, command: list[str], code: int
) -> None:
    done = repotrace("record", "--", *command)
    assert done.returncode == code
    assert len(done.stderr.decode().splitlines()) == 1
    assert opened(repotrace).runs.list() == []


def test_what_makes_no_sense_fails_before_the_command(repotrace: Shell) -> None:
    for words in (["--agent", "nobody"], ["--upstream", "http://127.0.0.1:1"]):
        done = repotrace("record", *words, "--", "touch", "ran")
        assert done.returncode == 125
    assert not (repotrace.cwd / "ran").exists()


def test_nothing_of_the_repository_is_touched(repotrace: Shell) -> None:
    def seen() -> list[str]:
        git = repotrace.cwd / ".git"
        return [
            plain_git(repotrace.cwd, "status", "--porcelain=v2", "--branch"),
            plain_git(repotrace.cwd, "for-each-ref"),
            *(
                f"{path.relative_to(git)} {path.read_bytes().hex()}"
                for path in sorted(git.rglob("*"))
                if path.is_file() and path.relative_to(git).parts[0] != "repotrace"
            ),
        ]

    before = seen()
    repotrace("record", "--", "sh", "-c", "true")
    assert seen() == before


def test_a_script_without_a_first_line_runs_as_in_a_shell(repotrace: Shell) -> None:
    script = repotrace.cwd / "plain"
    script.write_text("echo from $1\n")
    script.chmod(0o755)
    done = repotrace("record", "--", "./plain", "here")
    assert (done.returncode, done.stdout) == (0, b"from here\n")


def test_a_home_that_takes_nothing_is_told_once_and_the_command_runs(repotrace: Shell) -> None:
    (repotrace.cwd / ".git" / "repotrace").write_text("")
    done = repotrace("record", "--", "sh", "-c", "echo done; exit 4")
    assert (done.returncode, done.stdout) == (4, b"done\n")
    told = done.stderr.decode().splitlines()
    assert sum("an event could not be recorded in" in line for line in told) == 1
    assert next(line for line in told if line.startswith("recording")).count(" ") == 1
    assert told[-1].startswith("repotrace: nothing of r")


def test_secrets_of_the_command_line_stay_out(repotrace: Shell) -> None:
    secret = "ghp_" + "a1B2" * 9
    done = repotrace("record", "--task", f"use {secret}", "--", "sh", "-c", f": {secret}")
    assert done.returncode == 0
    home = repotrace.cwd / ".git" / "repotrace"
    for path in home.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


def test_model_calls_are_recorded_on_their_way(repotrace: Shell, tmp_path: Path) -> None:
    """A program that knows no more than the usual variables, and a provider on the loopback."""
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-test-1",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Forty-two."},
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    with provider(json.dumps(answer).encode()) as url:
        program = tmp_path / "asks.py"
        program.write_text(
            "import json, os, urllib.request\n"
            "data = {'model': 'gpt-test-1', 'messages': [{'role': 'user', 'content': 'What?'}]}\n"
            "ask = urllib.request.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions',\n"
            "    json.dumps(data).encode(), {'Content-Type': 'application/json',\n"
            "    'Authorization': 'Bearer sk-planted-0123456789abcdef'})\n"
            "print(urllib.request.urlopen(ask).read().decode())\n"
        )
        words = ["record", "--proxy", "--", sys.executable, str(program)]
        done = repotrace(*words, env={"OPENAI_BASE_URL": f"{url}/v1"})
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout) == answer
    assert b"relayed, by " in done.stderr
    store = opened(repotrace)
    (run,) = store.runs.list()
    (call,) = store.runs.interactions(run.id)
    assert (call.response, call.input_tokens, call.output_tokens) == ("Forty-two.", 7, 3)
    home = repotrace.cwd / ".git" / "repotrace"
    for path in home.rglob("*"):
        assert not path.is_file() or b"sk-planted-0123456789abcdef" not in path.read_bytes(), path


def test_a_relay_that_nobody_uses_is_said(repotrace: Shell) -> None:
    done = repotrace("record", "--proxy", "--", "true")
    assert done.returncode == 0
    assert b"nothing came through the relay" in done.stderr


@contextmanager
def provider(answer: bytes) -> Iterator[str]:
    """A server that answers every request with this."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
