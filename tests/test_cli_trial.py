"""What a critical first user stumbled over, as the command line shows it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from running import Shell, clean_environment

SCRIPTS = Path(__file__).parent.parent / "scripts"

HANG = "import time; print('waiting', flush=True); time.sleep(600)"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def interrupt_capture(shell: Shell) -> str:
    """The id of a report of a command that somebody ended by Ctrl-C."""
    running = shell.start("capture", "python", "-c", HANG)
    assert running.stdout is not None
    assert running.stdout.readline() == b"waiting\n"
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=30)
    return shell("list", "--quiet").stdout.decode().strip()


def test_the_replay_of_an_interrupted_command_ends_and_says_what_to_do(shell: Shell) -> None:
    report = interrupt_capture(shell)
    done = shell("replay", report)
    assert done.returncode == 2
    line = done.stdout.decode()
    assert "`cannot-run`" in line
    assert "it was interrupted when it was recorded" in line
    assert "--timeout" in line


def test_an_interrupted_report_does_not_hold_up_a_sweep(shell: Shell) -> None:
    report = interrupt_capture(shell)
    shell("capture", "sh", "-c", "exit 3")
    done = shell("replay-all", "--format", "json")
    assert done.returncode == 2
    rows = json.loads(done.stdout)["results"]
    verdicts = {row["report_id"]: row["verdict"] for row in rows}
    assert verdicts.pop(report) == "cannot-run"
    assert list(verdicts.values()) == ["same"]


def test_an_interrupted_command_can_be_given_a_limit_and_recorded_anew(shell: Shell) -> None:
    report = interrupt_capture(shell)
    assert shell("replay", report, "--timeout", "1", "--accept").returncode == 0
    done = shell("replay", report)
    assert done.returncode == 0, done.stdout


def test_the_launcher_needs_no_cmp(tmp_path: Path) -> None:
    """It took the missing program for a difference, and never ended."""
    root = tmp_path / "checkout"
    binaries = root / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "repotrace"):
        (binaries / name).write_text("#!/bin/sh\necho ran\n")
        (binaries / name).chmod(0o755)
    shutil.copytree(SCRIPTS, root / "scripts")
    for name in ("pyproject.toml", "uv.lock", ".venv/.repotrace-synced.lock"):
        (root / name).write_text("version = 1\n")
    (root / ".venv" / ".repotrace-synced").write_text(f"{root.resolve()}\n")
    few = tmp_path / "few"
    few.mkdir()
    for name in ("sh", "cat", "dirname", "readlink"):
        found = shutil.which(name)
        assert found is not None
        (few / name).symlink_to(os.path.realpath(found))
    done = subprocess.run(
        [few / "sh", root / "scripts" / "repotrace"],
        env=clean_environment(tmp_path) | {"PATH": str(few)},
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")


def test_the_summary_begins_a_line_of_its_own(shell: Shell) -> None:
    done = shell("capture", "sh", "-c", "printf '50%%' >&2; exit 2")
    assert done.stderr.startswith(b"50%\ncaptured ")
    whole = shell("capture", "sh", "-c", "echo done >&2; exit 2")
    assert whole.stderr.startswith(b"done\ncaptured ")
    apart = shell("capture", "sh", "-c", "printf '50%%'; exit 2")
    assert apart.stdout == b"50%"
    assert apart.stderr.startswith(b"captured ")


def test_a_gate_wants_a_closed_success_to_stay(shell: Shell) -> None:
    (shell.cwd / "answer").write_text("42\n")
    shell("capture", "--id", "good", "cat", "answer")
    shell("set", "good", "--status", "closed")
    assert shell("replay-all", "--gate").returncode == 0
    (shell.cwd / "answer").write_text("41\n")
    assert shell("replay-all", "--gate").returncode == 1


def make_venv(folder: Path) -> dict[str, str]:
    """A virtual environment, and the variables of a shell in which it is active."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    path = os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", os.defpath)])
    return {"VIRTUAL_ENV": str(folder), "PATH": path}


def test_a_clone_is_replayed_in_its_own_environment(shell: Shell, tmp_path: Path) -> None:
    shell.git("init", "-q")
    (shell.cwd / ".gitignore").write_text(".venv/\n")
    code = "import os, sys; print(os.path.basename(sys.prefix)); sys.exit(2)"
    done = shell("capture", "--id", "one", "python", "-c", code, env=make_venv(shell.cwd / ".venv"))
    assert done.stdout == b".venv\n"
    shell.git("add", ".")
    shell.git("commit", "-q", "-m", "with the report")
    clone = tmp_path / "clone"
    shell.git("clone", "-q", str(shell.cwd), str(clone))
    active = make_venv(clone / "another")
    view = json.loads(shell("replay", "one", "--json", cwd=clone, env=active).stdout)
    assert view["cwd"] == str(clone)
    assert view["stdout"] == {"expected": ".venv\n", "observed": "another\n"}
