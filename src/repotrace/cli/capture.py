"""`repotrace capture`."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from repotrace.capture import Stored, build_report, record_command, store_report
from repotrace.cli.boundary import complain, fail, silence, warn
from repotrace.cli.options import (
    CwdOption,
    JsonOption,
    KeepGoingOption,
    Opened,
    StoreOption,
    TimeoutOption,
    inherited,
    note,
    open_store,
    print_json,
    split_tags,
)
from repotrace.errors import RepoTraceError
from repotrace.filestate import KeptFiles, keep_files
from repotrace.records.bug import BugReport
from repotrace.records.command import CommandRun, CommandSpec, Termination
from repotrace.records.trace import run_of_trace
from repotrace.redact import Redactor
from repotrace.storage import validate_id

FAILED_BEFORE_THE_RUN = 125

COLOR_VARIABLES = {"FORCE_COLOR": "1", "PY_COLORS": "1", "CLICOLOR_FORCE": "1"}


def capture(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", show_default=False)],
    store: StoreOption = None,
    cwd: CwdOption = None,
    timeout: TimeoutOption = None,
    title: Annotated[str | None, typer.Option("--title", help="Title of the report")] = None,
    report_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Id of the report")
    ] = None,
    severity: Annotated[
        str | None, typer.Option("--severity", help="low, medium, high, or your own word")
    ] = None,
    tags: Annotated[
        str | None, typer.Option("--tags", metavar="A,B", help="Tags, in place of: capture")
    ] = None,
    keep_going: KeepGoingOption = False,
    only_failures: Annotated[
        bool, typer.Option("--only-failures", help="Store nothing if the command succeeds")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME", help="Keep this variable too; may be repeated"),
    ] = None,
    stdin: Annotated[
        Path | None, typer.Option("--stdin", metavar="FILE", help="Feed this file to the command")
    ] = None,
    shell: Annotated[
        bool, typer.Option("--shell", help="Give COMMAND to /bin/sh: pipes, &&, variables")
    ] = False,
    pty: Annotated[bool, typer.Option("--pty", help="Run the command in a terminal")] = False,
    merge: Annotated[
        bool, typer.Option("--merge", help="Record stdout and stderr as one stream, in true order")
    ] = False,
    snapshot: Annotated[
        bool | None,
        typer.Option(
            "--snapshot/--no-snapshot", show_default=False, help="Keep the files, too [yes]"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a command and keep what happened as a report

    Everything from COMMAND on is the command's own. Its output appears as it comes, and its
    exit code becomes ours.
    """
    echo = _Echo(to_stderr=as_json)
    try:
        if report_id is not None:
            validate_id(report_id)
        opened = open_store(ctx, store)
        redactor = Redactor(key=opened.store.key, variables=os.environ)
        environment, added = _environment(opened, cwd)
        spec = CommandSpec(
            argv=() if shell else tuple(command),
            script=" ".join(command) if shell else None,
            cwd=os.path.abspath(cwd) if cwd else str(Path.cwd()),  # noqa: PTH100 - links kept
            env=environment,
            stdin=_read(stdin),
            inherit_stdin=stdin is None,
            timeout=timeout if timeout is not None else opened.settings.timeout,
            pty=pty,
            merge=merge,
        )
        settings = opened.settings
        kept = tuple(env or ())
        files = _files(opened, spec, redactor, wanted=snapshot)
    except RepoTraceError as error:
        fail(error, FAILED_BEFORE_THE_RUN)
    with files:
        try:
            trace = record_command(
                spec, redactor=redactor, settings=settings, on_output=echo, kept=kept,
                added=added, files=files.facts,
            )  # fmt: skip
        except RepoTraceError as error:
            fail(error, FAILED_BEFORE_THE_RUN)
        run = run_of_trace(trace)
        echo.end_line(after_key=run.termination is Termination.INTERRUPTED)
        code = 0 if keep_going else run.shell_code
        if only_failures and not run.failed:
            note(f"{run.ending}, nothing stored")
            raise typer.Exit(code)
        fields = _fields(redactor, title, severity, tags)
        report = build_report(trace, report_id=report_id, **fields)
        stored = _store(opened, report, files)
        if as_json:
            _print_json(_as_json(opened, stored, run))
        else:
            _summarise(stored, report, run)
            if stored.new and files.problem:
                note(f"the files were not kept: {files.problem}; see --no-snapshot")
        with suppress(KeyboardInterrupt):  # the command is over, and its exit code stands
            files.settle()
    raise typer.Exit(code)


def _files(
    opened: Opened, spec: CommandSpec, redactor: Redactor, *, wanted: bool | None
) -> KeptFiles:
    """The files as they are before the command, if they are wanted."""
    if not (opened.settings.snapshot if wanted is None else wanted):
        return KeptFiles()
    return keep_files(opened.store, spec.cwd, os.environ, redactor)


