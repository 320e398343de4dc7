"""Which command runs the tests of a project, and in which environment."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.config import CheckSettings
from repotrace.errors import RepoTraceError
from repotrace.records.command import CommandSpec
from repotrace.redact import Redactor
from repotrace.runs.testing.projects import PYTHON_MARKS, node_script, projects_in
from repotrace.system.execution import execute

_SHELL = re.compile(r"[|&;<>()$`\\\"'*?\[\]#~\n{}!]")
"""What a shell would not take as it is."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PROBE_LIMIT = 4 << 20
_PROBE_TIME = 60.0
_NAMED = 5
"""Folders that are named where one has to be chosen."""

_ASK = """
import importlib.util, json, sys
try:
    from importlib import metadata
    found = sorted({(d.metadata["Name"] or "", d.version or "") for d in metadata.distributions()})
except Exception:
    found = []
names = ("pytest", "unittest")
print(json.dumps({"version": sys.version, "prefix": sys.prefix, "packages": found,
                  "has": [n for n in names if importlib.util.find_spec(n)]}))
"""


@dataclass(frozen=True, slots=True)
class TestCommand:
    """A command that runs tests, in a folder of the workspace."""

    __test__ = False

    cwd: str
    argv: tuple[str, ...] = ()
    """Without the tests that it is to run, if it is one of pytest."""
    script: str | None = None
    pytest: bool = False
    """Whether single tests are chosen by node id, and judged by what pytest tells of each."""
    chosen: tuple[str, ...] = ()
    """The tests that it runs where none are named."""
    why: str = ""
    """Where it comes from, for people."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables of the project's settings."""
    project: str = ""
    """The folder in the workspace that the tests are those of, if it is not the workspace."""

    def spec(self, environ: Mapping[str, str], tests: Sequence[str] = ()) -> CommandSpec:
        """What to run for these tests; for all of them if none are named."""
        argv = self.argv
        if self.pytest:
            argv += tuple(tests) or self.chosen
        env = {**environ, "PWD": self.cwd, **dict(self.env)}
        return CommandSpec(argv=argv, script=self.script, cwd=self.cwd, env=env)

    def line(self, tests: Sequence[str] = ()) -> str:
        """The command for people."""
        if self.script is not None:
            return self.script
        more = (tuple(tests) or self.chosen) if self.pytest else ()
        return shlex.join([*self.argv, *more])


class Environment(NamedTuple):
    """What a Python told of itself."""

    python: str
    """As it is called."""
    prefix: str
    fingerprint: str
    """Of the interpreter and the installed packages."""
    has: frozenset[str]
    """Those of `pytest` and `unittest` that can be imported."""
    version: str = ""


