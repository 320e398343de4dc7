"""Makes sure that tests import the code of the state that they run on, and not another copy.

An installed copy of the project, or an editable install that we did not see through, would have
every state tested with the same code. So a plug-in of pytest notes which modules were loaded from
where, and what the state has itself must have come from the scratch folder. Of other commands the
first Python process notes it when it ends: unittest, a script, a runner that imports the tests.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from repotrace.errors import RepoTraceError
from repotrace.system.snapshots import SnapshotStore
from repotrace.system.snapshots.objects import Tree

VARIABLE = "REPOTRACE_IMPORTS"
"""Names the folder that the plug-in writes to."""

FIRST_VARIABLE = "REPOTRACE_IMPORTS_FIRST"
"""The same, for the first Python process of a command; that takes it out of its environment."""

_NAME = "repotrace_imports"
_ROOTS = ("", "src/", "lib/", "python/")
"""Folders of a project that packages are imported from."""

_PLUGIN = '''"""Notes what a session of pytest has loaded from where, and what it collected."""

import json
import os
import sys


def pytest_configure(config):
    listed = getattr(config.pluginmanager, "_plugin_distinfo", None)
    if isinstance(listed, list):
        listed[:] = [pair for pair in listed if getattr(pair[0], "__name__", "") != __name__]


def pytest_collection_finish(session):
    folder = os.environ.get("REPOTRACE_IMPORTS")
    try:
        if folder:
            with open(os.path.join(folder, "%d.collected" % os.getpid()), "w") as file:
                json.dump([item.nodeid for item in session.items], file)
    except Exception:
        return


def pytest_unconfigure():
    folder = os.environ.get("REPOTRACE_IMPORTS")
    if not folder:
        return
    try:
        standard = os.path.dirname(os.__file__) + os.sep
        found = {}
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if not isinstance(path, str) or name == __name__:
                continue
            path = os.path.abspath(path)
            if path.startswith(standard) and "-packages" not in path:
                continue
            found[name] = path
        with open(os.path.join(folder, "%d.json" % os.getpid()), "w") as file:
            json.dump(found, file)
    except Exception:
        return
'''


_STARTING = '''"""Notes what the first Python process has loaded; the next of its kind follows."""

import os
import sys


def note(folder):
    try:
        standard = os.path.dirname(os.__file__) + os.sep
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        found = {}
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if not isinstance(path, str) or name in ("sitecustomize", "usercustomize"):
                continue
            path = os.path.abspath(path)
            if path.startswith(standard) and "-packages" not in path:
                continue
            found[name] = path
        found["__main__"] = main
        with open(os.path.join(folder, "%d.json" % os.getpid()), "w") as file:
            json.dump(found, file)
    except Exception:
        return


folder = os.environ.pop("REPOTRACE_IMPORTS_FIRST", None)
if folder:
    import atexit
    import json

    atexit.register(note, folder)

try:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec
except ImportError:
    spec = None
else:
    own = os.path.dirname(os.path.abspath(__file__))
    others = [place for place in sys.path if os.path.abspath(place) != own]
    spec = PathFinder.find_spec("sitecustomize", others)
if spec is not None and spec.loader is not None:
    sys.modules["sitecustomize"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["sitecustomize"])
'''

_DELEGATING = frozenset(
    {"tox", "nox", "hatch", "poetry", "pdm", "pipenv", "uv", "invoke", "pre_commit"}
)
"""Programs that have others run the tests: what they load themselves is their own."""


class ImportProbe:
    """Puts the plug-in into environments, and reads what it noted."""

    def __init__(self, snapshots: SnapshotStore, folder: Path) -> None:
        self._snapshots = snapshots
        self._folder = folder
        self._modules: dict[str, frozenset[str]] = {}
        self._guard = threading.Lock()

    def environment(
        self, env: Mapping[str, str], worker: int, *, pytest: bool = True
    ) -> dict[str, str]:
        """`env` with the plug-in at the end of the path; found like any installed one.

        `pytest`: whether the command is one of it. Of another one, its first Python process tells.
        """
        place = self._place()
        notes = self._notes(worker)
        notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in notes.iterdir():
            old.unlink()
        before = env.get("PYTHONPATH")
        path = f"{before}{os.pathsep}{place}" if before else str(place)
        result = {**env, VARIABLE: str(notes), "PYTHONPATH": path}
        if env.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
            named = env.get("PYTEST_PLUGINS")
            result["PYTEST_PLUGINS"] = f"{named},{_NAME}" if named else _NAME
        if not pytest:
            result[FIRST_VARIABLE] = str(notes)
            result["PYTHONPATH"] = f"{place.with_name('first')}{os.pathsep}{path}"
        return result

    def check(self, worker: int, state: str, scratch: Path) -> bool:
        """Whether anything is known of what was loaded.

        Raises RepoTraceError if code that the state has was loaded from elsewhere.
        """
        own = self._own(state)
        root = os.path.realpath(scratch) + os.sep
        known = False
        for note in self._notes(worker).glob("*.json"):
            try:
                loaded = json.loads(note.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                continue
            main = loaded.pop("__main__", None)
            if main is not None and not _DELEGATING.isdisjoint(
                Path(main).with_suffix("").parts[-2:]
            ):
                continue
            known = True
            for name, path in sorted(loaded.items()):
                place = os.path.realpath(path)
                if name in own and not place.startswith(root):
                    raise RepoTraceError(
                        f"The tests import {name} from {place}, not from the files of the state.",
                        hint="Install the project in place (pip install -e .), or say where its"
                        ' code lies: [tool.repotrace.check] env = { PYTHONPATH = "src" }',
                    )
        return known

    def collected(self, worker: int) -> list[str]:
        """The tests that the last sessions of this worker collected, in their order."""
        found: dict[str, None] = {}
        for note in sorted(self._notes(worker).glob("*.collected")):
            try:
                found.update(dict.fromkeys(json.loads(note.read_text(encoding="utf-8"))))
            except (OSError, ValueError, TypeError):
                continue
        return list(found)

    def _notes(self, worker: int) -> Path:
        return self._folder / "notes" / str(worker)

    def _place(self) -> Path:
        with self._guard:
            return self._made()

    def _made(self) -> Path:
        place = self._folder / "path"
        about = place / f"{_NAME}-1.dist-info"
        if not about.exists():
            first = self._folder / "first"
            first.mkdir(mode=0o700, parents=True)
            (first / "sitecustomize.py").write_text(_STARTING)
            about.mkdir(mode=0o700, parents=True)
            (place / f"{_NAME}.py").write_text(_PLUGIN)
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {_NAME}\nVersion: 1\n")
            (about / "entry_points.txt").write_text(f"[pytest11]\n{_NAME} = {_NAME}\n")
        return place

    def _own(self, state: str) -> frozenset[str]:
        """The modules that a state has, by the names that they are imported by."""
        found = self._modules.get(state)
        if found is None:
            tree = self._snapshots.state(state).tree
            paths = map(os.fsdecode, Tree(self._snapshots.reader, tree).paths())
            found = frozenset(name for path in paths for name in _names(path))
            if len(self._modules) > 200:
                self._modules.clear()
            self._modules[state] = found
        return found


def _names(path: str) -> Iterator[str]:
    """What a file may be imported as."""
    if not path.endswith(".py"):
        return
    for root in _ROOTS:
        if path.startswith(root):
            name = path[len(root) :].removesuffix(".py").removesuffix("/__init__")
            if all(part.isidentifier() for part in name.split("/")):
                yield name.replace("/", ".")


def linked_packages(workspace: Path) -> list[str]:
    """The packages in `node_modules` that are links to folders of the workspace itself.

    A copy has the same links, so that tests which use them run the code of the work tree.
    """
    modules = workspace / "node_modules"
    root, own = os.path.realpath(workspace) + os.sep, os.path.realpath(modules) + os.sep
    found = []
    for place in (modules, *sorted(modules.glob("@*"))):
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                target = os.path.realpath(entry.path) if entry.is_symlink() else ""
                if target.startswith(root) and not target.startswith(own):
                    found.append(os.path.relpath(entry.path, modules))
    return sorted(found)
