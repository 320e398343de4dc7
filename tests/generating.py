"""Captures to generate tests from, and real pytest to run what was generated."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from repotrace.generator import Reproduction
from repotrace.records.command import CommandRun, CommandSpec
from repotrace.redact import Redactor
from repotrace.system.execution import execute

PYTHON_BIN = str(Path(sys.executable).parent)
RUFF = Path(PYTHON_BIN, "ruff")
_RESULTS = {"failure": "failed", "error": "error", "skipped": "skipped"}
KEY = b"0123456789abcdef"
QUIET = ("-q", "-rs", "--color=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:timeout")


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
