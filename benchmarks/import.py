"""Importing a large session: bytes a second of CPU time, and memory.

    .venv/bin/python benchmarks/import.py [MEGABYTES] [FORMAT …]

Sessions of every format (or those that are named) of that size (20 by default) are made up as
`large_sessions.py` says, and read: the rate from file to events, and what one turn of the agent
takes, which is two to ten records. To be reached: 50 MB/s. JSON alone is parsed at the rate in the
last column. Of Claude Code the whole import is measured too, with rebuilt files, redacting and the
database; to be reached: 8 MB/s, at most 200 MB of memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from large_sessions import BODY, EDITED, SESSIONS

ROUNDS = 3


def memory() -> int:
    """The most memory that this process has used, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def size_of(path: Path) -> int:
    """Bytes of a session; of a packed one, those that were packed."""
    if path.is_dir():
        return sum(part.stat().st_size for part in path.rglob("*") if part.is_file())
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as stream:
            return sum(info.file_size for info in stream.infolist())
    return path.stat().st_size


def texts(path: Path) -> Iterator[bytes]:
    """The JSON texts of a session."""
    if path.is_dir():
        for part in path.rglob("*.json"):
            yield part.read_bytes()
    elif path.suffix == ".eval":
        with zipfile.ZipFile(path) as stream:
            for name in stream.namelist():
                yield stream.read(name)
    elif path.suffix == ".jsonl":
        with path.open("rb") as lines:
            yield from lines
    elif path.suffix in (".json", ".traj"):
        yield path.read_bytes()


def read_only(form: str, path: Path) -> None:
    """Prints what reading costs, at the best of some rounds."""
    from repotrace.importers import importer

    found = importer(form)
    best = bare = float("inf")
    events = calls = 0
    for _ in range(ROUNDS):
        start, events, calls = time.process_time(), 0, 0
        for event in found.read(path):
            events += 1
            calls += event["kind"] == "llm"
        best = min(best, time.process_time() - start)
        start = time.process_time()
        parsed = 0
        for text in texts(path):
            json.loads(text)
            parsed += len(text)
        bare = min(bare, time.process_time() - start)
    megabytes = size_of(path) / 1e6
    json_rate = f"{megabytes / bare:6.0f}" if parsed else "     -"
    print(
        f"{form:15} {megabytes:6.1f} MB {megabytes / best:7.1f} MB/s"
        f" {best / calls * 1e6:7.0f} µs/turn {best / events * 1e6:6.1f} µs/event"
        f" {memory():5} MB   JSON {json_rate} MB/s",
        flush=True,
    )


def whole(form: str, path: Path) -> None:
    """Prints what importing costs."""
    from repotrace.runs.transcripts.importing import Options, import_session
    from repotrace.storage import Store

    folder = path.parent
    repository = folder / "calc"
    repository.mkdir()
    (repository / EDITED).write_text(BODY)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start, begun = time.process_time(), time.monotonic()
    (run,) = import_session(Store(folder / "home"), path, Options(form, repository))
    spent = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = time.monotonic() - begun
    print(
        f"{form:15} whole import {path.stat().st_size / 1e6 / spent:6.1f} MB/s of CPU time,"
        f" {run.steps} steps, {memory()} MB, {seconds:.1f} s; end state {run.end.quality}"
    )


def main() -> None:
    """Makes each session and measures, each part in a process of its own."""
    if len(sys.argv) == 4 and sys.argv[1] in ("read", "whole"):
        measure = read_only if sys.argv[1] == "read" else whole
        measure(sys.argv[2], Path(sys.argv[3]))
        return
    arguments = sys.argv[1:]
    size = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else 20
    for form in arguments or SESSIONS:
        with tempfile.TemporaryDirectory() as folder:
            path = SESSIONS[form](Path(folder), size * 1_000_000)
            for part in ("read", "whole") if form == "claude-code" else ("read",):
                subprocess.run([sys.executable, __file__, part, form, str(path)], check=True)


if __name__ == "__main__":
    main()
