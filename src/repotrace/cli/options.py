"""Options that several commands share, and what they open."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from repotrace.cli.boundary import complain, silence, warn
from repotrace.config import Settings, find_store, home_for, load_settings, workspace_for
from repotrace.errors import RepoTraceError, RunNotFound
from repotrace.storage import LATEST, Store

if TYPE_CHECKING:
    from datetime import datetime

    from repotrace.records.bug import BugReport
    from repotrace.records.run import Run

StoreOption = Annotated[
    Path | None,
    typer.Option("--store", "-s", metavar="DIR", help="Folder of the reports"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object")]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace the output file if there is one")
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file")
]
CwdOption = Annotated[
    Path | None, typer.Option("--cwd", metavar="DIR", help="Run the command in this folder")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0.001, help="End the command after this time"),
]
AtCaptureOption = Annotated[
    bool,
    typer.Option("--at-capture", help="Run in a copy of the files as they were at the capture"),
]
LinkOption = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        metavar="PATH",
        help="Link this, which was not captured, into the copy; may be repeated",
    ),
]
KeepGoingOption = Annotated[bool, typer.Option("--keep-going", help="Exit with 0 regardless")]
ReportArgument = Annotated[
    str, typer.Argument(metavar="ID", help="Id of a report, a unique prefix, or latest")
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of a run, a unique prefix, or latest")
]
PathsOption = Annotated[
    list[str] | None,
    typer.Option("--path", metavar="GLOB", help="These paths only; may be repeated"),
]


class Globals(NamedTuple):
    """What was said before the name of the command."""

    home: Path | None = None
    color: str = "auto"


class Opened(NamedTuple):
    """The store that a command works on, and the settings of the project."""

    store: Store
    settings: Settings
    color: str


def open_store(ctx: typer.Context, reports: Path | None) -> Opened:
    """Find the store, the home and the settings. Doubtful settings are said on stderr."""
    said = ctx.find_object(Globals) or Globals()
    cwd = Path.cwd()
    settings, warnings = load_settings(cwd, os.environ)
    for warning in warnings:
        complain(warning)
    root = find_store(cwd, os.environ, reports)
    home = home_for(root, cwd, os.environ, said.home)
    return Opened(store=Store(home, reports=root), settings=settings, color=said.color)


def open_runs(ctx: typer.Context, reports: Path | None = None, *, tell: bool = True) -> Opened:
    """`open_store` for commands about runs, with what programs have recorded by now taken in.

    What could not be taken in is said on stderr and does not keep from reading the rest. So are,
    with `tell`, the alerts of runs that ended while nobody looked.
    """
    opened = open_store(ctx, reports)
    done = opened.store.runs.ingest()
    if done.problem is not None:
        complain(f"not all that was recorded could be read: {done.problem}")
    else:
        complete(opened.store)
        if tell:
            _tell_news(opened)
    return opened


def complete(store: Store) -> None:
    """Join what was seen of runs whose recorder could not do it any more."""
    with suppress(RepoTraceError):  # whoever reads will say what is wrong with the database
        if store.joins.unfinished():
            from repotrace.runs.transcripts import joining

            joining.complete(store)


def _tell_news(opened: Opened) -> None:
    store, settings = opened.store, opened.settings.alerts
    try:
        if not store.alerts.has_news():
            return
        from repotrace.cli.alert_lines import news_lines
        from repotrace.read.alerts import alert_of
        from repotrace.runs.alerts.keeping import look_over_ended

        done = look_over_ended(store, settings, os.environ)
        news = {name: [*map(alert_of, store.alerts.tell(name))] for name in store.alerts.untold()}
    except RepoTraceError:  # whoever reads will say what is wrong with the database
        return
    for line in news_lines(news):
        note(line)
    warn(done.problem)
    with suppress(RepoTraceError):
        _post_news(opened, {run.id for run in done.runs} | news.keys())


def _post_news(opened: Opened, run_ids: set[str]) -> None:
    """Have alerts posted that nobody could post at the end of their runs, or that were refused."""
    from repotrace.runs import ended
    from repotrace.runs.alerts.posting import to_be_posted

    store = opened.store
    if wanted := to_be_posted(store, run_ids, opened.settings.alerts, os.environ):
        ended.start(store.home, wanted, os.environ, orphaned=True)


_OURS = (".json", ".repotrace", ".md", ".markdown", ".txt", ".html", ".htm")
"""How the names of files end that may stand for the id of what is in them."""


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # no path at all
        return False


def is_named_as_ours(ref: str) -> bool:
    """Whether a file of this name may be one that RepoTrace wrote; any other may be a test."""
    return ref.lower().endswith(_OURS)


def named(opened: Opened, ref: str) -> str:
    """`ref`, or the id of what is in the file that it names: that is imported then."""
    named_so = "/" in ref or is_named_as_ours(ref)
    if ref == LATEST or not named_so or not _is_file(ref):
        return ref
    from datetime import UTC, datetime

    from repotrace.runs.receiving import receive

    got = receive(opened.store, Path(ref), now=datetime.now(UTC))
    note(f"{'imported' if got.is_new else 'this is'} {got.kind} {got.id}")
    return got.id


def the_report(opened: Opened, ref: str) -> BugReport:
    """The report that `ref` means: an id, a prefix, `latest`, or a file."""
    from repotrace.errors import ReportNotFound

    ref = named(opened, ref)
    try:
        return opened.store.reports.load(opened.store.resolve(ref))
    except ReportNotFound as error:
        try:
            opened.store.runs.ingest()
            run = opened.store.runs.resolve(ref) if ref != LATEST else None
        except RepoTraceError:
            run = None
        if run is None:
            raise
        way = f"Make one of what failed in it with: repotrace runs report {run}"
        raise ReportNotFound(f"{run} is a run, not a report.", hint=way) from error


def the_run(opened: Opened, ref: str) -> Run:
    """The run that `ref` means; `latest` is the newest of this work tree if it has one."""
    runs, ref = opened.store.runs, named(opened, ref)
    if ref != LATEST:
        try:
            return runs.get(ref)
        except RunNotFound as error:
            raise _no_run(opened, ref, error) from error
    workspace = str(workspace_for(Path.cwd(), os.environ))
    try:
        return runs.get(ref, workspace=workspace)
    except RunNotFound:
        newest = runs.get(ref)
        note(f"no run was recorded in {workspace}; the newest of all is {newest.id}")
        return newest


def _no_run(opened: Opened, ref: str, error: RunNotFound) -> RunNotFound:
    """`error`, or what says that `ref` means a report."""
    reports = opened.store.reports
    try:
        report = reports.resolve(ref)
    except RepoTraceError:
        return error
    way = f"Show it with: repotrace show {report}, or delete its file: {reports.path(report)}"
    return RunNotFound(f"{report} is a report, not a run.", hint=way)


def run_or_report(opened: Opened, ref: str) -> Run | BugReport:
    """The run or report that `ref` means; `latest` is the newer one of both."""
    from repotrace.errors import ReportNotFound

    reports = opened.store.reports
    ref = named(opened, ref)
    if ref != LATEST:
        try:
            return the_run(opened, ref)
        except RunNotFound as no_run:
            try:
                return reports.load(opened.store.resolve(ref))
            except ReportNotFound as error:
                raise ReportNotFound(f"No run or report matches {ref!r}.", no_run.hint) from error
    try:
        report = reports.load(opened.store.resolve(ref))
    except ReportNotFound:
        return the_run(opened, ref)
    try:
        run = the_run(opened, ref)
    except RunNotFound:
        return report
    return run if (run.last_event_at or run.started_at) > report.created_at else report


_NO_STEP = 2**62
"""No step has this number, and every database knows it."""


def step_named(opened: Opened, run: Run, text: str) -> int:
    """The number of a step of the run: `text` itself, or that of the checkpoint of this name."""
    if text.isascii() and text.isdigit():
        return min(int(text[:20]), _NO_STEP)
    from repotrace.runs.checkpoints import find_checkpoint

    return find_checkpoint(opened.store, text, run=run).step_number


def moment_given(text: str, now: datetime) -> datetime:
    """The moment that `2h`, `3d`, `90s`, `2w` before `now` is, or that an ISO date names.

    A date without a time zone is one of the local zone. Raises BadParameter for anything else.
    """
    from repotrace.storage.query import moment

    try:
        return moment(text, now)
    except RepoTraceError as error:
        raise typer.BadParameter(f"{error.message} {error.hint}") from None


def inherited(opened: Opened) -> dict[str, str]:
    """Our environment, as the commands that we run get it.

    A capture inside of one uses the same store and home.
    """
    env = dict(os.environ)
    env.setdefault("REPOTRACE_STORE", os.path.abspath(opened.store.reports.root))  # noqa: PTH100
    env.setdefault("REPOTRACE_HOME", os.path.abspath(opened.store.home))  # noqa: PTH100
    return env


def check_copy_options(*, at_capture: bool, cwd: Path | None, link: list[str] | None) -> None:
    """Raises BadParameter for what makes no sense beside `--at-capture`, or without it."""
    if at_capture and cwd is not None:
        raise typer.BadParameter("--at-capture runs in a folder of its own; leave out --cwd")
    if link and not at_capture:
        raise typer.BadParameter("--link is for --at-capture")


def say(text: str = "") -> None:
    """One line of data on stdout."""
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """One line about what happens, on stderr, after the data that was said before it."""
    with suppress(OSError, ValueError):  # whoever ends the process tries again, and says so
        sys.stdout.flush()
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:  # nobody can be told
        silence(sys.stderr)


def print_json(value: object) -> None:
    """One JSON object on stdout."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # what is no text can still be escaped
        text = json.dumps(value, indent=2)
    sys.stdout.write(text + "\n")


def check_output(output: Path | None, *, overwrite: bool) -> None:
    """Say before a replay, not after it, that the file is in the way."""
    from repotrace.errors import ReportExists

    if output is not None and output.exists() and not overwrite:
        raise ReportExists(f"{output} already exists.", hint="Replace it with: --overwrite")


def split_tags(text: str) -> list[str]:
    """`a, b` as `["a", "b"]`, without repeats."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
