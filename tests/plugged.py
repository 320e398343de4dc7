"""Real pytest, watched by the plug-in: what several test modules share."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from running import clean_environment

from repotrace.system.plugin_environment import with_plugin


class Said(NamedTuple):
    """What one run of pytest printed, and what it wrote to the journal."""

    done: subprocess.CompletedProcess[str]
    events: list[dict[str, Any]]
    """Without what is said about files and processes."""
    ends: list[dict[str, Any]]
    """What each file says at its end."""

    @property
    def tests(self) -> list[tuple[str, str, str]]:
        """Node id, phase and outcome, in order."""
        return [
            (event["data"]["node_id"], event["data"]["phase"], event["data"]["outcome"])
            for event in self.events
            if event["kind"] == "test"
        ]

    def data(self, node_id: str, phase: str = "call") -> dict[str, Any]:
        (found,) = (
            event["data"]
            for event in self.events
            if event["kind"] == "test"
            and (event["data"]["node_id"], event["data"]["phase"]) == (node_id, phase)
        )
        return dict(found)


def plugged(env: Mapping[str, str], journal: Path) -> dict[str, str]:
    return with_plugin(env, journal=journal, run_id="r1", step_id="s1", command_id="c1")


def read_journal(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All events but those about writers, in order, and the data of the closing ones."""
    events, ends = [], []
    for path in sorted(folder.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text("ascii").splitlines() if line]
        assert lines[0]["kind"] == "writer"
        ends += [line["data"] for line in lines if line["kind"] == "closed"]
        events += [line for line in lines if line["kind"] not in ("writer", "closed")]
    return sorted(events, key=lambda event: event["id"]), ends


def run_pytest(
    folder: Path,
    *args: str,
    python: Path | str = sys.executable,
    env: Mapping[str, str] | None = None,
    journal: Path | None = None,
) -> Said:
    """`python -m pytest *args` in `folder`, with the plug-in put in."""
    journal = journal or folder.parent / f"{folder.name}.journal"
    done = subprocess.run(
        [python, "-m", "pytest", *args],
        cwd=folder,
        env=plugged(clean_environment(folder.parent, env), journal),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    return Said(done, *read_journal(journal))


def interpreter(version: str) -> str:
    """Another Python; without it the test is skipped."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for found in sorted(pyenv.glob(f"{version}.*/bin/python")):
        return str(found)
    on_path = shutil.which(f"python{version}")
    if on_path is None or ".pyenv/shims" in on_path:
        pytest.skip(f"no Python {version} here")
    return on_path


def foreign_environment(folder: Path, version: str, *packages: str) -> Path:
    """The interpreter of a new virtual environment; without a package index it is skipped."""
    base = interpreter(version)
    subprocess.run([base, "-m", "venv", folder], check=True, capture_output=True)
    python = folder / "bin" / "python"
    options = ["-q", "--disable-pip-version-check", "--retries", "1"]
    argv = [str(python), "-m", "pip", "install", *options, *packages]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot install {' '.join(packages)}: {done.stderr.strip()[-200:]}")
    return python


def fingerprint(folder: Path) -> dict[str, str]:
    """Kind, mode and digest of everything below `folder`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = b"" if path.is_dir() else path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        found[str(path.relative_to(folder))] = f"{path.lstat().st_mode:o} {digest}"
    return found


def write_files(folder: Path, files: Mapping[str, str] | Iterable[tuple[str, str]]) -> Path:
    for name, text in dict(files).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
