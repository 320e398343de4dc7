"""`BugReport`: one captured command as people keep it, one JSON file each."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, Field, PrivateAttr

from repotrace.records.base import Record

SCHEMA_VERSION = 2
"""Of `metadata.schema_version`. Reports of 0.1.0 carry none and count as 1."""


class TraceEvent(Record):
    """One thing that happened while a command ran."""

    index: int = Field(description="Zero-based position of the event in the trace")
    kind: str = Field(description="command, stdout, stderr, exit, or error")
    message: str = Field(description="The event as text")
    timestamp: datetime = Field(description="When it happened, UTC")
    data: dict[str, Any] = Field(default_factory=dict, description="Details of the event")


class Kept:
    """Where a report was read from. It is no part of what the report says, so that two reports
    which differ in it alone are equal."""

    __slots__ = ("home", "id", "reports")

    def __init__(self, reports: Path, report_id: str, home: Path | None = None) -> None:
        self.reports = reports
        """The folder of the report's file."""
        self.id = report_id
        self.home = home
        """None: the one that belongs to the folder."""

    def __eq__(self, other: object) -> bool:
        return other is None or isinstance(other, Kept)

    def __hash__(self) -> int:
        return hash(None)


class BugReport(Record):
    """A captured failure with its diagnostic context."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = Field(description="Unique within its store; also the name of its file")
    title: str
    description: str | None = None
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    updated_at: datetime | None = None
    status: str = Field(default="open", description="open, in progress, closed, or your own word")
    severity: str | None = Field(default=None, description="low, medium, high, or your own word")
    reporter: str | None = None
    assignee: str | None = None
    tags: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    _kept: Kept | None = PrivateAttr(default=None)

    @property
    def kept(self) -> Kept | None:
        """Where the report was read from; None for one that a program made."""
        return self._kept

    def read_from(self, kept: Kept) -> Self:
        """This report, as it was read from there."""
        copy = self.model_copy()
        copy._kept = kept
        return copy
