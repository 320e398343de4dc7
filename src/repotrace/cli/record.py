"""`repotrace record`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repotrace.cli.boundary import complain, fail
from repotrace.cli.capture import FAILED_BEFORE_THE_RUN
from repotrace.cli.options import Opened, StoreOption, note, open_store
from repotrace.cli.runs_alerts import tell_alerts
from repotrace.errors import RepoTraceError

if TYPE_CHECKING:
    from repotrace.runs.record import Recorded, Recording


def record(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", show_default=False)],
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Which agent it is; found out by itself"),
    ] = None,
    task: Annotated[
        str | None, typer.Option("--task", metavar="TEXT", help="What it was asked to do")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; may be repeated")
    ] = None,
    proxy: Annotated[
        bool, typer.Option("--proxy", help="Record its model calls on their way, too")
    ] = False,
    upstream: Annotated[
        str | None, typer.Option("--upstream", metavar="URL", help="With --proxy: the provider")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Run an agent and record what it does, step by step

    Everything from COMMAND on is the agent's own, and so is the terminal. Its exit code becomes
    ours.
    """
    from repotrace.runs.record import CannotStart, Recording, Wish

    try:
        opened = open_store(ctx, store)
        if upstream is not None and not proxy:
            raise RepoTraceError("--upstream is for --proxy.")
        wish = Wish(
            tuple(command), dict(os.environ), Path.cwd(), _known(agent), task, tuple(tag or ()),
            proxy=proxy, upstream=upstream,
        )  # fmt: skip
        recording = Recording(opened.store, wish)
        with recording:
            _begin(recording, opened.store.home)
            recorded = recording.run()
            _conclude(opened, recording, recorded)
    except CannotStart as error:
        fail(error, error.code)
    except RepoTraceError as error:
        fail(error, FAILED_BEFORE_THE_RUN)
    raise typer.Exit(recorded.code)


def _known(agent: str | None) -> str | None:
    from repotrace.agents import AGENTS

    if agent is not None and agent not in AGENTS:
        known = ", ".join(AGENTS)
        raise RepoTraceError(f"No agent is called {agent!r}.", hint=f"There are: {known}")
    return agent


def _begin(recording: Recording, home: Path) -> None:
    facts = [f"recording {recording.run_id}"]
    if recording.agent is not None:
        facts.append(recording.agent)
    if not recording.unwritten:
        facts.append(f"kept in {_short(home)}")
    note(" · ".join(facts))
    if recording.added:
        note(f"relayed, by {' '.join(recording.added)}")
    for problem in recording.problems:
        complain(problem)


def _conclude(opened: Opened, recording: Recording, recorded: Recorded) -> None:
    from repotrace.runs.record import counted

    said = len(recording.problems)
    try:
        recorded = recording.conclude(recorded)
    except KeyboardInterrupt:
        complain("interrupted; what was recorded is completed when the run is read")
        return
    for problem in recording.problems[said:]:
        complain(problem)
    if recorded.run is None and recorded.problem is None:
        complain(f"nothing of {recorded.run_id} could be recorded")
        return
    if recorded.run is None:
        why = f": {recorded.problem}" if recorded.problem else ""
        complain(f"{recorded.run_id} could not be read now{why}", "See: repotrace runs list")
        return
    note(" · ".join([f"recorded {recorded.run_id}", *counted(recorded.run), "repotrace play"]))
    tell_alerts(opened, recorded.run)


def _short(path: Path) -> str:
    """The path as people write it: relative to where they are, or to their home folder."""
    shown = os.path.relpath(path)
    if not shown.startswith(".."):
        return shown
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
