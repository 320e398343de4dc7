"""`record` on a terminal: everything that is shown and typed is as it is without us."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import termios
from pathlib import Path

import pytest
from running import Shell, clean_environment
from test_terminal import Keyboard, terminal

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash for its jobs")

# Draws, asks, heeds ^C and the size of its window, reads keys unbuffered, and ends with a code.
PROGRAM = """
import os, signal, sys, termios, time, tty
print("\\x1b[1mon a terminal:\\x1b[0m", *(os.isatty(fd) for fd in (0, 1)), os.tcgetwinsize(0)
      if hasattr(os, "tcgetwinsize") else tuple(termios.tcgetwinsize(0)), flush=True)
print("say something: ", end="", flush=True)
print("you said", repr(sys.stdin.readline()), flush=True)
try:
    print("interrupt me", flush=True)
    for _ in range(6000):
        time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted", flush=True)
sizes = []
signal.signal(signal.SIGWINCH, lambda *_: sizes.append(tuple(termios.tcgetwinsize(0))))
print("resize me", flush=True)
while not sizes:
    time.sleep(0.01)
print("now", sizes[-1], flush=True)
before = termios.tcgetattr(0)
tty.setraw(0)
print("press a key\\r", flush=True)
key = os.read(0, 1)
termios.tcsetattr(0, termios.TCSADRAIN, before)
print("pressed", key, "in front" if os.tcgetpgrp(0) == os.getpgrp() else "behind", flush=True)
sys.exit(7)
"""


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    shell.git("init", "-q", "-b", "main")
    (tmp_path / "program.py").write_text(PROGRAM)
    return shell


def lines_of(shell: Shell, command: str) -> list[str]:
    """A shell in the folder of the repository that runs `command` and tells its exit code."""
    env = clean_environment(shell.home, {"TERM": "xterm"})
    given = [f"{name}={value}" for name, value in env.items()]
    # The shell is interrupted as well, and would give up.
    said = shlex.quote(str(shell.home / "err"))
    script = f"trap : INT; cd {shlex.quote(str(shell.cwd))}; {command} 2>{said}"
    return ["env", "-i", *given, "sh", "-c", f"{script}; echo code $?"]


def session(shell: Shell, command: str) -> bytes:
    """All that a person sees who uses the program."""
    with terminal(*lines_of(shell, command), rows=30, columns=100) as keyboard:
        keyboard.read_until(b"say something: ")
        keyboard.type(b"words \xc3\xa9\n")
        keyboard.read_until(b"interrupt me\r\n")
        keyboard.type(b"\x03")
        keyboard.read_until(b"resize me\r\n")
        termios.tcsetwinsize(keyboard.master, (40, 120))
        keyboard.read_until(b"press a key")
        keyboard.type(b"\x03")  # a key like any other, now
        keyboard.read_until(b"code ")
        keyboard.read_until(b"\n")
        return keyboard.screen


def test_a_session_is_the_same_byte_for_byte(repotrace: Shell) -> None:
    program = f"{shlex.quote(sys.executable)} ../program.py"
    ours = f"{shlex.quote(sys.executable)} -m repotrace record -- {program}"
    bare, recorded = session(repotrace, program), session(repotrace, ours)
    assert b"code 7" in bare
    assert b"(40, 120)" in bare
    assert b"pressed b'\\x03' in front" in bare
    assert recorded == bare
    said = (repotrace.home / "err").read_text().splitlines()
    assert [line.split()[0] for line in said] == ["recording", "recorded"]


@needs_bash
def test_it_stops_and_goes_on_as_a_job_of_the_shell(repotrace: Shell) -> None:
    # A shell shows the line of a job before it gives it the terminal, and continues it then.
    code = (
        "import signal, time\n"
        "signal.signal(signal.SIGCONT, lambda *_: print('again', flush=True))\n"
        "print('working', flush=True)\nfor _ in range(6000): time.sleep(0.01)\n"
    )
    (repotrace.home / "sleeper.py").write_text(code)
    python = shlex.quote(sys.executable)
    line = f"{python} -m repotrace record -- {python} {shlex.quote(str(repotrace.home))}/sleeper.py"
    env = clean_environment(repotrace.home, {"TERM": "dumb", "PS1": "READY "})
    given = [f"{name}={value}" for name, value in env.items()]
    with terminal("env", "-i", *given, "bash", "--norc", "--noediting", "-i") as keyboard:
        keyboard.read_until(b"READY ")
        _type(keyboard, f"cd {shlex.quote(str(repotrace.cwd))}")
        keyboard.read_until(b"READY ")
        _type(keyboard, line)
        keyboard.read_until(b"working\r\n")
        keyboard.type(b"\x1a")
        keyboard.read_until(b"Stopped")
        keyboard.read_until(b"READY ")
        _type(keyboard, "fg")
        keyboard.read_until(b"again\r\n")
        keyboard.type(b"\x03")
        keyboard.read_until(b"recorded r")
        keyboard.read_until(b"READY ")
        _type(keyboard, "echo code=$?")
        keyboard.read_until(b"code=130\r\n")


@needs_bash
def test_a_program_that_stops_itself_gives_the_terminal_back(repotrace: Shell) -> None:
    code = (
        "import os, signal\nprint('working', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\nprint('going on', flush=True)\n"
    )
    (repotrace.home / "stopper.py").write_text(code)
    python = shlex.quote(sys.executable)
    line = f"{python} -m repotrace record -- {python} {shlex.quote(str(repotrace.home))}/stopper.py"
    env = clean_environment(repotrace.home, {"TERM": "dumb", "PS1": "READY "})
    given = [f"{name}={value}" for name, value in env.items()]
    with terminal("env", "-i", *given, "bash", "--norc", "--noediting", "-i") as keyboard:
        keyboard.read_until(b"READY ")
        _type(keyboard, f"cd {shlex.quote(str(repotrace.cwd))}")
        keyboard.read_until(b"READY ")
        _type(keyboard, line)
        keyboard.read_until(b"working\r\n")
        keyboard.read_until(b"Stopped")
        keyboard.read_until(b"READY ")
        _type(keyboard, "fg")
        keyboard.read_until(b"going on\r\n")
        keyboard.read_until(b"recorded r")
        keyboard.read_until(b"READY ")
        _type(keyboard, "echo code=$?")
        keyboard.read_until(b"code=0\r\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_us_alone_is_passed_on(repotrace: Shell, number: signal.Signals) -> None:
    code = (
        "import signal, sys, time\n"
        "def heard(number, _):\n    print('heard', number, flush=True)\n    sys.exit(5)\n"
        f"signal.signal({int(number)}, heard)\nprint('working', flush=True)\n"
        "for _ in range(6000): time.sleep(0.01)\n"
    )
    process = repotrace.start("record", "--", sys.executable, "-c", code)
    assert process.stdout is not None
    assert process.stdout.readline() == b"working\n"
    os.kill(process.pid, number)
    out, _ = process.communicate(timeout=60)
    assert (out, process.returncode) == (f"heard {int(number)}\n".encode(), 5)


def _type(keyboard: Keyboard, line: str) -> None:
    keyboard.type(line.encode() + b"\n")
