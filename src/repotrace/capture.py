"""Capture: run a command, and keep it as a bug report.

trace, report = capture_command(["python", "-m", "pytest"], store=store, severity="high")
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from repotrace.config import Settings, home_for
from repotrace.errors import NoCommand, RepoTraceError
from repotrace.filestate import KeptFiles, keep_files
from repotrace.readable import truncate
from repotrace.records.bug import BugReport, TraceEvent
from repotrace.records.command import CommandRun, CommandSpec, FileState
from repotrace.records.trace import (
    Trace,
    command_line,
    command_run_of,
    metadata_of,
    run_of_trace,
    trace_of,
)
from repotrace.redact import Redactor
from repotrace.storage import ReportStore, Store
from repotrace.system import surroundings
from repotrace.system.execution import OnOutput, execute

if TYPE_CHECKING:
    from repotrace.storage.received import Origin

__all__ = [
    "BugReport",
    "Stored",
    "Trace",
    "TraceEvent",
    "build_report",
    "capture_command",
    "collect_environment",
    "record_command",
    "run_capture",
    "store_report",
    "trace_on_host",
]


def collect_environment(cwd: Path | str | None = None) -> dict[str, Any]:
    """Facts of this host for a command run in `cwd` (default: here), ready for JSON."""
    folder = str(cwd) if cwd is not None else str(Path.cwd())
    venv = surroundings.places_of(folder, os.environ, None).venv
    return surroundings.host_facts(folder, os.environ, venv)


def record_command(
    spec: CommandSpec,
    *,
    redactor: Redactor,
    settings: Settings | None = None,
    on_output: OnOutput | None = None,
    kept: Collection[str] = (),
    added: Collection[str] = (),
    files: FileState | None = None,
) -> Trace:
    """Run `spec` and return its trace with all that a report keeps.

    `files`: what is known of the work tree's files, see `filestate.keep_files`.

    Raises RepoTraceError if `spec.cwd` is no folder or an argument holds a NUL. Everything
    that happens after that, from "command not found" on, is in the trace.
    """
    settings = settings or Settings()
    run = execute(
        spec,
        redactor=redactor,
        limit=settings.output_limit,
        on_output=on_output,
        kept=(*settings.env_keep, *kept),
        added=added,
        with_repository=True,
    )
    if files is not None:
        run = run.model_copy(update={"files": files})
    return trace_on_host(run, spec, redactor)


def trace_on_host(run: CommandRun, spec: CommandSpec, redactor: Redactor) -> Trace:
    """The trace of `run`, which came of `spec`, with the facts of this host."""
    facts = surroundings.host_facts(spec.cwd, spec.env, run.places.venv)
    for name in ("cwd", "executable"):
        facts[name] = redactor.redact(facts[name])
    return trace_of(run, facts)


def run_capture(
    command: list[str],
    cwd: Path | str | None = None,
    timeout: float | None = None,
    *,
    redactor: Redactor | None = None,
    on_output: OnOutput | None = None,
) -> Trace:
    """Run `command` in `cwd` (default: here) for at most `timeout` seconds; its trace.

    A command that cannot be started, that is killed or that takes too long is a trace like
    any other; see `Trace.run.termination`. Standard input is empty. Without a `redactor`
    secrets are redacted with digests that only this call knows.

    Raises NoCommand for an empty command, RepoTraceError if `cwd` is no folder.
    """
    spec = _spec(command, cwd, timeout)
    redactor = redactor or Redactor(key=os.urandom(32), variables=os.environ)
    return record_command(spec, redactor=redactor, on_output=on_output)


def _spec(command: list[str], cwd: Path | str | None, timeout: float | None) -> CommandSpec:
    if not command:
        raise NoCommand("There is no command to run.")
    return CommandSpec(
        argv=tuple(command),
        cwd=str(cwd) if cwd is not None else str(Path.cwd()),
        env=dict(os.environ),
        timeout=timeout,
    )


def default_id(command: str) -> str:
    """The first 12 hex digits of the sha1 of the space-joined argv (or the script)."""
    return hashlib.sha1(os.fsencode(command), usedforsecurity=False).hexdigest()[:12]


def build_report(
    trace: Trace,
    title: str | None = None,
    report_id: str | None = None,
    **overrides: Any,
) -> BugReport:
    """The report of `trace`, not yet stored.

    `overrides`: values for fields of `BugReport`, such as `severity` or `tags`.
    """
    run = run_of_trace(trace)
    command = run.script if run.script is not None else " ".join(trace.command)
    verb = "Command failed" if run.failed else "Command captured"
    fields: dict[str, Any] = {
        "id": report_id if report_id is not None else default_id(command),
        "title": title if title is not None else f"{verb}: {truncate(command_line(run), 200)}",
        "tags": ["capture"],
        "metadata": metadata_of(trace),
    }
    if run.started_at is not None:
        fields["created_at"] = run.started_at
    return BugReport(**(fields | overrides))


class Stored(NamedTuple):
    """Where a captured report went."""

    report: BugReport
    """As it is in the store: an earlier one if the same failure was already there."""
    new: bool
    occurrences: int = 1
    safe: bool = True
    """Whether the report is in the store."""
    problem: RepoTraceError | None = None
    """Why the home's history could not be written, or the report itself."""


