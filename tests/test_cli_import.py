"""`repotrace import` as a user calls it."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from importing import CLAUDE, CODEX, MINI, RIGHT, calc_repository
from running import Shell


@pytest.fixture
def repotrace(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.cwd.rmdir()
    calc_repository(made.cwd)
    return made


def put_session(repotrace: Shell, name: str = "s1", cwd: Path | None = None) -> Path:
    """A session of Claude Code, where that keeps those of the folder."""
    folder = repotrace.home / ".claude" / "projects"
    folder /= "".join(c if c.isalnum() and c.isascii() else "-" for c in str(repotrace.cwd))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.jsonl"
    worked_in = str(cwd or repotrace.cwd)
    path.write_bytes(CLAUDE.read_bytes().replace(b"/home/ada/calc", worked_in.encode()))
    return path


def test_without_a_path_the_sessions_of_the_folder_are_listed(repotrace: Shell) -> None:
    done = repotrace("import")
    assert done.returncode == 0
    assert done.stdout.decode() == f"no sessions found for {repotrace.cwd}\n"
    old, new = put_session(repotrace, "old"), put_session(repotrace, "new")
    put_session(repotrace, "elsewhere", Path("/somewhere/else"))
    os.utime(old, (1_700_000_000, 1_700_000_000))
    done = repotrace("import", cwd=repotrace.cwd)
    lines = done.stdout.decode().splitlines()
    assert [line.strip() for line in lines if line.startswith("  ")] == [str(new), str(old)]
    assert "claude-code" in lines[0]
    assert "add() in calc.py forgets" in lines[0]
    assert lines[-1] == "2 sessions"
    assert b"--latest" in done.stderr
    found = json.loads(repotrace("import", "--json", "--since", "1d").stdout)["sessions"]
    assert [session["path"] for session in found] == [str(new)]
    assert b"no sessions" in repotrace("import", "--agent", "codex").stdout


def test_latest_imports_the_newest_session(repotrace: Shell) -> None:
    put_session(repotrace)
    (repotrace.cwd / "calc.py").write_text(RIGHT)
    done = repotrace("import", "--latest")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("imported r")
    assert lines[1:] == [
        "  task      add() in calc.py forgets its second argument. Fix it.",
        "  work      13 steps, 7 model calls (905 tokens in, 207 out)",
        "  files     1 read, 2 changes of 1 file",
        "  commands  3, 2 runs of tests (1 failed), 1 retry",
        "  lost      1 broken, 1 torn lines of the transcript",
        "  unknown   1 record: telepathy (1)",
        "  end state equals the work tree (inferred)",
    ]
    assert repotrace("import", "--all").stdout.decode().startswith("updated r")
    shown = json.loads(repotrace("runs", "list", "--json").stdout)
    assert len(shown["runs"]) == 1


def test_a_transcript_of_elsewhere_needs_its_repository(repotrace: Shell, tmp_path: Path) -> None:
    # Nothing it saw is in the history of the current folder.
    bare = tmp_path / "bare"
    bare.mkdir()
    done = repotrace("import", CLAUDE, cwd=bare)
    assert "end state missing: /home/ada/calc is not here" in done.stdout.decode()
    done = repotrace("import", CLAUDE, "--repo", repotrace.cwd, cwd=bare)
    assert "end state differs from the work tree in calc.py (inferred)" in done.stdout.decode()
    # Here the history itself says that it is the repository.
    done = repotrace("import", CLAUDE, "--json")
    (run,) = json.loads(done.stdout)["imported"]
    assert run["workspace"] == str(repotrace.cwd)
    assert run["end_state"]["quality"] == "inferred"
    assert run["read_before_first_change"] == ["calc.py"]
    assert run["unknown_records"] == {"telepathy": 1}
    done = repotrace("import", MINI, "--repo", ".", "--base", "HEAD~1")
    assert "end state equals the submitted patch (inferred)" in done.stdout.decode()
    done = repotrace("import", MINI, "--repo", ".", "--base", "nowhere")
    assert done.returncode == 2
    assert b"'nowhere' is no commit" in done.stderr


def test_a_folder_is_searched_for_transcripts(repotrace: Shell) -> None:
    done = repotrace("import", "--dry-run", CODEX.parent)
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    # Two alone, two with sub-agents, and one of these that no step tells of.
    assert len([line for line in lines if line.startswith("would import r")]) == 5
    assert repotrace("runs", "list").stdout == b"no runs recorded\n"
    assert repotrace("import", CODEX.parent.parent, "--json").returncode == 0
    listed = json.loads(repotrace("runs", "list", "--all-worktrees", "--json").stdout)
    assert len(listed["runs"]) >= 6
    assert {run["agent"] for run in listed["runs"]} >= {"claude-code", "codex", "mini-swe-agent"}


def test_what_is_no_transcript_is_said_and_the_rest_imported(repotrace: Shell) -> None:
    (repotrace.cwd / "notes.txt").write_text("nothing\n")
    done = repotrace("import", "notes.txt", CODEX)
    assert done.returncode == 2
    assert b"notes.txt is no transcript that we know" in done.stderr
    assert done.stdout.startswith(b"imported r")
    done = repotrace("import", "missing.jsonl")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"missing.jsonl does not exist" in done.stderr
    done = repotrace("import", "notes.txt", "--format", "fax")
    assert b"No importer is called 'fax'" in done.stderr
    done = repotrace("import", "notes.txt", "--format", "codex")
    assert b"holds no session" in done.stderr
    assert repotrace("import", "--latest", "x").returncode == 2
    assert b"No session of an agent" in repotrace("import", "--latest").stderr


def test_settings_of_agents_are_honoured(repotrace: Shell, tmp_path: Path) -> None:
    path = put_session(repotrace)
    other = tmp_path / "config"
    shutil.move(repotrace.home / ".claude", other)
    assert b"no sessions" in repotrace("import").stdout
    done = repotrace("import", env={"CLAUDE_CONFIG_DIR": str(other)})
    assert str(other / path.relative_to(repotrace.home / ".claude")) in done.stdout.decode()


def test_what_a_transcript_does_not_tell_is_not_shown_as_a_figure(
    repotrace: Shell, tmp_path: Path
) -> None:
    """The first model of mini-swe-agent wrote neither times nor tokens."""
    words = [("assistant", "Look.\n```bash\nls\n```"), ("user", "<returncode>0</returncode>")]
    messages = [("system", "You are."), ("user", "Fix it."), *words, *words]
    bare = tmp_path / "old.traj.json"
    bare.write_text(json.dumps([{"role": role, "content": text} for role, text in messages]))
    imported = repotrace("import", str(bare)).stdout.decode()
    assert "2 model calls\n" in imported
    run_id = imported.split()[1]

    view = json.loads(repotrace("show", run_id, "--json").stdout)
    assert view["duration"] is None
    assert [step["duration"] for step in view["steps"]] == [None, None]
    shown = repotrace("show", run_id).stdout.decode()
    assert "times not told" in shown
    assert "2 model calls · tokens not known" in shown
    assert not re.search(r"took|\bms\b|\.\d+ s\b|0 tokens|\+0 -0|\$\?", shown)
    (line,) = json.loads(repotrace("runs", "list", "--all-worktrees", "--json").stdout)["runs"]
    assert (line["totals"]["steps"], line["duration"]) == (2, None)
    stats = json.loads(repotrace("runs", "stats", "--json").stdout)
    assert [group["duration"] for group in stats["groups"]] == [None]
