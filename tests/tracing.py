"""What tests of the SDK share: a project to work in, and what was recorded of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from running import plain_git

from repotrace.records.run import ExecutionStep, Run
from repotrace.storage import Store


class Project:
    """A git repository that is the current folder, and its recorded runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = Store(folder / ".git" / "repotrace")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @property
    def run(self) -> Run:
        """The newest run, with all that was written of it."""
        done = self.store.runs.ingest(wait=True)
        assert done.problem is None
        assert done.unusable == 0
        return self.store.runs.get()

    def steps(self) -> list[ExecutionStep]:
        return self.store.runs.steps(self.run.id)

    def named(self, description: str) -> ExecutionStep:
        (found,) = (step for step in self.steps() if step.description == description)
        return found

    def tree(self) -> dict[str, Any]:
        """The steps by name, each with those within it. Names must differ."""
        steps = self.steps()

        def below(parent: str | None) -> dict[str, Any]:
            return {step.description: below(step.id) for step in steps if step.parent_id == parent}

        return below(None)

    def changes(self, step: ExecutionStep) -> list[tuple[str, str]]:
        found = self.store.runs.operations(step.run_id, step.id)
        return sorted((item.operation_type, item.file_path) for item in found)


def make_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with one commit; nothing of an outer recording is left in the environment."""
    folder = (tmp_path / "project").resolve()
    folder.mkdir()
    plain_git(folder, "init", "-q", "-b", "main")
    (folder / "a.py").write_text("a = 1\n")
    plain_git(folder, "add", ".")
    plain_git(folder, "commit", "-q", "-m", "start")
    for name in list(os.environ):
        if name.startswith("REPOTRACE_") or name in ("TRACEPARENT", "PYTEST_PLUGINS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(folder)
    return Project(folder)
