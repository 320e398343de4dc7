"""`repotrace hooks status`."""

from __future__ import annotations

import typer

from repotrace.cli.hooks_options import project_of, shown_path
from repotrace.cli.options import JsonOption, note, print_json, say
from repotrace.runs.hooks.settings import NAMES, statuses


def hooks_status(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Say which agents tell RepoTrace of their sessions"""
    found = project_of(ctx)
    known = statuses(found.root, found.home, found.environ)
    if as_json:
        print_json(
            {
                "schema_version": 1,
                "hooks": [
                    {
                        "agent": status.place.agent.name,
                        "scope": status.place.scope,
                        "path": str(status.place.path),
                        "installed": status.installed,
                        "problem": status.problem,
                    }
                    for status in known
                ],
            }
        )
        return
    for status in known:
        if not status.installed and status.problem is None:
            continue
        state = "installed" if status.installed else "not known"
        place = status.place
        path = shown_path(place.path, found)
        problem = f", but {status.problem}" if status.installed and status.problem else ""
        say(f"{place.agent.title}: {state} for the {place.scope} in {path}{problem}")
        if not status.installed and status.problem:
            note(status.problem)
    if not any(status.installed for status in known):
        say("no hooks are installed")
        note(f"install them with: repotrace hooks install {'|'.join(NAMES)}")
