"""The log as tables."""

from __future__ import annotations

from pathlib import Path


def write_report(log: Path, docs: Path) -> None:
    """Write the page and the raw log."""
