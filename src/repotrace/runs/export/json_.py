"""A run as one JSON document that can be imported again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from repotrace._version import __version__
from repotrace.journal import redacted
from repotrace.runs.export.cutting import within
from repotrace.runs.export.selection import Selection
from repotrace.runs.trace_export import export_trace_json, redactor

FORMAT = "repotrace-run"
"""Of the field `format`."""
SCHEMA_VERSION = 1


def run_document(selection: Selection) -> dict[str, Any]:
    """The run with all that is known of it; `docs/run-export.schema.json` is its schema."""
    options, run = selection.options, selection.run
    document: dict[str, Any] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "exported_by": f"repotrace {__version__}",
        **export_trace_json(selection.trace, allow_secrets=options.allow_secrets),
        "blames": redacted([kept.record for kept in selection.verdicts], redactor().redact),
        "lost": selection.store.runs.losses(run.id),
    }
    if selection.left_out.told:
        document["left_out"] = selection.left_out.model_dump(mode="json")
    if options.max_bytes is not None:
        document = within(document, options.max_bytes)
    return document


def as_text(document: Mapping[str, Any]) -> str:
    """The document as the text of a file."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:  # what is no text can still be escaped
        text = json.dumps(document, indent=2) + "\n"
    return text
