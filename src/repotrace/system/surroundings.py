"""What surrounds a command: its volatile folders, its interpreter, the variables that matter.

Everything is read from files and from the environment that the command gets; no process runs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from repotrace.records.command import Places

KEPT_VARIABLES = (
    "PATH", "LANG", "LANGUAGE", "TZ", "TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR",
    "PY_COLORS", "CLICOLOR", "CLICOLOR_FORCE", "CI", "VIRTUAL_ENV", "PYTEST_ADDOPTS", "TMPDIR",
)  # fmt: skip
"""Kept in every report; so are those that begin with one of `KEPT_PREFIXES`."""

KEPT_PREFIXES = ("LC_", "PYTHON")

PINNED_WHEN_UNSET = (
    "LANG", "LC_ALL", "TZ", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE",
    "CI", "PYTHONHASHSEED", "PYTEST_ADDOPTS",
)  # fmt: skip
"""That these were not set matters as much as a value: a replay takes them away."""

LOCK_FILES = (
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "requirements.txt", "package-lock.json",
    "pnpm-lock.yaml", "yarn.lock", "Cargo.lock", "go.sum", "Gemfile.lock", "composer.lock",
)  # fmt: skip


def is_kept(name: str, extra: Iterable[str] = ()) -> bool:
    """Whether a report keeps the value of the variable `name`."""
    return name in KEPT_VARIABLES or name.startswith(KEPT_PREFIXES) or name in extra


def places_of(cwd: str, environ: Mapping[str, str], repository: str | None) -> Places:
    """The volatile folders of a command run in `cwd` with `environ`; real paths, no links."""
    venv = _virtual_env(environ)
    python = _base_prefix(venv, environ)
    home = environ.get("HOME")
    return Places(
        cwd=os.path.realpath(cwd),
        repository=os.path.realpath(repository) if repository else None,
        venv=venv,
        python=python,
        tmp=os.path.realpath(environ.get("TMPDIR") or "/tmp"),
        home=os.path.realpath(home) if home else None,
    )


def _virtual_env(environ: Mapping[str, str]) -> str | None:
    """The active environment, or the one whose `python` comes first on PATH."""
    active = environ.get("VIRTUAL_ENV")
    if active and Path(active, "pyvenv.cfg").is_file():
        return os.path.abspath(active)  # noqa: PTH100 - a venv reached through a link keeps its name
    for folder in environ.get("PATH", "").split(os.pathsep):
        if folder and Path(folder, "python").exists():
            prefix = Path(folder).absolute().parent
            return str(prefix) if (prefix / "pyvenv.cfg").is_file() else None
    return None


def _base_prefix(venv: str | None, environ: Mapping[str, str]) -> str | None:
    """The prefix of the interpreter under `venv`, or of the first `python` on PATH."""
    if venv is not None:
        home = _pyvenv(venv).get("home")
        return str(Path(os.path.realpath(home)).parent) if home else None
    found = python_on_path(environ)
    if found is None:
        return None
    real = Path(os.path.realpath(found))
    prefix = real.parent.parent
    return str(prefix) if (prefix / "lib").is_dir() and "shims" not in real.parts else None


def python_on_path(environ: Mapping[str, str]) -> str | None:
    """The file that `python` or `python3` stands for with this PATH."""
    path = environ.get("PATH", os.defpath)
    return shutil.which("python", path=path) or shutil.which("python3", path=path)


def _pyvenv(venv: str) -> dict[str, str]:
    try:
        text = Path(venv, "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def host_facts(cwd: str, environ: Mapping[str, str], venv: str | None) -> dict[str, Any]:
    """Facts of the host that help to explain a failure; ready for JSON.

    `python_version` and `executable` are those of the `python` that the command finds on its
    PATH where that can be told from files, else those of the interpreter that runs RepoTrace.
    """
    uname = os.uname()
    executable = python_on_path(environ)
    version = _pyvenv(venv).get("version") if venv else _version_in_path(executable)
    if executable is None or version is None:
        executable, version = sys.executable, ".".join(map(str, sys.version_info[:3]))
    facts: dict[str, Any] = {
        "python_version": version,
        "python_implementation": sys.implementation.name,
        "executable": executable,
        "platform": f"{uname.sysname}-{uname.release}-{uname.machine}",
        "machine": uname.machine,
        "cwd": cwd,
    }
    packages = installed_packages(venv) if venv else []
    if packages:
        facts["packages"] = packages
    locks = lock_digests(cwd)
    if locks:
        facts["lock_files"] = locks
    return facts


def _version_in_path(executable: str | None) -> str | None:
    name = Path(os.path.realpath(executable)).name if executable else ""
    version = name.removeprefix("python")
    return version if version.count(".") >= 1 and version.replace(".", "").isdigit() else None


def installed_packages(venv: str) -> list[str]:
    """`name==version` of each distribution in a virtual environment, sorted."""
    found: set[str] = set()
    for folder in Path(venv, "lib").glob("python3*/site-packages"):
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names are all we need
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info") and "-" in name:
                package, _, version = name.removesuffix(".dist-info").rpartition("-")
                found.add(f"{package}=={version}")
    return sorted(found, key=str.lower)


def lock_digests(cwd: str) -> dict[str, str]:
    """sha256 (first 16 hex digits) of each lock file in `cwd`."""
    digests: dict[str, str] = {}
    for name in LOCK_FILES:
        try:
            data = Path(cwd, name).read_bytes()
        except OSError:
            continue
        digests[name] = hashlib.sha256(data).hexdigest()[:16]
    return digests
