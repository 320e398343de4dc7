"""Traps of recording commands that no other test is about, through the real command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import BOOM, BOOM_ID, Shell, clean_environment

from repotrace.redact import Redactor
from repotrace.system.masking import redact_terminal_output

PYTHON = sys.executable
SECRET = "Zq7" + "kfT2mWx9Lp4Rv8"


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def run_of(repotrace: Shell, report_id: str) -> dict[str, object]:
    text = (repotrace.cwd / ".repotrace" / "reports" / f"{report_id}.json").read_text()
    found = json.loads(text)["metadata"]["command_run"]
    assert isinstance(found, dict)
    return found


def test_row_7_a_code_of_ours_from_the_command_is_told_apart(repotrace: Shell) -> None:
    done = repotrace("capture", "--json", "sh", "-c", "exit 125")
    assert done.returncode == 125
    assert done.stderr == b""
    assert json.loads(done.stdout)["termination"] == "exited"
    done = repotrace("capture", "--json", "--cwd", "gone", "sh", "-c", "exit 125")
    assert done.returncode == 125
    assert done.stdout == b""
    assert done.stderr.startswith(b"repotrace: ")


def test_row_10_a_link_in_place_of_a_report_is_left_alone(repotrace: Shell) -> None:
    outside = repotrace.cwd / "outside.json"
    outside.write_text("precious")
    reports = repotrace.cwd / ".repotrace" / "reports"
    reports.mkdir(parents=True)
    link = reports / f"{BOOM_ID}.json"
    link.symlink_to(outside)

    assert repotrace("capture", *BOOM).returncode == 7
    assert (reports / f"{BOOM_ID}-2.json").is_file()
    for command in ("show", "replay", "report", "generate"):
        done = repotrace(command, BOOM_ID)
        assert done.returncode == 2, command
        assert b"symbolic link" in done.stderr
    assert repotrace("set", BOOM_ID, "--status", "closed").returncode == 2
    assert repotrace("replay-all").returncode == 2
    assert link.is_symlink()
    assert outside.read_text() == "precious"


def test_row_16_a_background_process_does_not_keep_us(repotrace: Shell) -> None:
    done = repotrace(
        "capture", "--id", "held", "sh", "-c", "sleep 50 & echo hi; exit 3", timeout=40
    )
    assert (done.returncode, done.stdout) == (3, b"hi\n")
    assert run_of(repotrace, "held")["pipe_held_open"] is True
    assert b"held the output open" in repotrace("show", "held").stdout


def test_row_24_buffering_is_not_changed_silently(repotrace: Shell) -> None:
    """What a command gets besides our own environment is where a capture inside it stores."""
    code = "import json, os; print(json.dumps(dict(os.environ))); raise SystemExit(1)"
    seen = json.loads(repotrace("capture", PYTHON, "-c", code).stdout)
    given_to_us = clean_environment(repotrace.home)
    # The interpreter itself adds LC_CTYPE in the C locale.
    added = seen.keys() - given_to_us.keys() - {"LC_CTYPE"}
    assert added == {"REPOTRACE_STORE", "REPOTRACE_HOME"}
    assert all(seen[name] == value for name, value in given_to_us.items() if name != "PWD")


def test_row_32_a_secret_is_in_nothing_that_is_kept(repotrace: Shell) -> None:
    """In arguments, script, folder, program, branch, fields, input, and under colours."""
    env = {"DEPLOY_TOKEN": SECRET}
    repotrace.git("init", "-q", "-b", f"try-{SECRET}")
    repotrace.git("commit", "-q", "--allow-empty", "-m", "x")
    folder = repotrace.cwd / f"of-{SECRET}"
    folder.mkdir()
    (folder / "tool").write_text("#!/bin/sh\npwd; cat; exit 4\n")
    (folder / "tool").chmod(0o755)
    coloured = f"printf '{SECRET[:6]}\\033[31m{SECRET[6:11]}\\033[0m%s\\n' {SECRET[11:]}; exit 3"
    fields = ["--title", f"T {SECRET}", "--tags", f"a,{SECRET}", "--severity", SECRET]
    commands: list[list[str]] = [
        ["--id", "a", *fields, "--env", "DEPLOY_TOKEN", "sh", "-c", "exit 1", SECRET],
        ["--id", "b", "--shell", f"echo {SECRET} >&2; exit 2"],
        ["--id", "c", "sh", "colours"],
        ["--id", "d", "--cwd", folder.name, "./tool"],
        ["--id", "e", f"{folder.name}/tool"],
        ["--id", "f", f"no-{SECRET}"],
    ]
    (repotrace.cwd / "colours").write_text(coloured)
    codes = [
        repotrace("capture", *command, env=env, stdin=SECRET.encode()).returncode
        for command in commands
    ]
    assert codes == [1, 2, 3, 4, 4, 127]
    assert repotrace("replay-all", env=env, stdin=b"").returncode == 0
    for name in "abcdef":
        markdown = repotrace("report", name).stdout
        assert SECRET.encode() not in markdown, name
    kept = [*repotrace.cwd.rglob(".repotrace/**/*"), *repotrace.cwd.rglob(".git/repotrace/**/*")]
    # A state is the user's own files, byte for byte and by their names; SECURITY.md says so.
    files = [path for path in kept if path.is_file() and "snapshots.git" not in path.parts]
    assert len(files) > len(commands)
    assert [path.name for path in files if SECRET.encode() in path.read_bytes()] == []
    assert "[REDACTED:env-DEPLOY_TOKEN]" in str(run_of(repotrace, "c")["signature"])


def test_row_33_a_sweep_names_the_variable_it_lacks(repotrace: Shell) -> None:
    code = "import sys; sys.exit(len(sys.argv[1]))"
    env = {"DEPLOY_TOKEN": SECRET}
    repotrace("capture", "--id", "arg", "python", "-c", code, SECRET, env=env)
    folder = repotrace.cwd / f"of-{SECRET}"
    folder.mkdir()
    repotrace("capture", "--id", "cwd", "--cwd", str(folder), "sh", "-c", "exit 1", env=env)
    assert repotrace("replay-all", env=env).returncode == 0
    done = repotrace("replay-all", "--format", "json")
    assert done.returncode == 2
    rows = json.loads(done.stdout)["results"]
    assert [row["verdict"] for row in rows] == ["cannot-run", "cannot-run"]
    assert all("needs DEPLOY_TOKEN" in str(row) for row in rows)


def test_row_35_a_command_that_shows_its_environment_is_reproduced(repotrace: Shell) -> None:
    path = clean_environment(repotrace.home)["PATH"]
    env = {"PATH": f"{path}{os.pathsep}{path}"}
    repotrace("capture", "sh", "-c", "env | grep -v '^_='; exit 1", env=env)
    done = repotrace("replay", "--json", env=env)
    assert json.loads(done.stdout)["differences"] == []


def test_row_36_a_random_hash_seed_stays_random(repotrace: Shell) -> None:
    code = "import os, sys; sys.exit(str(os.environ.get('PYTHONHASHSEED')))"
    assert b"None" in repotrace("capture", "--id", "hash", "python", "-c", code).stderr
    unset = run_of(repotrace, "hash")["env_unset"]
    assert isinstance(unset, list)
    assert "PYTHONHASHSEED" in unset
    assert repotrace("replay", env={"PYTHONHASHSEED": "7"}).returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_row_42_output_that_cannot_be_shown_is_still_recorded(
    repotrace: Shell, stream: str
) -> None:
    code = f"import sys; print('x' * 9999, file=sys.{stream}); sys.exit(5)"
    line = f'"$@" {"1" if stream == "stdout" else "2"}>/dev/full'
    command = [PYTHON, "-m", "repotrace", "capture", "--id", "full", "python", "-c", code]

    def called(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line, "sh", *argv],
            cwd=repotrace.cwd,
            env=clean_environment(repotrace.home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    done = called(*command)
    assert done.returncode == 5
    assert "bug in RepoTrace" not in done.stderr
    output = run_of(repotrace, "full")[stream]
    assert isinstance(output, dict)
    assert output["length"] == 10000
    if stream == "stdout":
        assert "No space left on device; it is recorded" in done.stderr
        as_json = called(*command[:4], "--json", "sh", "-c", "exit 6")
        assert as_json.returncode == 6
        assert "No space left on device" in as_json.stderr
        listed = called(*command[:3], "list")
        assert listed.returncode == 2
        assert listed.stderr == "repotrace: Cannot write: No space left on device.\n"


def test_row_46_a_capture_inside_a_replay_goes_to_the_same_store(
    repotrace: Shell, tmp_path: Path
) -> None:
    inner = f"'{PYTHON}' -m repotrace capture --id inner sh -c 'exit 4'"
    repotrace("capture", "--id", "outer", "--shell", inner)
    reports = repotrace.cwd / ".repotrace" / "reports"
    (reports / "inner.json").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert repotrace("replay", "outer", "--cwd", str(elsewhere)).returncode == 0
    assert (reports / "inner.json").is_file()
    assert list(elsewhere.iterdir()) == []


# --- Secrets under colours ----------------------------------------------------------------

REDACTOR = Redactor(key=b"k" * 32, variables={"DEPLOY_TOKEN": SECRET})
PIECES = st.sampled_from(
    [
        *(*SECRET, SECRET, SECRET[:9], SECRET[9:], " ", "\n", "x="),
        *("\x1b", "\x1b[31m", "\x1b[0m", "\x1b]8;;http://a.example\x1b\\", "\x1b(B"),
        "[REDACTED:env-DEPLOY_TOKEN:0123abcd]",
    ]
)


def test_row_32_colours_inside_a_secret_do_not_hide_it() -> None:
    data = f"a \x1b[1m{SECRET[:5]}\x1b[31m{SECRET[5:]}\x1b[0m b \x1b[2mc".encode()
    masked, place = redact_terminal_output(REDACTOR, data)
    assert masked.startswith(b"a \x1b[1m[REDACTED:env-DEPLOY_TOKEN:")
    assert masked.endswith(b"]\x1b[0m b \x1b[2mc")
    assert masked[place(data.index(b" b ")) :] == b" b \x1b[2mc"
    assert place(len(data)) == len(masked)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_masking_coloured_output_is_idempotent_and_ordered(text: str) -> None:
    data = text.encode()
    masked, place = redact_terminal_output(REDACTOR, data)
    assert redact_terminal_output(REDACTOR, masked)[0] == masked
    places = [place(offset) for offset in range(len(data) + 1)]
    assert places == sorted(places)
    assert places[-1] == len(masked)
    if "\x1b" not in text:
        assert masked == REDACTOR.redact_bytes(data)[0]
