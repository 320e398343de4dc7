"""An agent that does again what a real one did: it starts hooks, edits files, writes its session.

    python hooked_agent.py SETTINGS SESSION HOOKS TRANSCRIPT FOLDER [KILLED_AFTER]

HOOKS is what the hooks of the real one were told, TRANSCRIPT its session; both are of a project in
/home/dev/invoice, and FOLDER is this one's. The session is written to SESSION with the times of
today, in the order in which the real one wrote and told.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

type Told = dict[str, Any]

_TIME = re.compile(r'(?<=")(timestamp|startTime|lastUpdated)": ?"([^"]+)')
_CALLED = re.compile(r'"(?:id|call_id)": ?"((?:toolu|call)_[^"]+)"')
_ANSWERED = re.compile(r'"tool_use_id": ?"([^"]+)"|"call_id": ?"([^"]+)"')


def lines_of(path: Path) -> list[str]:
    """The lines of a file that may be compressed."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [line for line in text.decode().split("\n") if line]


class Agent:
    """The one that does it again."""

    def __init__(self, settings: Path, session: Path, folder: Path, killed_after: int) -> None:
        self._commands = json.loads(settings.read_bytes())["hooks"]
        self._session, self._folder, self._left = session, folder, killed_after
        self._shifted: dict[str, str] = {}
        session.parent.mkdir(parents=True, exist_ok=True)

    def hear(self, told: Told) -> None:
        """Start the hooks of an event, once what it tells of was done."""
        if told["hook_event_name"] in ("PostToolUse", "AfterTool"):
            self._do(told["tool_name"], told["tool_input"])
        for group in self._commands.get(told["hook_event_name"], ()):
            for hook in group["hooks"]:
                done = subprocess.run(
                    ["sh", "-c", hook["command"]],
                    cwd=self._folder,
                    input=json.dumps(told).encode(),
                    capture_output=True,
                    check=False,
                )
                assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), done
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def _do(self, tool: str, given: Told) -> None:
        if tool in ("Edit", "replace"):
            self._replace(Path(given["file_path"]), given["old_string"], given["new_string"])
        elif tool == "apply_patch":
            patch = given["command"].split("\n")
            path = next(x for x in patch if x.startswith("*** Update File: ")).partition(": ")[2]
            sides = ("".join(f"{x[1:]}\n" for x in patch if x[:1] in (s, " ")) for s in "-+")
            self._replace(self._folder / path, *sides)

    def _replace(self, path: Path, old: str, new: str) -> None:
        text = path.read_text()
        assert text.count(old) == 1, (path, old)
        path.write_text(text.replace(old, new))

    def write(self, line: str) -> None:
        """Write a line of the session as if it was written now."""
        times = [datetime.fromisoformat(time) for _, time in _TIME.findall(line)]
        if times:
            shift = datetime.now(UTC) - max(times)
            for _, time in _TIME.findall(line):
                later = (datetime.fromisoformat(time) + shift).isoformat(timespec="milliseconds")
                self._shifted.setdefault(time, later.replace("+00:00", "Z"))
            line = _TIME.sub(lambda m: f'{m[1]}":"{self._shifted[m[2]]}', line)
        with self._session.open("a") as file:
            file.write(f"{line}\n")


def acts(hooks: list[Told], transcript: list[str]) -> Iterator[Told | str]:
    """What the agent told and what it wrote, in the order in which it did."""
    waiting = list(hooks)
    if "timestamp" in waiting[0]:
        for line in transcript:
            written = max((time for _, time in _TIME.findall(line)), default="")
            while waiting and waiting[0]["timestamp"] <= written:
                yield waiting.pop(0)
            yield line
        yield from waiting
        return
    while waiting[0]["hook_event_name"] != "PreToolUse":
        yield waiting.pop(0)
    for line in transcript:
        begins, ends = (
            '"tool_use"' in line or '_call"' in line,
            "tool_result" in line or "_output" in line,
        )
        if ends:
            answered = {x or y for x, y in _ANSWERED.findall(line)}
            while any(h.get("tool_use_id") in answered for h in waiting):
                yield waiting.pop(0)
        yield line
        if begins and not ends:
            called = set(_CALLED.findall(line))
            while any(
                h.get("tool_use_id") in called and h["hook_event_name"] == "PreToolUse"
                for h in waiting
            ):
                yield waiting.pop(0)
    yield from waiting


def main(settings: str, session: str, hooks: str, transcript: str, folder: str, left: str) -> None:
    """Do it all again."""
    agent = Agent(Path(settings), Path(session), Path(folder), int(left))
    told = [json.loads(line.replace("/home/dev/invoice", folder)) for line in lines_of(Path(hooks))]
    for each in told:
        each["transcript_path"] = session
    written = [line.replace("/home/dev/invoice", folder) for line in lines_of(Path(transcript))]
    for act in acts(told, written):
        if isinstance(act, str):
            agent.write(act)
        else:
            agent.hear(act)


if __name__ == "__main__":
    main(*sys.argv[1:6], *(sys.argv[6:] or ["0"]))
