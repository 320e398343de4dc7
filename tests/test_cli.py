"""The command line, run as a process: what it prints where, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running import BOOM, BOOM_ID, Shell, clean_environment

PYTHON = shlex.quote(sys.executable)


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def boom(repotrace: Shell) -> str:
    assert repotrace("capture", *BOOM).returncode == 7
    return BOOM_ID


def report_file(repotrace: Shell, name: str) -> Path:
    return repotrace.cwd / ".repotrace" / "reports" / f"{name}.json"


# --- capture ------------------------------------------------------------------------------


def test_capture_passes_output_and_exit_code_on(repotrace: Shell) -> None:
    done = repotrace("capture", *BOOM)
    assert done.returncode == 7
    assert done.stdout == b"boom\n"
    assert done.stderr == b"captured 5303b4f97c12\nexit code 7\n"


def test_capture_writes_raw_bytes(repotrace: Shell) -> None:
    code = r"import sys; sys.stdout.buffer.write(b'\xff\x00[red]\r\n\x1b[1m'); sys.exit(1)"
    assert repotrace("capture", "python", "-c", code).stdout == b"\xff\x00[red]\r\n\x1b[1m"


@pytest.mark.parametrize("flag", ["-s", "--help", "--timeout", "--store", "--json", "-h"])
def test_row_8_flags_of_the_command_are_its_own(repotrace: Shell, flag: str) -> None:
    code = "import sys; print(sys.argv[1:]); sys.exit(5)"
    done = repotrace("capture", "python", "-c", code, flag, "9")
    assert done.returncode == 5
    assert done.stdout.decode() == f"{[flag, '9']}\n"


def test_row_8_a_double_dash_ends_our_options(repotrace: Shell) -> None:
    done = repotrace("capture", "--title", "T", "--", "python", "-c", BOOM[2], "--", "x")
    assert done.returncode == 7
    command = json.loads(report_file(repotrace, saved(done)).read_text())
    assert command["metadata"]["command_run"]["argv"][-2:] == ["--", "x"]


def saved(done: subprocess.CompletedProcess[bytes]) -> str:
    found = re.search(rb"captured (\S+)", done.stderr)
    assert found, done.stderr
    return found[1].decode()


def test_a_typo_in_an_option_is_a_usage_error(repotrace: Shell) -> None:
    assert repotrace("capture", "--titel", "x", "true").returncode == 2


def test_row_1_2_3_what_cannot_start(repotrace: Shell) -> None:
    missing = repotrace("capture", "no-such-command-here")
    assert missing.returncode == 127
    assert b"no-such-command-here" in missing.stderr
    (repotrace.cwd / "plain").write_text("echo hi\n")
    assert repotrace("capture", "./plain").returncode == 126
    (repotrace.cwd / "plain").chmod(0o755)
    no_shebang = repotrace("capture", "./plain")
    assert no_shebang.returncode == 126
    assert b"sh ./plain" in no_shebang.stderr
    assert repotrace("capture", ".").returncode == 126
    assert b"4 report(s)" in repotrace("list").stdout


def test_row_4_our_own_failure_before_the_run_is_125(repotrace: Shell) -> None:
    done = repotrace("capture", "--cwd", "gone", "true")
    assert done.returncode == 125
    assert b"gone" in done.stderr
    assert repotrace("list").stdout == b"no reports stored\n"


def test_row_5_killed_by_a_signal(repotrace: Shell) -> None:
    done = repotrace("capture", "sh", "-c", "kill -SEGV $$")
    assert done.returncode == 139
    assert b"killed by SIGSEGV (signal 11)" in done.stderr


def test_row_17_timeout(repotrace: Shell) -> None:
    done = repotrace("capture", "--timeout", "0.5", "sh", "-c", "echo early; sleep 60")
    assert done.returncode == 124
    assert done.stdout == b"early\n"
    assert b"timed out after 0.5 s" in done.stderr


def test_keep_going_and_only_failures(repotrace: Shell) -> None:
    assert repotrace("capture", "--keep-going", *BOOM).returncode == 0
    done = repotrace("capture", "--only-failures", "true")
    assert done.returncode == 0
    assert b"nothing stored" in done.stderr
    assert repotrace("list", "-q").stdout == b"5303b4f97c12\n"


def test_row_9_and_10_ids(repotrace: Shell) -> None:
    for bad in ("../x", "-x", "latest", "a/b", ".x", "x" * 65):
        done = repotrace("capture", f"--id={bad}", "true")
        assert done.returncode == 125, bad
        assert b"Traceback" not in done.stderr
    assert repotrace("capture", "--id", "mine.1", *BOOM).returncode == 7
    assert report_file(repotrace, "mine.1").is_file()


def test_fields_of_the_report(repotrace: Shell) -> None:
    options = ["--title", "Boom", "--severity", "high", "--tags", "flaky, ci"]
    repotrace("capture", *options, *BOOM)
    report = json.loads(report_file(repotrace, BOOM_ID).read_text())
    assert (report["title"], report["severity"]) == ("Boom", "high")
    assert report["tags"] == ["flaky", "ci"]
    assert report["status"] == "open"
    assert report["metadata"]["exit_code"] == 7
    assert [event["kind"] for event in report["metadata"]["events"]] == [
        "command",
        "stdout",
        "exit",
    ]


def test_occurrences_are_counted_without_touching_the_file(repotrace: Shell) -> None:
    boom(repotrace)
    before = report_file(repotrace, BOOM_ID).read_bytes()
    done = repotrace("capture", *BOOM)
    assert done.stderr.endswith(b"seen 2 times\n")
    assert report_file(repotrace, BOOM_ID).read_bytes() == before
    repotrace("set", BOOM_ID, "--status", "fixed")
    done = repotrace("capture", *BOOM)
    assert done.stderr.endswith(b"seen 3 times, though its status is fixed\n")


def test_row_22_piped_input_is_recorded_and_fed_again(repotrace: Shell) -> None:
    code = "import sys; print(sys.stdin.read().upper()); sys.exit(1)"
    done = repotrace("capture", "python", "-c", code, stdin=b"hello")
    assert done.stdout == b"HELLO\n"
    assert repotrace("replay", saved(done), stdin=b"").returncode == 0
    (repotrace.cwd / "in.txt").write_bytes(b"file\xff")
    code = "import sys; sys.exit(len(sys.stdin.buffer.read()))"
    done = repotrace("capture", "--stdin", "in.txt", "python", "-c", code)
    assert done.returncode == 5
    assert repotrace("replay", saved(done)).returncode == 0


def test_row_29_shell(repotrace: Shell) -> None:
    done = repotrace("capture", "--shell", "echo one | tr a-z A-Z; exit 3")
    assert (done.returncode, done.stdout) == (3, b"ONE\n")
    assert repotrace("replay").returncode == 0


def test_row_23_merge(repotrace: Shell) -> None:
    done = repotrace("capture", "--merge", "sh", "-c", "echo a; echo b >&2; echo c; exit 1")
    assert done.stdout == b"a\nb\nc\n"


def test_row_24_pty(repotrace: Shell) -> None:
    code = "import sys; print(sys.stdout.isatty()); sys.exit(1)"
    assert b"True" in repotrace("capture", "--pty", "python", "-c", code).stdout
    assert repotrace("replay").returncode == 0


def test_capture_as_json(repotrace: Shell) -> None:
    done = repotrace("capture", "--json", *BOOM)
    assert done.returncode == 7
    view = json.loads(done.stdout)
    assert (view["schema_version"], view["id"], view["exit_code"]) == (1, BOOM_ID, 7)
    assert Path(view["path"]).is_file()
    assert b"boom" in done.stderr


def test_row_28_a_closed_pipe_does_not_lose_the_report(repotrace: Shell) -> None:
    env = clean_environment(repotrace.home)
    line = f"{PYTHON} -m repotrace capture sh -c 'seq 200000; exit 3' | head -1"
    done = subprocess.run(
        ["sh", "-c", line], cwd=repotrace.cwd, env=env, capture_output=True, check=False
    )
    assert done.stdout == b"1\n"
    assert b"exit code 3" in done.stderr
    assert b"Traceback" not in done.stderr
    assert b"1 report(s)" in repotrace("list").stdout


def test_row_21_an_interrupt_keeps_what_came_before(repotrace: Shell) -> None:
    # Python would sleep through an interrupt that comes just before a long sleep.
    code = "import time; print('early', flush=True); [time.sleep(0.01) for _ in range(6000)]"
    process = repotrace.start("capture", "python", "-c", code)
    assert process.stdout is not None
    assert process.stdout.readline() == b"early\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"interrupted" in err
    shown = json.loads(repotrace("show", "--json").stdout)["report"]
    assert shown["metadata"]["command_run"]["termination"] == "interrupted"


def test_row_46_a_capture_inside_a_capture_goes_to_the_same_store(repotrace: Shell) -> None:
    inner = repotrace.cwd / "elsewhere"
    inner.mkdir()
    line = f"cd elsewhere && {PYTHON} -m repotrace capture sh -c 'exit 4'"
    assert repotrace("capture", "sh", "-c", line).returncode == 4
    assert b"2 report(s)" in repotrace("list").stdout
    assert not (inner / ".repotrace").exists()


def test_row_42_a_store_that_cannot_be_written(repotrace: Shell, tmp_path: Path) -> None:
    (repotrace.cwd / "file").write_text("")
    rescue = tmp_path / "tmp"
    rescue.mkdir()
    done = repotrace("capture", "--store", "file/reports", *BOOM, env={"TMPDIR": str(rescue)})
    assert done.returncode == 7
    assert b"Traceback" not in done.stderr
    copies = list(rescue.glob("*.json"))
    assert len(copies) == 1
    assert str(copies[0]).encode() in done.stderr
    assert json.loads(copies[0].read_text())["id"] == BOOM_ID


def test_row_41_fifty_captures_at_once_lose_nothing(repotrace: Shell) -> None:
    script = "import sys; sys.argv[0] = 'repotrace'\nfrom repotrace.cli.app import main\nmain()\n"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", script, "capture", "--id", "one", "sh", "-c", f"exit {n % 25}"],
            cwd=repotrace.cwd,
            env=clean_environment(repotrace.home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for n in range(50)
    ]
    codes = [process.wait(timeout=120) for process in started]
    assert codes == [n % 25 for n in range(50)]
    listed = json.loads(repotrace("list", "--json").stdout)
    assert len(listed["reports"]) == 25
    assert {row["exit_code"] for row in listed["reports"]} == set(range(25))
    assert sum(row["occurrences"] for row in listed["reports"]) == 50


def test_colours_are_asked_for_on_request(repotrace: Shell) -> None:
    code = "import os, sys; print(os.environ.get('FORCE_COLOR')); sys.exit(1)"
    assert repotrace("capture", "python", "-c", code).stdout == b"None\n"
    done = repotrace("--color", "always", "capture", "python", "-c", code)
    assert done.stdout == b"1\n"
    report = json.loads(report_file(repotrace, saved(done)).read_text())
    assert "FORCE_COLOR" in report["metadata"]["command_run"]["env_added"]


def test_the_commit_is_recorded(repotrace: Shell) -> None:
    repotrace.git("init", "-q", "-b", "trunk")
    repotrace.git("commit", "-q", "--allow-empty", "-m", "first")
    boom(repotrace)
    report = json.loads(report_file(repotrace, BOOM_ID).read_text())
    state = report["metadata"]["command_run"]["repository"]
    assert state["commit"] == repotrace.git("rev-parse", "HEAD").strip()
    assert state["branch"] == "trunk"
    assert state.get("dirty", False) is False
    assert repotrace.git("status", "--porcelain") == "?? .repotrace/\n"
    assert repotrace.git("status", "--porcelain", "-uall").splitlines() == [
        f"?? .repotrace/reports/{BOOM_ID}.json"
    ]


def test_a_report_of_a_subfolder_lies_in_the_root(repotrace: Shell) -> None:
    repotrace.git("init", "-q")
    inner = repotrace.cwd / "a" / "b"
    inner.mkdir(parents=True)
    assert repotrace("capture", *BOOM, cwd=inner).returncode == 7
    assert report_file(repotrace, BOOM_ID).is_file()
    assert repotrace("replay", cwd=inner).returncode == 0


# --- list, show, set ----------------------------------------------------------------------


def test_list(repotrace: Shell) -> None:
    assert repotrace("list").stdout == b"no reports stored\n"
    boom(repotrace)
    assert repotrace("list").stdout == b"5303b4f97c12\n\n1 report(s)\n"
    assert repotrace("list", "--quiet").stdout == b"5303b4f97c12\n"
    long = repotrace("list", "--long").stdout.decode()
    assert "Command failed: python -c import sys" in long
    rows = json.loads(repotrace("list", "--json").stdout)
    assert rows["reports"][0]["id"] == BOOM_ID
    assert repotrace("list", "-q", "--status", "closed").stdout == b""
    assert repotrace("list", "-q", "--tag", "capture").stdout == b"5303b4f97c12\n"


def test_list_into_head_is_quiet(repotrace: Shell) -> None:
    boom(repotrace)
    env = clean_environment(repotrace.home)
    line = f"{PYTHON} -m repotrace list | head -1"
    done = subprocess.run(
        ["sh", "-c", line], cwd=repotrace.cwd, env=env, capture_output=True, check=False
    )
    assert done.stdout == b"5303b4f97c12\n"
    assert done.stderr == b""


def test_show(repotrace: Shell) -> None:
    boom(repotrace)
    text = repotrace("show", "5303").stdout.decode()
    assert "Report 5303b4f97c12" in text
    assert "Command failed: python -c import sys" in text
    assert f"cwd: '{repotrace.cwd}'" in text
    assert "exit_code: 7" in text
    assert repotrace("show", BOOM_ID, "--markdown").stdout.startswith(b"# Capture report: ")


def test_show_suggests_near_misses(repotrace: Shell) -> None:
    boom(repotrace)
    done = repotrace("show", "5303b4f97c13")
    assert done.returncode == 2
    assert b"5303b4f97c12" in done.stderr


def test_set(repotrace: Shell) -> None:
    boom(repotrace)
    args = ["--status", "closed", "--assignee", "mia", "--tags", "a,b", "--severity", "low"]
    assert repotrace("set", BOOM_ID, *args, "--description", "why").returncode == 0
    report = json.loads(report_file(repotrace, BOOM_ID).read_text())
    assert report["status"] == "closed"
    assert report["assignee"] == "mia"
    assert report["tags"] == ["a", "b"]
    assert report["description"] == "why"
    assert repotrace("set", BOOM_ID).returncode == 2


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("clsoed", "did you mean 'closed'? 'clsoed' is a word of your own, and counts as open"),
        ("wontfix", "'wontfix' is a word of your own, and counts as open"),
        ("Fixed", None),
        ("in progress", None),
    ],
)
def test_set_says_what_an_unusual_status_counts_as(
    repotrace: Shell, status: str, said: str | None
) -> None:
    boom(repotrace)
    done = repotrace("set", BOOM_ID, "--status", status)
    assert done.returncode == 0
    lines = done.stderr.decode().splitlines()
    assert lines[0] == f"changed status of {BOOM_ID}"
    assert [line.partition(";")[0] for line in lines[1:]] == ([said] if said else [])
    assert json.loads(report_file(repotrace, BOOM_ID).read_text())["status"] == status


# --- replay, replay-all -------------------------------------------------------------------


def test_replay(repotrace: Shell) -> None:
    boom(repotrace)
    done = repotrace("replay", BOOM_ID)
    assert done.returncode == 0
    assert done.stdout.decode() == "5303b4f97c12 `matched` — no differences\n"
    assert b"python -c" in done.stderr
    assert "same" in repotrace("show", BOOM_ID).stdout.decode()


def changing(repotrace: Shell) -> str:
    (repotrace.cwd / "s.py").write_text("print('one')\nraise SystemExit(1)\n")
    return saved(repotrace("capture", "python", "s.py"))


def test_replay_of_something_else(repotrace: Shell) -> None:
    name = changing(repotrace)
    (repotrace.cwd / "s.py").write_text("print('two')\nraise SystemExit(2)\n")
    done = repotrace("replay", name)
    assert done.returncode == 1
    text = done.stdout.decode()
    assert "exit code 1 -> 2" in text
    assert "-one" in text
    assert "+two" in text
    assert repotrace("replay", name, "--keep-going").returncode == 0
    assert repotrace("replay", name, "--bisect").returncode == 125
    assert repotrace("replay", name, "--expect", "fixed").returncode == 1


def test_replay_of_something_fixed(repotrace: Shell) -> None:
    name = changing(repotrace)
    assert repotrace("replay", name, "--bisect").returncode == 1
    (repotrace.cwd / "s.py").write_text("print('one')\n")
    assert repotrace("replay", name).returncode == 1
    assert repotrace("replay", name, "--expect", "fixed").returncode == 0
    assert repotrace("replay", name, "--bisect").returncode == 0


def test_git_bisect_finds_the_commit(repotrace: Shell) -> None:
    repotrace.git("init", "-q")
    for n in range(6):
        (repotrace.cwd / "s.py").write_text(f"raise SystemExit({int(n >= 3)})  # {n}\n")
        repotrace.git("add", "s.py")
        repotrace.git("commit", "-q", "-m", f"change {n}")
    name = saved(repotrace("capture", "python", "s.py"))
    repotrace.git("bisect", "start", "HEAD", "HEAD~5")
    out = repotrace.git(
        "bisect", "run", sys.executable, "-m", "repotrace", "replay", name, "--bisect"
    )
    assert re.search(r"is the first bad commit[\s\S]*change 3", out)


def test_a_difference_in_what_was_not_kept_is_told(repotrace: Shell) -> None:
    (repotrace.cwd / "repotrace.toml").write_text("output_limit = 100\n")
    (repotrace.cwd / "s.py").write_text("print('x' * 500 + '1' + 'x' * 500); raise SystemExit(1)\n")
    name = saved(repotrace("capture", "python", "s.py"))
    (repotrace.cwd / "s.py").write_text("print('x' * 500 + '2' + 'x' * 500); raise SystemExit(1)\n")
    last = repotrace("replay", name).stdout.decode().splitlines()[-1]
    assert last == "  stdout differs in what was not kept of it; see output_limit"


def test_what_keeps_a_replay_from_answering_is_no_answer_to_git_bisect(repotrace: Shell) -> None:
    assert repotrace("replay", "--bisect").returncode == 125
    boom(repotrace)
    assert repotrace("replay", "abc", "--bisect").returncode == 125
    assert repotrace("replay", "--bisect", "--env", "NO_SUCH_VARIABLE").returncode == 125
    assert repotrace("replay", "--bisect", "--at-captur").returncode == 125
    report_file(repotrace, BOOM_ID).write_text("{")
    assert repotrace("replay", BOOM_ID, "--bisect").returncode == 125
    assert repotrace("replay", BOOM_ID).returncode == 2
    assert repotrace("replay", "--no-such-option").returncode == 2


def test_exact_shows_what_normalising_would_hide(repotrace: Shell) -> None:
    code = "import os, sys; print(os.getcwd()); sys.exit(1)"
    name = saved(repotrace("capture", "python", "-c", code))
    elsewhere = repotrace.home / "elsewhere"
    elsewhere.mkdir()
    done = repotrace("replay", name, "--exact", "--cwd", elsewhere)
    assert done.returncode == 1
    assert f"-{repotrace.cwd}" in done.stdout.decode()
    assert f"+{elsewhere}" in done.stdout.decode()


def test_replay_that_cannot_run(repotrace: Shell) -> None:
    tool = repotrace.cwd / "tool"
    tool.write_text("#!/bin/sh\nexit 5\n")
    tool.chmod(0o755)
    name = saved(repotrace("capture", "./tool"))
    tool.unlink()
    done = repotrace("replay", name)
    assert done.returncode == 2
    assert b"cannot-run" in done.stdout
    assert b"./tool" in done.stdout
    assert repotrace("replay", "nothing").returncode == 2


def test_replay_accept(repotrace: Shell) -> None:
    name = changing(repotrace)
    (repotrace.cwd / "s.py").write_text("raise SystemExit(4)\n")
    done = repotrace("replay", name, "--accept")
    assert done.returncode == 0
    assert b"exit code 1 -> 4" in done.stdout
    assert repotrace("replay", name).returncode == 0


def test_replay_dry_run_and_env_and_json(repotrace: Shell) -> None:
    code = "import os, sys; sys.exit(int(os.environ.get('N', 3)))"
    name = saved(repotrace("capture", "python", "-c", code))
    dry = repotrace("replay", name, "--dry-run")
    assert dry.returncode == 0
    assert b"python -c" in dry.stdout
    view = json.loads(repotrace("replay", name, "--json", "--env", "N=4").stdout)
    assert view["verdict"] == "different-failure"
    assert view["exit_code"] == {"expected": 3, "observed": 4}


def test_replay_repeat(repotrace: Shell) -> None:
    boom(repotrace)
    done = repotrace("replay", BOOM_ID, "--repeat", "3")
    assert done.returncode == 0
    assert b"3 of 3" in done.stdout


def test_replay_all(repotrace: Shell) -> None:
    assert repotrace("replay-all").stdout == b"no reports stored\n"
    boom(repotrace)
    done = repotrace("replay-all")
    assert done.returncode == 0
    text = done.stdout.decode()
    assert "Replay summary" in text
    assert (
        text.splitlines()[-1]
        == "replayed 1 · reproduced 1 · differs 0 · failed 0 · reproducibility 100%"
    )
    done = repotrace("replay-all", "-o", "sweep.md")
    assert done.stdout == b"wrote sweep.md\n"
    assert (repotrace.cwd / "sweep.md").read_text().startswith("# Replay summary\n")
    assert repotrace("replay-all", "-o", "sweep.md").returncode == 2
    assert repotrace("replay-all", "-o", "sweep.md", "--overwrite").returncode == 0


def test_replay_all_formats(repotrace: Shell) -> None:
    boom(repotrace)
    assert json.loads(repotrace("replay-all", "--format", "json").stdout)["total"] == 1
    assert b"<testsuite" in repotrace("replay-all", "--format", "junit").stdout
    assert repotrace("replay-all", "--format", "markdown").stdout.startswith(b"# Replay summary")
    assert repotrace("replay-all", "--format", "github").returncode == 0


def test_row_43_and_45_unreadable_reports_are_rows(repotrace: Shell) -> None:
    boom(repotrace)
    report_file(repotrace, "broken").write_text("{")
    text = report_file(repotrace, BOOM_ID).read_text()
    report_file(repotrace, "renamed").write_text(text)
    done = repotrace("replay-all")
    assert done.returncode == 2
    assert b"broken" in done.stdout
    assert b"renamed" in done.stdout
    assert "failed 2" in done.stdout.decode()
    assert repotrace("show", "broken").returncode == 2


def test_row_44_a_newer_schema_is_refused_by_name(repotrace: Shell) -> None:
    boom(repotrace)
    report = json.loads(report_file(repotrace, BOOM_ID).read_text())
    report["metadata"]["schema_version"] = 99
    report_file(repotrace, BOOM_ID).write_text(json.dumps(report))
    done = repotrace("replay", BOOM_ID)
    assert done.returncode == 2
    assert b"newer" in done.stderr


def test_gate(repotrace: Shell) -> None:
    name = changing(repotrace)
    assert repotrace("replay-all", "--gate").returncode == 0
    repotrace("set", name, "--status", "closed")
    done = repotrace("replay-all", "--gate", "-o", "sweep.md")
    assert done.returncode == 1
    assert done.stderr.endswith(
        f"not as the gate wants it: {name}: closed, but reproduced: no differences\n".encode()
    )
    (repotrace.cwd / "s.py").write_text("pass\n")
    assert repotrace("replay-all", "--gate").returncode == 0
    assert repotrace("replay-all").returncode == 1


@pytest.mark.parametrize(
    ("argv", "way"),
    [
        (("echo hi | grep ho",), "repotrace capture --shell 'echo hi | grep ho'"),
        (("cd", "a b"), "repotrace capture --shell 'cd '\"'\"'a b'\"'\"''"),
        (("A_B=1", "pytest"), "A_B=1 repotrace capture …"),
        (("nosuchprogram", "a b"), None),
        (("./no-such.sh",), None),
        ((" ",), None),
    ],
)
def test_what_a_shell_would_understand_is_told_how(
    repotrace: Shell, argv: tuple[str, ...], way: str | None
) -> None:
    done = repotrace("capture", *argv)
    assert done.returncode == 127
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("not started: ") if way is None else last.endswith(f": {way}")


def test_an_id_of_the_other_kind_is_told(repotrace: Shell) -> None:
    boom(repotrace)
    done = repotrace("runs", "delete", "5303", "--yes")
    assert done.returncode == 2
    path = report_file(repotrace, BOOM_ID)
    assert done.stderr.decode() == (
        f"repotrace: {BOOM_ID} is a report, not a run.\n"
        f"  Show it with: repotrace show {BOOM_ID}, or delete its file: {path}\n"
    )
    repotrace("record", "--", "true")
    run = json.loads(repotrace("runs", "list", "--json").stdout)["runs"][0]["id"]
    done = repotrace("replay", run[:6])
    assert done.returncode == 2
    assert done.stderr.decode() == (
        f"repotrace: {run} is a run, not a report.\n"
        f"  Make one of what failed in it with: repotrace runs report {run}\n"
    )
    assert run in repotrace("show", run[:6]).stdout.decode()


def hanging(repotrace: Shell, name: str) -> Path:
    """A report of a command that hangs; the file that it writes when it is replayed."""
    line = f"echo > {name}-started; exec sleep 60"
    repotrace("capture", "--id", name, "--timeout", "0.5", "sh", "-c", line)
    path = report_file(repotrace, name)
    report = json.loads(path.read_text())
    report["metadata"]["command_run"]["timeout"] = 60
    path.write_text(json.dumps(report))
    started = repotrace.cwd / f"{name}-started"
    started.unlink(missing_ok=True)
    return started


def interrupted_sweep(repotrace: Shell, jobs: int, *started: Path) -> tuple[str, str]:
    """What is printed by a sweep that gets a ^C when these commands run."""
    process = repotrace.start("replay-all", "--jobs", str(jobs))
    deadline = time.monotonic() + 60
    while not all(file.exists() for file in started) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    return out.decode(), err.decode()


def test_ctrl_c_in_a_sweep_keeps_what_is_finished(repotrace: Shell) -> None:
    repotrace("capture", "--id", "a", "sh", "-c", "exit 1")
    out, err = interrupted_sweep(repotrace, 1, hanging(repotrace, "b"))
    assert "reproduced 1" in out
    assert "1 of 2 reports were not replayed" in err


def test_ctrl_c_in_a_row_of_runs_keeps_those_that_ended(repotrace: Shell) -> None:
    line = (
        "printf x >> runs; [ $(wc -c < runs) -lt 4 ] || { echo > fourth; exec sleep 60; }; exit 3"
    )
    repotrace("capture", "sh", "-c", line)
    process = repotrace.start("replay", "--repeat", "9")
    deadline = time.monotonic() + 60
    while not (repotrace.cwd / "fourth").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out.decode().endswith("`matched` — no differences (2 of 2 runs reproduced)\n")
    assert err.decode().endswith("repotrace: interrupted after 2 of 9 runs\n")


def test_ctrl_c_before_one_has_ended_does_not_say_that_there_are_none(repotrace: Shell) -> None:
    out, err = interrupted_sweep(repotrace, 2, hanging(repotrace, "a"), hanging(repotrace, "b"))
    assert out == ""
    assert err == "repotrace: interrupted; 2 of 2 reports were not replayed\n"


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("gc", "--dry-run"), "'runs gc'"),
        (("install",), "'hooks install'"),
        (("help",), "'--help'"),
        (("help", "capture"), "'capture --help'"),
        (("replya",), "'replay', 'replay-all', 'play'"),
    ],
)
def test_a_name_that_is_none_tells_what_was_meant(
    repotrace: Shell, words: tuple[str, ...], meant: str
) -> None:
    done = repotrace(*words)
    assert done.returncode == 2
    told = f"Error: No such command {words[0]!r}. Did you mean {meant}?\n"
    assert done.stderr.decode().endswith(told)


def test_a_folder_that_is_not_there_fails_before_the_run(repotrace: Shell) -> None:
    assert repotrace("-C", "nowhere", "capture", "true").returncode == 125
    assert repotrace("-C", "nowhere", "list").returncode == 2


# --- report, generate ---------------------------------------------------------------------


def test_generate_says_that_replays_printed_other_things(repotrace: Shell) -> None:
    code = "import random; print(random.random()); raise ValueError('no')"
    repotrace("capture", "python", "-c", code)
    plain = b"the test passes while the failure stays the same\n"
    assert repotrace("generate").stderr == plain
    repotrace("replay")
    told = b"but replays of it printed other things: --exit-code-only leaves the output out\n"
    assert repotrace("generate").stderr == plain + told
    assert repotrace("generate", "--exit-code-only").stderr == plain


def test_report(repotrace: Shell) -> None:
    boom(repotrace)
    text = repotrace("report", BOOM_ID).stdout.decode()
    headings = [line for line in text.splitlines() if line.startswith(("# ", "## "))]
    assert headings == [
        "# Capture report: Command failed: python -c import sys; print('boom'); sys.exit(7)",
        "## Summary",
        "## Metadata",
        "## Events",
    ]
    done = repotrace("report", BOOM_ID, "--replay", "--no-metadata", "--no-events")
    assert done.stdout.decode().startswith("# Replay report — reproduced\n")
    assert "5303b4f97c12 `matched` — no differences" in done.stderr.decode()
    assert repotrace("report", BOOM_ID, "-o", "bug.md").stdout == b"wrote bug.md\n"
    assert repotrace("report", BOOM_ID, "-o", "bug.md").returncode == 2


def test_generate(repotrace: Shell) -> None:
    boom(repotrace)
    done = repotrace("generate", BOOM_ID, "-o", "tests/test_boom.py")
    assert done.stdout == b"wrote tests/test_boom.py\n"
    path = repotrace.cwd / "tests" / "test_boom.py"
    assert "def test_regression_5303b4f97c12() -> None:" in path.read_text()
    assert run_pytest(path, repotrace).returncode == 0
    assert repotrace("generate", BOOM_ID).stdout.decode().startswith('"""Regression test')
    assert repotrace("generate", BOOM_ID, "-o", "tests/test_boom.py").returncode == 2