def store_report(
    report: BugReport,
    store: Store,
    files: KeptFiles | None = None,
    *,
    origin: Origin | None = None,
) -> Stored:
    """Put `report` into the store so that nothing is lost.

    The same command failing in the same way counts as another occurrence of the report that
    is there, which stays untouched. Anything else under the same id becomes `<id>-2`, ….
    `files` are kept with a report that is new, and only then, and so is its `origin`, if it is
    about something that came from elsewhere.

    Raises RepoTraceError if the report cannot be written, InvalidReportId for a bad id.
    """
    run = command_run_of(report)
    kept, new = store.reports.add(
        report,
        same=lambda other: is_same_failure(other, run),
        before=None if origin is None else lambda name: store.received.note("report", name, origin),
        # That of one which is gone, and came from elsewhere, would make this one seem to.
        is_free=lambda name: origin is not None or not store.received.is_noted("report", name),
    )
    if new:
        return Stored(report=kept, new=True, problem=_claim(files, kept.id))
    try:
        occurrences = store.history.record_occurrence(
            store.reports.root, kept.id, at=report.created_at
        )
    except RepoTraceError as error:
        return Stored(report=kept, new=False, problem=error)
    return Stored(report=kept, new=False, occurrences=occurrences)


def _claim(files: KeptFiles | None, report_id: str) -> RepoTraceError | None:
    """What went wrong, None if nothing did."""
    try:
        if files is not None:
            files.claim(report_id)
    except RepoTraceError as error:
        return error
    return None


def is_same_failure(report: BugReport, run: CommandRun) -> bool:
    """Whether `run` is what `report` already says: command, place, input, and way of failing."""
    try:
        known = command_run_of(report)
    except NoCommand:
        return False
    if (known.argv, known.script, known.stdin or b"") != (run.argv, run.script, run.stdin or b""):
        return False
    if not _same_place(known, run):
        return False
    if _outcome(known) == _outcome(run):
        return True
    # Late: most captures are the first of their kind, or the same again.
    from repotrace.comparison import compare

    return compare(known, run).verdict.matched


def _outcome(run: CommandRun) -> tuple[object, ...]:
    return run.termination, run.returncode, run.spawn_errno, run.stdout, run.stderr


def _same_place(known: CommandRun, run: CommandRun) -> bool:
    if known.cwd_in_repository is not None and run.cwd_in_repository is not None:
        return known.cwd_in_repository == run.cwd_in_repository
    return known.cwd == run.cwd


def capture_command(
    command: list[str],
    store: ReportStore | None = None,
    cwd: Path | str | None = None,
    timeout: float | None = None,
    *,
    snapshot: bool = True,
    **report_overrides: Any,
) -> tuple[Trace, BugReport]:
    """Run `command`, make its report, and store it where a `store` is given.

    With a store the files of the work tree are kept as they were before the command, unless
    `snapshot` is false. Returns the trace and the report as stored. Raises as `run_capture`
    and `store_report` do.
    """
    if store is None:
        trace = run_capture(command, cwd=cwd, timeout=timeout)
        return trace, build_report(trace, **report_overrides)
    home = Store(home_for(store.root, Path.cwd(), os.environ), reports=store.root)
    redactor = Redactor(key=home.key, variables=os.environ)
    spec = _spec(command, cwd, timeout)
    with keep_files(home, spec.cwd, os.environ, redactor) if snapshot else KeptFiles() as files:
        trace = record_command(spec, redactor=redactor, files=files.facts)
        stored = store_report(build_report(trace, **report_overrides), home, files)
        files.settle()
    return trace, stored.report
