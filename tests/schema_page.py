"""Makes docs/schema.md out of the code: run it as a script to write the page anew."""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from repotrace.records import events
from repotrace.storage import database, runs_schema

PAGE = Path(__file__).parents[1] / "docs" / "schema.md"

_OURS = (
    "SELECT name, sql FROM sqlite_master WHERE type = ? AND sql IS NOT NULL"
    " AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'text_index_%' ORDER BY rowid"
)


def page() -> str:
    """The page as the code wants it."""
    return "\n".join([*_database(), "", *_journal(), ""])


# --- The database ---------------------------------------------------------------------------


def _database() -> Iterator[str]:
    scripts = "\n".join(database.MIGRATIONS)
    yield "# What is on disk"
    yield ""
    yield "Made from the code by `tests/schema_page.py`, which also writes it anew."
    yield ""
    yield f"## The database `<home>/{database.NAME}`"
    yield ""
    yield from _prose((runs_schema.__doc__ or "").partition("\n\n")[2])
    yield ""
    number = len(database.MIGRATIONS)
    yield f"The number of the schema is {number}. Columns that are required are never NULL."
    with _made() as connection:
        for name, sql in connection.execute(_OURS, ("table",)).fetchall():
            yield from ("", f"### {name}", "")
            about = _about(name, scripts)
            if about:
                yield from (about, "")
            if sql.startswith("CREATE VIRTUAL"):
                yield f"`{' '.join(sql.split())}`"
                continue
            yield from _columns(connection, name, sql)
            yield from _indexes(connection, name)


@contextmanager
def _made() -> Iterator[sqlite3.Connection]:
    """A database as our own code makes it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / database.NAME
        with database.Database(path).writing():
            pass
        with closing(sqlite3.connect(path)) as connection:
            yield connection


def _about(table: str, scripts: str) -> str:
    """The comment above a table."""
    match = re.search(rf"((?:^ *--.*\n)+) *CREATE (?:VIRTUAL )?TABLE {table}\b", scripts, re.M)
    lines = match[1].splitlines() if match else []
    return " ".join(line.strip().removeprefix("--").strip() for line in lines)


def _columns(connection: sqlite3.Connection, table: str, sql: str) -> Iterator[str]:
    yield "| column | type | |"
    yield "| --- | --- | --- |"
    for _, name, kind, required, default, key in connection.execute(f"PRAGMA table_info({table})"):
        comment = re.search(rf"^\s*{name}\b[^\n]*?--\s*(.*)$", sql, re.M)
        facts = [
            "key" if key else "required" if required else "",
            f"`{default}` if not given" if default is not None else "",
            comment[1].replace("|", "\\|") if comment else "",
        ]
        yield f"| `{name}` | {kind or 'any'} | {'; '.join(fact for fact in facts if fact)} |"


def _indexes(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    rows = connection.execute(
        "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
        " ORDER BY rowid",
        (table,),
    ).fetchall()
    if rows:
        yield ""
    for (sql,) in rows:
        match = re.fullmatch(r"CREATE (UNIQUE )?INDEX \w+\s+ON \w+ (.*)", " ".join(sql.split()))
        assert match, sql
        yield f"- {'unique' if match[1] else 'index'}: `{match[2]}`"


# --- The journal ----------------------------------------------------------------------------


def _journal() -> Iterator[str]:
    tree = ast.parse(Path(events.__file__).read_text())
    source = Path(events.__file__).read_text()
    yield "## The journal `<home>/journal/*.jsonl`"
    yield ""
    yield from _prose((events.__doc__ or "").strip())
    yield ""
    yield "| kind | `data` | |"
    yield "| --- | --- | --- |"
    for value, cls, more in re.findall(
        r'^    [A-Z_]+ = "(\w+)"  # ([\w{}]+):? ?(.*)$', source, re.M
    ):
        shown = f"[{cls}](#{cls.lower()})" if cls != "{}" else "`{}`"
        yield f"| `{value}` | {shown} | {more} |"
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name not in ("Kind", "Event"):
            yield from _record(node)


def _record(node: ast.ClassDef) -> Iterator[str]:
    yield from ("", f"### {node.name}", "")
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    about = ast.get_docstring(node) or ""
    inherited = [f"Has the fields of [{name}](#{name.lower()}), too." for name in bases
                 if name != "TypedDict"]  # fmt: skip
    yield from _prose("\n\n".join([about, *inherited]))
    fields = list(_fields(node))
    if fields:
        yield from ("", "| field | type | |", "| --- | --- | --- |", *fields)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for part, following in zip(node.body, [*node.body[1:], ast.Pass()], strict=True):
        if not isinstance(part, ast.AnnAssign) or not isinstance(part.target, ast.Name):
            continue
        words = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            words = " ".join(str(following.value.value).split()).replace("|", "\\|")
        kind = ast.unparse(part.annotation).replace("|", "or")
        yield f"| `{part.target.id}` | `{kind}` | {words} |"


def _prose(text: str) -> Iterator[str]:
    """Text of a docstring as Markdown: examples become fences, names with their meaning a list."""
    for paragraph in text.strip("\n").split("\n\n"):
        lines = paragraph.splitlines()
        if all(line.startswith("    ") for line in lines):
            yield from ("```json", *(line.strip() for line in lines), "```")
        else:
            for line in lines:
                line = re.sub(r"^(`\w+`) {2,}", r"- \1: ", line)
                yield re.sub(r"^ {4,}", "  ", line)
        if paragraph != text.strip("\n").split("\n\n")[-1]:
            yield ""


if __name__ == "__main__":
    PAGE.write_text(page())
