"""The same question to `git bisect run`: every state is a commit, good is the first one."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repotrace.blame import Candidate
from repotrace.system.snapshots import SnapshotStore

MOST = 120.0
"""Seconds for one run of the test."""


@dataclass(frozen=True)
class Bisected:
    """What git says."""

    step: int | None
    """None: it names no commit, or several."""
    executions: int
    codes: tuple[int, ...]
    seconds: float


class History:
    """A repository with one commit for each state of a run."""

    def __init__(
        self, folder: Path, snapshots: SnapshotStore, candidates: Sequence[Candidate]
    ) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._env = os.environ | {
            "GIT_AUTHOR_NAME": "someone",
            "GIT_AUTHOR_EMAIL": "someone@example.com",
            "GIT_COMMITTER_NAME": "someone",
            "GIT_COMMITTER_EMAIL": "someone@example.com",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        self._git("init", "-q", ".")
        alternates = folder / ".git" / "objects" / "info" / "alternates"
        alternates.write_text(f"{snapshots.path / 'objects'}\n", encoding="utf-8")
        self.commits: list[str] = []
        for one in candidates:
            parent = ["-p", self.commits[-1]] if self.commits else []
            tree = snapshots.state(one.state_id).tree
            commit = self._git("commit-tree", tree, *parent, "-m", f"state {one.index}")
            self.commits.append(commit.strip())
        self._steps = {
            commit: one.steps for commit, one in zip(self.commits, candidates, strict=True)
        }
        self._git("update-ref", "refs/heads/main", self.commits[-1])
        self._git("checkout", "-q", "-f", "main")

    def _git(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.folder,
            env=self._env,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"git {' '.join(words)}: {done.stderr}")
        return done.stdout

    def index_after(self, step: int, candidates: Sequence[Candidate]) -> int:
        """The index of the state after a step."""
        return max(one.index for one in candidates if max(one.steps, default=0) <= step)

    def passes(self, index: int, argv: Sequence[str], env: dict[str, str]) -> bool:
        """Whether plain pytest passes on a state."""
        self._git("checkout", "-q", "-f", self.commits[index])
        self._git("clean", "-fdxq", "-e", ".venv")
        done = subprocess.run(
            argv, cwd=self.folder, env=env, capture_output=True, timeout=MOST, check=False
        )
        return done.returncode == 0

    def bisect(
        self, argv: Sequence[str], env: dict[str, str], *, bad: int = -1, careful: bool = False
    ) -> Bisected:
        """Let git find the first bad commit, up to the state with the index `bad`.

        `careful`: what is neither a pass nor a failed test is skipped, as a person who knows the
        exit codes of pytest would have it.
        """
        codes = self.folder.parent / "codes"
        codes.write_text("")
        words = " ".join(map(shlex.quote, argv))
        skip = '[ "$code" -gt 1 ] && exit 125\n' if careful else ""
        script = self.folder.parent / "try.sh"
        script.write_text(
            f"timeout {MOST} {words} >/dev/null 2>&1\ncode=$?\n"
            f'echo "$code" >> {shlex.quote(str(codes))}\n{skip}exit "$code"\n'
        )
        started = time.monotonic()
        before, self._env = (
            self._env,
            env | {name: value for name, value in self._env.items() if name.startswith("GIT_")},
        )
        try:
            self._git("bisect", "start", self.commits[bad], self.commits[0])
            said = self._git("bisect", "run", "sh", str(script), check=False)
            self._git("bisect", "reset", check=False)
        finally:
            self._env = before
        seconds = time.monotonic() - started
        named = [line.split()[0] for line in said.splitlines() if "is the first bad commit" in line]
        steps = self._steps.get(named[0], ()) if named else ()
        told = tuple(map(int, codes.read_text().split()))
        return Bisected(steps[0] if len(steps) == 1 else None, len(told), told, seconds)
