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
from typer.testing import CliRunner

import repotrace
from repotrace.cli.app import COMMANDS, HELP, make_app, wanted

ROOT = Path(__file__).parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
SOURCE = Path(repotrace.__file__).parent
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(SOURCE)], "repotrace.")
    if module.name != "repotrace.__main__"
)

WATCHER = """
import importlib, json, os, sys
# Once instead of in each child.
import httpx2, pydantic, rich.console, starlette.applications, textual.app, textual.widgets, typer
import uvicorn, watchfiles

seen = []


def ours():  # whether our own code asks, be it through the standard library
    frame = sys._getframe(2)
    while frame:
        top = frame.f_globals.get("__name__", "").partition(".")[0]
        if top != "__main__" and top not in sys.stdlib_module_names:
            return top.startswith("repotrace")
        if frame.f_code.co_name == "<module>":
            return False
        frame = frame.f_back
    return False


def watch(event, args):
    what = ", ".join(map(str, args[:1]))
    if event == "open" and (isinstance(args[0], int) or not args[2] & WRITING):
        return
    if event.startswith(EVENTS) and "__pycache__" not in what:
        seen.append(f"{event} {what}")


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
EVENTS = (
    *("open", "os.mkdir", "os.rename", "os.remove", "os.chdir", "os.putenv", "os.system"),
    *("subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn", "socket.connect", "tempfile"),
)


class Environ(type(os.environ)):
    def __getitem__(self, key):
        if ours():
            seen.append(f"reads {key}")
        return super().__getitem__(key)

    def __contains__(self, key):
        return self.get(key) is not None

    def __iter__(self):
        if ours():
            seen.append("reads all variables")
            return iter(())
        return super().__iter__()


os.environ.__class__ = Environ
found = {}
sys.addaudithook(watch)
for name in sys.argv[1:]:
    # A child for each, so that every module is once the first of ours to be imported.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        seen.clear()
        try:
            importlib.import_module(name)
        except BaseException as error:
            seen.append(repr(error))
        os.write(writing, json.dumps(list(dict.fromkeys(seen))).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        found[name] = json.loads(answer.read())
    os.waitpid(child, 0)
print(json.dumps({name: events for name, events in found.items() if events}))
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
    """Each module is imported first in a process; a cycle of imports would show here, too."""
    names = MODULES[part::4]
    done = python(WATCHER, *names, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) == {}
    assert list(tmp_path.iterdir()) == []


def test_side_effects_of_importing_would_be_seen(tmp_path: Path) -> None:
    sins = {
        "home": ("import os\nhome = os.path.expanduser('~')", ["reads HOME"]),
        "get": ("import os\nname = os.getenv('USER')", ["reads USER"]),
        "has": ("import os\nseen = 'CI' in os.environ", ["reads CI"]),
        "all": ("import os\nenv = dict(os.environ)", ["reads all variables"]),
        "file": ("open('file', 'w').close()", ["open file"]),
        "folder": ("from pathlib import Path\nPath('folder').mkdir()", ["os.mkdir folder"]),
        "child": ("import subprocess\nsubprocess.run(['true'])", ["subprocess.Popen true"]),
        "cycle": ("from repotrace_wrong.nothing import x", ["ModuleNotFoundError"]),
        "late": ("import os\ndef f(): return os.environ['HOME']", []),
    }
    package = tmp_path / "repotrace_wrong"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for name, (code, _) in sins.items():
        (package / f"{name}.py").write_text(code)

    names = [f"repotrace_wrong.{name}" for name in sins]
    done = python(f"import sys; sys.path.insert(0, '')\n{WATCHER}", *names, cwd=tmp_path)

    assert done.stderr == ""
    found = json.loads(done.stdout)
    for name, (_, expected) in sins.items():
        events = found.get(f"repotrace_wrong.{name}", [])
        assert bool(events) == bool(expected), (name, events)
        assert all(any(word in event for event in events) for word in expected), (name, events)


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
    group, _, own_name = name.rpartition(" ")
    app = make_app([name])
    if group:
        (app,) = (found.typer_instance for found in app.registered_groups if found.typer_instance)
    commands = {command.name: command for command in app.registered_commands}
    callback = commands[own_name].callback
    assert callback is not None
    doc = (callback.__doc__ or "").strip()
    first = doc.splitlines()[0]
    assert re.fullmatch(r"[A-Z][a-z]+ .*[^.]", first), first
    assert not first.split()[0].endswith("s"), "imperative, not the third person"
    docs = (ROOT / "docs" / "commands.md").read_text()
    assert f"\n## {name}\n" in docs
    assert f"repotrace {name}" in docs
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_cli*.py"))
    invoked = '", "'.join(name.split(" "))
    assert f'repotrace("{invoked}"' in tests


def test_the_help_of_the_whole_names_every_command() -> None:
    listed = [name for section in HELP.values() for names in section for name in names.split(", ")]
    assert len(listed) == len(set(listed))
    assert {name.partition(" ")[0] for name in COMMANDS} <= set(listed)


def test_documented_options_are_the_real_ones() -> None:
    docs = (ROOT / "docs" / "commands.md").read_text()
    shared = {"--help", "--store"}
    for name in COMMANDS:
        section = docs.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        asked = CliRunner().invoke(
            make_app([name]), [*name.split(), "--help"], env={"COLUMNS": "200"}
        )
        real = set(re.findall(r"(--[a-z-]+)", asked.stdout)) - shared
        missing = {flag for flag in real if flag not in section}
        assert not missing, (name, missing)
        assert asked.exit_code == 0


STARTING = re.compile(
    r"os\.(system|popen|fork|forkpty|killp?g?|(exec|spawn|posix_spawn|wait)[a-z0-9]*)"
)
"""What only `system` uses of `os`."""


def test_only_system_starts_and_ends_processes() -> None:
    """What import-linter cannot see; it watches the imports of `subprocess` and the like."""
    wrong = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        if place.parts[0] == "system":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and STARTING.fullmatch(ast.unparse(node)):
                wrong.append(f"{place}: {ast.unparse(node)}")
    assert wrong == []


def imported(tree: ast.AST) -> set[str]:
    """The modules that the code names in imports, anywhere in it."""
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


@pytest.mark.parametrize("name", ["redact", "journal", "hook", "pytest_plugin"])
def test_what_goes_into_foreign_environments_needs_nothing_but_python(name: str) -> None:
    """All that the module imports, and what that imports; import-linter wants a list of names."""
    reached: set[str] = set()
    to_read = [f"repotrace.{name}"]
    while to_read:
        module = to_read.pop()
        if module in reached:
            continue
        reached.add(module)
        if module.startswith("repotrace."):
            file = SOURCE.joinpath(*module.split(".")[1:]).with_suffix(".py")
            to_read += imported(ast.parse(file.read_text()))
    foreign = {module.partition(".")[0] for module in reached} - sys.stdlib_module_names
    assert foreign == {"repotrace"}


def test_pages_point_to_what_exists() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    dead = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                dead.append(f"{page.name}: {target}")
    assert dead == []


def test_the_recipes_name_real_places() -> None:
    named = re.findall(r"`([a-z_/]+/?[a-z_]*\.py|[a-z]+/[a-z_/]*)`", CONTRIBUTING.read_text())
    assert len(named) > 10
    roots = (ROOT, SOURCE)
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


def test_one_command_is_imported_when_it_is_named() -> None:
    assert wanted(["-C", "list", "--color", "never", "capture", "list"]) == ("capture",)
    assert wanted(["--help"]) is None
    assert wanted(["captrue", "list"]) is None


def test_everything_public_has_a_docstring() -> None:
    bare = []
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if path.stem != "_version" and ast.get_docstring(tree) is None:
            bare.append(f"{path.relative_to(SOURCE)}")
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            if any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list):
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


def test_every_known_trap_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "traps.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| \d+ \|", line)]
    assert [int(row.split("|")[1]) for row in rows] == list(range(1, 58))
    without = {int(row.split("|")[1]) for row in rows if "::" not in row}
    assert without == {57}
    for file, name in re.findall(r"`(test_\w+\.py)::(test_\w+)`", text):
        source = (Path(__file__).parent / file).read_text()
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), (file, name)
