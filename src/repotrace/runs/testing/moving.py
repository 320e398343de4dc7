"""A command of the workspace, made to run in a copy of one of its states.

What belongs to a state is taken from the copy, even where the state lacks it. What no state
holds (an environment, installed packages, what git ignores) stays where it is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from repotrace.config import find_repository
from repotrace.records.command import CommandSpec
from repotrace.system.git import GitError, git
from repotrace.system.snapshots.exclusion import RESERVED, is_regenerable, is_secret
from repotrace.system.surroundings import places_of

_START = r"(?:(?<![\w./-])|(?<=://)|(?<=:///))"
_END = r"(?P<rest>(?:/[^:;,\s'\"]*)?)(?=[:;,\s'\"]|$)"
_ENVIRONMENT = "pyvenv.cfg"
_PATH_IN_TEXT = re.compile(r"['\"](/[^'\"\n]+)['\"]")


class Moving:
    """From `workspace` to `folder`, which holds a state of it."""

    def __init__(self, workspace: Path, folder: Path, *, linked: Collection[str] = ()) -> None:
        """`linked`: names at the top of both that are one and the same thing."""
        self._workspace = os.path.abspath(workspace)  # noqa: PTH100 - as it was written
        self._folder = os.path.abspath(folder)  # noqa: PTH100
        self._linked = frozenset(linked)
        self._ignored: dict[str, bool] = {}
        spellings = {self._workspace, os.path.realpath(self._workspace)}
        roots = "|".join(re.escape(root) for root in sorted(spellings, key=len, reverse=True))
        self._pattern = re.compile(rf"{_START}(?:{roots}){_END}")

    def spec(self, spec: CommandSpec) -> CommandSpec:
        """`spec` in the folder: its own, its arguments, and the paths in its environment."""
        env = {name: self.text(value) for name, value in spec.env.items()}
        cwd = self.text(spec.cwd)
        argv = [self.text(part) for part in spec.argv]
        if argv:
            argv[0] = self._program(argv[0], cwd)
        first = [self.path(place) for place in self._editable(spec, argv)]
        if first:
            # An editable install would have the tests import the code of the workspace.
            present = env.get("PYTHONPATH")
            env["PYTHONPATH"] = os.pathsep.join([*first, *([present] if present else [])])
        script = None if spec.script is None else self.text(spec.script)
        return spec.model_copy(
            update={"argv": tuple(argv), "script": script, "cwd": cwd, "env": env}
        )

    def text(self, text: str) -> str:
        """`text` with the paths of the workspace moved."""
        if self._workspace not in text and not self._pattern.search(text):
            return text
        return self._pattern.sub(self._moved, text)

    def path(self, path: str) -> str:
        """A path, moved if it lies in the workspace."""
        match = self._pattern.match(path)
        return path if match is None else self._target(path, path[match.start("rest") :])

    def _moved(self, match: re.Match[str]) -> str:
        return self._target(match[0], match["rest"])

    def _target(self, path: str, rest: str) -> str:
        target = self._folder + rest
        inside = rest.lstrip("/").partition("::")[0]
        return path if inside and self._stays(inside, target) else target

    def _program(self, name: str, cwd: str) -> str:
        """`.venv/bin/pytest` and the like, named from a folder of the workspace."""
        if "/" not in name or name.startswith("/"):
            return name
        here = os.path.normpath(f"{cwd}/{name}")
        if not here.startswith(f"{self._folder}/") or os.path.lexists(here):
            return name
        inside = here[len(self._folder) + 1 :]
        return f"{self._workspace}/{inside}" if self._stays(inside, here) else name

    # --- What no state holds ------------------------------------------------------------------

    def _stays(self, inside: str, target: str) -> bool:
        """Whether a path relative to the workspace means the workspace's own."""
        parts = inside.split("/")
        if parts[0] in self._linked or os.fsencode(parts[0]) in RESERVED:
            return True
        if os.path.lexists(target):
            return False
        return self.is_left_out(inside)

    def is_left_out(self, inside: str) -> bool:
        """Whether the workspace has such a file, relative to it, that no state is to hold."""
        parts = inside.split("/")
        return any(self._leaves_out("/".join(parts[:end])) for end in range(1, len(parts) + 1))

    def _leaves_out(self, inside: str) -> bool:
        path, name = f"{self._workspace}/{inside}", os.fsencode(inside.rpartition("/")[2])
        if not os.path.lexists(path):
            return False
        is_folder = Path(path).is_dir()
        if is_folder and (is_regenerable(name) or Path(path, _ENVIRONMENT).exists()):
            return True
        return is_secret(name) or self._is_ignored(inside)

    def _is_ignored(self, inside: str) -> bool:
        found = self._ignored.get(inside)
        if found is None:
            found = self._ignored[inside] = self._git_ignores(inside)
        return found

    def _git_ignores(self, inside: str) -> bool:
        workspace = Path(self._workspace)
        if find_repository(workspace) is None:
            return False
        try:
            git(["check-ignore", "-q", "--", f"./{inside}"], workspace)
        except GitError:
            return False
        return True

    # --- Editable installs --------------------------------------------------------------------

    def _editable(self, spec: CommandSpec, argv: list[str]) -> list[str]:
        """The folders of the workspace that the command's Python has on its path."""
        found: dict[str, None] = {}
        for prefix in _prefixes(spec, argv):
            for packages in Path(prefix, "lib").glob("python3*/site-packages"):
                for place in _installed_from(packages):
                    if self._pattern.match(place) and not self._stays_installed(place):
                        found.setdefault(place)
        return list(found)

    def _stays_installed(self, place: str) -> bool:
        return self.path(place) == place


def _prefixes(spec: CommandSpec, argv: list[str]) -> Iterator[str]:
    """Of the virtual environments that the command may use."""
    venv = places_of(spec.cwd, spec.env, None).venv
    if venv is not None:
        yield venv
    if argv and "/" in argv[0]:
        prefix = Path(spec.cwd, argv[0]).parent.parent
        if str(prefix) != venv and (prefix / _ENVIRONMENT).is_file():
            yield str(prefix)


def _installed_from(packages: Path) -> Iterator[str]:
    """The folders that editable installs in `packages` add to the path, or find packages in."""
    for file in sorted(packages.glob("*.pth")):
        for line in _text_of(file).splitlines():
            if line.startswith("/"):
                yield line.strip()
    for file in sorted(packages.glob("__editable__*.py")):
        for path in _PATH_IN_TEXT.findall(_text_of(file)):
            yield str(Path(path).parent)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def environments_of(workspace: Path) -> list[str]:
    """Names at the top of `workspace` that hold what tests need and no state has: virtual
    environments and installed packages of JavaScript."""
    found = []
    try:
        with os.scandir(workspace) as entries:
            for entry in entries:
                if not entry.is_dir():
                    continue
                if entry.name == "node_modules" or Path(entry.path, _ENVIRONMENT).is_file():
                    found.append(entry.name)
    except OSError:
        return []
    return sorted(found)


def git_ceiling(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """`env` in which git looks for no repository above `folder`."""
    present = env.get("GIT_CEILING_DIRECTORIES")
    own = os.path.realpath(folder.parent)
    both = os.pathsep.join([present, own]) if present else own
    return {**env, "GIT_CEILING_DIRECTORIES": both}
