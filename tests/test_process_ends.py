"""How commands end: time limits, signals to us, and what a command leaves behind.

The row numbers are those of the project's list of traps.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from process_driver import PATIENCE, command, is_running, outcome, spec, wait_for

from repotrace.records.command import Termination
from repotrace.system.process import interrupt_running, interrupting, run

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and subreapers")


def pid_in(path: Path) -> int:
    """The process id in a file that a command is about to write."""

    def look() -> int | None:
        text = path.read_text() if path.exists() else ""
        return int(text) if text.endswith("\n") else None

    return wait_for(look)


def has_ended(pid: int) -> bool:
    return wait_for(lambda: not is_running(pid))


@contextmanager
def driven(out: Path, *argv: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs `argv` through `run`; killed at the end if it still lives."""
    options = {name: more.pop(name) for name in ("kill_grace", "grace") if name in more}
    line = command(out, spec(*argv, **more), **options)
    with subprocess.Popen(line, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()


# --- Time limits ------------------------------------------------------------------------------


def test_a_time_limit_keeps_what_came_before() -> None:  # rows 17, 50
    raw = run(spec("sh", "-c", "echo before; sleep 60; echo after", timeout=0.3))

    assert raw.termination is Termination.TIMEOUT
    assert (raw.exit_code, raw.signal) == (None, None)
    assert raw.stdout.head == b"before\n"
    assert raw.duration >= 0.3


def test_a_time_limit_ends_the_children_too(tmp_path: Path) -> None:  # row 17
    text = "sleep 60 & echo $! > child; wait"

    run(spec("sh", "-c", text, cwd=str(tmp_path), timeout=0.3))

    assert has_ended(pid_in(tmp_path / "child"))


@only_linux
def test_a_time_limit_ends_children_in_other_sessions(tmp_path: Path) -> None:  # row 18
    text = "setsid sh -c 'echo $$ > child; exec sleep 60' & wait"

    run(spec("sh", "-c", text, cwd=str(tmp_path), timeout=0.5))

    assert has_ended(pid_in(tmp_path / "child"))


def test_there_is_time_to_clean_up() -> None:  # row 17
    raw = run(spec("sh", "-c", "trap 'echo cleaned; exit' TERM; sleep 60 & wait", timeout=0.3))

    assert raw.termination is Termination.TIMEOUT
    assert raw.stdout.head == b"cleaned\n"


def test_who_ignores_the_request_is_killed() -> None:  # row 17
    raw = run(
        spec("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done", timeout=0.3),
        kill_grace=0.2,
    )

    assert raw.termination is Termination.TIMEOUT
    assert raw.stdout.head == b"deaf\n"


def test_a_stopped_command_ends_at_its_time_limit_as_well() -> None:  # row 17
    text = "trap 'echo woken; exit' TERM; kill -STOP $$"

    raw = run(spec("sh", "-c", text, timeout=0.3))

    assert (raw.termination, raw.stdout.head) == (Termination.TIMEOUT, b"woken\n")


def test_a_command_in_time_is_no_timeout() -> None:  # row 17
    assert run(spec("true", timeout=30)).termination is Termination.EXITED
    assert run(spec("true", timeout=math.inf)).termination is Termination.EXITED


# --- Left behind ------------------------------------------------------------------------------


def test_a_grandchild_that_holds_the_pipe_delays_us_a_little_only(
    tmp_path: Path,
) -> None:  # row 16
    text = "sleep 60 & echo $! > child; echo done; exit 3"

    raw = run(spec("sh", "-c", text, cwd=str(tmp_path)), grace=0.1)

    assert (raw.termination, raw.exit_code) == (Termination.EXITED, 3)
    assert raw.stdout.head == b"done\n"
    assert raw.pipe_held_open
    child = pid_in(tmp_path / "child")
    assert has_ended(child)
    if sys.platform == "linux":
        assert raw.leftovers == (child,)
        assert raw.survivors == ()


def test_what_a_grandchild_writes_within_the_grace_is_kept() -> None:  # row 16
    raw = run(spec("sh", "-c", "(sleep 0.1; echo late) & echo early"), grace=PATIENCE)

    assert raw.stdout.head == b"early\nlate\n"
    assert not raw.pipe_held_open
    assert raw.leftovers == ()


def test_a_grandchild_that_never_stops_writing() -> None:  # row 16
    raw = run(spec("sh", "-c", "yes & exit 0"), grace=0.1)

    assert raw.exit_code == 0
    assert raw.pipe_held_open


def test_a_background_process_without_the_pipe_is_ended_and_told(tmp_path: Path) -> None:
    text = "sleep 60 >/dev/null 2>&1 & echo $! > child"

    raw = run(spec("sh", "-c", text, cwd=str(tmp_path)))

    child = pid_in(tmp_path / "child")
    assert has_ended(child)
    assert not raw.pipe_held_open
    if sys.platform == "linux":
        assert raw.leftovers == (child,)


def test_a_deaf_background_process_is_killed(tmp_path: Path) -> None:  # rows 16, 17
    text = "sh -c 'trap \"\" TERM; echo $$ > child; while :; do sleep 1; done' & sleep 0.2"

    run(spec("sh", "-c", text, cwd=str(tmp_path)), grace=0.1)

    assert has_ended(pid_in(tmp_path / "child"))


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        with open("daemon.part", "w") as file:
            print(os.getpid(), file=file)
        os.rename("daemon.part", "daemon")
        time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists("daemon"):
    time.sleep(0.01)
"""


@only_linux
def test_a_daemon_is_told_and_left_alone(tmp_path: Path) -> None:  # row 18
    out = tmp_path / "outcome"

    with driven(out, sys.executable, "-c", DAEMON, cwd=str(tmp_path)) as process:
        process.wait(PATIENCE)

    daemon = pid_in(tmp_path / "daemon")
    try:
        assert outcome(out)["leftovers"] == [daemon]
        assert is_running(daemon)
    finally:
        os.kill(daemon, signal.SIGKILL)


@only_linux
def test_a_time_limit_ends_even_daemons(tmp_path: Path) -> None:  # row 18
    out = tmp_path / "outcome"
    code = DAEMON + "time.sleep(60)"

    with driven(out, sys.executable, "-c", code, cwd=str(tmp_path), timeout=1.0) as process:
        process.wait(PATIENCE)

    assert outcome(out)["termination"] == "timeout"
    assert has_ended(pid_in(tmp_path / "daemon"))


NO_ZOMBIES = """
import os
from pathlib import Path
from repotrace.records.command import CommandSpec
from repotrace.system.process import run
argv = ("sh", "-c", "(sleep 0.05 &); sleep 0.2")
run(CommandSpec(argv=argv, cwd="/", env=dict(os.environ)))
print(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
def test_orphans_that_ended_leave_no_zombies() -> None:  # row 18
    # In a process of its own: beside other threads, orphans are left to whoever started them.
    done = subprocess.run(
        [sys.executable, "-c", NO_ZOMBIES], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


# --- Signals to us ----------------------------------------------------------------------------

# Not a shell: dash loses a SIGINT that comes while it starts a program. And no long sleep: Python
# would sleep through one that comes just before it.
SLEEPER = """
import os, time
print("started", flush=True)
with open("child", "w") as file:
    print(os.getpid(), file=file)
for _ in range(6000):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_us_is_passed_on(tmp_path: Path, number: int) -> None:  # row 21
    out = tmp_path / "outcome"

    with driven(out, sys.executable, "-c", SLEEPER, cwd=str(tmp_path)) as process:
        child = pid_in(tmp_path / "child")
        process.send_signal(number)
        assert process.wait(PATIENCE) == 0

    result = outcome(out)
    assert (result["termination"], result["signal"]) == ("interrupted", number)
    assert result["exit_code"] is None
    assert result["stdout"] == "started\n"
    assert has_ended(child)


def test_the_command_may_end_in_its_own_time(tmp_path: Path) -> None:  # row 21
    out = tmp_path / "outcome"
    text = (
        "trap 'sleep 0.3; echo cleaned; exit 0' INT; echo $$ > child; while :; do sleep 0.05; done"
    )

    with driven(out, "sh", "-c", text, cwd=str(tmp_path), kill_grace=0.05) as process:
        pid_in(tmp_path / "child")
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)

    result = outcome(out)
    assert (result["termination"], result["stdout"]) == ("interrupted", "cleaned\n")


def test_a_second_signal_kills(tmp_path: Path) -> None:  # row 21
    out = tmp_path / "outcome"
    text = "trap 'echo heard' INT; echo $$ > child; while :; do sleep 0.05; done"

    with driven(out, "sh", "-c", text, cwd=str(tmp_path)) as process:
        assert process.stdout is not None
        child = pid_in(tmp_path / "child")
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"heard\n"
        # Two at the same time count as one, as wrappers pass on what the terminal sent us too.
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)

    assert outcome(out)["termination"] == "interrupted"
    assert has_ended(child)


def test_a_request_to_end_does_not_wait_for_the_deaf(tmp_path: Path) -> None:  # row 21
    out = tmp_path / "outcome"
    text = "trap '' TERM; echo $$ > child; while :; do sleep 0.05; done"

    with driven(out, "sh", "-c", text, cwd=str(tmp_path), kill_grace=0.1) as process:
        pid_in(tmp_path / "child")
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)

    assert outcome(out)["termination"] == "interrupted"


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:  # row 21, as under nohup
    out = tmp_path / "outcome"
    argv = command(out, spec("sh", "-c", "echo $$ > child; sleep 0.5; echo end", cwd=str(tmp_path)))
    ignoring = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *argv]

    with subprocess.Popen(ignoring, stdout=subprocess.PIPE, start_new_session=True) as process:
        pid_in(tmp_path / "child")
        process.send_signal(signal.SIGHUP)
        process.wait(PATIENCE)

    assert outcome(out)["termination"] == "exited"


def test_commands_in_threads_can_be_interrupted(tmp_path: Path) -> None:  # row 21
    ends: list[Termination] = []

    def one() -> None:
        what = spec("sh", "-c", "echo $$ > child; exec sleep 60", cwd=str(tmp_path))
        ends.append(run(what).termination)

    thread = threading.Thread(target=one)
    thread.start()
    pid_in(tmp_path / "child")
    interrupt_running()
    thread.join(PATIENCE)

    assert ends == [Termination.INTERRUPTED]


def test_a_command_that_a_thread_is_about_to_start_is_interrupted_too() -> None:  # row 21
    ends: list[Termination] = []
    thread = threading.Thread(target=lambda: ends.append(run(spec("sleep", "60")).termination))
    with interrupting():
        thread.start()
        thread.join(PATIENCE)

    assert ends == [Termination.INTERRUPTED]
    assert run(spec("true")).termination is Termination.EXITED


def test_handlers_are_put_back() -> None:
    handler = signal.getsignal(signal.SIGINT)

    run(spec("true"))
    run(spec("no-such-command-here"))

    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_process_that_ignores_its_children_learns_the_exit_code_all_the_same() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        raw = run(spec("sh", "-c", "exit 5"))
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert raw.exit_code == 5
