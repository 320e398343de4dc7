"""Importing a large session: bytes a second of CPU time, and memory.

    .venv/bin/python benchmarks/import.py [MEGABYTES]

A session of Claude Code of that size (100 by default) is made up: thoughts, edits of one file with
its whole content, outputs of commands, reads. To be reached: 50 MB/s from file to events, 8 MB/s
for the whole import, with rebuilt files, redacting and the database; at most 200 MB of memory.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = "/home/ada/calc"
BODY = "".join(f"line {number} of the file\n" for number in range(60))


def records(size: int) -> Iterator[dict[str, Any]]:
    """The records of a session, until they have about so many bytes."""
    chance = random.Random(1)
    words = [f"word{number}" for number in range(3000)]
    written, count, turn, body, last = 0, 0, 0, BODY, None

    def text(length: int) -> str:
        return " ".join(chance.choice(words) for _ in range(length))

    def record(kind: str, **facts: Any) -> dict[str, Any]:
        nonlocal written, count, last
        count += 1
        name = str(uuid.UUID(int=chance.getrandbits(128)))
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(1772366400 + count))
        common = {"parentUuid": last, "isSidechain": False, "type": kind, "uuid": name}
        common |= {"timestamp": stamp, "cwd": ROOT, "sessionId": "large", "version": "2.1.0"}
        last = name
        return common | facts

    yield record("user", message={"role": "user", "content": "Do a lot"})
    usage = {"input_tokens": 5, "output_tokens": 50, "cache_read_input_tokens": 1000}
    while written < size:
        turn += 1
        message = {"id": f"msg_{turn}", "role": "assistant", "model": "claude-test", "usage": usage}
        name, call_id = f"req_{turn}", f"toolu_{turn}"
        match turn % 4:
            case 0:
                after = body.replace("line 3", f"line {turn} 3", 1)
                path = f"{ROOT}/large.txt"
                tool = ("Edit", {"file_path": path, "old_string": body, "new_string": after})
                output = "done"
                told: dict[str, Any] = {"filePath": path, "oldString": body, "newString": after}
                told |= {"originalFile": body, "structuredPatch": []}
                body = after if len(after) < 2 * len(BODY) else BODY
            case 1:
                output = text(1200)
                tool = ("Bash", {"command": f"grep -rn word{turn} ."})
                told = {"stdout": output, "stderr": "", "interrupted": False}
            case _:
                output = text(1500)
                path = f"{ROOT}/f{turn}.py"
                tool = ("Read", {"file_path": path})
                file = {"filePath": path, "content": output, "numLines": 5, "startLine": 1}
                told = {"type": "text", "file": {**file, "totalLines": 9}}
        thought = {"type": "thinking", "thinking": text(60)}
        use = {"type": "tool_use", "id": call_id, "name": tool[0], "input": tool[1]}
        result = {"type": "tool_result", "tool_use_id": call_id, "content": output}
        for made in (
            record("assistant", requestId=name, message={**message, "content": [thought]}),
            record("assistant", requestId=name, message={**message, "content": [use]}),
            record("user", message={"role": "user", "content": [result]}, toolUseResult=told),
        ):
            written += len(json.dumps(made)) + 1
            yield made


def memory() -> int:
    """The most memory that this process has used, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def read_only(path: Path) -> None:
    """Prints what reading costs."""
    from repotrace.importers import claude_code

    start, count = time.process_time(), 0
    for _ in claude_code.read(path):
        count += 1
    rate = path.stat().st_size / 1e6 / (time.process_time() - start)
    print(f"file to events   {rate:6.1f} MB/s of CPU time, {count} events, {memory()} MB")


def whole(path: Path, folder: Path) -> None:
    """Prints what importing costs."""
    from repotrace.runs.importing import Options, import_session
    from repotrace.storage import Store

    repository = folder / "calc"
    repository.mkdir()
    (repository / "large.txt").write_text(BODY)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=repository, check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start, begun = time.process_time(), time.monotonic()
    (run,) = import_session(Store(folder / "home"), path, Options(repository=repository))
    spent = time.process_time() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rate = path.stat().st_size / 1e6 / spent
    seconds = time.monotonic() - begun
    print(
        f"whole import     {rate:6.1f} MB/s of CPU time, {run.steps} steps, {memory()} MB,"
        f" {seconds:.1f} s; end state {run.end.quality}"
    )


def main() -> None:
    """Makes the session and measures, each part in a process of its own."""
    if len(sys.argv) == 3:
        path = Path(sys.argv[2])
        if sys.argv[1] == "read":
            read_only(path)
        else:
            with tempfile.TemporaryDirectory() as folder:
                whole(path, Path(folder))
        return
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.jsonl"
        with path.open("w") as stream:
            for made in records(size * 1_000_000):
                stream.write(json.dumps(made) + "\n")
        for part in ("read", "whole"):
            subprocess.run([sys.executable, __file__, part, str(path)], check=True)


if __name__ == "__main__":
    main()