@dataclass(slots=True)
class Detection:
    """Looks at a workspace for what runs its tests. Nothing is written."""

    workspace: Path
    environ: Mapping[str, str]
    redactor: Redactor
    settings: CheckSettings = field(default_factory=CheckSettings)
    own: bool = True
    """Whether what lies in the workspace may be executed to ask it; not if nobody here made it."""
    near: tuple[str, ...] = ()
    """Paths in the workspace: where it has several projects, the one that holds all of them is
    meant."""
    _asked: dict[str, Environment | None] = field(default_factory=dict)

    def command(self, line: str | None = None, *, cwd: Path | None = None) -> TestCommand:
        """The command that `line` or the settings give, else the one that the project has.

        `cwd`: the folder for `line`, by default the workspace. Raises RepoTraceError if there is
        none.
        """
        if line is not None:
            return self._given(line, cwd or self.workspace, "as given")
        if self.settings.command is not None:
            return self._given(self.settings.command, self.workspace, "as the settings say")
        found = self._own_command() or self._below()
        if found is not None:
            return found
        raise RepoTraceError(
            "Nothing was found that runs the tests of this project.",
            hint='Name it: --test-cmd "…", or [tool.repotrace.check] command = "…"',
        )

    def environment(self, command: TestCommand) -> str:
        """A fingerprint of what the command runs with: interpreter, packages, settings."""
        parts: list[Any] = [command.argv, command.script, command.env, self.settings]
        words = command.argv or tuple((command.script or "").split())
        python = self._python_of(words[0] if words else "")
        asked = self._ask(python) if python else None
        parts.append(asked.fingerprint if asked else "")
        for name in ("node_modules/.package-lock.json", "node_modules/.modules.yaml"):
            parts.append(_digest_of(self.workspace / name))
        text = json.dumps(parts, default=str).replace(str(self.workspace), "<workspace>")
        return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:24]

    def _own_command(self) -> TestCommand | None:
        return next((found for look in _PROJECTS if (found := look(self)) is not None), None)

    # --- Folders ----------------------------------------------------------------------------

    def _below(self) -> TestCommand | None:
        """The command of the project in a folder, if there is one alone or one is near."""
        folders = projects_in(self.workspace)
        near = [one for one in folders if self.near and self._holds(one)]
        if not near and len(folders) > 1:
            named = ", ".join(folders[:_NAMED])
            more = f" and {len(folders) - _NAMED} more" if len(folders) > _NAMED else ""
            raise RepoTraceError(
                f"Tests are in several projects here: {named}{more}.",
                hint=f"Name one: repotrace -C {shlex.quote(folders[0])} check, or a command that"
                ' runs all: --test-cmd "…"',
            )
        for folder in near or folders:
            place = self.workspace / folder
            inner = Detection(place, self.environ, self.redactor, self.settings, self.own)
            found = inner._own_command()
            if found is not None:
                return self._within(folder, found)
        return None

    def _holds(self, folder: str) -> bool:
        return all(f"{path}/".startswith(f"{folder}/") for path in self.near)

    def _within(self, folder: str, found: TestCommand) -> TestCommand:
        """The command of a folder; pytest is run from the top, so that its ids are paths there."""
        if not found.pytest:
            return replace(found, project=folder, why=f"{found.why}, in {folder}")
        python, *rest = found.argv
        if "/" in python and not python.startswith("/"):
            python = f"{folder}/{python}"
        env = dict(found.env)
        if "PYTHONPATH" not in env:
            present = self.environ.get("PYTHONPATH")
            env["PYTHONPATH"] = os.pathsep.join([folder, *([present] if present else [])])
        return replace(
            found,
            cwd=str(self.workspace),
            argv=(python, *rest, "--rootdir=."),
            chosen=(folder,),
            env=tuple(env.items()),
            project=folder,
            why=f"{found.why}; the tests of {folder}",
        )

    # --- Given ------------------------------------------------------------------------------

    def _given(self, line: str, cwd: Path, why: str) -> TestCommand:
        about: dict[str, Any] = {"cwd": str(cwd), "why": why, "env": self.settings.env}
        if not line.strip():
            raise RepoTraceError("The test command is empty.")
        words = line.split()
        if _SHELL.search(line) or _ASSIGNMENT.match(words[0]):
            quoted = _quoted(line)
            if quoted is None:
                return TestCommand(script=line, **about)
            words = quoted
        place = place_of_pytest(words)
        if place is None:
            return TestCommand(argv=tuple(words), **about)
        head, rest = words[: place + 1], words[place + 1 :]
        chosen = [word for word in rest if self._is_path(word, cwd)]
        options = [word for word in rest if word not in chosen]
        return TestCommand(
            argv=(*head, *options, *_UNLIMITED), chosen=tuple(chosen), pytest=True, **about
        )

    def _is_path(self, word: str, cwd: Path) -> bool:
        path = word.partition("::")[0]
        return not word.startswith("-") and bool(path) and ("::" in word or (cwd / path).exists())

    # --- Python -----------------------------------------------------------------------------

    def python(self, needs: str) -> Environment | None:
        """The first Python that has a package; the project's own come first."""
        for name in self._pythons():
            found = self._ask(name)
            if found is not None and needs in found.has:
                return found
        return None

    def _pythons(self) -> Iterator[str]:
        import shutil
        import sys

        for folder in (".venv", "venv", "env") if self.own else ():
            path = self.workspace / folder / "bin" / "python"
            if path.exists():
                yield f"{folder}/bin/python"
        active = self.environ.get("VIRTUAL_ENV")
        if active and Path(active, "bin", "python").exists():
            yield f"{active}/bin/python"
        for name in ("python", "python3"):
            if shutil.which(name, path=self.environ.get("PATH", os.defpath)):
                yield name
        yield sys.executable

    def _python_of(self, program: str) -> str | None:
        """The Python of a command: itself, or the one beside it."""
        name = program.rpartition("/")[2]
        if re.fullmatch(r"python[\d.]*", name):
            return program
        if "/" in program:
            beside = f"{program.rpartition('/')[0]}/python"
            return beside if (self.workspace / beside).exists() else None
        if name in ("pytest", "py.test"):
            import shutil

            found = shutil.which(name, path=self.environ.get("PATH", os.defpath))
            beside = f"{os.path.dirname(found)}/python" if found else ""  # noqa: PTH120
            return beside if beside and Path(beside).exists() else None
        return None

    def _ask(self, python: str) -> Environment | None:
        if not self.own and "/" in python and not python.startswith("/"):
            return None
        if python not in self._asked:
            self._asked[python] = self._answer(python)
        return self._asked[python]

    def _answer(self, python: str) -> Environment | None:
        env = {**self.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        # In the workspace its modules come before those of the same names in the library.
        cwd = str(self.workspace) if self.own else "/"
        spec = CommandSpec(argv=(python, "-c", _ASK), cwd=cwd, env=env, timeout=_PROBE_TIME)
        try:
            done = execute(spec, redactor=self.redactor, limit=_PROBE_LIMIT, with_signature=False)
            told = json.loads(done.stdout.text)
        except (ValueError, RepoTraceError):
            return None
        told["packages"] = [pair for pair in told["packages"] if pair[0] != "repotrace"]
        facts = json.dumps([told["version"], told["prefix"], told["packages"]])
        return Environment(
            python,
            told["prefix"],
            sha256(facts.encode()).hexdigest()[:24],
            frozenset(told["has"]),
            str(told["version"]).split()[0],
        )

    def has(self, name: str) -> bool:
        """Whether the workspace has such a file."""
        return (self.workspace / name).is_file()


_UNLIMITED = ("--maxfail=0", "--continue-on-collection-errors")
"""A session that ends at its first failure, or at a file it cannot import, hides the rest."""


# --- Projects -------------------------------------------------------------------------------


def _python_project(here: Detection) -> TestCommand | None:
    tests = _python_tests(here.workspace)
    if not any(map(here.has, PYTHON_MARKS)) and not tests:
        return None
    about: dict[str, Any] = {"cwd": str(here.workspace), "env": here.settings.env}
    found = here.python("pytest")
    if found is not None:
        argv = (found.python, "-m", "pytest", "-q", *_UNLIMITED)
        return TestCommand(argv=argv, pytest=True, why="pytest is installed", **about)
    found = here.python("unittest")
    if found is not None and tests:
        folder = (here.workspace / "tests").is_dir() and not here.has("tests/__init__.py")
        more = ("-s", "tests") if folder else ()
        argv = (found.python, "-m", "unittest", "discover", "-v", *more)
        return TestCommand(argv=argv, why="pytest is not installed", **about)
    return None


def _python_tests(workspace: Path) -> bool:
    patterns = ("test_*.py", "tests/test_*.py", "tests/**/test_*.py", "test/test_*.py")
    return any(next(workspace.glob(pattern), None) is not None for pattern in patterns)


def _node_project(here: Detection) -> TestCommand | None:
    if node_script(here.workspace) is None:
        return None
    managers = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lock": "bun"}
    manager = next((name for file, name in managers.items() if here.has(file)), "npm")
    argv = (manager, "run", "test") if manager == "bun" else (manager, "test")
    about: dict[str, Any] = {"cwd": str(here.workspace), "env": here.settings.env}
    return TestCommand(argv=argv, why="package.json has a test script", **about)


def _simple(file: str, *argv: str) -> Callable[[Detection], TestCommand | None]:
    def look(here: Detection) -> TestCommand | None:
        if not here.has(file):
            return None
        about: dict[str, Any] = {"cwd": str(here.workspace), "env": here.settings.env}
        return TestCommand(argv=argv, why=f"there is a {file}", **about)

    return look


_PROJECTS: tuple[Callable[[Detection], TestCommand | None], ...] = (
    _python_project,
    _simple("Cargo.toml", "cargo", "test", "--no-fail-fast"),
    _simple("go.mod", "go", "test", "-v", "./..."),
    _node_project,
)


def _quoted(line: str) -> list[str] | None:
    """The words of a line that needs no shell but for its quotes; None if it needs one."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    rest = re.sub(r"'[^']*'|\"[^\"$`\\]*\"", "", line)
    if _SHELL.search(rest.replace("[", "").replace("]", "")) or not words:
        return None
    return None if _ASSIGNMENT.match(words[0]) else words


def place_of_pytest(words: Sequence[str]) -> int | None:
    """The index of the word that means pytest; None if the command is another one."""
    for number, word in enumerate(words):
        if word.rpartition("/")[2] in ("pytest", "py.test"):
            return number
    return None


def _digest_of(path: Path) -> str:
    try:
        return sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""
