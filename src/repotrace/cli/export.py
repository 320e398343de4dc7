"""`repotrace export`, and `work export-trace`, its second name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from repotrace.cli.options import (
    Opened,
    OutputOption,
    OverwriteOption,
    RunArgument,
    StoreOption,
    open_runs,
    run_or_report,
    say,
    the_run,
)
from repotrace.errors import ReportExists, RepoTraceError
from repotrace.records.bug import BugReport

if TYPE_CHECKING:
    from repotrace.records.run import Run
    from repotrace.runs.export.selection import ExportOptions

Format = Literal["json", "markdown", "html", "bundle"]

_PRINTED = Path("-")
"""Given as the file: stdout."""

RefArgument = Annotated[
    str,
    typer.Argument(metavar="REF", help="Id of a run or report, a prefix, latest, or a file"),
]
FormatOption = Annotated[
    Format | None,
    typer.Option("--format", "-f", help="What to write (default: as the file is named, or json)"),
]
FromStepOption = Annotated[
    int | None,
    typer.Option("--from-step", "--step-from", metavar="N", min=1, help="Leave earlier steps out"),
]
ToStepOption = Annotated[
    int | None,
    typer.Option("--to-step", "--step-to", metavar="N", min=1, help="Leave later steps out"),
]
NoLLMOption = Annotated[
    bool,
    typer.Option("--no-llm", "--scrub", help="Leave out what models were asked and answered"),
]
NoFilesOption = Annotated[
    bool, typer.Option("--no-files", help="Leave out the contents of changed files")
]
MaxBytesOption = Annotated[
    int | None,
    typer.Option("--max-bytes", metavar="N", min=1, help="Cut longer texts; leave out such files"),
]
BriefOption = Annotated[
    bool, typer.Option("--brief", help="Markdown that fits into an issue: 65,536 characters")
]
AllowSecretsOption = Annotated[
    bool, typer.Option("--allow-secrets", help="Keep what looks like a secret in files")
]
FullOption = Annotated[
    bool, typer.Option("--full", help="Bundle the history of the commit too, for git commands")
]


def export(
    ctx: typer.Context,
    ref: RefArgument = "latest",
    format: FormatOption = None,  # noqa: A002 - the name of the option
    output: OutputOption = None,
    overwrite: OverwriteOption = False,
    from_step: FromStepOption = None,
    to_step: ToStepOption = None,
    no_llm: NoLLMOption = False,
    no_files: NoFilesOption = False,
    max_bytes: MaxBytesOption = None,
    brief: BriefOption = False,
    allow_secrets: AllowSecretsOption = False,
    full: FullOption = False,
    store: StoreOption = None,
) -> None:
    """Write a run or report as JSON, Markdown, HTML or a bundle

    A bundle holds the files too: import it elsewhere, and restore, replay or blame there.
    """
    from repotrace.runs.export.selection import ExportOptions

    opened = open_runs(ctx, store)
    options = ExportOptions(
        from_step=from_step,
        to_step=to_step,
        llm=not no_llm,
        files=not no_files,
        max_bytes=max_bytes,
        brief=brief,
        allow_secrets=allow_secrets,
        full=full,
    )
    found = run_or_report(opened, ref)
    if isinstance(found, BugReport) and (from_step or to_step):
        raise typer.BadParameter("a report has no steps", param_hint="--from-step")
    _write(opened, found, format, options, output, overwrite=overwrite)


def work_export_trace(
    ctx: typer.Context,
    run: RunArgument = "latest",
    output: Annotated[
        Path | None, typer.Argument(metavar="OUTPUT_PATH", help="File to write; default: print it")
    ] = None,
    format: FormatOption = None,  # noqa: A002 - the name of the option
    overwrite: OverwriteOption = False,
    from_step: FromStepOption = None,
    to_step: ToStepOption = None,
    no_llm: NoLLMOption = False,
    no_files: NoFilesOption = False,
    max_bytes: MaxBytesOption = None,
    brief: BriefOption = False,
    allow_secrets: AllowSecretsOption = False,
    full: FullOption = False,
) -> None:
    """Write a run as JSON, Markdown, HTML or a bundle"""
    from repotrace.runs.export.selection import ExportOptions

    opened = open_runs(ctx)
    options = ExportOptions(
        from_step=from_step,
        to_step=to_step,
        llm=not no_llm,
        files=not no_files,
        max_bytes=max_bytes,
        brief=brief,
        allow_secrets=allow_secrets,
        full=full,
    )
    _write(opened, the_run(opened, run), format, options, output, overwrite=overwrite)


def _refuse_odd(format: Format, options: ExportOptions) -> None:  # noqa: A002
    """Raises BadParameter for options that would do nothing."""
    if options.brief and format != "markdown":
        raise typer.BadParameter(
            f"is for Markdown, not {format}: say -f markdown", param_hint="--brief"
        )
    if options.full and format != "bundle":
        raise typer.BadParameter(
            f"is for a bundle, not {format}: say -f bundle", param_hint="--full"
        )
    if options.full and not options.files:
        raise typer.BadParameter("--full and --no-files exclude each other")


def _where(output: Path | None, format: Format, usual: Path) -> Path | None:  # noqa: A002
    """The file to write; None: it is printed. A terminal gets what people read, and no more."""
    if output is None:
        for_people = format == "markdown"
        is_printed = format != "bundle" and (for_people or not sys.stdout.isatty())
        return None if is_printed else usual
    if output != _PRINTED:
        return output
    if format == "bundle" and sys.stdout.isatty():
        raise typer.BadParameter("a bundle is no text to print", param_hint="--output")
    return None


def _write(
    opened: Opened,
    found: Run | BugReport,
    format: Format | None,  # noqa: A002
    options: ExportOptions,
    output: Path | None,
    *,
    overwrite: bool,
) -> None:
    from repotrace.runs.export.exporting import (
        EXPORTERS,
        export_report,
        export_run,
        format_of_name,
    )

    name = output.name if output is not None and output != _PRINTED else ""
    format = format or format_of_name(name)  # noqa: A001
    _refuse_odd(format, options)
    output = _where(output, format, Path(f"{found.id}{EXPORTERS[format].suffix}"))
    if output is not None and output.is_dir():
        raise RepoTraceError(f"{output} is a folder.", hint="Name a file, as in -o DIR/run.json")
    if output is not None and output.exists() and not overwrite:
        raise ReportExists(f"{output} is there already.", hint="Replace it with --overwrite")
    if isinstance(found, BugReport):
        data = export_report(opened.store, found, format, options)
    else:
        data = export_run(opened.store, found, format, options)
    opened.store.close()
    if output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.flush()
        return
    from repotrace.storage.files import write_file

    try:
        write_file(output, data, overwrite=overwrite)
    except OSError as error:
        raise RepoTraceError(f"{output} cannot be written: {error.strerror}.") from error
    say(f"wrote {output}")
