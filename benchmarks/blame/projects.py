"""The projects: unpacked source distributions, and an environment with pytest."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PYTEST = "pytest==9.2.0"


@dataclass(frozen=True)
class Project:
    """A source distribution, and which of its modules are tested by which file."""

    name: str
    version: str
    sha256: str
    modules: dict[str, str]
    """Test file by module."""
    prose: str
    """A file that no test reads."""


def _boltons(*names: str) -> dict[str, str]:
    return {f"boltons/{name}.py": f"tests/test_{name}.py" for name in names}


def _toolz(*names: str) -> dict[str, str]:
    return {f"toolz/{name}.py": f"toolz/tests/test_{name}.py" for name in names}


PROJECTS = {
    project.name: project
    for project in (
        Project(
            "boltons",
            "26.2.0",
            "d39cfd15c1a1c3bd4d705c82252fa9edb8e4f5e8cc039f8e39afac7b1b47e92c",
            _boltons("strutils", "iterutils", "listutils", "statsutils", "dictutils", "timeutils"),
            "CHANGELOG.md",
        ),
        Project(
            "toolz",
            "1.0.0",
            "2c86e3d9a04798ac556793bced838816296a2f085017664e4995cb40a1047a02",
            _toolz("itertoolz", "dicttoolz", "functoolz", "recipes"),
            "AUTHORS.md",
        ),
        Project(
            "tabulate",
            "0.8.10",
            "6c57f3f3dd7ac2782770155f3adb2db0b1a269637e42f27599925e64b114f519",
            {"tabulate.py": "test/test_output.py"},
            "CHANGELOG",
        ),
    )
}


def environment() -> dict[str, str]:
    """Of all that is run: no plug-ins but those that are asked for, no stale bytecode."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("REPOTRACE", "PYTEST", "GIT_"))
    }
    kept.pop("PYTHONPATH", None)
    kept.pop("VIRTUAL_ENV", None)
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


@dataclass(frozen=True)
class Ground:
    """The folder of a benchmark: what was fetched, and what is made of it."""

    work: Path

    @property
    def python(self) -> Path:
        return self.work / "venv" / "bin" / "python"

    def source(self, project: Project) -> Path:
        return self.work / "projects" / project.name

    def prepare(self) -> None:
        """Fetch what is not here yet."""
        self.work.mkdir(parents=True, exist_ok=True)
        if not self.python.exists():
            venv: list[str | Path] = [sys.executable, "-m", "venv", self.work / "venv"]
            subprocess.run(venv, check=True)
            pip: list[str | Path] = [self.python, "-m", "pip", "install", "-q", PYTEST]
            subprocess.run(pip, check=True, env=environment())
        for project in PROJECTS.values():
            if not self.source(project).is_dir():
                self._fetch(project)

    def _fetch(self, project: Project) -> None:
        with TemporaryDirectory(dir=self.work) as name:
            folder = Path(name)
            pin = f"{project.name}=={project.version}"
            words: list[str | Path] = [
                "download",
                "-q",
                "--no-deps",
                "--no-binary",
                ":all:",
                "-d",
                folder,
                pin,
            ]
            subprocess.run([self.python, "-m", "pip", *words], check=True, env=environment())
            (archive,) = folder.iterdir()
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            if digest != project.sha256:
                raise SystemExit(f"{archive.name} is another one than before: {digest}")
            with tarfile.open(archive) as packed:
                packed.extractall(folder / "unpacked", filter="data")
            (top,) = (folder / "unpacked").iterdir()
            self.source(project).parent.mkdir(exist_ok=True)
            top.rename(self.source(project))

    def outcomes(self, folder: Path, *tests: str, limit: float = 60) -> dict[str, str] | None:
        """What pytest says of each test; None if it could not collect, or took too long."""
        with TemporaryDirectory() as name:
            told = Path(name) / "outcomes"
            env = environment() | {
                "PYTHONPATH": str(Path(__file__).parent / "plugin"),
                "OUTCOMES": str(told),
            }
            words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "outcome_lines"]
            words += ["--tb=no", *tests]
            try:
                done = subprocess.run(
                    [self.python, *words],
                    cwd=folder,
                    env=env,
                    capture_output=True,
                    timeout=limit,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return None
            if done.returncode not in (0, 1) or not told.exists():
                return None
            return dict(json.loads(line) for line in told.read_text().splitlines())
