"""What another RepoTrace wrote, taken in: exported runs, reports, bundles, reports in Markdown.

Nothing of it is believed. Records are validated, texts redacted again, contents named by what they
are, ids kept only where nothing here has them, and where it came from is noted in the home.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from repotrace.errors import ImportFailed, NewerSchema, RepoTraceError
from repotrace.filestate import held_files
from repotrace.importers import is_transcript
from repotrace.journal import new_id, redacted
from repotrace.records.blame import Blame
from repotrace.records.bug import SCHEMA_VERSION, BugReport
from repotrace.records.events import Event, Kind
from repotrace.records.omitted import Omitted
from repotrace.records.run import FileOperation, Run
from repotrace.redact import Redactor
from repotrace.runs.contents import bytes_of
from repotrace.runs.export.bundle import Bundle, command_files, opened_bundle, states_of
from repotrace.runs.export.json_ import FORMAT
from repotrace.runs.export.payload import MARK, payloads_in
from repotrace.runs.export.selection import missing_here
from repotrace.runs.export.shape import ExportedRun, run_of
from repotrace.runs.traces import refuse_odd_name
from repotrace.storage import Store
from repotrace.storage.consent import is_code_here
from repotrace.storage.memo import KeptVerdict
from repotrace.storage.received import Origin
from repotrace.system.histories import take_history
from repotrace.system.snapshots.bundles import present, read_bundle, take_states
from repotrace.system.snapshots.lacking import Lacking

MAX_FILE = 512 << 20
"""Bytes of a file above which it is not read."""

_HEAD = 1 << 16
_RUN = re.compile(rb'\s*\{\s*("format"\s*:\s*"%s"|"run_id"\s*:)' % FORMAT.encode())
_REPORT = re.compile(rb'\s*\{\s*"id"\s*:\s*"[^"\\]{1,250}"\s*,\s*"title"\s*:')
_PAGES = (".md", ".markdown", ".txt", ".html", ".htm")
_BUNDLE = ".repotrace"
_ZIP = b"PK\x03\x04"


class Received(NamedTuple):
    """A run or report that was in a file."""

    kind: str
    """`run` or `report`."""
    id: str
    """Here."""
    is_new: bool
    """False: it was here already, and nothing was changed."""
    title: str
    steps: int = 0
    states: int = 0
    """States of files that came with it."""
    left_out: str = ""
    """What the run here lacks of it, in words."""
    file_has_more: bool = False
    """Of a run that is here already: whether the file lacks less."""


def is_ours(path: Path) -> bool:
    """Whether a file looks like one that RepoTrace wrote."""
    return _form(path) is not None


def receive(store: Store, path: Path, *, now: datetime, dry_run: bool = False) -> Received:
    """Take in the one run or report of a file, or with `dry_run` tell of it alone.

    Raises ImportFailed with what is wrong with it.
    """
    return receive_all(store, path, now=now, dry_run=dry_run, most=1)[0]


def receive_all(
    store: Store, path: Path, *, now: datetime, dry_run: bool = False, most: int | None = None
) -> list[Received]:
    """`receive` for a file that may hold several: a page where reports were pasted.

    Raises ImportFailed if there are more than `most`, and keeps none of them then.
    """
    form = _form(path)
    if form != "markdown":
        return [_receive(store, path, form, now=now, dry_run=dry_run)]
    pages = payloads_in(_read(path).decode("utf-8", "replace"), path.name)
    if most is not None and len(pages) > most:
        raise ImportFailed(
            f"{path.name} holds {len(pages)} reports.",
            hint=f"Import them, then name one of them: repotrace import {shlex.quote(str(path))}",
        )
    reports = [report_of(_object(data, path.name), path.name) for data in pages]
    origin = Origin(path.name, now)
    return [_receive_report(store, path, one, origin, dry_run=dry_run) for one in reports]


def _receive(
    store: Store, path: Path, form: str | None, *, now: datetime, dry_run: bool
) -> Received:
    if form is None:
        raise ImportFailed(
            f"{path} is no run or report that RepoTrace wrote.",
            hint="Those are files of repotrace export, reports, and Markdown of repotrace report.",
        )
    origin = Origin(path.name, now)
    if form == "bundle":
        return _take_bundle(store, opened_bundle(path), origin, dry_run=dry_run)
    data = _read(path)
    if form == "run":
        found = run_of(_object(data, path.name), path.name)
        known = known_run(store, found)
        if known is not None:
            return _told_known(store, known, found)
        return _told(found) if dry_run else take_run(store, found, origin)
    report = report_of(_object(data, path.name), path.name)
    return _receive_report(store, path, report, origin, dry_run=dry_run)


def _receive_report(
    store: Store, path: Path, report: BugReport, origin: Origin, *, dry_run: bool
) -> Received:
    if dry_run:
        return Received("report", report.id, not store.reports.exists(report.id), report.title)
    return take_report(store, report, None if is_code_here(store, path) else origin)


def _form(path: Path) -> str | None:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD)
            if path.suffix.lower() == _BUNDLE:
                return "bundle"  # or was to be one
            if head.startswith(_ZIP):
                return None if is_transcript(path) else "bundle"  # logs of Inspect are packed too
            if _RUN.match(head):
                return "run"
            if _REPORT.match(head):
                return "report"
            if path.suffix.lower() in _PAGES:
                return "markdown" if MARK.encode() in head + file.read(MAX_FILE) else None
            # A session in which somebody read such a page is a session.
            return "markdown" if MARK.encode() in head and not is_transcript(path) else None
    except OSError:
        return None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_FILE:
                raise ImportFailed(f"{path} is too large: {size} bytes.")
            return file.read(MAX_FILE)
    except OSError as error:
        raise ImportFailed(f"{path} cannot be read: {error.strerror}.") from error


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ImportFailed(f"{name} is not valid JSON: {why}.") from error
    if not isinstance(found, dict):
        raise ImportFailed(f"{name} is not a JSON object.")
    return found


# --- Runs -----------------------------------------------------------------------------------


def known_run(store: Store, found: ExportedRun) -> Run | None:
    """The run that is here already: by its id, or by the session that it is about."""
    refuse_odd_name(found.run_id)
    known = store.runs.named(found.run_id)
    if known is not None and known.id == found.run_id and _is_arriving(store, known.id):
        return None
    if known is None and found.run.source_id:
        # Its events would join that run.
        known = store.runs.named(found.run.source_id)
    return known


def take_run(
    store: Store,
    found: ExportedRun,
    origin: Origin,
    take_files: Callable[[], int] = lambda: 0,
) -> Received:
    """Keep a run that is not here yet, whole or not at all.

    `take_files` keeps the states that came with it, and says how many.
    """
    run_id = found.run_id
    note = origin._replace(left_out=_lacks(found), arriving=True)
    try:
        with store.received.alone():
            known = known_run(store, found)
            if known is not None:  # another process was faster
                return _told_known(store, known, found)
            if _is_arriving(store, run_id):
                _undo(store, run_id)
            try:
                store.received.note("run", run_id, note)
                states = take_files()
                _save(store, found, origin)
                store.received.note("run", run_id, note._replace(arriving=False))
            except (RepoTraceError, OSError):
                _undo(store, run_id)
                raise
    except OSError as error:
        raise RepoTraceError(f"{store.home} cannot be written: {error.strerror}.") from error
    return _told(found)._replace(states=states)


def _save(store: Store, found: ExportedRun, origin: Origin) -> None:
    trace = found.trace
    operations = list(_kept(store, found.run_id, trace.file_operations))
    try:
        done = store.runs.save(trace.model_copy(update={"file_operations": operations}))
        unusable = done.unusable
        _keep_blames(store, found)
    except UnicodeEncodeError:  # half a character, in a name
        unusable = 1
    if unusable:
        noun = "a record that makes" if unusable == 1 else f"{unusable} records that make"
        raise ImportFailed(f"{origin.file} holds {noun} no sense.")
    if found.lost:
        store.runs.add_events([_lost(found)])


def _is_arriving(store: Store, run_id: str) -> bool:
    origin = store.received.origin("run", run_id)
    return origin is not None and origin.arriving


def _undo(store: Store, run_id: str) -> None:
    """Remove what there is of a run that did not come whole; the note goes last.

    Where that fails as well, as on a full disk, the note says that it never came whole.
    """
    with suppress(RepoTraceError, OSError):
        store.snapshots.delete(f"runs/{run_id}")
        if store.runs.named(run_id) is not None:
            store.runs.delete(run_id)
        store.received.forget("run", run_id)


def _told(found: ExportedRun) -> Received:
    left_out = "; ".join((found.left_out or Omitted()).told)
    return Received(
        "run", found.run_id, True, found.run.task or "", len(found.steps), left_out=left_out
    )


def _told_known(store: Store, known: Run, found: ExportedRun, *, states: int = 0) -> Received:
    """What is said of a run that is here already."""
    here, there = missing_here(store, known.id), found.left_out or Omitted()
    more = known.id == found.run_id and bool(set(here.told) - set(there.told))
    left_out = "; ".join(here.told)
    return Received(
        *("run", known.id, False, known.task or ""),
        states=states,
        left_out=left_out,
        file_has_more=more,
    )


def _lacks(found: ExportedRun) -> dict[str, object]:
    """`left_out` as it is noted; nothing for a whole run."""
    if found.left_out is None or not found.left_out.told:
        return {}
    return found.left_out.model_dump(mode="json")


def _kept(
    store: Store, run_id: str, operations: Iterable[FileOperation]
) -> Iterable[FileOperation]:
    """The operations, with the contents that they bring in the snapshot store."""
    changes = list(operations)
    texts = [t for change in changes for t in (change.content_before, change.content_after)]
    given = dict.fromkeys(bytes_of(text) for text in texts if text is not None)
    ids = store.snapshots.keep(f"runs/{run_id}", *given) if given else []
    contents = dict(zip(given, ids, strict=True))
    for change in changes:
        named = {
            f"{side}_id": contents[bytes_of(text)]
            for side in ("before", "after")
            if (text := getattr(change, f"content_{side}")) is not None
        }
        yield change.model_copy(update=named)


def _lost(found: ExportedRun) -> Event:
    run = found.run
    moment = run.last_event_at or run.completed_at or run.started_at
    return {
        "id": f"lost-{run.id}",
        "run": run.id,
        "kind": Kind.LOST,
        "time": int(moment.timestamp() * 1_000_000) * 1000,
        "data": {"count": found.lost, "reason": "lost where it was recorded"},
    }


def _keep_blames(store: Store, found: ExportedRun) -> None:
    redact = Redactor(key=store.key, variables=os.environ).redact
    for blame in found.blames:
        name = blame.id
        if store.memo.run_of_verdict(name) not in (None, found.run_id):
            name = new_id()
        record: Blame = blame.model_copy(update={"id": name, "run_id": found.run_id})
        plain = redacted(record.model_dump(mode="json"), redact)
        kept = KeptVerdict(name, found.run_id, blame.test, blame.verdict, blame.created_at, plain)
        store.memo.keep_verdict(kept)


# --- Bundles --------------------------------------------------------------------------------


def _take_bundle(store: Store, bundle: Bundle, origin: Origin, *, dry_run: bool) -> Received:
    document = _object(bundle.record, origin.file)
    if bundle.commit is not None and bundle.history and not dry_run:
        take_history(bundle.history, bundle.commit, store.received.history(bundle.commit))
    if bundle.kind == "run":
        return _take_run_bundle(store, bundle, run_of(document, origin.file), origin, dry_run)
    report = report_of(document, origin.file)
    if dry_run:
        is_new = not store.reports.exists(report.id)
        return Received("report", report.id, is_new, report.title, states=len(bundle.states))
    return _take_report_bundle(store, bundle, report, origin)


def _take_run_bundle(
    store: Store, bundle: Bundle, found: ExportedRun, origin: Origin, dry_run: bool
) -> Received:
    known = known_run(store, found)
    if known is not None:
        taken = 0 if dry_run or known.id != found.run_id else _add_states(store, bundle, known)
        return _told_known(store, known, found, states=taken)
    if dry_run:
        return _told(found)._replace(states=len(bundle.states))
    ref = f"runs/{found.run_id}"
    wanted = states_of(found.run, found.trace)
    operations = found.trace.file_operations
    take_files = partial(_take_states, store, bundle, wanted, operations, ref)
    return take_run(store, found, origin, take_files)


def _take_states(
    store: Store,
    bundle: Bundle,
    wanted: Iterable[str],
    operations: Iterable[FileOperation],
    ref: str,
) -> int:
    """Keep those of the wanted states that the bundle has, and contents that none of them holds."""
    if not bundle.packed:
        return 0
    named = {item[0]: item for item in bundle.states}
    wanted = list(wanted)
    with read_bundle(bundle.packed) as packed:
        there = {*present(packed, wanted), *(set(wanted) & named.keys())}
        states = [named.get(one, (one, Lacking())) for one in wanted if one in there]
        take_states(packed, states, _named_objects(operations), store.snapshots, ref)
    return len(states)


def _add_states(store: Store, bundle: Bundle, known: Run) -> int:
    """Keep what a run that is here names and lacks: its own record says what, not the file."""
    trace = store.runs.trace(known.id)
    named = states_of(known, trace)
    here = set(present(store.snapshots, named))
    wanted = [state_id for state_id in named if state_id not in here]
    if not wanted:
        return 0
    taken = _take_states(store, bundle, wanted, trace.file_operations, f"runs/{known.id}")
    origin = store.received.origin("run", known.id)
    if taken and origin is not None and origin.left_out.get("files"):
        note = origin._replace(left_out={**origin.left_out, "files": False})
        store.received.note("run", known.id, note)
    return taken


def _named_objects(operations: Iterable[FileOperation]) -> Iterator[str]:
    for change in operations:
        yield from (name for name in (change.before_id, change.after_id) if name is not None)


def _take_report_bundle(
    store: Store, bundle: Bundle, report: BugReport, origin: Origin
) -> Received:
    files = command_files(report)
    if not bundle.packed or files is None or files.state_id is None:
        return take_report(store, report, origin)
    pending = f"reports/CAPTURING-{os.getpid()}-{os.urandom(6).hex()}"
    with read_bundle(bundle.packed) as packed:
        take_states(packed, [(files.state_id, Lacking())], [], store.snapshots, pending)
    try:
        with held_files(store, files) as held:
            got = take_report(store, report, origin)
            held.claim(got.id)
    finally:
        store.snapshots.delete(pending)
    return got._replace(states=1)


# --- Reports --------------------------------------------------------------------------------


def report_of(document: dict[str, Any], name: str) -> BugReport:
    """The report in a document. Raises ImportFailed."""
    metadata = document.get("metadata")
    version = metadata.get("schema_version", 1) if isinstance(metadata, dict) else 1
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise NewerSchema(
            f"{name} was written by a newer RepoTrace: its schema is {version}.",
            hint="Update RepoTrace.",
        )
    try:
        return BugReport.model_validate(document)
    except (ValidationError, RecursionError, OverflowError) as error:
        raise ImportFailed(f"{name} is no report.") from error


def take_report(store: Store, report: BugReport, origin: Origin | None) -> Received:
    """Keep a report, under another id where one of that id is here already and differs.

    Without an `origin` it is as trusted as the code here.
    """
    redact = Redactor(key=store.key, variables=os.environ).redact
    clean = BugReport.model_validate(redacted(report.model_dump(mode="json"), redact))
    # Noted before there is a file: nobody may find it without.
    stored, is_new = store.reports.add(
        clean,
        lambda present: _equal(present, clean),
        stamp=False,
        before=None if origin is None else lambda name: store.received.note("report", name, origin),
        is_free=lambda name: origin is not None or store.received.origin("report", name) is None,
    )
    if origin is None:
        store.received.forget("report", stored.id)
    return Received("report", stored.id, is_new, stored.title)


def _equal(one: BugReport, other: BugReport) -> bool:
    apart = {"updated_at", "id"}
    return one.model_dump(exclude=apart) == other.model_dump(exclude=apart)
