"""`Store`: all that RepoTrace keeps for one project."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from repotrace.errors import RepoTraceError
from repotrace.storage.history import History
from repotrace.storage.keys import key
from repotrace.storage.reports import LATEST, ReportStore

if TYPE_CHECKING:
    from repotrace.storage.alerts import AlertStore
    from repotrace.storage.joins import Joins
    from repotrace.storage.memo import MemoStore
    from repotrace.storage.received import ReceivedStore
    from repotrace.storage.runs import RunStore
    from repotrace.system.snapshots import SnapshotStore


class Store:
    """All that RepoTrace keeps for one project. Constructing opens and makes nothing."""

    def __init__(self, home: Path | str, reports: Path | str | None = None) -> None:
        """`reports` is the folder of the report files; `<home>/reports` if not given."""
        self.home = Path(home)
        root = reports if reports is not None else self.home / "reports"
        self.reports = ReportStore(root, home=self.home)

    def __repr__(self) -> str:
        return f"Store({str(self.home)!r}, reports={str(self.reports.root)!r})"

    @cached_property
    def history(self) -> History:
        return History(self.home)

    @cached_property
    def runs(self) -> RunStore:
        # The records of runs take longer to import than a short command takes.
        from repotrace.redact import Redactor
        from repotrace.storage.runs import RunStore

        return RunStore(
            self.home,
            contents=lambda name: self.snapshots.read_object(name),
            operations_of=lambda pairs: self.snapshots.known_operations_of(pairs),
            redact=lambda: Redactor(key=self.key, variables=os.environ).redact,
        )

    @cached_property
    def joins(self) -> Joins:
        """What is noted of the several views of a run."""
        from repotrace.redact import Redactor
        from repotrace.storage.joins import Joins

        return Joins(
            self.home,
            operations_of=lambda pairs: self.snapshots.known_operations_of(pairs),
            redact=lambda: Redactor(key=self.key, variables=os.environ).redact,
        )

    @cached_property
    def snapshots(self) -> SnapshotStore:
        """The states of work trees; nothing is made before the first one is taken."""
        from repotrace.system.snapshots import SnapshotStore

        return SnapshotStore(self.home / "snapshots.git")

    @cached_property
    def memo(self) -> MemoStore:
        """What was executed on states, and what was said of tests."""
        from repotrace.storage.memo import MemoStore

        return MemoStore(self.home)

    @cached_property
    def alerts(self) -> AlertStore:
        """What was found when runs were looked over for alerts."""
        from repotrace.storage.alerts import AlertStore

        return AlertStore(self.home)

    @cached_property
    def received(self) -> ReceivedStore:
        """Where the runs and reports came from that were not recorded here."""
        from repotrace.storage.received import ReceivedStore

        return ReceivedStore(self.home)

    def close(self) -> None:
        """Ends what was started to read states; the store can be used on."""
        if "snapshots" in self.__dict__:
            self.snapshots.close()

    @cached_property
    def key(self) -> bytes:
        """The key of the redaction digests of this home; see `key`."""
        return key(self.home)

    def resolve(self, text: str) -> str:
        """`reports.resolve`, with `latest` counting repeated captures too.

        Works without the history where that cannot be read.
        """
        if text != LATEST:
            return self.reports.resolve(text)
        try:
            seen = self.history.last_seen(self.reports.root)
        except RepoTraceError:
            seen = {}
        return self.reports.resolve(text, seen)
