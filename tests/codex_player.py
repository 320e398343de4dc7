"""Stands for Codex: works in the current folder, and writes its session down as Codex does.

    python codex_player.py FILE

FILE is a JSON list of moves, each a list:
    ["say", text]            the model says something and calls no tool
    ["write", path, text]    a patch that makes a file what it is told
    ["run", script]          a command, without a word of what it changes
    ["other", path, text]    somebody else writes a file, while no tool is at work
    ["looked", count]        waits until the recorder has kept so many states
    ["quiet"]                waits until nobody looks any more: all that was done has been seen
    ["sleep"]                waits for ever
    ["exit", code]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

SESSION = str(uuid4())


class Player:
    """One session."""

    def __init__(self) -> None:
        self._calls = 0
        if "RESUMED" in os.environ:
            self._calls = 100
            self._file = Path(os.environ["RESUMED"]).open("a")  # noqa: SIM115 - for as long as we live
            self._message("user", "input_text", "Go on.")
            return
        now = datetime.now(UTC)
        folder = Path(os.environ["CODEX_HOME"]) / "sessions" / now.strftime("%Y/%m/%d")
        folder.mkdir(parents=True, exist_ok=True)
        name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{SESSION}.jsonl"
        self._file = (folder / name).open("a")
        self._tell(
            "session_meta",
            {"id": SESSION, "cwd": os.getcwd(), "cli_version": "0.60.0", "source": "cli"},  # noqa: PTH109
        )
        self._tell("turn_context", {"turn_id": "t1", "cwd": os.getcwd(), "model": "gpt-test-1"})  # noqa: PTH109
        self._message("user", "input_text", "Make it so.")

    def play(self, moves: list[list[Any]]) -> None:
        """Make all moves."""
        for move in moves:
            getattr(self, move[0])(*move[1:])

    def say(self, text: str) -> None:
        self._message("assistant", "output_text", text)

    def write(self, path: str, text: str) -> None:
        before = Path(path).read_text() if Path(path).exists() else None
        verb = "Update" if before is not None else "Add"
        lines = [f"*** {verb} File: {path}"]
        if before is not None:
            lines += ["@@", *(f"-{line}" for line in before.splitlines())]
        lines += [f"+{line}" for line in text.splitlines()]
        patch = "\n".join(["*** Begin Patch", *lines, "*** End Patch"])
        call = self._call("custom_tool_call", {"name": "apply_patch", "input": patch})
        Path(path).write_text(text)
        self._result("custom_tool_call_output", call, "Success.", 0)

    def run(self, script: str) -> None:
        arguments = json.dumps({"command": ["bash", "-lc", script]})
        call = self._call("function_call", {"name": "shell", "arguments": arguments})
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        self._result("function_call_output", call, done.stdout + done.stderr, done.returncode)

    def other(self, path: str, text: str) -> None:
        Path(path).write_text(text)

    def looked(self, count: int) -> None:
        while self._states() < count:
            time.sleep(0.01)

    def quiet(self) -> None:
        # A change of the session has the recorder look; once it has, all before is seen.
        journal = Path(os.environ["REPOTRACE_JOURNAL"])

        def looks() -> int:
            texts = [path.read_text(errors="replace") for path in journal.glob("*.jsonl")]
            return sum(text.count('"kind":"look"') for text in texts)

        before = looks()
        while looks() < before + 2:  # the first may have begun before
            self._tell("event_msg", {"type": "token_count", "info": None})
            time.sleep(0.02)

    def sleep(self) -> None:
        print("asleep", flush=True)
        while True:
            time.sleep(0.05)

    def exit(self, code: int) -> None:
        sys.exit(code)

    def _states(self) -> int:
        store = Path(os.environ["REPOTRACE_HOME"]) / "snapshots.git"
        ref = f"refs/repotrace/runs/{os.environ['REPOTRACE_RUN']}"
        command = ["git", f"--git-dir={store}", "rev-list", "--count", ref]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return int(done.stdout or 0)

    # --- The session ------------------------------------------------------------------------

    def _call(self, kind: str, facts: dict[str, Any]) -> str:
        self._calls += 1
        name = f"call_{self._calls}"
        self._message("assistant", "output_text", f"Call number {self._calls}.")
        self._tell("response_item", {"type": kind, "call_id": name, **facts})
        return name

    def _result(self, kind: str, call: str, text: str, code: int) -> None:
        output = json.dumps({"output": text, "metadata": {"exit_code": code}})
        self._tell("response_item", {"type": kind, "call_id": call, "output": output})

    def _message(self, role: str, kind: str, text: str) -> None:
        content = [{"type": kind, "text": text}]
        self._tell("response_item", {"type": "message", "role": role, "content": content})

    def _tell(self, kind: str, payload: dict[str, Any]) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        record = {"timestamp": now, "type": kind, "payload": payload}
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


if __name__ == "__main__":
    Player().play(json.loads(Path(sys.argv[1]).read_text()))
