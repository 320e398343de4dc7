"""`repotrace proxy`."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from repotrace.cli.boundary import complain
from repotrace.cli.options import note, open_store, say

if TYPE_CHECKING:
    from repotrace.agents import Agent
    from repotrace.runs.recording.wire_recording import ProxyRecording


def proxy(
    ctx: typer.Context,
    port: Annotated[
        int,
        typer.Option("--port", metavar="N", min=0, max=65535, help="Listen here; 0: a free one"),
    ] = 0,
    upstream: Annotated[
        list[str] | None,
        typer.Option(
            "--upstream", metavar="URL", help="Provider, or NAME=URL of one; may be repeated"
        ),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TEXT", help="What the agents are to do")
    ] = None,
) -> None:
    """Record the model traffic of agents that are led here

    Prints the variables that lead them, then serves until Ctrl-C.
    """
    from repotrace.runs.recording.wire_recording import ProxyRecording

    opened = open_store(ctx, None)
    recording = ProxyRecording(
        Path.cwd(),
        os.environ,
        upstreams=upstream or (),
        port=port,
        task=task,
        home=opened.store.home,
        on_run=lambda run_id, agent: note(f"recording {run_id} of {_called(agent)}"),
    )
    stop = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    with recording:
        _print_variables(recording)
        # A wait without an end would not let the signals through on every system.
        while not stop.wait(0.5):
            pass
    _print_result(recording)


def _called(agent: str) -> str:
    return "an agent that does not tell its name" if agent in ("", "unknown") else agent


def _print_variables(recording: ProxyRecording) -> None:
    relay = recording.relay
    for name, value in relay.variables().items():
        say(f"export {name}={shlex.quote(value)}")
    say()
    say(f"# Codex: codex {shlex.join(relay.command(['codex'], _codex())[1:])}")
    sys.stdout.flush()
    note(f"recording what passes 127.0.0.1:{relay.port} for {recording.workspace}")
    note("start agents with these variables; end with Ctrl-C")


def _codex() -> Agent:
    from repotrace.agents import agent

    return agent("codex")


def _print_result(recording: ProxyRecording) -> None:
    if recording.relay.lost:
        complain(f"not all could be recorded: {recording.relay.problem}")
    done = recording.recorded
    if not done:
        note("nothing was recorded: no request to a model came")
    for run in done:
        calls = f"{run.calls} model call{'' if run.calls == 1 else 's'}"
        steps = f"{run.steps} step{'' if run.steps == 1 else 's'}"
        note(f"recorded {run.run_id} · {steps} · {calls} · repotrace play {run.run_id}")
