"""`runs diff`, `restore`, `report`, `delete` and `gc` as a user calls them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from running import Shell, clean_environment
from states import fingerprint
from stepping import Recorded

from repotrace.storage import Store

RUN = "rabc123abc123"


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    """A repository with a run: step 1 edits, step 2 fails, step 3 renames and adds a binary."""
    shell = Shell(tmp_path)
    shell.git("init", "-q")
    (shell.cwd / "a.txt").write_text("one\ntwo\n")
    (shell.cwd / ".env").write_text("TOKEN=1")
    shell.git("add", "a.txt")
    shell.git("commit", "-qm", "one")
    run = Recorded(shell.cwd, shell.cwd / ".git" / "repotrace", run=RUN, task="change two")
    run.step("printf 'one\n2\n' > a.txt", step_type="edit")
    run.tell("step_started", id="failing", step_type="command")
    run.tell("command", step_id="failing", command={"script": "cat a.txt; exit 3"}, exit_code=3)
    run.tell("step_ended", id="failing", status="failed")
    run.step("mv a.txt b.txt; printf '\\0\\1' > c.bin", step_type="edit")
    run.end()
    return shell


def test_a_pipe_gets_the_diff_alone_and_git_takes_it(repotrace: Shell) -> None:
    done = repotrace("runs", "diff")
    assert done.returncode == 0
    assert done.stderr == b""
    subprocess.run(["git", "checkout", "-q", "."], cwd=repotrace.cwd, check=True)
    for name in ("b.txt", "c.bin"):
        (repotrace.cwd / name).unlink()
    subprocess.run(["git", "apply", "-"], cwd=repotrace.cwd, input=done.stdout, check=True)
    assert (repotrace.cwd / "b.txt").read_bytes() == b"one\n2\n"
    assert (repotrace.cwd / "c.bin").read_bytes() == b"\0\1"
    assert not (repotrace.cwd / "a.txt").exists()


def test_diffs_in_short(repotrace: Shell) -> None:
    only = repotrace("runs", "diff", RUN[:4], "--step", "3", "--files-only")
    assert only.stdout.decode() == "renamed   a.txt → b.txt\ncreated   c.bin\n"
    stat = repotrace("runs", "diff", "--stat", "--to-step", "1")
    assert stat.stdout.decode().splitlines() == [
        "a.txt  +1 -1         +-",
        "1 file changed: 1 modified, +1 -1 lines",
    ]
    nothing = repotrace("runs", "diff", "--step", "2")
    assert nothing.stdout == b""
    assert nothing.stderr.decode() == "before step 2 → after step 2: no file changed\n"
    other = repotrace("runs", "diff", "--path", "*.md", "--files-only")
    assert (other.stdout, other.stderr) == (b"", b"looked at what fits *.md only\n")


def test_a_diff_as_json(repotrace: Shell) -> None:
    view = json.loads(repotrace("runs", "diff", "--step", "1", "--json").stdout)
    assert view["summary"]["modified"] == 1
    assert view["files"][0]["path"] == "a.txt"
    assert view["before"]["quality"] == view["after"]["quality"] == "exact"
    assert "-two\n+2\n" in view["diff"]
    assert view["complete"] is True
    short = json.loads(repotrace("runs", "diff", "--step", "1", "--json", "--stat").stdout)
    assert short == {name: value for name, value in view.items() if name != "diff"}


def test_options_that_exclude_each_other(repotrace: Shell) -> None:
    for words in (
        ("diff", "--step", "1", "--from-step", "0"),
        ("diff", "--stat", "--files-only"),
        ("restore", "--step", "1", "--state", "x"),
        ("restore",),
        ("restore", "--step", "1", "--in-place", "--into", "x"),
        ("gc", "--max-size", "much"),
        ("gc", "--older-than", "long"),
    ):
        done = repotrace("runs", *words)
        assert done.returncode == 2, words
        assert done.stdout == b""


def test_what_is_not_there(repotrace: Shell) -> None:
    done = repotrace("runs", "diff", "--step", "9")
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        f"repotrace: Run {RUN} has no step 9; it has the steps 1 to 3.",
        f"  List its steps with: repotrace runs show {RUN}",
    ]
    state = repotrace("runs", "restore", "--state", "0" * 40, "--into", "x")
    assert state.returncode == 2
    assert b"No state" in state.stderr


def test_without_git_it_is_said(repotrace: Shell, tmp_path: Path) -> None:
    for words in (("diff", "--step", "1"), ("restore", "--step", "1")):
        done = repotrace("runs", *words, env={"PATH": str(tmp_path / "nothing")})
        assert done.returncode == 2
        assert done.stderr.decode().splitlines() == [
            "repotrace: git could not be started.",
            "  Is git installed?",
        ]


def test_a_terminal_gets_colours_and_a_summary(repotrace: Shell) -> None:
    done = repotrace("--color", "always", "runs", "diff", "--step", "1")
    assert b"\x1b[" in done.stdout
    assert b"1 file changed" in done.stderr
    plain = repotrace("--color", "never", "runs", "diff", "--step", "1")
    assert b"\x1b[" not in plain.stdout


def test_restoring_into_a_folder(repotrace: Shell) -> None:
    done = repotrace("runs", "restore", "--step", "1")
    assert done.stdout.decode() == f"wrote ../work-{RUN}-step-1\n"
    assert done.stderr.decode().splitlines() == [
        f"step 1 of {RUN}: 1 file",
        "not in the state: .env (secret)",
    ]
    folder = repotrace.cwd.with_name(f"work-{RUN}-step-1")
    assert (folder / "a.txt").read_text() == "one\n2\n"
    assert not list(repotrace.cwd.glob("*step*"))
    (repotrace.cwd / "below").mkdir()
    again = repotrace("runs", "restore", "--step", "1", cwd=repotrace.cwd / "below")
    assert again.returncode == 2
    assert f"../../work-{RUN}-step-1 is not empty" in again.stderr.decode()


def test_a_restore_in_place_and_its_undo(repotrace: Shell) -> None:
    before = {p: x for p, x in fingerprint(repotrace.cwd).items() if not p.startswith(b".git/")}
    dry = repotrace("runs", "restore", "--step", "1", "--in-place", "--dry-run")
    assert dry.stdout.decode().splitlines() == [
        "write   a.txt",
        "delete  b.txt",
        "delete  c.bin",
    ]
    done = repotrace("runs", "restore", "--step", "1", "--in-place")
    assert done.returncode == 0
    assert (repotrace.cwd / "a.txt").read_text() == "one\n2\n"
    assert (repotrace.cwd / ".env").read_text() == "TOKEN=1"
    assert not (repotrace.cwd / "b.txt").exists()
    command = done.stderr.decode().splitlines()[1].split()
    assert command[0] == "repotrace"
    undone = repotrace(*command[1:])
    assert undone.returncode == 0, undone.stderr
    after = {p: x for p, x in fingerprint(repotrace.cwd).items() if not p.startswith(b".git/")}
    assert after == before


def test_a_foreign_work_tree_is_written_by_force_only(repotrace: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    home = ("--home", str(repotrace.cwd / ".git" / "repotrace"))
    words = ("runs", "restore", RUN, "--step", "1", "--in-place")
    refused = repotrace(*home, *words, cwd=other)
    assert refused.returncode == 2
    assert b"was recorded in" in refused.stderr
    assert list(other.iterdir()) == []
    forced = repotrace(*home, *words, "--force", "--json", cwd=other)
    assert forced.returncode == 0, forced.stderr
    view = json.loads(forced.stdout)
    assert view["written"] == ["a.txt"]
    assert view["folder"] == str(other)
    assert view["undo"].startswith(f"repotrace {' '.join(home)} runs restore --state ")
    assert [path.name for path in other.iterdir()] == ["a.txt"]


def test_no_restore_in_place_while_a_run_is_recorded(repotrace: Shell) -> None:
    Recorded(repotrace.cwd, repotrace.cwd / ".git" / "repotrace", run="rlive").store.close()
    done = repotrace("runs", "restore", RUN, "--step", "1", "--in-place")
    assert done.returncode == 2
    assert b"Run rlive is being recorded" in done.stderr
    assert repotrace("runs", "restore", RUN, "--step", "1", "--in-place", "--force").returncode == 0


def test_a_report_of_a_failure(repotrace: Shell) -> None:
    done = repotrace("runs", "report", "--step", "2")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.decode().splitlines()
    name = lines[0].removeprefix("captured ")
    assert lines == [f"captured {name}", f"step 2 of {RUN}: exit code 3"]
    shown = json.loads(repotrace("show", name, "--json").stdout)
    assert shown["report"]["metadata"]["run"]["step_number"] == 2
    # It was recorded without output, so only the ending is compared.
    replayed = repotrace("replay", name, "--at-capture", "--exit-code-only")
    assert replayed.returncode == 0, replayed.stdout
    own = json.loads(repotrace("runs", "report", "--id", "mine", "--json").stdout)
    assert (own["id"], own["step_number"], own["exit_code"]) == ("mine", 2, 3)
    assert Path(own["path"]).is_file()
    nothing = repotrace("runs", "report", "--step", "1")
    assert nothing.returncode == 2
    assert b"No command and no test" in nothing.stderr


def test_deleting_needs_a_yes(repotrace: Shell) -> None:
    refused = repotrace("runs", "delete", RUN)
    assert refused.returncode == 2
    assert refused.stderr.decode().splitlines()[1] == "  Say --yes."
    assert repotrace("runs", "delete", RUN, "nothing", "--yes").returncode == 2
    assert repotrace("runs", "show", RUN).returncode == 0
    done = repotrace("runs", "delete", RUN[:5], "--yes")
    assert done.stderr.decode().splitlines()[0] == f"deleted {RUN}"
    assert repotrace("runs", "show", RUN).returncode == 2


def test_a_terminal_is_asked_before_deleting(repotrace: Shell) -> None:
    def answer(text: bytes) -> tuple[int, bytes]:
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "repotrace", "runs", "delete", RUN],
            cwd=repotrace.cwd,
            env=clean_environment(repotrace.home),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        shown = b""
        while b"[y/N]" not in shown:
            shown += os.read(master, 1000)
        os.write(master, text)
        code = process.wait(timeout=30)
        os.close(master)
        return code, shown

    code, shown = answer(b"n\n")
    assert code == 1
    assert b"change two" in shown
    assert repotrace("runs", "show", RUN).returncode == 0
    assert answer(b"y\n")[0] == 0
    assert repotrace("runs", "show", RUN).returncode == 2


def test_making_room(repotrace: Shell) -> None:
    dry = repotrace("runs", "gc", "--older-than", "1d", "--dry-run")
    assert dry.stdout.decode().splitlines()[0].startswith(f"would delete {RUN}  2026-03-01  older")
    assert repotrace("runs", "show", RUN).returncode == 0
    kept = json.loads(repotrace("runs", "gc", "--json").stdout)
    assert kept["runs"] == []
    assert kept["max_size"] == 5_000_000_000
    done = repotrace("runs", "gc", "--max-size", "1kB")
    assert done.stdout.decode().startswith(f"deleted {RUN}")
    assert b"more than" in done.stderr
    assert repotrace("runs", "show", RUN).returncode == 2


def test_second_names(repotrace: Shell) -> None:
    one = repotrace("runs", "diff", "--from-step", "1", "--to-step", "3")
    other = repotrace("work", "diff", RUN, "--step-from", "1", "--step-to", "3")
    assert one.stdout == other.stdout != b""


@pytest.mark.parametrize("verb", ["diff", "restore", "report", "delete", "gc"])
def test_nothing_recorded(tmp_path: Path, verb: str) -> None:
    shell = Shell(tmp_path)
    words = {"restore": ["--step", "1"], "delete": ["r1", "--yes"]}.get(verb, [])
    done = shell("runs", verb, *words)
    assert done.returncode == (0 if verb == "gc" else 2)
    if verb != "gc":
        assert b"repotrace" in done.stderr
        assert b"Traceback" not in done.stderr
    assert list(shell.cwd.iterdir()) == []


def test_a_checkpoint_of_the_present_files(repotrace: Shell) -> None:
    done = repotrace("runs", "checkpoint", "so far")
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.decode().splitlines()
    assert first.startswith("checkpoint so far: step 1 of r")
    assert second == "get its files with: repotrace runs restore --checkpoint 'so far'"
    (repotrace.cwd / "b.txt").write_text("spoilt")
    back = repotrace("runs", "restore", "--checkpoint", "so far", "--in-place")
    assert back.returncode == 0, back.stderr
    assert (repotrace.cwd / "b.txt").read_text() == "one\n2\n"


def test_a_checkpoint_is_not_the_latest_run(repotrace: Shell) -> None:
    repotrace("runs", "checkpoint", "so far")
    assert len(json.loads(repotrace("runs", "list", "--json").stdout)["runs"]) == 2
    assert f"Run {RUN}" in repotrace("runs", "show").stdout.decode()
    repotrace("runs", "delete", RUN, "--yes")
    assert "checkpoint so far" in repotrace("runs", "show").stdout.decode()


def test_a_checkpoint_names_a_step(repotrace: Shell) -> None:
    view = json.loads(repotrace("runs", "checkpoint", "good", RUN, "--step", "1", "--json").stdout)
    assert (view["run_id"], view["step_number"], view["quality"]) == (RUN, 1, "exact")
    last = json.loads(repotrace("runs", "checkpoint", "end", RUN, "--json").stdout)
    assert last["step_number"] == 3
    into = repotrace("runs", "restore", "--checkpoint", "good", "--into", "x")
    assert into.returncode == 0, into.stderr
    assert (repotrace.cwd / "x" / "a.txt").read_text() == "one\n2\n"
    assert repotrace("runs", "restore", "--checkpoint", "none", "--into", "y").returncode == 2
    assert repotrace("runs", "checkpoint", "two\nlines").returncode == 2


def test_checkpoints_are_listed_with_how_far_the_run_had_come(repotrace: Shell) -> None:
    assert repotrace("runs", "checkpoint", "--list").stdout == b"no checkpoints\n"
    store = Store(repotrace.cwd / ".git" / "repotrace")
    totals = store.runs.get(RUN).totals
    repotrace("runs", "checkpoint", "good", RUN, "--step", "1")
    repotrace("runs", "checkpoint", "the end", RUN)
    repotrace("runs", "checkpoint", "later")
    found = json.loads(repotrace("runs", "checkpoint", "--list", "--json").stdout)["checkpoints"]
    assert [one["label"] for one in found] == ["later", "the end", "good"]
    assert [one["step_number"] for one in found] == [1, 3, 1]
    ended = found[1]
    assert (ended["steps"], ended["files_modified"]) == (totals.steps, totals.files_modified)
    first = store.runs.step(RUN, 1)
    changed = {change.file_path for change in store.runs.operations(RUN, first.id)}
    assert (found[2]["steps"], found[2]["files_modified"]) == (1, len(changed))
    lines = repotrace("runs", "checkpoint", "--list", RUN).stdout.decode().splitlines()
    far = f"{totals.steps} steps, {totals.files_modified} files modified"
    assert lines[0] == f"the end  step 3 of {RUN} · {far}"
    assert [line.split("  ")[0] for line in lines] == ["the end", "good"]
    shown = repotrace("play", RUN, "--step", "3").stdout.decode()
    assert f"checkpoint the end ({far})" in shown
    refused = repotrace("runs", "checkpoint", "--list", RUN, "--step", "1")
    assert (refused.returncode, b"takes a run at most" in refused.stderr) == (2, True)


def test_checkpoints_stand_for_steps_of_a_diff(repotrace: Shell) -> None:
    assert repotrace("runs", "checkpoint", "--label", "good", RUN, "--step", "1").returncode == 0
    assert repotrace("runs", "checkpoint", "--label", "end", RUN).returncode == 0
    last = json.loads(repotrace("runs", "checkpoint", "end", RUN, "--json").stdout)["step_number"]
    named = repotrace("runs", "diff", RUN, "--from-step", "good", "--to-step", "end")
    numbered = repotrace("runs", "diff", RUN, "--from-step", "1", "--to-step", str(last))
    assert named.stdout == numbered.stdout != b""
    for wrong in ("nowhere", "-1", "\u0663"):
        done = repotrace("runs", "diff", RUN, "--from-step", wrong)
        assert (done.returncode, b"No checkpoint" in done.stderr) == (2, True)
    done = repotrace("runs", "checkpoint")
    assert (done.returncode, b"say a name" in done.stderr) == (2, True)


def test_a_checkpoint_joins_the_run_that_goes_on(repotrace: Shell) -> None:
    home = repotrace.cwd / ".git" / "repotrace"
    live = Recorded(repotrace.cwd, home, run="rlive")
    live.step("echo x > x")
    live.store.close()
    view = json.loads(repotrace("runs", "checkpoint", "midway", "--json").stdout)
    assert (view["run_id"], view["step_number"]) == ("rlive", 2)
    assert view["state_id"] == live.store.runs.step("rlive", 1).state_id
    assert live.store.runs.step("rlive", 2).metadata["checkpoint"]["steps"] == 1
    assert live.run.status == "running"
