"""`repotrace play` as a process: where it opens the screen, where it prints, and what it leaves."""

from __future__ import annotations

import base64
import os
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from reading import Recorded, project, record
from recording import RUN, event
from running import Shell, clean_environment
from test_tui import hostile_run

from repotrace.storage import Store

OPENS, LEAVES = b"\x1b[?1049h", b"\x1b[?1049l"
PATIENCE = 60.0


class Terminal:
    """A terminal with `repotrace` on it."""

    def __init__(self, leader: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen = b""
        self._leader = leader

    def type(self, keys: bytes) -> None:
        os.write(self._leader, keys)

    def read_until(self, text: bytes) -> None:
        """Wait for a text, wherever it stands in all that was printed."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            assert self._read() or text in self.seen, self.seen

    def _read(self) -> bool:
        if not select.select([self._leader], [], [], 0.5)[0]:
            return True
        try:
            piece = os.read(self._leader, 65536)
        except OSError:  # how Linux says that the other side is gone
            return False
        self.seen += piece
        return bool(piece)

    def end(self) -> int:
        """Read all to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE)


@contextmanager
def terminal(
    shell: Shell,
    *arguments: str,
    size: tuple[int, int] = (24, 80),
    env: dict[str, str] | None = None,
    program: tuple[str, ...] = ("-m", "repotrace"),
) -> Iterator[Terminal]:
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, size)
    process = subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=shell.cwd,
        env=clean_environment(shell.home, {"TERM": "xterm-256color"} | (env or {})),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    try:
        yield Terminal(leader, process)
    finally:
        process.kill()
        process.wait()
        os.close(leader)


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def recorded(repotrace: Shell) -> Recorded:
    repotrace.cwd = project(repotrace.cwd / "an invoice")
    return record(repotrace.cwd)


@pytest.mark.usefixtures("recorded")
def test_a_terminal_gets_the_screen_and_has_its_own_back(repotrace: Shell) -> None:
    with terminal(repotrace, "play", "--step", "3") as shown:
        shown.read_until(b"Step 3 of 6")
        shown.type(b"y")
        command = f"repotrace play {RUN} --step 3".encode()
        shown.read_until(b"\x1b]52;c;" + base64.b64encode(command) + b"\x07")
        shown.type(b"n")
        shown.read_until(b"Step 4 of 6")
        shown.type(b"q")
        assert shown.end() == 0
    assert shown.seen.count(OPENS) == 1
    assert shown.seen.index(OPENS) < shown.seen.rindex(LEAVES)
    after = re.sub(rb"\x1b(\[[0-9;?<>=]*[a-zA-Z]|[=>])", b"", shown.seen.rpartition(LEAVES)[2])
    assert after.strip() == b""


@pytest.mark.usefixtures("recorded")
def test_control_c_leaves_too(repotrace: Shell) -> None:
    with terminal(repotrace, "play") as shown:
        shown.read_until(b"Step 1 of 6")
        shown.type(b"\x03")
        assert shown.end() == 0
    assert LEAVES in shown.seen


@pytest.mark.usefixtures("recorded")
def test_keys_that_come_all_at_once_are_taken_one_after_another(repotrace: Shell) -> None:
    with terminal(repotrace, "play") as shown:
        shown.read_until(b"Step 1 of 6")
        shown.type(b"j5\r2")
        shown.read_until(b"1 message as in the call before")
        shown.type(b"/leap\r1r")
        shown.read_until(b"write the files after step")
        shown.type(b"\x1b[200~nowhere\x1b[201~\x03")
        assert shown.end() == 0
    assert LEAVES in shown.seen


@pytest.mark.usefixtures("recorded")
def test_a_terminal_is_given_back_when_the_screen_is_ended(repotrace: Shell) -> None:
    with terminal(repotrace, "play") as shown:
        shown.read_until(b"Step 1 of 6")
        shown.process.terminate()
        assert shown.end() == 128 + signal.SIGTERM
    assert LEAVES in shown.seen
    assert b"Traceback" not in shown.seen


BROKEN_PLAYER = """
import sys
from repotrace.read.playing import PlayedRun
from repotrace.cli.app import main

class Broken(PlayedRun):
    def line(self, place):
        if place:
            raise ValueError("a bug")
        return super().line(place)

import repotrace.read.playing
repotrace.read.playing.PlayedRun = Broken
sys.exit(main())
"""


