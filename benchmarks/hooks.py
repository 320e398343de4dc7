"""What a hook costs the agent that waits for it, beside bare Python and a snapshot alone.

    .venv/bin/python benchmarks/hooks.py [--rounds 15] [--files 20 10000]

For projects of so many files, in git and unchanged since the last look, each round runs one after
another: a Python that does nothing; one that imports the store of states and takes one; the hook of
a prompt, which takes none; and the hook before a tool, which takes one. CPU is that of the whole
process with its children, the least of all rounds; wall is the median.

To reach: at most 40 ms CPU for a hook without the snapshot: both the hook of a prompt, and the hook
before a tool less what the snapshot takes beyond bare Python.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from measure import in_turn

LIMIT = 0.040

SNAPSHOT = """
import sys
from pathlib import Path
from repotrace.system.snapshots import SnapshotStore

with SnapshotStore(Path(sys.argv[1]) / "snapshots.git") as store:
    taken = store.take(Path(sys.argv[2]), ref="runs/rbench", deadline=10.0)
    assert taken.state_id, taken.reason
"""


def project(folder: Path, files: int) -> None:
    """A git repository of small files in folders of a hundred."""
    for number in range(files):
        path = folder / f"d{number // 100}" / f"f{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number}\n" * 20)
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-qm", "begin"],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)


def told(folder: Path, event: str, **facts: object) -> str:
    """What an agent tells a hook."""
    common = {"session_id": "s1", "cwd": str(folder), "transcript_path": "/nowhere"}
    return json.dumps({**common, "hook_event_name": event, **facts})


def measure(files: int, rounds: int, environ: Mapping[str, str]) -> bool:
    """Print the figures of a project of so many files; whether the limit is kept."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "project"
        folder.mkdir()
        project(folder, files)
        home = folder / ".git" / "repotrace"
        python = [sys.executable, "-I"]
        # The shell that reads the input is counted too: the agent waits for it.
        hook = f"{sys.executable} -I -m repotrace hook claude-code"
        for name, text in {
            "prompt": told(folder, "UserPromptSubmit", prompt="mend the tests"),
            "before": told(
                folder,
                "PreToolUse",
                tool_name="Bash",
                tool_input={"command": "pytest -q"},
                tool_use_id="c1",
            ),
        }.items():
            (Path(scratch) / name).write_text(text)
        found = in_turn(
            {
                "Python alone": [*python, "-c", "pass"],
                "a snapshot alone": [*python, "-c", SNAPSHOT, str(home), str(folder)],
                "a prompt": ["sh", "-c", f"exec {hook} < ../prompt"],
                "before a tool": ["sh", "-c", f"exec {hook} < ../before"],
            },
            folder,
            environ,
            rounds,
        )
        print(f"{files} files")
        for name, figures in found.items():
            cpu, wall = figures.least_cpu * 1000, figures.median_wall * 1000
            print(f"  {name:18} {cpu:6.1f} ms CPU {wall:7.1f} ms wall")
        cpu = {name: figures.least_cpu for name, figures in found.items()}
        snapshot = cpu["a snapshot alone"] - cpu["Python alone"]
        besides = max(cpu["a prompt"], cpu["before a tool"] - snapshot)
        verdict = "reached" if besides <= LIMIT else "MISSED"
        print(f"  besides the snapshot {besides * 1000:.1f} ms CPU, limit 40: {verdict}")
        return besides <= LIMIT


def main() -> None:
    """Measure and say so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=int, nargs="+", default=[20, 10_000])
    given = parser.parse_args()
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE",)}
    results = [measure(files, given.rounds, environ) for files in given.files]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
