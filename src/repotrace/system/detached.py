"""Programs of our own that go on when the process that started them is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence


def start_detached(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Start `repotrace ARGUMENTS` in a session of its own, without streams; its process id.

    Nobody waits for it. Raises OSError if it cannot be started.
    """
    flags = ["-I"] if sys.flags.isolated else ["-P"] if sys.flags.safe_path else []
    command = [sys.executable, *flags, "-m", "repotrace", *arguments]
    streams = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    return os.posix_spawn(sys.executable, command, environ, file_actions=streams, setsid=True)
