"""Captures to generate tests from, and real pytest to run what was generated."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from hypothesis import strategies as st

from repotrace.generator import Reproduction
from repotrace.records.command import CommandRun, CommandSpec, Output, Termination
from repotrace.redact import Redactor
from repotrace.system.execution import execute

PYTHON_BIN = str(Path(sys.executable).parent)
RUFF = Path(PYTHON_BIN, "ruff")
_RESULTS = {"failure": "failed", "error": "error", "skipped": "skipped"}
BOOM = ["python", "-c", "import sys; print('boom'); sys.exit(7)"]
KEY = b"0123456789abcdef"
QUIET = ("-q", "-rs", "--color=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:timeout")


@dataclass(frozen=True)
class Scenario:
    """A command, what changes it, and how it is captured."""

    app: str
    """Source of `app.py`."""
    changed: str
    """Another `app.py` that must be noticed."""
    argv: tuple[str, ...] = ("python", "app.py")
    options: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    generate: dict[str, Any] = field(default_factory=dict)


def environment(**variables: str) -> dict[str, str]:
    """A small environment with the `python` that runs these tests first on PATH."""
    kept = {name: os.environ[name] for name in ("HOME", "TMPDIR") if name in os.environ}
    return {**kept, "PATH": f"{PYTHON_BIN}:/usr/bin:/bin", **variables}


def capture(
    argv: Sequence[str],
    cwd: Path,
    *,
    script: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    pty: bool = False,
    merge: bool = False,
    limit: int = 1_048_576,
) -> CommandRun:
    """Run a command for real and record it as RepoTrace does."""
    spec = CommandSpec(
        argv=tuple(argv),
        script=script,
        cwd=str(cwd),
        env=dict(env if env is not None else environment()),
        stdin=stdin,
        timeout=timeout,
        pty=pty,
        merge=merge,
    )
    return execute(spec, redactor=Redactor(key=KEY, variables=spec.env), limit=limit)


def reproduction(run: CommandRun, report_id: str = "case") -> Reproduction:
    """`run` as it would come out of a report."""
    return Reproduction(command=list(run.argv), run=run, report_id=report_id, platform=sys.platform)


def make_venv(folder: Path) -> Path:
    """A virtual environment as far as it matters here, made in no time."""
    Path(folder, "bin").mkdir(parents=True)
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), folder)
    for name in ("python", "python3"):
        Path(folder, "bin", name).symlink_to(Path(PYTHON_BIN, "python").resolve())
    return folder


def run_pytest(
    *arguments: Path | str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What pytest says about generated tests, run from `cwd` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *QUIET, *map(str, arguments)],
        cwd=cwd,
        env=dict(env if env is not None else environment()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )


def outcome(*paths: Path, cwd: Path, env: Mapping[str, str] | None = None) -> tuple[str, str]:
    """`passed`, `failed`, or `skipped` of one generated test, and all that pytest printed."""
    done = run_pytest(*paths, cwd=cwd, env=env)
    last = done.stdout.strip().splitlines()[-1]
    words = [word for word in ("failed", "error", "skipped", "passed") if f"1 {word}" in last]
    return (words[0] if words else last), done.stdout + done.stderr


def outcomes(folder: Path, *, cwd: Path, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """What became of each `test_NAME.py` in `folder`, by NAME; a reason follows `skipped`."""
    report = cwd / "junit.xml"
    done = run_pytest(folder, f"--junitxml={report}", cwd=cwd, env=env)
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = str(case.get("classname")).rpartition(".")[2].removeprefix("test_")
        result = next((child.tag for child in case if child.tag in _RESULTS), "")
        found[name] = _RESULTS.get(result, "passed")
    assert found, done.stdout + done.stderr
    return found


def boom() -> Reproduction:
    return Reproduction(
        command=BOOM,
        exit_code=7,
        stdout="boom\n",
        report_id="5303b4f97c12",
        title="Command failed: python -c import sys; print('boom'); sys.exit(7)",
    )


def ruff_complaints(folder: Path) -> str:
    """What ruff with its default settings says about the tests in `folder`."""
    files = sorted(folder.glob("test_*.py"))
    texts = []
    for command in (["check"], ["format", "--diff"]):
        done = subprocess.run(
            [RUFF, *command, "--isolated", "--no-cache", *files],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            texts.append(done.stdout + done.stderr)
    return "\n".join(texts)


def finished(argv: list[str], stdout: bytes, stderr: bytes, code: int) -> CommandRun:
    return CommandRun(
        argv=tuple(argv),
        cwd="/work",
        termination=Termination.EXITED if code >= 0 else Termination.SIGNALED,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=Output.of(stdout),
        stderr=Output.of(stderr),
    )


ARGUMENT = st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=20) | st.binary(
    max_size=20
).map(lambda data: data.replace(b"\0", b"\n").decode("utf-8", "surrogateescape"))
OUTPUT = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.text("ab'\"\\\n\t 大é", max_size=60), max_size=8).map(
        lambda lines: "\n".join(lines).encode()
    ),
)
