"""`repotrace runs list`."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from repotrace.cli.boundary import complain
from repotrace.cli.options import JsonOption, moment_given, note, open_runs, print_json, say
from repotrace.config import workspace_for
from repotrace.records.run import RunOutcome, RunStatus

LIMIT = 50


def _check_word(option: str, word: str | None, words: type[StrEnum]) -> None:
    """No run has a word that is none, so an empty list would say the wrong thing."""
    if word is not None and word not in words:
        raise typer.BadParameter(f"say one of {', '.join(words)}", param_hint=option)


def runs_list(
    ctx: typer.Context,
    status: Annotated[
        str | None,
        typer.Option(
            "--status", metavar="WORD", help="Only running, completed, failed or interrupted ones"
        ),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            "--outcome", metavar="WORD", help="Only those whose tests passed, failed or not-run"
        ),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only runs of this agent")
    ] = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="Only runs with this tag")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="Only newer ones: 2h, 3d, or a date"),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help="At most so many; 0: all")
    ] = LIMIT,
    all_worktrees: Annotated[
        bool, typer.Option("--all-worktrees", help="Runs of other work trees as well")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List recorded runs, the newest first"""
    now = datetime.now(UTC)
    moment = None if since is None else moment_given(since, now)
    _check_word("--status", status, RunStatus)
    _check_word("--outcome", outcome, RunOutcome)
    opened = open_runs(ctx)
    from repotrace.read.runs import list_runs

    workspace = None if all_worktrees else str(workspace_for(Path.cwd(), os.environ))
    found = list_runs(
        opened.store,
        workspace=workspace,
        status=status,
        outcome=outcome,
        agent=agent,
        tag=tag,
        since=moment,
        limit=limit or None,
    )
    if as_json:
        print_json(found.json_object())
    elif found.runs:
        from repotrace.render.runs import run_list
        from repotrace.render.runs_layout import Page

        page = Page(opened.color)
        page.print(run_list(found.runs, width=page.width, now=now))
    else:
        selected = any(value is not None for value in (status, outcome, agent, tag, since))
        say("no matching runs" if selected else "no runs recorded")
    if found.more:
        note(f"the newest {len(found.runs)} are listed; more with: --limit 0")
    if found.elsewhere:
        others = "1 run" if found.elsewhere == 1 else f"{found.elsewhere} runs"
        complain(
            f"no run was recorded in {workspace}, but {others} elsewhere.",
            "List them with: repotrace runs list --all-worktrees",
        )
