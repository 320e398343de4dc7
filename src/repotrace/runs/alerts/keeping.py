"""Runs are looked over for alerts once, when they have ended; what was found is kept with them.

Whoever is there at the end does it. Where nobody was, as after a program that traces itself or a
recorder that was killed, the next one who reads runs does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from repotrace.config import load_settings
from repotrace.errors import RepoTraceError
from repotrace.read.alerts import alerts_in
from repotrace.read.views import Alert
from repotrace.records.run import Run, RunStatus
from repotrace.runs.alerts.evaluation import alerts_of
from repotrace.runs.alerts.rules import Rules, rules_from
from repotrace.storage import Store
from repotrace.storage.alerts import KeptAlert, Look

AT_ONCE = 20
"""Runs that are looked over together, at most; the rest has its turn the next time."""

PATIENCE = 1.0
"""Seconds after which no further run is begun."""


def look_over(store: Store, run: Run, rules: Rules) -> tuple[Alert, ...]:
    """The alerts of a run. Those of one that has ended are kept, and are not sought again.

    One that goes on is taken as far as it has come. Raises RepoTraceError if the run cannot be
    read; that they cannot be kept is no reason not to tell them.
    """
    if run.status == RunStatus.RUNNING:
        return alerts_of(store, run, rules)
    look = store.alerts.look(run.id)
    if look.at is not None and not look.changes and look.rules == rules.digest:
        return alerts_in(store, run.id)
    found = alerts_of(store, run, rules)
    with suppress(RepoTraceError):
        _keep(store, run, found, rules, look)
    return found


def _keep(store: Store, run: Run, found: Iterable[Alert], rules: Rules, look: Look) -> None:
    kept = [KeptAlert(run.id, a.rule, a.step, a.message, a.evidence) for a in found]
    store.alerts.keep(run.id, kept, look=look, rules=rules.digest, at=datetime.now(UTC))


class LookedOver(NamedTuple):
    """What came of looking over the runs that had ended."""

    runs: list[Run]
    problem: RepoTraceError | None
    """What is wrong with the rules of others, which stay due."""


def look_over_ended(
    store: Store, settings: Mapping[str, Any], environ: Mapping[str, str]
) -> LookedOver:
    """Look over the recorded runs that have ended and were not looked over since, the newest first.

    Each is judged by the rules of its own project, by those of `settings` where that is gone.
    Raises RepoTraceError if what is found cannot be kept: nobody wants to wait for that each time.
    """
    until = time.monotonic() + PATIENCE
    known: dict[str | None, Rules | None] = {}
    done: list[Run] = []
    problem = None
    for name in store.alerts.due(AT_ONCE):
        run = store.runs.named(name)
        if run is None:
            continue
        if run.workspace not in known:
            try:
                known[run.workspace] = rules_from(settings_of(run, settings, environ))
            except RepoTraceError as error:
                problem = error
                known[run.workspace] = None
        rules = known[run.workspace]
        if rules is None:
            continue
        look = store.alerts.look(name)
        _keep(store, run, alerts_of(store, run, rules), rules, look)
        done.append(run)
        if time.monotonic() > until:
            break
    return LookedOver(done, problem)


def settings_of(
    run: Run, settings: Mapping[str, Any], environ: Mapping[str, str]
) -> Mapping[str, Any]:
    """The table `alerts` of the project that the run worked in; `settings` where it is gone."""
    if not run.workspace or not os.path.isdir(run.workspace):  # noqa: PTH112 - a text
        return settings
    return load_settings(Path(run.workspace), environ)[0].alerts
