"""What a review found: streams that are missing, folders that are gone, stores elsewhere."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from running import Shell, clean_environment

TOKEN = "ghp_" + "abcdefghij1234567890ABCDEFGHIJ654321"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_a_missing_stream_loses_no_capture(shell: Shell, closed: str) -> None:
    line = f'"$0" -m repotrace capture --id kept sh -c "echo out; echo err >&2; exit 4" {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable],
        cwd=shell.cwd,
        env=clean_environment(shell.home),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 4
    assert b"Traceback" not in done.stderr
    report = json.loads((shell.cwd / ".repotrace/reports/kept.json").read_bytes())
    messages = [event["message"] for event in report["metadata"]["events"]]
    assert {"out\n", "err\n"} <= set(messages)


def test_a_narrow_encoding_is_no_bug(shell: Shell) -> None:
    title = "caf\u00e9 \u2603 \U0001f600"
    done = shell(
        *("capture", "--json", "--title", title, "sh", "-c", "exit 3"),
        env={"PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 3
    assert json.loads(done.stdout)["title"] == title
    assert shell("list", "--long", env={"PYTHONIOENCODING": "ascii"}).returncode == 0


@pytest.mark.parametrize(("command", "code"), [("list", 2), ("capture true", 125)])
def test_a_folder_that_is_gone_is_said(shell: Shell, command: str, code: int) -> None:
    line = f'mkdir gone && cd gone && rmdir ../gone && "$0" -m repotrace {command}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable],
        cwd=shell.cwd,
        env=clean_environment(shell.home),
        capture_output=True,
        check=False,
    )
    assert done.returncode == code
    assert b"The current folder is gone." in done.stderr


def test_a_store_in_another_repository_does_not_move_the_command(
    shell: Shell, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "name").write_text("other\n")
    (shell.cwd / "name").write_text("work\n")
    for folder in (shell.cwd, other):
        shell.git("-C", str(folder), "init", "-q")
        shell.git("-C", str(folder), "add", "name")
        shell.git("-C", str(folder), "commit", "-qm", folder.name)
    store = ("--store", other / "reports")
    shell("capture", *store, "--id", "a", "sh", "-c", "cat name; exit 3")
    assert b"no differences" in shell("replay", *store, "a").stdout


def test_a_clone_with_its_store_still_runs_in_the_clone(shell: Shell, tmp_path: Path) -> None:
    (shell.cwd / "name").write_text("work\n")
    shell.git("init", "-q")
    shell.git("add", "name")
    shell.git("commit", "-qm", "work")
    shell("capture", "--id", "a", "sh", "-c", "cat name; exit 3")
    shell.git("add", ".repotrace")
    shell.git("commit", "-qm", "report")
    shell.git("clone", "-q", ".", str(tmp_path / "clone"))
    (tmp_path / "clone" / "name").write_text("changed\n")
    assert shell("replay", "a", cwd=tmp_path / "clone").returncode == 1
    assert shell("replay", "a").returncode == 0


def test_a_secret_that_is_given_back_counts_as_the_same(shell: Shell) -> None:
    shell("capture", "--id", "a", "sh", "-c", f"echo {TOKEN}; exit 3")
    needed = json.loads(shell("replay", "--json", "a").stdout)["missing"]
    done = shell("replay", "a", env={needed[0]: TOKEN})
    assert b"no differences" in done.stdout
    assert TOKEN.encode() not in done.stdout + done.stderr


def test_accepting_keeps_the_variables_that_were_kept(shell: Shell) -> None:
    shell("capture", "--id", "a", "--env", "FOO", "sh", "-c", "echo $FOO; exit 3", env={"FOO": "x"})
    shell("replay", "--accept", "a")
    assert shell("replay", "a").returncode == 0


def test_accepting_keeps_what_others_wrote_into_the_report(shell: Shell) -> None:
    shell("capture", "--id", "a", "sh", "-c", "exit 3")
    path = shell.cwd / ".repotrace/reports/a.json"
    report = json.loads(path.read_bytes())
    report["metadata"]["ticket"] = 17
    path.write_text(json.dumps(report))
    shell("replay", "--accept", "a")
    assert json.loads(path.read_bytes())["metadata"]["ticket"] == 17


def test_a_fixed_test_is_told_without_the_secrets_of_the_capture(shell: Shell) -> None:
    shell.cwd.joinpath("test_it.py").write_text(
        "import pathlib\n"
        "def test_a(): assert not pathlib.Path('a').exists()\n"
        "def test_b(): assert False\n"
    )
    shell.cwd.joinpath("a").touch()
    shell(
        *("capture", "--id", "p", "python", "-m", "pytest", "-q", "test_it.py"),
        env={"API_TOKEN": "abcdefgh12345"},
    )
    shell.cwd.joinpath("a").unlink()
    assert b"1 of 2 still fail; fixed: test_a" in shell("replay", "p").stdout
