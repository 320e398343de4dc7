"""Report texts and processes that several test modules share."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from repotrace.storage import (
    BugReport,
    ReportStore,
)

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

OLD_REPORT = """{
  "id": "5303b4f97c12",
  "title": "Command failed: python -c import sys; print('boom'); sys.exit(7)",
  "description": null,
  "created_at": "2025-10-18T04:05:48.298051Z",
  "updated_at": "2025-10-18T04:05:48.298700Z",
  "status": "open",
  "severity": null,
  "reporter": null,
  "assignee": null,
  "tags": [
    "capture"
  ],
  "metadata": {
    "exit_code": 7,
    "cwd": "/tmp/demo",
    "environment": {
      "python": "3.12.1",
      "platform": "Linux"
    },
    "events": [
      {
        "index": 0,
        "kind": "command",
        "message": "python -c import sys; print('boom'); sys.exit(7)",
        "timestamp": "2025-10-18T04:05:48.280000Z",
        "data": {
          "argv": [
            "python",
            "-c",
            "import sys; print('boom'); sys.exit(7)"
          ]
        }
      },
      {
        "index": 1,
        "kind": "exit",
        "message": "exit code 7",
        "timestamp": "2025-10-18T04:05:48.298000Z",
        "data": {
          "duration": 0.018,
          "exit_code": 7
        }
      }
    ]
  }
}"""
"""As 0.1.0 writes it, without a final newline."""


def report(report_id: str = "a1", **fields: Any) -> BugReport:
    return BugReport(id=report_id, title="Command failed: x", created_at=NOON, **fields)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def in_processes(count: int, work: Callable[[int], object]) -> list[Any]:
    """What `work` gave in each of `count` forked processes, all started at one moment."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)
    results = context.SimpleQueue()

    def run(number: int) -> None:
        barrier.wait(60)
        try:
            results.put((number, work(number)))
        except BaseException as error:
            results.put((number, error))

    processes = [context.Process(target=run, args=(number,)) for number in range(count)]
    for process in processes:
        process.start()
    collected = dict(results.get() for _ in processes)
    for process in processes:
        process.join()
    return [collected[number] for number in range(count)]


def put(store: ReportStore, name: str, content: bytes | str) -> None:
    store.root.mkdir(exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    (store.root / name).write_bytes(data)


VALID = OLD_REPORT.replace("5303b4f97c12", "bad")


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own at `folder`."""
    folder.mkdir()
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
