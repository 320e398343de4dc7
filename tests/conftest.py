"""Fixtures of several test modules; a module may have one of its own by the same name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from repotrace.storage import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """All that is kept for a project, in a new home."""
    opened = Store(tmp_path / "home")
    yield opened
    opened.close()
