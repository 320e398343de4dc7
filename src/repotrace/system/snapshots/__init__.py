"""States of a work tree: taken byte for byte, compared, read, given back."""

from repotrace.system.snapshots.lacking import Lacking
from repotrace.system.snapshots.manifest import Manifest
from repotrace.system.snapshots.model import (
    Entry,
    NestedRepository,
    NotCaptured,
    Operation,
    Snapshot,
    StateRecord,
)
from repotrace.system.snapshots.store import SnapshotStore, State, refuse_wide

__all__ = [
    "Entry",
    "Lacking",
    "Manifest",
    "NestedRepository",
    "NotCaptured",
    "Operation",
    "Snapshot",
    "SnapshotStore",
    "State",
    "StateRecord",
    "refuse_wide",
]
