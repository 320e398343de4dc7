"""What counts as saying that the tests pass, on two lists of sentences."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repotrace.runs.alerts.claims import CLAIMS, HEDGES, claim_in

DATA = Path(__file__).parent / "data" / "claims"
DOCS = Path(__file__).parents[1] / "docs" / "alerts.md"


def lines(name: str) -> list[str]:
    return [line for line in (DATA / name).read_text().splitlines() if line.strip()]


@pytest.mark.parametrize("text", lines("claims.txt"))
def test_a_claim(text: str) -> None:
    assert claim_in(text) is not None


@pytest.mark.parametrize("text", lines("no_claims.txt"))
def test_no_claim(text: str) -> None:
    assert claim_in(text) is None


def test_the_last_claim_of_a_text_is_given() -> None:
    text = "The tests pass.\n\nI changed `a.py`. Now **all 6 tests pass**.\n\nShall I commit?"
    assert claim_in(text) == "Now all 6 tests pass."


def test_code_says_nothing() -> None:
    assert claim_in("Run it:\n```\n12 passed in 0.1s\n```\n") is None
    assert claim_in("```\nall tests pass") is None


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    claim_in(text)


def test_a_long_text_is_read_in_linear_time() -> None:
    # With a pattern that looks back and forth this would not end.
    assert claim_in("the tests " * 20_000) is None
    assert claim_in("all " * 50_000 + "x") is None


def test_the_patterns_are_published() -> None:
    page = DOCS.read_text()
    assert [pattern for pattern in (*CLAIMS, *HEDGES) if pattern not in page] == []
