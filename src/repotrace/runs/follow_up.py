"""The process that does what is left when a run has ended: see `ended`.

It completes what hooks recorded of a session, looks the run over for alerts, and posts them.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing
from pathlib import Path

from repotrace.runs.alerts.keeping import look_over, settings_of
from repotrace.runs.alerts.posting import post
from repotrace.runs.alerts.rules import rules_from
from repotrace.runs.joining import join
from repotrace.storage import Store
from repotrace.system.liveness import lives

LINGERING = 10.0
"""Seconds that an agent is waited for which has told that its session is over."""


def finish(home: str, speaker: str, *run_ids: str) -> None:
    """Do what is left of runs.

    `speaker` is the JSON of the process that says more of them at its very end; empty where there
    is none. Raises whatever keeps it from being done: nobody is there to be told.
    """
    # Somebody may wait for the end of what was inherited besides the standard streams.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.nice(10)
    if speaker:
        _wait_for(speaker)
    with closing(Store(Path(home))) as store:
        store.runs.ingest(wait=True)
        for run_id in run_ids:
            run = store.runs.named(run_id)
            if run is not None and speaker:
                join(store, run)
                store.snapshots.finish()
                run = store.runs.named(run_id)
            if run is not None:
                settings = settings_of(run, {}, os.environ)
                look_over(store, run, rules_from(settings))
                post(store, run, settings, os.environ)


def _wait_for(speaker: str) -> None:
    facts = json.loads(speaker)
    until = time.monotonic() + LINGERING
    while time.monotonic() < until and lives(facts["pid"], started=facts.get("pid_started")):
        time.sleep(0.05)
