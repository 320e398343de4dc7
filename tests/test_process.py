"""Running commands: what starts and what comes out. All with real processes.

The row numbers are those of the project's list of traps.
"""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from process_driver import command, outcome, spec

from repotrace.errors import NoCommand, RepoTraceError
from repotrace.records.command import CommandSpec, Termination
from repotrace.system.output import MARGIN, MOST_CHUNKS
from repotrace.system.process import NoSuchFolder, run

PYTHON = sys.executable


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


# --- Starting ---------------------------------------------------------------------------------


def test_a_command_that_is_not_there() -> None:  # row 1
    raw = run(spec("no-such-command-here", "-x"))

    assert raw.termination is Termination.SPAWN_ERROR
    assert raw.spawn_errno == errno.ENOENT
    assert raw.error == "command not found: no-such-command-here"
    assert raw.exit_code is None
    assert raw.resolved is None


def test_an_empty_name_is_no_command() -> None:  # row 1
    assert run(spec("")).spawn_errno == errno.ENOENT


def test_a_file_that_may_not_be_executed(tmp_path: Path) -> None:  # row 2
    (tmp_path / "data.txt").write_text("hello")

    raw = run(spec("./data.txt", cwd=str(tmp_path)))

    assert (raw.termination, raw.spawn_errno) == (Termination.SPAWN_ERROR, errno.EACCES)
    assert raw.error == "permission denied: ./data.txt"


def test_a_folder_is_no_command(tmp_path: Path) -> None:  # row 2
    raw = run(spec(str(tmp_path)))

    assert raw.spawn_errno == errno.EACCES
    assert raw.error == f"is a folder, not a command: {tmp_path}"


@pytest.mark.parametrize("pty", [False, True])
def test_a_script_without_a_first_line_is_not_given_to_a_shell(
    tmp_path: Path, pty: bool
) -> None:  # row 3
    script(tmp_path / "do it", "echo surprise\n")

    raw = run(spec("./do it", cwd=str(tmp_path), pty=pty))

    assert (raw.termination, raw.spawn_errno) == (Termination.SPAWN_ERROR, errno.ENOEXEC)
    assert raw.error == "./do it has no #! line; run it with: sh './do it'"
    assert raw.stdout.length == 0


def test_a_missing_interpreter_is_not_a_missing_command(tmp_path: Path) -> None:
    script(tmp_path / "tool", "#!/no/such/interpreter\n")

    raw = run(spec("./tool", cwd=str(tmp_path)))

    assert raw.spawn_errno == errno.ENOENT
    assert raw.error == "the interpreter that the first line of ./tool names does not exist"


def test_the_folder_is_looked_at_before_the_command(tmp_path: Path) -> None:  # row 4
    with pytest.raises(NoSuchFolder, match="/gone does not exist") as caught:
        run(spec("no-such-command-here", cwd=str(tmp_path / "gone")))

    assert caught.value.hint is not None
    (tmp_path / "file").write_text("")
    with pytest.raises(NoSuchFolder, match="is not a folder"):
        run(spec("true", cwd=str(tmp_path / "file")))


def test_too_long_an_argument(tmp_path: Path) -> None:  # row 56
    raw = run(spec("true", "x" * 4_000_000))

    assert (raw.termination, raw.spawn_errno) == (Termination.SPAWN_ERROR, errno.E2BIG)


@pytest.mark.parametrize(
    "bad",
    [
        CommandSpec(argv=("echo", "a\0b"), cwd="/"),
        CommandSpec(argv=("true",), cwd="/", env={"A": "a\0b"}),
        CommandSpec(argv=("true",), cwd="/", env={"A=B": "c"}),
        CommandSpec(script="echo \0", cwd="/"),
    ],
)
def test_what_no_program_can_receive_is_refused(bad: CommandSpec) -> None:  # row 56
    with pytest.raises(RepoTraceError):
        run(bad)


def test_no_command_at_all() -> None:
    with pytest.raises(NoCommand):
        run(CommandSpec(cwd="/"))


def test_path_and_folder_are_those_of_the_command(tmp_path: Path) -> None:  # row 30
    tool = script(tmp_path / "tools" / "greet", "#!/bin/sh\necho from tools\n")
    env = {"PATH": f"tools:{os.defpath}"}

    raw = run(spec("greet", cwd=str(tmp_path), env=env))

    assert raw.stdout.head == b"from tools\n"
    assert raw.resolved == str(tool)


def test_a_relative_name_is_resolved_but_symbolic_links_stay(tmp_path: Path) -> None:  # row 30
    script(tmp_path / "real", "#!/bin/sh\n")
    (tmp_path / "link").symlink_to("real")

    assert run(spec("./link", cwd=str(tmp_path))).resolved == str(tmp_path / "link")


