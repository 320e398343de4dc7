"""`repotrace replay-all`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from repotrace.cli.boundary import INTERRUPTED, complain, warn
from repotrace.cli.consent import YesOption, trusted_reports
from repotrace.cli.options import (
    AtCaptureOption,
    CwdOption,
    KeepGoingOption,
    LinkOption,
    Opened,
    OutputOption,
    OverwriteOption,
    StoreOption,
    TimeoutOption,
    check_copy_options,
    check_output,
    note,
    open_store,
    say,
)
from repotrace.cli.replay import COULD_NOT_RUN, DIFFERENT, REPRODUCED, options_for
from repotrace.records.replay import ReplaySummary
from repotrace.replay import remember
from repotrace.replay import replay_all as sweep

Format = Literal["table", "markdown", "json", "junit", "github"]


def replay_all(
    ctx: typer.Context,
    store: StoreOption = None,
    cwd: CwdOption = None,
    timeout: TimeoutOption = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", metavar="N", min=1, help="How many at a time [processors]"),
    ] = None,
    exit_code_only: Annotated[
        bool, typer.Option("--exit-code-only", help="Compare how they end, not the output")
    ] = False,
    gate: Annotated[
        bool,
        typer.Option("--gate", help="Open reports must reproduce, closed ones must not"),
    ] = False,
    at_capture: AtCaptureOption = False,
    link: LinkOption = None,
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    format: Annotated[  # noqa: A002 - the name of the option
        Format | None, typer.Option("--format", help="How to print the sweep")
    ] = None,
    keep_going: KeepGoingOption = False,
    yes: YesOption = False,
) -> None:
    """Replay every report and summarise

    Exits with 0 if all reproduce, 1 if one does not, 2 if one cannot be read or run.
    """
    check_copy_options(at_capture=at_capture, cwd=cwd, link=link)
    opened = open_store(ctx, store)
    check_output(output, overwrite=overwrite)
    options = replace(
        options_for(opened),
        cwd=cwd,
        timeout=timeout,
        match="exit-code" if exit_code_only else "normal",
        with_repository=False,
        at_capture=at_capture,
        links=tuple(link or ()),
        snapshots=opened.store.snapshots if at_capture else None,
    )
    names = opened.store.reports.list_ids()
    total = len(names)
    options = replace(options, trusted=yes or trusted_reports(opened, names))
    with _progress(total) as advance:
        summary = sweep(opened.store.reports, jobs=jobs, options=options, on_result=advance)
    warn(remember(opened.store, summary.results))
    _emit(opened, summary, format, output, overwrite=overwrite, gate=gate)
    if gate and format != "github":
        from repotrace.sweeps import unexpected

        for line in unexpected(summary, gate=True):
            note(f"not as the gate wants it: {line}")
    unfinished = total - summary.total
    if unfinished > 0:
        complain(f"interrupted; {unfinished} of {total} reports were not replayed")
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(0 if keep_going else _exit_code(summary, gate=gate))


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None] | None]:
    """A progress bar on stderr while that is a terminal."""
    if total < 2 or not sys.stderr.isatty():
        yield None
        return
    from repotrace.render.console import console
    from repotrace.render.progress import bar

    with bar(console(stderr=True), "replaying", total) as advance:
        yield lambda _: advance()


def _emit(
    opened: Opened,
    summary: ReplaySummary,
    format: Format | None,  # noqa: A002
    output: Path | None,
    *,
    overwrite: bool,
    gate: bool,
) -> None:
    from repotrace.sweeps import sweep_text

    format = format or ("table" if output is None else "markdown")  # noqa: A001
    if format == "table" and output is None:
        from repotrace.render.console import console
        from repotrace.render.replays import replay_table, sweep_line

        if summary.total == 0:
            if not opened.store.reports.list_ids():
                say("no reports stored")
            return
        console(color=opened.color).print(replay_table(summary))
        say(sweep_line(summary))
        return
    text = sweep_text(summary, format, gate=gate)
    if output is None:
        say(text.rstrip("\n"))
    else:
        from repotrace.report import write_text

        say(f"wrote {write_text(output, text, overwrite=overwrite)}")


def _exit_code(summary: ReplaySummary, *, gate: bool) -> int:
    if summary.failed:
        return COULD_NOT_RUN
    from repotrace.sweeps import as_expected

    good = all(as_expected(result, gate=gate) for result in summary.results)
    return REPRODUCED if good else DIFFERENT
