"""`repotrace runs alerts`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repotrace.cli.alert_lines import alert_lines, end_lines
from repotrace.cli.boundary import complain
from repotrace.cli.options import JsonOption, Opened, note, open_runs, print_json, say, the_run
from repotrace.errors import RepoTraceError
from repotrace.readable import one_line

if TYPE_CHECKING:
    from repotrace.read.views import Alert, AlertsView
    from repotrace.records.run import Run

FORMATS = ("table", "json", "github")

PATIENCE = 10.0
"""Seconds that the end of a recording may take longer because alerts are posted."""


def runs_alerts(
    ctx: typer.Context,
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN", help="Runs to look at (default: latest)"),
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option("--rules", metavar="FILE", help="Rules in TOML, in place of the project's"),
    ] = None,
    style: Annotated[
        str, typer.Option("--format", metavar="NAME", help="table, json or github")
    ] = "table",
    notify: Annotated[
        str | None,
        typer.Option(
            "--notify", metavar="URL", help="Post what is found as JSON, as Slack takes it"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Look runs over for what somebody should see

    Exits with 1 if there is something.

    A test that broke, edits that nobody tested, a claim that the tests pass, a weakened test, a
    secret, too many retries, … docs/alerts.md lists the rules and how to set them.
    """
    if style not in FORMATS:
        raise typer.BadParameter(f"say one of {', '.join(FORMATS)}", param_hint="--format")
    opened = open_runs(ctx, tell=False)
    from repotrace.read.views import AlertsView

    found = list(
        {run.id: run for run in (the_run(opened, ref) for ref in runs or ["latest"])}.values()
    )
    alerts = [alert for run in found for alert in _alerts_of(opened, run, rules)]
    view = AlertsView(runs=tuple(run.id for run in found), alerts=tuple(alerts))
    if as_json or style == "json":
        print_json(view.json_object())
    elif style == "github":
        _annotate(view)
    else:
        _show(view)
    if notify and view.alerts:
        from repotrace.runs.alerts.notify import notify as post

        try:
            post(notify, view.alerts)
        except RepoTraceError as error:
            complain(error.message, error.hint)
    if view.alerts:
        raise typer.Exit(1)


def _alerts_of(opened: Opened, run: Run, rules: Path | None) -> tuple[Alert, ...]:
    """By other rules nothing is kept: it was asked for this once."""
    from repotrace.runs.alerts import alerts_of, look_over, rules_from, rules_in

    if rules is not None:
        return alerts_of(opened.store, run, rules_in(rules))
    found = look_over(opened.store, run, rules_from(opened.settings.alerts))
    with suppress(RepoTraceError):
        opened.store.alerts.tell(run.id)
    return found


def _show(view: AlertsView) -> None:
    for alert in view.alerts:
        for line in alert_lines(alert, with_run=len(view.runs) > 1):
            say(line)
    if not view.alerts:
        say("no alerts" if len(view.runs) == 1 else f"no alerts in {len(view.runs)} runs")


def tell_alerts(opened: Opened, run: Run) -> None:
    """Tell the alerts of a run that has just ended, on stderr, and post them where that is set."""
    from repotrace.runs.alerts import look_over, rules_from

    settings = opened.settings.alerts
    try:
        for line in end_lines(look_over(opened.store, run, rules_from(settings))):
            note(line)
        opened.store.alerts.tell(run.id)
        _post(opened, run)
    except RepoTraceError as error:
        complain(error.message, error.hint)


def _post(opened: Opened, run: Run) -> None:
    from repotrace.runs.alerts.posting import post

    try:
        post(opened.store, [(run, opened.settings.alerts)], os.environ, patience=PATIENCE)
    except KeyboardInterrupt:
        complain("interrupted; the alerts were not posted")


def _annotate(view: AlertsView) -> None:
    """Annotations for GitHub."""
    from repotrace.markdown import annotation

    for alert in view.alerts:
        where = f"{alert.run_id} step {alert.step}" if alert.step else alert.run_id
        proof = f" ({', '.join(alert.evidence[:3])})" if alert.evidence else ""
        text = one_line(f"{where}: {alert.message}{proof}", 1000)
        say(annotation("warning", text, title=f"repotrace {alert.rule}"))
    words = ("alert", "run")
    numbers = (len(view.alerts), len(view.runs))
    parts = [f"{n} {word}{'s' * (n != 1)}" for n, word in zip(numbers, words, strict=True)]
    say(" in ".join(parts))
