"""What goes into a command as its standard input, and what is recorded of it.

The row numbers are those of the project's list of traps.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest
from process_driver import command, outcome, spec

from repotrace.system.process import run


def test_without_input_there_is_nothing_to_read() -> None:  # row 22
    raw = run(spec("cat"))

    assert (raw.exit_code, raw.stdout.length) == (0, 0)
    assert (raw.stdin_kind, raw.stdin_recorded) == ("none", None)


@pytest.mark.parametrize("pty", [False, True])
def test_given_bytes_arrive_unchanged(pty: bool) -> None:  # row 22
    data = bytes(range(256)) * 2000

    raw = run(spec("sha256sum", stdin=data, pty=pty))

    assert raw.stdout.head.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert (raw.stdin_kind, raw.stdin_recorded) == ("recorded", data)


def test_a_long_input_is_recorded_as_far_as_the_limit() -> None:  # row 22
    raw = run(spec("wc", "-c", stdin=b"x" * 50_000), limit=1000)

    assert raw.stdout.head.strip() == b"50000"
    assert (raw.stdin_kind, raw.stdin_recorded) == ("cut", b"x" * 1000)


def test_a_command_that_reads_no_input_is_not_waited_for() -> None:  # row 22
    raw = run(spec("true", stdin=b"x" * 1_000_000))

    assert raw.exit_code == 0


def test_a_command_that_closes_its_input_goes_on() -> None:  # row 22
    raw = run(spec("sh", "-c", "exec <&-; sleep 0.1; echo done", stdin=b"x" * 1_000_000))

    assert raw.stdout.head == b"done\n"


def test_our_piped_input_is_passed_on_and_recorded(tmp_path: Path) -> None:  # row 22
    out = tmp_path / "outcome"
    argv = command(out, spec("wc", "-c", inherit_stdin=True))

    done = subprocess.run(argv, input=b"y" * 200_000, capture_output=True, check=True)

    assert done.stdout.strip() == b"200000"
    result = outcome(out)
    assert (result["stdin_kind"], result["stdin"]) == ("recorded", "y" * 100)


def test_a_file_as_our_input_is_left_where_the_command_stopped_reading(
    tmp_path: Path,
) -> None:  # row 22
    (tmp_path / "input").write_text("first\nsecond\nthird\n")
    out = tmp_path / "outcome"
    # `head -n1` gives back what it read too much, if it can.
    argv = command(out, spec("head", "-n1", inherit_stdin=True))

    with (tmp_path / "input").open("rb") as file:
        os.read(file.fileno(), 6)
        done = subprocess.run(argv, stdin=file, capture_output=True, check=True)
        rest = os.read(file.fileno(), 100)

    assert done.stdout == b"second\n"
    assert rest == b"third\n"
    assert outcome(out)["stdin"] == "second\nthird\n"


def test_a_file_that_nobody_reads_is_no_input(tmp_path: Path) -> None:  # row 22
    # As in `sh < script`: what is left of the script is not what the command was given.
    (tmp_path / "input").write_text("the rest of a script\n")
    out = tmp_path / "outcome"

    with (tmp_path / "input").open("rb") as file:
        subprocess.run(command(out, spec("true", inherit_stdin=True)), stdin=file, check=True)

    result = outcome(out)
    assert (result["stdin_kind"], result["stdin"]) == ("none", None)


def test_an_endless_input_does_not_keep_us(tmp_path: Path) -> None:  # row 22
    out = tmp_path / "outcome"
    argv = command(out, spec("head", "-c5", inherit_stdin=True), live=False, limit=1000)

    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        subprocess.run(argv, stdin=endless.stdout, check=True, timeout=20)
        endless.kill()

    result = outcome(out)
    assert result["stdout"] == "y\ny\ny"
    assert result["stdin_kind"] == "cut"


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_as_our_input(tmp_path: Path, device: str) -> None:  # row 22
    out = tmp_path / "outcome"
    argv = command(out, spec("head", "-c3", inherit_stdin=True), limit=1000)

    with Path(device).open("rb") as file:
        done = subprocess.run(argv, stdin=file, capture_output=True, check=True, timeout=20)

    assert done.stdout == (b"\0\0\0" if device == "/dev/zero" else b"")
    assert outcome(out)["stdin_kind"] == ("cut" if device == "/dev/zero" else "none")


def test_an_input_that_never_comes_does_not_keep_us(tmp_path: Path) -> None:  # row 22
    out = tmp_path / "outcome"
    reading, writing = os.pipe()
    try:
        argv = command(out, spec("echo", "hi", inherit_stdin=True))
        subprocess.run(argv, stdin=reading, check=True, timeout=20, capture_output=True)
    finally:
        os.close(reading)
        os.close(writing)

    assert outcome(out)["stdin_kind"] == "recorded"


def test_no_standard_input_at_all(tmp_path: Path) -> None:
    out = tmp_path / "outcome"
    argv = command(out, spec("cat", inherit_stdin=True))

    subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *argv], check=True, timeout=20)

    assert outcome(out)["exit_code"] == 0
