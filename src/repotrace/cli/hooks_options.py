"""What the commands about hooks share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from repotrace.cli.options import note, open_store, print_json, say
from repotrace.config import workspace_for

if TYPE_CHECKING:
    from repotrace.runs.hooks.settings import Change, Scope

AgentArgument = Annotated[
    str, typer.Argument(metavar="AGENT", help="claude-code, codex or gemini", show_default=False)
]
ProjectOption = Annotated[
    bool, typer.Option("--project", help="In the settings of this project, yours alone")
]
UserOption = Annotated[bool, typer.Option("--user", help="In your settings for all projects")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the change, make none")]


class Project(NamedTuple):
    """Where a command about hooks was started."""

    root: Path
    home: Path
    environ: Mapping[str, str]
    color: str


def project_of(ctx: typer.Context) -> Project:
    """The project around the current folder."""
    opened = open_store(ctx, None)
    root = workspace_for(Path.cwd(), os.environ)
    return Project(root, opened.store.home, os.environ, opened.color)


def scope_of(*, project: bool, user: bool) -> Scope | None:
    """Which settings are meant; None if that was not said. Raises BadParameter for both."""
    from repotrace.runs.hooks.settings import Scope

    if project and user:
        raise typer.BadParameter("say --project or --user, not both")
    return Scope.USER if user else Scope.PROJECT if project else None


def shown_path(path: Path, project: Project) -> str:
    """A path as people write it: from here, or from their home folder."""
    home = project.environ.get("HOME")
    if path.is_relative_to(project.root):
        return os.path.relpath(path)
    if home and path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return str(path)


def show(
    changes: Iterable[Change], project: Project, state: str, *, dry_run: bool, as_json: bool
) -> None:
    """Show what becomes, or would become, of settings; `state` is what they hold then."""
    changes = list(changes)
    if as_json:
        print_json({"schema_version": 1, "changes": [_facts(c, dry_run) for c in changes]})
        return
    made = [change for change in changes if not change.is_none]
    for change in made:
        _show_one(change, project, dry_run=dry_run)
    if not made:
        paths = " and ".join(shown_path(change.place.path, project) for change in changes)
        note(f"{state} in {paths}; nothing to change")


def _show_one(change: Change, project: Project, *, dry_run: bool) -> None:
    from repotrace.render.console import console
    from repotrace.render.diffs import diff_view

    path = shown_path(change.place.path, project)
    console(color=project.color).print(diff_view(_diff(change, path)), soft_wrap=True)
    if dry_run:
        note(f"{path} would be changed so")
    elif change.after is None:
        note(f"removed {path}, which held nothing else")
    else:
        say(f"wrote {path}")
    if not change.exact:
        note("it was changed since the hooks were put in; only they were taken out")


def _diff(change: Change, path: str) -> bytes:
    from difflib import unified_diff

    sides = [(side or b"").decode("utf-8", "replace") for side in (change.before, change.after)]
    before, after = (text.replace("\r\n", "\n").splitlines(keepends=True) for text in sides)
    old = "/dev/null" if change.before is None else f"a/{path}"
    new = "/dev/null" if change.after is None else f"b/{path}"
    lines = unified_diff(before, after, old, new)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    ).encode()


def _facts(change: Change, dry_run: bool) -> dict[str, object]:
    place = change.place
    return {
        "agent": place.agent.name,
        "scope": place.scope,
        "path": str(place.path),
        "changed": not change.is_none and not dry_run,
        "would_change": not change.is_none,
        "as_before": change.exact,
    }
