"""A project with an environment of its own, in which there is no RepoTrace."""

from __future__ import annotations

import subprocess
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from plugged import fingerprint, foreign_environment, plugged, run_pytest, write_files
from running import clean_environment
from test_pytest_plugin import EXPECTED, KINDS

from repotrace.records.command import CommandSpec
from repotrace.redact import Redactor
from repotrace.runs.testing.runner import run_tests_here
from repotrace.storage import Store

OTHERS = [
    ("3.8", ("pytest==6.0.0",)),
    ("3.8", ("pytest==6.2.5", "pytest-xdist<3", "pytest-rerunfailures<11")),
    ("3.10", ("pytest==7.0.0",)),
    ("3.11", ("pytest==8.3.5", "pytest-xdist", "pytest-subtests")),
    ("3.13", ("pytest>=9", "pytest-xdist")),
]


class Foreign(NamedTuple):
    """A project, and the interpreter of its environment."""

    project: Path
    python: Path

    @property
    def site_packages(self) -> Path:
        (found,) = self.python.parents[1].glob("lib/python3*/site-packages")
        return found

    def run(self, *args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *args],
            cwd=self.project,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    folder = tmp_path_factory.mktemp("foreign")
    python = foreign_environment(folder / "venv", "3.9", "pytest==7.4.4")
    return Foreign(write_files(folder / "project", {"test_kinds.py": KINDS}), python)


def test_exact_outcomes_and_an_untouched_environment(foreign: Foreign, tmp_path: Path) -> None:
    """Python 3.9 and pytest 7 are recorded by a RepoTrace that runs on neither."""
    before = fingerprint(foreign.site_packages)
    env = clean_environment(tmp_path)
    assert foreign.run("-c", "import repotrace", env=env).returncode == 1
    store = Store(tmp_path / "home")
    child = plugged(env, store.runs.journal)
    done = foreign.run("-m", "pytest", "-p", "no:cacheprovider", env=child)
    assert "plugins:" not in done.stdout
    assert (done.returncode, done.stderr) == (1, "")
    with closing(store):
        assert store.runs.ingest().unusable == 0
        told = [(found.node_id, found.phase, found.outcome) for found in store.runs.tests("r1")]
        assert {found.step_id for found in store.runs.tests("r1")} == {"s1"}
    assert told == EXPECTED
    assert fingerprint(foreign.site_packages) == before
    assert len(before) > 100


def test_its_tools_show_what_they_always_showed(foreign: Foreign, tmp_path: Path) -> None:
    env = clean_environment(tmp_path)
    child = plugged(env, tmp_path / "journal")
    for args in (
        ("-m", "pip", "freeze", "--all", "--disable-pip-version-check"),
        ("-m", "pip", "list", "--disable-pip-version-check"),
        ("-m", "pip", "check", "--disable-pip-version-check"),
        (
            "-W",
            "error",
            "-c",
            "import pkg_resources; print(sorted(map(str, pkg_resources.working_set)))",
        ),
        ("-W", "error", "-m", "pytest", "--collect-only", "-q"),
    ):
        plain, recorded = (foreign.run(*args, env=environment) for environment in (env, child))
        assert recorded.stderr == plain.stderr
        assert recorded.returncode == plain.returncode
        assert recorded.stdout.rpartition(" in ")[0] == plain.stdout.rpartition(" in ")[0]


def test_the_runner_uses_it(foreign: Foreign, tmp_path: Path) -> None:
    spec = CommandSpec(
        argv=(str(foreign.python), "-m", "pytest", "-q", "-k", "texts"),
        cwd=str(foreign.project),
        env=clean_environment(tmp_path),
    )
    run = run_tests_here(spec, redactor=Redactor(key=b"k"))
    assert sorted(run.verdicts) == sorted(name for name, _, _ in EXPECTED if "texts" in name)
    assert run.complete


@pytest.mark.slow
@pytest.mark.parametrize(("version", "packages"), OTHERS, ids=[f"{v}-{p[0]}" for v, p in OTHERS])
def test_other_versions(tmp_path: Path, version: str, packages: tuple[str, ...]) -> None:
    python = foreign_environment(tmp_path / "venv", version, *packages)
    project = write_files(tmp_path / "project", {"test_kinds.py": KINDS})
    said = run_pytest(project, python=python)
    assert said.tests == EXPECTED
    assert said.done.stderr == ""
    assert said.data("test_kinds.py::test_setup", "setup")["message"] == "RuntimeError: setup broke"
    if any("xdist" in package for package in packages):
        again = run_pytest(project, "-n", "2", python=python, journal=tmp_path / "xdist")
        assert sorted(again.tests) == sorted(EXPECTED)
