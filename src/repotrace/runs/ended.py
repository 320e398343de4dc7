"""What is left to do when a run has ended and nobody waits: a process of its own does it.

It is started where the alerts of a run are to be posted, and after sessions that hooks recorded.
This module is loaded into recorded programs, so it finds out no more than whether to start one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from repotrace.locations import project_folders

ADDRESS_VARIABLE = "REPOTRACE_WEBHOOK"
"""Environment variable: where the alerts of runs are posted when they end."""

_OWN, _SHARED = "repotrace.toml", "pyproject.toml"


def is_posting_wanted(folder: Path | None, environ: Mapping[str, str]) -> bool:
    """Whether the project of `folder` seems to want its alerts posted; settings say it for sure."""
    if environ.get(ADDRESS_VARIABLE):
        return True
    if folder is None:
        return False
    for each in project_folders(folder, environ):
        for name in (_OWN, _SHARED):
            with suppress(OSError):
                text = (each / name).read_bytes()
                if b"notify" in text and (name == _OWN or b"repotrace" in text):
                    return True
    return False


def start(
    home: Path, run_id: str, environ: Mapping[str, str], *, speaker: str = "", orphaned: bool
) -> None:
    """Start the process. `speaker` is the JSON of the process that is waited for first, if any.

    `orphaned` is for programs that live on: it becomes no child of theirs. Nothing is raised where
    it cannot be started; whoever reads the run does what is left.
    """
    from repotrace.system.ourselves import start_detached, start_orphaned

    arguments = ["hook", "--ended", os.fspath(home), run_id, speaker]
    with suppress(OSError, ValueError):
        (start_orphaned if orphaned else start_detached)(arguments, environ)


def finish(home: str, run_id: str, speaker: str = "") -> None:
    """What the process does: complete what hooks recorded, look for alerts, post them."""
    from contextlib import closing

    from repotrace.storage import Store

    _let_go()
    os.nice(10)
    if speaker:
        _wait_for(speaker)
    with closing(Store(Path(home))) as store:
        store.runs.ingest(wait=True)
        run = store.runs.named(run_id)
        if run is not None and speaker:
            from repotrace.runs.joining import join

            join(store, run)
            store.snapshots.finish()
            run = store.runs.named(run_id)
        if run is None:
            return
        from repotrace.runs.alerts.keeping import look_over, settings_of
        from repotrace.runs.alerts.posting import post
        from repotrace.runs.alerts.rules import rules_from

        settings = settings_of(run, {}, os.environ)
        look_over(store, run, rules_from(settings))
        post(store, run, settings, os.environ)


LINGERING = 10.0
"""Seconds that an agent is waited for which has told that its session is over."""


def _wait_for(speaker: str) -> None:
    """Wait until the process is gone that says more of the run at its very end."""
    import json
    import time

    from repotrace.system.liveness import lives

    facts = json.loads(speaker)
    until = time.monotonic() + LINGERING
    while time.monotonic() < until and lives(facts["pid"], started=facts.get("pid_started")):
        time.sleep(0.05)


def _let_go() -> None:
    """Close what was inherited besides the standard streams: somebody may wait for its end."""
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