def test_a_shell_script_runs_in_the_shell() -> None:  # row 29
    raw = run(CommandSpec(script="echo one | tr o 0; exit 4", cwd="/", env={"PATH": os.defpath}))

    assert raw.stdout.head == b"0ne\n"
    assert raw.exit_code == 4


def test_arguments_stay_as_they_are() -> None:  # row 29
    raw = run(spec("printf", "%s|", "a b", "*", "$HOME", "", "-x", "it's"))

    assert raw.stdout.head == b"a b|*|$HOME||-x|it's|"


def test_bytes_that_are_not_utf_8_reach_the_command() -> None:  # row 13
    argument, value = os.fsdecode(b"\xff\xfe"), os.fsdecode(b"\xc3\x28")
    code = "import os,sys; os.write(1, os.fsencode(sys.argv[1]) + os.environb[b'V'])"

    raw = run(spec(PYTHON, "-c", code, argument, env={"V": value, "LC_ALL": "C.UTF-8"}))

    assert raw.stdout.head == b"\xff\xfe\xc3\x28"


def test_the_environment_is_the_given_one_only() -> None:
    raw = run(spec("/usr/bin/env", env={"ONLY": "this"}))

    assert raw.stdout.head == b"ONLY=this\n"


# --- The end ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "reported"), [("3", 3), ("300", 44), ("-1", 255)])
def test_the_exit_code_is_what_the_system_reports(code: str, reported: int) -> None:  # row 6
    raw = run(spec(PYTHON, "-c", f"import os; os._exit({code})"))

    assert (raw.termination, raw.exit_code, raw.signal) == (Termination.EXITED, reported, None)


def test_death_by_signal() -> None:  # row 5
    raw = run(spec("sh", "-c", "kill -SEGV $$"))

    assert (raw.termination, raw.exit_code, raw.signal) == (Termination.SIGNALED, None, 11)


def test_time() -> None:
    moment = datetime(2026, 1, 2, tzinfo=UTC)

    raw = run(
        spec(PYTHON, "-c", "i = 0\nwhile i < 3_000_000: i += 1"),
        now=lambda: moment,
    )

    assert raw.started_at == moment
    assert raw.cpu_time is not None
    assert raw.cpu_time > 0.01
    assert raw.duration > 0.01


def test_memory() -> None:
    # In a process that holds little itself, nor was started by one that holds much, as one that has
    # run many tests does: see the next test.
    code = (
        "import sys; from test_process import run, spec;"
        " print(run(spec(sys.executable, '-c', 'x = bytearray(300_000_000)')).max_rss)"
    )

    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1"; exit $?', PYTHON, code],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert 300_000_000 < int(done.stdout) < 400_000_000


def test_less_memory_than_our_own_is_not_known() -> None:
    # The system reports the memory of the parent then, from before the program was loaded.
    assert run(spec("true")).max_rss is None


# --- Output -----------------------------------------------------------------------------------


def test_streams_are_bytes_and_apart() -> None:  # rows 13, 14, 23
    code = r"import os; os.write(1, b'a\r\nb\rc\xff\x00'); os.write(2, b'\x1b[31mred')"

    raw = run(spec(PYTHON, "-c", code))

    assert raw.stdout.head == b"a\r\nb\rc\xff\x00"
    assert raw.stderr.head == b"\x1b[31mred"
    assert raw.stdout.sha256 == hashlib.sha256(b"a\r\nb\rc\xff\x00").hexdigest()


def test_progress_bars_stay_raw() -> None:  # row 25
    assert run(spec("printf", r"1%%\r2%%\r")).stdout.head == b"1%\r2%\r"


def test_merged_streams_keep_their_true_order() -> None:  # row 23
    text = "for i in 1 2 3; do echo out$i; echo err$i >&2; done"

    raw = run(spec("sh", "-c", text, merge=True))

    assert raw.stdout.head == b"out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    assert raw.stderr.length == 0


def test_output_is_passed_on_as_it_comes(tmp_path: Path) -> None:  # rows 23, 27
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    seen: list[tuple[str, bytes]] = []

    def on_output(stream: str, data: bytes) -> None:
        seen.append((stream, data))
        if data == b"first\n":
            # The command goes on only when its first line was seen.
            fifo.write_text("go")

    raw = run(
        spec("sh", "-c", f"echo first; read x < '{fifo}'; echo second >&2"), on_output=on_output
    )

    assert seen == [("stdout", b"first\n"), ("stderr", b"second\n")]
    assert [chunk[:3] for chunk in raw.chunks] == [("stdout", 0, 6), ("stderr", 0, 7)]
    assert raw.chunks[0][3] <= raw.chunks[1][3] <= raw.duration