def test_generate_expecting_a_fix(repotrace: Shell) -> None:
    name = changing(repotrace)
    done = repotrace("generate", name, "-o", "test_s.py", "--expect", "fixed", "--name", "test_me")
    assert done.returncode == 0
    path = repotrace.cwd / "test_s.py"
    assert run_pytest(path, repotrace).returncode == 1
    (repotrace.cwd / "s.py").write_text("print('one')\n")
    assert run_pytest(path, repotrace).returncode == 0


def run_pytest(path: Path, repotrace: Shell) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        cwd=repotrace.home,
        env=clean_environment(repotrace.home),
        capture_output=True,
        check=False,
    )


# --- the whole ----------------------------------------------------------------------------


def test_version(repotrace: Shell) -> None:
    from repotrace import __version__

    assert repotrace("version").stdout.decode() == f"{__version__}\n"
    assert repotrace("--version").stdout.decode() == f"repotrace {__version__}\n"


def test_help_fits_a_terminal(repotrace: Shell) -> None:
    text = repotrace("--help").stdout.decode()
    assert len(text.splitlines()) <= 24


def test_row_56_arguments_that_cannot_be_passed(repotrace: Shell) -> None:
    done = repotrace("capture", "sh", "-c", "exit 1", "x" * 131_000)
    assert done.returncode == 1
    code = (
        "import sys\n"
        "from repotrace.cli.app import main\n"
        "sys.argv = ['repotrace', 'capture', 'echo', 'a\\0b']\n"
        "main()\n"
    )
    nul = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repotrace.cwd,
        env=clean_environment(repotrace.home),
        capture_output=True,
        check=False,
    )
    assert nul.returncode == 125
    assert b"Traceback" not in nul.stderr


def test_a_bug_of_ours_is_one_line_and_a_log(repotrace: Shell, tmp_path: Path) -> None:
    code = (
        "from repotrace.cli import boundary\n"
        "def app() -> object: raise ZeroDivisionError('ours')\n"
        "boundary.run(app)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_environment(repotrace.home, {"TMPDIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    log = Path(done.stderr.split()[-1])
    assert "ZeroDivisionError: ours" in log.read_text()


def test_another_folder(repotrace: Shell, tmp_path: Path) -> None:
    boom(repotrace)
    done = repotrace("-C", str(repotrace.cwd), "list", "-q", cwd=tmp_path)
    assert done.stdout == b"5303b4f97c12\n"
    gone = repotrace("-C", os.fspath(tmp_path / "gone"), "list")
    assert gone.returncode == 2
