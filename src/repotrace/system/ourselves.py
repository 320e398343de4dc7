"""Starting this very program anew, with the Python that runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

ISOLATED = "-I"
"""The flag of Python that keeps the current folder, and the user's environment, out of it."""
SAFE_PATH = "-P"
"""The same for the current folder alone."""

_PATIENCE = 20.0


def start_detached(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Start `repotrace ARGUMENTS` in a session of its own, without streams; its process id.

    Nobody waits for it. Raises OSError if it cannot be started.
    """
    flags = [ISOLATED] if sys.flags.isolated else [SAFE_PATH] if sys.flags.safe_path else []
    return _spawn([sys.executable, *flags, "-m", "repotrace", *arguments], environ)


def start_orphaned(arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    """As `start_detached`, for a program that lives on and may wait for its children: when this
    returns, the process is none of them.

    The current folder is kept from what it imports, since it is not ours. Raises OSError.
    """
    flag = ISOLATED if sys.flags.isolated else SAFE_PATH
    command = [sys.executable, flag, "-m", "repotrace", *arguments]
    between = _spawn(["/bin/sh", "-c", '"$@" &', "sh", *command], environ)
    with suppress(ChildProcessError):  # the program waits for any child, and was faster
        os.waitpid(between, 0)


def _spawn(command: list[str], environ: Mapping[str, str]) -> int:
    streams = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    return os.posix_spawn(command[0], command, environ, file_actions=streams, setsid=True)


def is_found(flag: str) -> bool:
    """Whether our Python finds this program with `flag`, from another folder."""
    try:
        done = subprocess.run(
            [sys.executable, flag, "-m", "repotrace", "version"],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
