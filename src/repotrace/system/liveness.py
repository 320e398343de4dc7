"""Whether a process that wrote down who it is may still be there."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def lives(
    pid: int,
    *,
    started: int | None = None,
    boot: str | None = None,
    pid_namespace: str | None = None,
) -> bool | None:
    """Whether the process still runs; None if that cannot be seen from here.

    `started` is field 22 of `/proc/PID/stat`, which tells it from a later process of the same
    number. A zombie does not live. What is None is not looked at.
    """
    if boot is not None and boot != _read("/proc/sys/kernel/random/boot_id"):
        return False
    with suppress(OSError):
        if pid_namespace not in (None, os.readlink("/proc/self/ns/pid")):  # noqa: PTH115
            return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it is another user's
        pass
    stat = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if started is None or len(stat) < 20:
        return True
    return stat[19] == str(started) and stat[0] not in "ZX"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
