"""Transcripts and repositories that the tests of importing share."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from running import plain_git

from repotrace.records.run import ExecutionStep, Run
from repotrace.runs.transcripts.importing import Options, Summary, import_session
from repotrace.storage import Store

TRANSCRIPTS = Path(__file__).parent / "data" / "transcripts"
"""Synthetic ones, in the real shapes: an agent repairs `add` in `calc.py` at the second try."""

SHARED = Path(__file__).parents[2] / "shared"
"""Transcripts of real agents, where somebody put them beside the checkout."""

CLAUDE = TRANSCRIPTS / "claude-code" / "11111111-2222-4333-8444-555555555555.jsonl"
CODEX, PAGINATED = sorted((TRANSCRIPTS / "codex").glob("rollout-*"))
CODEX_THREADS = sorted((TRANSCRIPTS / "codex" / "sessions").glob("*/*/*/rollout-*"))
"""Two sessions with the rollouts of their sub-agents."""
MINI, MINI_V1, MINI_BARE = (
    TRANSCRIPTS / "mini-swe-agent" / f"{name}.traj.json" for name in ("v2", "v1", "bare")
)
AIDER = TRANSCRIPTS / "aider" / "chats.md"
CLINE = TRANSCRIPTS / "cline" / "1772366700000_abcde.messages.json"
CLINE_TASK = TRANSCRIPTS / "cline" / "1772366800000" / "api_conversation_history.json"
INSPECT, INSPECT_JSON = sorted((TRANSCRIPTS / "inspect").iterdir())
ATIF_OTHER, ATIF = sorted((TRANSCRIPTS / "atif").iterdir())
SWE_ATTEMPTS, SWE_V0, SWE_V1 = sorted((TRANSCRIPTS / "swe-agent").iterdir())
OPENHANDS, OPENHANDS_V0 = sorted((TRANSCRIPTS / "openhands").iterdir())
"""The first is a folder."""
OPENCODE, OPENCODE_PART = sorted((TRANSCRIPTS / "opencode").iterdir())
GEMINI, GEMINI_OLD = sorted((TRANSCRIPTS / "gemini-cli").glob("session-*"))
WIRE = tuple(sorted((TRANSCRIPTS / "wire").iterdir()))
"""Logs of traffic, by the form of the requests: chat, gemini, messages, responses."""
ALL = (
    CLAUDE,
    CODEX,
    PAGINATED,
    CODEX_THREADS[0],
    MINI,
    MINI_V1,
    MINI_BARE,
    AIDER,
    CLINE,
    CLINE_TASK,
    INSPECT,
    INSPECT_JSON,
    ATIF,
    ATIF_OTHER,
    SWE_ATTEMPTS,
    SWE_V0,
    SWE_V1,
    OPENHANDS_V0,
    OPENCODE,
    OPENCODE_PART,
    GEMINI,
    GEMINI_OLD,
    *WIRE,
)

BEFORE = "def add(a, b):\n    return a\n"
WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"
FAILING = "test_calc.py::test_add"


def calc_repository(folder: Path) -> Path:
    """The repository that the agent of the synthetic transcripts worked on, the day before."""
    folder.mkdir(parents=True)
    plain_git(folder, "init", "-q", "-b", "main")
    test = "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n"
    for number, files in enumerate(
        [
            {"calc.py": "def add(a, b):\n    pass\n"},
            {"calc.py": BEFORE, "test_calc.py": test},
            {"other": "x\n"},
        ]
    ):
        for name, text in files.items():
            (folder / name).write_text(text)
        plain_git(folder, "add", "-A")
        tree = plain_git(folder, "write-tree")
        parent = ["-p", "HEAD"] if number else []
        commit = commit_at(folder, f"2026-02-28T12:00:0{number}Z", tree, *parent)
        plain_git(folder, "reset", "-q", "--hard", commit)
    return folder


def format_named(path: Path) -> str:
    """The format of a synthetic transcript, as its folder says."""
    return path.relative_to(TRANSCRIPTS).parts[0]


def invoice_repository(folder: Path) -> Path:
    """The repository that the real agents worked on; only where `SHARED` is there."""
    shutil.copytree(SHARED / "agents" / "invoice-template", folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    plain_git(folder, "init", "-q", "-b", "main")
    plain_git(folder, "add", "-A")
    plain_git(folder, "commit", "-q", "-m", "Begin")
    return folder


def imported_runs(
    store: Store, path: Path, repository: Path | None = None
) -> list[tuple[Summary, Run, list[ExecutionStep]]]:
    """The runs of a transcript, taken into the store."""
    found = []
    for summary in import_session(store, path, Options(repository=repository)):
        run = store.runs.get(summary.run_id)
        found.append((summary, run, store.runs.steps(run.id)))
    return found


def check_end(store: Store, steps: list[ExecutionStep], repository: Path, final: Path) -> None:
    """That the rebuilt files at the end are those of the repository with the patch `final`."""
    plain_git(repository, "apply", str(final))
    state = [step.state_id for step in steps if step.state_id][-1]
    assert state is not None
    entries = store.snapshots.list(state)
    for entry in entries:
        data = store.snapshots.read(state, entry.path)
        assert data == (repository / entry.path).read_bytes(), entry.path
    kept = {entry.path for entry in entries}
    assert {path for path in plain_git(repository, "ls-files").split("\n") if path} <= kept
    plain_git(repository, "checkout", "-q", ".")


def commit_at(folder: Path, date: str, *arguments: str) -> str:
    """The id of a new commit with this date."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    for role in ("AUTHOR", "COMMITTER"):
        facts = {"NAME": "a", "EMAIL": "a@example.org", "DATE": date}
        environ |= {f"GIT_{role}_{name}": value for name, value in facts.items()}
    done = subprocess.run(
        ["git", "commit-tree", "-m", "x", *arguments],
        cwd=folder,
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()