def _fields(
    redactor: Redactor, title: str | None, severity: str | None, tags: str | None
) -> dict[str, Any]:
    """The fields of the report that were given."""
    given: dict[str, Any] = {
        name: redactor.redact(text)
        for name, text in (("title", title), ("severity", severity), ("tags", tags))
        if text is not None
    }
    if "tags" in given:
        given["tags"] = split_tags(given["tags"])
    return given


def _print_json(value: object) -> None:
    """Print it; the report is stored and the exit code stands even if nobody can read this."""
    try:
        print_json(value)
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        complain(f"cannot write to stdout: {error.strerror}")


def _environment(opened: Opened, cwd: Path | None) -> tuple[dict[str, str], list[str]]:
    """The environment of the command, and the names that we set in it for colours.

    Where our own output is a terminal the command, which writes to a pipe, is asked for the
    colours that it would show there.
    """
    env = inherited(opened)
    added: list[str] = []
    wanted = opened.color == "always" or (
        opened.color == "auto"
        and sys.stdout.isatty()
        and not env.get("NO_COLOR")
        and env.get("TERM") != "dumb"
    )
    if wanted and "FORCE_COLOR" not in env:
        added = [name for name in COLOR_VARIABLES if name not in env]
        env.update((name, COLOR_VARIABLES[name]) for name in added)
    if cwd is not None and "PWD" in env:
        env["PWD"] = os.path.abspath(cwd)  # noqa: PTH100 - links kept
    return env, added


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as error:
        raise RepoTraceError(f"Cannot read {path}: {error.strerror}.") from error


class _Echo:
    """Writes what arrives to our own stdout and stderr, byte for byte and at once."""

    def __init__(self, *, to_stderr: bool) -> None:
        self._targets = {"stdout": sys.stderr if to_stderr else sys.stdout, "stderr": sys.stderr}
        self._shown_with_stderr = [
            stream
            for stream, target in self._targets.items()
            if target is sys.stderr or (target.isatty() and sys.stderr.isatty())
        ]
        self._in_a_line = False

    def __call__(self, stream: str, data: bytes) -> None:
        target = self._targets[stream]
        if data and stream in self._shown_with_stderr:
            self._in_a_line = not data.endswith(b"\n")
        try:
            raw = getattr(target, "buffer", None)
            if raw is None:
                target.write(data.decode("utf-8", "replace"))
            else:
                raw.write(data)
            target.flush()
        except BrokenPipeError:
            raise
        except OSError as error:  # a full disk; the command and its report are not to blame
            silence(target)
            complain(f"cannot show the command's {stream}: {error.strerror}; it is recorded")

    def end_line(self, *, after_key: bool) -> None:
        """Begin a new line on stderr if the command left one unfinished there.

        `after_key`: a terminal has just shown the `^C` that was typed.
        """
        if self._in_a_line or (after_key and sys.stderr.isatty()):
            note("")


def _store(opened: Opened, report: BugReport, files: KeptFiles) -> Stored:
    """Store the report; if that fails, save a copy elsewhere and say where."""
    try:
        stored = store_report(report, opened.store, files)
    except RepoTraceError as error:
        warn(error)
        try:
            complain(f"the report was saved as {opened.store.reports.rescue(report)}")
        except RepoTraceError as second:
            warn(second)
        return Stored(report=report, new=True, safe=False, problem=error)
    warn(stored.problem)
    return stored


def _summarise(stored: Stored, report: BugReport, run: CommandRun) -> None:
    if stored.safe:
        note(f"captured {stored.report.id}")
    note(run.ending)
    if run.termination is Termination.SPAWN_ERROR:
        from repotrace.facts import remedy

        if way := remedy(run):
            note(f"  {way}")
    if stored.occurrences > 1:
        note(f"seen {stored.occurrences} times{_again(stored.report, run)}")
    elif stored.report.id != report.id:
        note(f"{report.id} ended or printed otherwise; this one is kept beside it")


def _again(report: BugReport, run: CommandRun) -> str:
    from repotrace.readable import one_line
    from repotrace.sweeps import CLOSED

    closed = run.failed and report.status.lower() in CLOSED
    return f", though its status is {one_line(report.status)}" if closed else ""


def _as_json(opened: Opened, stored: Stored, run: CommandRun) -> dict[str, object]:
    return {
        "schema_version": 1,
        "id": stored.report.id,
        "new": stored.new,
        "occurrences": stored.occurrences,
        "title": stored.report.title,
        "termination": run.termination.value,
        "exit_code": run.exit_code,
        "signal": run.signal,
        "duration": run.duration,
        "path": str(opened.store.reports.path(stored.report.id)) if stored.safe else None,
    }
