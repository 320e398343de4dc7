"""Who started a process, on systems that tell it by `ps` alone, such as macOS."""

from __future__ import annotations

import os
import subprocess

_PATIENCE = 2.0


def name_and_parent(pid: int) -> tuple[str, int]:
    """The name of a process as it was started, without folders, and the id of its parent.

    Raises OSError or ValueError if that cannot be seen.
    """
    try:
        told = subprocess.run(
            ["ps", "-o", "ppid=", "-o", "comm=", "-p", str(pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError("ps does not end") from error
    parent, _, name = told.stdout.strip().partition(" ")
    # The name of a login shell begins with a dash.
    return os.path.basename(name.strip()).removeprefix("-"), int(parent)  # noqa: PTH119
