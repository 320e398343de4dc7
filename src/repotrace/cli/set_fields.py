"""`repotrace set`."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Annotated

import typer

from repotrace.cli.options import (
    ReportArgument,
    StoreOption,
    named,
    note,
    open_store,
    split_tags,
)
from repotrace.redact import Redactor
from repotrace.sweeps import USUAL


def set_fields(
    ctx: typer.Context,
    report_id: ReportArgument,
    store: StoreOption = None,
    status: Annotated[
        str | None, typer.Option("--status", help="open, in progress, closed, or your own word")
    ] = None,
    severity: Annotated[
        str | None, typer.Option("--severity", help="low, medium, high, or your own word")
    ] = None,
    assignee: Annotated[str | None, typer.Option("--assignee", help="Who works on it")] = None,
    reporter: Annotated[str | None, typer.Option("--reporter", help="Who found it")] = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the report")] = None,
    description: Annotated[
        str | None, typer.Option("--description", help="What a reader should know")
    ] = None,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="A,B", help="Tags, in place of the present ones")
    ] = None,
) -> None:
    """Change the fields of a report; an empty value clears one"""
    opened = open_store(ctx, store)
    found = opened.store.resolve(named(opened, report_id))
    redactor = Redactor(key=opened.store.key, variables=os.environ)
    texts = {
        "status": status,
        "severity": severity,
        "assignee": assignee,
        "reporter": reporter,
        "title": title,
        "description": description,
    }
    fields: dict[str, object] = {
        name: redactor.redact(text) or None for name, text in texts.items() if text is not None
    }
    if tags is not None:
        fields["tags"] = split_tags(redactor.redact(tags))
    for name in ("status", "title"):
        if name in fields and fields[name] is None:
            raise typer.BadParameter("may not be empty", param_hint=f"--{name}")
    if not fields:
        raise typer.BadParameter("give at least one of --status, --severity, --assignee, …")
    opened.store.reports.update(found, **fields)
    note(f"changed {', '.join(sorted(fields))} of {found}")
    if isinstance(word := fields.get("status"), str) and word.lower() not in USUAL:
        near = get_close_matches(word.lower(), USUAL, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        usual = ", ".join(USUAL)
        note(f"{meant}{word!r} is a word of your own, and counts as open; the usual are {usual}")
