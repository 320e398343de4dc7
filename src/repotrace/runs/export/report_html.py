"""A report as one page of HTML."""

from __future__ import annotations

from collections.abc import Iterator

from repotrace.errors import NoCommand, RepoTraceError
from repotrace.facts import facts_of, failure
from repotrace.readable import one_line, shell_line
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandRun
from repotrace.records.trace import command_run_of
from repotrace.runs.export.cutting import cut
from repotrace.runs.export.elements import Html, element, join, output
from repotrace.runs.export.html import chip, document
from repotrace.runs.export.selection import ExportOptions
from repotrace.storage import Store

_LIMIT = 400_000


def report_page(store: Store, report: BugReport, options: ExportOptions) -> str:
    """The whole page."""
    try:
        run = command_run_of(report)
    except NoCommand:
        run = None
    limit = options.max_bytes or _LIMIT
    chips = [chip(report.status)]
    if run is not None:
        chips.insert(0, chip(run.ending, "bad" if run.failed else "good"))
    if report.severity:
        chips.append(chip(report.severity))
    chips += [chip(f"#{tag}") for tag in report.tags]
    head = element(
        "header",
        element("p", f"Report {one_line(report.id)}", class_="over"),
        element("h1", one_line(report.title, 300)),
        element("div", *chips, class_="chips"),
    )
    parts = [*_text(report, limit)]
    if run is not None:
        parts += _command(run, limit)
    parts += [_about(store, report, run)]
    return document(report.title, join(head, element("main", *parts)))


def _text(report: BugReport, limit: int) -> Iterator[Html]:
    if report.description:
        text = element("div", cut(report.description, limit), class_="reason")
        yield element("section", element("h2", "Description"), text)


def _command(run: CommandRun, limit: int) -> Iterator[Html]:
    yield element(
        "section",
        element("h2", "Command", id="steps"),
        element("pre", f"$ {shell_line(run)}", tabindex=0),
        element("p", "in ", element("code", one_line(run.cwd)), class_="quiet"),
    )
    found = failure(run.signature) if run.signature is not None else ""
    if found:
        yield element("section", element("h2", "What failed"), element("p", one_line(found, 600)))
    for name, stream in (("Output", run.stdout), ("Errors", run.stderr)):
        if stream.data.strip():
            text = output(cut(stream.text, limit))
            yield element("section", element("h2", name), element("pre", text, tabindex=0))


def _about(store: Store, report: BugReport, run: CommandRun | None) -> Html:
    facts: list[tuple[str, str]] = [
        ("Captured", report.created_at.strftime("%Y-%m-%d %H:%M UTC")),
        ("Seen", _seen(store, report)),
        *(facts_of(run) if run is not None else ()),
        ("Reporter", report.reporter or ""),
        ("Assignee", report.assignee or ""),
    ]
    items = [
        item
        for name, text in facts
        if text
        for item in (element("dt", one_line(name, 60)), element("dd", one_line(text, 600)))
    ]
    return element(
        "section", element("h2", "Circumstances"), element("dl", *items, class_="facts card")
    )


def _seen(store: Store, report: BugReport) -> str:
    try:
        count = store.history.occurrences(store.reports.root, report).count
    except RepoTraceError:
        return ""
    return "" if count < 2 else f"{count} times"
