"""The alerts of runs, as they were found when the runs were looked over last."""

from __future__ import annotations

from repotrace.read.views import Alert
from repotrace.storage import Store
from repotrace.storage.alerts import KeptAlert


def alerts_in(store: Store, run_id: str) -> tuple[Alert, ...]:
    """The alerts of a run; none if something was recorded of it since it was looked over."""
    return tuple(map(alert_of, store.alerts.of(run_id)))


def alerts_at(store: Store, run_id: str, number: int, *, is_last: bool) -> tuple[Alert, ...]:
    """Those of one step; what is about the whole run belongs to its last step."""
    found = alerts_in(store, run_id)
    return tuple(a for a in found if a.step == number or (a.step is None and is_last))


def alert_of(kept: KeptAlert) -> Alert:
    """An alert as views have it."""
    return Alert(**kept._asdict())
