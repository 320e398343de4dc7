"""Run the real command line in a real process, away from the user's own settings."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BOOM = ["python", "-c", "import sys; print('boom'); sys.exit(7)"]
BOOM_ID = "5303b4f97c12"
"""As the specification gives it for `BOOM`."""


def python(code: str) -> list[str]:
    """The argv that runs `code` in the tested interpreter."""
    return [sys.executable, "-c", code]


def plain_git(folder: Path, *arguments: str) -> str:
    """git as a user runs it, not through the code under test; what it prints, stripped."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def clean_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours, with another HOME, the tested interpreter first on PATH, and nothing of RepoTrace."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("REPOTRACE_", "GIT_", "PYTEST_", "COV_"))
        and name not in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "PYTHONDONTWRITEBYTECODE")
    }
    env["HOME"] = str(home)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    return env | dict(extra or {})


class Shell:
    """A folder to work in, and the way to call `repotrace` there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.cwd = folder / "work"
        for path in (self.home, self.cwd):
            path.mkdir(parents=True)

    def __call__(
        self,
        *args: str | bytes | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[bytes]:
        """`repotrace *args`; streams as bytes."""
        return subprocess.run(
            [sys.executable, "-m", "repotrace", *args],
            cwd=cwd or self.cwd,
            env=clean_environment(self.home, env),
            input=stdin if stdin is not None else b"",
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """`repotrace *args` as a running process that heeds an interrupt.

        A shell that runs tests in the background has them ignore it, and that is inherited.
        """
        return subprocess.Popen(
            [sys.executable, "-m", "repotrace", *args],
            cwd=self.cwd,
            env=clean_environment(self.home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def git(self, *args: str) -> str:
        """Real git in the folder, with a name and no user settings."""
        done = subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *args],
            cwd=self.cwd,
            env=clean_environment(self.home, {"GIT_CONFIG_NOSYSTEM": "1"}),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout
