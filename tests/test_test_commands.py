"""Which command runs the tests of a project; what of its tests is near, and what they assert."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from plugged import write_files
from recording import NOON
from running import clean_environment

from repotrace.config import CheckSettings, load_settings
from repotrace.errors import RepoTraceError
from repotrace.records.command import CommandRun
from repotrace.records.run import StepCommand
from repotrace.redact import Redactor
from repotrace.runs.checking.nearness import by_nearness
from repotrace.runs.testing.agent_tests import chose
from repotrace.runs.testing.commands import Detection, TestCommand
from repotrace.runs.testing.projects import projects_in
from repotrace.runs.testing.sources import gained_assertions, lost_assertions, source_of, sources_in

EXTRA = ("--maxfail=0", "--continue-on-collection-errors")


def detection(folder: Path, files: dict[str, str], **settings: object) -> Detection:
    folder.mkdir(exist_ok=True)
    write_files(folder, files)
    environ = clean_environment(folder)
    return Detection(folder, environ, Redactor(key=b"k"), CheckSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "argv", "chosen"),
    [
        ("pytest", ("pytest", *EXTRA), ()),
        ("pytest -q tests", ("pytest", "-q", *EXTRA), ("tests",)),
        ("pytest -k tests.x a::b", ("pytest", "-k", "tests.x", *EXTRA), ("a::b",)),
        ("uv run pytest -x", ("uv", "run", "pytest", "-x", *EXTRA), ()),
        (
            "python -m pytest -m 'not slow'",
            ("python", "-m", "pytest", "-m", "not slow", *EXTRA),
            (),
        ),
    ],
)
def test_commands_of_pytest(
    tmp_path: Path, line: str, argv: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    found = detection(tmp_path / "p", {"tests/a.py": ""}).command(line)
    assert (found.pytest, found.argv, found.chosen, found.script) == (True, argv, chosen, None)
    spec = found.spec({}, ["t::x"])
    assert spec.argv == (*argv, "t::x")
    assert found.spec({}).argv == (*argv, *chosen)


@pytest.mark.parametrize(
    "line", ["cd src && pytest", "A=1 pytest", "pytest | tee log", "pytest $X", "pytest t*"]
)
def test_what_needs_a_shell_gets_one(tmp_path: Path, line: str) -> None:
    found = detection(tmp_path / "p", {}).command(line)
    assert (found.script, found.argv, found.pytest) == (line, (), False)


def test_other_commands(tmp_path: Path) -> None:
    found = detection(tmp_path / "p", {}).command("go test ./...")
    assert (found.argv, found.pytest) == (("go", "test", "./..."), False)
    with pytest.raises(RepoTraceError):
        detection(tmp_path / "p", {}).command(" ")


@pytest.mark.parametrize(
    ("files", "argv"),
    [
        ({"Cargo.toml": ""}, ("cargo", "test", "--no-fail-fast")),
        ({"go.mod": ""}, ("go", "test", "-v", "./...")),
        ({"package.json": json.dumps({"scripts": {"test": "jest"}})}, ("npm", "test")),
        (
            {"package.json": json.dumps({"scripts": {"test": "x"}}), "pnpm-lock.yaml": ""},
            ("pnpm", "test"),
        ),
    ],
)
def test_what_a_project_has(tmp_path: Path, files: dict[str, str], argv: tuple[str, ...]) -> None:
    assert detection(tmp_path / "p", files).command().argv == argv


def test_nothing_to_run(tmp_path: Path) -> None:
    script = 'echo "Error: no test specified" && exit 1'
    package = json.dumps({"scripts": {"test": script}})
    with pytest.raises(RepoTraceError, match="Nothing was found"):
        detection(tmp_path / "p", {"package.json": package, "README.md": ""}).command()


def test_the_python_of_the_project_comes_first(tmp_path: Path) -> None:
    here = detection(tmp_path / "p", {"test_a.py": "", "pyproject.toml": ""})
    found = here.command()
    assert found.pytest
    assert found.argv[1:4] == ("-m", "pytest", "-q")
    own = here.workspace / ".venv" / "bin"
    own.mkdir(parents=True)
    (own / "python").symlink_to(sys.executable)
    (own.parent / "pyvenv.cfg").write_text(Path(sys.prefix, "pyvenv.cfg").read_text())
    anew = detection(here.workspace, {})
    python = anew.python("unittest")
    assert python is not None
    assert python.python == ".venv/bin/python"


def test_settings(tmp_path: Path) -> None:
    text = '[tool.repotrace.check]\ncommand = "make t"\nlink = ["a/b"]\nenv = { X = "1" }\n'
    write_files(tmp_path, {"pyproject.toml": text})
    settings, warnings = load_settings(tmp_path, {})
    assert warnings == []
    assert settings.check == CheckSettings("make t", ("a/b",), None, (("X", "1"),))
    here = Detection(tmp_path, clean_environment(tmp_path), Redactor(key=b"k"), settings.check)
    found = here.command()
    assert (found.argv, found.spec({}).env["X"]) == (("make", "t"), "1")
    other = Detection(tmp_path, here.environ, here.redactor, CheckSettings("make t"))
    assert here.environment(found) != other.environment(other.command())
    assert here.environment(found) == here.environment(found)


@pytest.mark.parametrize(
    "text",
    [
        "check = 1",
        "[check]\nlinks = []",
        '[check]\nlink = ["/etc"]',
        '[check]\nlink = ["../x"]',
        "[check]\nsetup = 1",
        '[check]\nenv = { "A=B" = "1" }',
        "[check]\nenv = { A = 1 }",
    ],
)
def test_settings_that_make_no_sense(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, {"repotrace.toml": text})
    with pytest.raises(RepoTraceError, match="check"):
        load_settings(tmp_path, {})


# --- Sources --------------------------------------------------------------------------------

BEFORE = b"""
import pytest

