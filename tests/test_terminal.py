"""Commands on terminals: ones that we make, and ours lent to them.

The row numbers are those of the project's list of traps.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from process_driver import PATIENCE, command, outcome, spec

from repotrace.records.command import Termination
from repotrace.system.process import run

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash for its jobs")

TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""

# Not a shell: dash loses a ^C that comes while it starts a program. And no long sleep: Python
# would sleep through a ^C that comes just before it.
SLEEPER = """
import sys, time
print(sys.argv[1] % input() if "%" in sys.argv[1] else sys.argv[1], flush=True)
for _ in range(6000):
    time.sleep(0.01)
"""


class Keyboard:
    """A terminal with a program on it, as a person has it: types and reads."""

    def __init__(self, master: int) -> None:
        self.master = master
        self.screen = b""
        self._seen = 0

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def read_until(self, text: bytes) -> None:
        """Wait for `text` to come after what was waited for so far."""
        deadline = time.monotonic() + PATIENCE
        while (at := self.screen.find(text, self._seen)) < 0:
            if time.monotonic() > deadline or not self._read_more():
                raise AssertionError(f"no {text!r} in {self.screen!r}")
        self._seen = at + len(text)

    def _read_more(self) -> bool:
        if not select.select([self.master], [], [], 0.5)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.screen += data
        return bool(data)


@contextmanager
def terminal(*argv: str, rows: int = 30, columns: int = 100) -> Iterator[Keyboard]:
    """`argv` as the foreground of a new terminal."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (rows, columns))
    line = [sys.executable, "-c", TAKE_TERMINAL, *argv]
    with subprocess.Popen(
        line, start_new_session=True, stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        try:
            yield Keyboard(master)
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            os.close(master)


# --- Terminals of our making ------------------------------------------------------------------


def test_a_command_can_have_a_terminal() -> None:  # row 24
    raw = run(spec("sh", "-c", "test -t 0 && test -t 1 && test -t 2 && echo yes", pty=True))

    assert (raw.exit_code, raw.stdout.head) == (0, b"yes\r\n")


def test_output_is_not_held_back_on_a_terminal() -> None:  # row 24
    code = "print('first'); import os; os.write(2, b'second\\n'); print('third')"

    raw = run(spec(sys.executable, "-c", code, pty=True))

    assert raw.stdout.head == b"first\r\nsecond\r\nthird\r\n"
    assert raw.stderr.length == 0


def test_it_is_the_controlling_terminal() -> None:  # row 24
    raw = run(spec("sh", "-c", "echo to the terminal > /dev/tty", pty=True))

    assert raw.stdout.head == b"to the terminal\r\n"


@pytest.mark.parametrize(
    ("variables", "size"),
    [
        ({}, b"24 80"),
        ({"COLUMNS": "132", "LINES": "50"}, b"50 132"),
        ({"COLUMNS": "wide", "LINES": "-1"}, b"24 80"),
    ],
)
def test_its_size(variables: dict[str, str], size: bytes) -> None:  # row 35
    if any(os.isatty(fd) for fd in (0, 1, 2)):
        pytest.skip("a terminal of our own decides the size")

    raw = run(spec("stty", "size", env={"PATH": os.environ["PATH"]} | variables, pty=True))

    assert raw.stdout.head.strip() == size


def test_input_on_a_terminal_ends_at_once() -> None:  # row 20
    raw = run(spec("cat", pty=True, timeout=PATIENCE))

    assert (raw.termination, raw.exit_code) == (Termination.EXITED, 0)


def test_a_command_that_is_not_there_on_a_terminal() -> None:  # row 1
    raw = run(spec("no-such-command-here", pty=True))

    assert raw.error == "command not found: no-such-command-here"
    assert raw.stdout.length == 0


def test_arguments_and_environment_arrive_on_a_terminal_too() -> None:  # row 13
    code = "import os,sys; print(os.fsencode(sys.argv[1]), dict(os.environb))"
    env = {"V": os.fsdecode(b"\xff"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}

    raw = run(spec(sys.executable, "-c", code, os.fsdecode(b"\xfe'"), env=env, pty=True))

    argument, _, variables = raw.stdout.head.strip().partition(b" ")
    assert argument == b"""b"\\xfe'\""""
    assert variables == repr({k.encode(): os.fsencode(v) for k, v in env.items()}).encode()


def test_a_time_limit_on_a_terminal() -> None:  # row 17
    raw = run(spec("sh", "-c", "echo before; sleep 60", pty=True, timeout=0.4))

    assert (raw.termination, raw.stdout.head) == (Termination.TIMEOUT, b"before\r\n")


# --- Our terminal -----------------------------------------------------------------------------


def test_a_command_can_read_from_our_terminal(tmp_path: Path) -> None:  # row 20
    out = tmp_path / "outcome"
    what = spec("sh", "-c", "printf 'name? '; read name; echo hello $name", inherit_stdin=True)

    with terminal(*command(out, what)) as keyboard:
        keyboard.read_until(b"name? ")
        keyboard.type(b"Ada\n")
        keyboard.read_until(b"hello Ada")
        result = outcome(out)

    assert result["stdout"] == "name? hello Ada\n"
    assert (result["stdin_kind"], result["stdin"]) == ("terminal", None)


def test_a_question_on_the_terminal_beside_piped_input(tmp_path: Path) -> None:  # row 20
    out = tmp_path / "outcome"
    text = "cat > rest; printf 'password? ' > /dev/tty; read word < /dev/tty; echo got $word"
    what = spec("sh", "-c", text, inherit_stdin=True, cwd=str(tmp_path))
    line = f"echo piped | {shlex.join(command(out, what))}"

    with terminal("sh", "-c", line) as keyboard:
        keyboard.read_until(b"password? ")
        keyboard.type(b"secret\n")
        keyboard.read_until(b"got secret")
        result = outcome(out)

    assert (result["stdin_kind"], result["stdin"]) == ("recorded", "piped\n")
    assert (tmp_path / "rest").read_text() == "piped\n"


def test_without_our_input_a_question_fails_at_once(tmp_path: Path) -> None:  # row 20
    out = tmp_path / "outcome"
    what = spec("sh", "-c", "read word < /dev/tty || echo no terminal")

    with terminal(*command(out, what)) as keyboard:
        keyboard.read_until(b"no terminal")
        assert outcome(out)["termination"] == "exited"


def test_interrupting_a_command_that_does_not_read(tmp_path: Path) -> None:  # row 21
    out = tmp_path / "outcome"
    what = spec(sys.executable, "-c", SLEEPER, "up", inherit_stdin=True)

    with terminal(*command(out, what)) as keyboard:
        keyboard.read_until(b"up\r\n")
        keyboard.type(b"\x03")
        result = outcome(out)

    assert (result["termination"], result["signal"]) == ("interrupted", signal.SIGINT)
    assert result["stdout"] == "up\n"


def test_interrupting_a_command_that_has_the_terminal(tmp_path: Path) -> None:  # rows 20, 21
    out = tmp_path / "outcome"
    what = spec(sys.executable, "-c", SLEEPER, "got %s", inherit_stdin=True)

    with terminal(*command(out, what)) as keyboard:
        keyboard.type(b"it\n")
        keyboard.read_until(b"got it")
        keyboard.type(b"\x03")
        result = outcome(out)

    assert result["termination"] == "interrupted"


@needs_bash
def test_the_terminal_is_ours_again_afterwards(tmp_path: Path) -> None:  # row 20
    # A command that changes the modes and is killed: the shell after us must find both.
    outs = [tmp_path / "one", tmp_path / "two"]
    rude = spec("sh", "-c", "stty -echo; read x; kill -9 $$", inherit_stdin=True)
    polite = spec("sh", "-c", "read x; echo hello $x", inherit_stdin=True)
    lines = [shlex.join(command(outs[0], rude)), "stty -a", shlex.join(command(outs[1], polite))]

    with terminal("bash", "-c", "; ".join(lines)) as keyboard:
        keyboard.type(b"a\n")
        keyboard.read_until(b" echo ")
        keyboard.type(b"you\n")
        keyboard.read_until(b"hello you")

    assert (outcome(outs[0])["termination"], outcome(outs[0])["signal"]) == ("signaled", 9)


@needs_bash
@pytest.mark.parametrize("reads", [True, False])
def test_stopping_and_continuing_as_a_job(tmp_path: Path, reads: bool) -> None:  # row 20
    out = tmp_path / "outcome"
    text = "echo up; read x; echo end $x" if reads else "echo up; sleep 1; echo end"
    line = shlex.join(command(out, spec("sh", "-c", text, inherit_stdin=True)))
    (tmp_path / "start").write_text(f"exec {line}\n")

    with terminal("bash", "--norc", "-i") as keyboard:
        keyboard.type(f"sh '{tmp_path}/start'\n".encode())
        keyboard.read_until(b"up\r\n")
        if reads:
            time.sleep(0.5)  # until it has asked for the terminal
        keyboard.type(b"\x1a")
        keyboard.read_until(b"Stopped")
        assert not out.exists()
        keyboard.type(b"fg\n")
        keyboard.read_until(b"\n")
        keyboard.type(b"well\n" if reads else b"")
        keyboard.read_until(b"end well" if reads else b"end\r\n")
        keyboard.type(b"echo back-$((1+1))\n")
        keyboard.read_until(b"back-2")
        assert outcome(out)["exit_code"] == 0


def test_an_interactive_command_on_a_terminal_of_our_making(tmp_path: Path) -> None:  # row 24
    out = tmp_path / "outcome"
    text = "stty size; printf 'name? '; read name; echo hello $name; read x; echo never"
    what = spec("sh", "-c", text, inherit_stdin=True, pty=True)

    with terminal(*command(out, what), rows=33, columns=77) as keyboard:
        keyboard.read_until(b"33 77")
        keyboard.read_until(b"name? ")
        keyboard.type(b"Ada\r")
        keyboard.read_until(b"hello Ada")
        keyboard.type(b"\x03")
        result = outcome(out)

    assert (result["termination"], result["signal"]) == ("interrupted", signal.SIGINT)
    assert result["stdout"] == "33 77\r\nname? Ada\r\nhello Ada\r\n^C"
    assert result["stdin_kind"] == "terminal"


def test_the_modes_of_our_terminal_are_put_back(tmp_path: Path) -> None:  # row 24
    out = tmp_path / "outcome"
    line = shlex.join(command(out, spec("true", inherit_stdin=True, pty=True)))

    with terminal("sh", "-c", f"stty -g; {line}; stty -g; echo end") as keyboard:
        keyboard.read_until(b"end")
        lines = keyboard.screen.split()

    assert lines[0] == lines[1]


def test_a_change_of_the_window_reaches_the_command(tmp_path: Path) -> None:  # row 24
    out = tmp_path / "outcome"
    text = "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done"

    with terminal(*command(out, spec("sh", "-c", text, inherit_stdin=True, pty=True))) as keyboard:
        keyboard.read_until(b"up\r\n")
        termios.tcsetwinsize(keyboard.master, (11, 66))
        keyboard.read_until(b"11 66")
