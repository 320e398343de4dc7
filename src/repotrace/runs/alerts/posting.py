"""Where the alerts of a run are posted at its end, and that each is posted once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from repotrace.errors import RepoTraceError
from repotrace.read.alerts import alert_of
from repotrace.records.run import Run
from repotrace.runs.alerts.keeping import settings_of
from repotrace.runs.alerts.notify import PATIENCE, notify
from repotrace.runs.alerts.rules import NOTIFY, notify_variable
from repotrace.runs.ended import ADDRESS_VARIABLE
from repotrace.storage import Store
from repotrace.storage.alerts import KeptAlert


def address_in(settings: Mapping[str, Any], environ: Mapping[str, str]) -> str | None:
    """Where alerts are to be posted; None: nowhere, as where the variable is not set.

    Raises RepoTraceError for a setting that makes no sense.
    """
    given = settings.get(NOTIFY)
    named = None if given is None else environ.get(notify_variable(given))
    return environ.get(ADDRESS_VARIABLE) or named or None


def to_be_posted(
    store: Store, run_ids: Iterable[str], settings: Mapping[str, Any], environ: Mapping[str, str]
) -> list[str]:
    """Those of the runs whose projects want alerts posted, and that have some which are not.

    `settings` are for runs whose project is gone. Raises RepoTraceError as `address_in`.
    """
    unposted = (store.runs.named(name) for name in run_ids if store.alerts.has_unposted(name))
    return [
        run.id
        for run in unposted
        if run is not None and address_in(settings_of(run, settings, environ), environ) is not None
    ]


def post(
    store: Store,
    runs: Iterable[tuple[Run, Mapping[str, Any]]],
    environ: Mapping[str, str],
    *,
    patience: float = PATIENCE,
) -> None:
    """Post the alerts of runs that were kept and not posted yet, if they are to be posted at all.

    Each run comes with the settings that say so. What goes to one address goes in one message. It
    is given up after `patience` seconds. Raises RepoTraceError if anything could not be posted;
    that counts as not posted then.
    """
    taken: dict[str, list[KeptAlert]] = {}
    problem: RepoTraceError | None = None
    for run, settings in runs:
        try:
            address = address_in(settings, environ)
        except RepoTraceError as error:
            problem = error
            continue
        if address is not None:
            taken.setdefault(address, []).extend(store.alerts.take_unposted(run.id))
    for address, alerts in taken.items():
        try:
            if alerts:
                notify(address, tuple(map(alert_of, alerts)), patience=patience)
        except BaseException as error:
            for name in {alert.run_id for alert in alerts}:
                store.alerts.give_back(name, alerts)
            if not isinstance(error, RepoTraceError):
                raise
            problem = error
    if problem is not None:
        raise problem
