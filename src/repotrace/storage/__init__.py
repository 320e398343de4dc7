"""Our own database and the report files. `Store(home)` is the way in."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repotrace.records.bug import BugReport
    from repotrace.storage.history import History, Occurrences, RecordedVerdict
    from repotrace.storage.keys import key
    from repotrace.storage.reports import LATEST, ReportStore, validate_id
    from repotrace.storage.store import Store

__all__ = [
    "LATEST",
    "BugReport",
    "History",
    "Occurrences",
    "RecordedVerdict",
    "ReportStore",
    "Store",
    "key",
    "validate_id",
]

_HOMES = {
    "LATEST": "storage.reports",
    "BugReport": "records.bug",
    "History": "storage.history",
    "Occurrences": "storage.history",
    "RecordedVerdict": "storage.history",
    "ReportStore": "storage.reports",
    "Store": "storage.store",
    "key": "storage.keys",
    "validate_id": "storage.reports",
}


def __getattr__(name: str) -> Any:
    # A program that is recorded needs the key alone; the records take long to import.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"repotrace.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
