"""`export` and `import` as a user runs them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_runs import PYTEST, AgentRun
from reading import LEAP, Recorded, project, record
from recording import NOON, RUN
from reporting import command_run, report_of
from running import BOOM, BOOM_ID, Shell, clean_environment

from repotrace.runs.export.exporting import EXPORTERS, export_run
from repotrace.runs.export.selection import ExportOptions
from repotrace.runs.receiving import receive
from repotrace.storage import Store


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def recorded(repotrace: Shell) -> Recorded:
    repotrace.cwd = project(repotrace.cwd / "invoice")
    return record(repotrace.cwd)


def out(done: subprocess.CompletedProcess[bytes], code: int = 0) -> str:
    assert done.returncode == code, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.usefixtures("recorded")
def test_a_run_is_printed_or_written(repotrace: Shell) -> None:
    printed = out(repotrace("export"))
    assert json.loads(printed)["run_id"] == RUN
    assert out(repotrace("export", RUN, "-o", "run.json")) == "wrote run.json\n"
    assert (repotrace.cwd / "run.json").read_text() == printed
    assert (repotrace.cwd / "run.json").stat().st_mode & 0o777 == 0o644
    refused = repotrace("export", "-o", "run.json")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"--overwrite" in refused.stderr
    options = ("--from-step", "2", "--to-step", "3", "--no-llm", "--no-files", "--max-bytes", "9")
    out(repotrace("export", "-o", "run.json", "--overwrite", *options))
    part = json.loads((repotrace.cwd / "run.json").read_text())
    assert [step["step_number"] for step in part["steps"]] == [2, 3]
    assert part["left_out"]["llm"] is True
    none = repotrace("export", "--from-step", "9")
    assert (none.returncode, none.stdout) == (2, b"")


def on_terminal(repotrace: Shell, *args: str) -> tuple[int, str]:
    """The exit code of a command whose stdout is a terminal, and what it shows."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "repotrace", *args],
        cwd=repotrace.cwd,
        env=clean_environment(repotrace.home),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # so a terminal ends
            while data := os.read(ours, 65_536):
                shown += data
    os.close(ours)
    return process.returncode, shown.decode().replace("\r\n", "\n")


@pytest.mark.usefixtures("recorded")
def test_a_terminal_gets_a_file_of_what_nobody_reads(repotrace: Shell) -> None:
    printed = out(repotrace("export"))
    assert out(repotrace("export", "-o", "-")) == printed
    assert out(repotrace("work", "export-trace", RUN, "-")) == printed
    assert not (repotrace.cwd / "-").exists()
    assert on_terminal(repotrace, "export") == (0, f"wrote {RUN}.json\n")
    assert (repotrace.cwd / f"{RUN}.json").read_text() == printed
    code, said = on_terminal(repotrace, "export")
    assert (code, f"{RUN}.json is there already" in said) == (2, True)
    assert on_terminal(repotrace, "export", "-f", "html") == (0, f"wrote {RUN}.html\n")
    assert on_terminal(repotrace, "export", "-o", "-") == (0, printed)
    code, said = on_terminal(repotrace, "export", "-f", "markdown")
    assert (code, said) == (0, out(repotrace("export", "-f", "markdown")))
    code, said = on_terminal(repotrace, "export", "-f", "bundle", "-o", "-")
    assert (code, "no text" in said) == (2, True)
    assert repotrace("export", "-f", "bundle", "-o", "-").stdout.startswith(b"PK")


