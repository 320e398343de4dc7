"""The table of formats, and what a run or report is written as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from repotrace.records.bug import BugReport
from repotrace.records.run import Run
from repotrace.runs.export.selection import ExportOptions, Selection
from repotrace.storage import Store

type Format = Literal["json", "markdown", "html", "bundle"]


class Exporter(NamedTuple):
    """How to write one format."""

    suffix: str
    """Of the name of a file."""
    run: Callable[[Selection], bytes]
    report: Callable[[Store, BugReport, ExportOptions], bytes]


def _run_json(selection: Selection) -> bytes:
    from repotrace.runs.export.json_ import as_text, run_document

    return as_text(run_document(selection)).encode()


def _report_json(store: Store, report: BugReport, options: ExportOptions) -> bytes:
    from repotrace.runs.export.json_ import as_text

    del store, options
    return as_text(report.model_dump(mode="json")).encode()


def _run_markdown(selection: Selection) -> bytes:
    from repotrace.runs.export.markdown import run_page

    return run_page(selection).encode("utf-8", "backslashreplace")


def _report_markdown(store: Store, report: BugReport, options: ExportOptions) -> bytes:
    from repotrace.runs.export.report_page import report_markdown

    del store
    return report_markdown(report, brief=options.brief).encode("utf-8", "backslashreplace")


def _run_html(selection: Selection) -> bytes:
    from repotrace.runs.export.html import run_page

    return run_page(selection).encode("utf-8", "backslashreplace")


def _report_html(store: Store, report: BugReport, options: ExportOptions) -> bytes:
    from repotrace.runs.export.report_html import report_page

    return report_page(store, report, options).encode("utf-8", "backslashreplace")


def _run_bundle(selection: Selection) -> bytes:
    from repotrace.runs.export.bundle import run_bundle

    return run_bundle(selection)


def _report_bundle(store: Store, report: BugReport, options: ExportOptions) -> bytes:
    from repotrace.runs.export.bundle import report_bundle

    return report_bundle(store, report, options)


EXPORTERS: Mapping[Format, Exporter] = {
    "json": Exporter(".json", _run_json, _report_json),
    "markdown": Exporter(".md", _run_markdown, _report_markdown),
    "html": Exporter(".html", _run_html, _report_html),
    "bundle": Exporter(".repotrace", _run_bundle, _report_bundle),
}


_OTHER_SUFFIXES: Mapping[str, Format] = {".markdown": "markdown", ".htm": "html"}


def format_of_name(name: str) -> Format:
    """The format that a file of this name is to have; json where the name does not tell."""
    suffixes: dict[str, Format] = {exporter.suffix: key for key, exporter in EXPORTERS.items()}
    suffixes |= _OTHER_SUFFIXES
    return next((key for end, key in suffixes.items() if name.lower().endswith(end)), "json")


def export_run(store: Store, run: Run, format: Format, options: ExportOptions) -> bytes:  # noqa: A002
    """The file that the run becomes. Raises RepoTraceError for what cannot be exported."""
    return EXPORTERS[format].run(Selection(store, run, options))


def export_report(
    store: Store,
    report: BugReport,
    format: Format,  # noqa: A002
    options: ExportOptions,
) -> bytes:
    """The file that the report becomes. Raises RepoTraceError for what cannot be exported."""
    return EXPORTERS[format].report(store, report, options)
