"""`process.run` in a process of its own, for tests that send signals or have a terminal.

As a script: runs the spec in argv[2] (JSON), passes its output on, and writes what happened to
the file argv[1], also as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repotrace.records.command import CommandSpec
from repotrace.system.process import run

PATIENCE = 20.0
"""Seconds after which a test gives up waiting: far more than anything here takes."""


def spec(*argv: str, **more: Any) -> CommandSpec:
    """What to run: in /tmp and with our environment unless `more` says otherwise."""
    return CommandSpec(argv=argv, **({"cwd": "/tmp", "env": dict(os.environ)} | more))


def command(out: Path, what: CommandSpec, **options: Any) -> list[str]:
    """The argv that runs this file on `what`."""
    text = what.model_dump_json()
    return [sys.executable, __file__, str(out), text, json.dumps(options)]


def wait_for[T](look: Callable[[], T | None]) -> T:
    """The first true answer of `look`."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        answer = look()
        if answer:
            return answer
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def outcome(out: Path) -> dict[str, Any]:
    """What the driver wrote, once it did."""
    wait_for(out.exists)
    answer: dict[str, Any] = json.loads(out.read_text())
    return answer


def is_running(pid: int) -> bool:
    """Whether the process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def main() -> None:
    out, what = Path(sys.argv[1]), CommandSpec.model_validate_json(sys.argv[2])
    options = json.loads(sys.argv[3])
    live = options.pop("live", True)

    def echo(stream: str, data: bytes) -> None:
        if live:
            os.write(1 if stream == "stdout" else 2, data)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    raw = run(what, on_output=echo, **options)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    recorded = raw.stdin_recorded
    answer = {
        "termination": raw.termination,
        "exit_code": raw.exit_code,
        "signal": raw.signal,
        "stdout": raw.stdout.head.decode("latin-1"),
        "lengths": [raw.stdout.length, raw.stderr.length],
        "digests": [raw.stdout.sha256, raw.stderr.sha256],
        "kept": len(raw.stdout.head) + len(raw.stdout.tail),
        "stdin": None if recorded is None else recorded[:100].decode("latin-1"),
        "stdin_kind": raw.stdin_kind,
        "leftovers": raw.leftovers,
        "grown_kib": after - before,
    }
    unfinished = out.with_suffix(".part")
    unfinished.write_text(json.dumps(answer))
    unfinished.rename(out)


if __name__ == "__main__":
    main()
