"""`repotrace hooks install`."""

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
from repotrace.cli.options import JsonOption, note
from repotrace.runs.hooks.settings import (
    Scope,
    apply,
    installing,
    is_shown_by_git,
    our_command,
    places,
    refuse_twice,
)


def hooks_install(
    ctx: typer.Context,
    agent: AgentArgument,
    project: ProjectOption = False,
    user: UserOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Have an agent tell RepoTrace of all its sessions from now on"""
    found = project_of(ctx)
    scope = scope_of(project=project, user=user) or Scope.PROJECT
    all_places = places(agent, found.root, found.home, found.environ)
    (place,) = (place for place in all_places if place.scope == scope)
    refuse_twice(place, all_places)
    change = installing(place, our_command(place.agent.name))
    if not dry_run:
        apply(change)
    show([change], found, "installed", dry_run=dry_run, as_json=as_json)
    if not change.is_none and place.hooks.advice:
        note(place.hooks.advice)
    if is_shown_by_git(place):
        note("git does not ignore this file, which names a path of this machine")
