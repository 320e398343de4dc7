"""Runs recorded step by step, with real states, for tests of what reads them back."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

from recording import RUN, event
from typer.testing import CliRunner

from repotrace.cli.app import make_app
from repotrace.records.run import Run
from repotrace.storage import Store


class Recorded:
    """A run in the making: `step` changes files and keeps the state after it.

    One second passes between two events.
    """

    def __init__(
        self, workspace: Path, home: Path, *, run: str = RUN, base: bool = True, **about: Any
    ) -> None:
        workspace.mkdir(parents=True, exist_ok=True)
        self.workspace = workspace
        self.id = run
        self.store = Store(home, reports=workspace / ".repotrace" / "reports")
        self._seconds = itertools.count()
        self._numbers = itertools.count(1)
        self.tell("run_started", workspace=str(workspace), **about)
        if base:
            self.tell("state", state_id=self.state())

    @property
    def run(self) -> Run:
        return self.store.runs.get(self.id)

    def tell(self, kind: str, **data: Any) -> None:
        self.store.runs.add_events([event(kind, next(self._seconds), run=self.id, **data)])

    def state(self) -> str:
        taken = self.store.snapshots.take(self.workspace, ref=f"runs/{self.id}")
        assert taken.state_id is not None, taken.reason
        return taken.state_id

    def step(
        self, change: str | Callable[[], object] | None = None, *, keep: bool = True, **data: Any
    ) -> str:
        """A step that runs a line of shell, or calls something; its id."""
        name = f"s{next(self._numbers)}"
        self.tell("step_started", id=name, **data)
        if isinstance(change, str):
            subprocess.run(change, shell=True, cwd=self.workspace, check=True)
        elif change is not None:
            change()
        if keep:
            self.tell("state", step_id=name, state_id=self.state())
        self.tell("step_ended", id=name)
        return name

    def end(self) -> None:
        self.tell("run_ended")
        self.store.snapshots.finish(f"runs/{self.id}")
        self.store.close()


class Done(NamedTuple):
    """What a command did."""

    code: int
    stdout: bytes
    stderr: str


def call(cwd: Path, home: Path, *words: str | Path) -> Done:
    """A command of `repotrace` in this process: for properties, which call it often."""
    names = [str(word) for word in words]
    command = " ".join(names[:2]) if names[0] == "runs" else names[0]
    with chdir(cwd):
        result = CliRunner().invoke(make_app([command]), ["--home", str(home), *names])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout_bytes, result.stderr)


def git_view(folder: Path) -> dict[bytes, tuple[str, bytes]]:
    """What git's diffs can say of a folder: files with their executable bit, and links."""
    found: dict[bytes, tuple[str, bytes]] = {}
    root = os.fsencode(folder)
    for top, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != b".git"]
        for name in [*files, *folders]:
            path = os.path.join(top, name)  # noqa: PTH118 - names that are no text
            place = os.path.relpath(path, root)
            if os.path.islink(path):  # noqa: PTH114
                found[place] = ("link", os.readlink(path))  # noqa: PTH115
            elif os.path.isfile(path):  # noqa: PTH113
                kind = "executable" if os.lstat(path).st_mode & 0o100 else "file"
                found[place] = (kind, Path(os.fsdecode(path)).read_bytes())
    return found