@pytest.mark.usefixtures("recorded")
def test_a_bug_of_ours_gives_the_terminal_back_and_is_said_on_one_line(repotrace: Shell) -> None:
    with terminal(repotrace, "play", program=("-c", BROKEN_PLAYER)) as shown:
        assert shown.end() == 3
    after = shown.seen.rpartition(LEAVES)[2].decode()
    assert "repotrace: this is a bug in RepoTrace (ValueError)" in after
    assert "Traceback" not in after
    assert after.count("\n") < 4


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("how", ["NO_COLOR", "--color"])
def test_without_colours_there_are_only_greys(repotrace: Shell, how: str) -> None:
    arguments = ["--color", "never"] if how == "--color" else []
    env = {"COLORTERM": "truecolor"} | ({"NO_COLOR": "1"} if how == "NO_COLOR" else {})
    with terminal(repotrace, *arguments, "play", "--step", "4", env=env) as shown:
        shown.read_until(b"Step 4 of 6")
        shown.type(b"q")
        assert shown.end() == 0
    colours = re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", shown.seen)
    assert colours
    assert {len(set(colour)) for colour in colours} == {1}


@pytest.mark.usefixtures("recorded")
def test_a_step_that_is_not_there_opens_no_screen(repotrace: Shell) -> None:
    with terminal(repotrace, "play", "--step", "99") as shown:
        assert shown.end() == 2
    assert b"has no step 99" in shown.seen
    assert OPENS not in shown.seen


@pytest.mark.usefixtures("recorded")
def test_a_step_is_named_by_its_checkpoint(repotrace: Shell) -> None:
    made = repotrace("runs", "checkpoint", "--label", "good one", RUN, "--step", "5")
    assert made.returncode == 0, made.stderr
    for arguments in (("--plain",), ("--json",)):
        done = repotrace("play", "--step", "good one", *arguments)
        assert done.returncode == 0, done.stderr
        assert b"It must be one year." in done.stdout
    with terminal(repotrace, "play", "--step", "good one") as shown:
        shown.read_until(b"Step 5 of 6")
        shown.type(b"njgood one\r")
        shown.read_until(b"one year")
        shown.type(b"jgood two\r")
        shown.read_until(b"there is no step good two")
        shown.type(b"q")
        assert shown.end() == 0
    for wrong in ("good", "0", "7", "9" * 40):
        missing = repotrace("play", "--step", wrong, "--plain")
        assert missing.returncode == 2
        assert missing.stderr.startswith(b"repotrace: ")
        assert missing.stdout == b""


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": ""}])
def test_a_terminal_that_can_do_nothing_is_printed_on(
    repotrace: Shell, env: dict[str, str]
) -> None:
    with terminal(repotrace, "play", env=env) as shown:
        assert shown.end() == 0
    assert b"\x1b[?" not in shown.seen
    assert b"Check again" in shown.seen


@pytest.mark.usefixtures("recorded")
def test_without_a_terminal_commands_are_read_line_by_line(repotrace: Shell) -> None:
    done = repotrace("play", "--interactive", "--step", "2", stdin=b"n\nf\nj 6\nl\nh\nq\nn\n")
    said = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    for text in ("[2/6]", "[3/6]", "-    return year\n+    return year + 2", "[6/6]", "jump to"):
        assert text in said
    assert said.rstrip().endswith("q>")
    missing = repotrace("play", "--interactive", "--step", "99", stdin=b"")
    assert missing.returncode == 2


def test_a_run_that_goes_on_is_printed_as_it_does(repotrace: Shell) -> None:
    store = Store(repotrace.cwd / ".repotrace")
    where = os.path.realpath(repotrace.cwd)
    store.runs.add_events(
        [
            event("run_started", 0, workspace=where),
            event("step_started", 1, id="whole", description="the whole"),
            event("step_started", 2, id="a", description="one", parent_id="whole"),
            event("step_ended", 3, id="a"),
            event("step_started", 4, id="b", description="two"),
        ]
    )
    with terminal(repotrace, "play", "--follow", "--plain") as shown:
        shown.read_until(b"one")
        assert b"two" not in shown.seen
        store.runs.add_events([event("step_ended", 5, id="b")])
        shown.read_until(b"two")
        store.runs.add_events([event("step_ended", 6, id="whole"), event("run_ended", 7)])
        assert shown.end() == 0
    assert shown.seen.count(b"the whole") == 1
    assert shown.seen.index(b"two") < shown.seen.index(b"the whole")


def test_nothing_that_was_captured_reaches_the_terminal_as_it_was(repotrace: Shell) -> None:
    store = Store(repotrace.cwd / ".repotrace")
    store.runs.add_events(hostile_run(os.path.realpath(repotrace.cwd)))
    with terminal(repotrace, "play", size=(50, 160)) as shown:
        shown.read_until(b"Step 1 of 1")
        for key in b"23456":
            shown.type(bytes([key]))
        shown.type(b"q")
        assert shown.end() == 0
    assert b"hidden" in shown.seen
    for sequence in (b"\x1b]0;", b"\x1b[8m", b"\x1b[2J\x1b[8m", b"\x9b5n", "\u202e".encode()):
        assert sequence not in shown.seen


def test_what_draws_the_screen_is_imported_for_the_screen_alone(repotrace: Shell) -> None:
    code = "import repotrace.cli.play, sys; print(*[n for n in sys.modules if 'textual' in n])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(repotrace.home),
        capture_output=True,
        check=True,
    )
    assert done.stdout.split() == []
