"""`repotrace hooks uninstall`."""

from __future__ import annotations

import typer

from repotrace.cli.hooks_options import (
    AgentArgument,
    DryRunOption,
    ProjectOption,
    UserOption,
    project_of,
    scope_of,
    show,
)
from repotrace.cli.options import JsonOption
from repotrace.runs.hooks.settings import apply, places, uninstalling


def hooks_uninstall(
    ctx: typer.Context,
    agent: AgentArgument,
    project: ProjectOption = False,
    user: UserOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take the hooks out of the settings of an agent"""
    found = project_of(ctx)
    scope = scope_of(project=project, user=user)
    chosen = places(agent, found.root, found.home, found.environ, scope)
    changes = [uninstalling(place) for place in chosen]
    if not dry_run:
        for change in changes:
            apply(change)
    show(changes, found, "not installed", dry_run=dry_run, as_json=as_json)
