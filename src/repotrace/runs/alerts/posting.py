"""Where the alerts of a run are posted at its end, and that each is posted once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from repotrace.read.alerts import alert_of
from repotrace.records.run import Run
from repotrace.runs.alerts.keeping import settings_of
from repotrace.runs.alerts.notify import PATIENCE, notify
from repotrace.runs.alerts.rules import NOTIFY, notify_variable
from repotrace.runs.ended import ADDRESS_VARIABLE
from repotrace.storage import Store


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
    run: Run,
    settings: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    patience: float = PATIENCE,
) -> None:
    """Post the alerts of a run that were kept and not posted yet, if they are to be posted at all.

    It is given up after `patience` seconds. Raises RepoTraceError if that fails; they count as
    not posted then.
    """
    address = address_in(settings, environ)
    if address is None:
        return
    taken = store.alerts.take_unposted(run.id)
    if not taken:
        return
    try:
        notify(address, tuple(map(alert_of, taken)), patience=patience)
    except BaseException:
        store.alerts.give_back(run.id, taken)
        raise
