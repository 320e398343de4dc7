"""A repository with a program that traces itself, writes a file and tests nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from running import Shell, clean_environment

AGENT = """
import os, pathlib, sys
started = []
sys.addaudithook(lambda event, args: event == "os.posix_spawn" and started.append(args[0]))
import repotrace

@repotrace.trace_agent
def fix(task):
    with repotrace.span("write", type="edit"):
        pathlib.Path(sys.argv[1]).write_text("x = 1\\n")

fix("do it")
try:
    left = os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    left = None
print(len(started), left)
"""


def with_agent(folder: Path) -> Shell:
    """The repository, with the program in it."""
    shell = Shell(folder)
    shell.git("init", "-q")
    (shell.cwd / "agent.py").write_text(AGENT)
    shell.git("add", ".")
    shell.git("commit", "-qm", "one")
    return shell


def agent(shell: Shell, path: str, **env: str) -> str:
    """Run the program; what it says of its children: how many it started, and which are left."""
    done = subprocess.run(
        [sys.executable, "agent.py", path],
        cwd=shell.cwd,
        env=clean_environment(shell.home, env),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stderr == b""
    return done.stdout.decode().strip()