def test_chunks_are_joined_within_a_stream_and_few() -> None:  # row 23
    text = "i=0; while [ $i -lt 2000 ]; do echo a; echo b >&2; i=$((i+1)); done"

    raw = run(spec("sh", "-c", text))

    assert len(raw.chunks) <= MOST_CHUNKS
    for stream in ("stdout", "stderr"):
        spans = [(start, end) for name, start, end, _ in raw.chunks if name == stream]
        assert spans[0][0] == 0
        assert spans[-1][1] == 4000
        assert all(a[1] == b[0] for a, b in pairwise(spans))


def test_a_reader_that_went_away_loses_us_nothing() -> None:  # row 28
    calls = 0

    def on_output(stream: str, data: bytes) -> None:
        nonlocal calls
        calls += 1
        raise BrokenPipeError

    raw = run(spec("head", "-c", "300000", "/dev/zero"), on_output=on_output)

    assert calls == 1
    assert raw.stdout.length == 300_000
    assert raw.exit_code == 0


def test_any_other_error_of_the_reader_ends_the_command() -> None:
    pids: list[int] = []

    def on_output(stream: str, data: bytes) -> None:
        pids.append(int(data))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(spec("sh", "-c", "echo $$; exec sleep 60"), on_output=on_output)

    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_long_output_keeps_head_and_tail() -> None:  # row 15
    code = "import sys; sys.stdout.write(''.join(f'{i:07}\\n' for i in range(100_000)))"
    whole = b"".join(b"%07d\n" % i for i in range(100_000))
    limit = 10_000

    raw = run(spec(PYTHON, "-c", code), limit=limit)

    side = limit // 2 + MARGIN
    assert raw.stdout.head == whole[:side]
    assert raw.stdout.tail == whole[-side:]
    assert raw.stdout.omitted == len(whole) - 2 * side
    assert raw.stdout.length == len(whole) == 800_000
    assert raw.stdout.sha256 == hashlib.sha256(whole).hexdigest()


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_nothing_is_omitted_as_long_as_both_sides_meet(more: int) -> None:  # row 15
    limit = 1000
    size = limit + 2 * MARGIN + more

    raw = run(spec("head", "-c", str(size), "/dev/zero"), limit=limit)

    assert raw.stdout.length == size
    assert raw.stdout.omitted == max(0, more)
    assert len(raw.stdout.head) + len(raw.stdout.tail) + raw.stdout.omitted == size
    assert (raw.stdout.tail == b"") is (more <= 0)


def grown_by(tmp_path: Path, size: str, number: int) -> None:
    """Write `size` to both streams and look at our memory; `number` is the size in bytes."""
    text = f"head -c {size} /dev/zero; head -c {size} /dev/zero >&2"
    out = tmp_path / "outcome"

    subprocess.run(command(out, spec("sh", "-c", text), live=False), check=True)

    result = outcome(out)
    digest = hashlib.sha256()
    for _ in range(number // 1024**2):
        digest.update(bytes(1024**2))
    assert result["lengths"] == [number, number]
    assert result["digests"] == [digest.hexdigest()] * 2
    assert result["kept"] <= 1024**2 + 2 * MARGIN
    assert result["grown_kib"] <= 100 * 1024


def test_much_output_needs_little_memory(tmp_path: Path) -> None:  # row 15
    grown_by(tmp_path, "64M", 64 * 1024**2)


@pytest.mark.slow
def test_a_gigabyte_on_each_stream_needs_little_memory(tmp_path: Path) -> None:  # row 15
    grown_by(tmp_path, "1G", 1024**3)


# --- In threads, and without leaks ------------------------------------------------------------


def test_many_commands_at_once_keep_their_own_ends() -> None:  # rows 18, 19
    def one(number: int) -> tuple[int | None, bytes, tuple[int, ...]]:
        # Each leaves an orphan behind that ends by itself before the command does.
        text = f"(sleep 0.02 &); echo {number}; sleep 0.05; exit {number}"
        raw = run(spec("sh", "-c", text))
        return raw.exit_code, raw.stdout.head, raw.leftovers

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(40)))

    assert answers == [(number, b"%d\n" % number, ()) for number in range(40)]


def test_children_of_others_are_left_alone() -> None:  # row 18
    others: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        # When the thread ends, its children are given to the main thread, as orphans are.
        others.append(subprocess.Popen(["sleep", "60"], start_new_session=True))

    thread = threading.Thread(target=start)
    try:
        thread.start()
        raw = run(spec("sleep", "0.2"))
        thread.join()
        assert raw.leftovers == ()
        assert others[0].poll() is None
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_nothing_stays_open() -> None:
    def descriptors() -> list[str]:
        return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())

    run(spec("true"))
    before = descriptors()
    for more in ({}, {"pty": True}, {"stdin": b"x"}, {"merge": True}):
        run(spec("cat", **more))
        run(spec("no-such-command-here", **more))

    def fail(stream: str, data: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(spec("echo"), on_output=fail)

    assert len(descriptors()) == len(before)
