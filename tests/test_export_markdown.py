"""A run as Markdown: what it says, that it fits, and that nothing in it acts."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hostile import MARK, record_hostile
from markdown_it import MarkdownIt
from markdown_it.token import Token
from reading import LEAP, project, record
from recording import NOON, RUN, event, step
from reporting import BOOM, command_run, report_of

from repotrace.errors import ImportFailed
from repotrace.records.blame import Blame
from repotrace.records.bug import BugReport
from repotrace.records.command import Output
from repotrace.runs.export.exporting import Format, export_report, export_run
from repotrace.runs.export.payload import payloads_in
from repotrace.runs.export.selection import ExportOptions
from repotrace.runs.receiving import is_ours, receive, receive_all
from repotrace.storage import Store
from repotrace.storage.memo import KeptVerdict

ISSUE = 65_536


def page(store: Store, **options: Any) -> str:
    return export_run(store, store.runs.get(RUN), "markdown", ExportOptions(**options)).decode()


def parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark", {"html": True}).enable("table").parse(text)


def flat(tokens: list[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token, *(token.children or []))]


def headings(text: str) -> list[str]:
    tokens = parsed(text)
    return [
        tokens[place + 1].content
        for place, token in enumerate(tokens)
        if token.type == "heading_open"
    ]


def outside_of_code(tokens: list[Token]) -> Iterator[str]:
    """The texts that stand in no `<code>`."""
    inside = False
    for token in tokens:
        if token.type == "html_inline":
            inside = token.content == "<code>"
        elif token.type == "text" and not inside:
            yield token.content


def tags(text: str) -> list[str]:
    """The tags that a browser would see."""
    raw = [t.content for t in flat(parsed(text)) if t.type in ("html_inline", "html_block")]
    return re.findall(r"</?[a-zA-Z][^\s>]*", " ".join(raw))


@pytest.fixture
def recorded(tmp_path: Path) -> Store:
    return record(project(tmp_path / "invoice")).store


@pytest.mark.parametrize("form", ["markdown", "html"])
def test_a_mistyped_test_is_none_that_broke(recorded: Store, form: Format) -> None:
    blame = Blame(
        id="b1", run_id=RUN, test="tests/mistyped.py::x", command="pytest -q", reason="none",
        verdict="no-such-test", named=False, until=6, created_at=NOON,
    )  # fmt: skip
    mistyped = KeptVerdict(
        "b1", RUN, blame.test, "no-such-test", NOON, blame.model_dump(mode="json")
    )
    run = recorded.runs.get(RUN)
    before = export_run(recorded, run, form, ExportOptions()).decode()
    recorded.memo.keep_verdict(mistyped)
    after = export_run(recorded, run, form, ExportOptions()).decode()
    assert "mistyped" not in after
    assert after.count("What broke it") == before.count("What broke it")


def test_it_tells_what_happened(recorded: Store) -> None:
    text = page(recorded)
    assert text.splitlines()[:3] == [
        "# Fix the date bug in the invoice export.",
        "",
        "✅ **tests pass** · 6 steps · 1 retry · 3,300 tokens · \\$0.04 · 13.0 s",
    ]
    for line in (
        "| Agent | fixer 1.2 |",
        "| Files | 2 changed, +2 -2 lines; 2 read |",
        f"- `{LEAP}` failed in step 4, repaired in step 6",
        "| ✅ | 3 | edit: Write the patch | app/export.py +1 -1 |  | 1.00 s |",
        "| ❌ | 4 | test: Check |  | 1 failed, 1 passed | 1.00 s |",
        "- **Step 5**: It must be one year.",
        "- **Step 5** tries step 3 again, attempt 2, and succeeded",
        "<summary>Step 3: app/export.py +1 -1</summary>",
        "+    return year + 2",
    ):
        assert line in text.splitlines(), line
    assert headings(text)[1:] == ["Outcome", "Timeline", "Decisions", "Retries", "Changes"]
    timeline = parsed(text.partition("## Timeline")[2])
    assert sum(token.type == "td_open" for token in timeline) == 6 * 6


def test_an_announcement_is_no_title_and_unknown_lines_are_not_told(store: Store) -> None:
    task = "Implement the following plan:\n\n# Repair the leap day\nIt fails."
    store.runs.add_events([
        event("run_started", task=task),
        *step("s1", 1, 2, step_type="edit"),
        event("file_operation", 1, step_id="s1", operation_type="edit", file_path="a.py"),
    ])  # fmt: skip
    lines = page(store).splitlines()
    assert lines[0] == "# Implement the following plan: Repair the leap day"
    assert "| Files | 1 changed; 0 read |" in lines
    assert "+0 -0" not in page(store)
    html = export_run(store, store.runs.get(RUN), "html", ExportOptions()).decode()
    assert "+0 -0" not in html


def test_a_failing_test_is_shown_with_its_output(store: Store) -> None:
    store.runs.add_events(
        [
            *step("s", 1, 2, step_type="test", status="failed"),
            event("test", 1, run=RUN, step_id="s", node_id="t.py::one", outcome="failed",
                  details="E assert 1 == 2"),
            event("test", 1, run=RUN, step_id="s", node_id="t.py::two", outcome="passed"),
        ]
    )  # fmt: skip
    text = page(store)
    assert "1 test failed when last seen:" in text
    assert "E assert 1 == 2" in text
    assert "t.py::two" not in text


def test_without_tests_the_last_failing_command_is_shown(store: Store) -> None:
    command = {"argv": ["make"], "exit_code": 2, "stderr": "no rule\n"}
    store.runs.add_events([*step("s", 1, 2), event("command", 1, run=RUN, step_id="s", id="c",
                                                   command=command)])  # fmt: skip
    text = page(store)
    assert "The last command that failed, in step 1 with 2: `make`" in text
    assert "no rule" in text


def test_options_leave_things_out(recorded: Store) -> None:
    assert "Changes" not in headings(page(recorded, files=False))
    assert "Decisions" not in headings(page(recorded, llm=False))
    part = page(recorded, from_step=3, to_step=4)
    assert "| Shown | steps 3 to 4 of 6 |" in part
    assert "test: Check again" not in part


@pytest.mark.parametrize("brief", [False, True])
def test_nothing_that_was_recorded_acts(store: Store, brief: bool) -> None:
    record_hostile(store)
    text = page(store, brief=brief)
    tokens = flat(parsed(text))
    kinds = {token.type for token in tokens}
    assert not kinds & {"link_open", "image", "em_open", "blockquote_open", "hr", "code_block"}
    raw = " ".join(t.content for t in tokens if t.type in ("html_inline", "html_block"))
    assert {tag.strip("</") for tag in tags(text)} <= {"details", "summary", "code"}
    assert not re.search(r"<(?:details|summary|code)\s", raw)
    assert tags(text).count("<details") == tags(text).count("</details") > 2
    title, *sections = headings(text)
    assert MARK in title
    assert sections == ["What broke it", "Outcome", "Timeline", "Decisions", "Retries", "Changes"]
    # What GitHub makes of text behind the parser: mentions, issues, links.
    for text_outside in outside_of_code(tokens):
        assert not re.search(r"[@#]\w|https?://", text_outside), text_outside
    outside = re.sub(r"<code>.*?</code>", "", raw)
    assert "@everyone" not in outside
    assert "\u202e" not in text
    assert "\x1b" not in text


def test_a_brief_page_fits_an_issue(store: Store) -> None:
    record_hostile(store)
    many = [
        one
        for number in range(1, 900)
        for one in step(f"s{number}", 10 + number, 10.5 + number, description=f"@x <b> {'y' * 999}",
                        reason="z" * 9000, attempt=1 + number % 2, retry_of="a")
    ]  # fmt: skip
    store.runs.add_events(many)
    store.runs.add_events(
        event("test", 20, run=RUN, step_id=f"s{number}", node_id=f"t::{number}{'n' * 500}",
              outcome="failed", details="d" * 9000)
        for number in range(1, 900)
    )  # fmt: skip
    assert len(page(store)) > ISSUE
    brief = page(store, brief=True)
    assert len(brief) <= ISSUE
    assert len(brief) > ISSUE // 8
    assert " steps left out |" in brief
    assert tags(brief).count("<details") == tags(brief).count("</details") > 5
    assert brief.endswith("\n")


# --- Reports --------------------------------------------------------------------------------


def kept(text: str, folder: Path) -> Path:
    file = folder / "issue.md"
    file.write_text(text)
    return file


def test_a_report_is_in_its_own_page(store: Store, tmp_path: Path) -> None:
    report = report_of(command_run(argv=BOOM, stdout=Output.of(b"boom\n" * 20)), id="a1")
    text = export_report(store, report, "markdown", ExportOptions()).decode()
    for shown in (text, "> " + text.replace("\n", "\n> "), text.replace("\n", "\r\n")):
        file = kept(shown, tmp_path)
        assert is_ours(file)
        other = Store(tmp_path / f"home{len(shown)}")
        got = receive(other, file, now=NOON)
        assert (got.kind, got.id, got.is_new) == ("report", "a1", True)
        assert other.reports.load("a1") == report
        assert other.received.origin("report", "a1") is not None
    assert text.count("<details>") == text.count("</details>")


SEEN: Mapping[str, Callable[[str], str]] = {
    "as GitHub sends it": lambda text: text.replace("\n", "\r\n"),
    "in an answer to an answer": lambda text: "> > " + text.replace("\n", "\n> > "),
    "without blanks at ends": lambda text: "\n".join(
        f"> {line}".rstrip() for line in text.split("\n")
    ),
    "in a list": lambda text: "- see\n\n  " + text.replace("\n", "\n  "),
    "among other text": lambda text: f"Hello.\n\n{text}\nThanks!\n" + "x\n" * 9,
    "far down": lambda text: "x" * 100_000 + "\n\n" + text,
    "as a page": lambda text: f"<html><body>{MarkdownIt().render(text)}</body></html>",
    "as a page of Windows": lambda text: MarkdownIt().render(text).replace("\n", "\r\n"),
    "as JSON": lambda text: json.dumps({"title": "x", "body": text}, indent=1),
    "as JSON with CRLF": lambda text: json.dumps({"body": text.replace("\n", "\r\n")}),
    "twice": lambda text: f"{text}\n> " + text.replace("\n", "\n> "),
    "beside a broken one": lambda text: f"```\nrepotrace-report-1\neNqabc\n```\n\n{text}",
}  # fmt: skip


@pytest.mark.parametrize("form", SEEN)
@pytest.mark.parametrize("suffix", [".md", ".txt", ".html"])
def test_a_report_is_found_however_its_page_was_saved(
    store: Store, tmp_path: Path, form: str, suffix: str
) -> None:
    report = report_of(command_run(argv=BOOM, stdout=Output.of(b"boom\n" * 20)), id="a1")
    text = export_report(store, report, "markdown", ExportOptions()).decode()
    file = tmp_path / f"page{suffix}"
    file.write_text(SEEN[form](text), newline="")
    assert receive(store, file, now=NOON).id == "a1"
    assert store.reports.load("a1") == report


def test_every_report_of_a_page_is_taken(store: Store, tmp_path: Path) -> None:
    reports = [report_of(command_run(argv=[*BOOM, name]), id=name) for name in ("a1", "a2")]
    pages = [export_report(store, one, "markdown", ExportOptions()).decode() for one in reports]
    file = kept("\n".join(pages), tmp_path)
    with pytest.raises(ImportFailed, match=r"issue\.md holds 2 reports"):
        receive(store, file, now=NOON)
    assert store.reports.list_ids() == []
    assert [got.id for got in receive_all(store, file, now=NOON)] == ["a1", "a2"]
    assert store.reports.load("a2") == reports[1]


@pytest.mark.parametrize(
    "body",
    ["\n" * 300_000, f"\n{' ' * 300_000}!", f"\n{'> ' * 300_000}!", f"\n{'A' * 300_000}"],
    ids=["empty lines", "blanks", "quotes", "no end"],
)
def test_a_page_that_has_none_is_soon_said_to(tmp_path: Path, body: str) -> None:
    text = f"repotrace-report-1{body}" * 2
    with pytest.raises(ImportFailed):
        payloads_in(text, "page.md")


def test_a_large_report_is_not(store: Store) -> None:
    noise = random.Random(1).randbytes(60_000).hex().encode()
    report: BugReport = report_of(command_run(argv=BOOM, stdout=Output.of(noise)), id="a1")
    text = export_report(store, report, "markdown", ExportOptions()).decode()
    assert "repotrace-report-1" not in text
    brief = export_report(store, report, "markdown", ExportOptions(brief=True)).decode()
    assert len(brief) <= ISSUE
    assert BOOM[0] in brief


def test_a_reason_of_several_steps_is_told_once(store: Store) -> None:
    store.runs.add_events(
        [e for n in range(1, 4) for e in step(f"s{n}", n, n + 0.5, reason="I look around.")]
        + [*step("s4", 4, 5, reason="It must be *this*.")]
    )
    text = page(store)
    assert text.count("I look around.") == 1
    assert "- **Steps 1 to 3**: I look around." in text.splitlines()
    assert "- **Step 4**: `It must be *this*.`" in text.splitlines()
