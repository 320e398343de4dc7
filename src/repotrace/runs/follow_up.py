"""The process that does what is left when a run has ended: see `ended`.

It completes what hooks recorded of a session, looks the run over for alerts, and posts them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from repotrace.errors import RepoTraceError
from repotrace.runs.alerts.keeping import look_over, look_over_ended, settings_of
from repotrace.runs.alerts.posting import post
from repotrace.runs.alerts.rules import rules_from
from repotrace.runs.ended import LOCK
from repotrace.runs.transcripts.joining import join
from repotrace.storage import Store
from repotrace.storage.files import held_alone
from repotrace.system.liveness import lives

LINGERING = 10.0
"""Seconds that an agent is waited for which has told that its session is over."""

GATHERING = 1.0
"""Seconds for which runs are gathered: a service may end many at once."""


def finish(home: str, speaker: str, *run_ids: str) -> None:
    """Do what is left of these runs, and of others that have ended by now.

    `speaker` is the JSON of the process that says more of them at its very end; empty where there
    is none. Raises whatever keeps it from being done: nobody is there to be told.
    """
    # Somebody may wait for the end of what was inherited besides the standard streams.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.nice(10)
    if speaker:
        _wait_for(speaker)
    else:
        _gather(Path(home))
    with closing(Store(Path(home))) as store:
        store.runs.ingest(wait=True)
        if speaker:
            _join(store, run_ids)
        named = filter(None, map(store.runs.named, run_ids))
        runs = {run.id: run for run in named}
        for run in runs.values():
            with suppress(RepoTraceError):
                look_over(store, run, rules_from(settings_of(run, {}, os.environ)))
        while done := look_over_ended(store, {}, os.environ).runs:
            runs |= {run.id: run for run in done}
        post(store, [(run, settings_of(run, {}, os.environ)) for run in runs.values()], os.environ)


def _join(store: Store, run_ids: Iterable[str]) -> None:
    for run_id in run_ids:
        run = store.runs.named(run_id)
        if run is not None:
            join(store, run)
    store.snapshots.finish()


def _gather(home: Path) -> None:
    """Wait while runs end that need no process of their own then: see `ended.follow_up`."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    with held_alone(os.open(home / LOCK, flags, 0o600), wait=True):
        time.sleep(GATHERING)


def _wait_for(speaker: str) -> None:
    facts = json.loads(speaker)
    until = time.monotonic() + LINGERING
    while time.monotonic() < until and lives(facts["pid"], started=facts.get("pid_started")):
        time.sleep(0.05)
