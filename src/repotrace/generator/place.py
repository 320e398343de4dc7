"""How a generated test finds the folder that its command ran in."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from repotrace.generator.parts import Parts
from repotrace.records.command import CommandRun


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The working folder as seen from the file of the test."""

    recorded: str
    """Absolute, as it was."""
    below: str | None = None
    """Below the root of the work tree, `.` for the root itself; None: there was no work tree."""
    climb: int | None = None
    """How many folders the root (of the work tree, else `recorded`) is above that of the file;
    None: the file is outside, or nobody knows where it will be."""
    outside: bool = False
    """The file is written outside of the root."""

    def define(self, parts: Parts) -> None:
        """Define `working_folder() -> Path`."""
        parts.use_from("pathlib", "Path")
        below = ""
        if self.below not in (None, "."):
            parts.constants["SUBFOLDER"] = self.below or ""
            below = " / SUBFOLDER"
        if self.climb is None:
            parts.constants["RECORDED_FOLDER"] = self.recorded
        lines = [
            "def working_folder() -> Path:",
            '    """The folder that the command runs in, found from where this file is."""',
        ]
        recorded = "Path(RECORDED_FOLDER)"
        if self.below is None:
            lines += self._without_repository(recorded)
        elif self.climb is not None:
            lines += [
                "    parents = Path(__file__).resolve().parents",
                '    roots = [path for path in parents if (path / ".git").exists()]',
                f"    return (roots or [parents[{self.climb}]])[0]{below}",
            ]
        elif self.outside:
            lines += [
                f"    recorded = {recorded}",
                "    parents = Path(__file__).resolve().parents",
                '    roots = [path for path in parents if (path / ".git").exists()]',
                "    if recorded.is_dir() or not roots:",
                "        return recorded",
                f"    return roots[0]{below}",
            ]
        else:
            lines += [
                "    for path in Path(__file__).resolve().parents:",
                '        if (path / ".git").exists():',
                f"            return path{below}",
                f"    return {recorded}",
            ]
        parts.add(lines)

    def _without_repository(self, recorded: str) -> list[str]:
        if self.climb is None:
            return [f"    return {recorded}"]
        return [f"    return Path(__file__).resolve().parents[{self.climb}]"]


def whereabouts(run: CommandRun, path: Path | None) -> Whereabouts | None:
    """Where `run` ran, seen from a test that is written to `path`; None if nobody knows.

    Without a `path` nobody knows where the test will be.
    """
    if not run.cwd:
        return None
    cwd = run.places.cwd or os.path.realpath(run.cwd)
    folder = Path(os.path.realpath(path.parent)) if path is not None else None
    root, below = run.places.repository, run.cwd_in_repository
    if (root is None or below is None) and folder is not None:
        root = _repository_of(folder, cwd)
        below = os.path.relpath(cwd, root) if root else None
    if root is None or below is None:
        root, below = cwd, None
    climb = None
    if folder is not None and folder.is_relative_to(root):
        climb = len(folder.parts) - len(Path(root).parts)
    return Whereabouts(
        recorded=run.cwd,
        below=below,
        climb=climb,
        outside=folder is not None and climb is None,
    )


def _repository_of(folder: Path, cwd: str) -> str | None:
    """The work tree that holds both, for a report that does not name it."""
    for path in (folder, *folder.parents):
        if (path / ".git").exists():
            return str(path) if Path(cwd).is_relative_to(path) else None
    return None