class TestA:
    @pytest.mark.parametrize("x", [1, 2])
    def test_a(self, x):
        # a remark
        assert x > 0
        assert x < 9

async def test_b():
    with pytest.raises(ValueError):
        int("x")
"""


def test_assertions_that_are_gone() -> None:
    after = BEFORE.replace(b"assert x < 9", b"assert x < 10").replace(b"# a remark", b"# other")
    old, new = (source_of(text, "f.py::TestA::test_a[1]") for text in (BEFORE, after))
    assert old is not None
    assert new is not None
    assert lost_assertions(old, new) == ["assert x < 9"]
    assert gained_assertions(old, new) == ["assert x < 10"]
    remark = source_of(BEFORE.replace(b"# a remark", b"#"), "f.py::TestA::test_a")
    assert remark is not None
    assert (remark.whole, lost_assertions(old, remark)) == (old.whole, [])
    fewer = source_of(BEFORE.replace(b"[1, 2]", b"[1]"), "f.py::TestA::test_a")
    assert fewer is not None
    assert lost_assertions(old, fewer) == ["@pytest.mark.parametrize('x', [1, 2])"]


def test_names_of_tests() -> None:
    assert list(sources_in(BEFORE) or ()) == ["TestA::test_a", "test_b"]
    assert sources_in(b"def (") is None
    assert source_of(None, "f.py::x") is None
    assert source_of(BEFORE, "f.py") is None


def test_the_nearest_first() -> None:
    files = {
        "tests/test_far.py": b"import os\n",
        "tests/test_money.py": b"",
        "tests/test_user.py": b"from shop.money import half\n",
        "tests/test_own.py": b"",
        "broken/test_x.py": b"def (",
    }
    tests = [f"{file}::test_{number}" for file in files for number in (1, 2)]
    found = by_nearness(tests, {"src/shop/money.py", "tests/test_own.py"}, files.get)
    assert [file for file, _ in found] == [
        "tests/test_own.py",
        "tests/test_user.py",
        "tests/test_money.py",
        "tests/test_far.py",
        "broken/test_x.py",
    ]
    assert found[0][1] == ["tests/test_own.py::test_1", "tests/test_own.py::test_2"]


# --- What the run ran itself ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "ran"),
    [
        ("python -m pytest -q", True),
        ("pytest tests/test_a.py", True),
        ("pytest tests/test_a.py::test_x -v", True),
        ("pytest tests/test_a.py::test_xy", False),
        ("pytest tests/test_b.py", False),
        ("pytest ./tests", True),
        ("pytest -k other", None),
        ("make test", None),
        ("pytest tests/test_b.py 2>&1 | tail -3", False),
    ],
)
def test_going_by_the_arguments(line: str, ran: bool | None) -> None:
    """Passing tests are often named nowhere in a transcript."""
    command = StepCommand(
        id="c",
        run_id="r",
        step_id="s",
        command=CommandRun(),
        command_line=line,
        timestamp=NOON,
        is_test=True,
    )
    assert chose(command, "tests/test_a.py::test_x") is ran


def test_a_command_for_people() -> None:
    command = TestCommand(cwd="/w", argv=("pytest", "-m", "not slow"), pytest=True, chosen=("t",))
    assert command.line() == "pytest -m 'not slow' t"
    assert command.line(["a::b[x y]"]) == "pytest -m 'not slow' 'a::b[x y]'"


PRICES = {
    "shop/__init__.py": "",
    "shop/price.py": "total = sum\n",
    "tests/test_price.py": "from shop.price import total\n\ndef test_a(): assert total([1]) == 1\n",
}


def below(folder: str, files: dict[str, str]) -> dict[str, str]:
    return {f"{folder}/{path}": text for path, text in files.items()}


@pytest.mark.parametrize(
    ("files", "folders"),
    [
        ({"README.md": "", "docs/conf.py": ""}, []),
        (below("backend", PRICES), ["backend"]),
        (below("a", PRICES) | below("packages/b", PRICES), ["a", "packages/b"]),
        # A part of a project is none of its own, and what tools made or fetched is none at all.
        (
            {
                "svc/pyproject.toml": "",
                "svc/app/tests/test_a.py": "",
                "svc/node_modules/x/tests/test_x.py": "",
                ".tox/py/tests/test_x.py": "",
                "env3/pyvenv.cfg": "",
                "env3/lib/test_x.py": "",
            },
            ["svc"],
        ),
        ({"pkg/deep/a_test.py": ""}, ["pkg/deep"]),
        (
            {
                "ui/package.json": json.dumps({"scripts": {"test": "jest"}}),
                "lib/package.json": "{}",
                "core/Cargo.toml": "",
            },
            ["core", "ui"],
        ),
    ],
)
def test_projects_in_folders(tmp_path: Path, files: dict[str, str], folders: list[str]) -> None:
    write_files(tmp_path, files)
    assert projects_in(tmp_path) == folders


def test_the_tests_of_a_folder(tmp_path: Path) -> None:
    here = detection(tmp_path / "p", below("backend", PRICES))
    found = here.command()
    assert (found.cwd, found.chosen, found.project) == (
        str(here.workspace),
        ("backend",),
        "backend",
    )
    spec = found.spec(here.environ, ["backend/tests/test_price.py::test_a"])
    done = subprocess.run(spec.argv, cwd=spec.cwd, env=spec.env, capture_output=True, check=False)
    assert b"1 passed" in done.stdout, "found from the top, with the modules of the folder"

    other = detection(tmp_path / "q", {"core/go.mod": ""}).command()
    assert (other.cwd, other.argv[0], other.project) == (str(tmp_path / "q/core"), "go", "core")


def test_one_of_several_projects_is_meant(tmp_path: Path) -> None:
    here = detection(tmp_path / "p", below("a", PRICES) | below("b", PRICES))
    with pytest.raises(RepoTraceError, match="several projects here: a, b") as raised:
        here.command()
    assert "repotrace -C a check" in (raised.value.hint or "")
    for near in (("b",), ("b/tests",), ("b/shop/price.py", "b/shop/new.py")):
        assert replace(here, near=near).command().project == "b"
    with pytest.raises(RepoTraceError):
        replace(here, near=("a/shop/price.py", "b/shop/price.py")).command()
