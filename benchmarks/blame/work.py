"""The work tree of a generated run: files, and which patches are in them at the moment."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from benchmarks.blame.patches import Patch, patched, with_comment, with_function
from benchmarks.blame.projects import Ground, Project, environment

IGNORED = "__pycache__\n*.pyc\n.pytest_cache\n.venv\n"


class Work:
    """A copy of a project, under git.

    Edits go to the text without patches; `write` puts the patches in.
    """

    def __init__(self, ground: Ground, project: Project, folder: Path) -> None:
        self.ground = ground
        self.project = project
        self.folder = folder
        self.python = ground.python
        self.environ = environment()
        self._texts: dict[str, bytes] = {}
        self._patches: list[Patch] = []
        self._changed: set[str] = set()
        self._notes: list[str] = []
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ground.source(project), folder)
        self.put(".gitignore", IGNORED)

    def text(self, path: str) -> bytes:
        """Of a file, without any patch."""
        if path not in self._texts:
            self._texts[path] = (self.folder / path).read_bytes()
        return self._texts[path]

    def put(self, path: str, text: str | bytes) -> None:
        """Give a file another text."""
        self._texts[path] = text.encode() if isinstance(text, str) else text
        self._changed.add(path)

    def apply(self, *patches: Patch) -> None:
        """Have the patches in."""
        for patch in patches:
            self.text(patch.path)
            self._patches.append(patch)
            self._changed.add(patch.path)

    def drop(self, *patches: Patch) -> None:
        """Have the patches out."""
        for patch in patches:
            self._patches.remove(patch)
            self._changed.add(patch.path)

    def rendered(self, path: str) -> bytes:
        """The text of a file with its patches."""
        return patched(self.text(path), [one for one in self._patches if one.path == path])

    def write(self) -> None:
        """Write what has changed."""
        for path in sorted(self._changed):
            file = self.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(self.rendered(path))
        self._changed.clear()

    def changed(self) -> list[str]:
        """The files that `write` would write."""
        return sorted(self._changed)

    def written(self) -> None:
        """Somebody else has written what has changed."""
        self._changed.clear()

    def commit(self) -> None:
        """Write, and commit all of it as the beginning."""
        self.write()
        env = self.environ | {
            "GIT_AUTHOR_NAME": "someone",
            "GIT_AUTHOR_EMAIL": "someone@example.com",
            "GIT_COMMITTER_NAME": "someone",
            "GIT_COMMITTER_EMAIL": "someone@example.com",
            "GIT_CONFIG_GLOBAL": os.devnull,
        }
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "begin")):
            subprocess.run(["git", *words], cwd=self.folder, env=env, check=True)

    # --- Edits that break nothing ---------------------------------------------------------

    def harmless(self, chance: random.Random, number: int, module: str = "") -> str:
        """Change something that no test notices; what it was, in words."""
        module = module or chance.choice(sorted(self.project.modules))
        kind = chance.choice(("comment", "comment", "comment", "function", "prose", "note"))
        if kind == "comment":
            text = with_comment(self.text(module), f"{number}: see the notes", chance)
            self.put(module, text)
            return f"comment on {module}"
        if kind == "function":
            self.put(module, with_function(self.text(module), f"_draft_{number}"))
            return f"draft a function in {module}"
        if kind == "prose":
            path = self.project.prose
            self.put(path, self.text(path) + f"\nDraft {number}.\n".encode())
            return f"edit {path}"
        path = f"notes/{number}.md"
        self.put(path, f"# {number}\n\nTo do.\n")
        return f"write {path}"

    def comments(self, chance: random.Random, number: int, module: str, count: int) -> None:
        """So many comments in one file."""
        for one in range(count):
            text = with_comment(self.text(module), f"{number}.{one}: to be checked", chance)
            self.put(module, text)


def each_once(tests: Iterable[str]) -> list[str]:
    """In order, none twice."""
    return list(dict.fromkeys(tests))