@pytest.mark.usefixtures("recorded")
def test_a_run_comes_back_elsewhere(repotrace: Shell, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    assert out(repotrace("work", "export-trace", RUN, str(file))) == f"wrote {file}\n"
    printed = out(repotrace("work", "export-trace", RUN, "--format", "json"))
    assert file.read_text() == printed
    other = tmp_path / "elsewhere"
    other.mkdir()
    told = out(repotrace("import", "--dry-run", str(file), cwd=other))
    assert told.startswith(f"would import run {RUN} from {file}\n")
    assert not (other / ".repotrace").exists()
    told = out(repotrace("import", str(file), cwd=other))
    assert told.startswith(f"imported run {RUN} from {file}\n")
    assert "6 steps, without its files" in told
    assert out(repotrace("export", RUN, cwd=other)) == printed
    found = json.loads(out(repotrace("import", "--json", str(file), cwd=other)))
    (received,) = found["received"]
    assert (received["id"], received["is_new"]) == (RUN, False)


def test_a_report_comes_back_elsewhere(repotrace: Shell, tmp_path: Path) -> None:
    repotrace("capture", *BOOM)
    file = tmp_path / "report.json"
    out(repotrace("export", BOOM_ID, "-o", str(file)))
    other = tmp_path / "elsewhere"
    other.mkdir()
    told = out(repotrace("import", str(file), cwd=other))
    assert told.startswith(f"imported report {BOOM_ID} from ")
    assert out(repotrace("export", BOOM_ID, cwd=other)) == file.read_text()
    again = out(repotrace("import", str(file), cwd=other))
    assert again == f"report {BOOM_ID} is here already; nothing was changed\n"
    changed = json.loads(file.read_text()) | {"title": "Another"}
    file.write_text(json.dumps(changed))
    told = out(repotrace("import", str(file), cwd=other))
    assert told.startswith(f"imported report {BOOM_ID}-2 from ")


@pytest.mark.usefixtures("recorded")
def test_the_newest_of_both_kinds_is_exported(repotrace: Shell) -> None:
    repotrace("capture", *BOOM)
    assert json.loads(out(repotrace("export")))["id"] == BOOM_ID
    assert json.loads(out(repotrace("export", RUN[:6])))["run_id"] == RUN
    missing = repotrace("export", "nothing-like-it")
    assert missing.returncode == 2
    assert b"No run or report matches 'nothing-like-it'" in missing.stderr
    refused = repotrace("export", BOOM_ID, "--from-step", "2")
    assert refused.returncode == 2


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--brief"], b"is for Markdown"),
        (["--brief", "-o", "run.html"], b"is for Markdown"),
        (["--full", "-f", "json"], b"is for a bundle"),
        (["--full", "--no-files", "-f", "bundle"], b"exclude each other"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    repotrace: Shell, options: list[str], told: bytes
) -> None:
    refused = repotrace("export", RUN, *options)
    assert refused.returncode == 2
    assert told in refused.stderr
    assert refused.stdout == b""
    assert list(repotrace.cwd.glob("*.html")) == []


@pytest.mark.usefixtures("recorded")
def test_a_part_that_is_here_says_what_it_lacks(repotrace: Shell, tmp_path: Path) -> None:
    for name, options in (("part", ["--no-llm", "--from-step", "2"]), ("whole", [])):
        out(repotrace("export", RUN, "-o", str(tmp_path / f"{name}.json"), *options))
    out(repotrace("export", RUN, "-o", str(tmp_path / "run.repotrace")))
    other = tmp_path / "elsewhere"
    other.mkdir()
    told = out(repotrace("import", str(tmp_path / "part.json"), cwd=other))
    lacks = "  left out  steps before 2; what models were asked and answered\n"
    assert lacks in told
    shown = out(repotrace("runs", "show", RUN, cwd=other))
    assert "left out     steps before 2; what models were asked and answered\n" in shown
    told = out(repotrace("import", str(tmp_path / "whole.json"), cwd=other))
    assert told.startswith(f"run {RUN} is here already; nothing was changed\n{lacks}")
    assert told.endswith(f"to take it: repotrace runs delete {RUN}\n")
    told = out(repotrace("import", str(tmp_path / "run.repotrace"), cwd=other))
    assert told.startswith(f"run {RUN} is here already; 3 states of its files were added\n")


@pytest.mark.usefixtures("recorded")
def test_every_format_is_in_the_table(repotrace: Shell) -> None:
    helped = out(repotrace("export", "--help"))
    assert all(name in helped for name in EXPORTERS)


def test_what_cannot_be_imported_is_said(repotrace: Shell) -> None:
    bad = repotrace.cwd / "bad.json"
    bad.write_text('{"run_id": "r1", "steps": 3}')
    done = repotrace("import", "bad.json")
    assert done.returncode == 2
    assert b"bad.json is no exported run" in done.stderr


# --- Bundles --------------------------------------------------------------------------------


class Machine:
    """Another machine: another HOME, another folder, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder / "other machine")

    def __call__(self, *args: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        return self.shell(*args, **options)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def in_project(repotrace: Shell) -> Path:
    """A repository with a change and a file that no commit has."""
    repotrace.cwd = project(repotrace.cwd / "invoice")
    (repotrace.cwd / "app" / "export.py").write_text("raise ValueError('too big')\n")
    (repotrace.cwd / "data.txt").write_text("only here\n")
    (repotrace.cwd / "run.py").write_text(
        "print(open('data.txt').read())\nexec(open('app/export.py').read())\n"
    )
    return repotrace.cwd


def test_a_report_is_replayed_where_its_repository_is_not(
    repotrace: Shell, machine: Machine, tmp_path: Path
) -> None:
    workspace = in_project(repotrace)
    captured = repotrace("capture", "python", "run.py")
    assert captured.returncode == 1
    file = tmp_path / "bug.repotrace"
    assert out(repotrace("export", "-f", "bundle", "-o", str(file))) == f"wrote {file}\n"
    shutil.rmtree(workspace)
    told = out(machine("import", str(file)))
    report_id = told.split()[2]
    assert "files     as they were at the capture" in told
    refused = machine("replay", "--at-capture")
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert b"came from elsewhere (bug.repotrace)" in refused.stderr
    assert b"python run.py" in refused.stderr
    done = machine("replay", report_id, "--at-capture", "--yes", "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["verdict"].startswith("same")


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("run.html", b"<!doctype html>"),
        ("RUN.HTML", b"<!doctype html>"),
        ("run.htm", b"<!doctype html>"),
        ("run.md", b"# "),
        ("run.markdown", b"# "),
        ("run.json", b"{\n"),
        ("run", b"{\n"),
        ("run.repotrace", b"PK"),
    ],
)
def test_the_name_of_the_file_tells_the_format(repotrace: Shell, name: str, begins: bytes) -> None:
    out(repotrace("export", RUN, "-o", name))
    assert (repotrace.cwd / name).read_bytes().lower().startswith(begins.lower())
    out(repotrace("export", RUN, "-o", name, "--overwrite", "--format", "markdown"))
    assert (repotrace.cwd / name).read_bytes().startswith(b"# ")


def test_a_bundle_gets_a_name_by_itself(repotrace: Shell, recorded: Recorded) -> None:
    assert out(repotrace("export", RUN, "--format", "bundle")) == f"wrote {RUN}.repotrace\n"
    refused = repotrace("export", RUN, "--format", "bundle")
    assert refused.returncode == 2
    assert (recorded.workspace / f"{RUN}.repotrace").read_bytes()[:2] == b"PK"


@pytest.mark.usefixtures("recorded")
def test_a_file_does_for_an_id(repotrace: Shell, machine: Machine, tmp_path: Path) -> None:
    run, report = tmp_path / "run.repotrace", tmp_path / "report.md"
    out(repotrace("export", RUN, "-f", "bundle", "-o", str(run)))
    repotrace("capture", *BOOM)
    report.write_text(out(repotrace("report")))
    shown = machine("runs", "show", str(run))
    assert out(shown).startswith(f"Run {RUN}")
    assert shown.stderr == f"imported run {RUN}\n".encode()
    assert machine("play", str(run), "--step", "1").stderr == f"this is run {RUN}\n".encode()
    assert out(machine("show", str(report), "--json")).count(BOOM_ID)
    assert out(machine("show", RUN[:8])) == out(shown)
    assert out(machine("show", str(run), "--markdown")).startswith("# Fix the date bug")
    assert b"No report 'rfff'" in machine("show", "rfff").stderr
    assert json.loads(out(machine("export", str(run))))["run_id"] == RUN
    assert machine("replay", str(report)).returncode == 2
    assert machine("replay", str(report), "--yes").returncode == 0
    for name in ("mail.txt", "page.HTML", "without a suffix"):
        again = report.rename(tmp_path / name)
        assert machine("show", str(again)).stderr.startswith(f"this is report {BOOM_ID}\n".encode())
        report = again


def test_secrets_in_files_keep_a_bundle_from_being_written(repotrace: Shell) -> None:
    workspace = in_project(repotrace)
    (workspace / "keys.py").write_text("\nKEY = 'ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8'\n")
    repotrace("capture", "python", "run.py")
    refused = repotrace("export", "-f", "bundle", "-o", "x.repotrace")
    assert refused.returncode == 2
    assert b"  keys.py:2  " in refused.stderr
    assert not (workspace / "x.repotrace").exists()
    out(repotrace("export", "-f", "bundle", "-o", "x.repotrace", "--allow-secrets"))
    out(repotrace("export", "-f", "html", "-o", "x.html", "--allow-secrets"))


# --- Consent --------------------------------------------------------------------------------


def received(machine: Machine, tmp_path: Path) -> Path:
    """A report of another machine, whose command would leave a trace; the trace."""
    trace = tmp_path / "executed"
    command = f"import pathlib; pathlib.Path({str(trace)!r}).touch(); raise SystemExit(3)"
    cwd = str(machine.shell.cwd)
    run = command_run(argv=("python", "-c", command), cwd=cwd, exit_code=3, stdout="")
    file = tmp_path / "report.json"
    file.write_text(report_of(run, id="a1").model_dump_json())
    home = machine.shell.cwd / ".repotrace"
    receive(Store(home, home / "reports"), file, now=NOON)
    return trace


@pytest.mark.parametrize(
    "command", [("replay",), ("replay", "--accept"), ("report", "--replay"), ("replay-all",)]
)
def test_nothing_from_elsewhere_is_executed_unasked(
    machine: Machine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    trace = received(machine, tmp_path)
    refused = machine(*command)
    assert refused.returncode == 2
    assert b"--yes" in refused.stderr + refused.stdout
    assert not trace.exists()
    machine(*command, "--yes")
    assert trace.exists()


def test_what_is_read_needs_no_consent(machine: Machine, tmp_path: Path) -> None:
    trace = received(machine, tmp_path)
    for command in (("report",), ("generate",), ("replay", "--dry-run"), ("export",)):
        out(machine(*command))
    assert b"came from elsewhere (report.json)" in machine("generate").stderr
    assert not trace.exists()


def test_a_report_that_git_tracks_is_trusted(machine: Machine, tmp_path: Path) -> None:
    trace = received(machine, tmp_path)
    machine.shell.git("init", "-q")
    home = ("--home", ".repotrace")
    assert machine(*home, "replay").returncode == 2
    machine.shell.git("add", "-f", ".repotrace/reports")
    machine(*home, "replay")
    assert trace.exists()


def received_run(machine: Machine, repotrace: Shell, tmp_path: Path) -> Path:
    """A run whose tests would leave a trace; the trace."""
    agent = AgentRun(repotrace)
    trace = tmp_path / "executed"
    agent.write("conftest.py", f"import pathlib\npathlib.Path({str(trace)!r}).touch()\n")
    agent.edit("money.py", "a + b", "a - b")
    file = tmp_path / "run.repotrace"
    file.write_bytes(export_run(agent.store, agent.run, "bundle", ExportOptions()))
    agent.store.close()
    shutil.rmtree(agent.workspace)
    store = Store(machine.shell.cwd / ".repotrace")
    receive(store, file, now=NOON)
    store.close()
    return trace


@pytest.mark.parametrize("command", ["check", "blame"])
def test_a_run_from_elsewhere_is_not_executed_unasked(
    repotrace: Shell, machine: Machine, tmp_path: Path, command: str
) -> None:
    trace = received_run(machine, repotrace, tmp_path)
    refused = machine(command, RUN, "tests/test_money.py::test_add", "--test-cmd", PYTEST)
    assert refused.returncode == 2
    assert b"came from elsewhere (run.repotrace)" in refused.stderr
    assert b"-m pytest" in refused.stderr
    assert not trace.exists()


@pytest.mark.usefixtures("recorded")
def test_a_report_of_a_run_from_elsewhere_is_from_there(
    repotrace: Shell, machine: Machine, tmp_path: Path
) -> None:
    out(repotrace("export", RUN, "-f", "bundle", "-o", str(tmp_path / "run.repotrace")))
    out(machine("import", str(tmp_path / "run.repotrace")))
    asked = machine("runs", "report", RUN, "--test", LEAP)
    assert asked.returncode == 2
    assert b"came from elsewhere" in asked.stderr
    assert machine("runs", "report", RUN, "--as-recorded").returncode == 0
    refused = machine("replay")
    assert refused.returncode == 2
    assert b"came from elsewhere (run.repotrace)" in refused.stderr


@pytest.mark.slow
def test_a_run_from_elsewhere_is_checked_when_that_is_wanted(
    repotrace: Shell, machine: Machine, tmp_path: Path
) -> None:
    trace = received_run(machine, repotrace, tmp_path)
    done = machine("check", RUN, "tests/test_money.py::test_add", "--test-cmd", PYTEST, "--yes")
    assert done.returncode == 1, done.stderr
    assert b"test_add" in done.stdout
    assert trace.exists()


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 2), (b"\n", 2), (b"y\n", 0)])
def test_a_person_is_asked(machine: Machine, tmp_path: Path, answer: bytes, code: int) -> None:
    trace = received(machine, tmp_path)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "repotrace", "replay"],
        cwd=machine.shell.cwd,
        env=clean_environment(machine.shell.home),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    ) as asked:
        os.close(theirs)
        said = b""
        while b"[y/N]" not in said:
            said += os.read(ours, 4096)
        assert b"came from elsewhere: report.json" in said
        assert b"SystemExit(3)" in said
        assert not trace.exists()
        os.write(ours, answer)
        asked.communicate(timeout=60)
    os.close(ours)
    assert asked.returncode == code
    assert trace.exists() == (code == 0)


# --- With the history -----------------------------------------------------------------------


def test_a_command_that_asks_git_finds_the_history(
    repotrace: Shell, machine: Machine, tmp_path: Path
) -> None:
    workspace = in_project(repotrace)
    repotrace.git("tag", "v1.5")
    (workspace / "run.py").write_text(
        "import subprocess\nargv = ['git', 'describe', '--tags']\n"
        "print(subprocess.check_output(argv, text=True))\nraise SystemExit(4)\n"
    )
    captured = repotrace("capture", "python", "run.py")
    assert (captured.returncode, captured.stdout.strip()) == (4, b"v1.5")
    file = tmp_path / "bug.repotrace"
    out(repotrace("export", "-f", "bundle", "--full", "-o", str(file)))
    shutil.rmtree(workspace)
    out(machine("import", str(file)))
    done = machine("replay", "--at-capture", "--yes", "--json")
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()


def test_secrets_of_the_past_are_found(repotrace: Shell) -> None:
    workspace = in_project(repotrace)
    secret = workspace / "keys.py"
    secret.write_text("KEY = 'ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8'\n")
    repotrace.git("add", "-A")
    repotrace.git("commit", "-qm", "with a secret")
    secret.unlink()
    repotrace.git("commit", "-qam", "without")
    repotrace("capture", "python", "run.py")
    refused = repotrace("export", "-f", "bundle", "--full", "-o", "x.repotrace")
    assert refused.returncode == 2
    assert b"  history: keys.py:1  " in refused.stderr
    out(repotrace("export", "-f", "bundle", "-o", "x.repotrace"))
