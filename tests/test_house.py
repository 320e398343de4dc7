"""The house: what is true of all modules and of all commands."""

from __future__ import annotations

import ast
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from running import clean_environment

import repotrace
from repotrace.cli.app import COMMANDS, make_app, wanted

ROOT = Path(__file__).parents[1]
SOURCE = Path(repotrace.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(SOURCE)], "repotrace.")
    if module.name != "repotrace.__main__"
)

WATCHER = """
import importlib, json, os, sys
seen = []
def watch(event, args):
    if event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
        if not isinstance(args[0], int) and "__pycache__" not in str(args[0]):
            seen.append(f"writes {args[0]}")
    elif event in ("os.mkdir", "os.rename", "os.remove", "subprocess.Popen", "os.fork", "os.exec"):
        if "__pycache__" not in str(args[0]):
            seen.append(f"{event} {args[0]}")
sys.addaudithook(watch)
class Environ(type(os.environ)):
    asked = []
    def __getitem__(self, key):
        frame = sys._getframe(1)
        while frame and frame.f_globals.get("__name__", "").startswith(("os", "_coll")):
            frame = frame.f_back
        if frame and frame.f_globals.get("__name__", "").startswith("repotrace"):
            seen.append(f"reads the variable {key}")
        return super().__getitem__(key)
os.environ.__class__ = Environ
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps(seen))
"""


def python(code: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=cwd,
        env=clean_environment(cwd),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("part", range(4))
def test_importing_is_silent_and_without_side_effects(part: int, tmp_path: Path) -> None:
    """Each quarter of the modules in a fresh interpreter; the first of a quarter alone."""
    names = MODULES[part::4]
    done = python(WATCHER, json.dumps(names), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) == []
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_imports_nothing_heavy(tmp_path: Path) -> None:
    heavy = [
        *("textual", "starlette", "uvicorn", "httpx", "httpx2", "genai_prices", "psycopg", "dask"),
        *("distributed", "rich", "sqlite3", "asyncio", "hypothesis", "pytest"),
    ]
    code = (
        "import sys; import repotrace.cli.app as app; app.make_app()\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    assert python(code, cwd=tmp_path).stdout == "[]\n"


def test_the_version_needs_no_imports(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['repotrace', '--version']\n"
        "from repotrace.__main__ import main; main()\n"
        "print('typer' in sys.modules, 'pydantic' in sys.modules)"
    )
    assert python(code, cwd=tmp_path).stdout.splitlines()[1] == "False False"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_an_example_and_a_test(name: str) -> None:
    commands = {command.name: command for command in make_app().registered_commands}
    callback = commands[name].callback
    assert callback is not None
    doc = (callback.__doc__ or "").strip()
    first = doc.splitlines()[0]
    assert re.fullmatch(r"[A-Z][a-z]+ .*[^.]", first), first
    assert not first.split()[0].endswith("s"), "imperative, not the third person"
    docs = (ROOT / "docs" / "commands.md").read_text()
    assert f"\n## {name}\n" in docs
    assert f"repotrace {name}" in docs
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_cli*.py"))
    assert f'repotrace("{name}"' in tests


def test_documented_options_are_the_real_ones(tmp_path: Path) -> None:
    docs = (ROOT / "docs" / "commands.md").read_text()
    for name in COMMANDS:
        section = docs.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        helped = subprocess.run(
            [sys.executable, "-m", "repotrace", name, "--help"],
            cwd=tmp_path,
            env=clean_environment(tmp_path, {"COLUMNS": "200"}),
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        real = set(re.findall(r"(--[a-z-]+)", helped)) - {"--help"}
        shared = {"--store"}
        missing = {flag for flag in real - shared if flag not in section}
        assert not missing, (name, missing)


def test_one_command_is_imported_when_it_is_named() -> None:
    assert wanted(["-C", "list", "--color", "never", "capture", "list"]) == ("capture",)
    assert wanted(["--help"]) is COMMANDS
    assert wanted(["captrue", "list"]) is COMMANDS


def test_everything_public_has_a_docstring() -> None:
    bare = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if path.stem != "_version" and ast.get_docstring(tree) is None:
            bare.append(f"{path.relative_to(SOURCE)}")
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if not node.name.startswith("_") and ast.get_docstring(node) is None:
                bare.append(f"{path.relative_to(SOURCE)}: {node.name}")
    assert bare == []


def test_files_and_functions_stay_small() -> None:
    large = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if text.count("\n") > 550:
            large.append(f"{path.relative_to(SOURCE)}: {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and path.parent.name != "cli":
                size = (node.end_lineno or 0) - node.lineno
                if size > 75:
                    large.append(f"{path.relative_to(SOURCE)}: {node.name}, {size} lines")
    assert large == []


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == repotrace.__version__
    assert f"version: {repotrace.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"[{repotrace.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_package_is_typed() -> None:
    assert (SOURCE / "py.typed").is_file()
