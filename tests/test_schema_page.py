"""The page about the schema says what the code makes."""

from __future__ import annotations

import re

import schema_page

from repotrace.records.events import Kind
from repotrace.storage.database import MIGRATIONS


def test_the_page_is_current() -> None:
    """If this fails, write the page anew: .venv/bin/python tests/schema_page.py"""
    assert schema_page.PAGE.read_text() == schema_page.page()


def test_the_page_has_every_table_and_every_kind_of_event() -> None:
    page = schema_page.PAGE.read_text()
    tables = re.findall(r"CREATE (?:VIRTUAL )?TABLE (\w+)", "".join(MIGRATIONS))
    assert len(tables) > 15
    assert [name for name in tables if f"\n### {name}\n" not in page] == []
    assert [kind for kind in Kind if f"\n| `{kind}` |" not in page] == []


def test_the_page_links_to_what_it_has() -> None:
    page = schema_page.PAGE.read_text()
    titles = {title.lower() for title in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
    assert set(re.findall(r"\(#(\w+)\)", page)) <= titles


def test_an_index_and_a_comment_stand_with_their_table() -> None:
    steps = schema_page.page().partition("\n### execution_steps\n")[2].partition("\n### ")[0]
    assert "- unique: `(run_id, step_number)`" in steps
    assert "| `writer` | TEXT | journal file of the process that started it |" in steps
